"""Programs made of functions of JAX, which can be interrupted, stored and reversed."""

from ckio.programs.jaxed.tracing import JaxProgram, RegisterState, jax_program

__all__ = ["JaxProgram", "RegisterState", "jax_program"]
