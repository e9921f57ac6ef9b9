"""A loop of PyTorch among what else PyTorch has: hooks, other derivatives, copies, threads."""

import threading
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.autograd import forward_ad  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

from ckio import Affine, Level, Platform  # noqa: E402
from ckio.adapters.torch import checkpointed_loop, saved_on  # noqa: E402
from ckio.adapters.torch.loop import generators_of  # noqa: E402
from ckio.errors import BadInput, RunFailed  # noqa: E402
from ckio.planners import hrevolve  # noqa: E402


class Cell(nn.Linear):
    def forward(self, x: Any, i: int) -> Any:
        return torch.tanh(super().forward(x))


@pytest.fixture(autouse=True)
def _doubles() -> Iterator[None]:
    torch.manual_seed(1)
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def plain(step: Callable[..., Any], x: Any, n: int, _: Any = None) -> Any:
    for i in range(n):
        x = step(x, i)
    return x


def ours(step: Callable[..., Any], x: Any, n: int, params: Any = None) -> Any:
    return checkpointed_loop(step, x, n, params=params)


def leaf(*shape: int) -> Any:
    return torch.randn(*shape, requires_grad=True)


def test_a_hook_of_a_parameter_is_told_of_the_whole_gradient_once() -> None:
    """As of one that clips, scales, or counts; a step's part of it is no gradient."""
    x0, found = torch.randn(3), []
    for loop in (plain, ours):
        torch.manual_seed(2)
        w, told = leaf(3), []
        handle = w.register_hook(lambda g, told=told: (told.append(g.clone()), 3 * g)[1])
        w.register_post_accumulate_grad_hook(lambda _, told=told: told.append(torch.ones(3)))
        loop(lambda x, i, w=w: torch.sin(w * x), x0, 7, [w]).sum().backward()
        assert len(told) == 2
        found.append((told[0], w.grad))
        handle.remove()
        loop(lambda x, i, w=w: torch.sin(w * x), x0, 7, [w]).sum().backward()
        assert len(told) == 3  # it is the same hook that was removed
    (told, w), (expected, v) = found[1], found[0]
    assert torch.allclose(told, expected)
    assert torch.allclose(w, v)


def test_a_computed_parameter_that_keeps_its_gradient_has_the_whole() -> None:
    x0, theta, kept = torch.randn(3), leaf(3), []
    for loop in (plain, ours):
        w = theta.exp()
        w.retain_grad()
        w.register_hook(lambda g: 2 * g)
        loop(lambda x, i, w=w: torch.sin(w * x), x0, 5, [w]).sum().backward()
        kept.append(w.grad)
    assert torch.allclose(*kept)


def test_hooks_are_there_again_after_an_error() -> None:
    w, told = leaf(3), []
    w.register_hook(told.append)

    def step(x: Any, i: int) -> Any:
        y = w * x
        if y.requires_grad and i == 2:
            y.register_hook(lambda _: 1 / 0)
        return y

    y = checkpointed_loop(step, torch.randn(3), 5, params=[w])
    with pytest.raises(RunFailed, match="ZeroDivisionError"):
        y.sum().backward()
    assert told == []
    (2 * w).sum().backward()
    assert len(told) == 1


def test_parameters_of_parameters_are_refused_as_their_gradient_would_count_twice() -> None:
    theta = leaf(3)
    w = theta + 1  # its graph saves nothing, and could be gone through again and again
    with pytest.raises(BadInput, match=r"computed from another, of shape \(3,\)"):
        checkpointed_loop(lambda x, i: w * x, torch.randn(3), 5, params=[theta, w])
    one, other = leaf(2, 3).unbind()  # of the same operation, and not of one another
    y = checkpointed_loop(lambda x, i: one * x + other, torch.randn(3), 5, params=[one, other])
    assert y.requires_grad


