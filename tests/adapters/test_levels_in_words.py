"""Each front takes levels in the words of a job, and its gradient is that of a plain run."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ckio.errors import BadInput
from ckio.platform import Level, Platform
from ckio.programs import Options, checkpoint_vjp, program, vjp

Front = Callable[..., list[Any]]
"""A gradient on the given levels; `seen` is called from time to time while they are open."""

START = np.array([0.3, 0.4])
STEPS = 20


def by_jax(seen: Callable[[], object], **levels: Any) -> list[Any]:
    jax = pytest.importorskip("jax")
    from ckio.adapters.jax import checkpointed_scan

    def step(x: Any, r: Any, i: Any) -> Any:
        jax.debug.callback(seen)
        return r * x * (1 - x)

    def slope(**levels: Any) -> Any:
        options = {"segment": 1, **levels}
        return jax.grad(lambda r: checkpointed_scan(step, START, STEPS, params=r, **options).sum())

    return [slope(**levels)(2.0), slope()(2.0)]


def by_torch(seen: Callable[[], object], **levels: Any) -> list[Any]:
    torch = pytest.importorskip("torch")
    from ckio.adapters.torch import checkpointed_loop

    def step(x: Any, i: int) -> Any:
        seen()
        return 2 * x * (1 - x)

    def slope(**levels: Any) -> Any:
        x = torch.tensor(START, requires_grad=True)
        checkpointed_loop(step, x, STEPS, **levels).sum().backward()
        return x.grad.numpy()

    return [slope(**levels), slope()]


def by_pyadjoint(seen: Callable[[], object], **levels: Any) -> list[Any]:
    pytest.importorskip("pyadjoint")
    from adapters.adjoint_programs import BEFORE, STEPS, plain, record, right

    from ckio.adapters.pyadjoint import enable

    given = [levels.pop("platform")] if "platform" in levels else []
    use = lambda tape: enable(tape, *given, steps=STEPS, **levels)  # noqa: E731
    reduced, manager = record(plain, BEFORE, use)
    with manager:
        seen()
        found = reduced.derivative().data
    return [found, right(plain, BEFORE)[1]]


@program
def logistic(x: Any, n: Any) -> Any:
    for _ in range(n):
        x = 2 * x * (1 - x)
    return x


def by_program(seen: Callable[[], object], **levels: Any) -> list[Any]:
    x, bar = (START, 10 * STEPS), np.ones(2)
    options = Options(base=5, **levels)
    ours = checkpoint_vjp(logistic, x, bar, options, watch=lambda _: seen())
    return [ours[1][0], vjp(logistic, x, bar)[1][0]]


FRONTS = pytest.mark.parametrize("front", [by_jax, by_torch, by_pyadjoint, by_program])


def files(place: Path) -> list[Path]:
    return [path for path in place.rglob("*") if path.is_file()]


@pytest.mark.parametrize(
    ("words", "has_files"),
    [
        ({"ram": "1MiB"}, False),
        ({"ram": "1MiB", "disk": "{}/d"}, False),  # memory is enough
        ({"ram": "0kB", "disk": "{}/d"}, True),
        ({"disk": "{}/d:1MiB"}, True),
        ({"archive": "{}/a.h5:4MiB"}, True),
    ],
)
@FRONTS
def test_the_gradient_is_that_of_a_plain_run(
    front: Front, words: dict[str, str], has_files: bool, tmp_path: Path
) -> None:
    seen = set[Path]()
    levels = {name: word.format(tmp_path) for name, word in words.items()}
    found, expected = front(lambda: seen.update(files(tmp_path)), **levels)
    assert np.array_equal(found, expected)
    assert bool(seen) == has_files
    assert files(tmp_path) == []


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ({"disk": "1MiB"}, "disk = '1MiB': '1MiB' is not a path"),
        ({"archive": "a.h5:1,5GB"}, "'1,5GB' is not a size"),
        ({"ram": "/scratch"}, "'/scratch' is not a size"),
        ({"ram": -1}, "capacity = -1; it must be a whole number"),
        ({"ram": "1MiB", "platform": Platform((Level(name="ram"),))}, "given with a platform"),
        ({"disk": "d", "platform": "node.toml"}, "ram, disk and archive cannot be given with"),
        ({"platform": 3}, "platform = 3; it must be a Platform, or the path"),
        ({"platform": "no.toml"}, r"no\.toml: No such file"),
    ],
)
@FRONTS
def test_mistakes_are_refused(
    front: Front, words: dict[str, Any], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadInput, match=says):
        front(lambda: None, **words)
    assert list(tmp_path.iterdir()) == []


@FRONTS
def test_a_platform_is_given_by_the_path_of_its_file(front: Front, tmp_path: Path) -> None:
    level = Level(name="disk", options={"path": str(tmp_path / "d")})
    (tmp_path / "node.toml").write_text(Platform((level,)).dumps())
    seen = set[Path]()
    found, expected = front(
        lambda: seen.update(files(tmp_path / "d")), platform=str(tmp_path / "node.toml")
    )
    assert np.array_equal(found, expected)
    assert seen


def test_pyadjoint_needs_no_level_and_tapes_one_step_at_a_time(tmp_path: Path) -> None:
    pytest.importorskip("pyadjoint")
    from adapters.adjoint_programs import BEFORE, STEPS, plain, record, right

    from ckio.actions import Record
    from ckio.adapters.pyadjoint import enable

    for words in ({}, {"ram": 1000, "disk": tmp_path / "d"}):
        use = lambda tape: enable(tape, steps=STEPS, planner="mixed", **words)  # noqa: B023, E731
        reduced, manager = record(plain, BEFORE, use)
        with manager:
            assert np.array_equal(reduced.derivative().data, right(plain, BEFORE)[1])
            for action in manager.schedule.actions:
                assert not isinstance(action, Record) or action.end == action.begin + 1


def test_torch_tapes_one_step_at_a_time() -> None:
    torch = pytest.importorskip("torch")
    from ckio.adapters.torch import checkpointed_loop
    from ckio.planners import mixed

    plans = []

    def planner(chain: Any, platform: Platform) -> Any:
        plans.append(platform.tapes(chain))
        return mixed(chain, platform)

    x = torch.tensor(START, requires_grad=True)
    checkpointed_loop(lambda x, i: 2 * x, x, 9, ram="1MiB", planner=planner).sum().backward()
    assert x.grad.tolist() == [512.0, 512.0]
    assert plans == [1]
