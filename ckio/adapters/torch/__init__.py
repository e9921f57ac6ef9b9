"""Time loops in PyTorch whose gradient needs only few states in memory.

`checkpointed_loop` is differentiable like any other function. `TorchModel` is a model that ckio
plans and runs. `saved_on` stores the tensors that autograd saves on levels.
"""

from ckio.errors import BadInput

try:
    import torch  # noqa: F401
except ImportError:
    raise BadInput("ckio.adapters.torch needs PyTorch: pip install 'ckio[torch]'") from None

from ckio.adapters.torch.checkpointed import checkpointed_loop
from ckio.adapters.torch.model import TorchModel
from ckio.adapters.torch.tensors import saved_on

__all__ = ["TorchModel", "checkpointed_loop", "saved_on"]
