"""Random programs do what the functions do of which they are made, and so do their derivatives."""

import importlib.util
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, note, seed, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from ckio.programs import Options, checkpoint_vjp, primops, resume, vjp

from .generating import Writer

Inputs = tuple[float, NDArray[np.float64], int]

SHORT = 60
"""Ticks of programs that are interrupted after every one of them."""


@st.composite
def sources(draw: st.DrawFn) -> str:
    return Writer(lambda low, high: draw(st.integers(low, high))).module()


@st.composite
def inputs(draw: st.DrawFn) -> Inputs:
    """Numbers that are none of the constants with which programs compare."""
    numbers = [draw(st.integers(-8, 8)) / 8 + 0.013 * k for k in range(1, 5)]
    return numbers[0], np.array(numbers[1:]), draw(st.integers(0, 2))


def copied(x: Inputs) -> Inputs:
    """A function that is no program changes the array that it is given."""
    return x[0], x[1].copy(), x[2]


@contextmanager
def imported(source: str, place: Path) -> Iterator[ModuleType]:
    """The module of this source, from a file as any other."""
    name = "random_program_" + blake2b(source.encode(), digest_size=8).hexdigest()
    path = place / f"{name}.py"
    path.write_text(source, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    sys.modules[name] = module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
        yield module
    finally:
        del sys.modules[name]
        path.unlink()


def plain(source: str) -> Callable[..., Any]:
    """The function itself, of which nothing is made."""
    line = "from ckio.programs import program\n"
    assert line in source
    names: dict[str, Any] = {}
    exec(source.replace(line, "def program(function):\n    return function\n"), names)
    return names["main"]  # type: ignore[no-any-return]


def bits(y: Any) -> tuple[Any, ...]:
    """Values and types of a pair of a number and an array."""
    number, array = y
    return type(number), np.asarray(number).tobytes(), array.dtype, array.shape, array.tobytes()


def check(source: str, x: Inputs, base: int, place: Path, seen: Counter[str]) -> None:
    """One program, all its derivatives, and where it is short every state of it."""
    function = plain(source)
    expected = function(*copied(x))
    with imported(source, place) as module:
        p = module.main
        y, ticks = primops(p, *copied(x))
        assert bits(y) == bits(expected)
        seen["programs"] += 1
        if ticks <= SHORT:
            check_interrupts(p, x, expected, ticks)
            seen["interrupted"] += 1
        ybar = 1.0, np.array([0.5, -0.75, 1.25])
        same_y, plain_bar = vjp(p, copied(x), ybar)
        assert bits(same_y) == bits(expected)
        found: dict[str, int] = {}
        same_y, bar = checkpoint_vjp(p, copied(x), ybar, Options(base=base), stats=found)
        assert bits(same_y) == bits(expected)
        assert found["ticks"] == ticks
        check_same(bar, plain_bar, seen)
    check_differences(function, x, ybar, bar, seen)


def check_interrupts(p: Any, x: Inputs, expected: Any, ticks: int) -> None:
    """Each state goes through text and copies, and leads to the same result."""
    state, done, finished = p.start(*copied(x)), 0, False
    while True:
        arrays, meta = p.pack(state)
        again = p.unpack({n: a.copy() for n, a in arrays.items()}, json.loads(json.dumps(meta)))
        assert bits(resume(p, again)) == bits(expected)
        if finished:
            break
        state, more, finished = p.advance(state, 1)
        assert more <= 1
        done += more
    assert done == ticks


def check_same(bar: Any, plain_bar: Any, seen: Counter[str]) -> None:
    """With checkpoints and without, to rounding; how often to the last bit is counted."""
    for part, whole in zip(bar[:2], plain_bar[:2], strict=True):
        scale = np.max(np.abs(whole))
        np.testing.assert_allclose(part, whole, rtol=0, atol=1e-14 * scale)
        seen["to the last bit"] += bool(np.array_equal(part, whole))
        seen["gradients"] += 1
    assert np.all(np.asarray(bar[2]) == 0)


def check_differences(
    function: Callable[..., Any], x: Inputs, ybar: Any, bar: Any, seen: Counter[str]
) -> None:
    """The gradient in a direction, against differences where the function has a derivative.

    Where it has a kink or a jump nearby, differences by two step sizes, or those to both sides,
    do not fit together; such points are passed over, and counted.
    """
    random = np.random.default_rng(7)
    along = float(random.normal()), random.normal(size=3)

    def at(h: float) -> float:
        y = function(x[0] + h * along[0], x[1] + h * along[1], x[2])
        return float(ybar[0] * y[0] + np.sum(ybar[1] * y[1]))

    def bend(h: float) -> float:
        return (at(h) - 2 * at(0.0) + at(-h)) / h

    h = 4e-5
    wide, narrow = ((at(k) - at(-k)) / (2 * k) for k in (h, h / 2))
    scale = 1 + abs(narrow)
    if abs(wide - narrow) > 1e-6 * scale or abs(2 * bend(h / 2) - bend(h)) > 1e-6 * scale:
        seen["passed over"] += 1
        return
    slope = bar[0] * along[0] + np.sum(bar[1] * along[1])
    assert abs(slope - narrow) <= 5e-6 * scale
    seen["compared"] += 1
    seen["no derivative"] += bool(slope == 0)


def campaign(examples: int, place: Path, part: int = 0) -> Counter[str]:
    """So many random programs, others for each part; what was seen of them."""
    seen: Counter[str] = Counter()

    @seed(part)
    @settings(
        max_examples=examples,
        suppress_health_check=list(HealthCheck),
        database=None,
    )
    @given(source=sources(), x=inputs(), base=st.integers(1, 12))
    def one(source: str, x: Inputs, base: int) -> None:
        note(source)
        check(source, x, base, place, seen)

    one()
    return seen


def check_seen(seen: Counter[str]) -> None:
    """A campaign that compares little shows little."""
    assert seen["compared"] > 0.8 * seen["programs"]
    assert seen["no derivative"] < 0.5 * seen["compared"]
    assert seen["interrupted"] > 0.2 * seen["programs"]


@pytest.mark.campaign
@pytest.mark.parametrize(("examples", "part"), [(10, 0), *((500, part) for part in range(1, 5))])
def test_random_programs(examples: int, part: int, tmp_path: Path) -> None:
    check_seen(campaign(examples, tmp_path, part))


def test_what_programs_are_to_be_made_of_is_drawn_often() -> None:
    sources = [Writer(Random(seed).randint).module() for seed in range(200)]
    for word in (
        *("while", "for", "break", "continue", "elif", "[0] > 0.2:", "depth - 1", "out=", "+="),
        *("zip", "enumerate", "append", "[::-1]"),
    ):
        assert sum(word in source for source in sources) > 10, word
