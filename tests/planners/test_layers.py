"""Layers that are kept are those that would be computed, to the last bit, and not too many."""

from random import Random
from typing import Any

import numpy as np
import pytest

from ckio.planners.base import Room
from ckio.planners.hrevolve import layers
from ckio.planners.hrevolve.layers import Kept, Tables, solve_layers


def case(random: Random) -> tuple[int, list[Room], float, bool]:
    """A problem; many of them have levels in common, and slots above and below a block."""
    whole = random.random() < 0.5
    costs: list[float] = [1, 2, 3] if whole else [0.1, 0.7, 2.3]
    rooms = [
        Room(
            number=number,
            slots=random.choice((1, 2, 5, 17, 40)),
            write=random.choice(costs) * number,
            read=random.choice(costs) * number,
        )
        for number in range(random.randint(1, 3))
    ]
    return random.choice((30, 45)), rooms, random.choice(costs), random.random() < 0.8


def solved(problem: tuple[int, list[Room], float, bool]) -> Tables:
    length, rooms, advance, repaired = problem
    return solve_layers(length, rooms, advance, repaired=repaired)


def same(one: Tables, other: Tables) -> bool:
    """Whether all decisions and all costs are, to the last bit."""
    names = ("writes", "splits", "fresh")
    return len(one.levels) == len(other.levels) and all(
        a.slots == b.slots
        and all(getattr(a, name).dtype == getattr(b, name).dtype for name in names)
        and all(np.array_equal(getattr(a, name), getattr(b, name)) for name in names)
        for a, b in zip(one.levels, other.levels, strict=True)
    )


@pytest.mark.parametrize("most", [0, 20_000, 1 << 26])
def test_what_is_kept_is_what_would_be_computed(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    random = Random(7)
    kept = Kept(most)
    for _ in range(150):
        problem = case(random)
        monkeypatch.setattr(layers, "_KEPT", Kept(0))
        alone = solved(problem)
        monkeypatch.setattr(layers, "_KEPT", kept)
        assert same(solved(problem), alone)
        assert kept.nbytes <= most


def test_a_level_that_stays_as_it_is_is_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layers, "_KEPT", Kept(1 << 26))
    computed: list[int] = []
    compute = layers._Recurrence.layers

    def counted(recurrence: layers._Recurrence, *arguments: Any) -> Any:
        computed.append(recurrence.room.number)
        return compute(recurrence, *arguments)

    monkeypatch.setattr(layers._Recurrence, "layers", counted)
    near = Room(number=0, slots=4, write=0.1, read=0.1)
    for read in (1.5, 2.5, 3.5):
        for slots in (7, 5, 3):
            far = Room(number=1, slots=slots, write=1.5, read=read)
            solve_layers(40, [near, far], 1.0, repaired=True)
    assert computed == [0, 1, 1, 1]


def block(rows: int) -> layers._Layers:
    numbers = np.arange(rows * 10.0).reshape(rows, 10)
    return layers._Layers(numbers, numbers > 5, numbers.astype(np.int32))


def test_what_was_not_asked_for_longest_is_forgotten_first() -> None:
    size = block(1).held()
    kept = Kept(3 * size)
    for name in "abc":
        kept.put(name, block(1))
    assert kept.find("a", 1) is not None
    kept.put("d", block(1))
    assert [name for name in "abcd" if kept.find(name, 1)] == ["a", "c", "d"]
    kept.put("a", block(2))  # in place of the one that was there
    assert [name for name in "acd" if kept.find(name, 1)] == ["a", "d"]
    assert kept.nbytes == 3 * size
    kept.put("e", block(4))  # more than all of the room
    assert [name for name in "ade" if kept.find(name, 1)] == ["a", "d"]
    assert kept.nbytes == 3 * size


def test_the_first_of_more_are_found_and_nobody_can_change_them() -> None:
    kept = Kept(1 << 20)
    kept.put("a", block(3))
    assert kept.find("a", 4) is None
    found = kept.find("a", 2)
    assert found is not None
    assert np.array_equal(found.fresh, block(2).fresh)
    with pytest.raises(ValueError, match="read-only"):
        found.fresh[0, 0] = 1
