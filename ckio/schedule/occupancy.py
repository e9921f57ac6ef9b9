"""Occupancy over time: how long each checkpoint is stored, and how full levels and memory get."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ckio.actions.columns import DISCARD, READ, WRITE, Actions
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


def staged(timeline: Timeline, chain: Chain, platform: Platform, /) -> Occupancy:
    """Return the staging memory in use, from the times of actions and transfers.

    The memory of a write is in use from the begin of its copy. The copy takes as long as a write to
    the memory level. The memory is free at the end of the transfer and of the copies made from it,
    or at the Discard that cancels the write. The memory of a read ahead is in use from the begin of
    its transfer to the end of the action that uses it. If the program itself waits for the
    transfer, no memory is used.
    """
    program, channels = _far_accesses(timeline, platform)
    writes, reads, until = program.of(WRITE), program.of(READ), timeline.makespan
    begin = writes.stop - _copies(writes.actions, chain, platform)
    begin = np.maximum(writes.start, begin)
    end = _written(writes, channels.of(WRITE), program.of(DISCARD), until)

    source = latest(writes.place, writes.row, reads.place, reads.row)
    copied = np.append(end, -np.inf)[source] > reads.start
    np.maximum.at(end, source[copied], reads.stop[copied])

    brought, reads = channels.of(READ), reads.take(~copied)
    use = _uses(reads, brought)
    starts, stops = np.append(reads.start, np.inf)[use], np.append(reads.stop, until)[use]
    # The transfer began before the action, or at the same time, with a copy after it.
    ahead = brought.start < starts
    ahead |= (brought.start == starts) & (brought.stop < stops)
    nbytes = [chain.nbytes_of(each.actions) for each in (writes, brought)]
    return _staircase(
        np.concatenate((begin, brought.start[ahead])),
        np.concatenate((end, stops[ahead])),
        np.concatenate((nbytes[0], nbytes[1][ahead])),
    )


@dataclass(frozen=True, slots=True)
class _StagedAccesses:
    """Some accesses with their times; `place` is a number for each key on each level."""

    actions: Actions
    row: Ints
    start: Floats
    stop: Floats
    place: Ints

    def take(self, index: NDArray[np.intp] | Bools, /) -> "_StagedAccesses":
        actions, row, place = self.actions.take(index), self.row[index], self.place[index]
        return _StagedAccesses(actions, row, self.start[index], self.stop[index], place)

    def of(self, op: int, /) -> "_StagedAccesses":
        return self.take(self.actions.op == op)


def _far_accesses(
    timeline: Timeline, platform: Platform
) -> tuple[_StagedAccesses, _StagedAccesses]:
    """Return the far accesses of the program, and the transfers."""
    memory, actions, moved = memory_level(platform), timeline.actions, timeline.transfers
    row = np.flatnonzero(
        (actions.op >= WRITE) & (actions.level != (-1 if memory is None else memory))
    )
    own = actions.take(row)
    place = key_numbers(own + moved.actions)
    return (
        _StagedAccesses(own, row, timeline.start[row], timeline.stop[row], place[: len(row)]),
        _StagedAccesses(
            moved.actions, np.arange(len(moved)), moved.start, moved.stop, place[len(row) :]
        ),
    )


def key_numbers(actions: Actions, /) -> Ints:
    """Return a number for each access; accesses of one key on one level have the same number."""
    order, opens = actions.by_key()
    numbers = np.empty_like(order)
    numbers[order] = np.cumsum(opens)
    return numbers


def _copies(actions: Actions, chain: Chain, platform: Platform) -> Floats:
    """Return the seconds of the copies of writes to the memory level."""
    if (memory := memory_level(platform)) is None:
        return np.zeros(len(actions))
    price = platform.levels[memory].write
    seconds: Floats = price.latency + price.per_byte * chain.copied_of(actions).astype(np.float64)
    return seconds


def _written(
    writes: _StagedAccesses, transfers: _StagedAccesses, discards: _StagedAccesses, until: float
) -> Floats:
    """Return the time at which each write stops using staging memory."""
    cancelled = latest(discards.place, -discards.row, writes.place, -writes.row)
    end = np.append(discards.start, until)[cancelled]
    written = latest(writes.place, writes.start, transfers.place, transfers.start)
    end[written] = transfers.stop
    direct = transfers.stop <= writes.stop[written]
    end[written[direct]] = -np.inf
    return end


def _uses(reads: _StagedAccesses, brought: _StagedAccesses) -> Ints:
    """Return the read that each transfer serves, in order; -1 if the read was not reached."""
    order = np.lexsort((reads.row, reads.place))
    transfers = np.lexsort((brought.start, brought.place))
    places, wanted = reads.place[order], brought.place[transfers]
    number = np.arange(len(wanted)) - np.searchsorted(wanted, wanted)
    at = np.searchsorted(places, wanted) + number
    known = np.append(places, -1)[np.minimum(at, len(places))] == wanted
    use = np.full(len(wanted), -1)
    use[transfers[known]] = order[at[known]]
    return use


def latest(place: Ints, time: NDArray[np.generic], asked: Ints, when: NDArray[np.generic]) -> Ints:
    """Return the index of the last entry with a time up to `when`, for each place in `asked`.

    The result is -1 if there is no such entry.

    >>> latest(np.array([7, 7]), np.array([1.0, 3.0]), np.array([7, 8]), np.array([2.0, 2.0]))
    array([ 0, -1])
    """
    count = len(place)
    places, times = np.concatenate((place, asked)), np.concatenate((time, when))
    order = np.lexsort((np.arange(len(places)) >= count, times, places))
    last = np.maximum.accumulate(np.where(order < count, np.arange(len(order)), -1))
    latest = np.where(last >= 0, order[last], -1)
    latest[(latest >= 0) & (places[latest] != places[order])] = -1
    answer = np.empty(len(order), np.int64)
    answer[order] = latest
    return answer[count:]


def _staircase(begin: Floats, end: Floats, nbytes: Ints) -> Occupancy:
    some = begin < end
    begin, end, nbytes = begin[some], end[some], nbytes[some]
    times, sign = np.concatenate((end, begin)), np.repeat([-1, 1], len(begin))
    order = np.argsort(times, kind="stable")  # for equal times, ends come before begins
    return Occupancy(
        np.concatenate(([0.0], times[order])),
        np.concatenate(([0], (sign * np.tile(nbytes, 2))[order].cumsum())),
        np.concatenate(([0], sign[order].cumsum())),
    )
