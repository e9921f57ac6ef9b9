"""Schedules with overlap in simulated time: programs and channels are processes of simpy.

`Rank` is one program with its channels, by the rules of `ckio.overlap`. This module has the
simulation of a single rank with the start and end of each action; many ranks are in
`ckio.sim.ranks`.

Levels with the same channel are on one device, on which transfers are executed one after the other.
The alternative would be that concurrent transfers share its bandwidth equally. Then the last
transfer would end at the same time as here, because the same bytes are transferred. Among transfers
of equal length none would end sooner, and all but the last would end later. Only a short transfer
that waits here for a long one would end sooner.

At one instant of time, first transfers end, in the order of their channels; then the program
continues; then idle channels begin. Therefore each event has a priority, which depends on its
process.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator
from typing import Any, Final, Self, TypeAlias

import simpy
from simpy.events import EventPriority

from ckio.actions.columns import WRITE
from ckio.overlap.costs import Backlog, backlogs_of, transfer_seconds
from ckio.overlap.rules import ActionMode, Traffic, Transfer
from ckio.platform import Platform
from ckio.schedule import Schedule, bytes_moved, seconds_of
from ckio.schedule.policy import Overlap
from ckio.schedule.timeline import Timeline, TimelineRecorder, TransferRecorder

Process: TypeAlias = Generator[simpy.Event, Any, None]

PROGRAM: Final = EventPriority(2)
"""Priority of the program, after the ends of transfers (below 0) and simpy's events (0 and 1)."""

BEGINS: Final = EventPriority(3)
"""Priority of the begin of transfers, after the program."""

CHUNK: Final = 1 << 14
"""Number of actions between two calls of `watch`."""


def simulate(
    schedule: Schedule,
    platform: Platform,
    overlap: Overlap,
    /,
    *,
    watch: Callable[[int], object] | None = None,
) -> Timeline:
    """Return the timeline of a legal schedule, with the times of all transfers."""
    return RankAlone(schedule, platform, overlap, watch).run()


class TimedEvent(simpy.Event):
    """An event with a time and a priority among the events of the same instant."""

    def ring(self, priority: EventPriority, seconds: float = 0.0, /) -> Self:
        """Schedule this event after `seconds`; return it."""
        self._ok, self._value = True, None
        self.env.schedule(self, priority, seconds)
        return self


class RowCosts:
    """The seconds of each action, by its row in the schedule.

    All attributes are memory views, because their items are Python numbers and need only eight
    bytes each.

    Attributes
    ----------
    seconds : float64
        Seconds of the action without overlap, or of a transfer for which the program waits.
    concurrent : float64
        Seconds of the transfer, if it is concurrent with the program.
    own, hinders, handoffs : float64
        As in `TransferSeconds`.
    op : uint8
        Code of the action.
    level : int64
        Number of its level.
    """

    def __init__(self, schedule: Schedule, platform: Platform, /) -> None:
        seconds = transfer_seconds(schedule, platform)
        self.seconds = seconds_of(schedule, platform).data
        self.concurrent, self.own = seconds.seconds.data, seconds.own.data
        self.hinders, self.handoffs = seconds.hinders.data, seconds.handoffs.data
        self.op, self.level = schedule.actions.op.data, schedule.actions.level.data


