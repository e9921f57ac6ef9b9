"""Programs made from functions of JAX. They can be interrupted, stored and reversed."""

from ckio.programs.jaxed.tracing import JaxProgram, RegisterState, jax_program

__all__ = ["JaxProgram", "RegisterState", "jax_program"]
