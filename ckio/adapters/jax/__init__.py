"""Time loops in JAX: their gradient stores states on the levels of a platform.

`checkpointed_scan` is a loop that `jax.grad` differentiates. `JaxModel` and `PartitionedModel` are
models that ckio plans and runs.
"""

from ckio.adapters.jax.model import JaxModel, PartitionedModel
from ckio.adapters.jax.scan import checkpointed_scan

__all__ = ["JaxModel", "PartitionedModel", "checkpointed_scan"]