class Rank(ABC):
    """One program and its channels, with the waiting between them.

    A subclass defines how the program performs near actions (all actions except accesses to far
    levels), and how long a transfer takes.

    Attributes
    ----------
    finish : float
        The time at which the program and all its transfers have ended, in seconds.
    """

    def __init__(
        self, environment: simpy.Environment, traffic: Traffic, costs: RowCosts, /
    ) -> None:
        self.environment, self.traffic, self.costs = environment, traffic, costs
        self.finish = 0.0
        count = len(traffic.channels)
        self._priorities = [EventPriority(number - count) for number in range(count)]
        self._ends = [TimedEvent(environment) for _ in range(count)]  # the end of each transfer
        self.idle = [True] * count
        self._waits: TimedEvent | None = None  # set while the program waits for a transfer
        self._stirred: TimedEvent | None = None  # set if channels will begin at this instant
        self.works = False  # whether the program works, so that time passes
        self.lost = 0.0  # seconds by which this work is delayed
        for number in range(count):
            environment.process(self._serve(number))
        environment.process(self.perform())

    @property
    def now(self) -> float:
        """The simulated time in seconds from the start."""
        return float(self.environment.now)

    @abstractmethod
    def pass_near(self, stop: int, /) -> Process:
        """Perform all near actions up to a row."""

    @abstractmethod
    def carry(self, number: int, transfer: Transfer, /) -> None:
        """Begin a transfer on a channel now; an implementation calls `occupy`."""

    @abstractmethod
    def accessed(self, row: int, start: float, /) -> None:
        """Record that the far access of a row, begun at `start`, ends now."""

    def end(self, number: int, /) -> None:
        """Record that a channel's transfer ends now."""
        self.finish = self.environment.now
        self.traffic.end(number)

    def check_finished(self) -> None:
        """Raise AssertionError if the program still waits, which then would be forever."""
        if not self.traffic.finished:
            raise AssertionError(f"action #{self.traffic.row} waits for ever")

    # The program

    def perform(self) -> Process:
        """Perform the near actions up to each far access, and then this access."""
        columns = self.traffic.columns
        for row in columns.far:
            yield from self.pass_near(row)
            start = self.now
            yield from self._access(row)
            self.accessed(row, start)
        yield from self.pass_near(len(columns.inside))
        self.finish = max(self.finish, self.now)
        self.begin_all()

    def _access(self, row: int) -> Process:
        """Perform the program's part of a far access."""
        traffic, costs, seconds = self.traffic, self.costs, 0.0
        while (handling := traffic.enter()) is None:
            yield self.wait()
            seconds = costs.handoffs[row]
        match handling.way:
            case ActionMode.STAGE | ActionMode.STAGED | ActionMode.AHEAD:
                seconds += costs.own[row]
            case ActionMode.DIRECT:
                while not traffic.ended():
                    yield self.wait()
                seconds = costs.handoffs[row]
            case ActionMode.LATER:
                pass
            case ActionMode.ITSELF:
                raise AssertionError(f"action #{row} is no far access")
        yield from self.work(seconds)
        traffic.leave()

    def wait(self) -> simpy.Event:
        """Return an event that occurs when a transfer has ended."""
        self.begin_all()
        self._waits = TimedEvent(self.environment)
        return self._waits

    def work(self, seconds: float, /) -> Process:
        """Let `seconds` pass, plus the delays by transfers that begin meanwhile.

        Nothing happens if no time passes, also if the seconds are so few that adding them to the
        current time changes nothing.
        """
        now: float = self.environment.now
        if not now + seconds > now:
            return
        self.works = True
        self.begin_all()
        while seconds:
            yield TimedEvent(self.environment).ring(PROGRAM, seconds)
            seconds, self.lost = self.lost, 0.0
        self.works = False

    def hinder(self, seconds: float, /) -> None:
        """Delay the program by `seconds`, if it works, because a concurrent transfer begins."""
        if self.works:
            self.lost += seconds

    # The channels

    def begin_all(self) -> None:
        """Begin transfers on all idle channels as far as possible, in the order of the platform."""
        for number, idle in enumerate(self.idle):
            if idle and (transfer := self.traffic.begin(number)) is not None:
                if not transfer.direct:
                    self.hinder(self.costs.hinders[transfer.row])
                self.carry(number, transfer)

    def occupy(self, number: int, seconds: float | None = None, /) -> simpy.Event:
        """Mark a channel as busy and return the event of its end.

        The event occurs after `seconds`; if they are None, the caller must trigger it.
        """
        self.idle[number] = False
        if seconds is not None:
            self._ends[number].ring(self._priorities[number], seconds)
        return self._ends[number]

    def _serve(self, number: int) -> Process:
        """Handle the ends of a channel's transfers, one after the other."""
        while True:
            yield self._ends[number]
            self._ends[number], self.idle[number] = TimedEvent(self.environment), True
            self.end(number)
            if self._waits is not None:
                self._waits.ring(PROGRAM)
                self._waits = None
            elif self.environment.peek() > self.environment.now:
                self.begin_all()  # no other event is due at this instant
            elif self._stirred is None:
                self._stirred = TimedEvent(self.environment).ring(BEGINS)
                assert self._stirred.callbacks is not None
                self._stirred.callbacks.append(self._begin_stirred)

    def _begin_stirred(self, _: simpy.Event) -> None:
        self._stirred = None
        self.begin_all()


