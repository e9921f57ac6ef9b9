"""PyTorch: time loops whose gradient needs few states in memory, and saved tensors on levels.

`checkpointed_loop` and `CheckpointedLoop` are differentiable like any other function or module.
`TorchModel` is a loop that ckio runs itself. `saved_on` stores on levels the tensors that autograd
saves.
"""

from ckio.errors import BadInput

try:
    import torch  # noqa: F401
except ImportError:
    raise BadInput("ckio.adapters.torch needs PyTorch: pip install 'ckio[torch]'") from None

from ckio.adapters.torch.checkpointed import CheckpointedLoop, checkpointed_loop
from ckio.adapters.torch.model import TorchModel
from ckio.adapters.torch.tensors import saved_on

__all__ = ["CheckpointedLoop", "TorchModel", "checkpointed_loop", "saved_on"]
