"""Before a run: what can be checked and made ahead, so that it does not fail in the middle."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import product

import numpy as np

from ckio.actions import Key, nbytes_of
from ckio.actions.columns import KINDS, RECORD, WRITE
from ckio.backends.base import Backend
from ckio.errors import BadInput, LevelFull
from ckio.model import Model, layout_of
from ckio.platform import Platform
from ckio.platform.memory import available
from ckio.schedule import Schedule, preparations, reservations
from ckio.schedule.replay import validate


def make_ready(
    schedule: Schedule, platform: Platform, model: Model, backends: Sequence[Backend], /
) -> None:
    """Check and reserve everything; raises IllegalAction or BadInput, and nothing was done."""
    validate(schedule, platform)
    fit(schedule, platform, model, backends)
    tape(schedule)
    reserve(schedule, platform, backends)
    prepare(schedule, model, backends)


def fit(schedule: Schedule, platform: Platform, model: Model, backends: Sequence[Backend]) -> None:
    """The schedule, the platform, the model and the open levels must speak of the same things."""
    if len(backends) != len(platform.levels):
        raise BadInput(f"{len(backends)} open levels for a platform of {len(platform.levels)}")
    chain = schedule.chain
    for key in () if is_estimated(model) else _one_of_each_size(schedule):
        planned, real = chain.nbytes(key), nbytes_of(layout_of(model, key))
        if planned != real:
            kind = f"{key.name} in " * bool(key.name) + f"a {key.kind.name.lower()} checkpoint"
            what = str(key) if chain.varies else kind
            raise BadInput(
                f"the schedule plans {planned} bytes for {what};"
                f" the model's has {real}: plan with the model's sizes"
            )
    for number, (level, backend) in enumerate(zip(platform.levels, backends, strict=True)):
        stored(schedule, number, level.name, set(backend.keys()))


def is_estimated(model: Model, /) -> bool:
    """Whether what was planned of its bytes is an estimate: they are known once they are there."""
    return bool(getattr(model, "estimated", False))


def _one_of_each_size(schedule: Schedule) -> Iterator[Key]:
    """One key of each kind and variable that is accessed; where steps differ, every key that is."""
    actions = schedule.actions
    for (code, kind), (name, words) in product(enumerate(KINDS), enumerate(actions.names)):
        there = (actions.op >= WRITE) & (actions.kind == code) & (actions.name == name)
        steps = actions.begin[there]
        if schedule.chain.varies and not name:
            yield from (Key(kind, step) for step in np.unique(steps).tolist())
        elif len(steps):
            yield Key(kind, 0, words)


def stored(schedule: Schedule, number: int, name: str, there: set[Key]) -> None:
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


def tape(schedule: Schedule) -> None:
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


def reserve(schedule: Schedule, platform: Platform, backends: Sequence[Backend]) -> None:
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


def prepare(schedule: Schedule, model: Model, backends: Sequence[Backend]) -> None:
    """Let levels that have use for it make now what the first write of a kind would make."""
    able = [getattr(backend, "prepare", None) for backend in backends]
    for prepare, kinds in zip(able, preparations(schedule) if any(able) else (), strict=False):
        if prepare is None:
            continue
        for key, most in kinds.items():
            with suppress(LevelFull):  # of the kinds together; they may peak at different times
                prepare(key, model.layout(key), most)
