"""What goes into a checkpoint: which variables (dataflow), and which values of a tape (dag)."""
