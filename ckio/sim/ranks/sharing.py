"""Simulate many ranks with one schedule: the end of each rank, and the times of waiting.

A group of equal ranks is one process of simpy, because equal clients that begin together end
together. Without overlap, each private stretch of a group is one timeout, and between stretches the
group uses shared channels. With overlap, the group has its own program and channels, by the rules
of `ckio.overlap`. Its transfers on a shared channel get their part of the bandwidth; all other
transfers take the seconds of the level's cost.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import simpy

from ckio.errors import BadInput
from ckio.overlap.rules import Traffic, Transfer, TransferColumns
from ckio.platform import Platform
from ckio.schedule import Schedule, moved_of
from ckio.schedule.policy import Overlap
from ckio.schedule.replay import validate
from ckio.sim.overlapped import Process, Rank, RowCosts
from ckio.sim.ranks import Barrier, Ranks
from ckio.sim.ranks.channel import Channel
from ckio.sim.ranks.stretches import (
    Groups,
    Seconds,
    SharedCost,
    SharedTransfer,
    by_rows,
    divide,
    fold,
    is_shared,
    shared_costs,
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
        For each rank, seconds of waiting for other ranks at barriers.
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
    channel is not on the platform, and for barriers with overlap.
    """
    validate(schedule, platform)
    overlap = schedule.overlap if overlap is None else overlap
    if overlap:
        if ranks.barrier is not Barrier.NONE:
            raise BadInput(
                "ranks: barriers cannot be simulated with overlap; choose no barrier or no overlap"
            )
        groups = divide(by_rows(schedule, platform), ranks, one_by_one=one_by_one)
        run = SharedRun(ranks, groups, watch)
        concurrent(run, schedule, platform, overlap)
    else:
        stretches, transfers = fold(schedule, platform, ranks)
        groups = divide(stretches, ranks, one_by_one=one_by_one)
        run = SharedRun(ranks, groups, watch)
        synchronous(run, transfers)
    each = groups.of_rank
    uses = {
        name: ChannelUse(
            bandwidth=bandwidth,
            nbytes=run.nbytes[name],
            busy=run.channels[name].busy,
            most=run.channels[name].most,
            slowed=run.slowed[name][each],
        )
        for name, bandwidth in ranks.shared.items()
    }
    return RanksOutcome(run.finish[each], groups.waited, uses, len(groups.clients))


class SharedRun:
    """The simulation of all groups of ranks, with their shared channels.

    Attributes
    ----------
    ranks : Ranks
    groups : Groups
    clients : list of int
        The number of ranks of each group.
    environment : simpy.Environment
    channels : dict of str to Channel
        The shared channels.
    finish : float64 array
        For each group, the time of its end in seconds.
    slowed : dict of str to float64 array
        For each shared channel and each group, the additional seconds of transfers compared with
        transfers alone.
    nbytes : dict of str to float
        Bytes transferred on each shared channel.
    """

    def __init__(self, ranks: Ranks, groups: Groups, watch: Watch | None, /) -> None:
        self.ranks, self.groups, self.clients = ranks, groups, groups.clients.tolist()
        self.environment = simpy.Environment()
        self.channels = {
            name: Channel(self.environment, bandwidth) for name, bandwidth in ranks.shared.items()
        }
        self.finish = np.zeros(len(self.clients))
        self.slowed = {name: np.zeros(len(self.clients)) for name in ranks.shared}
        self.nbytes = dict.fromkeys(ranks.shared, 0.0)
        self._watch, self._uncounted = watch, 0

    def count(self, group: int, /) -> None:
        """Count a transfer of each rank of a group, and call `watch` from time to time."""
        self._uncounted += self.clients[group]
        if self._uncounted >= _OFTEN:
            self._report()

    def add_slowed(self, channel: str, group: int, begun: float, alone: float, /) -> None:
        """Add the additional seconds of a transfer that ends now, compared with one alone."""
        now = self.environment.now
        more = now - begun - alone
        if more > ROUNDING * now:
            self.slowed[channel][group] += more

    def complete(self) -> None:
        """Simulate all groups to their ends."""
        self.environment.run()
        self._report()

    def _report(self) -> None:
        if self._watch is not None and self._uncounted:
            self._watch(self._uncounted)
        self._uncounted = 0


