"""Occupancy of the levels over time: how long each checkpoint stays, and how full a level gets."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ckio.actions.columns import DISCARD, WRITE, Actions
from ckio.platform import Level, Platform, memory_level
from ckio.platform.chain import Chain
from ckio.schedule import Schedule, makespan, seconds_of
from ckio.schedule.timeline import Timeline

BEFORE: Final = -1
"""The place of the Write of a checkpoint that lies there from the start."""


@dataclass(frozen=True, slots=True)
class Lifetimes:
    """The stay of every checkpoint on a level, in the order in which the schedule names them.

    Attributes
    ----------
    named : Actions
        For each, an access that names its key and level.
    written : int64 array
        The place of its Write in the schedule, or BEFORE.
    discarded : int64 array
        The place of its Discard; the number of actions for what stays.
    """

    named: Actions
    written: NDArray[np.int64]
    discarded: NDArray[np.int64]

    @staticmethod
    def of(actions: Actions, /) -> "Lifetimes":
        """Pair the Writes and Discards of a legal schedule, or of the beginning of one."""
        place = np.flatnonzero(actions.op >= WRITE)
        rows = actions.take(place)
        order = np.lexsort((rows.begin, rows.name, rows.kind, rows.level))
        place, rows = place[order], rows.take(order)

        # Accesses of one key on one level now follow one another. A stay begins with a Write, or
        # with the first access when that is none: then the key was there from the start.
        opens = np.zeros(len(rows), np.bool_)
        opens[:1] = True
        for column in (rows.level, rows.kind, rows.name, rows.begin):
            opens[1:] |= column[1:] != column[:-1]
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

    def seconds(self, timeline: Timeline, /) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return when each stay begins (its Write starts) and ends (its Discard stops).

        `timeline` is of the actions that the stays are of.
        """
        # BEFORE picks the last place, and so does "never discarded": both are appended.
        start = np.append(timeline.start, 0.0)[self.written]
        stop = np.append(timeline.stop, timeline.makespan)[self.discarded]
        return start, stop

    def take(self, index: NDArray[np.intp] | NDArray[np.bool_], /) -> "Lifetimes":
        """Some of them."""
        return Lifetimes(self.named.take(index), self.written[index], self.discarded[index])


@dataclass(frozen=True, slots=True)
class Occupancy:
    """How full one level is: steps of a staircase, each valid until the next time.

    Attributes
    ----------
    times : float64 array
        Seconds, ascending; the first is 0.
    nbytes, checkpoints : int64 arrays
        What lies there from that time on; bytes as they count against the capacity.
    """

    times: NDArray[np.float64]
    nbytes: NDArray[np.int64]
    checkpoints: NDArray[np.int64]

    @property
    def peak_bytes(self) -> int:
        """The most bytes at any time."""
        return int(self.nbytes.max())

    @property
    def peak_checkpoints(self) -> int:
        """The most checkpoints at any time."""
        return int(self.checkpoints.max())


def accesses(timeline: Timeline, platform: Platform, number: int, /) -> Timeline:
    """Return the accesses to a level and their times: the program's, or a channel's."""
    moved = timeline.transfers
    far = len(moved) and number != memory_level(platform)
    events = moved if far else timeline
    return _part(events, (events.actions.op >= WRITE) & (events.actions.level == number))


def waits(timeline: Timeline, platform: Platform, /) -> Timeline:
    """Return the copies and waits of the program itself at far levels."""
    actions, memory = timeline.actions, memory_level(platform)
    far = (actions.op >= WRITE) & (timeline.stop > timeline.start)
    return _part(timeline, far if memory is None else far & (actions.level != memory))


def busy_seconds(timeline: Timeline, platform: Platform, /) -> dict[str, float]:
    """Return the seconds for which each resource works: computing, and every channel."""
    seconds = timeline.stop - timeline.start
    busy = {"compute": float(seconds[timeline.actions.op < WRITE].sum())}
    for number, level in enumerate(platform.levels):
        here = accesses(timeline, platform, number)
        busy[level.channel] = busy.get(level.channel, 0.0) + float((here.stop - here.start).sum())
    return busy


def overlap_savings(
    schedule: Schedule, platform: Platform, timeline: Timeline, /
) -> dict[str, float]:
    """Return what overlap does for a schedule, of which this is the timeline, in seconds.

    `synchronous` is the makespan without overlap, `waiting` how long the program copies to and
    waits for far levels, `after` how long transfers go on after its end. `hidden` is the part that
    is hidden of the time that far levels take without overlap, 1 being all of it; it is negative
    where copies cost more than they save.
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


def _part(timeline: Timeline, chosen: NDArray[np.bool_]) -> Timeline:
    """Some of the events, without transfers."""
    start, stop = timeline.start[chosen], timeline.stop[chosen]
    return Timeline(timeline.actions.take(chosen), start, stop, timeline.nbytes[chosen])


def occupancies(timeline: Timeline, chain: Chain, platform: Platform, /) -> tuple[Occupancy, ...]:
    """The occupancy of every level of the platform, by what really lies there.

    With overlap a checkpoint lies on a far level from the start of its transfer; one whose write
    was cancelled never does.
    """
    return tuple(
        _occupancy(accesses(timeline, platform, number), chain, level)
        for number, level in enumerate(platform.levels)
    )


def _occupancy(timeline: Timeline, chain: Chain, level: Level) -> Occupancy:
    stays = Lifetimes.of(timeline.actions)
    room = level.stored_of(chain.nbytes_of(stays.named))
    start, stop = stays.seconds(timeline)
    discarded = stays.discarded < len(timeline)
    # At one time, the earlier action first: space is freed before it is taken again.
    times = np.concatenate((start, stop[discarded]))
    order = np.lexsort((np.concatenate((stays.written, stays.discarded[discarded])), times))
    nbytes = np.concatenate((room, -room[discarded]))[order].cumsum()
    count = np.concatenate(
        (np.ones(len(stays.written), np.int64), -np.ones(discarded.sum(), np.int64))
    )
    return Occupancy(
        np.concatenate(([0.0], times[order])),
        np.concatenate(([0], nbytes)),
        np.concatenate(([0], count[order].cumsum())),
    )
