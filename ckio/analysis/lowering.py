"""A schedule of whole checkpoints, as one of single variables: only what is needed is stored.

    whole      write x 0, advance 0 4, write x 4, ..., read x 4, record 4 5, ...
    lowered    write x 0 u, write x 0 v, advance 0 4, write x 4 u, ..., read x 4 u, record 4 5, ...

In the lowered one each variable, in each version, is written if it will be needed, read where the
state has another version, and discarded after its last read. What all steps treat alike goes
together. As checkpoints are smaller then, more of them fit: `ByVariable` lets any planner plan with
what they really take.
"""

from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from typing import TypeAlias, get_args

import numpy as np

from ckio.actions import Action, Discard, Key, Kind
from ckio.analysis.dataflow import plan_schedule
from ckio.analysis.dataflow.events import NONE
from ckio.analysis.dataflow.placing import BEFORE, Array, Chance, Copy, Placing, Within, latest
from ckio.analysis.dataflow.stays import Stays
from ckio.chain import Chain
from ckio.columns import KIND_CODE, READ, RECORD, WRITE
from ckio.errors import BadInput, IllegalAction
from ckio.platforms import Level, Platform
from ckio.replay import validate
from ckio.schedule import Schedule, makespan
from ckio.variables import By, Variables

Keys: TypeAlias = Sequence[Collection[Key]]
"""What lies on each level."""

_Access: TypeAlias = tuple[int, Action]
"""With the number of the action of the schedule that it goes with."""


def lower(
    schedule: Schedule,
    variables: Variables,
    /,
    *,
    platform: Platform | None = None,
    stored: Keys = (),
) -> Schedule:
    """The same computation, with the least that has to be stored of its restart data and tapes.

    Parameters
    ----------
    schedule : Schedule
        A legal one of whole checkpoints, by any planner.
    variables : Variables
        What states are made of, and what the steps do to it.
    platform : Platform or None
        With one, copies are placed by its prices, in the room that the schedule's checkpoints
        have: what fits there whole, fits then (`Within`). Without, each array is written once and
        kept until its last read (`latest`), however much lies on a level at that time.
    stored : sequence of collections of Key
        What lies on each level at the start, variable by variable: where the schedule starts with
        restart data or tapes, that is made of it (see `whole`). What is not needed of it is
        discarded.

    Returns
    -------
    Schedule
        Its chain has the `variables`, put together where all steps treat them alike.

    Raises
    ------
    IllegalAction
        Where the schedule is not legal, or the lowered one does not fit on the platform.
    BadInput
        As `plan_schedule`; and where the schedule starts with what is not made of `stored`.
    """
    if platform is None:
        return _lowered(schedule, variables.together(), latest, stored)
    found = [_fitting(schedule, variables.together(), platform, stored)]
    for by in () if stored else get_args(By)[1:]:
        with suppress(BadInput, IllegalAction):  # what goes together may need more room, or reads
            found.append(_fitting(schedule, variables.together(by), platform, stored))
    return min(found, key=lambda each: makespan(each, platform))


def _fitting(
    schedule: Schedule, variables: Variables, platform: Platform, stored: Keys
) -> Schedule:
    """By these variables, and on this platform."""
    placing = Within(platform=platform, nbytes=variables.nbytes)
    lowered = _lowered(schedule, variables, placing, stored)
    validate(lowered, platform)
    return lowered


def _lowered(schedule: Schedule, variables: Variables, placing: Placing, stored: Keys) -> Schedule:
    """By these variables, which go together no further."""
    _check_made(schedule, variables, stored)
    plan = plan_schedule(schedule, variables.steps, seed=variables.seed, placing=placing)
    accesses: list[_Access] = list(zip(plan.places, plan.accesses, strict=True))
    needed = {(key, level) for level, keys in enumerate(plan.stored) for key in keys}
    for key, copy in _tapes(schedule, variables, placing):
        accesses += copy.accesses(key)
        if copy.chance.place == BEFORE:
            needed.add((key, copy.chance.level))
    accesses += _unneeded(stored, needed)
    accesses += _kept(schedule, by_variable=_kinds(variables))
    accesses.sort(key=lambda access: access[0])

    chain = replace(schedule.chain, variables=variables)
    start = [set(keys) for keys in stored]
    start += [set[Key]() for _ in range(len(schedule.stored) - len(start))]
    for level, keys in enumerate(schedule.stored):
        start[level] |= {key for key in keys if key.kind not in _kinds(variables)}
    return Schedule(chain, (action for _, action in accesses), start, note=schedule.note)


