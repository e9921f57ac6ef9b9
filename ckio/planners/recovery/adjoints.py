"""Adjoint checkpoints: their interval, their space, and the function that adds them to a schedule.

    ..., Reverse[m, e), Write(a_m), Discard(a_older), Reverse[b, m), ..., Discard(a_last)

A new adjoint checkpoint is complete before the older one is discarded. Therefore, after the first,
there is always at least one to resume from, and never more than two; `aside` reserves space for
two. The best interval of work between two checkpoints depends on the time C to write one (seconds)
and on the mean time M between failures (seconds). Young (1974) uses

    sqrt(2 C M)

which is the first term of an expansion for C much smaller than M. `every` returns the higher-order
estimate of Daly (2006, eq. 37), which is also good for larger C:

    sqrt(2 C M) [1 + sqrt(C / 2M) / 3 + (C / 2M) / 9] - C    if C < 2M, else M

For example, with checkpoints of 10 s and one failure a day the interval is 1307.9 s.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from math import exp, expm1, inf, sqrt
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ckio.actions import Action, Discard, Key, Kind, Read, Reverse, Write
from ckio.actions.checks import as_float
from ckio.actions.columns import KIND_CODE, READ, REVERSE, WRITE, Actions
from ckio.errors import BadInput, NoSchedule
from ckio.planners.base import Ints
from ckio.platform import Level, Platform
from ckio.platform.chain import Chain
from ckio.schedule import Schedule, seconds_of

_ADJOINT: Final = KIND_CODE[Kind.ADJOINT]


def with_adjoint_checkpoints(
    schedule: Schedule, platform: Platform, every: float, /, *, level: int
) -> Schedule:
    """Return the schedule with adjoint checkpoints on this level, about `every` seconds apart.

    `every` is in seconds of the given schedule, with one action after the other; the added actions
    do not count. The time starts at the first Reverse, because before it there is no adjoint, and
    again at each checkpoint. A checkpoint follows the first reversed step after the interval. A
    Reverse of several steps is split there. With 0 a checkpoint follows every step; with infinity
    there are none. No checkpoint follows the last step, because a_0 is the result.

    A schedule that starts from a stored adjoint reads it first. This adjoint is discarded after the
    next one is written, or at the end. If it is stored on another level than `level`, it may be
    lost together with the process. Therefore the adjoint of the smallest step on each other level
    is also kept until then. All other stored adjoints are discarded directly after the Read. The
    result is legal if the given schedule is legal on `aside` of this platform and level, without
    the space of the adjoints that are kept on other levels.

    Raises BadInput if the platform has no such level or it is read-only, if the interval is below
    0, and for schedules that do not reach a_0 or already write adjoints.
    """
    seconds = as_float(every)
    if seconds is None or not seconds >= 0:
        raise BadInput(f"every = {every!r}; it must be a number of seconds >= 0")
    (_numbered if seconds == inf else _storing)(platform, level)
    held = _read_at_start(schedule)
    older = [] if held is None else [held, *spares(schedule.stored, held, level)]
    body = _without_adjoints(schedule)
    _check_complete(schedule, body, held)
    points = _points(body, platform, seconds)
    lead = _lead(schedule, held, older)
    actions = lead + _with_points(body.actions, points, older, level)
    return Schedule(schedule.chain, actions, schedule.stored, schedule.note)


def _adjoint(step: int) -> Key:
    return Key(Kind.ADJOINT, step)


def _read_at_start(schedule: Schedule) -> Read | None:
    """Return the Read of the adjoint from which the schedule starts; the last, if several."""
    actions = schedule.actions
    reads = np.flatnonzero((actions.op == READ) & (actions.kind == _ADJOINT))
    if not len(reads):
        return None
    read = actions[int(reads[-1])]
    assert isinstance(read, Read)
    return read


def spares(
    stored: Sequence[Collection[Key]], held: Read | None, level: int | None, /
) -> list[Read]:
    """Return Reads of the adjoint of the smallest step on each level other than that of `held`.

    They are needed if `held`, the adjoint that is read, is lost. There are none if `held` is on
    `level`, where adjoints are stored, because it cannot be lost there.
    """
    if held is None or held.level == level:
        return []
    steps = (
        (number, [key.step for key in keys if key.kind is Kind.ADJOINT])
        for number, keys in enumerate(stored)
        if number != held.level
    )
    return [Read(_adjoint(min(adjoints)), number) for number, adjoints in steps if adjoints]


def _lead(schedule: Schedule, held: Read | None, older: Collection[Read]) -> Actions:
    """Return the Read of the adjoint `held`, and Discards of all adjoints except `older`."""
    others = (
        Discard(key, number)
        for number, keys in enumerate(schedule.stored)
        for key in sorted(keys, key=lambda key: key.step)
        if key.kind is Kind.ADJOINT and Read(key, number) not in older
    )
    return Actions.of([*([] if held is None else [held]), *others])


def _without_adjoints(schedule: Schedule) -> Schedule:
    """Return the schedule without accesses of adjoints; raises BadInput if it writes one."""
    actions = schedule.actions
    on_adjoints = (actions.op >= WRITE) & (actions.kind == _ADJOINT)
    written = on_adjoints & (actions.op == WRITE)
    if written.any():
        raise BadInput(
            f"the schedule already writes adjoints ({actions[int(written.argmax())]}); give the"
            " schedule of a planner, which writes none"
        )
    kept = actions.take(~on_adjoints) if on_adjoints.any() else actions
    return Schedule(schedule.chain, kept, schedule.stored)


def _check_complete(schedule: Schedule, body: Schedule, held: Read | None) -> None:
    begins = body.actions.begin[body.actions.op == REVERSE]
    start = schedule.chain.length if held is None else held.key.step
    end = int(begins[-1]) if len(begins) else start
    if end != 0:
        raise BadInput(
            f"the schedule ends with the adjoint at step {end}; adjoint checkpoints need a complete"
            " schedule, which ends at step 0"
        )


@dataclass(frozen=True, slots=True)
class _Points:
    """The points where the adjoint is stored: `at` is the number of a Reverse, `step` its step."""

    at: Ints
    step: Ints


def _points(schedule: Schedule, platform: Platform, every: float) -> _Points:
    """Return the points in their order, at least `every` seconds apart."""
    actions = schedule.actions
    back = np.flatnonzero(actions.op == REVERSE)
    if not len(back) or every == np.inf:
        return _Points(np.zeros(0, np.int64), np.zeros(0, np.int64))
    costs = seconds_of(schedule, platform)
    start = np.concatenate(([0.0], np.cumsum(costs)[:-1]))

    # For each single step: the number of its Reverse, and the time when it is finished.
    length = actions.end[back] - actions.begin[back]
    at = np.repeat(back, length)
    first = np.repeat(np.cumsum(length) - length, length)
    step = actions.end[at] - 1 - (np.arange(len(at)) - first)
    parts = Actions(op=np.full(len(at), REVERSE, np.uint8), begin=step, end=actions.end[at])
    done = start[at] + schedule.chain.seconds_of(parts)

    chosen = np.array(_chosen(done, float(start[back[0]]), every), np.intp)
    return _Points(at[chosen], step[chosen])


def _chosen(done: NDArray[np.float64], begin: float, every: float) -> list[int]:
    """Return the numbers of the first times that are at least `every` after the one before."""
    following = np.searchsorted(done, done + every)
    following = np.maximum(following, np.arange(1, len(done) + 1)).tolist()
    chosen, last = list[int](), len(done) - 1
    number = int(np.searchsorted(done, begin + every))
    while number < last:
        chosen.append(number)
        number = following[number]
    return chosen


def _with_points(actions: Actions, points: _Points, older: Sequence[Read], level: int) -> Actions:
    """Return the actions with a Reverse up to each point, a Write and a Discard added.

    At the first point the Discards are those of `older` adjoints. The last one is at the end.
    """
    end, more, places = actions.end.copy(), list[Action](), list[int]()
    gone = [Discard(read.key, read.level) for read in older]
    for at, step in zip(points.at.tolist(), points.step.tolist(), strict=True):
        added, place = list[Action](), 2 * at + 2
        if step > actions.begin[at]:  # the rest of the Reverse comes after all its points
            added, place = [Reverse(step, int(end[at]))], 2 * at
            end[at] = step
        added += [Write(_adjoint(step), level), *gone]
        gone = [Discard(_adjoint(step), level)]
        more += added
        places += [place] * len(added)
    shorter = Actions(
        op=actions.op,
        begin=actions.begin,
        end=end,
        kind=actions.kind,
        level=actions.level,
        name=actions.name,
        names=actions.names,
    )
    order = np.concatenate((2 * np.arange(len(actions)) + 1, np.array(places, np.int64)))
    return (shorter + Actions.of(more)).take(np.argsort(order, kind="stable")) + Actions.of(gone)


def every(write_seconds: float, mtbf: float, /) -> float:
    """Return the seconds of work between two checkpoints of `write_seconds`, by Daly's estimate.

    `mtbf` is the mean time between failures, in seconds. If it is infinite, so is the interval. If
    a checkpoint costs nothing, the interval is 0. Raises BadInput if `write_seconds` is negative or
    infinite, or `mtbf` is not above 0. Source: Daly (2006), equation 37.

    >>> round(every(10, 86_400), 1)
    1307.9
    """
    cost, mean = as_float(write_seconds), as_float(mtbf)
    if cost is None or not 0 <= cost < inf:
        raise BadInput(f"write_seconds = {write_seconds!r}; it must be finite and >= 0")
    if mean is None or not mean > 0:
        raise BadInput(f"mtbf = {mtbf!r}; it must be a number of seconds above 0")
    if cost == 0:
        return 0.0
    part = cost / mean / 2
    if part >= 1:
        return mean
    return sqrt(2 * cost) * sqrt(mean) * (1 + sqrt(part) / 3 + part / 9) - cost


def expected_seconds(work: float, interval: float, mtbf: float, redone: float, /) -> float:
    """Return the mean seconds of a run that is killed at random, by Daly's model.

    Checkpoints divide the seconds T of the run without a kill (`work`) into parts of s seconds
    (`interval`). A kill repeats its part, after R seconds in which the state before it is restored
    (`redone`). Kills come at random, one in M seconds on average (`mtbf`). A part then takes
    M e^(R/M) (e^(s/M) - 1) seconds on average, and there are T/s parts. Source: Daly (2006).

    For example, 100 parts of 600 s with one kill a day, each of which costs 300 s more:

    >>> round(expected_seconds(60_000, 600, 86_400, 300))
    60418
    """
    part = min(interval, work)
    try:
        return work * (mtbf / part) * exp(redone / mtbf) * expm1(part / mtbf) if part else 0.0
    except OverflowError:
        return inf


def adjoint_seconds(chain: Chain, platform: Platform, level: int, /) -> float:
    """Return the seconds to write the largest adjoint to a level, and to discard it."""
    here, nbytes = _numbered(platform, level), chain.largest("adjoint")
    return here.write(nbytes) + here.discard(nbytes)


_ADJOINTS = 2
"""The most adjoints on the level at a time; the older is discarded after the next is complete."""


def aside(platform: Platform, chain: Chain, level: int, /) -> Platform:
    """Return the platform to plan for: the capacity of this level is reduced by two adjoints.

    The reduction is twice the stored bytes of the largest adjoint of the chain. A level without a
    capacity is not changed. Raises BadInput if the platform has no such level or it is read-only,
    and NoSchedule if the level is too small.
    """
    here = _storing(platform, level)
    needed = _ADJOINTS * here.stored(chain.largest("adjoint"))
    if here.capacity is not None and here.capacity < needed:
        raise NoSchedule(
            f"two adjoints need {needed} bytes on level {here.name}, which has {here.capacity}:"
            " give it more capacity, or store the adjoint on another level"
        )
    return _less(platform, level, needed)


def without(platform: Platform, chain: Chain, key: Key, level: int, /) -> Platform:
    """Return the platform without the space that one checkpoint occupies on a level."""
    return _less(platform, level, platform.levels[level].stored(chain.nbytes(key)))


def _less(platform: Platform, level: int, nbytes: int, /) -> Platform:
    """Return the platform with the capacity of a level reduced by `nbytes`, at least to 0."""
    levels, here = list(platform.levels), platform.levels[level]
    if here.capacity is not None:
        levels[level] = replace(here, capacity=max(0, here.capacity - nbytes))
    return replace(platform, levels=tuple(levels))


def _numbered(platform: Platform, level: int, /) -> Level:
    """Return the level of this number; raises BadInput if there is none."""
    if not 0 <= level < len(platform.levels):
        raise BadInput(
            f"level = {level}; the platform has {len(platform.levels)} levels, numbered from 0:"
            " give one of these numbers"
        )
    return platform.levels[level]


def _storing(platform: Platform, level: int, /) -> Level:
    """Return the level of this number; raises BadInput if no adjoint can be stored there."""
    here = _numbered(platform, level)
    if here.read_only:
        raise BadInput(
            f"level = {level}: level {here.name} is read-only, so that no adjoint can be stored"
            " there; store the adjoint on another level, or none (level = None)"
        )
    return here
