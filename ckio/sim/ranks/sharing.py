"""Simulate many ranks with one schedule: the end of each rank, and the times of waiting.

A group of equal ranks is one process of simpy, because equal clients that begin together end
together. Without overlap, each private stretch of a group is one timeout, and between stretches the
group uses shared channels. With overlap, the group has its own program and channels, by the rules
of `ckio.overlap`. Its transfers on a shared channel get their part of the bandwidth; all other
transfers take the seconds of the level's cost. The work of a program between two far accesses is
one timeout as long as no channel could begin a transfer meanwhile; this is called a stride.
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
from ckio.schedule.policy import Overlap
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
"""Number of transfers between two calls of `watch`."""

ROUNDING: Final = 1e-12
"""Rounding error of a difference between two times, relative to the later one."""


@dataclass(frozen=True, eq=False)
class ChannelUse:
    """The use of a shared channel by all ranks together.

    Attributes
    ----------
    bandwidth : float
        Its bandwidth in bytes per second.
    nbytes : float
        Stored bytes that were transferred.
    busy : float
        Seconds with at least one transfer.
    most : int
        Maximum number of ranks that transferred bytes at the same time.
    slowed : float64 array
        For each rank, the additional seconds of its transfers compared with the level's own cost.
    """

    bandwidth: float
    nbytes: float
    busy: float
    most: int
    slowed: Seconds

    @property
    def achieved(self) -> float:
        """Bytes per second while the channel was busy; 0 if it was never busy.

        It is limited to the bandwidth, because a very short transfer may seem faster by rounding.
        """
        return min(self.bandwidth, self.nbytes / self.busy) if self.busy else 0.0


@dataclass(frozen=True, eq=False)
class RanksOutcome:
    """The end of every rank, and the times of waiting.

    Attributes
    ----------
    finish : float64 array
        For each rank, seconds to the end of its schedule.
    waited : float64 array
        For each rank, seconds of waiting for other ranks: at barriers, and before collective
        writes.
    channels : mapping of str to ChannelUse
        The shared channels, by name.
    groups : int
        Number of groups of equal ranks that were simulated.
    """

    finish: Seconds
    waited: Seconds
    channels: Mapping[str, ChannelUse]
    groups: int

    @property
    def makespan(self) -> float:
        """Seconds until all ranks are done."""
        return float(self.finish.max())

    @property
    def slowest(self) -> int:
        """The rank that ends last; of several such ranks, the first."""
        return int(self.finish.argmax())


def simulate_ranks(
    schedule: Schedule,
    platform: Platform,
    ranks: Ranks,
    /,
    *,
    overlap: Overlap | None = None,
    one_by_one: bool = False,
    watch: Watch | None = None,
) -> RanksOutcome:
    """Simulate many ranks that perform the same legal schedule, each on its own levels.

    Each action of a rank takes the seconds of the platform's costs. On a shared channel a transfer
    first takes its latency. Then it transfers its bytes at the smaller of two speeds: that of the
    level's own cost (infinite, if the cost has no part per byte), and its share of the channel's
    bandwidth. Discards transfer nothing and are not shared. For one rank without `spread` and
    `jitter`, on channels as fast as its levels, the result is `makespan` except for rounding errors
    (sums are computed stretch by stretch).

    With `overlap` (by default, the policy of the schedule), the transfers of a rank are concurrent
    with its program, by the rules of `ckio.overlap`, and the rank is done when its program and its
    transfers are done. The transfers of one rank on one channel are executed one after the other,
    independently of other ranks. The costs of concurrent transfers in a level's profile are used;
    its limit for cached writes (`dirty`) is ignored, with and without overlap.

    Parameters
    ----------
    schedule, platform, ranks, overlap
        The schedule, the platform with all costs, the ranks, and the concurrent transfers.
    one_by_one
        Whether equal ranks are simulated separately. This takes longer, and the result is the same.
    watch
        Function that is called from time to time with the number of further transfers, of all
        ranks.

    Raises IllegalAction if the schedule breaks a rule of `Machine`. Raises BadInput if a shared
    channel is not on the platform, for more than 1e200 seconds, and, with overlap, for collective
    writes and for barriers.
    """
    validate(schedule, platform)
    overlap = schedule.overlap if overlap is None else overlap
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
    """The simulation of all groups of ranks, with their shared channels.

    Attributes
    ----------
    environment : simpy.Environment
    channels : list of Channel
        The shared channels, in their order.
    gate : Gate
        The gate for collective writes, which opens when all ranks have arrived.
    finish : float64 array
        For each group, the time of its end in seconds.
    waited : float64 array
        For each group, seconds of waiting at the gate.
    slowed : float64 array, groups by channels
        Additional seconds of transfers, compared with transfers alone.
    nbytes : list of float
        Bytes transferred on each shared channel.
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
        """Count a transfer of `clients` ranks, and call `watch` from time to time."""
        self._unheard += clients
        if self._unheard >= _OFTEN:
            self._tell()

    def complete(self) -> None:
        """Simulate all groups to their ends."""
        self.environment.run()
        self._tell()

    def _tell(self) -> None:
        if self._watch is not None and self._unheard:
            self._watch(self._unheard)
        self._unheard = 0


