"""The runner: a schedule performed on a real model and real storage."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from traceback import format_exception_only
from typing import assert_never

import numpy as np

from ckio.actions import Action, Advance, Discard, Key, Read, Record, Reverse, Write
from ckio.backends.base import Backend
from ckio.chain import is_whole
from ckio.clock import Clock, WallClock
from ckio.columns import KINDS, RECORD, WRITE
from ckio.errors import BadInput, CkioError, LevelFull, RunFailed
from ckio.layout import nbytes_of
from ckio.memory import available
from ckio.model import Model
from ckio.platforms import Platform
from ckio.replay import validate
from ckio.schedule import Schedule, preparations, reservations
from ckio.timeline import Event, Recorder, Timeline

Watcher = Callable[[Event], None]


def run(
    schedule: Schedule,
    platform: Platform,
    model: Model,
    backends: Sequence[Backend],
    /,
    *,
    clock: Clock | None = None,
    watch: Watcher | None = None,
) -> Timeline:
    """Perform a schedule and return when each action began and ended, in seconds from the start.

    Parameters
    ----------
    schedule
        What to do; the whole of it is checked by the rules of the Machine before anything is done.
    platform
        What it was planned for; names and capacities of the levels.
    model
        A fresh model at x_0, or whatever `schedule.stored` was saved from.
    backends
        One open storage level for each level of the platform, in its order. They stay open.
    clock
        What measures; the wall clock by default.
    watch
        Called with each event after it has happened; what it raises ends the run as it is.

    Raises
    ------
    IllegalAction
        The schedule breaks a rule.
    BadInput
        Something does not fit together, or the levels have no room for the plan: before the start.
    StorageError
        A level failed; its name and the action are in the message. What was stored is intact.
    RunFailed
        The model finished before the schedule's last step; or it, or a backend, raised something
        that is not ckio's own: then that is the `__cause__`, and the message names the action.
    """
    validate(schedule, platform)
    _check_fit(schedule, platform, model, backends)
    _check_tape(schedule)
    _reserve(schedule, platform, backends)
    _prepare(schedule, model, backends)
    clock = clock or WallClock()
    recorder = Recorder()
    origin = clock.now()
    for number, action in enumerate(schedule.actions):
        start = clock.now() - origin
        try:
            nbytes = _perform(action, model, backends)
        except CkioError as error:
            error.args = (f"#{number} {_where(action, platform)}: {error}",)
            raise
        except Exception as error:
            words = " ".join(map(str.strip, format_exception_only(error)))
            raise RunFailed(f"#{number} {_where(action, platform)}: {words}") from error
        stop = clock.now() - origin
        recorder.add(start, stop, nbytes)
        if watch is not None:
            watch(Event(action, start, stop, nbytes))
    return recorder.timeline(schedule.actions)


def _perform(action: Action, model: Model, backends: Sequence[Backend]) -> int:
    """Do one action; returns the bytes that reached or left a level."""
    match action:
        case Advance(begin, end):
            _check_reached(model.advance(begin, end), begin, end)
        case Record(begin, end):
            _check_reached(model.record(begin, end), begin, end)
        case Reverse(begin, end):
            model.reverse(begin, end)
        case Write(key, level):
            return backends[level].write(key, model.layout(key), model.dump(key))
        case Read(key, level):
            with model.load(key, backends[level].layout(key)) as buffers:
                return backends[level].read(key, buffers)
        case Discard(key, level):
            backends[level].discard(key)
        case _:
            assert_never(action)
    return 0


def _check_reached(reached: int, begin: int, end: int) -> None:
    if reached == end:
        return
    if not (is_whole(reached) and begin <= reached < end):
        raise RunFailed(
            f"the model says that it reached {reached!r}; it must return the step where it stands,"
            f" {end} unless it finished before"
        )
    raise RunFailed(
        f"the model finished at step {reached}, on the way to {end}; plan for {reached} steps"
    )


def _where(action: Action, platform: Platform) -> str:
    match action:
        case Write(_, level) | Read(_, level) | Discard(_, level):
            return f"{action} on {platform.levels[level].name!r}"
        case _:
            return str(action)


def _check_fit(
    schedule: Schedule, platform: Platform, model: Model, backends: Sequence[Backend]
) -> None:
    """The schedule, the platform, the model and the open levels must speak of the same things."""
    if len(backends) != len(platform.levels):
        raise BadInput(f"{len(backends)} open levels for a platform of {len(platform.levels)}")
    chain = schedule.chain
    for key in _one_of_each_size(schedule):
        planned, real = chain.nbytes(key), nbytes_of(model.layout(key))
        if planned != real:
            what = str(key) if chain.varies else f"a {key.kind.name.lower()} checkpoint"
            raise BadInput(
                f"the schedule plans {planned} bytes for {what};"
                f" the model's has {real}: plan with the model's sizes"
            )
    for number, (level, backend) in enumerate(zip(platform.levels, backends, strict=True)):
        _check_stored(schedule, number, level.name, set(backend.keys()))


def _one_of_each_size(schedule: Schedule) -> Iterator[Key]:
    """One key of each kind that is accessed; where steps differ, every key that is."""
    actions = schedule.actions
    for code, kind in enumerate(KINDS):
        steps = actions.begin[(actions.op >= WRITE) & (actions.kind == code)]
        if schedule.chain.varies:
            yield from (Key(kind, step) for step in np.unique(steps).tolist())
        elif len(steps):
            yield Key(kind, 0)


def _check_stored(schedule: Schedule, number: int, name: str, there: set[Key]) -> None:
    """A level must hold what the schedule starts with, and nothing else that it will write."""
    stored = schedule.stored[number] if number < len(schedule.stored) else frozenset()
    if missing := stored - there:
        raise BadInput(
            f"the schedule starts with {min(map(str, missing))} on level {name!r}; it is not"
            " stored there"
        )
    if not there - stored:
        return
    actions = schedule.actions
    writes = actions.take((actions.op == WRITE) & (actions.level == number))
    if twice := (there - stored).intersection(map(writes.key, writes.rows())):
        raise BadInput(
            f"level {name!r} already holds {min(map(str, twice))}, which the schedule writes there;"
            " give it an empty level, or discard what was left"
        )


def _check_tape(schedule: Schedule) -> None:
    """The longest tape that is held at one time must fit in memory."""
    actions, there = schedule.actions, available()
    record = np.flatnonzero(actions.op == RECORD)
    if there is None or not record.size:
        return
    begin, end = actions.begin[record], actions.end[record]
    needed = schedule.chain.tape_bytes_of(begin, end)
    most = int(needed.argmax())
    if needed[most] > there:
        raise BadInput(
            f"the plan holds the tape of {end[most] - begin[most]} steps in memory,"
            f" {needed[most]} bytes; {there} are available: lower the platform's working_memory"
            " and plan again"
        )


def _reserve(schedule: Schedule, platform: Platform, backends: Sequence[Backend]) -> None:
    """Make room for the whole plan, so that what is lacking is seen before the start."""
    for level, backend, sizes in zip(
        platform.levels, backends, reservations(schedule), strict=False
    ):
        wanted, room = {}, level.capacity
        # Sizes peak at different times: together they may ask for more than ever lies there.
        for nbytes, most in sorted(sizes.items(), reverse=True):
            each = level.stored(nbytes)
            wanted[nbytes] = most if room is None else min(most, room // max(1, each))
            room = None if room is None else room - wanted[nbytes] * each
        try:
            backend.reserve(wanted)
        except LevelFull as error:
            raise BadInput(
                f"level {level.name!r} has no room for this plan: {error};"
                " free some, or lower the level's capacity and plan again"
            ) from error


def _prepare(schedule: Schedule, model: Model, backends: Sequence[Backend]) -> None:
    """Let levels that have use for it make now what the first write of a kind would make."""
    able = [getattr(backend, "prepare", None) for backend in backends]
    for prepare, kinds in zip(able, preparations(schedule) if any(able) else (), strict=False):
        if prepare is None:
            continue
        for key, most in kinds.items():
            with suppress(LevelFull):  # of the kinds together; they may peak at different times
                prepare(key, model.layout(key), most)
