"""Simulate many ranks with one schedule: when each is done, and what it waited for.

A group of ranks that are alike is a process of simpy: equal clients that begin together end
together. Without overlap a group has its private stretches, each of which is one timeout, and
between them its turns on shared channels. With overlap it has a program and channels of its own, by
the rules of `ckio.overlap`; its transfers on a channel that all share take their part of the
bandwidth there, all others the level's price. What a program does between two far accesses is one
timeout for as long as no channel could begin anything: a stride.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import compress, count
from typing import Final, TypeAlias

import numpy as np
import simpy

from ckio.errors import BadInput
from ckio.overlap.rules import Traffic, Transfer, TransferColumns
from ckio.platform import Platform
from ckio.schedule import Schedule, moved_of
from ckio.schedule.policy import SYNCHRONOUS, Overlap
from ckio.schedule.replay import validate
from ckio.sim.overlapped import PROGRAM, Process, Rank, RowCosts, TimedEvent
from ckio.sim.ranks import Barrier, Ranks
from ckio.sim.ranks.channel import Channel, Gate
from ckio.sim.ranks.stretches import (
    Folded,
    Groups,
    LanePrice,
    Lanes,
    Row,
    Seconds,
    by_rows,
    divide,
    fold,
    is_shared,
)

Watch: TypeAlias = Callable[[int], object]

_OFTEN = 1 << 14
"""Transfers between two calls of `watch`."""

ROUNDING: Final = 1e-12
"""The exactness of a difference between two times, as a part of the later one."""


@dataclass(frozen=True, eq=False)
class ChannelUse:
    """The use of a shared channel by all ranks together.

    Attributes
    ----------
    bandwidth : float
        Bytes per second that it has.
    nbytes : float
        Bytes that were moved, as they are stored.
    busy : float
        Seconds for which at least one transfer moved bytes.
    most : int
        The most ranks that moved bytes at one time.
    slowed : float64 array
        For each rank, seconds that its transfers took beyond the level's own price.
    """

    bandwidth: float
    nbytes: float
    busy: float
    most: int
    slowed: Seconds

    @property
    def achieved(self) -> float:
        """Return bytes per second while it was busy; 0 if it never was.

        Times are rounded, so that a transfer of much less than their last digit may seem to take
        less than its bandwidth allows.
        """
        return min(self.bandwidth, self.nbytes / self.busy) if self.busy else 0.0


@dataclass(frozen=True, eq=False)
class RanksOutcome:
    """When every rank is done, and what it waited for.

    Attributes
    ----------
    finish : float64 array
        For each rank, seconds to the end of its schedule.
    waited : float64 array
        For each rank, seconds for which it waited until others came: at barriers, and where
        collective writes begin.
    channels : mapping of str to ChannelUse
        By name, the shared channels.
    groups : int
        How many different ranks there were to simulate.
    """

    finish: Seconds
    waited: Seconds
    channels: Mapping[str, ChannelUse]
    groups: int

    @property
    def makespan(self) -> float:
        """Seconds until all are done."""
        return float(self.finish.max())

    @property
    def slowest(self) -> int:
        """The rank that is done last; of several, the first."""
        return int(self.finish.argmax())


def simulate_ranks(
    schedule: Schedule,
    platform: Platform,
    ranks: Ranks,
    /,
    *,
    overlap: Overlap = SYNCHRONOUS,
    one_by_one: bool = False,
    watch: Watch | None = None,
) -> RanksOutcome:
    """Return when each of many ranks is done with a legal schedule.

    Every rank pays the platform's prices. On a shared channel it also has to share: first its
    latency passes, then it moves its bytes at the speed of the level's own price (without limit,
    where that has no part for each byte) or at its share of the bandwidth, whichever is less.
    Discards move nothing and are not shared. One rank without `spread` and `jitter`, on channels as
    fast as its levels, takes `makespan`, but for rounding: sums are taken stretch by stretch.

    With `overlap` each rank's transfers go on behind its program, by the rules of `ckio.overlap`,
    and a rank is done when they are too. Transfers of one rank on one channel take turns, whatever
    other ranks do there. What a level's profile says of transfers beside the computation holds.
    What it says of bytes that wait (`dirty`) is left out, with overlap and without.

    `one_by_one` simulates ranks that are alike each by itself, which takes longer and finds the
    same. `watch` is called now and then with how many more transfers are done, of all ranks.

    Raises IllegalAction as `validate` does, BadInput as `fold` does, and for collective writes and
    for barriers with overlap.
    """
    validate(schedule, platform)
    if overlap:
        costs = RankCosts(schedule, platform, ranks)
        groups = divide(by_rows(schedule, platform), ranks, one_by_one=one_by_one)
        run = concurrent(costs, overlap, groups, watch)
    else:
        folded = fold(schedule, platform, ranks)
        groups = divide(folded, ranks, one_by_one=one_by_one)
        run = synchronous(folded, ranks, groups, watch)
    each = groups.of_rank
    uses = {
        name: ChannelUse(
            bandwidth=shared.bandwidth,
            nbytes=run.nbytes[at],
            busy=channel.busy,
            most=channel.most,
            slowed=run.slowed[each, at],
        )
        for at, ((name, shared), channel) in enumerate(
            zip(ranks.shared.items(), run.channels, strict=True)
        )
    }
    waited = groups.waited + run.waited[each]
    return RanksOutcome(run.finish[each], waited, uses, len(groups.clients))


class SharedRun:
    """All groups of ranks, from their start to the end of the last, and what they share.

    Attributes
    ----------
    environment : simpy.Environment
    channels : list of Channel
        The shared ones, in their order.
    gate : Gate
        It opens when all ranks have come.
    finish : float64 array
        For each group, when it is done.
    waited : float64 array
        For each group, seconds at the gate.
    slowed : float64 array, groups by channels
        Seconds beyond those that the transfers would have taken alone.
    nbytes : list of float
        Bytes moved on each shared channel.
    """

    def __init__(
        self, ranks: Ranks, groups: Groups, speeds: Iterable[list[float]], watch: Watch | None, /
    ) -> None:
        self.environment = simpy.Environment()
        self.channels = [
            Channel(self.environment, shared.bandwidth, each)
            for shared, each in zip(ranks.shared.values(), speeds, strict=True)
        ]
        self.gate = Gate(self.environment, ranks.count)
        self.finish, self.waited = np.zeros((2, len(groups.clients)))
        self.slowed = np.zeros((len(groups.clients), len(self.channels)))
        self.nbytes = [0.0] * len(self.channels)
        self._watch, self._unheard = watch, 0

    def hear(self, clients: int, /) -> None:
        """Note that so many ranks have made a transfer."""
        self._unheard += clients
        if self._unheard >= _OFTEN:
            self._tell()

    def complete(self) -> None:
        """Let all groups come to their ends."""
        self.environment.run()
        self._tell()

    def _tell(self) -> None:
        if self._watch is not None and self._unheard:
            self._watch(self._unheard)
        self._unheard = 0


def synchronous(folded: Folded, ranks: Ranks, groups: Groups, watch: Watch | None, /) -> SharedRun:
    """Return what all groups did, each of which waits for its transfers."""
    run = SharedRun(ranks, groups, folded.transfers.speeds, watch)
    moved = map(folded.transfers.moved, range(len(run.channels)))
    run.nbytes = [ranks.count * nbytes for nbytes in moved]
    rows = folded.transfers.rows()
    for number, group in enumerate(zip(groups.clients.tolist(), groups.stretches, strict=True)):
        run.environment.process(_waiting(run, rows, number, *group))
    run.complete()
    return run


def _waiting(
    run: SharedRun,
    rows: list[Row],
    number: int,
    clients: int,
    stretches: Seconds,
) -> Process:
    """One group: a stretch, a transfer, a stretch, and a stretch in the end."""
    environment, gate, channels = run.environment, run.gate, run.channels
    waited, slowed = 0.0, [0.0] * len(channels)
    private = iter(stretches.data)  # of a memory view: plain numbers, eight bytes each
    for channel, speed, nbytes, latency, alone, collective in rows:
        yield environment.timeout(next(private))
        if collective:
            come = environment.now
            yield gate.enter(clients)
            waited += environment.now - come
            yield environment.timeout(latency)
        begun = environment.now
        yield channels[channel].transfer(speed, nbytes, clients)
        more = environment.now - begun - alone
        if more > ROUNDING * environment.now:
            slowed[channel] += more
        run.hear(clients)
    yield environment.timeout(next(private))
    run.finish[number], run.waited[number] = environment.now, waited
    run.slowed[number] = slowed


class RankCosts(RowCosts):
    """The costs of all ranks: the seconds of each action, and the lanes of shared channels.

    Raises BadInput for what ranks do not have with overlap: collective writes, and barriers.

    Attributes
    ----------
    schedule, platform, ranks
    nbytes : int64
        Bytes that each access takes time for.
    is_shared : bool
        Whether it is a transfer on a shared channel.
    lanes : Lanes
    """

    def __init__(self, schedule: Schedule, platform: Platform, ranks: Ranks, /) -> None:
        for name, shared in ranks.shared.items():
            if shared.collective:
                raise BadInput(
                    f"ranks: writes to {name!r} are collective, and go on behind no program; say"
                    " no overlap"
                )
        if ranks.barrier is not Barrier.NONE:
            raise BadInput("ranks: there are no barriers where transfers overlap; say no overlap")
        super().__init__(schedule, platform)
        self.schedule, self.platform, self.ranks = schedule, platform, ranks
        self.nbytes = moved_of(schedule, platform).data
        self.is_shared = is_shared(schedule, platform, ranks).data
        self.lanes = Lanes(platform, ranks, overlap=True)


def concurrent(
    costs: RankCosts, overlap: Overlap, groups: Groups, watch: Watch | None, /
) -> SharedRun:
    """Return what all groups did, whose transfers are concurrent with their programs."""
    run = SharedRun(costs.ranks, groups, costs.lanes.speeds, watch)
    columns = TransferColumns(costs.schedule, costs.platform)

    def traffic() -> Traffic:
        return Traffic(costs.schedule, costs.platform, overlap, columns=columns)

    parts = [
        _Concurrent(run, traffic(), costs, clients, seconds)
        for clients, seconds in zip(groups.clients.tolist(), groups.stretches, strict=True)
    ]
    run.complete()
    for number, rank in enumerate(parts):
        rank.check_finished()
        run.finish[number], run.slowed[number] = rank.finish, rank.slowed
    moved = np.array([rank.clients * np.array(rank.nbytes) for rank in parts])
    run.nbytes = moved.sum(axis=0).tolist()
    return run


class _Concurrent(Rank):
    """One rank, or a group of those that are alike."""

    costs: RankCosts

    def __init__(
        self, run: SharedRun, traffic: Traffic, costs: RankCosts, clients: int, seconds: Seconds
    ) -> None:
        super().__init__(run.environment, traffic, costs)
        self.run, self.clients = run, clients
        self.nbytes, self.slowed = ([0.0] * len(run.channels) for _ in range(2))
        self._clock = np.concatenate(([0.0], np.cumsum(seconds))).data  # by row, of near ones
        self._moving: dict[int, tuple[LanePrice, int, float]] = {}  # by channel, since when
        self._strides = False
        self._limit = 0  # the row that this stride goes up to
        self._shift = 0.0  # between its clock and the environment's

    def accessed(self, row: int, start: float, /) -> None:
        """Count a transfer on a shared channel."""
        if self.costs.is_shared[row]:
            self.run.hear(self.clients)

    # Near actions

    def pass_near(self, stop: int, /) -> Process:
        """All near actions up to a row, in strides."""
        traffic = self.traffic
        while (first := traffic.row) < stop:
            self._limit = traffic.undisturbed(stop, ())
            if self._limit == first:
                while traffic.enter() is None:
                    yield self.wait()
                self._limit = traffic.undisturbed(stop, ())
            yield from self._stride(first)

    def _stride(self, first: int) -> Process:
        """Perform as many of them, up to the limit, as disturb no channel."""
        traffic, clock = self.traffic, self._clock
        if clock[self._limit] == clock[first]:  # no time passes, so no channel begins
            traffic.be_at(self._limit, begun=False)
            return
        self._shift = self.environment.now - clock[first]
        self._strides = self.works = True
        self._look(clock[first])
        self.begin_all()
        interrupted = True
        while interrupted:
            interrupted, self.lost = False, 0.0
            self._limit = min(self._limit, self._undisturbed())
            seconds = max(0.0, clock[self._limit] + self._shift - self.environment.now)
            try:
                while seconds:
                    yield TimedEvent(self.environment).ring(PROGRAM, seconds)
                    seconds, self.lost = self.lost, 0.0
            except simpy.Interrupt:
                interrupted = True  # a transfer has begun: the stride is shorter
        self._strides = self.works = False
        traffic.be_at(self._limit, begun=False)

    def _look(self, clock: float) -> None:
        """Find the row that the program is at."""
        row = self.traffic.row
        now = bisect_right(self._clock, clock, row, self._limit) - 1
        self.traffic.be_at(max(row, now), begun=True)

    def _undisturbed(self) -> int:
        return self.traffic.undisturbed(self._limit, compress(count(), self.idle))

    # Transfers

    def begin_meanwhile(self) -> None:
        """Let channels begin; the stride may then end sooner."""
        if self._strides:
            self._look(self.environment.now - self._shift)
        self.begin_all()
        if self._strides and self._undisturbed() < self._limit:
            self.performing.interrupt()

    def hinder(self, seconds: float, /) -> None:
        """Delay the stride, and all that comes after it."""
        super().hinder(seconds)
        self._shift += seconds

    def carry(self, number: int, transfer: Transfer, /) -> None:
        """Occupy the channel: on a shared one, for its latency and then its bytes."""
        row, costs = transfer.row, self.costs
        if not costs.is_shared[row]:
            self.occupy(number, (costs.seconds if transfer.direct else costs.concurrent)[row])
            return
        lane = costs.lanes.of[costs.level[row], costs.op[row], transfer.direct]
        nbytes, end = costs.nbytes[row], self.occupy(number)

        def move(_: simpy.Event) -> None:
            self._moving[number] = lane, nbytes, self.environment.now
            channel, stored = self.run.channels[lane.channel], lane.ratio * nbytes
            channel.transfer(lane.speed, stored, self.clients, done=end)

        latency = self.environment.timeout(lane.price.latency)
        assert latency.callbacks is not None
        latency.callbacks.append(move)

    def end(self, number: int, /) -> None:
        """Note how much longer a shared transfer took than alone."""
        if (moving := self._moving.pop(number, None)) is not None:
            lane, nbytes, begun = moving
            now = self.environment.now
            more = now - begun - lane.price.per_byte * nbytes
            if more > ROUNDING * now:
                self.slowed[lane.channel] += more
            self.nbytes[lane.channel] += lane.ratio * nbytes
        super().end(number)