def whole(
    stored: Keys, chain: Chain, platform: Platform, variables: Variables, /
) -> tuple[frozenset[Key], ...]:
    """The checkpoints of which every part lies on one level: what can be planned from.

    Parameters
    ----------
    stored : sequence of collections of Key
        What lies on each level: variables as the chain of a lowered schedule has them, and keys
        that are whole, which are given back as they are.
    chain, platform : Chain, Platform
        What will be planned for, with reduced sizes. Where checkpoints share so much that there
        are more of them than this platform has slots, those nearest behind another are left out.
    variables : Variables
        Those of the lowered schedule.
    """
    levels = zip(stored, platform.levels, strict=False)
    return tuple(frozenset(_whole(set(keys), chain, level, variables)) for keys, level in levels)


def _whole(keys: set[Key], chain: Chain, level: Level, variables: Variables) -> Iterator[Key]:
    there = {key for key in keys if not key.name}
    yield from there
    room = level.capacity
    for kind in _kinds(variables):
        steps = range(chain.length + (kind is Kind.RESTART)) if keys - there else ()
        found = [
            step
            for step in steps
            if keys.issuperset(variables.parts(Key(kind, step), chain.length))
        ]
        if room is not None:
            room -= sum(level.stored(chain.nbytes(key)) for key in there)
            each = max(1, level.stored(chain.nbytes(Key(kind, 0))))
            while len(found) > max(0, room) // each:
                gaps = [after - before for before, after in pairwise([-1, *found])]
                del found[gaps.index(min(gaps))]
        there = {Key(kind, step) for step in found}
        yield from there


def _kinds(variables: Variables) -> tuple[Kind, ...]:
    """What is stored variable by variable."""
    return (Kind.RESTART, Kind.TAPE) if variables.taped else (Kind.RESTART,)


def _check_made(schedule: Schedule, variables: Variables, stored: Keys) -> None:
    for level, keys in enumerate(schedule.stored):
        there = set(stored[level]) if level < len(stored) else set()
        for key in (key for key in keys if key.kind in _kinds(variables)):
            if missing := set(variables.parts(key, schedule.chain.length)) - there:
                raise BadInput(
                    f"lower: the schedule starts with {key} on level {level}, of which"
                    f" {min(map(str, missing))} is not stored there"
                )


def _tapes(
    schedule: Schedule, variables: Variables, placing: Placing
) -> Iterator[tuple[Key, Copy]]:
    """The copies of the variables that tapes are made of."""
    if not variables.taped:
        return
    steps, stays = variables.over(schedule.chain.length), Stays.of(schedule, Kind.TAPE)
    for name in sorted(variables.taped):
        version = np.where(steps.has(name, "record", "use"), steps.versions(name)[:-1], NONE)
        chances: dict[int, list[Chance]] = {}
        rows = zip(stays.written, stays.level, stays.step, stays.until(version), strict=True)
        for written, level, step, until in rows:
            chance = Chance(int(written), int(level), int(until))
            chances.setdefault(int(version[step]), []).append(chance)
        for of, reads in _reads_of_tapes(schedule, version.tolist()).items():
            array = Array(name, of, tuple(reads), tuple(chances[of]))
            for copy in placing(array):
                yield Key(Kind.TAPE, of, name), copy


def _reads_of_tapes(schedule: Schedule, version: Sequence[int]) -> dict[int, list[int]]:
    """By version, the Reads of tapes that find another one in the register."""
    actions, there = schedule.actions, NONE
    tape = KIND_CODE[Kind.TAPE]
    changes = (actions.op == RECORD) | ((actions.op == READ) & (actions.kind == tape))
    reads: dict[int, list[int]] = {}
    for place in np.flatnonzero(changes).tolist():
        if actions.op[place] == RECORD:
            there = NONE
        elif (needed := version[int(actions.begin[place])]) not in (NONE, there):
            reads.setdefault(needed, []).append(place)
            there = needed
    return reads


def _unneeded(stored: Keys, needed: Collection[tuple[Key, int]]) -> Iterator[_Access]:
    """Discards, before anything else, of what lies there and is never read."""
    for level, keys in enumerate(stored):
        for key in sorted(keys, key=str):
            if key.kind is not Kind.ADJOINT and (key, level) not in needed:
                yield BEFORE, Discard(key, level)


def _kept(schedule: Schedule, *, by_variable: Collection[Kind]) -> Iterator[_Access]:
    """The actions that stay as they are."""
    actions = schedule.actions
    codes = [KIND_CODE[kind] for kind in by_variable]
    kept = (actions.op < WRITE) | ~np.isin(actions.kind, codes)
    yield from ((place, actions[place]) for place in np.flatnonzero(kept).tolist())
