"""Ranks whose transfers go on behind their programs, by the rules of `ckio.overlap`.

A rank, or a group of ranks that are alike, has a program and channels of its own. Its transfers on
a channel that all share take their part of the bandwidth there; all others take the level's price.
"""

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import compress, count

import numpy as np
import simpy

from ckio.actions.columns import READ, WRITE
from ckio.errors import BadInput
from ckio.overlap.prices import transfer_seconds
from ckio.overlap.rules import ActionMode
from ckio.platform import Affine, Platform
from ckio.platform.profile import Profile
from ckio.schedule import Schedule, moved_of, seconds_of
from ckio.schedule.policy import Overlap
from ckio.sim.overlapped.behind import PROGRAM, Alarm, Behind, Process
from ckio.sim.ranks.channel import Channel
from ckio.sim.ranks.fold import is_shared, speed_of
from ckio.sim.ranks.groups import Groups, Seconds
from ckio.sim.ranks.near import NearTraffic
from ckio.sim.ranks.processes import ROUNDING, Told, Watch
from ckio.sim.ranks.words import Barrier, Ranks

_NOTHING = Profile()


@dataclass(frozen=True, slots=True)
class Lane:
    """How transfers of one sort share a channel: which it is, how fast alone, and their price."""

    channel: int
    speed: int
    price: Affine
    ratio: float


class Program:
    """What all ranks have in common: the schedule's columns, and the lanes of shared channels.

    Raises BadInput for what ranks do not have with overlap: collective writes, and barriers.
    """

    def __init__(
        self, schedule: Schedule, platform: Platform, ranks: Ranks, overlap: Overlap, /
    ) -> None:
        _check(ranks)
        self.traffic = NearTraffic(schedule, platform, overlap)
        beside = transfer_seconds(schedule, platform)
        self.seconds = seconds_of(schedule, platform).data
        self.beside, self.own = beside.seconds.data, beside.own.data
        self.hinders, self.handoffs = beside.hinders.data, beside.handoffs.data
        self.nbytes = moved_of(schedule, platform).data
        self.op, self.level = schedule.actions.op.data, schedule.actions.level.data
        self.is_shared = is_shared(schedule, platform, ranks).data
        self.speeds: list[list[float]] = [[] for _ in ranks.shared]
        self.lanes = dict(self._lanes(platform, ranks))

    def _lanes(
        self, platform: Platform, ranks: Ranks
    ) -> Iterator[tuple[tuple[int, int, bool], Lane]]:
        """By level, code of the action, and whether the program waits."""
        names = list(ranks.shared)
        for number, level in enumerate(platform.levels):
            if level.channel not in names:
                continue
            profile, channel = level.profile or _NOTHING, names.index(level.channel)
            for op, price, beside in (
                (WRITE, level.write, profile.write_beside),
                (READ, level.read, profile.read_beside),
            ):
                for direct, paid in ((True, price), (False, beside or price)):
                    speeds, speed = self.speeds[channel], speed_of(level, paid)
                    if speed not in speeds:
                        speeds.append(speed)
                    lane = Lane(channel, speeds.index(speed), paid, level.ratio)
                    yield (number, op, direct), lane


def _check(ranks: Ranks) -> None:
    for name, shared in ranks.shared.items():
        if shared.collective:
            raise BadInput(
                f"ranks: writes to {name!r} are collective, and go on behind no program; say no"
                " overlap"
            )
    if ranks.barrier is not Barrier.NONE:
        raise BadInput("ranks: there are no barriers where transfers overlap; say no overlap")


class Crowd:
    """All groups of ranks, from their start to the end of the last.

    Attributes
    ----------
    channels, finish, waited, slowed
        As those of `Processes`; nobody waits for others here.
    nbytes : list of float
        Bytes moved on each shared channel.
    """

    def __init__(
        self, program: Program, ranks: Ranks, groups: Groups, watch: Watch | None, /
    ) -> None:
        self.environment, self.program = simpy.Environment(), program
        self.channels = [
            Channel(self.environment, shared.bandwidth, speeds)
            for shared, speeds in zip(ranks.shared.values(), program.speeds, strict=True)
        ]
        self.told = Told(watch)
        self._ranks = [
            _Rank(self, clients, seconds)
            for clients, seconds in zip(groups.clients.tolist(), groups.stretches, strict=True)
        ]

    def run(self) -> None:
        """Let all groups come to their ends."""
        self.environment.run()
        self.told.tell()
        for rank in self._ranks:
            if not rank.traffic.finished:
                raise AssertionError(f"action #{rank.traffic.row} waits for ever")
        self.finish = np.array([rank.finish for rank in self._ranks])
        self.waited = np.zeros(len(self._ranks))
        self.slowed = np.array([rank.slowed for rank in self._ranks])
        moved = np.array([rank.clients * np.array(rank.nbytes) for rank in self._ranks])
        self.nbytes: list[float] = moved.sum(axis=0).tolist()


