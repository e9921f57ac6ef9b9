"""How much does it cost not to know the end? Makespans over those of hrevolve, which knows it.

Rules for the forward sweep are compared with one and the same way back: `planners.resume`.
Times are in steps: advancing takes 1, recording and reversing 1 together. Each figure is the mean
over chains of 10 to 2000 steps, with the largest in brackets.
"""

import statistics
from collections.abc import Callable, Sequence
from functools import cache, partial

from oracles.wang_moin import wang_moin

from bench import record
from ckio.actions import Key, Kind
from ckio.actions.columns import WRITE
from ckio.planners.dp import hrevolve
from ckio.planners.resume import resume
from ckio.planners.unknown import online
from ckio.planners.unknown.levels import Comb
from ckio.platform import Platform
from ckio.platform.chain import Chain
from ckio.schedule import Schedule, makespan
from ckio.schedule.replay import validate

STEPS = (10, 20, 50, 100, 200, 500, 1000, 2000)

Comparison = Callable[[int, int], tuple[Sequence[int], int]]
"""Which states are stored on one level when the end comes, and how many were written in all."""


def example(steps: int, platform: str) -> tuple[Chain, Platform]:
    chain = Chain(steps=steps, advance=1, record=1, reverse=0, restart=1, tape=1, adjoint=1)
    return chain, Platform.loads(platform)


@cache
def optimum(steps: int, platform: str) -> float:
    return makespan(hrevolve(*example(steps, platform)), example(steps, platform)[1])


def planned(planner: Callable[..., Schedule], steps: int, platform: str) -> tuple[float, int]:
    """The makespan of a planner's schedule over the optimum, and its writes forward."""
    chain, machine = example(steps, platform)
    schedule = planner(chain, machine)
    assert validate(schedule, machine).adjoint == 0
    end = int((schedule.actions.end == steps).argmax())
    writes = int((schedule.actions.op[:end] == WRITE).sum())
    return makespan(schedule, machine) / optimum(steps, platform), writes


def compared(rule: Comparison, steps: int, platform: str) -> tuple[float, int]:
    """The same of a rule that is only a list of what is stored at the end, on the nearest level."""
    chain, machine = example(steps, platform)
    level = machine.levels[0]
    kept, writes = rule(steps, level.slots(1, steps))
    back = resume(chain, machine, [[Key(Kind.RESTART, step) for step in kept]], state=steps)
    seconds = steps + writes * level.write(1) + makespan(back, machine)
    return seconds / optimum(steps, platform), writes


def every_candidate(steps: int, slots: int) -> tuple[list[int], int]:
    """The greedy rule with every state a candidate: the comb without a grid."""
    kept, writes = [0], 1
    for step in range(1, steps if slots > 1 else 1):
        kept.append(step)
        if len(kept) > slots:
            kept.remove(Comb(slots, 1).superfluous(kept))
        writes += kept[-1] == step
    return kept, writes


def thinning(steps: int, slots: int) -> tuple[list[int], int]:
    """Every d-th state; when the level is full, d doubles and those between go."""
    distance, kept, writes = 1, [0], 1
    for step in range(1, steps):
        while slots > 1 and step % distance == 0 and len(kept) == slots:
            distance *= 2
            kept = [key for key in kept if key % distance == 0]
        if slots > 1 and step % distance == 0:
            kept.append(step)
            writes += 1
    return kept, writes


def stumm_walther_1(steps: int, slots: int) -> tuple[list[int], int]:
    """Algorithm I of Stumm and Walther, "New algorithms for optimal online checkpointing", 2010.

    It ends at (s + 1)(s + 2) / 2 - 1 steps; its comb is thinned out beyond.
    """
    most = (slots + 1) * (slots + 2) // 2 - 1
    held: dict[int, int] = {}
    slot, offset, turn, storing, writes = 0, slots, slots, True, 0
    for step in range(min(steps, most)):
        if storing:
            held[slot] = step
            writes += 1
            slot = 1 if slot + 1 > offset else slot + 1
        if step + 1 == turn:
            storing = False
        if step == turn:
            turn, offset = turn + offset, offset - 1
            slot, storing = offset, offset > 0
    kept = sorted(held.values())
    for step in range(most, steps):
        distance = 2 ** max(0, (step // slots).bit_length() - 1)
        if step % distance == 0 and slots > 1:
            off = [key for key in kept[1:] if key % distance]
            if len(kept) == slots:
                kept.remove(off[0] if off else kept[1])
            kept.append(step)
            writes += 1
    return kept, writes


RULES: dict[str, Callable[[int, str], tuple[float, int]]] = {
    "online": partial(planned, online),
    "every state": partial(compared, every_candidate),
    "thinning": partial(compared, thinning),
    "Stumm-Walther": partial(compared, stumm_walther_1),
    "Wang-Moin": partial(planned, wang_moin),
}


def cell(rule: str, platform: str, lengths: Sequence[int]) -> str:
    found = [RULES[rule](steps, platform) for steps in lengths]
    ratios = [ratio for ratio, _ in found]
    return f"{statistics.mean(ratios):.3f} ({max(ratios):.3f}) {found[-1][1]}"


def one_level(lengths: Sequence[int]) -> str:
    """Behind the brackets: the writes forward of the longest. To write and to read cost w each."""
    rows = [
        [f"{slots} slots, w = {cost:g}"]
        + [cell(rule, f"1\n {slots} {cost} {cost}", lengths) for rule in RULES]
        for slots in (3, 10, 20)
        for cost in (0, 1, 5)
    ]
    return record.columns(["one level", *RULES], rows)


LEVELS = {
    "3, and w = 0.5 far": "2\n 3 0 0\n 100000 .5 .5",
    "3, and w = 10": "2\n 3 0 0\n 100000 10 10",
    "3, and w = 50": "2\n 3 0 0\n 100000 50 50",
    "10, and w = 0.5": "2\n 10 0 0\n 100000 .5 .5",
    "10, and w = 10": "2\n 10 0 0\n 100000 10 10",
    "20, and w = 2": "2\n 20 0 0\n 100000 2 2",
    "20, and w = 10": "2\n 20 0 0\n 100000 10 10",
    "20, and w = 50": "2\n 20 0 0\n 100000 50 50",
    "3, and 10 with w = 2": "2\n 3 0 0\n 10 2 2",
    "10, and 20 with w = 2": "2\n 10 0 0\n 20 2 2",
    "3, 5 with w = 2, w = 10": "3\n 3 0 0\n 5 2 2\n 100000 10 10",
    "arch_1": "4\n 1 1 1\n 1 5 5\n 2 10 10\n 20 20 20",
    "arch_2": "3\n 2 .5 .5\n 20 10 10\n 20 20 20",
}


def more_levels(lengths: Sequence[int]) -> str:
    """online on all levels; forward on the nearest alone, and back on all; on the nearest alone."""
    rules = {"online": "online", "near, every state": "every state", "near, Wang-Moin": "Wang-Moin"}
    rows = [
        [name, *(cell(rule, platform, lengths) for rule in rules.values())]
        for name, platform in LEVELS.items()
    ]
    return record.columns(["several levels", *rules], rows)


def table(lengths: Sequence[int] = STEPS) -> str:
    return f"{one_level(lengths)}\n\n{more_levels(lengths)}"


if __name__ == "__main__":
    record.main("online", table)
