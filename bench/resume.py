"""How long does it take to plan from stored keys, and how good are the plans?"""

import statistics
from collections.abc import Sequence
from dataclasses import replace
from random import Random
from unittest.mock import patch

from bench import record
from ckio.actions import Key, Kind
from ckio.planners.resume import recurrence, resume
from ckio.platform import Platform
from ckio.platform.chain import Chain
from ckio.schedule import makespan

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
    random, machine = Random(seed), Platform.loads(PLATFORMS[platform])
    chain = Chain(steps=steps, advance=1, record=0, reverse=0, restart=1, tape=1, adjoint=1)
    capacity = machine.levels[-1].capacity
    count = KEYS if capacity is None else min(KEYS, capacity)
    keys = {0, *random.sample(range(1, steps), count - 1)}
    stored: Stored = [set() for _ in machine.levels]
    stored[-1] = {Key(Kind.RESTART, step) for step in keys}
    return chain, machine, stored


def seconds(steps: int, platform: str) -> str:
    case = example(steps, platform)
    return f"{record.processor_seconds(lambda: resume(*case, state=None)):.2f}"


def planned(case: tuple[Chain, Platform, Stored]) -> float:
    return makespan(resume(*case, state=None), case[1])


def quality(steps: int, platform: str, seed: int) -> tuple[float, float, float]:
    """Half the blocks, x_0 alone, and the relaxation in which keys take no room, to the plan."""
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
    with patch.object(recurrence, "_MOST_BLOCKS", 256):
        in_fewer = planned((chain, machine, stored))
    return (
        in_fewer / best,
        planned((chain, machine, only)) / best,
        planned((chain, roomy, stored)) / best,
    )


def table(
    lengths: Sequence[int] = LENGTHS, chains: Sequence[int] = (300, 1000), seeds: int = 5
) -> str:
    times = [[platform, *(seconds(steps, platform) for steps in lengths)] for platform in PLATFORMS]
    worth = []
    for platform in PLATFORMS:
        for steps in chains:
            found = (quality(steps, platform, seed) for seed in range(seeds))
            ratios = list(zip(*found, strict=True))
            worth.append(
                [f"{platform}: {steps}"]
                + [f"{statistics.mean(ratio):.3f} ({max(ratio):.3f})" for ratio in ratios[:2]]
                + [f"{statistics.mean(ratios[2]):.3f} ({min(ratios[2]):.3f})"]
            )
    return (
        f"Processor seconds of the call, columns included, up to {KEYS} keys; median of 3\n"
        + record.columns(["platform", *(f"n = {steps}" for steps in lengths)], times)
        + f"\n\nMakespan to that of the recurrence in up to 512 blocks, mean (worst) of {seeds}\n"
        + record.columns(
            ["platform: n", "256 blocks", "only x_0 stored", "keys take no room"], worth
        )
    )


if __name__ == "__main__":
    record.main("resume", table)