def test_what_was_computed_before_the_loop_is_asked_for() -> None:
    theta = leaf(3)
    w = theta.exp()
    y = checkpointed_loop(lambda x, i: w * x, torch.randn(3), 5, params=[theta])
    with pytest.raises(BadInput, match="computed from `params` before the loop"):
        y.sum().backward()


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")  # torch.func uses it
def test_forward_mode_and_transforms_are_refused() -> None:
    """They would lose derivatives without a word."""
    x, w = torch.randn(3), leaf(3)

    def loop(x: Any) -> Any:
        return checkpointed_loop(lambda x, i: x.sin(), x, 5)

    for asked in (
        lambda: torch.func.grad(lambda x: loop(x).sum())(x),
        lambda: torch.func.jvp(loop, (x,), (x,)),
        lambda: torch.func.jacrev(loop)(x),
        lambda: torch.func.vmap(loop)(torch.randn(2, 3)),
        lambda: torch.func.vmap(lambda x: ours(lambda x, i: w * x, x, 5, [w]))(torch.randn(2, 3)),
    ):
        with pytest.raises(BadInput, match=r"none within torch\.func"):
            asked()
    with forward_ad.dual_level(), pytest.raises(BadInput, match="no derivatives in forward mode"):
        loop(forward_ad.make_dual(x, torch.ones(3)))


def test_the_way_back_may_be_asked_for_many_cotangents_at_once() -> None:
    x, w, found = leaf(3), leaf(3), []
    for loop in (plain, ours):
        y = loop(lambda x, i: torch.sin(w * x) + x, x, 5, [w])
        found += [torch.autograd.grad(y, (x, w), torch.eye(3), is_grads_batched=True)]
    for one, other in zip(*found, strict=True):
        assert torch.allclose(one, other)


@pytest.mark.parametrize("planner", ["hrevolve", "store-all", "mixed"])
def test_room_that_steps_use_again_is_no_wrong_gradient(planner: str) -> None:
    rooms, u = [torch.zeros(3), torch.zeros(3)], leaf(3)

    def step(x: Any, i: int, into: Any = None) -> Any:
        angle = torch.cos(x[1] + i)
        if into is not None:
            with torch.no_grad():
                angle = into[i % 2].copy_(angle)
        return torch.sin(x[0] * x[1]), angle

    x0, where = (u, torch.randn(3)), Platform((Level(name="ram"),))
    (expected,) = torch.autograd.grad(plain(step, x0, 9)[0].sum(), u)
    y, _ = checkpointed_loop(lambda x, i: step(x, i, rooms), x0, 9, planner=planner, platform=where)
    if planner == "hrevolve":
        assert torch.equal(torch.autograd.grad(y.sum(), u)[0], expected)
    else:
        with pytest.raises(BadInput, match="changed in place the state that step 7 received"):
            torch.autograd.grad(y.sum(), u)


@pytest.mark.parametrize(
    "dtype", [torch.float16, torch.bfloat16, torch.float32, torch.complex64], ids=str
)
def test_short_numbers_have_the_same_bits(dtype: Any) -> None:
    x, w = (torch.randn(3).to(dtype).requires_grad_() for _ in range(2))
    found = [
        torch.autograd.grad(loop(lambda x, i: torch.sin(w * x), x, 30, [w]).abs().sum(), (x, w))
        for loop in (plain, ours)
    ]
    assert all(map(torch.equal, *found))


def test_each_output_alone_and_what_is_detached() -> None:
    a, b, w = leaf(3), leaf(3), leaf(3)

    def step(x: Any, i: int) -> Any:
        return torch.sin(w * x[0]), x[1] * x[0].detach(), x[0] * w

    x0 = a.exp(), b, torch.zeros(3)  # the first of them is no leaf, the last needs no gradient
    for k in range(3):
        expected, found = (
            torch.autograd.grad(
                loop(step, x0, 7, [w])[k].sum(), (a, b, w), retain_graph=True, allow_unused=True
            )
            for loop in (plain, ours)
        )
        for one, other in zip(found, expected, strict=True):
            assert one is other if one is None or other is None else torch.allclose(one, other)


