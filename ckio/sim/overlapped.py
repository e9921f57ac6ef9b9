"""The simulator with overlap: one process for the program and one for each channel.

All rules are those of `Traffic`. What ends at one instant goes before what goes on, and that before
what begins: the order is in the priorities of simpy's events.
"""

from collections.abc import Callable, Generator
from typing import Any

import numpy as np
import simpy
from simpy.events import EventPriority

from ckio.columns import WRITE
from ckio.overlap import Overlap
from ckio.platforms import Platform
from ckio.schedule import Schedule, bytes_moved, seconds_of
from ckio.timeline import Recorder, Timeline
from ckio.traffic import Traffic, Way, memory_level

Process = Generator[simpy.Event, Any, None]

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


class _Moment(simpy.Event):
    """Something that happens once, in an order among what happens at the same instant."""

    def happen(self, seconds: float = 0.0, /, *, order: int) -> "_Moment":
        """Let it happen so many seconds from now."""
        self._ok, self._value = True, None
        self.env.schedule(self, EventPriority(order), seconds)
        return self


class _Simulation:
    """One program, and the channels; `order` of the ends is 0, 1, ... by channel."""

    def __init__(
        self,
        schedule: Schedule,
        platform: Platform,
        overlap: Overlap,
        watch: Callable[[int], object] | None,
    ) -> None:
        self.schedule, self.watch = schedule, watch
        self.traffic = Traffic(schedule, platform, overlap)
        self.environment = simpy.Environment()
        channels = len(self.traffic.channels)
        self.goes_on, self.begins = channels, channels + 1
        self.ended = _Moment(self.environment)  # what the program may wait for
        self.asked = [_Moment(self.environment) for _ in range(channels)]  # and idle channels
        self.seconds: list[float] = seconds_of(schedule, platform).tolist()
        self.copies = _copies(schedule, platform)
        self.moved: list[int] = bytes_moved(schedule, platform).tolist()
        self.program, self.transfers = Recorder(), Recorder()
        self.rows: list[int] = []

    def run(self) -> Timeline:
        for number in range(len(self.asked)):
            self.environment.process(self.serve(number))
        self.environment.process(self.perform())
        self.environment.run()
        if not self.traffic.finished:
            raise AssertionError(f"action #{self.traffic.row} waits for ever")
        actions = self.schedule.actions
        transfers = self.transfers.timeline(actions.take(np.array(self.rows, np.intp)))
        return self.program.timeline(actions, transfers)

    def perform(self) -> Process:
        """The program: one action after the other."""
        traffic, environment = self.traffic, self.environment
        for row in range(len(self.schedule)):
            start = environment.now
            while (step := traffic.enter()) is None:
                yield self.wait()
            seconds, nbytes = 0.0, 0
            match step.way:
                case Way.ITSELF:
                    seconds, nbytes = self.seconds[row], self.moved[row]
                case Way.STAGE | Way.STAGED | Way.AHEAD:
                    seconds = self.copies[row]
                case Way.DIRECT:
                    while not traffic.ended():
                        yield self.wait()
                case Way.LATER:
                    pass
            if seconds:
                self.ask()
                yield _Moment(environment).happen(seconds, order=self.goes_on)
            traffic.leave()
            self.program.add(start, environment.now, nbytes)
            if self.watch is not None and row % _CHUNK == _CHUNK - 1:
                self.watch(_CHUNK)
        self.ask()
        if self.watch is not None:
            self.watch(len(self.schedule) % _CHUNK)

    def serve(self, number: int) -> Process:
        """A channel: one transfer after the other."""
        traffic, environment = self.traffic, self.environment
        while True:
            while (transfer := traffic.begin(number)) is None:
                self.asked[number] = _Moment(environment)
                yield self.asked[number]
            start, row = environment.now, transfer.row
            yield _Moment(environment).happen(self.seconds[row], order=number)
            traffic.end(number)
            self.rows.append(row)
            self.transfers.add(start, environment.now, self.moved[row])
            if not self.ended.triggered:
                self.ended.happen(order=self.goes_on)
            yield _Moment(environment).happen(order=self.begins + number)

    def wait(self) -> simpy.Event:
        """Let idle channels begin what they can; happens when a transfer has ended."""
        self.ask()
        self.ended = _Moment(self.environment)
        return self.ended

    def ask(self) -> None:
        """Let idle channels look again for something to do, when the program has gone on."""
        for number, idle in enumerate(self.asked):
            if not idle.triggered:
                idle.happen(order=self.begins + number)


def _copies(schedule: Schedule, platform: Platform) -> list[float]:
    """Seconds of the program's own copies to and from the pool, were each access to be one."""
    memory = memory_level(platform)
    if memory is None:
        return [0.0] * len(schedule)
    level, actions = platform.levels[memory], schedule.actions
    nbytes = schedule.chain.nbytes_of(actions)
    write, read = (price.latency + price.per_byte * nbytes for price in (level.write, level.read))
    copies: list[float] = np.where(actions.op == WRITE, write, read).tolist()
    return copies
