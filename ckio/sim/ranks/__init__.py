"""Many ranks with one schedule: each has levels of its own, and all share what is far away.

A rank is a process of simpy (`processes`). What it does by itself between two transfers on shared
channels is one timeout; only those transfers are events. Ranks that are alike go together as one
process, and that changes nothing: equal clients that begin together end together.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from ckio.platform import Platform
from ckio.schedule import Schedule
from ckio.schedule.policy import SYNCHRONOUS, Overlap
from ckio.schedule.replay import validate
from ckio.sim.ranks.processes import RankCosts, Watch, concurrent, synchronous
from ckio.sim.ranks.stretches import Seconds, by_rows, divide, fold
from ckio.sim.ranks.words import Ranks


@dataclass(frozen=True, eq=False)
class ChannelUse:
    """What all ranks together did on a shared channel.

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
        """Bytes per second while it was busy; 0 if it never was."""
        return self.nbytes / self.busy if self.busy else 0.0


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
    """When each of many ranks is done with a legal schedule.

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
        crowd = concurrent(costs, overlap, groups, watch)
    else:
        folded = fold(schedule, platform, ranks)
        groups = divide(folded, ranks, one_by_one=one_by_one)
        crowd = synchronous(folded, ranks, groups, watch)
    each = groups.of_rank
    uses = {
        name: ChannelUse(
            bandwidth=shared.bandwidth,
            nbytes=crowd.nbytes[at],
            busy=channel.busy,
            most=channel.most,
            slowed=crowd.slowed[each, at],
        )
        for at, ((name, shared), channel) in enumerate(
            zip(ranks.shared.items(), crowd.channels, strict=True)
        )
    }
    waited = groups.waited + crowd.waited[each]
    return RanksOutcome(crowd.finish[each], waited, uses, len(groups.clients))
