"""Reverse mode for numpy: values as they are computed without it, and notes for the way back.

Tape           takes notes, and walks back
Traced         a number or an array on a tape
primitive      gives a kernel its own adjoint
stop_gradient  a value without its derivative
"""

from ckio.programs.tape.primitives import primitive, stop_gradient
from ckio.programs.tape.tape import Tape
from ckio.programs.tape.traced import Traced

__all__ = ["Tape", "Traced", "primitive", "stop_gradient"]
