"""A loop of PyTorch that autograd takes back by a schedule: the same gradient, to the last bit."""

import gc
import inspect
import random
import re
from collections import namedtuple
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from ckio import Affine, Level, Platform  # noqa: E402
from ckio.adapters.torch import checkpointed_loop  # noqa: E402
from ckio.errors import BadInput, LevelFull, NoSchedule, RunFailed  # noqa: E402

Pair = namedtuple("Pair", "now before")


@pytest.fixture(autouse=True)
def _doubles() -> Iterator[None]:
    torch.manual_seed(1)
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def plain(step: Callable[..., Any], x: Any, n: int) -> Any:
    for i in range(n):
        x = step(x, i)
    return x


class Cell(nn.Module):
    """Some layers, of which one takes part in some steps only."""

    def __init__(self, size: int = 6) -> None:
        super().__init__()
        self.one, self.other = nn.Linear(size, size), nn.Linear(size, size)
        self.drop = nn.Dropout(0.3)
        self.unused = nn.Parameter(torch.ones(2))

    def forward(self, x: Any, i: int) -> Any:
        x = x + 0.1 * torch.tanh(self.drop(self.one(x)))
        return torch.sin(self.other(x)) if i % 3 == 2 else x


def levels(path: Path, nbytes: int) -> Platform:
    """Memory for two states, and a directory without an end."""
    return Platform(
        (
            Level(name="ram", capacity=2 * nbytes),
            Level(name="disk", backend="directory", options={"path": str(path)}),
        ),
        working_memory=2 * nbytes,
    )


def bytes_of(*tensors: Any) -> int:
    """Of a checkpoint, with what is random."""
    return sum(t.nbytes for t in (*tensors, torch.default_generator.get_state()))


def files(path: Path) -> list[Path]:
    return [file for file in path.rglob("*") if file.is_file()]


def gradients(y: Any, *of: Any) -> list[Any]:
    return list(torch.autograd.grad(y.square().sum(), of, allow_unused=True))


def assert_same(found: list[Any], expected: list[Any]) -> None:
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert one is other if one is None or other is None else torch.equal(one, other)


@pytest.mark.parametrize(
    "planner", ["hrevolve", "revolve", "mixed", "store-all", "periodic", "auto"]
)
def test_the_gradient_has_the_bits_of_the_plain_loops(planner: str, tmp_path: Path) -> None:
    cell, x0 = Cell(), torch.randn(4, 6, requires_grad=True)
    of, platform = (x0, *cell.parameters()), levels(tmp_path, bytes_of(x0))
    for n in (1, 2, 3, 7, 40):
        torch.manual_seed(5)
        expected = gradients(plain(cell, x0, n), *of)
        after = torch.rand(3)
        torch.manual_seed(5)
        y = checkpointed_loop(cell, x0, n, planner=planner, platform=platform)
        assert torch.equal(torch.rand(3), after)  # the generator is where the plain loop leaves it
        here = torch.get_rng_state()
        found = gradients(y, *of)
        assert torch.equal(torch.get_rng_state(), here)
        assert_same(found, expected)
        del y
        assert files(tmp_path) == []


def test_without_its_state_what_is_random_is_drawn_anew_and_refused() -> None:
    """Which the test above would not see if dropout did nothing."""
    cell, x0 = Cell(), torch.randn(4, 6, requires_grad=True)
    y = checkpointed_loop(cell, x0, 20, preserve_rng_state=False)
    with pytest.raises(RunFailed, match=r"x_\d+ is not the same"):
        gradients(y, x0)


def test_other_generators_go_on_from_where_they_were() -> None:
    noise = torch.Generator()

    def step(x: Any, i: int) -> Any:
        return torch.sin(x) + 0.1 * x * torch.randn(x.shape, generator=noise)

    x0 = torch.randn(5, requires_grad=True)
    noise.manual_seed(3)
    expected = gradients(plain(step, x0, 20), x0)
    noise.manual_seed(3)
    y = checkpointed_loop(step, x0, 20, generators=[noise], preserve_rng_state=False)
    assert_same(gradients(y, x0), expected)


