"""Gradients of programs whose number of steps is not known before they end.

    @program                          make a `Program` from a plain Python function of numpy arrays
    jax_program(f, *example)          make a `Program` from a function of JAX, with any loops
    primops, checkpoint, resume       count its ticks, return an intermediate state, resume from it
    vjp, checkpoint_vjp               compute its gradient with one tape, or in little memory
    as_chain                          make a model from it, which ckio can plan, simulate and run

`Program` is the protocol of all kinds of programs. `primitive` gives a function an adjoint, and
`stop_gradient` removes a derivative, in plain Python.
"""

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
