"""Plans in segments cost what the recurrence says, although no table reaches so far."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random

import numpy as np
import pytest

from ckio.planners.dp import segments
from ckio.planners.dp.group import (
    Ints,
    Multiplier,
    SlotKinds,
    multiplier,
    optimum,
)
from ckio.planners.dp.recurrence import in_order
from ckio.planners.dp.segments import LongPlan, Solved, extend, plan
from ckio.planners.dp.spaces import Space, slots_of
from ckio.planners.dp.unroll import Unrolling
from ckio.platform import Affine, Level, Platform

from .cases import completed, unit_chain

FAR = 1 << 40


@dataclass(frozen=True)
class Machine:
    """Slots, and what they cost to write and read, by level; in units, as `advance` is."""

    slots: list[int]
    write: list[int]
    read: list[int]
    advance: int

    def spaces(self) -> list[Space]:
        return [
            slots_of(str(number), number, slots, write=write, read=read)
            for number, (slots, write, read) in enumerate(
                zip(self.slots, self.write, self.read, strict=True)
            )
        ]

    def tables(self, spaces: Sequence[Space], longest: int) -> Solved:
        return in_order(spaces, longest, move=self.advance, held=1)

    def plan(self, length: int, shortest: int = 256) -> LongPlan | None:
        """The plan of a chain of `length` + 1 steps."""
        with pytest.MonkeyPatch.context() as first_tables:
            first_tables.setattr(segments, "_SHORTEST", shortest)
            return plan(self.spaces(), length + 1, self.tables, move=self.advance)

    def extended(self, longest: int, length: int) -> LongPlan | int | None:
        """The plan that tables for segments of `longest` steps give."""
        spaces = [space.in_slots() for space in self.spaces()]
        return extend(self.tables(spaces, longest), self.slots, length, self.advance)

    def general(self, length: int) -> int:
        spaces = [space.in_slots() for space in self.spaces()]
        return int(self.tables(spaces, length + 1)[-1].finish[-1])


REAL = Machine([50, 1000, 10_000], [1, 20, 100], [1, 20, 100], 20)
MEASURED = Machine([50, 1000, 10_000], [14, 1038, 4817], [12, 743, 6020], 1000)
CROSSING = Machine([50, 1000, 10_000], [10, 2, 50], [1, 30, 5], 10)
DEAR = Machine([50, 1000, 10_000], [1, 1000, 5000], [1, 1000, 5000], 2)
ARCH_1 = Machine([1, 1, 2, 20], [1, 5, 10, 20], [1, 5, 10, 20], 1)
ARCH_2 = Machine([2, 20, 20], [1, 20, 40], [1, 20, 40], 2)
ONE_LEVEL = Machine([50], [0], [0], 1)
ROOM_FOR_ALL = Machine([10**7, 1000], [7, 8], [0, 2], 2)


def machine(random: Random) -> Machine:
    """Of one to four levels: ordered in cost or not, with free ones, with all alike."""
    levels = random.choice([1, 2, 2, 3, 3, 4])
    slots = [random.randint(1, 4) for _ in range(levels)]
    slots[-1] = random.choice([random.randint(1, 8), random.randint(8, 60)])
    if levels > 1 and random.random() < 0.4:
        slots[-2] = random.randint(1, 20)
    unit, most = random.choice([1, 2, 8, 1000]), random.choice([0, 1, 3, 10, 30])
    write, read = ([random.randint(0, most * unit) for _ in slots] for _ in range(2))
    if random.random() < 0.8:
        write.sort()
        read.sort()
    if random.random() < 0.2:
        write[0] = read[0] = 0
    if random.random() < 0.2:
        write, read = write[-1:] * levels, read[-1:] * levels
    return Machine(slots, write, read, random.choice([1, 1, 2]) * unit)


def recurrence(machine: Machine, longest: int) -> tuple[Ints, list[Ints]]:
    """H_K, and Hbar_k,m by level, row and length: the definition, a minimum at a time."""
    slots = [min(count, longest) for count in machine.slots]
    fresh = np.full((len(slots) + 1, longest + 1), FAR)
    fresh[:, 0] = 0
    inner = [np.full((count, longest + 1), FAR) for count in slots]
    stored = [np.zeros((count, longest + 1), np.int64) for count in slots]
    j = np.arange(1, longest + 1) * machine.advance
    for left in inner:
        left[:, 0] = 0
    for length in range(1, longest + 1):
        for k, (write, read) in enumerate(zip(machine.write, machine.read, strict=True)):
            inner[k][0, length] = low = fresh[k, length]
            splits = j[:length] + inner[k][:, length - 1 :: -1] + read + stored[k][:, :length]
            here = np.minimum(low, splits.min(axis=1))
            stored[k][:, length] = here
            inner[k][1:, length] = np.minimum(low, write + here[:-1])
            fresh[k + 1, length] = min(low, write + here[-1])
    return fresh[-1], stored


def longest(found: LongPlan) -> int:
    """The steps of the longest segment that the tables of a plan tell of."""
    return found.stages[0].longest


def check_schedule(machine: Machine, found: LongPlan) -> None:
    """It is legal, fits, reverses all, leaves nothing, and costs what the plan says."""
    levels = zip(machine.slots, machine.write, machine.read, strict=True)
    platform = Platform(
        tuple(
            Level(name=str(k), capacity=slots, write=Affine(write, 0), read=Affine(read, 0))
            for k, (slots, write, read) in enumerate(levels)
        )
    )
    chain = unit_chain(
        sum(part.steps * part.copies for part in found.first) + 1, advance=machine.advance
    )
    draft = Unrolling(found.stages, held=1).draft(chain.length, found.first)
    assert completed(draft.schedule(chain), platform) == found.cost


def check_instances(seed: int, instances: int, *, length: int) -> Iterator[bool]:
    """Whether short tables gave a plan, which then was the best."""
    random = Random(seed)
    for _ in range(instances):
        given = machine(random)
        best, _ = recurrence(given, length)
        for longest in (8, 16, 32, 64):
            for _ in range(2):
                steps = random.randint(longest + 2, length)
                found = given.extended(longest, steps)
                if isinstance(found, LongPlan):
                    assert found.cost == best[steps]
                    check_schedule(given, found)
                yield isinstance(found, LongPlan)


def test_short_tables_give_optimal_plans_of_longer_chains() -> None:
    planned = list(check_instances(seed=1, instances=15, length=150))
    assert sum(planned) > len(planned) / 2


def test_tables_grow_until_they_give_a_plan() -> None:
    random, planned = Random(7), 0
    for _ in range(16):
        given = machine(random)
        best, _ = recurrence(given, 200)
        if found := given.plan(200, shortest=8):
            assert found.cost == best[200]
            planned += 1
    assert planned > 8


@pytest.mark.campaign
@pytest.mark.parametrize(
    ("given", "length"),
    [
        (REAL, 10_000),
        (MEASURED, 10_000),
        (CROSSING, 10_000),
        (DEAR, 30_000),
        (ARCH_1, 10_000),
        (ARCH_2, 20_000),
        (ONE_LEVEL, 20_000),
        (ROOM_FOR_ALL, 3_000),
    ],
)
def test_a_plan_costs_what_the_general_algorithm_finds(given: Machine, length: int) -> None:
    found = given.plan(length)
    assert found is not None
    assert longest(found) < length / 2
    assert found.cost == given.general(length)
    check_schedule(given, found)


def test_a_million_steps_take_tables_of_a_few_hundred() -> None:
    found = REAL.plan(10**6)
    assert found is not None
    assert longest(found) == 256
    assert found.cost == 52_111_775
    assert [tuple(part)[1:] for part in found.first[:4]] == [
        (2, 1, 101, 8733),
        (2, 1, 76, 1),
        (2, 1, 51, 1266),
        (1, 1, 52, 1000),
    ]
    assert [part.steps for part in found.first[4:7]] == [51, 50, 49]


def test_the_segments_make_up_the_chain_and_use_no_more_slots_than_there_are() -> None:
    found = CROSSING.plan(123_456)
    assert found is not None
    assert sum(part.steps * part.copies for part in found.first) == 123_456
    for level, slots in enumerate(CROSSING.slots):
        assert sum(part.copies for part in found.first if part.stage == level) <= slots
    stages = [part.stage for part in found.first]
    assert stages == sorted(stages, reverse=True)


def test_short_chains_and_too_few_slots_are_left_to_the_general_algorithm() -> None:
    assert REAL.plan(500) is None
    assert Machine([2], [1], [1], 1).plan(5000) is None


def knapsack(slots: SlotKinds, length: int) -> int:
    """The least cost of `length` steps in all slots, by trying everything."""
    best = np.full(length + 1, FAR)
    best[0] = 0
    for count, costs in zip(slots.counts, slots.costs.tolist(), strict=True):
        for _ in range(count):
            after = best.copy()
            for steps, cost in enumerate(costs[: length + 1]):
                np.minimum(after[steps:], best[: length + 1 - steps] + cost, out=after[steps:])
            best = after
    return int(best[length])


def test_what_fits_the_group_is_the_least_of_all_ways_to_fill_the_slots() -> None:
    random, fitted = Random(5), 0
    for _ in range(300):
        counts = [random.choice([1, 1, 3, 12]) for _ in range(random.randint(1, 4))]
        longest = random.randint(1, 9)
        costs = [[0, *(random.randint(0, 40) for _ in range(longest))] for _ in counts]
        slots = SlotKinds(counts, np.array(costs, np.int64))
        length = random.randint(1, sum(counts) * longest)
        start = multiplier(slots, length)
        if start is None:
            continue
        for factor in (1, 2, 4):
            larger = Multiplier(start.g * factor, start.kappa * factor)
            taken = optimum(slots, length, larger, longest)
            if taken is not None:
                fitted += 1
                assert [kind.total() for kind in taken] == counts
                assert sum(d * n for kind in taken for d, n in kind.items()) == length
                assert slots.cost(taken) == knapsack(slots, length)
    assert fitted > 300


def test_a_price_is_one_at_which_slots_may_be_filled_to_the_length() -> None:
    slots = SlotKinds([3, 1], np.array([[0, 2, 3, 7], [0, 5, 5, 6]]))
    # Slopes of the lower hulls are 3/2, 4 for the first kind, 2 for the second, all 3 of its steps.
    assert multiplier(slots, 1) == multiplier(slots, 5) == Multiplier(2, 3)
    assert multiplier(slots, 7) == multiplier(slots, 8) == Multiplier(3, 6)
    assert multiplier(slots, 10) == multiplier(slots, 11) == Multiplier(1, 4)
    assert multiplier(slots, 13) is None
