"""A loop of PyTorch as a model: on any schedule, in two models, the same bits."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from models.fewslots import PLANS, digest_by, digest_by_two  # noqa: E402
from small_models import digest, reverse_all  # noqa: E402

from ckio import Key, Kind, Ram, check_gradient  # noqa: E402
from ckio.actions import Read, Write  # noqa: E402
from ckio.adapters.torch import TorchModel  # noqa: E402
from ckio.errors import BadInput, RunFailed  # noqa: E402
from ckio.testing import HandingTests  # noqa: E402
from tests.single import perform_one  # noqa: E402

MODEL = '''\
import torch

from ckio.adapters.torch import TorchModel


class Heat(TorchModel):
    """Heat in a rod whose conductivity is noisy; it lasts 40 steps unless that is said."""

    def __init__(self, cells: int = 100):
        k = torch.nn.Parameter(torch.full((cells,), 0.2, dtype=torch.float64))

        def step(x, i):
            u, noise = x["u"], torch.randn(cells, dtype=torch.float64)
            flux = k * (torch.roll(u, 1) - 2 * u + torch.roll(u, -1)) * (1 + 0.1 * noise)
            return {"count": x["count"] + 1, "J": x["J"] + u.square().sum(), "u": u + flux}

        u = torch.sin(torch.linspace(0, 3, cells, dtype=torch.float64))
        state = {"u": u, "J": torch.zeros((), dtype=torch.float64), "count": torch.tensor(0)}
        super().__init__(
            step, state, lambda x: x["J"] + x["u"].sum(), params={"k": k},
            done=lambda x, i: bool(x["count"] == 40),
        )
'''


@pytest.fixture(scope="module")
def heat() -> Any:
    found: dict[str, Any] = {}
    exec(MODEL, found)
    return found["Heat"]


def whole(heat: Any) -> Any:
    """Without ckio: one tape of all steps."""
    return reverse_all(heat(), 40)


def test_few_slots_and_two_processes_give_the_bits_of_store_all(heat: Any, tmp_path: Path) -> None:
    expected = digest(whole(heat))
    assert expected[1].keys() == {"u", "J", "k"}
    for plan in PLANS:
        assert digest_by(plan, heat, 40, tmp_path / plan) == expected, plan
    assert digest_by_two(heat, 40) == expected


class TestHeat(HandingTests):
    @pytest.fixture(autouse=True)
    def _made(self, heat: Any) -> None:
        self.make = heat  # type: ignore[method-assign]

    def make(self) -> Any: ...


@pytest.mark.parametrize("kind", [Kind.RESTART, Kind.TAPE])
def test_a_checkpoint_in_memory_is_the_tensors_that_were_computed(heat: Any, kind: Kind) -> None:
    made, memory, key = heat(10_000), Ram(), Key(kind, 1)
    made.advance(0, 1)
    if kind is Kind.TAPE:
        made.record(1, 2)
    where = addresses(made.dump(key))
    perform_one(Write(key, 0), made, [memory])
    assert addresses(memory.kept(key) or ()) == where
    made.record(2, 3) if kind is Kind.TAPE else made.record(1, 3)
    perform_one(Read(key, 0), made, [memory])
    assert addresses(made.dump(key)) == where


def addresses(data: Sequence[memoryview]) -> list[int]:
    return [np.frombuffer(view, np.uint8).ctypes.data for view in data]


def test_it_is_the_gradient(heat: Any) -> None:
    assert check_gradient(heat, 40, whole(heat).gradient).verified
    assert check_gradient(heat, None, whole(heat).gradient).verified
    wrong = {name: 1.001 * array for name, array in whole(heat).gradient.items()}
    assert not check_gradient(heat, 40, wrong).verified


def test_the_first_state_is_made_of_the_controls(heat: Any) -> None:
    model, other = heat(), heat()
    other.control["u"][...] *= 2
    other.control["k"][...] *= 0.5
    for one in (model, other):
        one.advance(0, 5)
    assert other.functional != model.functional
    other.control["u"][...] = 0  # which is too late to change anything
    assert other.functional != 0


def test_what_does_not_fit() -> None:
    x = {"u": torch.ones(2)}
    with pytest.raises(BadInput, match=r"\['u'\] are names of several tensors"):
        TorchModel(
            lambda x, i: x, x, lambda x: x["u"].sum(), params={"u": torch.ones(2).requires_grad_()}
        )
    twice = {"a": {"b": torch.ones(2)}, "a.b": torch.ones(2)}
    with pytest.raises(BadInput, match=r"\['a.b'\] are names of several tensors"):
        TorchModel(lambda x, i: x, twice, lambda x: x["a.b"].sum())
    for params in (torch.ones(2), [torch.ones(2)], {"k": 2.0}):
        with pytest.raises(BadInput, match="a mapping of names to tensors"):
            TorchModel(lambda x, i: x, x, lambda x: x["u"].sum(), params=params)  # type: ignore[arg-type]
    half = torch.ones(2, dtype=torch.bfloat16)
    with pytest.raises(BadInput, match=r"BFloat16; controls are arrays of NumPy.*float32"):
        TorchModel(lambda x, i: x, {"u": half}, lambda x: x["u"].sum())
    with pytest.raises(BadInput, match=r"BFloat16; controls are arrays of NumPy.*float32"):
        TorchModel(lambda x, i: x, x, lambda x: x["u"].sum(), params={"k": half.requires_grad_()})
    model = TorchModel(lambda x, i: {"u": 2 * x["u"]}, x, lambda x: x["u"])
    with pytest.raises(BadInput, match="a tensor of one real number"):
        _ = model.functional
    model = TorchModel(lambda x, i: {"u": 2 * x["u"]}, x, lambda x: x["u"].sum())
    model.record(0, 2)
    with pytest.raises(RunFailed, match="cannot start at step 1"):
        model.reverse(0, 1)
    for kind in (Kind.RESTART, Kind.ADJOINT):
        with pytest.raises(BadInput, match="does not fit"), model.load(Key(kind, 0), ()):
            pass


STATES = {
    "x": (lambda u: u, lambda x: x),
    "0": (lambda u: (u, torch.tensor(3)), lambda x: x[0]),
    "flow.u": (lambda u: {"flow": {"u": u}}, lambda x: x["flow"]["u"]),
}


@pytest.mark.parametrize("name", list(STATES))
def test_a_state_is_any_structure_of_tensors(name: str, tmp_path: Path) -> None:
    wrap, unwrap = STATES[name]

    def make() -> TorchModel:
        k = torch.tensor([0.5, 0.7], dtype=torch.float64, requires_grad=True)

        def step(x: Any, i: int) -> Any:
            return wrap(torch.sin(unwrap(x) * k))

        u = wrap(torch.ones(2, dtype=torch.float64))
        return TorchModel(step, u, lambda x: unwrap(x).sum(), params={"k": k})

    expected = digest(reverse_all(make(), 6))
    assert expected[1].keys() == {name, "k"}
    assert check_gradient(make, 6, reverse_all(make(), 6).gradient).verified
    assert digest_by("recompute-all", make, 6, tmp_path) == expected


def test_a_complex_gradient_is_that_of_steepest_ascent() -> None:
    x = torch.tensor([1 + 2j], dtype=torch.complex128)
    model = reverse_all(
        TorchModel(lambda x, i: (1 + 1j) * x, x, lambda x: x.abs().square().sum()), 2
    )
    assert model.gradient["x"].tolist() == [8 * (1 + 2j)]  # J = 4 |x|^2, dJ = Re(conj(8 x) dx)
