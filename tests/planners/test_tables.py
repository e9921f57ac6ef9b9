"""Rows that are remembered are those that would be computed, to the last bit, and not too many."""

from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest

from ckio.planners.dp import tables
from ckio.planners.dp.spaces import Space, slots_of
from ckio.planners.dp.tables import FAR, Remembered, Table, solve

Problem = tuple[int, list[Space], float, bool]
"""The length, the levels, the cost of a step, and whether levels beyond the first sweep."""


def case(random: Random) -> Problem:
    """A problem; many of them have levels in common, and slots above and below a block."""
    costs: list[float] = [1, 2, 3] if random.random() < 0.5 else [0.1, 0.7, 2.3]
    levels = [
        slots_of(
            str(number),
            number,
            random.choice((1, 2, 5, 17, 40)),
            write=random.choice(costs) * number,
            read=random.choice(costs) * number,
        )
        for number in range(random.randint(1, 3))
    ]
    return random.choice((30, 45)), levels, random.choice(costs), random.random() < 0.8


def solved(problem: Problem) -> list[Table]:
    length, levels, move, repaired = problem
    far = FAR if isinstance(move, int) else np.inf
    lower, stages = np.array([0, 0, *[far] * length]), list[Table]()
    for space in levels:
        stages.append(solve((space,), lower, move=move, sweeps=repaired or not stages))
        lower = stages[-1].finish
    return stages


def same(one: list[Table], other: list[Table]) -> bool:
    """Whether all costs are, to the last bit, for as much free space as there is."""
    return all(
        a.seconds.dtype == b.seconds.dtype
        and all(
            np.array_equal(a.seconds[min(free, a.last)], b.seconds[min(free, b.last)])
            and np.array_equal(a.again[0][min(free, a.last)], b.again[0][min(free, b.last)])
            for free in range(a.empty + 1)
        )
        for a, b in zip(one, other, strict=True)
    )


@pytest.mark.campaign
@pytest.mark.parametrize("most", [0, 20_000, 1 << 26])
def test_rows_that_are_remembered_are_those_that_would_be_computed(
    most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = Random(7)
    remembered = Remembered(most)
    for _ in range(60):
        problem = case(random)
        monkeypatch.setattr(tables, "_REMEMBERED", Remembered(0))
        alone = solved(problem)
        monkeypatch.setattr(tables, "_REMEMBERED", remembered)
        assert same(solved(problem), alone)
        assert remembered.nbytes <= most


def test_a_level_that_stays_as_it_is_is_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "_REMEMBERED", Remembered(1 << 26))
    computed: list[int] = []
    compute = tables._Solving.by_blocks

    def counted(solving: Any) -> None:
        computed.append(solving.spaces[0].number)
        compute(solving)

    monkeypatch.setattr(tables._Solving, "by_blocks", counted)
    near = slots_of("near", 0, 4, write=0.1, read=0.1)
    for read in (1.5, 2.5, 3.5):
        for slots in (7, 5, 3):
            far = slots_of("far", 1, slots, write=1.5, read=read)
            solved((40, [near, far], 1.0, True))
    assert computed == [0, 1, 1, 1]


def block(rows: int) -> tuple[Any, Any, bool]:
    numbers = np.arange(rows * 10.0).reshape(rows, 10)
    return numbers, numbers + 1, False


def test_what_was_not_asked_for_longest_is_forgotten_first() -> None:
    size = 2 * block(1)[0].nbytes
    remembered = Remembered(3 * size)
    for name in "abc":
        remembered.put(name, block(1))
    assert remembered.find("a") is not None
    remembered.put("d", block(1))
    assert [name for name in "abcd" if remembered.find(name)] == ["a", "c", "d"]
    remembered.put("a", block(2))  # in place of the one that was there
    assert [name for name in "acd" if remembered.find(name)] == ["a", "d"]
    assert remembered.nbytes == 3 * size
    remembered.put("e", block(4))  # more than may be remembered
    assert [name for name in "ade" if remembered.find(name)] == ["a", "d"]
    assert remembered.nbytes == 3 * size


def test_nobody_can_change_what_is_remembered() -> None:
    remembered = Remembered(1 << 20)
    remembered.put("a", block(3))
    rows = remembered.find("a")
    assert rows is not None
    with pytest.raises(ValueError, match="read-only"):
        rows[0][0] = 1


def test_a_level_with_tapes_that_cost_nothing_is_not_taken_for_one_without() -> None:
    lower = np.array([0, 0, *[FAR] * 20])
    states = slots_of("ram", 0, 3, write=0, read=0)
    both = replace(states, tape=0, after_tape=states.after_restart)
    assert solve((states,), lower, move=1).finish[-1] > solve((both,), lower, move=1).finish[-1]
