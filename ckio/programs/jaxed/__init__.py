"""Functions of JAX as programs: interrupted after any tick, stored as plain data, and reversed."""

from ckio.programs.jaxed.tracing import JaxProgram, RegisterState, jax_program

__all__ = ["JaxProgram", "RegisterState", "jax_program"]