def test_what_is_frozen_stays_so() -> None:
    cell = Cell(3, 3)
    cell.bias.requires_grad_(False)
    checkpointed_loop(cell, torch.randn(3), 5).sum().backward()
    assert cell.bias.grad is None
    assert cell.weight.grad is not None


def test_within_and_around_torchs_own_checkpoints_and_saved_on() -> None:
    w, x = leaf(300), leaf(300)

    def step(x: Any, i: int) -> Any:
        return torch.sin(w * x)

    def checkpointed(function: Callable[[Any], Any], x: Any) -> Any:
        return checkpoint(function, x, use_reentrant=False)

    expected = torch.autograd.grad(plain(step, x, 7).sum(), (x, w))
    with saved_on(Level(name="ram"), at_least=1):
        stored = ours(step, x, 7, [w])
    for y in (
        checkpointed(lambda x: ours(step, x, 7, [w]), x),
        ours(lambda x, i: checkpointed(lambda x: step(x, i), x), x, 7, [w]),
        stored,
    ):
        for one, other in zip(torch.autograd.grad(y.sum(), (x, w)), expected, strict=True):
            assert torch.allclose(one, other)


def test_dicts_of_other_kinds() -> None:
    for kind in (OrderedDict, lambda x: defaultdict(list, x)):
        x0 = kind({"u": leaf(3)})
        y = checkpointed_loop(lambda x, i, kind=kind: kind({"u": x["u"].sin()}), x0, 5)
        assert type(y) is type(x0)
        assert torch.equal(y["u"], plain(lambda x, i: x.sin(), x0["u"], 5))


def test_generators_that_are_not_known() -> None:
    with pytest.raises(BadInput, match="generators of mps:0 are not known"):
        generators_of([torch.device("cpu"), torch.device("mps:0")])


def test_a_loop_in_each_of_many_threads(tmp_path: Path) -> None:
    w, found = leaf(100), {}
    platform = Platform(
        (
            Level(name="ram", capacity=20_000),
            Level(name="disk", backend="directory", options={"path": str(tmp_path)}),
        )
    )

    def step(x: Any, i: int) -> Any:
        return torch.sin(w * x)

    def run(number: int) -> None:
        x = torch.full((100,), 0.1 * number, requires_grad=True)
        y = checkpointed_loop(step, x, 30, params=[w], platform=platform)
        found[number] = torch.equal(
            torch.autograd.grad(y.sum(), x)[0],
            torch.autograd.grad(plain(step, x, 30).sum(), x)[0],
        )

    threads = [threading.Thread(target=run, args=(number,)) for number in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == dict.fromkeys(range(5), True)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_loop_that_is_trained_is_timed_and_planned_once() -> None:
    cell, steps, plans = Cell(4, 4), [], []
    cell.register_forward_hook(lambda *_: steps.append(0))

    def planner(*asked: Any) -> Any:
        plans.append(asked)
        return hrevolve(*asked)

    price = Affine(1e-9, 0)
    platform = Platform((Level(name="ram", capacity=100_000, write=price, read=price),))
    for again in range(4):
        steps.clear()
        x = checkpointed_loop(cell, torch.randn(2, 4), 8, platform=platform, planner=planner)
        x.sum().backward()
        if not again:
            first = len(steps)
        assert len(steps) == first - 2 * bool(again)
    assert len(plans) == 1


def test_a_step_that_is_an_object_without_a_hash_is_timed() -> None:
    class Step:
        __hash__ = None  # type: ignore[assignment]

        def __call__(self, x: Any, i: int) -> Any:
            return x.sin()

    platform = Platform((Level(name="ram", write=Affine(1e-9, 0)),))
    checkpointed_loop(Step(), leaf(3), 5, platform=platform).sum().backward()
