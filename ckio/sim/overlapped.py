"""The simulator with overlap: the program, and beside it one transfer on each channel.

All rules are those of `Traffic`. At most one thing is going on in each place, so the next instant
is the first at which one of them ends: no queue of events is needed.
"""

from collections.abc import Callable, Iterator
from math import inf

import numpy as np
from numpy.typing import NDArray

from ckio.columns import WRITE
from ckio.overlap import Overlap
from ckio.platforms import Platform
from ckio.schedule import Schedule, bytes_moved, seconds_of
from ckio.timeline import Recorder, Timeline
from ckio.traffic import Traffic, Way, memory_level

_CHUNK = 1 << 14
"""Actions between two calls of `watch`."""


def simulate(
    schedule: Schedule,
    platform: Platform,
    overlap: Overlap,
    /,
    *,
    watch: Callable[[int], object] | None = None,
) -> Timeline:
    """When every action of a legal schedule begins and ends, and every transfer behind it."""
    return _Simulation(schedule, platform, overlap, watch).run()


class _Simulation:
    """One program, and the channels."""

    def __init__(
        self,
        schedule: Schedule,
        platform: Platform,
        overlap: Overlap,
        watch: Callable[[int], object] | None,
    ) -> None:
        self.actions, self.watch = schedule.actions, watch
        self.traffic = Traffic(schedule, platform, overlap)
        self.now = 0.0
        # Memory views: an item of one is a plain number, and takes eight bytes.
        self.seconds = seconds_of(schedule, platform).data
        self.copies = _copies(schedule, platform).data
        self.moved = bytes_moved(schedule, platform).data
        self.program, self.transfers = Recorder(), Recorder()
        self.rows: list[int] = []
        self.begun = [(0.0, -1)] * len(self.traffic.channels)  # when, and which row

    def run(self) -> Timeline:
        """At each instant: what ends, then the program, then what begins."""
        program, goes_on, ends = self.perform(), 0.0, [inf] * len(self.begun)
        while (now := min([goes_on, *ends])) < inf:
            self.now = now
            for number, end in enumerate(ends):
                if end == now:
                    self.end(number)
                    ends[number] = inf
            if goes_on in (now, inf):
                goes_on = next(program, inf)
            for number, end in enumerate(ends):
                if end == inf:
                    ends[number] = self.begin(number)
        if not self.traffic.finished:
            raise AssertionError(f"action #{self.traffic.row} waits for ever")
        transfers = self.transfers.timeline(self.actions.take(np.array(self.rows, np.intp)))
        return self.program.timeline(self.actions, transfers)

    def perform(self) -> Iterator[float]:
        """The program, one action after the other: when it goes on; inf: when a transfer ends."""
        traffic, count = self.traffic, len(self.actions)
        for row in range(count):
            start = self.now
            while (step := traffic.enter()) is None:
                yield inf
            seconds, nbytes = 0.0, 0
            match step.way:
                case Way.ITSELF:
                    seconds, nbytes = self.seconds[row], self.moved[row]
                case Way.STAGE | Way.STAGED | Way.AHEAD:
                    seconds = self.copies[row]
                case Way.DIRECT:
                    while not traffic.ended():
                        yield inf
                case Way.LATER:
                    pass
            if seconds:
                yield self.now + seconds
            traffic.leave()
            self.program.add(start, self.now, nbytes)
            if self.watch is not None and row % _CHUNK == _CHUNK - 1:
                self.watch(_CHUNK)
        if self.watch is not None:
            self.watch(count % _CHUNK)

    def begin(self, number: int) -> float:
        """Let an idle channel begin what it can: when that ends; inf if there is nothing."""
        transfer = self.traffic.begin(number)
        if transfer is None:
            return inf
        self.begun[number] = self.now, transfer.row
        return self.now + self.seconds[transfer.row]

    def end(self, number: int) -> None:
        """What a channel does ends now."""
        self.traffic.end(number)
        start, row = self.begun[number]
        self.rows.append(row)
        self.transfers.add(start, self.now, self.moved[row])


def _copies(schedule: Schedule, platform: Platform) -> NDArray[np.float64]:
    """Seconds of the program's own copies to and from the pool, were each access to be one."""
    memory = memory_level(platform)
    if memory is None:
        return np.zeros(len(schedule))
    level, actions = platform.levels[memory], schedule.actions
    nbytes = schedule.chain.nbytes_of(actions)
    write, read = (price.latency + price.per_byte * nbytes for price in (level.write, level.read))
    return np.where(actions.op == WRITE, write, read)