class _Rank(Behind):
    """One rank, or a group of those that are alike."""

    traffic: NearTraffic

    def __init__(self, crowd: "Crowd", clients: int, seconds: Seconds) -> None:
        super().__init__(crowd.environment, crowd.program.traffic.again())
        self.program, self.channels, self.told = crowd.program, crowd.channels, crowd.told
        self.clients, channels = clients, crowd.channels
        self.finish = 0.0
        self.nbytes, self.slowed = [0.0] * len(channels), [0.0] * len(channels)
        self._clock = np.concatenate(([0.0], np.cumsum(seconds))).data  # by row, of near ones
        self._moving: dict[int, tuple[Lane, int, float]] = {}  # by channel, since when
        self._strides = False
        self._limit = 0  # the row that this stride goes up to
        self._shift = 0.0  # between its clock and the environment's

    def perform(self) -> Process:
        """The near actions up to a far access, that access, and so on."""
        for row in self.traffic.near.far:
            yield from self._pass(row)
            yield from self._access(row)
            if self.program.is_shared[row]:
                self.told.hear(self.clients)
        yield from self._pass(len(self.program.op))
        self.finish = max(self.finish, self.environment.now)

    def _access(self, row: int) -> Process:
        traffic, seconds = self.traffic, 0.0
        while (step := traffic.enter()) is None:
            yield self.wait()
            seconds = self.program.handoffs[row]
        match step.way:
            case ActionMode.STAGE | ActionMode.STAGED | ActionMode.AHEAD:
                seconds += self.program.own[row]
            case ActionMode.DIRECT:
                while not traffic.ended():
                    yield self.wait()
                seconds = self.program.handoffs[row]
            case _:
                pass
        if self.passes(seconds):
            yield from self.work(seconds)
        traffic.leave()

    # Near actions

    def _pass(self, stop: int) -> Process:
        """All near actions up to a row, in strides."""
        traffic = self.traffic
        while (first := traffic.row) < stop:
            self._limit = traffic.goes_to(stop, ())
            if self._limit == first:
                while not traffic.enter_near():
                    yield self.wait()
                self._limit = traffic.goes_to(stop, ())
            yield from self._stride(first)

    def _stride(self, first: int) -> Process:
        """As many of them, up to the limit, as nobody has to look at."""
        traffic, clock = self.traffic, self._clock
        if clock[self._limit] == clock[first]:  # no time passes: nobody looks
            traffic.be_before(self._limit)
            return
        self._shift = self.environment.now - clock[first]
        self._strides = self._works = True
        self._look(clock[first])
        self.begin_all()
        going = True
        while going:
            self._limit, self._lost = min(self._limit, self._goes_to()), 0.0
            seconds = max(0.0, clock[self._limit] + self._shift - self.environment.now)
            try:
                while seconds:
                    yield Alarm(self.environment).ring(PROGRAM, seconds)
                    seconds, self._lost = self._lost, 0.0
                going = False
            except simpy.Interrupt:
                pass  # something has begun: it goes less far
        self._strides = self._works = False
        traffic.be_before(self._limit)

    def _look(self, clock: float) -> None:
        """See which row it is at."""
        row = self.traffic.row
        self.traffic.be_inside(max(row, bisect_right(self._clock, clock, row, self._limit) - 1))

    def _goes_to(self) -> int:
        return self.traffic.goes_to(self._limit, compress(count(), self._idle))

    # Transfers

    def begin_all(self) -> None:
        for number, idle in enumerate(self._idle):
            if idle and self.traffic.may_begin(number):
                self.begin(number)

    def begin_now(self) -> None:
        """Let channels begin; the program may then go less far at once."""
        if self._strides:
            self._look(self.environment.now - self._shift)
        self.begin_all()
        if self._strides and self._goes_to() < self._limit:
            self.performing.interrupt()

    def hinder(self, seconds: float, /) -> None:
        super().hinder(seconds)
        self._shift += seconds

    def begin(self, number: int, /) -> None:
        """Let an idle channel begin what it can."""
        transfer, program = self.traffic.begin(number), self.program
        if transfer is None:
            return
        row = transfer.row
        if not transfer.direct:
            self.hinder(program.hinders[row])
        if program.is_shared[row]:
            lane = program.lanes[program.level[row], program.op[row], transfer.direct]
            self._share(number, lane, program.nbytes[row])
        else:
            self.occupy(number, (program.seconds if transfer.direct else program.beside)[row])

    def _share(self, number: int, lane: Lane, nbytes: int) -> None:
        """A transfer on a shared channel: its latency, and then its bytes."""
        end = self.occupy(number)

        def move(_: simpy.Event) -> None:
            self._moving[number] = lane, nbytes, self.environment.now
            channel, stored = self.channels[lane.channel], lane.ratio * nbytes
            channel.transfer(lane.speed, stored, self.clients, done=end)

        latency = self.environment.timeout(lane.price.latency)
        assert latency.callbacks is not None
        latency.callbacks.append(move)

    def end(self, number: int, /) -> None:
        """What a channel does ends now."""
        now = self.finish = self.environment.now
        if (moving := self._moving.pop(number, None)) is not None:
            lane, nbytes, begun = moving
            more = now - begun - lane.price.per_byte * nbytes
            if more > ROUNDING * now:
                self.slowed[lane.channel] += more
            self.nbytes[lane.channel] += lane.ratio * nbytes
        self.traffic.end(number)
