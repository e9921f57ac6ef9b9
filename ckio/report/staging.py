"""Staging memory over time: the bytes of checkpoints on their way to or from far levels."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ckio.actions.columns import DISCARD, READ, WRITE, Actions
from ckio.platform import Platform, memory_level
from ckio.platform.chain import Chain
from ckio.schedule.occupancy import Bools, Floats, Ints, Occupancy
from ckio.schedule.timeline import Timeline


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
    cost = platform.levels[memory].write
    seconds: Floats = cost.latency + cost.per_byte * chain.copied_of(actions).astype(np.float64)
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