def test_a_state_of_many_tensors_some_of_whole_numbers() -> None:
    def step(x: Any, i: int) -> Any:
        u, (v, count), h = x["u"], x["pair"], x["h"]
        grown = torch.where(count % 2 == 0, u, 2 * v[0])
        return {
            "h": h + grown.to(torch.bfloat16),
            "flag": ~x["flag"],
            "pair": Pair([v[0] + u * torch.sin(u)], count + 1),
            "u": (grown * x["z"]).real,
            "z": x["z"] * torch.exp(1j * u),
            "none": x["none"],
        }

    u, v = torch.randn(3, requires_grad=True), torch.randn(3, requires_grad=True)
    z = torch.randn(3, dtype=torch.complex128, requires_grad=True)
    x0 = {
        "u": u,
        "pair": Pair([v], torch.arange(3)),
        "flag": torch.tensor(True),
        "z": z,
        "h": torch.zeros(3, dtype=torch.bfloat16),
        "none": torch.empty(0, 4),
    }

    def total(x: Any) -> Any:
        return (x["u"] + x["pair"].now[0]).sum() + x["z"].abs().sum() + x["h"].double().sum()

    other = plain(step, x0, 15)
    expected = torch.autograd.grad(total(other), (u, v, z))
    y = checkpointed_loop(step, x0, 15)
    assert list(y) == list(x0)
    assert isinstance(y["pair"], Pair)
    assert y["pair"].before.tolist() == [15, 16, 17]
    assert not y["flag"]
    assert not y["pair"].before.requires_grad
    assert_same(list(torch.autograd.grad(total(y), (u, v, z))), list(expected))


def test_parameters_that_were_computed_are_given_as_they_are() -> None:
    theta = torch.randn(4, requires_grad=True)
    x0 = torch.randn(4)

    def both(loop: Callable[..., Any]) -> list[Any]:
        w = theta.exp()
        return gradients(loop(lambda x, i: torch.sin(w * x), x0, 9, w), theta)

    expected = both(lambda step, x, n, _: plain(step, x, n))
    assert_same(both(lambda step, x, n, w: checkpointed_loop(step, x, n, params=[w])), expected)


class Looped(nn.Module):
    def __init__(self, step: nn.Module, n: int) -> None:
        super().__init__()
        self.step, self.n = step, n

    def forward(self, x: Any) -> Any:
        return checkpointed_loop(self.step, x, self.n)


def test_a_module_its_method_and_a_module_around_it() -> None:
    cell, x0 = Cell().eval(), torch.randn(4, 6)
    of = tuple(cell.one.parameters())
    expected = gradients(plain(cell, x0, 12), *of)
    assert_same(gradients(checkpointed_loop(cell, x0, 12), *of), expected)
    assert_same(gradients(checkpointed_loop(cell.forward, x0, 12), *of), expected)
    assert_same(gradients(Looped(cell, 12)(x0), *of), expected)


def test_two_loops_in_a_graph_and_loops_in_a_loop(tmp_path: Path) -> None:
    w, x0 = torch.randn(3, requires_grad=True), torch.randn(3, requires_grad=True)
    where = levels(tmp_path, bytes_of(x0))

    def inner(x: Any, i: int) -> Any:
        return torch.sin(w * x)

    def outer(x: Any, i: int) -> Any:
        return x + checkpointed_loop(inner, x, 3, params=[w], platform=where)

    def both(loop: Callable[..., Any]) -> list[Any]:
        half = loop(inner, x0, 9)
        return gradients(loop(inner, half, 5) * half + loop(outer, x0, 6), x0, w)

    found = both(lambda *loop: checkpointed_loop(*loop, params=[w], platform=where))
    for one, other in zip(found, both(plain), strict=True):
        assert torch.allclose(one, other, rtol=1e-12, atol=0)
    assert files(tmp_path) == []


