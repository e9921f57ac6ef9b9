"""Staging memory over time: bytes of checkpoints between the model and the far levels."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ckio.actions.columns import DISCARD, READ, WRITE, Actions
from ckio.platform import Platform, memory_level
from ckio.platform.chain import Chain
from ckio.report.pictures.svg import Floats, Ints
from ckio.schedule.occupancy import Occupancy
from ckio.schedule.timeline import Timeline


def staged(timeline: Timeline, chain: Chain, platform: Platform, /) -> Occupancy:
    """The staging memory in use, found from when actions and transfers happened.

    A write is staged from the beginning of its copy, which takes as long as a write to the memory
    level, to the end of its transfer and of copies made from it, or to the Discard that cancels it;
    a read ahead, from the beginning of its transfer to the end of the action that uses it. Where
    the program itself waits for the transfer, nothing is staged.
    """
    program, channels = _far_accesses(timeline, platform)
    writes, reads, until = program.of(WRITE), program.of(READ), timeline.makespan
    begin = writes.stop - _copies(writes.actions, chain, platform)
    begin = np.maximum(writes.start, begin)
    end = _written(writes, channels.of(WRITE), program.of(DISCARD), until)

    source = _latest(writes.place, writes.row, reads.place, reads.row)
    copied = np.append(end, -np.inf)[source] > reads.start
    np.maximum.at(end, source[copied], reads.stop[copied])

    brought, reads = channels.of(READ), reads.take(~copied)
    use = _uses(reads, brought)
    starts, stops = np.append(reads.start, np.inf)[use], np.append(reads.stop, until)[use]
    # Begun before the action; or with it, and then copied, which takes more time.
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
    """Some accesses with their times; `place` numbers the keys on the levels."""

    actions: Actions
    row: Ints
    start: Floats
    stop: Floats
    place: Ints

    def take(self, index: NDArray[np.intp] | NDArray[np.bool_], /) -> "_StagedAccesses":
        actions, row, place = self.actions.take(index), self.row[index], self.place[index]
        return _StagedAccesses(actions, row, self.start[index], self.stop[index], place)

    def of(self, op: int, /) -> "_StagedAccesses":
        return self.take(self.actions.op == op)


def _far_accesses(
    timeline: Timeline, platform: Platform
) -> tuple[_StagedAccesses, _StagedAccesses]:
    """Those of the program, and the transfers."""
    memory, actions, moved = memory_level(platform), timeline.actions, timeline.transfers
    row = np.flatnonzero(
        (actions.op >= WRITE) & (actions.level != (-1 if memory is None else memory))
    )
    own = actions.take(row)
    place = _places(own + moved.actions)
    return (
        _StagedAccesses(own, row, timeline.start[row], timeline.stop[row], place[: len(row)]),
        _StagedAccesses(
            moved.actions, np.arange(len(moved)), moved.start, moved.stop, place[len(row) :]
        ),
    )


def _places(actions: Actions) -> Ints:
    columns = (actions.begin, actions.name, actions.kind, actions.level)
    order = np.lexsort(columns)
    opens = np.zeros(len(order), np.int64)
    for column in columns:
        opens[1:] |= column[order][1:] != column[order][:-1]
    place = np.empty_like(opens)
    place[order] = np.cumsum(opens)
    return place


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
    """When each write is staged no more."""
    cancelled = _latest(discards.place, -discards.row, writes.place, -writes.row)
    end = np.append(discards.start, until)[cancelled]
    written = _latest(writes.place, writes.start, transfers.place, transfers.start)
    end[written] = transfers.stop
    direct = transfers.stop <= writes.stop[written]
    end[written[direct]] = -np.inf
    return end


def _uses(reads: _StagedAccesses, brought: _StagedAccesses) -> Ints:
    """The read that each transfer is for, -1 where it was not reached: one after the other."""
    order = np.lexsort((reads.row, reads.place))
    transfers = np.lexsort((brought.start, brought.place))
    places, wanted = reads.place[order], brought.place[transfers]
    number = np.arange(len(wanted)) - np.searchsorted(wanted, wanted)
    at = np.searchsorted(places, wanted) + number
    known = np.append(places, -1)[np.minimum(at, len(places))] == wanted
    use = np.full(len(wanted), -1)
    use[transfers[known]] = order[at[known]]
    return use


def _latest(place: Ints, time: NDArray[np.generic], asked: Ints, when: NDArray[np.generic]) -> Ints:
    """For each that is asked, the last one at its place up to its time; -1 where there is none."""
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
    order = np.argsort(times, kind="stable")  # at one time, what ends before what begins
    return Occupancy(
        np.concatenate(([0.0], times[order])),
        np.concatenate(([0], (sign * np.tile(nbytes, 2))[order].cumsum())),
        np.concatenate(([0], sign[order].cumsum())),
    )
