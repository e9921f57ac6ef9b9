"""How long does it take to plan from stored keys, and how good are the plans?"""

import statistics
import time
from dataclasses import replace
from random import Random
from typing import Any

import pytest
import record

from ckio.actions import Key, Kind
from ckio.actions.columns import Actions
from ckio.planners.resume import checked, long, resume, short, with_discards
from ckio.planners.resume.remainder import remainder
from ckio.planners.resume.tables import MOST_COMPARED
from ckio.platform import Affine, Level, Platform
from ckio.platform.chain import Chain
from ckio.schedule import Schedule, makespan

# Slots, write and read, nearest first and in units of one advance; stored keys lie on the last.
PLATFORMS = {
    "RAM 5": "1\n 5 0 0",
    "RAM 10": "1\n 10 0 0",
    "RAM 20": "1\n 20 0 0",
    "RAM 10, w = r = 1": "1\n 10 1 1",
    "RAM 5, far w = r = 2": "2\n 5 0 0\n 1000000 2 2",
    "RAM 10, far w = r = 5": "2\n 10 0 0\n 1000000 5 5",
}
KEYS = 20
LENGTHS = (300, 1000, 3000, 100_000)
Stored = list[set[Key]]


def example(steps: int, platform: str, seed: int = 0) -> tuple[Chain, Platform, Stored]:
    """Up to 20 keys at random, as many as there is room for, and x_0."""
    random, machine = Random(seed), Platform.from_hrevolve(PLATFORMS[platform])
    chain = Chain(steps=steps, advance=1, record=0, reverse=0, restart=1, tape=1, adjoint=1)
    capacity = machine.levels[-1].capacity
    count = KEYS if capacity is None else min(KEYS, capacity)
    keys = {0, *random.sample(range(1, steps), count - 1)}
    stored: Stored = [set() for _ in machine.levels]
    stored[-1] = {Key(Kind.RESTART, step) for step in keys}
    return chain, machine, stored


def seconds(steps: int, platform: str) -> str:
    case = example(steps, platform)
    return f"{min(processor_seconds(case) for _ in range(2)):.2f}"


def processor_seconds(case: tuple[Chain, Platform, Stored]) -> float:
    start = time.process_time()
    resume(*case, state=None)
    return time.process_time() - start


def planned(case: tuple[Chain, Platform, Stored], *, most: float = MOST_COMPARED) -> float:
    chain, platform, stored = case
    kept = checked(chain, platform, stored, None)
    rest = remainder(chain, platform, kept, state=None, new_tapes=False)
    return min(
        makespan(with_discards(Schedule(chain, plan.actions, kept)), platform)
        for plan in long.plans(rest, most=most)
    )


def quality(steps: int, platform: str, seed: int) -> tuple[float, float, float]:
    """Segments, x_0 alone, and the relaxation in which keys take no room; each to the best plan."""
    chain, machine, stored = example(steps, platform, seed)
    best = planned((chain, machine, stored))
    only = [{key for key in here if key.step == 0} for here in stored]
    roomy = replace(
        machine,
        levels=tuple(
            replace(level, capacity=(level.capacity or 0) + len(here))
            for level, here in zip(machine.levels, stored, strict=True)
        ),
    )
    return (
        planned((chain, machine, stored), most=0) / best,
        planned((chain, machine, only)) / best,
        planned((chain, roomy, stored)) / best,
    )


def small_case(random: Random, levels: int, *, differ: bool) -> tuple[Chain, Platform, Stored]:
    """Whole costs in any order, a few slots on each level, and one to five keys."""
    steps = random.randint(4, 7)

    def each(low: int, high: int) -> Any:
        numbers = [random.randint(low, high) for _ in range(steps)]
        return numbers if differ else numbers[0]

    chain = Chain(
        steps=steps, advance=each(1, 4), record=each(1, 6), reverse=1, restart=2, tape=2, adjoint=1
    )
    machine = Platform(
        tuple(
            Level(
                name=f"level{number}",
                capacity=2 * random.randint(1, 3),
                write=Affine(random.randint(0, 4)),
                read=Affine(random.randint(0, 4)),
            )
            for number in range(levels)
        ),
        working_memory=2,
    )
    stored: Stored = [set() for _ in range(levels)]
    for step in (0, *random.choices(range(steps), k=4)):
        number = random.randrange(levels)
        if 2 * len(stored[number]) < (machine.levels[number].capacity or 0):
            stored[number].add(Key(Kind.RESTART, step))
    return chain, machine, stored


def losses(levels: int, *, differ: bool, tapes: bool, cases: int = 120) -> list[float]:
    """What the way of long chains loses to the search for short ones, where that ends."""
    random, lost = Random(1), list[float]()
    for _ in range(cases):
        chain, machine, stored = small_case(random, levels, differ=differ)
        kept, state = checked(chain, machine, stored, None), random.choice([None, 0, chain.length])
        rest = remainder(chain, machine, kept, state=state, new_tapes=tapes)
        best = short.search(rest)
        if best is None or not best.complete:
            continue
        ways = [Actions.of(best.actions), *(plan.actions for plan in long.plans(rest))]
        found, *others = (
            makespan(with_discards(Schedule(chain, way, kept)), machine) for way in ways
        )
        lost.append(min(others) / found - 1)
    return lost


def table() -> str:
    times = [[platform, *(seconds(steps, platform) for steps in LENGTHS)] for platform in PLATFORMS]
    worth = []
    for platform in PLATFORMS:
        for steps in (300, 1000):
            ratios = list(zip(*(quality(steps, platform, seed) for seed in range(5)), strict=True))
            worth.append(
                [f"{platform}: {steps}"]
                + [f"{statistics.mean(ratio):.3f} ({max(ratio):.3f})" for ratio in ratios[:2]]
                + [f"{statistics.mean(ratios[2]):.3f} ({min(ratios[2]):.3f})"]
            )
    small = []
    for levels in (1, 2):
        for differ in (False, True):
            for tapes in (False, True):
                lost = losses(levels, differ=differ, tapes=tapes)
                steps = "differ" if differ else "alike"
                told = f"{levels} level{'s' * (levels > 1)}, steps {steps}"
                none = sum(loss < 1e-9 for loss in lost)
                row = [f"{none} of {len(lost)}", f"{statistics.mean(lost):.2%}", f"{max(lost):.1%}"]
                small.append([told + ", new tapes" * tapes, *row])
    return (
        f"Processor seconds of the call, columns included, up to {KEYS} keys; least of 2\n"
        + record.columns(["platform", *(f"n = {steps}" for steps in LENGTHS)], times)
        + "\n\nMakespan to that of the recurrence over all steps, mean (worst) of 5\n"
        + record.columns(["platform: n", "segments", "only x_0 stored", "keys take no room"], worth)
        + "\n\nThe way of long chains on 4 to 7 steps, above the search that comes to its end\n"
        + record.columns(["chain", "nothing lost", "mean", "worst"], small)
    )


@pytest.mark.parametrize("platform", PLATFORMS)
def test_resuming(benchmark, platform: str) -> None:
    chain, machine, stored = example(300, platform)
    benchmark(resume, chain, machine, stored, state=None)


if __name__ == "__main__":
    record.save("resume", table())
