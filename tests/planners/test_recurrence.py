"""Tables, and the schedules that are unrolled from them, against plain loops."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random

import numpy as np
import pytest

from ckio.planners.base import Ints
from ckio.planners.dp import joint
from ckio.planners.dp.costs import INFEASIBLE as FAR
from ckio.planners.dp.costs import LIMIT
from ckio.planners.dp.min_plus import MinPlus
from ckio.planners.dp.recurrence import Table, in_order
from ckio.planners.dp.spaces import Space, slots_of
from ckio.planners.dp.unroll import Unrolling
from ckio.platform import Affine, Level, Platform
from ckio.platform.chain import Chain

from .cases import completed, unit_chain

Access = tuple[int, int, int]
"""Slots, write and read of a level."""


@dataclass(frozen=True)
class Case:
    length: int
    advance: int
    levels: tuple[Access, ...]
    repaired: bool

    def spaces(self) -> list[Space]:
        return [
            replace(
                slots_of(f"level{number}", number, slots, write=write, read=read),
                to_the_last=self.repaired or not number,
            )
            for number, (slots, write, read) in enumerate(self.levels)
        ]

    def tables(self) -> tuple[Table, ...]:
        return in_order(self.spaces(), self.length + 1, move=self.advance, held=1)

    def platform(self) -> Platform:
        return Platform(
            tuple(
                Level(name=f"level{number}", capacity=slots, write=Affine(w), read=Affine(r))
                for number, (slots, w, r) in enumerate(self.levels)
            ),
            working_memory=1,
        )

    def chain(self) -> Chain:
        return unit_chain(self.length + 1, advance=self.advance)


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


def check_schedule(case: Case, stages: Sequence[Table]) -> None:
    """Complete, within the slots, and worth what the stages say."""
    schedule = Unrolling(stages, held=1).draft(case.length + 1).schedule(case.chain())
    assert completed(schedule, case.platform()) == stages[-1].finish[-1]


def check(case: Case) -> None:
    tables = case.tables()
    fresh, stored = plain(case)
    for table, least, layers in zip(tables, fresh, stored, strict=True):
        assert (table.finish[1:] == least).all(), case
        rows = [q[1:].copy() for _, q in table.values()][1:]
        for free, expected in enumerate(layers, 1):
            # From the last one that is kept on, all are equal.
            assert (rows[min(free, len(rows)) - 1] == expected).all(), (case, free)
    check_schedule(case, tables)


def test_every_layer_is_what_plain_loops_give_and_its_schedule_is_worth_it() -> None:
    for seed in range(25):
        check(some_case(Random(seed), 60))


ARCH_1 = ((1, 1, 1), (1, 5, 5), (2, 10, 10), (20, 20, 20))
ARCH_2 = ((2, 1, 1), (20, 20, 20), (20, 40, 40))
MEASURED = ((10, 14, 12), (50, 1038, 743), (100, 4817, 6020))


@pytest.mark.campaign
@pytest.mark.parametrize("repaired", [True, False])
@pytest.mark.parametrize(
    ("levels", "advance"),
    [(ARCH_1, 1), (ARCH_2, 2), (MEASURED, 1000), (((7, 90, 5),), 20), (((40, 50, 50),), 1)],
)
def test_long_chains_have_the_same_tables_as_plain_loops(
    levels: tuple[Access, ...], advance: int, repaired: bool
) -> None:
    case = Case(2500, advance, levels, repaired)
    tables, (fresh, _) = case.tables(), plain(case)
    for table, least in zip(tables, fresh, strict=True):
        assert (table.finish[1:] == least).all()
    check_schedule(case, tables)


def test_costs_near_the_limit_are_added_up_without_a_wrap() -> None:
    small = Case(300, 1, ((2, 3, 2), (5, 11, 7)), repaired=True)
    scale = LIMIT // (302 * (302 + 2 * 11)) - 1
    large = Case(
        300, scale, tuple((c, w * scale, r * scale) for c, w, r in small.levels), repaired=True
    )
    for mine, theirs in zip(large.tables(), small.tables(), strict=True):
        assert (mine.finish == theirs.finish * scale).all()


def some_function(random: Random, lengths: int) -> Ints:
    """Neither convex nor monotone; mostly straight, or nearly periodic, or anything."""
    slopes = [random.randint(-5, 30) for _ in range(random.choice([1, 2, 7, lengths]))]
    if random.random() < 0.5:
        slopes.sort()
    steps = [slopes[at * len(slopes) // lengths] for at in range(lengths - 1)]
    if random.random() < 0.3:
        steps = [slopes[at % len(slopes)] for at in range(lengths - 1)]
    return random.randint(0, 50) + np.cumsum([0, *steps])


def test_a_layer_of_any_functions_is_what_plain_loops_give() -> None:
    for seed in range(400):
        check_any_functions(Random(seed))


def check_any_functions(random: Random) -> None:
    lengths = random.randint(2, 120)
    low, inner = some_function(random, lengths), some_function(random, lengths)
    advance, read, least_left = random.randint(0, 9), random.randint(0, 30), random.randint(0, 1)
    expected = plain_layer(low, inner, advance, read, least_left)
    inner[:least_left] = FAR
    solver = MinPlus(lengths, move=advance, read=read)
    other_low, other_inner = low.copy(), inner.copy()
    known = random.randint(0, lengths - 1)
    other_low[known:] += 1
    other_inner[known:] -= 3
    solver.solve(other_low, other_inner)  # what stays equal is not solved again
    first, least, split = solver.solve(low, inner)
    assert first >= known
    assert (least == expected).all()
    for length, i in enumerate(split.tolist()):
        if i >= 0:
            again = (i + 1) * advance + read + least[i]
            assert least[length] == inner[length - 1 - i] + again
        else:
            assert least[length] == low[length]


def test_a_level_that_never_fills_is_one_with_a_slot_for_every_step() -> None:
    """Also where a tape takes nothing."""
    random = Random(3)
    for _ in range(40):
        length, tapes = random.randint(1, 60), random.random() < 0.5
        after = np.arange(-1, length)
        many = Space(
            "many", 0, random.randint(0, 9), random.randint(0, 9), random.randint(0, 30),
            after, (after + 1) * tapes, length,
        )  # fmt: skip
        never = np.zeros(1, np.intp)
        endless = replace(many, after_restart=never, tapes=never + length * tapes)
        one, other = (in_order([it], length + 1, move=2, held=1) for it in (many, endless))
        assert (one[0].finish == other[0].finish).all()
        lower = np.where(np.arange(length + 2) <= 1, 0, FAR)
        seconds = joint.solve([endless], lower, move=2).finish
        assert (seconds == other[0].finish).all()
