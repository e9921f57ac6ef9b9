"""Programs are interrupted at every tick, stored on disk, and go on in another process."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from .examples import IN_JAX, PLAIN, Example, in_jax
from .killing import (
    OnLevel,
    by_leaf,
    found_in,
    gone_on,
    in_a_new_process,
    killed,
    like_result,
    program_of,
    rest,
    states,
    taken_back,
)

Arrays = Mapping[str, NDArray[Any]]


def same(one: Arrays, other: Arrays) -> bool:
    """Bit for bit, with types and shapes."""
    return one.keys() == other.keys() and all(
        (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes())
        for a, b in ((np.asarray(one[name]), np.asarray(other[name])) for name in one)
    )


def check_all(name: str, example: Example, place: Path, *, every: int = 1, back: int = 1) -> int:
    """Interrupt after every so many ticks; another process finds what this one does, to the bit.

    The cotangent of the state, taken back through what was done before, is the gradient.
    """
    program, x = example
    reached = dict(enumerate(states(program, x, every)))
    stored = OnLevel(place / "level")
    for number, state in reached.items():
        stored.put(number * every, program.pack(state))
    stored.close()
    y, ticks = rest(program, reached[0])
    there = in_a_new_process(name, place, back)
    assert there.process != os.getpid()
    assert len(there.values) == len(reached) >= ticks // every
    whole = program.pullback(reached[0], ticks, by_leaf(program.result(reached[len(reached) - 1])))
    for number, (at, found) in enumerate(sorted(there.values.items())):
        by = {leaf.removeprefix("by "): a for leaf, a in found.items() if leaf.startswith("by ")}
        assert same({leaf: a for leaf, a in found.items() if not leaf.startswith("by ")}, y)
        if number % back == 0:
            assert same(found, gone_on(program, reached[number], True))
            check_gradient(program.pullback(reached[0], at, by), whole)
    return ticks


def check_gradient(found: Arrays, whole: Arrays) -> None:
    """A gradient in two parts is the gradient in one; what lacks is zero."""
    for name in found.keys() | whole.keys():
        parts, gradient = found.get(name, np.zeros(())), whole.get(name, np.zeros(()))
        scale = np.max(np.abs(gradient))
        np.testing.assert_allclose(parts, gradient, rtol=0, atol=1e-13 * scale)


@pytest.mark.campaign
@pytest.mark.parametrize("name", PLAIN)
def test_a_program_goes_on_in_another_process_from_any_tick(name: str, tmp_path: Path) -> None:
    assert check_all(name, PLAIN[name], tmp_path, back=9) > 20


@pytest.mark.slow
@pytest.mark.usefixtures("doubles_in_jax")
@pytest.mark.parametrize(
    ("name", "ticks"),
    [("listing1, eps", 170), ("tree", 180), ("burgers, in place", 55), ("switch:listing1", 170)],
)
def test_a_gradient_that_is_killed_again_and_again_is_the_same(
    name: str, ticks: int, tmp_path: Path
) -> None:
    """At another tick each time, on the way forward and on the way back."""
    program, x = program_of(name)
    expected = taken_back(program, x, like_result(program, x))
    kills = 0
    while killed(name, tmp_path, ticks + 3 * kills):
        assert (tmp_path / "stored").exists()
        kills += 1
    assert kills >= 2
    assert same(found_in(tmp_path), expected)
    assert not (tmp_path / "stored").exists()


MODES = "blocks", "switch"


@pytest.mark.slow
@pytest.mark.usefixtures("doubles_in_jax")
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", IN_JAX)
def test_any_program_in_jax_goes_on_in_another_process(
    name: str, mode: str, tmp_path: Path
) -> None:
    assert check_all(f"{mode}:{name}", in_jax(name, mode), tmp_path, back=10) > 20
