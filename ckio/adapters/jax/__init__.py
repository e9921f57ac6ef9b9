"""JAX: loops whose reverse mode stores states on the levels of a platform, and models."""

from ckio.adapters.jax.model import JaxModel, PartitionedModel
from ckio.adapters.jax.scan import checkpointed_scan

__all__ = ["JaxModel", "PartitionedModel", "checkpointed_scan"]
