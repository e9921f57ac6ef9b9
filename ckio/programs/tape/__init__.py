"""Reverse mode for numpy. All values have the same bits as without a tape.

Tape           records operations, and propagates cotangents backwards
Traced         a number or an array on a tape
primitive      gives a function its own adjoint
stop_gradient  removes a derivative

The modules, lowest first: `cells`; `ufuncs` and `rules`, with `numerics`; `tape`; `operations`,
`dispatch` and `operators`; `equivalents`, whose rules tape other functions.
"""

from ckio.programs.tape import equivalents, numerics
from ckio.programs.tape.operators import Traced, primitive, stop_gradient
from ckio.programs.tape.tape import Tape

__all__ = ["Tape", "Traced", "equivalents", "numerics", "primitive", "stop_gradient"]
