"""Gradients of programs whose number of steps is not known before they end.

    @program                          make a `Program` from a plain Python function of numpy arrays
    jax_program(f, *example)          make a `Program` from a function of JAX, with any loops
    primops, checkpoint, resume       count its ticks, return an intermediate state, resume from it
    vjp, checkpoint_vjp               compute its gradient with one tape, or in little memory
    as_chain                          make a model from it, which ckio can plan, simulate and run

`Program` is the protocol of all kinds of programs. `primitive` gives a function an adjoint, and
`stop_gradient` removes a derivative, in plain Python.
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

_MODULES = {
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
"""The module of each name. It is imported when the name is first used."""


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'ckio.programs' has no attribute {name!r}")
    return getattr(importlib.import_module(f"ckio.programs.{_MODULES[name]}"), name)
