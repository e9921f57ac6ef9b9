"""Occupancy over time: how long each checkpoint is stored, and how full levels get."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ckio.actions.columns import DISCARD, WRITE, Actions
from ckio.platform import Level, Platform, memory_level
from ckio.platform.chain import Chain
from ckio.schedule import Schedule, makespan, seconds_of
from ckio.schedule.timeline import Timeline

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

BEFORE: Final = -1
"""The number of the Write of a checkpoint that is stored from the start."""


@dataclass(frozen=True, slots=True)
class Lifetimes:
    """The period for which each checkpoint is stored on a level, in the order of the schedule.

    Attributes
    ----------
    named : Actions
        For each period, an access that names its key and level.
    written : int64 array
        The number of its Write in the schedule, or BEFORE.
    discarded : int64 array
        The number of its Discard, or the number of actions if it is never discarded.
    """

    named: Actions
    written: Ints
    discarded: Ints

    @staticmethod
    def of(actions: Actions, /) -> "Lifetimes":
        """Pair the Writes and Discards of a legal schedule, or of the beginning of one.

        For example, x_0 is written by action 0 and discarded by action 3:

        >>> from ckio.actions import Advance, Discard, Key, Kind, Read, Write
        >>> x_0 = Key(Kind.RESTART, 0)
        >>> some = Actions.of([Write(x_0, 0), Advance(0, 4), Read(x_0, 0), Discard(x_0, 0)])
        >>> lifetimes = Lifetimes.of(some)
        >>> lifetimes.written, lifetimes.discarded
        (array([0]), array([3]))
        """
        place = np.flatnonzero(actions.op >= WRITE)
        order, opens = actions.take(place).by_key()
        place = place[order]
        rows = actions.take(place)

        # Accesses of one key on one level now follow one another. A period begins with a Write. If
        # the first access is not a Write, the key was stored from the start.
        begins = np.flatnonzero(opens | (rows.op == WRITE))
        next_begin = np.append(begins[1:], len(rows))
        ends = np.append(np.flatnonzero(rows.op == DISCARD), len(rows))
        end = ends[np.searchsorted(ends, begins)]

        written = np.where(rows.op[begins] == WRITE, place[begins], BEFORE)
        places = np.append(place, len(actions))
        discarded = np.where(end < next_begin, places[end], len(actions))
        in_order = np.argsort(place[begins])
        return Lifetimes(
            rows.take(begins[in_order]), written[in_order], discarded[in_order].astype(np.int64)
        )

    def seconds(self, timeline: Timeline, /) -> tuple[Floats, Floats]:
        """Return the seconds when each period begins (its Write starts) and ends (its Discard
        stops).

        `timeline` has the times of the actions of these periods.
        """
        # BEFORE is -1 and "never discarded" is the number of actions: both select the value that is
        # appended here.
        start = np.append(timeline.start, 0.0)[self.written]
        stop = np.append(timeline.stop, timeline.makespan)[self.discarded]
        return start, stop

    def take(self, index: NDArray[np.intp] | Bools, /) -> "Lifetimes":
        """Return the periods at `index`."""
        return Lifetimes(self.named.take(index), self.written[index], self.discarded[index])


@dataclass(frozen=True, slots=True)
class Occupancy:
    """How full one level is. The entries are steps of a staircase, each valid until the next time.

    Attributes
    ----------
    times : float64 array
        Seconds, in increasing order; the first is 0.
    nbytes, checkpoints : int64 arrays
        The bytes and the number of checkpoints that are stored from that time. The bytes are those
        that count against the capacity.
    """

    times: Floats
    nbytes: Ints
    checkpoints: Ints

    @property
    def peak_bytes(self) -> int:
        """The most bytes at any time."""
        return int(self.nbytes.max())

    @property
    def peak_checkpoints(self) -> int:
        """The most checkpoints at any time."""
        return int(self.checkpoints.max())


def accesses(timeline: Timeline, platform: Platform, number: int, /) -> Timeline:
    """Return the accesses to a level and their times: those of the program, or of a channel."""
    moved = timeline.transfers
    far = len(moved) and number != memory_level(platform)
    events = moved if far else timeline
    return _part(events, (events.actions.op >= WRITE) & (events.actions.level == number))


def waits(timeline: Timeline, platform: Platform, /) -> Timeline:
    """Return the copies and waits of the program itself at accesses to far levels."""
    actions, memory = timeline.actions, memory_level(platform)
    far = (actions.op >= WRITE) & (timeline.stop > timeline.start)
    return _part(timeline, far if memory is None else far & (actions.level != memory))


def busy_seconds(timeline: Timeline, platform: Platform, /) -> dict[str, float]:
    """Return the seconds for which each resource is busy: computing, and every channel."""
    seconds = timeline.stop - timeline.start
    busy = {"compute": float(seconds[timeline.actions.op < WRITE].sum())}
    for number, level in enumerate(platform.levels):
        here = accesses(timeline, platform, number)
        busy[level.channel] = busy.get(level.channel, 0.0) + float((here.stop - here.start).sum())
    return busy


def overlap_savings(
    schedule: Schedule, platform: Platform, timeline: Timeline, /
) -> dict[str, float]:
    """Return how much time overlap saves for a schedule with this timeline, in seconds.

    `synchronous` is the makespan without overlap. `waiting` are the seconds in which the program
    copies to far levels or waits for them. `after` are the seconds for which transfers continue
    after the end of the program. `hidden` is the fraction of the time of far levels without overlap
    that overlap hides: 1 for all of it, and negative if copies cost more than overlap saves.
    """
    synchronous = makespan(schedule, platform)
    waited = waits(timeline, platform)
    actions, memory = schedule.actions, memory_level(platform)
    far = (actions.op >= WRITE) & (actions.level != (-1 if memory is None else memory))
    storing = float(seconds_of(schedule, platform)[far].sum())
    return {
        "synchronous": synchronous,
        "waiting": float((waited.stop - waited.start).sum()),
        "after": timeline.makespan - float(timeline.stop.max(initial=0.0)),
        "hidden": (synchronous - timeline.makespan) / storing if storing else 0.0,
    }


def _part(timeline: Timeline, chosen: Bools) -> Timeline:
    """Return some of the events, without transfers."""
    start, stop = timeline.start[chosen], timeline.stop[chosen]
    return Timeline(timeline.actions.take(chosen), start, stop, timeline.nbytes[chosen])


def occupancies(timeline: Timeline, chain: Chain, platform: Platform, /) -> tuple[Occupancy, ...]:
    """Return the occupancy of every level of the platform, from the checkpoints on it.

    With overlap, a checkpoint is stored on a far level from the start of its transfer. A checkpoint
    whose write was cancelled is never stored.
    """
    return tuple(
        _occupancy(accesses(timeline, platform, number), chain, level)
        for number, level in enumerate(platform.levels)
    )


def _occupancy(timeline: Timeline, chain: Chain, level: Level) -> Occupancy:
    stays = Lifetimes.of(timeline.actions)
    size = level.stored_of(chain.nbytes_of(stays.named))
    start, stop = stays.seconds(timeline)
    discarded = stays.discarded < len(timeline)
    # For equal times, the earlier action comes first: space is freed before it is used again.
    times = np.concatenate((start, stop[discarded]))
    order = np.lexsort((np.concatenate((stays.written, stays.discarded[discarded])), times))
    nbytes = np.concatenate((size, -size[discarded]))[order].cumsum()
    count = np.concatenate(
        (np.ones(len(stays.written), np.int64), -np.ones(discarded.sum(), np.int64))
    )
    return Occupancy(
        np.concatenate(([0.0], times[order])),
        np.concatenate(([0], nbytes)),
        np.concatenate(([0], count[order].cumsum())),
    )
