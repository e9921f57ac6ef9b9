"""plan_schedule: no way of doing a schedule writes or reads fewer arrays."""

from collections.abc import Callable
from functools import partial
from math import inf
from random import Random

import pytest
from oracles.arrays import plan_schedule

from ckio.actions import Advance, Kind, Read, Record, Reverse, Write
from ckio.actions.variables import Step
from ckio.errors import BadInput
from ckio.schedule import Schedule
from ckio.testing.strategies import random_complete, random_legal

from .test_dataflow_symbols import NAMES, check, is_right, random_steps, subset


def fewest(
    schedule: Schedule, steps: list[Step], seed: frozenset[str], name: str
) -> tuple[float, float]:
    """The least writes, and the least reads, of one variable in any way of doing a schedule.

    By going through all of them: at every Write it is stored or not, at every Read any version that
    is stored is read or none.
    """
    right = [version(steps, name, i) for i in range(len(steps) + 1)]
    start = {
        (
            0,
            frozenset(
                right[key.step]
                for keys in schedule.stored
                for key in keys
                if key.kind is Kind.RESTART
            ),
        )
    }
    writes, reads = dict.fromkeys(start, 0), dict.fromkeys(start, 0)
    seeded = False
    for action in schedule.actions:
        match action:
            case Advance(_, end) | Record(_, end):
                move = partial(forward, steps, name, right, action)
                if end == len(steps) and not seeded:
                    seeded = True
                    if name in seed:
                        move = partial(then_seed, move, right[-1])
                writes, reads = moved(writes, move), moved(reads, move)
            case Reverse():
                move = partial(back, steps, name, right, action)
                writes, reads = moved(writes, move), moved(reads, move)
            case Write(key, _) if key.kind is not Kind.ADJOINT:
                writes, reads = stored(writes, 1), stored(reads, 0)
            case Read(key, _) if key.kind is not Kind.ADJOINT:
                writes, reads = loaded(writes, 0), loaded(reads, 1)
            case _:
                pass
    return min(writes.values(), default=inf), min(reads.values(), default=inf)


Ways = dict[tuple[int, frozenset[int]], int]
"""By the version that is there (-1: none) and those that are stored: the fewest accesses."""


def version(steps: list[Step], name: str, i: int) -> int:
    return max((j + 1 for j in range(i) if name in steps[j].forward.out), default=0)


def forward(
    steps: list[Step], name: str, right: list[int], action: Advance | Record, there: int
) -> int | None:
    for i in range(action.begin, action.end):
        flow = steps[i].forward if isinstance(action, Advance) else steps[i].record
        if name in flow.use and there != right[i]:
            return None
        if name in flow.out:
            made = name in steps[i].forward.out and (name in flow.kill or there == right[i])
            there = right[i + 1] if made else -1
    return there


def back(steps: list[Step], name: str, right: list[int], action: Reverse, there: int) -> int | None:
    for i in reversed(range(action.begin, action.end)):
        step = steps[i]
        if name in step.reverse.use and there != right[i + 1]:
            return None
        if name in step.restored:
            there = right[i]
        elif name in step.reverse.out:
            there = -1
    return there


def then_seed(move: Callable[[int], int | None], needed: int, there: int) -> int | None:
    after = move(there)
    return after if after == needed else None


def moved(ways: Ways, move: Callable[[int], int | None]) -> Ways:
    found: Ways = {}
    for (there, kept), many in ways.items():
        after = move(there)
        if after is not None:
            found[after, kept] = min(many, found.get((after, kept), many))
    return found


def stored(ways: Ways, price: int) -> Ways:
    found = dict(ways)
    for (there, kept), many in ways.items():
        if there >= 0 and there not in kept:
            state = there, kept | {there}
            found[state] = min(many + price, found.get(state, many + price))
    return found


def loaded(ways: Ways, price: int) -> Ways:
    found = dict(ways)
    for (_, kept), many in ways.items():
        for version in kept:
            found[version, kept] = min(many + price, found.get((version, kept), many + price))
    return found


def compare_with_fewest(random: Random, *, in_part: bool) -> list[tuple[int, float, int, float]]:
    """For each variable of a random case: writes and fewest writes, reads and fewest reads."""
    make = random_complete if random.random() < 0.8 else random_legal
    schedule, _ = make(random, most_steps=5)
    steps = random_steps(random, schedule.chain.length, in_part=in_part, asleep=False)
    seed = subset(random, NAMES, 0.3)
    bounds = {name: fewest(schedule, steps, seed, name) for name in NAMES}
    try:
        plan = plan_schedule(schedule, steps, seed=seed)
    except BadInput:
        # Only where there is no way, or a tape is read while the state is needed further on.
        assert not is_right(schedule, steps, seed)
        return []
    found = []
    for name, (writes, reads) in bounds.items():
        own = [access for access in plan.accesses if access.key.name == name]
        written, read = (sum(isinstance(it, kind) for it in own) for kind in (Write, Read))
        found.append((written, writes, read, reads))
    return found


@pytest.mark.campaign
@pytest.mark.parametrize("in_part", [False, True])
def test_no_way_of_doing_a_schedule_writes_or_reads_fewer_arrays(in_part: bool) -> None:
    compare_many(35, in_part=in_part)


@pytest.mark.slow
@pytest.mark.parametrize("in_part", [False, True])
def test_no_way_of_doing_any_of_many_schedules_does(in_part: bool) -> None:
    compare_many(1000, in_part=in_part)


def compare_many(variables: int, *, in_part: bool) -> None:
    """Of so many variables that something is stored of."""
    random, compared = Random(1), 0
    while compared < variables:
        for written, writes, read, reads in compare_with_fewest(random, in_part=in_part):
            assert written == writes
            assert read == reads
            compared += written > 0


@pytest.mark.slow
def test_what_whole_checkpoints_do_single_variables_do_too() -> None:
    """Any legal schedule: tapes and restart data in any order, keys from the start, unfinished."""
    random, done, lost = Random(8), 0, 0
    while done < 1000:
        make = random.choice((random_complete, random_complete, random_legal))
        schedule, _ = make(random)
        steps = random_steps(random, schedule.chain.length, in_part=random.random() < 0.5)
        seed = subset(random, NAMES, 0.3)
        if is_right(schedule, steps, seed):
            done, lost = done + 1, lost + check(schedule, steps, seed)
    assert lost > 600