def test_autocast_is_as_it_was_and_no_cast_without_a_graph_is_used_again() -> None:
    layer = nn.Linear(8, 8).float()
    x0, seen = torch.randn(4, 8).float().requires_grad_(), []

    def step(x: Any, i: int) -> Any:
        y = layer(x)
        seen.append(y.dtype)
        return x + 0.1 * torch.tanh(y.float())

    with torch.autocast("cpu", torch.bfloat16):
        expected = gradients(plain(step, x0, 9), x0, layer.weight)
        y = checkpointed_loop(step, x0, 9, params=layer)
    found = gradients(y, x0, layer.weight)
    assert set(seen) == {torch.bfloat16}
    assert torch.equal(found[0], expected[0])
    # Plain autocasting adds up the parts of all steps in bfloat16.
    assert torch.allclose(found[1], expected[1], rtol=0.05, atol=0.02 * expected[1].abs().max())


def test_steps_are_not_run_again_in_another_autocast() -> None:
    layer, x0 = nn.Linear(8, 8).float(), torch.randn(4, 8).float().requires_grad_()
    seen = []

    def step(x: Any, i: int) -> Any:
        y = layer(x)
        seen.append(y.dtype)
        return torch.tanh(y)

    other, y = plain(step, x0, 9), checkpointed_loop(step, x0, 9, params=layer)
    with torch.autocast("cpu", torch.bfloat16):
        assert_same(gradients(y, x0), gradients(other, x0))
    assert set(seen) == {torch.float32}


def test_backward_twice() -> None:
    cell, x0 = Cell(), torch.randn(4, 6, requires_grad=True)
    y = checkpointed_loop(cell, x0, 9).sum()
    first = torch.autograd.grad(y, x0, retain_graph=True)
    torch.rand(5)  # which the second time does not hang on
    assert_same(list(torch.autograd.grad(y, x0)), list(first))
    with pytest.raises(RuntimeError, match="second time"):
        torch.autograd.grad(y, x0)


def test_second_derivatives_are_refused() -> None:
    x0 = torch.randn(3, requires_grad=True)
    y = checkpointed_loop(lambda x, i: x.sin(), x0, 5).sum()
    with pytest.raises(RunFailed, match="create_graph=True"):
        torch.autograd.grad(y, x0, create_graph=True)


def test_what_is_changed_before_the_way_back_is_seen() -> None:
    w, x0 = torch.randn(3, requires_grad=True), torch.randn(3, requires_grad=True)
    y = checkpointed_loop(lambda x, i: x * w, x0, 5, params=[w]).sum()
    with torch.no_grad():
        w.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()


def test_the_end_may_be_changed_where_the_last_step_does_not_need_it() -> None:
    x0 = torch.randn(3, requires_grad=True)
    expected = gradients(plain(lambda x, i: 2 * x, x0, 5).mul_(3), x0)
    assert_same(gradients(checkpointed_loop(lambda x, i: 2 * x, x0, 5).mul_(3), x0), expected)
    y = checkpointed_loop(lambda x, i: x.tanh(), x0, 5).mul_(3)
    with pytest.raises(RunFailed, match="modified by an inplace operation"):
        y.sum().backward()


@pytest.mark.parametrize("requires", [False, True])
def test_a_step_in_place_is_refused_and_harms_nobody(requires: bool) -> None:
    x0 = torch.ones(3, requires_grad=True)
    with pytest.raises(BadInput, match="step 0 changed its state in place"):
        checkpointed_loop(lambda x, i: x.mul_(2), x0 if requires else x0.detach(), 4)
    assert x0.tolist() == [1.0, 1.0, 1.0]

    def last(x: Any, i: int) -> Any:
        return x.mul_(2) if i == 3 else x * 2

    with pytest.raises((RunFailed, BadInput), match=r"in.?place"):
        checkpointed_loop(last, x0 if requires else x0.detach(), 4)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_no_gradient_no_levels(mode: Any, tmp_path: Path) -> None:
    cell, x0 = Cell().eval(), torch.randn(4, 6, requires_grad=True)
    nowhere = Platform((Level(name="no", backend="no such backend"),))
    with mode():
        y = checkpointed_loop(cell, x0, 9, platform=nowhere)
        z = checkpointed_loop(cell, x0.clone(), done=lambda _, i: i == 9, platform=nowhere)
    assert torch.equal(y, plain(cell, x0, 9))
    assert torch.equal(y, z)
    assert not y.requires_grad


