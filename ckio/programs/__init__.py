"""Programs of unknown shape: interrupted after any tick, stored as plain data, and reversed.

    @program                          a plain python function of NumPy arrays as a `Program`
    jax_program(f, *example)          a function of JAX, with whatever loops
    primops checkpoint resume         the ticks of a program, its state after some, on from there
    vjp, checkpoint_vjp               its gradient: by one tape of all, or in little memory
    as_chain                          a program as a model, for all that ckio does with models

`Program` is what any other kind of program has to do. `primitive` and `stop_gradient` are for those
who differentiate plain python.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ckio.programs.checkpointed import Options, checkpoint_vjp
    from ckio.programs.compiled import CompiledProgram, NotResumable, program
    from ckio.programs.interface import Program, checkpoint, primops, resume, vjp
    from ckio.programs.jaxed import JaxProgram, jax_program
    from ckio.programs.model import ProgramModel, as_chain
    from ckio.programs.tape import primitive, stop_gradient

__all__ = [
    "CompiledProgram",
    "JaxProgram",
    "NotResumable",
    "Options",
    "Program",
    "ProgramModel",
    "as_chain",
    "checkpoint",
    "checkpoint_vjp",
    "jax_program",
    "primitive",
    "primops",
    "program",
    "resume",
    "stop_gradient",
    "vjp",
]

_ROOM = {
    "CompiledProgram": "compiled",
    "JaxProgram": "jaxed",
    "NotResumable": "compiled",
    "Options": "checkpointed",
    "Program": "interface",
    "ProgramModel": "model",
    "as_chain": "model",
    "checkpoint": "interface",
    "checkpoint_vjp": "checkpointed",
    "jax_program": "jaxed",
    "primitive": "tape",
    "primops": "interface",
    "program": "compiled",
    "resume": "interface",
    "stop_gradient": "tape",
    "vjp": "interface",
}


def __getattr__(name: str) -> Any:
    if name not in _ROOM:
        raise AttributeError(f"module 'ckio.programs' has no attribute {name!r}")
    return getattr(importlib.import_module(f"ckio.programs.{_ROOM[name]}"), name)
