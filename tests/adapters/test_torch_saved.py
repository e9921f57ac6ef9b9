"""What autograd saves, put on levels: once, for as long as it is needed, and as it was."""

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from ckio import Level  # noqa: E402
from ckio.adapters.scratch import Scratch  # noqa: E402
from ckio.adapters.torch import saved_on  # noqa: E402
from ckio.adapters.torch.tensors import _StoredTensor  # noqa: E402
from ckio.errors import BadInput, CorruptCheckpoint, LevelFull, RunFailed  # noqa: E402
from ckio.platform import Platform  # noqa: E402

RAM = Level(name="ram")


@pytest.fixture(autouse=True)
def _at_random() -> None:
    torch.manual_seed(1)


@pytest.fixture(autouse=True)
def _no_collector() -> Iterator[None]:
    """Nothing that is to be removed may wait for it."""
    gc.disable()
    yield
    gc.enable()


def disk(path: Path, **options: Any) -> Level:
    return Level(name="disk", backend="directory", options={"path": str(path), **options})


def count(scratch: Scratch) -> list[int]:
    return [len(list(backend.keys())) for backend in scratch.backends]


def network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4), nn.GELU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(64, 16), nn.LayerNorm(16), nn.Dropout(0.2), nn.Linear(16, 3),
    )  # fmt: skip


def gradient(model: nn.Module, x: Any) -> list[Any]:
    torch.manual_seed(2)
    loss = nn.functional.cross_entropy(model(x), torch.tensor([0, 2, 1]))
    return list(torch.autograd.grad(loss, list(model.parameters())))


def test_a_network_has_the_bits_of_the_same_gradient(tmp_path: Path) -> None:
    model, x = network(), torch.randn(3, 2, 8, 8)
    expected = gradient(model, x)
    with saved_on(disk(tmp_path, codec="zstd"), at_least=1) as scratch:
        torch.manual_seed(2)
        loss = nn.functional.cross_entropy(model(x), torch.tensor([0, 2, 1]))
        assert count(scratch)[0] > 10
    found = torch.autograd.grad(loss, list(model.parameters()))
    assert all(map(torch.equal, found, expected))
    del loss
    assert count(scratch) == [0]
    del scratch
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def bits(tensor: Any) -> Any:
    return tensor.reshape(-1).contiguous().view(torch.uint8)


VIEWS = {
    "whole": lambda t: t,
    "transposed": lambda t: t.permute(2, 0, 1),
    "with holes": lambda t: t[:, ::2, 1:],
    "repeated": lambda t: t[:, :1].expand(4, 7, 6),
    "number": lambda t: t[1, 2, 3],
    "channels last": lambda t: t[None].contiguous(memory_format=torch.channels_last),
    "nothing": lambda t: t[:0],
    "diagonal": lambda t: t.diagonal(dim1=0, dim2=2),
    "windows": lambda t: t.unfold(1, 3, 1),
}
DTYPES = (
    torch.float64, torch.float16, torch.bfloat16, torch.complex64, torch.bool, torch.int64,
    torch.uint8, torch.float8_e4m3fn,
)  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_what_comes_back_is_what_was_given(dtype: Any) -> None:
    scratch = Scratch(Platform((RAM,)))
    whole = (3 * torch.randn(4, 5, 6)).to(dtype)
    for name, view in VIEWS.items():
        tensor = view(whole)
        back = _StoredTensor(scratch, tensor).tensor()
        assert back.dtype == dtype, name
        assert back.shape == tensor.shape, name
        assert torch.equal(bits(back), bits(tensor))
        assert back.is_contiguous(), name
    assert count(scratch) == [0]


def test_a_conjugate_is_stored_as_what_it_is() -> None:
    scratch, z = Scratch(Platform((RAM,))), torch.randn(5, dtype=torch.complex64)
    assert torch.equal(_StoredTensor(scratch, z.conj()).tensor(), z.conj())
    assert torch.equal(_StoredTensor(scratch, z.conj().imag).tensor(), z.conj().imag)


def test_one_that_is_saved_often_is_stored_once_and_again_where_it_has_changed() -> None:
    x = torch.randn(100, requires_grad=True)
    with saved_on(RAM, at_least=100) as scratch:
        a = x * 2
        b = a.sin() + a.cos() + a * a + a.view(10, 10).exp().sum()
        # a, exp of a
        assert count(scratch) == [2]
        c = a[::2] * a[1::2]
        assert count(scratch) == [4]
    c.sum().backward(retain_graph=True)
    b.sum().backward(retain_graph=True)
    t = (2 * x).detach()
    d = t[0::2] * 0
    expected = 2 * (t.cos() - t.sin() + 2 * t + 100 * t.exp())
    expected[0::2] += 2 * t[1::2] + d
    expected[1::2] += 2 * t[0::2]
    assert torch.allclose(x.grad, expected)
    del a, b, c
    assert count(scratch) == [0]