def synchronous(run: SharedRun, transfers: list[SharedTransfer], /) -> None:
    """Simulate all groups without overlap: each program waits for its transfers."""
    for name in run.channels:
        moved = sum(transfer.nbytes for transfer in transfers if transfer.channel == name)
        run.nbytes[name] = run.ranks.count * moved
    for group, stretches in enumerate(run.groups.stretches):
        run.environment.process(_waiting(run, transfers, group, stretches))
    run.complete()


def _waiting(
    run: SharedRun, transfers: list[SharedTransfer], group: int, stretches: Seconds
) -> Process:
    """Simulate one group: stretches and transfers alternate, and the last is a stretch."""
    environment = run.environment
    private = iter(stretches.data)  # a memory view yields Python numbers and needs little memory
    for channel, speed, nbytes, alone in transfers:
        yield environment.timeout(next(private))
        begun = environment.now
        yield run.channels[channel].transfer(speed, nbytes, run.clients[group])
        run.add_slowed(channel, group, begun, alone)
        run.count(group)
    yield environment.timeout(next(private))
    run.finish[group] = environment.now


class RankCosts(RowCosts):
    """The costs of all ranks: the seconds of each action, and the costs on shared channels.

    Attributes
    ----------
    nbytes : int64
        Bytes of each access on which its time depends.
    is_shared : bool
        Whether an action is a transfer on a shared channel.
    shared : mapping
        As `shared_costs` returns it.
    """

    def __init__(self, schedule: Schedule, platform: Platform, ranks: Ranks, /) -> None:
        super().__init__(schedule, platform)
        self.nbytes = moved_of(schedule, platform).data
        self.is_shared = is_shared(schedule, platform, ranks).data
        self.shared = shared_costs(platform, ranks)


def concurrent(run: SharedRun, schedule: Schedule, platform: Platform, overlap: Overlap, /) -> None:
    """Simulate all groups with overlap: transfers are concurrent with the programs."""
    costs = RankCosts(schedule, platform, run.ranks)
    columns, parts = TransferColumns(schedule, platform), []
    for group, seconds in enumerate(run.groups.stretches):
        traffic = Traffic(schedule, platform, overlap, columns=columns)
        parts.append(_Concurrent(run, traffic, costs, group, seconds))
    run.complete()
    for group, rank in enumerate(parts):
        rank.check_finished()
        run.finish[group] = rank.finish


class _Concurrent(Rank):
    """One rank, or a group of equal ranks."""

    costs: RankCosts

    def __init__(
        self, run: SharedRun, traffic: Traffic, costs: RankCosts, group: int, seconds: Seconds
    ) -> None:
        super().__init__(run.environment, traffic, costs)
        self._run, self._group = run, group
        self._seconds = seconds.data  # of near actions, by row
        self._moving: dict[int, tuple[SharedCost, int, float]] = {}  # by channel, with begin

    def pass_near(self, stop: int, /) -> Process:
        """Perform near actions one after the other, up to a row."""
        traffic = self.traffic
        for row in range(traffic.row, stop):
            while traffic.enter() is None:
                yield self.wait()
            yield from self.work(self._seconds[row])
            traffic.leave()

    def accessed(self, row: int, start: float, /) -> None:
        """Count the transfer if it is on a shared channel."""
        if self.costs.is_shared[row]:
            self._run.count(self._group)

    def carry(self, number: int, transfer: Transfer, /) -> None:
        """Occupy the channel; on a shared channel, for the latency and then for the bytes."""
        row, costs = transfer.row, self.costs
        if not costs.is_shared[row]:
            self.occupy(number, (costs.seconds if transfer.direct else costs.concurrent)[row])
            return
        shared = costs.shared[costs.level[row], costs.op[row], transfer.direct]
        nbytes, end = costs.nbytes[row], self.occupy(number)

        def move(_: simpy.Event) -> None:
            self._moving[number] = shared, nbytes, self.environment.now
            channel, clients = self._run.channels[shared.channel], self._run.clients[self._group]
            channel.transfer(shared.speed, shared.ratio * nbytes, clients, done=end)

        latency = self.environment.timeout(shared.cost.latency)
        assert latency.callbacks is not None
        latency.callbacks.append(move)

    def end(self, number: int, /) -> None:
        """Record the bytes of a shared transfer, and its additional seconds."""
        if (moving := self._moving.pop(number, None)) is not None:
            shared, nbytes, begun = moving
            alone = shared.cost.per_byte * nbytes
            self._run.add_slowed(shared.channel, self._group, begun, alone)
            moved = shared.ratio * nbytes * self._run.clients[self._group]
            self._run.nbytes[shared.channel] += moved
        super().end(number)
