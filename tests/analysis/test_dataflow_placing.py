"""LeastSeconds: the best of all sets of copies."""

from itertools import combinations
from math import inf
from random import Random

from ckio.actions import Discard, Read, Write
from ckio.analysis.dataflow import (
    Array,
    ArrayPlan,
    LeastSeconds,
    Placing,
    earliest,
    latest,
    plan_schedule,
)
from ckio.analysis.dataflow.placing import BEFORE, Chance
from ckio.planners.hrevolve import hrevolve
from ckio.platform import Affine, Level, Platform
from ckio.platform.chain import Chain

from .test_dataflow_symbols import NAMES, Symbols, is_right, perform, random_steps


def random_array(random: Random, levels: int) -> Array:
    places = sorted(random.sample(range(30), random.randint(2, 12)))
    is_read = [False, *(random.random() < 0.6 for _ in places[2:]), True]
    reads = [place for place, read in zip(places, is_read, strict=True) if read]
    chances = [
        Chance(place, random.randrange(levels))
        for place, read in zip(places, is_read, strict=True)
        if not read
    ]
    if random.random() < 0.2:
        chances.insert(0, Chance(BEFORE, random.randrange(levels)))
    return Array("A", 0, tuple(reads), tuple(chances))


def price(array: Array, chances: tuple[Chance, ...], placing: LeastSeconds) -> float:
    """What these copies take, where each read is from the best that there is by then."""
    levels, nbytes = placing.platform.levels, placing.nbytes["A"]
    total = 0.0
    for place, number, _ in chances:
        total += levels[number].discard(nbytes)
        total += levels[number].write(nbytes) if place != BEFORE else 0
    for read in array.reads:
        there = [levels[it.level].read(nbytes) for it in chances if it.place < read]
        total += min(there, default=inf)
    return total


def test_least_seconds_is_the_best_of_all_sets_of_copies() -> None:
    random, several = Random(9), 0
    for _ in range(400):
        levels = tuple(
            Level(
                name=f"level{number}",
                write=Affine(random.randint(0, 9), random.randint(0, 3)),
                read=Affine(random.randint(0, 9)),
                discard=Affine(random.randint(0, 3)),
            )
            for number in range(3)
        )
        placing = LeastSeconds(platform=Platform(levels), nbytes={"A": random.randint(0, 4)})
        array = random_array(random, 3)
        copies = placing(array)
        assert sorted(read for it in copies for read in it.reads) == list(array.reads)
        assert all(it.reads and it.chance.place < it.reads[0] for it in copies)
        assert len({it.chance.level for it in copies}) == len(copies)
        sets = (
            some
            for size in range(1, len(array.chances) + 1)
            for some in combinations(array.chances, size)
        )
        least = min(price(array, some, placing) for some in sets)
        assert price(array, tuple(it.chance for it in copies), placing) == least
        several += len(copies) > 1
    assert several > 20


def test_least_seconds_is_right_and_never_dearer_than_one_copy() -> None:
    random, done, cheaper = Random(10), 0, 0
    nbytes = {name: 1 + number for number, name in enumerate(NAMES)}
    while done < 40:
        near = Level(name="near", capacity=2)
        price = Affine(random.randint(1, 9), random.randint(0, 3))
        platform = Platform((near, Level(name="far", write=price, read=price)), 1)
        chain = Chain(steps=15, advance=5, record=1, reverse=1, restart=1, tape=1, adjoint=1)
        schedule = hrevolve(chain, platform)
        steps = random_steps(random, schedule.chain.length, in_part=False)
        if not is_right(schedule, steps, frozenset()):
            continue
        placings: list[Placing] = [LeastSeconds(platform=platform, nbytes=nbytes), latest, earliest]
        plans = [plan_schedule(schedule, steps, seed=(), placing=it) for it in placings]
        assert not any(perform(schedule, Symbols(steps, frozenset()), plans[0]))
        least, *others = (taken(plan, platform, nbytes) for plan in plans)
        assert least <= min(others)
        done, cheaper = done + 1, cheaper + (least < min(others))
    assert cheaper > 5


def taken(plan: ArrayPlan, platform: Platform, nbytes: dict[str, int]) -> float:
    total = 0.0
    for access in plan.accesses:
        level = platform.levels[access.level]
        cost = {Write: level.write, Read: level.read, Discard: level.discard}[type(access)]
        total += cost(nbytes[access.key.name])
    return total