class RankAlone(Rank):
    """A single rank without shared channels, with the times of all its actions and transfers."""

    def __init__(
        self,
        schedule: Schedule,
        platform: Platform,
        overlap: Overlap,
        watch: Callable[[int], object] | None = None,
    ) -> None:
        traffic = Traffic(schedule, platform, overlap)
        super().__init__(simpy.Environment(), traffic, RowCosts(schedule, platform))
        self._actions, self._watch, self._overhead = schedule.actions, watch, platform.overhead
        self._moved = bytes_moved(schedule, platform).data
        self._backlogs = backlogs_of(platform)
        self._program, self._transfers = TimelineRecorder(), TransferRecorder()
        self._begun = [(0.0, -1)] * len(traffic.channels)  # time and row of each channel's transfer

    def run(self) -> Timeline:
        """Return the timeline of the whole schedule."""
        self.environment.run()
        self.check_finished()
        if self._watch is not None:
            self._watch(len(self._actions) % CHUNK)
        return self._program.timeline(self._actions, self._transfers.timeline(self._actions))

    def pass_near(self, stop: int, /) -> Process:
        """Perform near actions one after the other, up to a row."""
        traffic = self.traffic
        for row in range(traffic.row, stop):
            start = self.now
            while traffic.enter() is None:
                yield self.wait()
            seconds, backlog = self._overhead + self.costs.seconds[row], self._backlog(row)
            if backlog is not None:
                seconds += backlog.longer(self.now, self._moved[row])
            yield from self.work(seconds)
            if backlog is not None:
                backlog.add(self.now, self._moved[row])
            traffic.leave()
            self._note(row, start, self._moved[row])

    def accessed(self, row: int, start: float, /) -> None:
        """Record the times of a far access; its bytes are recorded with its transfer."""
        self._note(row, start, 0)

    def carry(self, number: int, transfer: Transfer, /) -> None:
        """Occupy the channel for the seconds of the level's cost."""
        row, costs = transfer.row, self.costs
        self._begun[number] = self.now, row
        seconds: float = (costs.seconds if transfer.direct else costs.concurrent)[row]
        if (backlog := self._backlog(row)) is not None:
            seconds += backlog.longer(self.now, self._moved[row])
        self.occupy(number, seconds)

    def end(self, number: int, /) -> None:
        """Record the times of a transfer."""
        super().end(number)
        start, row = self._begun[number]
        if (backlog := self._backlog(row)) is not None:
            backlog.add(self.now, self._moved[row])
        self._transfers.add(row, start, self.now, self._moved[row])

    def _backlog(self, row: int) -> Backlog | None:
        """Return the backlog of the level to which this row writes, if it has one."""
        if not self._backlogs or self.costs.op[row] != WRITE:
            return None
        return self._backlogs.get(self.costs.level[row])

    def _note(self, row: int, start: float, nbytes: int) -> None:
        """Record an action that ends now."""
        self._program.add(start, self.now, nbytes)
        if self._watch is not None and row % CHUNK == CHUNK - 1:
            self._watch(CHUNK)
