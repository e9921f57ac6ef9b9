"""Adjoint checkpoints: a pure pass that puts them into a schedule which has none.

    ..., Reverse[m, e), Write(a_m), Discard(a_older), Reverse[b, m), ..., Discard(a_last)

The next one is complete before the older one goes, so that from the first on there is always one to
come back to, and never more than two.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ckio.actions import Discard, Key, Kind, Read
from ckio.actions.checks import as_float
from ckio.actions.columns import DISCARD, KIND_CODE, READ, REVERSE, WRITE, Actions
from ckio.errors import BadInput
from ckio.platform import Platform
from ckio.recover.room import numbered
from ckio.schedule import Schedule, seconds_of

_ADJOINT: Final = KIND_CODE[Kind.ADJOINT]

_Ints = NDArray[np.int64]


def with_adjoint_checkpoints(
    schedule: Schedule, platform: Platform, every: float, /, *, level: int
) -> Schedule:
    """The schedule that also stores its adjoint, on this level, from time to time.

    `every` is in seconds of the schedule as it is given, one action after the other: what the pass
    puts in does not count. They are counted from the first Reverse, as before it there is nothing
    to store, and then from each checkpoint, which comes after the first reversed step that is at
    least so late. A Reverse of many steps is split there. With 0 every step is followed by one;
    with infinity there are none. The last step is followed by none: a_0 is the result.

    A schedule that starts from a stored adjoint reads it first of all. It is discarded after the
    next one is written, or at the end; so is, where it lies on another level, the furthest one of
    each of the others, as where it lies may be lost with the process. Any more that lie there from
    the start go directly after the Read. Legal where the schedule is legal on `aside` of this
    platform and level, less the room of those that lie on other levels.

    Raises BadInput for a level that there is not, for an interval below 0, and for schedules that
    do not reach a_0, or that write adjoints already.
    """
    numbered(platform, level)
    seconds = as_float(every)
    if seconds is None or not seconds >= 0:
        raise BadInput(f"every = {every!r}; it must be a number of seconds >= 0")
    held = _read_at_start(schedule)
    older = [] if held is None else [held, *spares(schedule.stored, held, level)]
    body = _without_adjoints(schedule)
    _check_complete(schedule, body, held)
    points = _points(body, platform, seconds)
    lead = _lead(schedule, held, older)
    gone = Actions.of([Discard(read.key, read.level) for read in older])
    if len(points.step):
        last = Actions.of([Discard(_adjoint(int(points.step[-1])), level)])
    else:
        last = gone
    actions = lead + _with_points(body.actions, points, gone, level) + last
    return Schedule(schedule.chain, actions, schedule.stored, schedule.note)


def _adjoint(step: int) -> Key:
    return Key(Kind.ADJOINT, step)


def _read_at_start(schedule: Schedule) -> Read | None:
    """The Read of the adjoint from which the schedule goes on; of several, the last counts."""
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
    """What there is to come back to on each other level, should the adjoint that is read be lost.

    One that is read from `level`, where adjoints are to be stored, is not lost.
    """
    if held is None or held.level == level:
        return []
    steps = (
        (number, [key.step for key in keys if key.kind is Kind.ADJOINT])
        for number, keys in enumerate(stored)
        if number != held.level
    )
    return [Read(_adjoint(min(found)), number) for number, found in steps if found]


def _lead(schedule: Schedule, held: Read | None, older: Collection[Read]) -> Actions:
    """What the schedule begins with: the Read of its adjoint, then all but these are dropped."""
    others = (
        Discard(key, number)
        for number, keys in enumerate(schedule.stored)
        for key in sorted(keys, key=lambda key: key.step)
        if key.kind is Kind.ADJOINT and Read(key, number) not in older
    )
    return Actions.of([*([] if held is None else [held]), *others])


def _without_adjoints(schedule: Schedule) -> Schedule:
    """The same without what it does to stored adjoints; raises BadInput where it writes one."""
    actions = schedule.actions
    on_adjoints = (actions.op >= WRITE) & (actions.kind == _ADJOINT)
    written = on_adjoints & (actions.op == WRITE)
    if written.any():
        raise BadInput(
            f"the schedule stores adjoints already: {actions[int(written.argmax())]}; give one as"
            " a planner makes it"
        )
    kept = actions.take(~on_adjoints) if on_adjoints.any() else actions
    return Schedule(schedule.chain, kept, schedule.stored)


def _check_complete(schedule: Schedule, body: Schedule, held: Read | None) -> None:
    begins = body.actions.begin[body.actions.op == REVERSE]
    start = schedule.chain.length if held is None else held.key.step
    end = int(begins[-1]) if len(begins) else start
    if end != 0:
        raise BadInput(
            f"the schedule leaves the adjoint at {end}; only a complete one, which ends at 0, can"
            " store its adjoint on the way"
        )


@dataclass(frozen=True, slots=True)
class _Points:
    """Where the adjoint is stored: at the number of a Reverse, once it has come down to a step."""

    at: _Ints
    step: _Ints


def _points(schedule: Schedule, platform: Platform, every: float) -> _Points:
    """The points in their order, at least `every` seconds apart."""
    actions = schedule.actions
    back = np.flatnonzero(actions.op == REVERSE)
    if not len(back) or every == np.inf:
        return _Points(np.zeros(0, np.int64), np.zeros(0, np.int64))
    costs = seconds_of(schedule, platform)
    start = np.concatenate(([0.0], np.cumsum(costs)[:-1]))

    # Every step by itself: the Reverse that it is part of, and when it is done.
    length = actions.end[back] - actions.begin[back]
    at = np.repeat(back, length)
    first = np.repeat(np.cumsum(length) - length, length)
    step = actions.end[at] - 1 - (np.arange(len(at)) - first)
    parts = Actions(op=np.full(len(at), REVERSE, np.uint8), begin=step, end=actions.end[at])
    done = start[at] + schedule.chain.seconds_of(parts)

    chosen = np.array(_chosen(done, float(start[back[0]]), every), np.intp)
    return _Points(at[chosen], step[chosen])


def _chosen(done: NDArray[np.float64], begin: float, every: float) -> list[int]:
    """The numbers of the times that are first to be so long after the one chosen before."""
    following = np.searchsorted(done, done + every)
    following = np.maximum(following, np.arange(1, len(done) + 1)).tolist()
    chosen, last = list[int](), len(done) - 1
    number = int(np.searchsorted(done, begin + every))
    while number < last:
        chosen.append(number)
        number = following[number]
    return chosen


def _with_points(actions: Actions, points: _Points, first: Actions, level: int) -> Actions:
    """The actions with more at each point: the Reverse up to there, a Write, and a Discard.

    At the first point it is these Discards, of what was there before.
    """
    count, at, step = len(points.step), points.at, points.step
    if not count:
        return actions
    split = step > actions.begin[at]
    same = np.append(False, at[1:] == at[:-1])
    above = np.where(same, np.roll(step, 1), actions.end[at])

    needed = np.ones((count, 3), np.bool_)
    needed[:, 0] = split
    needed[0, 2] = False
    there = needed.ravel()
    zeros = np.zeros(count, np.int64)
    here = zeros + level
    more = Actions(
        op=np.tile(np.array([REVERSE, WRITE, DISCARD], np.uint8), count)[there],
        begin=np.stack((step, step, np.roll(step, 1)), 1).ravel()[there],
        end=np.stack((above, zeros, zeros), 1).ravel()[there],
        kind=np.tile(np.array([0, _ADJOINT, _ADJOINT], np.uint8), count)[there],
        level=np.stack((zeros, here, here), 1).ravel()[there].astype(np.int16),
    )
    # What is left of a Reverse that is split comes after all its points.
    places = 2 * at + np.where(split, 0, 2)
    place = np.repeat(places, 3)[there]
    begun = int(needed[0].sum())
    more = more[:begun] + first + more[begun:]
    place = np.insert(place, begun, np.repeat(places[0], len(first)))
    order = np.concatenate((2 * np.arange(len(actions)) + 1, place))
    return (_shortened(actions, points, split) + more).take(np.argsort(order, kind="stable"))


def _shortened(actions: Actions, points: _Points, split: NDArray[np.bool_]) -> Actions:
    """The actions, of which a Reverse that is split ends at the last of its points."""
    end = actions.end.copy()
    np.minimum.at(end, points.at[split], points.step[split])
    return Actions(
        op=actions.op,
        begin=actions.begin,
        end=end,
        kind=actions.kind,
        level=actions.level,
        name=actions.name,
        names=actions.names,
    )