def test_what_was_stored_does_not_mind_a_change_in_place() -> None:
    """The copy is of when it was saved; without ckio this is an error."""
    x = torch.randn(100, requires_grad=True)
    with saved_on(RAM, at_least=100) as scratch:
        a = x * 2
        b = a.sin()
        a.mul_(3)
        c = a.cos()
        assert count(scratch) == [2]
    (found,) = torch.autograd.grad((b + c).sum(), x)
    assert torch.allclose(found, 2 * torch.cos(2 * x) - 6 * torch.sin(6 * x))


def test_memory_that_is_used_again_is_not_taken_for_what_it_was() -> None:
    x = torch.randn(1 << 16, requires_grad=True)
    with saved_on(RAM, at_least=100):
        # Each temporary is freed, and torch gives its memory to the next.
        kept = [(x * i).sin().sum() for i in range(1, 9)]
    found = torch.autograd.grad(sum(kept), x)[0]
    expected = sum(i * torch.cos(i * x.detach()) for i in range(1, 9))
    assert torch.allclose(found, expected, atol=1e-4)


def test_parameters_and_what_is_small_stay_where_they_are() -> None:
    layer, x = nn.Linear(50, 50), torch.randn(20, 50)
    with saved_on(RAM, at_least=1000) as scratch:
        y = (layer(x).tanh() * torch.randn(50)).sum()
        assert count(scratch) == [2]  # x and the hyperbolic tangent; neither weight nor factors
    assert y.isfinite()


def test_what_stays_must_not_be_changed() -> None:
    layer, x = nn.Linear(50, 50), torch.randn(20, 50, requires_grad=True)
    with saved_on(RAM, at_least=1000):
        y = layer(x).sum()
    with torch.no_grad():
        layer.weight.add_(1)
    with pytest.raises(RunFailed, match=r"shape \(50, 50\).*changed in place"):
        y.backward()


def test_the_next_level_takes_what_the_first_has_no_room_for(tmp_path: Path) -> None:
    x = torch.randn(1000, requires_grad=True)
    with saved_on(Level(name="ram", capacity=9000), disk(tmp_path), at_least=1) as scratch:
        y = x
        for _ in range(6):
            y = y.tanh()
        assert count(scratch) == [2, 4]
    (found,) = torch.autograd.grad(y.sum(), x)
    z = x
    for _ in range(6):
        z = z.tanh()
    assert torch.equal(found, torch.autograd.grad(z.sum(), x)[0])
    with (
        saved_on(Level(name="ram", capacity=9000), at_least=1) as scratch,
        pytest.raises(LevelFull),
    ):
        x.tanh().tanh().tanh()
    assert count(scratch) == [0]


def test_a_damaged_file_is_no_gradient(tmp_path: Path) -> None:
    x = torch.randn(5000, requires_grad=True)
    with saved_on(disk(tmp_path), at_least=1):
        y = x.tanh().sum()
    (path,) = [path for path in tmp_path.rglob("slots-*") if path.is_file()]
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2)
        found = file.read(1)
        file.seek(-1, 1)
        file.write(bytes([found[0] ^ 1]))
    with pytest.raises(CorruptCheckpoint):
        y.backward()


def test_second_derivatives_go_through() -> None:
    x = torch.randn(100, dtype=torch.float64, requires_grad=True)
    with saved_on(RAM, at_least=1) as scratch:
        (first,) = torch.autograd.grad(x.sin().exp().sum(), x, create_graph=True)
        (second,) = torch.autograd.grad(first.sum(), x)
    s, c = x.detach().sin(), x.detach().cos()
    assert torch.allclose(second, s.exp() * (c**2 - s))
    del first
    assert count(scratch) == [0]


def test_levels_that_were_closed_do_not_matter_to_a_graph_that_dies() -> None:
    x = torch.randn(100, requires_grad=True)
    with saved_on(RAM, at_least=1) as scratch:
        y = x.tanh()
    scratch.close()
    del y


def test_a_level_is_needed() -> None:
    with pytest.raises(BadInput, match="at least one level"), saved_on():
        pass
