"""Storage levels: memory, directories and HDF5 archives that store checkpoints."""
