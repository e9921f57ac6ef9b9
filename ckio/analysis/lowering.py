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

from ckio.actions import Discard, Key, Kind, Write
from ckio.actions.columns import KIND_CODE, READ, RECORD, WRITE, Actions
from ckio.actions.variables import By, Ints, Variables
from ckio.analysis.dataflow.arrays import needed_arrays, roomy
from ckio.analysis.dataflow.closed import placed
from ckio.analysis.dataflow.needed import Accesses, Chances, Needed
from ckio.analysis.dataflow.placing import BEFORE, Placing, Within, latest
from ckio.analysis.dataflow.stays import Stays
from ckio.analysis.made import complete, of_a_fresh_model
from ckio.errors import BadInput, IllegalAction
from ckio.platform import Level, Platform
from ckio.platform.chain import Chain
from ckio.schedule import Schedule, makespan
from ckio.schedule.replay import NONE, Register, validate

Keys: TypeAlias = Sequence[Collection[Key]]
"""What lies on each level."""


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
    validate(schedule, roomy(schedule))
    none = [frozenset[Key]()] * (len(schedule.stored) - len(stored))
    start = [*map(frozenset, stored), *none]
    if platform is None:
        return _lowered(schedule, variables.together(), latest, start)
    ways = [variables.together()]
    found = [_within(platform, schedule, ways[0], start)]
    for by in () if stored else get_args(By)[1:]:
        if (way := variables.together(by)) not in ways:
            ways.append(way)
            with suppress(BadInput):  # what goes together may be read before it can be written
                found.append(_within(platform, schedule, way, start))
    return _first_that_fits(sorted(found, key=lambda each: makespan(each, platform)), platform)


def _within(platform: Platform, schedule: Schedule, variables: Variables, stored: Keys) -> Schedule:
    placing = Within(platform=platform, nbytes=variables.nbytes)
    return _lowered(schedule, variables, placing, stored)


def _first_that_fits(schedules: Sequence[Schedule], platform: Platform) -> Schedule:
    """What goes together may need more room; raises IllegalAction where none of them fits."""
    for each in schedules[:-1]:
        with suppress(IllegalAction):
            validate(each, platform)
            return each
    validate(schedules[-1], platform)
    return schedules[-1]


