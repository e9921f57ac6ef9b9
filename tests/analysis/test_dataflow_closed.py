"""`placed`: all arrays of a variable at once, as `Within` places them one by one."""

from collections.abc import Iterable
from random import Random

import numpy as np

from ckio.actions import Kind
from ckio.actions.variables import ChainFlows
from ckio.analysis.dataflow import Array, Copy, LeastSeconds, latest
from ckio.analysis.dataflow.arrays import needed_arrays
from ckio.analysis.dataflow.closed import placed
from ckio.analysis.dataflow.needed import Copies, Needed
from ckio.analysis.dataflow.placing import BEFORE, Within
from ckio.errors import BadInput
from ckio.platform import Affine, Level, Platform
from ckio.schedule import Schedule, counts
from ckio.testing.strategies import random_legal

from .test_dataflow_symbols import NAMES, PLANNERS, is_right, random_planned, random_steps, subset


def random_needed(random: Random) -> tuple[Schedule, list[Needed]]:
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


def one_by_one(copies: Copies) -> set[tuple[int, int, int, tuple[int, ...]]]:
    return {
        (
            copies.version.item(n),
            copies.place.item(n),
            copies.level.item(n),
            tuple(copies.read[copies.of == n].tolist()),
        )
        for n in range(len(copies.version))
    }


def seconds(
    array: Array, copies: Iterable[tuple[int, int, tuple[int, ...]]], prices: LeastSeconds
) -> float:
    total = 0.0
    for place, level, reads in copies:
        chance = next(it for it in array.chances if it[:2] == (place, level))
        total += prices.once(chance, array) + len(reads) * prices.read(level, array)
    return total


def test_arrays_placed_at_once_take_what_they_take_one_by_one() -> None:
    random, many, free, start = Random(7), 0, 0, 0
    for _ in range(120):
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
        within = Within(platform=Platform(levels), nbytes=dict.fromkeys(NAMES, 1))
        prices = LeastSeconds(platform=within.platform, nbytes=within.nbytes)
        for each in needed:
            found = one_by_one(placed(each, within))
            for array in each.arrays(np.ones(len(each.first), np.bool_)):
                mine = [row[1:] for row in found if row[0] == array.version]
                assert sorted(read for *_, reads in mine for read in reads) == list(array.reads)
                best = [(*it.chance[:2], it.reads) for it in within(array)]
                assert seconds(array, mine, prices) == seconds(array, best, prices)
                many, free = many + 1, free + (len(array.chances) > 1)
                start += any(place == BEFORE for place, *_ in mine)
    assert many > 100
    assert free > 30
    assert start > 0


def test_copies_in_columns_are_the_copies() -> None:
    random = Random(8)
    for _ in range(40):
        _, needed = random_needed(random)
        for each in needed:
            arrays = list(each.arrays(np.ones(len(each.first), np.bool_)))
            single: list[tuple[int, Copy]] = [
                (array.version, copy) for array in arrays for copy in latest(array)
            ]
            copies = placed(each, latest)
            wanted = {(version, *it.chance[:2], it.reads) for version, it in single}
            assert one_by_one(copies) == wanted
            accesses = copies.accesses(each.name, Kind.RESTART)
            assert len(accesses.actions) == len(single) + len(each.read) + int(
                (copies.place != BEFORE).sum()
            )
            assert dict(copies.start(each.name, Kind.RESTART)).keys() == {
                level for _, place, level, _ in wanted if place == BEFORE
            }
