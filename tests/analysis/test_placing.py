"""`place_copies`: all arrays of a variable at once, as they are placed one by one."""

from collections.abc import Iterable, Sequence
from random import Random

import pytest
from drawing import random_legal
from oracles.arrays import Array, Copy, arrays_of, in_slots, latest, seconds_of

from ckio.actions import Key, Kind
from ckio.actions.variables import ChainFlows
from ckio.analysis import placing
from ckio.analysis.dataflow import needed_arrays
from ckio.analysis.placing import ArrayReads, place_copies
from ckio.errors import BadInput
from ckio.platform import Affine, Level, Platform
from ckio.schedule import Schedule, counts
from ckio.schedule.occupancy import BEFORE

from .symbols import NAMES, PLANNERS, is_right, random_planned, random_steps, subset

X0 = Key(Kind.RESTART, 0)


def random_needed(random: Random) -> tuple[Schedule, list[ArrayReads]]:
    """What a schedule has to store, by a planner or at random from some checkpoints on."""
    while True:
        name = random.choice(("hrevolve", "multistage", "mixed", "disk-revolve"))
        if random.random() < 0.5:
            schedule = random_planned(random, name, PLANNERS[name], differ=False)
        else:
            schedule = random_legal(random)[0]
        steps = random_steps(random, schedule.chain.length, in_part=random.random() < 0.3)
        seed = subset(random, NAMES, 0.3)
        if is_right(schedule, steps, seed):
            try:
                return schedule, needed_arrays(schedule, ChainFlows(steps, len(steps)), seed)
            except BadInput:  # what adjoint steps use in place is not on the tape
                continue


def one_by_one(copies: Iterable[placing.Copy]) -> set[tuple[int, int, int, tuple[int, ...]]]:
    return {(it.version, it.place, it.level, it.reads) for it in copies}


def seconds(
    array: Array, copies: Iterable[tuple[int, int, tuple[int, ...]]], levels: Sequence[Level]
) -> float:
    total = 0.0
    for place, level, reads in copies:
        site = next(it for it in array.sites if it[:2] == (place, level))
        total += seconds_of(site, levels, 1, len(reads))
    return total


@pytest.mark.campaign
@pytest.mark.parametrize("schedules", [40, 400])
def test_arrays_placed_at_once_take_what_they_take_one_by_one(schedules: int) -> None:
    random, many, free, start = Random(7), 0, 0, 0
    for _ in range(schedules):
        schedule, needed = random_needed(random)
        levels = tuple(
            Level(
                name=f"level{n}",
                write=Affine(random.randint(0, 9)),
                read=Affine(random.randint(0, 9)),
                discard=Affine(random.randint(0, 2)),
            )
            for n in range(len(counts(schedule).levels))
        )
        platform = Platform(levels)
        for each in needed:
            found = one_by_one(place_copies(each, platform, 1))
            for array in arrays_of(each):
                mine = [row[1:] for row in found if row[0] == array.version]
                assert sorted(read for *_, reads in mine for read in reads) == list(array.reads)
                found_alone = in_slots(array, levels, 1) or latest("a", array)
                alone = [(*it.site[:2], it.reads) for it in found_alone]
                assert seconds(array, mine, levels) == seconds(array, alone, levels)
                many, free = many + 1, free + (len(array.sites) > 1)
                start += any(place == BEFORE for place, *_ in mine)
    assert many > 0.8 * schedules
    assert free > 0.25 * schedules
    assert start > 0


def test_copies_without_a_platform_are_the_latest() -> None:
    random = Random(8)
    for _ in range(15):
        _, needed = random_needed(random)
        for each in needed:
            arrays = list(arrays_of(each))
            single: list[tuple[int, Copy]] = [
                (array.version, copy) for array in arrays for copy in latest(each.name, array)
            ]
            copies = list(place_copies(each, None, 1))
            wanted = {(version, *it.site[:2], it.reads) for version, it in single}
            assert one_by_one(copies) == wanted
            accesses = [access for it in copies for access in it.accesses(X0)]
            assert len(accesses) == len(single) + len(each.read) + sum(
                it.place != BEFORE for it in copies
            )
