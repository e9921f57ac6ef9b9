"""The schedule that was killed, taken up again: it needs no plan, and its price is known before.

One forward sweep restores what the machine held at an instant of it, and it goes on from there: see
`redone.py`, which says what that costs. A plan from what is stored is mostly better. Not always:
with several tapes in the working memory the planners that start from stored keys know less ways.
"""

from bisect import bisect_left
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ckio.actions import Action, Advance, Discard, Key, Kind, Read, Record, Write
from ckio.actions.columns import DISCARD, KIND_CODE, WRITE, Actions
from ckio.errors import IllegalAction
from ckio.platform import Platform
from ckio.recover.survivors import Place, Stored
from ckio.recover.walk import Walk, dead
from ckio.schedule import Schedule
from ckio.schedule import seconds as price
from ckio.schedule.machine import Machine
from ckio.schedule.replay import validate


class Killed(NamedTuple):
    """What the process did that was killed.

    Attributes
    ----------
    schedule : Schedule
        Its plan, as it was begun.
    durable : collection of int
        The numbers of the levels whose keys survive.
    """

    schedule: Schedule
    durable: Collection[int]


def taken_up(
    killed: Killed, platform: Platform, stored: Stored, adjoint: Place | None, /
) -> Schedule | None:
    """The rest of what was killed, for a fresh process, from what is stored on each level.

    It reads the adjoint at this place, stores none, and leaves nothing but adjoints. None where the
    schedule is never in a state of which just this survives, as when a checkpoint is corrupt; where
    one sweep is not enough; and where the platform is not what it was and the rest does not fit.
    """
    plan = killed.schedule
    try:
        validate(plan, platform)
        last = _last_with(plan, stored, frozenset(killed.durable))
        if last is None:
            return None
        instants = Walk(plan, platform, frozenset(killed.durable)).instants()
        if np.isinf(instants.redone[last]):
            return None
        base = int(instants.base[last])
        held = () if adjoint is None else (Read(*adjoint),)
        back = Actions.of((*held, *_way_back(plan, platform, base, stored, fresh=not held)))
        rest = plan.actions[base:]
        on_adjoint = (rest.op >= WRITE) & (rest.kind == KIND_CODE[Kind.ADJOINT])
        note = "what was killed, taken up again"
        whole = Schedule(plan.chain, back + rest.take(~on_adjoint), stored, note)
        left = Actions.of(_discards(validate(whole, platform).stored, ()))
    except IllegalAction:
        return None
    return replace(whole, actions=whole.actions + left)


def _last_with(schedule: Schedule, stored: Stored, durable: frozenset[int]) -> int | None:
    """The last instant before an action at which just this lies on the durable levels.

    The last one is where a kill loses most of all that leave the same.
    """
    there = {
        (key, number)
        for number, keys in enumerate(schedule.stored)
        for key in keys
        if number in durable
    }
    wanted = {(key, number) for number, keys in enumerate(stored) for key in keys}
    differ, last = there ^ wanted, None
    actions = schedule.actions
    changes = ((actions.op == WRITE) | (actions.op == DISCARD)) & np.isin(
        actions.level, sorted(durable)
    )
    rows = np.flatnonzero(changes).tolist()
    for row in rows:
        if not differ:
            last = row
        action = actions[row]
        assert isinstance(action, Write | Discard)
        differ ^= {(action.key, action.level)}
    end = len(actions) - 1
    return end if not differ and max(rows, default=-1) < end else last


def _way_back(
    schedule: Schedule, platform: Platform, base: int, stored: Stored, *, fresh: bool
) -> Iterator[Action]:
    """From a fresh process, and what survives, to what the machine held at an instant.

    `fresh` says that no adjoint is read: then the end has to be reached again, if it had been.
    """
    machine = validate(replace(schedule, actions=schedule.actions[:base]), platform)
    state, tape = _held(schedule, machine, base)
    if fresh and machine.turned:
        state = schedule.chain.length
    missing = _missing(machine, stored)
    surplus = _discards(stored, machine.stored)
    target = tape[0] if tape is not None else state
    if not missing and target is None:
        yield from surplus
        return
    steps = [key.step for key, _ in missing] + ([] if target is None else [target])
    ends = [key.step + (key.kind is Kind.TAPE) for key, _ in missing]
    at = 0
    for read in _nearest(schedule, platform, stored, min(steps), max([*ends, *steps])):
        yield read
        at = read.key.step
    yield from surplus
    yield from _sweep(missing, at, target)
    if tape is not None:
        yield Record(*tape)


def _held(
    schedule: Schedule, machine: Machine, base: int
) -> tuple[int | None, tuple[int, int] | None]:
    """What the registers hold that is used before they are given something else."""
    states, tapes = dead(schedule.actions)
    state = None if states[base] else machine.state
    tape = None if tapes[base] or machine.tape is None else machine.tape
    return state, None if tape is None or tape[0] == tape[1] else (tape[0], tape[1])


def _missing(machine: Machine, stored: Stored) -> list[Place]:
    """What lay on the levels but for adjoints, and is not there, in the order of a sweep."""
    there = [
        (key, number)
        for number, keys in enumerate(machine.stored)
        for key in keys
        if key.kind is not Kind.ADJOINT and (number >= len(stored) or key not in stored[number])
    ]
    return sorted(there, key=lambda it: (it[0].step, it[0].kind is Kind.TAPE, it[1]))


def _discards(stored: Sequence[Collection[Key]], kept: Sequence[Collection[Key]]) -> list[Discard]:
    """The Discards of all that is stored and not kept, but for adjoints."""
    return [
        Discard(key, number)
        for number, keys in enumerate(stored)
        for key in sorted(keys, key=lambda key: (key.kind.value, key.step))
        if key.kind is not Kind.ADJOINT and (number >= len(kept) or key not in kept[number])
    ]


def _nearest(
    schedule: Schedule, platform: Platform, stored: Stored, low: int, high: int
) -> Iterator[Read]:
    """The Read with which a sweep over these steps begins, unless x_0 of a fresh model is better.

    `high` is where it ends: to that step it has to advance in any case.
    """
    chain = schedule.chain
    found = sorted(
        (key.step, -price(Read(key, number), chain, platform), -number)
        for number, keys in enumerate(stored)
        for key in keys
        if key.kind is Kind.RESTART
    )
    if not (below := bisect_left(found, (low + 1,))):
        return
    step, seconds, number = found[below - 1]
    if 0 < step <= high and -seconds < chain.seconds(Advance(0, step)):
        yield Read(Key(Kind.RESTART, step), -number)


def _sweep(missing: Sequence[Place], at: int, target: int | None) -> Iterator[Action]:
    """Forward from x_at, writing what is missing, to the target where there is one."""
    for key, level in missing:
        if at < key.step:
            yield Advance(at, key.step)
            at = key.step
        if key.kind is Kind.TAPE and at == key.step:
            yield Record(at, at + 1)
            at += 1
        yield Write(key, level)
    if target is not None and at < target:
        yield Advance(at, target)
