"""Makespans that hrevolve, hrevolve-2020 and mixed promise on 3,000 random machines.

A change of the planners must leave each of them as it is, or make it less:

    python -m bench.machines write FILE        with the planners as they were
    python -m bench.machines compare FILE      with the planners as they are

A level more, or more capacity on a level, must not make the plan of auto slower:

    python -m bench.machines monotone          on 2,000 machines with up to 1,500 steps
"""

import argparse
import itertools
import json
import math
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from ckio.adapters.registry import find
from ckio.errors import CkioError, NoSchedule
from ckio.planners.fastest import auto
from ckio.platform import Affine, Level, Platform
from ckio.platform.chain import Chain
from ckio.schedule import makespan

PLANNERS = "hrevolve", "hrevolve-2020", "mixed"
COUNT = 3000
MONOTONE, LONGEST = 2000, 1500


def machine(seed: int) -> tuple[Chain, Platform]:
    """Return a chain of up to 400 steps, or 6,000 for some, and one to four levels.

    The steps of a third of them vary.
    """
    chance = random.Random(seed)
    varies, is_long = seed % 3 == 2, seed % 15 == 0
    steps = 2 + int(chance.random() ** 2 * (6000 if is_long else 60 if varies else 400))
    restart = chance.randint(1, 6)
    tape = restart if chance.random() < 0.4 else chance.randint(1, 9)
    cost = chance.choice((whole, quarter, decimal))
    if varies:
        some = {
            name: np.array([cost(chance) + 0.25 for _ in range(steps)])
            for name in ("advance", "record", "reverse")
        }
        sizes = {
            "restart": np.array([chance.choice((restart, tape)) for _ in range(steps + 1)]),
            "tape": np.array([chance.choice((tape, restart)) for _ in range(steps)]),
        }
        chain = Chain(steps=steps, **some, **sizes, adjoint=1)
    else:
        chain = Chain(
            steps=steps, advance=cost(chance) + 0.25, record=cost(chance) + 0.25,
            reverse=cost(chance), restart=restart, tape=tape, adjoint=1,
        )  # fmt: skip
    most = 150 if is_long else 12
    levels = [
        Level(
            name=f"level{number}",
            capacity=None if chance.random() < 0.15 else chance.randint(1, most * (1 + 3 * number)),
            write=Affine(cost(chance) * (number + 1)),
            read=Affine(cost(chance) * (number + 1)),
        )
        for number in range(chance.randint(1, 4))
    ]
    tape = int(np.max(chain.tape))
    return chain, Platform(tuple(levels), working_memory=tape * chance.choice((1, 1, 2, 3)))


def whole(chance: random.Random) -> float:
    """Return a whole number of seconds."""
    return float(chance.choice((0, 0, 1, 1, 2, 3, 5, 8, 20)))


def quarter(chance: random.Random) -> float:
    """Return a number of quarters of a second."""
    return chance.randint(0, 24) / 4


def decimal(chance: random.Random) -> float:
    """Return seconds as they are measured."""
    return chance.uniform(0, 6)


def makespans() -> Iterator[tuple[str, float | None]]:
    """Yield the makespan of each planner on each machine; None where it has no schedule."""
    for seed in range(COUNT):
        chain, platform = machine(seed)
        for planner in PLANNERS:
            try:
                seconds = makespan(find("planners", planner)(chain, platform), platform)
            except CkioError:
                yield f"{planner} {seed}", None
            else:
                yield f"{planner} {seed}", seconds


def compare(before: dict[str, float | None]) -> None:
    """Print how many makespans are equal, less and more than before, and the worst of them."""
    equal, less, more = 0, list[float](), list[tuple[float, str]]()
    for name, seconds in makespans():
        known = before[name]
        if known is None or seconds is None:
            if known != seconds:
                print(f"{name}: {known} before, {seconds} now")
            continue
        if math.isclose(seconds, known, rel_tol=1e-9):
            equal += 1
        elif seconds < known:
            less.append(seconds / known)
        else:
            more.append((seconds / known, name))
    print(f"equal {equal}, less {len(less)}, more {len(more)}")
    if less:
        print(f"least, as a part of that before: {min(less):.4f}")
    for ratio, name in sorted(more, reverse=True)[:10]:
        print(f"more: {name}, {ratio:.6f} times")


def enlarged(platform: Platform, chance: random.Random) -> Platform:
    """Return the platform with more capacity on one of its levels, or with one more level."""
    levels = list(platform.levels)
    number = chance.randrange(len(levels))
    capacity = levels[number].capacity
    if capacity is not None and chance.random() < 0.5:
        more = capacity + chance.randint(1, 1 + capacity)
        levels[number] = replace(levels[number], capacity=more)
        return replace(platform, levels=tuple(levels))
    cost = chance.choice((whole, quarter, decimal))
    write, read = Affine(2 * cost(chance)), Affine(2 * cost(chance))
    slots = chance.choice((None, chance.randint(1, 40)))
    levels.insert(number, Level(name="more", capacity=slots, write=write, read=read))
    return replace(platform, levels=tuple(levels))


def monotone() -> None:
    """Print the machines that are slower after they were enlarged, and how many are compared."""
    compared, slower = 0, 0
    for seed in itertools.count():
        if compared == MONOTONE:
            break
        chain, platform = machine(seed)
        if chain.length > LONGEST:
            continue
        larger, seconds = enlarged(platform, random.Random(seed)), list[float]()
        for each in (platform, larger):
            try:
                seconds.append(makespan(auto(chain, each), each))
            except NoSchedule:
                seconds.append(math.inf)
        compared += 1
        if seconds[1] > seconds[0] * (1 + 1e-12):  # sums of floats in another order
            slower += 1
            print(f"machine {seed}: {seconds[0]:.9g} s, enlarged {seconds[1]:.9g} s")
    print(f"{compared} machines, {slower} of them slower with more capacity or a level more")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("action", choices=("write", "compare", "monotone"))
    parser.add_argument("file", type=Path, nargs="?")
    asked = parser.parse_args()
    if asked.action == "monotone":
        monotone()
    elif asked.file is None:
        parser.error(f"{asked.action} needs a FILE")
    elif asked.action == "write":
        asked.file.write_text(json.dumps(dict(makespans())))
    else:
        compare(json.loads(asked.file.read_text()))


if __name__ == "__main__":
    main()
