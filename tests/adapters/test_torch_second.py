"""A Hessian product by a loop of pairs in PyTorch is that of PyTorch without checkpoints."""

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from ckio.adapters.torch import checkpointed_loop  # noqa: E402

N = 60


def flow(u: Any, k: Any) -> Any:
    return u + k * (torch.roll(u, 1) - 2 * u + torch.roll(u, -1)) + 0.01 * torch.sin(k * u)


# PyTorch warns of its own code when it first computes a tangent.
@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")
def test_the_gradient_of_a_slope_is_the_product_of_torch(tmp_path: Any) -> None:
    torch.manual_seed(0)
    u0, k = (torch.rand(20, dtype=torch.float64, requires_grad=True) for _ in range(2))
    du0, dk = (torch.rand(20, dtype=torch.float64) for _ in range(2))

    def pair(x: Any, i: int) -> Any:
        return torch.func.jvp(flow, (x[0], k), (x[1], dk))

    levels = {"ram": 40_000, "disk": str(tmp_path / "states")}
    u, du = checkpointed_loop(pair, (u0, du0), N, params=[k], **levels)
    found = torch.autograd.grad(2 * (u * du).sum(), [u0, k])

    def value(u: Any, k: Any) -> Any:
        for _ in range(N):
            u = flow(u, k)
        return u.square().sum()

    gradient = torch.func.grad(value, (0, 1))
    at, along = (u0.detach(), k.detach()), (du0, dk)
    _, wanted = torch.func.jvp(gradient, at, along)
    for one, other in zip(found, wanted, strict=True):
        assert torch.allclose(one, other, rtol=1e-12, atol=1e-12)
