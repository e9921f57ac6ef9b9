"""The simulator with overlap: the program, and beside it one transfer on each channel.

All rules are those of `Traffic`; the program and the channels are processes of simpy, in `behind`.

Levels with the same channel are on one device, and there transfers take turns. With equal shares of
its bandwidth the last of them would end when it does now, for what is to be moved is the same; and
of those that take equally long none would end sooner, all but the last later. Only a short one that
has to wait for a long one would.
"""

from collections.abc import Callable

import numpy as np
import simpy
from numpy.typing import NDArray

from ckio.actions.columns import WRITE
from ckio.overlap.prices import Backlog, backlogs_of, transfer_seconds
from ckio.overlap.rules import ActionMode, Traffic
from ckio.platform import Platform
from ckio.schedule import Schedule, bytes_moved, seconds_of
from ckio.schedule.policy import Overlap
from ckio.schedule.timeline import Timeline, TimelineRecorder
from ckio.sim.overlapped.behind import Behind, Process

_CHUNK = 1 << 14
"""Actions between two calls of `watch`."""


def simulate(
    schedule: Schedule,
    platform: Platform,
    overlap: Overlap,
    /,
    *,
    factors: NDArray[np.float64] | None = None,
    watch: Callable[[int], object] | None = None,
) -> Timeline:
    """When every action of a legal schedule begins and ends, and every transfer behind it."""
    return _Simulation(schedule, platform, overlap, factors, watch).run()


class _Simulation(Behind):
    """One program, and the channels."""

    def __init__(
        self,
        schedule: Schedule,
        platform: Platform,
        overlap: Overlap,
        factors: NDArray[np.float64] | None,
        watch: Callable[[int], object] | None,
    ) -> None:
        super().__init__(simpy.Environment(), Traffic(schedule, platform, overlap))
        self.actions, self.watch = schedule.actions, watch
        beside, times = transfer_seconds(schedule, platform), 1.0 if factors is None else factors
        # Memory views: an item of one is a plain number, and takes eight bytes.
        self.seconds = (seconds_of(schedule, platform) * times).data
        self.overhead = platform.overhead
        self.beside, self.own = (beside.seconds * times).data, beside.own.data
        self.hinders, self.handoffs = beside.hinders.data, beside.handoffs.data
        self.moved = bytes_moved(schedule, platform).data
        self.backlogs = backlogs_of(platform)
        self.op, self.level = schedule.actions.op.data, schedule.actions.level.data
        self.program, self.transfers = TimelineRecorder(), TimelineRecorder()
        self.rows: list[int] = []
        self.begun = [(0.0, -1)] * len(self.traffic.channels)  # when, and which row

    @property
    def now(self) -> float:
        """Seconds from the start."""
        return float(self.environment.now)

    def run(self) -> Timeline:
        """Let all of it happen."""
        self.environment.run()
        if not self.traffic.finished:
            raise AssertionError(f"action #{self.traffic.row} waits for ever")
        transfers = self.transfers.timeline(self.actions.take(np.array(self.rows, np.intp)))
        return self.program.timeline(self.actions, transfers)

    def perform(self) -> Process:
        """One action after the other."""
        traffic, count = self.traffic, len(self.actions)
        for row in range(count):
            start = self.now
            nbytes, backlog = 0, None
            seconds: float = 0.0
            while (step := traffic.enter()) is None:
                yield self.wait()
                seconds = self.handoffs[row]
            match step.way:
                case ActionMode.ITSELF:
                    seconds, nbytes = self.overhead + self.seconds[row], self.moved[row]
                    backlog = self.backlog(row)
                case ActionMode.STAGE | ActionMode.STAGED | ActionMode.AHEAD:
                    seconds += self.own[row]
                case ActionMode.DIRECT:
                    while not traffic.ended():
                        yield self.wait()
                    seconds = self.handoffs[row]
                case ActionMode.LATER:
                    pass
            if backlog is not None:
                seconds += backlog.longer(self.now, nbytes)
            if self.passes(seconds):
                yield from self.work(seconds)
            if backlog is not None:
                backlog.add(self.now, nbytes)
            traffic.leave()
            self.program.add(start, self.now, nbytes)
            if self.watch is not None and row % _CHUNK == _CHUNK - 1:
                self.watch(_CHUNK)
        if self.watch is not None:
            self.watch(count % _CHUNK)

    def begin(self, number: int, /) -> None:
        """Let an idle channel begin what it can."""
        transfer = self.traffic.begin(number)
        if transfer is None:
            return
        row = transfer.row
        self.begun[number] = self.now, row
        seconds: float = self.seconds[row]
        if not transfer.direct:
            seconds = self.beside[row]
            self.hinder(self.hinders[row])
        if (backlog := self.backlog(row)) is not None:
            seconds += backlog.longer(self.now, self.moved[row])
        self.occupy(number, seconds)

    def end(self, number: int, /) -> None:
        """What a channel does ends now."""
        self.traffic.end(number)
        start, row = self.begun[number]
        if (backlog := self.backlog(row)) is not None:
            backlog.add(self.now, self.moved[row])
        self.rows.append(row)
        self.transfers.add(start, self.now, self.moved[row])

    def backlog(self, row: int, /) -> Backlog | None:
        """Of a write to a level that has one."""
        if not self.backlogs or self.op[row] != WRITE:
            return None
        return self.backlogs.get(self.level[row])