def test_steps_that_need_no_state_or_no_parameter() -> None:
    w, x0 = torch.randn(3, requires_grad=True), torch.randn(3, requires_grad=True)
    y = checkpointed_loop(lambda x, i: w * i, x0, 4, params=[w])
    of_x0, of_w = torch.autograd.grad(y.sum(), (x0, w), allow_unused=True)
    assert of_x0 is None
    assert of_w.tolist() == [3.0] * 3
    y = checkpointed_loop(lambda x, i: torch.zeros(3), x0, 4, params=[w]).sum()
    assert torch.autograd.grad(y, (x0, w), allow_unused=True) == (None, None)
    same = checkpointed_loop(lambda x, i: x, x0, 4)
    assert same is not x0
    assert gradients(same, x0)[0].tolist() == (2 * x0).tolist()
    twice = checkpointed_loop(lambda x, i: (x[0] + x[1], x[0] + x[1]), (x0, x0), 4)
    assert gradients(twice[0] + twice[1], x0)[0].tolist() == pytest.approx((2048 * x0).tolist())


def test_strides_do_not_matter() -> None:
    x0 = torch.randn(5, 4, requires_grad=True)

    def step(x: Any, i: int) -> Any:
        return (x.t().reshape(4, 5) * torch.arange(5.0)).sin().t()

    expected = gradients(plain(step, x0.t().contiguous().t(), 7), x0)
    assert_same(gradients(checkpointed_loop(step, x0.t().contiguous().t(), 7), x0), expected)


def test_a_state_of_a_class_derived_from_tensor() -> None:
    class Named(torch.Tensor):
        pass

    w = torch.full((3,), 0.5, requires_grad=True)
    end = checkpointed_loop(lambda x, i: x * w, torch.ones(3).as_subclass(Named), 4, params=[w])
    end.sum().backward()
    assert w.grad.tolist() == [4 * 0.5**3] * 3


def test_no_step_at_all() -> None:
    x0 = torch.randn(3, requires_grad=True)
    assert checkpointed_loop(lambda x, i: 2 * x, x0, 0) is x0
    assert checkpointed_loop(lambda x, i: 2 * x, x0, done=lambda x, i: True) is x0


def test_a_loop_that_ends_where_it_is_done(tmp_path: Path) -> None:
    cell, x0 = Cell(), torch.randn(4, 6, requires_grad=True)
    of = (x0, *cell.parameters())
    for n in (1, 5, 64, 70):
        torch.manual_seed(5)
        expected = gradients(plain(cell, x0, n), *of)
        for platform in (None, levels(tmp_path, bytes_of(x0))):
            torch.manual_seed(5)
            y = checkpointed_loop(cell, x0, done=lambda x, i, n=n: i == n, platform=platform)
            assert_same(gradients(y, *of), expected)
        del y
        assert files(tmp_path) == []


def test_a_loop_that_ends_by_its_state() -> None:
    x0, steps = torch.tensor([100.0, 300.0], requires_grad=True), []

    def step(x: Any, i: int) -> Any:
        steps.append(i)
        return x / 2

    y = checkpointed_loop(step, x0, done=lambda x, _: x.max() < 1)
    assert max(steps) == 8
    assert gradients(y.sqrt(), x0)[0].tolist() == pytest.approx([2.0**-9] * 2)


def test_what_is_stored_goes_with_the_graph(tmp_path: Path) -> None:
    x0 = torch.randn(100, requires_grad=True)
    where = levels(tmp_path, bytes_of(x0))
    gc.disable()  # nothing of it may wait for the collector
    try:
        y = checkpointed_loop(lambda x, i: x.sin(), x0, 30, platform=where)
        assert files(tmp_path)
        del y
        assert files(tmp_path) == []
    finally:
        gc.enable()


