"""ckio: checkpoint I/O for adjoint computation. Measure, plan, simulate, run, compare."""

__version__ = "0.1.0"
