"""Storage levels: places that keep checkpoints."""
