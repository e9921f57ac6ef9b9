"""JAX: a loop whose reverse mode keeps its states on the levels of a platform, and a model."""

from ckio.adapters.jax.model import JaxModel
from ckio.adapters.jax.scan import checkpointed_scan

__all__ = ["JaxModel", "checkpointed_scan"]
