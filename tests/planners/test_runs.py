"""Layers as straight pieces, and the schedules that are unrolled from them, against plain loops."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from random import Random

import numpy as np
import pytest

from ckio.actions import Advance, Key, Kind, Write
from ckio.actions.columns import Actions
from ckio.planners.base import Room
from ckio.planners.hrevolve.hulls import Ints
from ckio.planners.hrevolve.layers import solve_layers
from ckio.planners.hrevolve.runs import (
    FAR,
    Runs,
    Tables,
    agree,
    joined,
    layer,
    minimum,
    part,
    plus,
    runs_of,
    shift,
    solve_runs,
    values,
)
from ckio.planners.hrevolve.unroll import FRESH, STORED, actions, everything, unroll
from ckio.planners.integers import _LIMIT
from ckio.platform import Affine, Level, Platform
from ckio.platform.chain import Chain
from ckio.schedule import Schedule, counts, makespan
from ckio.schedule.replay import validate

Access = tuple[int, int, int]
"""Slots, write and read of a level."""


@dataclass(frozen=True)
class Case:
    length: int
    advance: int
    levels: tuple[Access, ...]
    repaired: bool

    def tables(self) -> Tables:
        slots, write, read = zip(*self.levels, strict=True)
        return solve_runs(self.length, slots, write, read, self.advance, repaired=self.repaired)

    def platform(self) -> Platform:
        return Platform(
            tuple(
                Level(name=f"level{number}", capacity=slots, write=Affine(w), read=Affine(r))
                for number, (slots, w, r) in enumerate(self.levels)
            ),
            working_memory=1,
        )

    def chain(self) -> Chain:
        return Chain(
            steps=self.length + 1,
            advance=self.advance,
            record=0,
            reverse=0,
            restart=1,
            tape=1,
            adjoint=1,
        )


def some_case(random: Random, most_length: int) -> Case:
    """Slots that run out and slots that saturate, costs in any order, zeros, writes above u_f."""
    most = random.choice([0, 1, 3, 10, 30, 300])
    count = random.randint(1, 4)
    write, read = ([random.randint(0, most) for _ in range(count)] for _ in range(2))
    if random.random() < 0.6:
        write, read = sorted(write), sorted(read)
    if random.random() < 0.2:
        write[0] = read[0] = 0
    return Case(
        random.randint(1, most_length),
        random.choice([0, 1, 1, 2, 5, 20]),
        tuple((random.randint(1, 8), w, r) for w, r in zip(write, read, strict=True)),
        repaired=random.random() < 0.6,
    )


def plain_layer(low: Ints, inner: Ints, advance: int, read: int, least_left: int) -> Ints:
    """The recurrence as it is written; `inner` may be left lengths from `least_left` on."""
    stored = low.copy()
    for length in range(1, len(low)):
        j = np.arange(1, length - least_left + 1)
        sums = j * advance + inner[length - j] + read + stored[j - 1]
        stored[length] = min(low[length], sums.min(initial=FAR))
    return stored


def plain(case: Case) -> tuple[list[Ints], list[list[Ints]]]:
    """H_k and all Hbar_k,m, with every layer as a loop over all lengths and all j."""
    below = np.full(case.length + 1, FAR)
    below[0] = 0
    fresh: list[Ints] = []
    stored: list[list[Ints]] = []
    for slots, write, read in case.levels:
        inner = below
        stored.append([])
        for _ in range(slots):
            least_left = 0 if case.repaired or not fresh else 1
            stored[-1].append(plain_layer(below, inner, case.advance, read, least_left))
            inner = np.minimum(below, write + stored[-1][-1])
        below = inner
        fresh.append(below)
    return fresh, stored


def check_schedule(case: Case, tables: Tables) -> None:
    """Legal, within the slots, nothing left behind, and worth what the tables say."""
    numbers = range(len(case.levels))
    schedule = Schedule(case.chain(), actions(unroll(tables, everything(tables), numbers)))
    machine = validate(schedule, case.platform())
    assert machine.adjoint == 0
    assert not any(machine.stored)
    assert makespan(schedule, case.platform()) == tables.least


def check(case: Case) -> None:
    tables = case.tables()
    fresh, stored = plain(case)
    lengths = case.length + 1
    for table, least, layers in zip(tables.levels, fresh, stored, strict=True):
        assert (values(table.fresh) == least).all(), case
        for free, expected in enumerate(layers, 1):
            assert (table.stored(free, 0, lengths) == expected).all(), (case, free)
    check_schedule(case, tables)


@pytest.mark.parametrize("seed", range(300))
def test_every_layer_is_what_plain_loops_give_and_its_schedule_is_worth_it(seed: int) -> None:
    check(some_case(Random(seed), 90))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000, 2500))
def test_every_layer_in_a_long_campaign(seed: int) -> None:
    check(some_case(Random(seed), 250))


ARCH_1 = ((1, 1, 1), (1, 5, 5), (2, 10, 10), (20, 20, 20))
ARCH_2 = ((2, 1, 1), (20, 20, 20), (20, 40, 40))
MEASURED = ((10, 14, 12), (50, 1038, 743), (100, 4817, 6020))


@pytest.mark.parametrize("repaired", [True, False])
@pytest.mark.parametrize(
    ("levels", "advance"),
    [(ARCH_1, 1), (ARCH_2, 2), (MEASURED, 1000), (((7, 90, 5),), 20), (((40, 50, 50),), 1)],
)
def test_long_chains_have_the_same_tables_as_row_by_row(
    levels: tuple[Access, ...], advance: int, repaired: bool
) -> None:
    case = Case(2500, advance, levels, repaired)
    tables = case.tables()
    order = [Room(number=n, slots=c, write=w, read=r) for n, (c, w, r) in enumerate(levels)]
    rows = solve_layers(case.length, order, advance, repaired=repaired)
    for table, row in zip(tables.levels, rows.levels, strict=True):
        assert (values(table.fresh) == row.fresh).all()
    check_schedule(case, tables)


def test_costs_near_the_limit_are_added_up_without_a_wrap() -> None:
    small = Case(300, 1, ((2, 3, 2), (5, 11, 7)), repaired=True)
    scale = _LIMIT // (302 * (302 + 2 * 11)) - 1
    large = Case(
        300, scale, tuple((c, w * scale, r * scale) for c, w, r in small.levels), repaired=True
    )
    expected, found = small.tables(), large.tables()
    for mine, theirs in zip(found.levels, expected.levels, strict=True):
        assert (values(mine.fresh) == values(theirs.fresh) * scale).all()


def some_function(random: Random, lengths: int) -> Ints:
    """Neither convex nor monotone; mostly straight, or nearly periodic, or anything."""
    slopes = [random.randint(-5, 30) for _ in range(random.choice([1, 2, 7, lengths]))]
    if random.random() < 0.5:
        slopes.sort()
    steps = [slopes[at * len(slopes) // lengths] for at in range(lengths - 1)]
    if random.random() < 0.3:
        steps = [slopes[at % len(slopes)] for at in range(lengths - 1)]
    return random.randint(0, 50) + np.cumsum([0, *steps])


@pytest.mark.parametrize("seed", range(400))
def test_a_layer_of_any_functions_is_what_plain_loops_give(seed: int) -> None:
    random = Random(seed)
    lengths = random.randint(2, 120)
    low, inner = some_function(random, lengths), some_function(random, lengths)
    advance, read, least_left = random.randint(0, 9), random.randint(0, 30), random.randint(0, 1)
    expected = plain_layer(low, inner, advance, read, least_left)
    left = runs_of(inner[least_left:], least_left)
    found = layer(runs_of(low), left, advance=advance, read=read)
    assert (values(found.stored) == expected).all()
    # And from what is known of it:
    before, equal = joined(None, found), random.randint(0, lengths - 1)
    again = layer(runs_of(low), left, advance=advance, read=read, before=before, equal=equal)
    assert again.start == equal
    assert (values(joined(before, again)) == expected).all()


def test_only_what_another_slot_changes_is_kept() -> None:
    tables = Case(200, 1, ((200, 20, 2),), repaired=True).tables()
    layers = tables.levels[0].layers
    assert len(layers) < 60
    assert layers[0].start == 0
    assert all(one.start < other.start for one, other in pairwise(layers))
    one, other = (tables.levels[0].stored(free, 0, 201) for free in (3, 4))
    start = layers[3].start
    assert (one[: start + 1] == other[: start + 1]).all()
    assert one[200] > other[200]


def test_layers_can_be_seen_through_a_window() -> None:
    tables = Case(150, 1, ((4, 2, 2), (9, 7, 5)), repaired=True).tables()
    for level in tables.levels:
        for free, (start, window) in enumerate(level.windows(40, 90), 1):
            assert start == level.layers[free - 1].start
            assert (window == level.stored(free, 40, 90)).all()


def straight(values: Sequence[int]) -> Runs:
    return runs_of(np.array(values, np.int64))


def test_functions_are_kept_as_their_straight_pieces() -> None:
    runs = straight([0, 2, 4, 6, 5, 4, 9])
    assert runs.x.tolist() == [0, 3, 5, 6]
    assert values(runs).tolist() == [0, 2, 4, 6, 5, 4, 9]
    assert values(runs, 2, 5).tolist() == [4, 6, 5]
    assert values(straight([7])).tolist() == [7]
    assert values(plus(runs, 10), 5, 7).tolist() == [14, 19]
    assert values(shift(runs, 3), 5, 8).tolist() == [4, 6, 5]
    assert values(part(runs, 1, 4)).tolist() == [2, 4, 6]
    assert values(minimum(runs, shift(straight([3, 3, 3]), 2)), 2, 5).tolist() == [3, 3, 3]


def test_functions_agree_up_to_where_they_differ() -> None:
    runs = straight([0, 2, 4, 6, 5])
    assert agree(runs, straight([0, 2, 4, 6, 7])) == 3
    assert agree(runs, straight([0, 2, 4])) == 2
    assert agree(runs, straight([1, 2, 4])) == -1
    assert agree(runs, part(runs, 2, 5)) == 4


@pytest.mark.parametrize("seed", range(20))
def test_a_schedule_can_be_unrolled_from_any_stack_of_tasks(seed: int) -> None:
    """Two segments of the last level: x_0 and x_d are there, the rest is swept first."""
    random = Random(seed)
    case = Case(60, 1, ((2, 1, 1), (6, 5, 3)), repaired=True)
    tables, last = case.tables(), case.levels[-1]
    first, second = sorted(random.sample(range(1, 60), 2))
    tasks = np.array(
        [
            [2, 6, first - 1, 0, STORED],
            [2, 5, second - first - 1, first, STORED],
            [2, 4, 60 - second, second, FRESH],
        ]
    )
    chunks = list(unroll(tables, tasks, [0, 1]))
    starts = [(0, first), (first, second)]
    head = [
        action
        for begin, end in starts
        for action in (Write(Key(Kind.RESTART, begin), 1), Advance(begin, end))
    ]
    schedule = Schedule(case.chain(), Actions.of(head) + actions(iter(chunks)))
    assert validate(schedule, case.platform()).adjoint == 0
    assert counts(schedule).levels[1].peak <= 6
    (nearer, _), (_, stored) = plain(case)
    rest = np.minimum(nearer, last[1] + stored[3])[60 - second]
    expected = (
        second
        + 2 * (last[1] + last[2])
        + rest
        + stored[5][first - 1]
        + stored[4][second - first - 1]
    )
    assert makespan(schedule, case.platform()) == expected