def test_an_error_in_a_step_leaves_no_files(tmp_path: Path) -> None:
    x0, last = torch.randn(100, requires_grad=True), [12]
    where, seen = levels(tmp_path, bytes_of(x0)), []

    def step(x: Any, i: int) -> Any:
        seen.append(i)
        if i == last[0]:
            assert files(tmp_path)
            raise OverflowError("too much")
        return x.sin()

    with pytest.raises(RunFailed, match=r"OverflowError: too much") as caught:
        checkpointed_loop(step, x0, 30, platform=where)
    assert isinstance(caught.value.__cause__, OverflowError)
    assert files(tmp_path) == []
    last[0] = -1
    y = checkpointed_loop(step, x0, 30, platform=where).sum()
    last[0] = 12
    with pytest.raises(RunFailed, match=r"OverflowError: too much"):
        y.backward()
    assert files(tmp_path) == []
    assert torch.is_grad_enabled()


@pytest.mark.parametrize(
    ("step", "words"),
    [
        (lambda x, i: x[:2], r"step 0 returns x as float64\[2\] on cpu, but x0 has float64\[3\]"),
        (lambda x, i: x.float(), "step 0 returns x as float32"),
        (lambda x, i: (x, x), "x is a tuple, and was a tensor"),
        (lambda x, i: x if i < 3 else x[None], r"step 3 returns x as float64\[1, 3\]"),
    ],
)
def test_a_step_that_returns_another_kind_of_state(step: Any, words: str) -> None:
    x0 = torch.randn(3)
    for requires in (False, True):
        with pytest.raises(BadInput, match=words):
            checkpointed_loop(step, x0.clone().requires_grad_(requires), 5)


def test_what_cannot_be() -> None:
    x0, w = torch.randn(3, requires_grad=True), torch.randn(3, requires_grad=True)
    step = nn.Identity()
    for n in (-1, 2.5, None, "3"):
        with pytest.raises(BadInput, match="give a whole number, or `done`"):
            checkpointed_loop(step, x0, n)
    with pytest.raises(BadInput, match=r"x is a float; a state is a tensor"):
        checkpointed_loop(step, 1.0, 3)
    with pytest.raises(BadInput, match=r"a\.0 is a NoneType"):
        checkpointed_loop(step, {"a": [None]}, 3)
    with pytest.raises(BadInput, match=r"params contains a str"):
        checkpointed_loop(step, x0, 3, params="w")
    with pytest.raises(BadInput, match=r"no planner is named 'revolver'; did you mean revolve"):
        checkpointed_loop(step, x0, 3, planner="revolver")
    with pytest.raises(NoSchedule, match="a level that can store one checkpoint"):
        checkpointed_loop(step, x0, 3, platform=Platform((Level(name="ram", capacity=10),)))
    # Where nothing else requires a gradient, too.
    for x in (x0, x0.detach()):
        with pytest.raises(BadInput, match=r"step \d reads a tensor of shape \(3,\)"):
            checkpointed_loop(lambda x, i: x * w.exp(), x, 3)


def test_a_step_is_timed_where_levels_have_prices() -> None:
    x0, calls = torch.randn(3, requires_grad=True), []

    def step(x: Any, i: int) -> Any:
        calls.append(i)
        return x.sin()

    dear = Platform((Level(name="ram", write=Affine(1e9, 0), read=Affine(1e9, 0)),))
    checkpointed_loop(step, x0, 10, platform=dear).sum().backward()
    assert calls[:3] == [0, 0, 0]
    assert len(calls) == 2 + 10 * 11 / 2  # x_0 alone is stored: steps cost less than that
    calls.clear()
    checkpointed_loop(step, x0, 10, platform=dear, seconds=1e12).sum().backward()
    assert len(calls) == 9 + 10


def test_a_full_disk_is_said(tmp_path: Path) -> None:
    """A level that turns out to hold less than was planned with."""
    x0 = torch.randn(1000, requires_grad=True)
    codec = Level(
        name="small",
        capacity=3 * bytes_of(x0),
        ratio=0.1,
        backend="directory",
        options={"path": str(tmp_path), "codec": "zstd"},
    )
    with pytest.raises(LevelFull, match="small"):
        checkpointed_loop(lambda x, i: x.sin(), x0, 30, platform=Platform((codec,)))
    assert files(tmp_path) == []


