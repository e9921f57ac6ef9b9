"""Reverse mode for numpy: values as they are computed without it, recorded for the way back.

Tape           records operations, and walks back
Traced         a number or an array on a tape
primitive      gives a kernel its own adjoint
stop_gradient  a value without its derivative

The modules, lowest first: `cells`; `ufuncs` and `rules`, with `numerics`; `tape`;
`operations`, `dispatch` and `operators`; `equivalents`, which adds rules that tape other functions.
"""

from ckio.programs.tape import equivalents, numerics
from ckio.programs.tape.operators import Traced, primitive, stop_gradient
from ckio.programs.tape.tape import Tape

__all__ = ["Tape", "Traced", "equivalents", "numerics", "primitive", "stop_gradient"]
