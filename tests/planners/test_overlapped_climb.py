"""Whole chains that are changed piece by piece: legal, never worse, and the same each time."""

from random import Random

import numpy as np
import pytest

from ckio.actions import Advance, Discard, Read, Record, Reverse, Write
from ckio.planners.overlapped import chains, segments
from ckio.planners.overlapped.chains import Cut, Found
from ckio.planners.overlapped.climb import climbed
from ckio.planners.overlapped.pieces import LONGEST, Free, choices, splits, tree, unroll
from ckio.planners.overlapped.search import _Scale, _ways
from ckio.planners.overlapped.segments import ROWS, Costs, Machine, Segments, room
from ckio.planners.overlapped.tables import near_table
from ckio.platforms import Affine, Level, Platform
from ckio.replay import validate
from ckio.schedule import Schedule
from ckio.testing import x

from .cases import RESTART, TAPE, chain


def machine(length: int, near: int, far: int, write: float, read: float) -> Machine:
    return Machine(length, near, far, Costs(1.0, 0.0, 1.0, 0.0, 0.0, 0.0, write, read, 0.0))


def drawn(seed: int) -> Machine:
    random = Random(seed)
    return machine(
        length=random.randint(2, 60),
        near=random.randint(1, 5),
        far=random.randint(1, 12),
        write=random.choice([0.0, 0.5, 2.0, 9.0]),
        read=random.choice([0.0, 0.5, 2.0, 9.0]),
    )


def solved(machine: Machine) -> tuple[Segments, list[Cut]]:
    scale = _Scale.of(machine)
    assert scale is not None
    near = near_table(machine.near, scale.tail, 1.0, 0.0, 0.0)
    found = segments.solve(machine, near, scale.grid, _ways(machine))
    return found, chains.cuts(machine, found, 1, 3)


def schedule(machine: Machine, found: Found) -> Schedule:
    """Its actions, legal on two levels of just so many slots."""
    columns = (column[: found.count].tolist() for column in found.rows[:4])
    actions = []
    for op, level, begin, end in zip(*columns, strict=True):
        if op < 3:
            actions.append((Advance, Record, Reverse)[op](begin, end))
        else:
            actions.append((Write, Read, Discard)[op - 3](x(begin), level))
    made = Schedule(chain(machine.length + 1, reverse=1), actions)
    levels = [
        Level(name=name, capacity=slots * RESTART, write=price, read=price, backend=backend)
        for name, slots, backend, price in (
            ("ram", machine.near, "ram", Affine()),
            ("far", machine.far, "directory", Affine(latency=1.0)),
        )
    ]
    assert validate(made, Platform(tuple(levels), working_memory=TAPE)).adjoint == 0
    return made


@pytest.mark.parametrize("seed", range(12))
def test_a_changed_chain_is_legal_and_does_not_take_longer(seed: int) -> None:
    case = drawn(seed)
    found, cuts = solved(case)
    plain = [chains.simulated(case, *chains.written(case, found, cut), [20.0]) for cut in cuts]
    changed = climbed(case, found, [(cut, 20.0) for cut in cuts])
    if changed is None:
        assert not cuts
        return
    assert changed.seconds <= min(plan.seconds for plan in plain)
    again = climbed(case, found, [(cut, 20.0) for cut in cuts])
    assert again is not None
    assert schedule(case, changed) == schedule(case, again)


def test_where_segments_hold_one_another_up_something_is_gained() -> None:
    case = machine(200, 3, 100, 20.0, 1.0)
    found, cuts = solved(case)
    plain = [chains.simulated(case, *chains.written(case, found, cut), [20.0]) for cut in cuts]
    changed = climbed(case, found, [(cut, 20.0) for cut in cuts])
    assert changed is not None
    assert changed.seconds < min(plan.seconds for plan in plain)


@pytest.mark.parametrize("seed", range(12, 20))
def test_whatever_is_chosen_a_chain_that_is_written_down_is_legal(seed: int) -> None:
    """Choices that do not fit the slots or steps are not taken as they are."""
    case, draw = drawn(seed), np.random.default_rng(seed)
    found, _ = solved(case)
    place = room(ROWS * (case.length + 2), case.near + case.far, case.length)
    written = 0
    for _ in range(40):
        chosen = choices(case.length)
        for table in (chosen.near, chosen.far):
            some = draw.random(table.shape) < 0.5
            steps = draw.uniform(-1, 1, table.shape) * np.arange(case.length + 1)
            table[some] = np.round(steps[some])
        free = Free(case.near, case.far, 0, case.far)
        count, parts = unroll(
            splits(found.variants[0].near, found), chosen, free, place.rows, tree(case)
        )
        if count <= len(place.rows.op):
            written += 1
            assert parts <= 2 * case.length
            schedule(case, Found(place.rows, count, 0.0, 0.0))
    assert written


def test_a_chain_that_is_too_long_is_left_as_it_is() -> None:
    case = machine(LONGEST + 1, 3, 10, 1.0, 1.0)
    found, cuts = solved(case)
    assert climbed(case, found, [(cut, 1.0) for cut in cuts]) is None