def synchronous(folded: Folded, ranks: Ranks, groups: Groups, watch: Watch | None, /) -> SharedRun:
    """Simulate all groups without overlap: each program waits for its transfers."""
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
    """Simulate one group: stretches and transfers alternate, and the last is a stretch."""
    environment, gate, channels = run.environment, run.gate, run.channels
    waited, slowed = 0.0, [0.0] * len(channels)
    private = iter(stretches.data)  # a memory view yields Python numbers and needs little memory
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

    Raises BadInput for collective writes and for barriers, which are not possible with overlap.

    Attributes
    ----------
    schedule, platform, ranks
    nbytes : int64
        Bytes of each access on which its time depends.
    is_shared : bool
        Whether an action is a transfer on a shared channel.
    lanes : Lanes
    """

    def __init__(self, schedule: Schedule, platform: Platform, ranks: Ranks, /) -> None:
        for name, shared in ranks.shared.items():
            if shared.collective:
                raise BadInput(
                    f"ranks: writes to {name!r} are collective; a collective write cannot be"
                    " concurrent with the program: simulate without overlap"
                )
        if ranks.barrier is not Barrier.NONE:
            raise BadInput(
                "ranks: barriers cannot be simulated with overlap; choose no barrier or no overlap"
            )
        super().__init__(schedule, platform)
        self.schedule, self.platform, self.ranks = schedule, platform, ranks
        self.nbytes = moved_of(schedule, platform).data
        self.is_shared = is_shared(schedule, platform, ranks).data
        self.lanes = Lanes(platform, ranks, overlap=True)


def concurrent(
    costs: RankCosts, overlap: Overlap, groups: Groups, watch: Watch | None, /
) -> SharedRun:
    """Simulate all groups with overlap: transfers are concurrent with the programs."""
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
    """One rank, or a group of equal ranks."""

    costs: RankCosts

    def __init__(
        self, run: SharedRun, traffic: Traffic, costs: RankCosts, clients: int, seconds: Seconds
    ) -> None:
        super().__init__(run.environment, traffic, costs)
        self.run, self.clients = run, clients
        self.nbytes, self.slowed = ([0.0] * len(run.channels) for _ in range(2))
        self._clock = np.concatenate(([0.0], np.cumsum(seconds))).data  # of near actions, by row
        self._moving: dict[int, tuple[LanePrice, int, float]] = {}  # by channel, with begin
        self._strides = False
        self._limit = 0  # the row at which this stride ends
        self._shift = 0.0  # between the clock of near actions and the environment's clock

    def accessed(self, row: int, start: float, /) -> None:
        """Count the transfer if it is on a shared channel."""
        if self.costs.is_shared[row]:
            self.run.hear(self.clients)

    # Near actions

    def pass_near(self, stop: int, /) -> Process:
        """Perform all near actions up to a row, in strides."""
        traffic = self.traffic
        while (first := traffic.row) < stop:
            self._limit = traffic.undisturbed(stop, ())
            if self._limit == first:
                while traffic.enter() is None:
                    yield self.wait()
                self._limit = traffic.undisturbed(stop, ())
            yield from self._stride(first)

    def _stride(self, first: int) -> Process:
        """Perform near actions up to the limit, or until one affects a channel."""
        traffic, clock = self.traffic, self._clock
        if clock[self._limit] == clock[first]:  # no time passes, so that no channel begins
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
                interrupted = True  # a transfer has begun, so that the stride becomes shorter
        self._strides = self.works = False
        traffic.be_at(self._limit, begun=False)

    def _look(self, clock: float) -> None:
        """Set the current row of the program from the clock."""
        row = self.traffic.row
        now = bisect_right(self._clock, clock, row, self._limit) - 1
        self.traffic.be_at(max(row, now), begun=True)

    def _undisturbed(self) -> int:
        return self.traffic.undisturbed(self._limit, compress(count(), self.idle))

    # Transfers

    def begin_meanwhile(self) -> None:
        """Begin transfers; after this the stride may end sooner."""
        if self._strides:
            self._look(self.environment.now - self._shift)
        self.begin_all()
        if self._strides and self._undisturbed() < self._limit:
            self.performing.interrupt()

    def hinder(self, seconds: float, /) -> None:
        """Delay the stride and everything after it."""
        super().hinder(seconds)
        self._shift += seconds

    def carry(self, number: int, transfer: Transfer, /) -> None:
        """Occupy the channel; on a shared channel, for the latency and then for the bytes."""
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

        latency = self.environment.timeout(lane.cost.latency)
        assert latency.callbacks is not None
        latency.callbacks.append(move)

    def end(self, number: int, /) -> None:
        """Record the additional seconds of a shared transfer, compared with a transfer alone."""
        if (moving := self._moving.pop(number, None)) is not None:
            lane, nbytes, begun = moving
            now = self.environment.now
            more = now - begun - lane.cost.per_byte * nbytes
            if more > ROUNDING * now:
                self.slowed[lane.channel] += more
            self.nbytes[lane.channel] += lane.ratio * nbytes
        super().end(number)