def _lowered(schedule: Schedule, variables: Variables, placing: Placing, stored: Keys) -> Schedule:
    """A legal schedule by these variables, which go together no further."""
    _check_made(schedule, variables, stored)
    steps = variables.over(schedule.chain.length)
    arrays = needed_arrays(schedule, steps, variables.seed)
    really = [(Kind.RESTART, _of_what_is_there(each, stored)) for each in arrays]
    found: list[Accesses] = []
    needed: set[tuple[int, Key]] = set()
    for kind, each in [*really, *_tapes(schedule, variables)]:
        copies = placed(each, placing)
        found.append(copies.accesses(each.name, kind))
        needed.update(copies.start(each.name, kind))
    first = _at_first(stored, needed, by_variable=variables.kinds)
    found = [first, *found, _kept(schedule, by_variable=variables.kinds)]

    chain = replace(schedule.chain, variables=variables)
    start = [set(keys) for keys in stored]
    for level, keys in enumerate(schedule.stored):
        start[level] |= {key for key in keys if key.kind not in variables.kinds}
    return Schedule(chain, Accesses.together(found).actions, start, note=schedule.note)


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
        are more of them than this platform has slots, those nearest behind another are left out;
        so are those that the adjoint which is stored has come past.
    variables : Variables
        Those of the lowered schedule.
    """
    adjoints = (key.step for keys in stored for key in keys if key.kind is Kind.ADJOINT)
    left = min(adjoints, default=chain.length + 1)
    return tuple(
        frozenset(_whole(set(keys), chain, level, variables, left))
        for keys, level in zip(stored, platform.levels, strict=False)
    )


def _whole(
    keys: set[Key], chain: Chain, level: Level, variables: Variables, left: int
) -> Iterator[Key]:
    there = {key for key in keys if not key.name}
    yield from there
    room = level.capacity
    for kind in variables.kinds if keys - there else ():
        found = [it for it in complete(keys, kind, variables, chain.length) if it < left]
        if room is not None:
            room -= sum(level.stored(chain.nbytes(key)) for key in there)
            each = max(1, level.stored(chain.nbytes(Key(kind, 0))))
            while len(found) > max(0, room) // each:
                gaps = [after - before for before, after in pairwise([-1, *found])]
                del found[gaps.index(min(gaps))]
        there = {Key(kind, step) for step in found}
        yield from there


def _check_made(schedule: Schedule, variables: Variables, stored: Keys) -> None:
    for level, keys in enumerate(schedule.stored):
        for key in (key for key in keys if key.kind in variables.kinds):
            missing = set(variables.parts(key, schedule.chain.length)).difference(stored[level])
            missing -= {it for it in missing if key.step and of_a_fresh_model(it)}
            if missing:
                raise BadInput(
                    f"lower: the schedule starts with {key} on level {level}, of which"
                    f" {min(map(str, missing))} is not stored there"
                )


def _of_what_is_there(needed: Needed, stored: Keys) -> Needed:
    """Of the checkpoints at the start, what is dead in them need not be there to be read."""
    chances, name = needed.chances, needed.name
    there = chances.place != BEFORE
    for at in np.flatnonzero(~there).tolist():
        key = Key(Kind.RESTART, int(chances.version[at]), name)
        # What a fresh model has can be written first of all.
        there[at] = of_a_fresh_model(key) or key in stored[int(chances.level[at])]
    really = replace(needed, chances=chances.take(there))
    for array in really.arrays(really.late):
        key = Key(Kind.RESTART, array.version, name)
        raise BadInput(f"lower: {key} is read before it is computed, and is not stored")
    return really


def _tapes(schedule: Schedule, variables: Variables) -> Iterator[tuple[Kind, Needed]]:
    """What has to be stored of the variables that tapes are made of."""
    if not variables.taped:
        return
    steps, stays = variables.over(schedule.chain.length), Stays.of(schedule, Kind.TAPE)
    for name in sorted(variables.taped):
        version = np.where(steps.has(name, "record", "use"), steps.versions(name)[:-1], NONE)
        place = _reads_of_tapes(schedule.actions, version)
        of, until = version[schedule.actions.begin[place]], stays.until(version)
        chances = Chances(version[stays.step], stays.written, stays.level, until)
        yield Kind.TAPE, Needed.of(name, of, place, [chances])


def _reads_of_tapes(actions: Actions, version: Ints) -> Ints:
    """The Reads of tapes that need another version than the register has."""
    read = (actions.op == READ) & (actions.kind == KIND_CODE[Kind.TAPE])
    needs = np.where(read, version[actions.begin * read], NONE)
    changes = (actions.op == RECORD) | (needs != NONE)
    there = Register(NONE, changes, needs).before()
    return np.flatnonzero((needs != NONE) & (needs != there))


def _at_first(
    stored: Keys, needed: Collection[tuple[int, Key]], *, by_variable: Collection[Kind]
) -> Accesses:
    """Before anything else: discards of the variables that are never read, then what is written."""
    discards = [
        Discard(key, level)
        for level, keys in enumerate(stored)
        for key in sorted(keys, key=str)
        if key.kind in by_variable and (level, key) not in needed
    ]
    writes = [Write(key, level) for level, key in needed if key not in stored[level]]
    found = Actions.of([*discards, *sorted(writes, key=str)])
    return Accesses(np.full(len(found), BEFORE), found)


def _kept(schedule: Schedule, *, by_variable: Collection[Kind]) -> Accesses:
    """The actions that stay as they are."""
    actions = schedule.actions
    codes = [KIND_CODE[kind] for kind in by_variable]
    place = np.flatnonzero((actions.op < WRITE) | ~np.isin(actions.kind, codes))
    return Accesses(place, actions.take(place))