class Counter(nn.Module):
    """A step that changes a buffer while it is trained."""

    def __init__(self, change: str) -> None:
        super().__init__()
        self.change, self.k = change, nn.Parameter(torch.full((4,), 0.9))
        self.register_buffer("count", torch.zeros(()))
        self.register_buffer("table", torch.arange(4.0))

    def forward(self, x: Any, i: int = 0) -> Any:
        if self.training and self.change == "in place":
            self.count.add_(1)
        elif self.training:
            self.count = self.count + 1
        return torch.sin(x * self.k * (1 + 0.1 * self.count.clone())) + 0.01 * self.table


class Normed(nn.Module):
    """A step with a batch normalisation, and a weight that is normed by a power iteration."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.utils.parametrizations.spectral_norm(nn.Linear(4, 4))
        self.norm = nn.BatchNorm1d(4)

    def forward(self, x: Any, i: int = 0) -> Any:
        return x + 0.1 * torch.tanh(self.norm(self.layer(x)))


@pytest.mark.parametrize(
    ("make", "names"),
    [
        (lambda: Counter("in place"), r"\['Counter.count'\]"),
        (lambda: Counter("another tensor"), r"\['Counter.count'\]"),
        (Normed, "SpectralNorm._u.*BatchNorm1d.running_mean|BatchNorm1d.num_batches_tracked"),
    ],
)
def test_a_step_that_changes_buffers_is_refused_and_one_that_reads_them_is_not(
    make: Any, names: str
) -> None:
    module, x0 = make(), torch.randn(5, 4, requires_grad=True)
    for step in module, lambda x, i: module(x):
        with pytest.raises(BadInput, match=f"changes the buffers.*{names}.*eval"):
            checkpointed_loop(step, x0, 12, params=module)
    results = []
    for loop in (plain, partial(checkpointed_loop, params=module)):
        module.zero_grad()
        x = x0.detach().requires_grad_()
        loop(module.eval(), x, 12).square().sum().backward()
        results.append([x.grad, *(p.grad for p in module.parameters())])
    for found, right in zip(*results, strict=True):
        assert torch.allclose(found, right, rtol=1e-12)


@pytest.mark.parametrize("change", ["in place", "another tensor"])
def test_a_buffer_that_changes_in_a_later_step_is_noticed(change: str) -> None:
    module = Counter(change).eval()

    def step(x: Any, i: int) -> Any:
        module.train(i >= 7)
        return module(x)

    with pytest.raises(BadInput, match=r"changes the buffers \['Counter.count'\]"):
        checkpointed_loop(step, torch.randn(5, 4, requires_grad=True), 12, params=module)


class Kept(nn.Module):
    """A step that keeps a tensor that it computed."""

    def __init__(self, what: str) -> None:
        super().__init__()
        self.what, self.kept = what, {}
        self.k = nn.Parameter(torch.full((4,), 0.9))

    def forward(self, x: Any, i: int) -> Any:
        key = i % 2 if self.what == "for even and odd steps" else 0
        if key not in self.kept or (self.what == "for five steps" and i % 5 == 0):
            of_state = self.what == "of the first state"
            self.kept[key] = x.square().mean() if of_state else torch.sin(self.k)
        return x * self.k * self.kept[key]


@pytest.mark.parametrize(
    "what", ["forever", "for even and odd steps", "for five steps", "of the first state"]
)
def test_a_tensor_that_a_step_keeps_is_refused_and_loses_no_gradient(what: str) -> None:
    words = "another step keeps" if what != "of the first state" else "neither in the state nor"
    with pytest.raises((RunFailed, BadInput), match=words):
        checkpointed_loop(Kept(what), torch.ones(4), 12).sum().backward()


def test_a_weight_that_is_cached_in_the_forward_run_alone() -> None:
    gradients = []
    for loop in (plain, checkpointed_loop):
        torch.manual_seed(0)
        layer = nn.utils.parametrizations.orthogonal(nn.Linear(4, 4))
        more = {"params": layer} if loop is checkpointed_loop else {}
        with nn.utils.parametrize.cached():
            y = loop(lambda x, i, m=layer: torch.tanh(m(x)), torch.ones(4), 10, **more)
        y.sum().backward()
        gradients.append([p.grad for p in layer.parameters()])
    for found, right in zip(*reversed(gradients), strict=True):
        assert torch.allclose(found, right, rtol=1e-12)


@pytest.mark.filterwarnings("ignore")  # of the compiler
@pytest.mark.parametrize("what", ["module", "function", "step"])
def test_a_compiled_program_has_the_same_gradient(what: str) -> None:
    def gradients(of: Callable[[Any], Any]) -> list[Any]:
        torch.compiler.reset()
        torch.manual_seed(2)
        cell = Cell().eval()
        ways = {
            "module": lambda: of(Looped(cell, 10)),
            "function": lambda: of(lambda x: checkpointed_loop(cell, x, 10)),
            "step": lambda: lambda x: checkpointed_loop(of(cell), x, 10),
        }
        ways[what]()(torch.ones(2, 6)).square().sum().backward()
        return [p.grad for p in cell.parameters() if p.grad is not None]

    assert_same(gradients(partial(torch.compile, backend="eager")), gradients(lambda it: it))


@pytest.mark.filterwarnings("ignore")  # of the compiler
@pytest.mark.parametrize("allow_rounding", [False, True])
def test_a_compiled_program_passes_all_options_on(allow_rounding: bool) -> None:
    noise = random.Random(1)  # none of PyTorch's generators

    def step(x: torch.Tensor, i: int) -> torch.Tensor:
        return x * (1.01 + 1e-15 * noise.random())

    def loss(x: torch.Tensor) -> torch.Tensor:
        return checkpointed_loop(step, x, 40, allow_rounding=allow_rounding).sum()

    torch.compiler.reset()
    end = torch.compile(loss, backend="eager")(torch.ones(4, dtype=torch.float64).requires_grad_())
    if allow_rounding:
        end.backward()
    else:
        with pytest.raises(RunFailed, match="reproducible up to rounding only"):
            end.backward()


def test_every_step_is_run_three_times_at_most_where_no_platform_is_given() -> None:
    for n in (1, 2, 3, 4, 10, 57, 120):
        counts = [0] * n

        def step(x: Any, i: int, counts: list[int] = counts) -> Any:
            counts[i] += 1
            return x.sin()

        checkpointed_loop(step, torch.randn(2, requires_grad=True), n).sum().backward()
        assert max(counts) <= 3


def test_all_options_are_described() -> None:
    words = inspect.getdoc(checkpointed_loop) or ""
    for name in inspect.signature(checkpointed_loop).parameters:
        assert re.search(rf"^{name}$", words, re.MULTILINE), name


def test_of_many_processes_none_plans_by_what_it_alone_has_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cost = Affine(latency=1e-3, per_byte=0)
    priced = Platform((Level(name="ram", capacity=20_000, write=cost, read=cost),))
    monkeypatch.setenv("PMI_SIZE", "2")  # as mpiexec does
    monkeypatch.setenv("PMI_RANK", "0")
    w, x0 = torch.randn(3, requires_grad=True), torch.randn(3, requires_grad=True)

    def step(x: Any, i: int) -> Any:
        return torch.sin(w * x)

    with pytest.raises(BadInput, match="give `seconds`, the same in all"):
        checkpointed_loop(step, x0, 9, params=[w], platform=priced)
    expected = gradients(plain(step, x0, 9), x0, w)
    for platform, seconds in (priced, 0.1), (None, None):
        end = checkpointed_loop(step, x0, 9, params=[w], platform=platform, seconds=seconds)
        for one, other in zip(gradients(end, x0, w), expected, strict=True):
            assert torch.allclose(one, other, rtol=1e-12, atol=0)
