"""The private work of each rank, its shared transfers, and groups of equal ranks.

A stretch is the work of a rank between two transfers on shared channels. With overlap, transfers
may begin at any action, so each action is its own stretch. Ranks that do the same at the same time
form one group.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import inf
from typing import Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ckio.actions.columns import READ, WRITE
from ckio.errors import BadInput
from ckio.platform import Affine, Platform, memory_level
from ckio.platform.chain import SECONDS
from ckio.platform.profile import Profile
from ckio.schedule import Schedule, moved_of, seconds_of
from ckio.sim.ranks import Barrier, Ranks

Seconds = NDArray[np.float64]

_MOST_STEPS: Final = 20_000_000
"""Maximum number of steps of all actions; each needs about 50 bytes here."""

_NOTHING: Final = Profile()


@dataclass(frozen=True, slots=True)
class SharedCost:
    """The cost of one sort of transfers on a shared channel.

    Attributes
    ----------
    channel : str
        The name of the channel.
    cost : Affine
        The cost of the level, in seconds.
    ratio : float
        Stored bytes per byte.
    """

    channel: str
    cost: Affine
    ratio: float

    @property
    def speed(self) -> float:
        """Stored bytes per second of a transfer alone; infinite without a cost per byte."""
        return self.ratio / self.cost.per_byte if self.cost.per_byte else inf


SharedCosts: TypeAlias = Mapping[tuple[int, int, bool], SharedCost]
"""By the number of the level, the code of the action, and whether the program waits for it."""


def shared_costs(platform: Platform, ranks: Ranks, /) -> SharedCosts:
    """Return the costs of all transfers on shared channels. Without overlap the program waits."""
    costs = {}
    for number, level in enumerate(platform.levels):
        if level.channel in ranks.shared:
            profile = level.profile or _NOTHING
            for op, alone, concurrent in (
                (WRITE, level.write, profile.write_beside),
                (READ, level.read, profile.read_beside),
            ):
                costs[number, op, True] = SharedCost(level.channel, alone, level.ratio)
                other = concurrent or alone
                costs[number, op, False] = SharedCost(level.channel, other, level.ratio)
    return costs


class SharedTransfer(NamedTuple):
    """A transfer of one rank on a shared channel, without overlap, after its latency.

    `nbytes` are stored bytes, and `speed` those per second of this transfer alone, which then takes
    `alone` seconds.
    """

    channel: str
    speed: float
    nbytes: float
    alone: float


@dataclass(frozen=True, eq=False)
class Stretches:
    """The private work of one rank.

    Attributes
    ----------
    private : float64 array, one item for each stretch
        Seconds of all work except the computed steps; they are the same for all ranks.
    steps : float64 array
        Seconds of each computed step, in their order.
    stretch : int64 array
        The stretch of each of these steps.
    """

    private: NDArray[np.float64]
    steps: NDArray[np.float64]
    stretch: NDArray[np.int64]

    def computing(self, steps: NDArray[np.float64], /) -> NDArray[np.float64]:
        """Return the sum of `steps` (seconds of each step) in each stretch, from left to right."""
        return _sums(self.stretch, steps, len(self.private))


def by_rows(schedule: Schedule, platform: Platform, /) -> Stretches:
    """Return the stretches with overlap: each action is a stretch; far accesses take no time here.

    The times of far accesses are those of their transfers.
    """
    actions, seconds = schedule.actions, seconds_of(schedule, platform)
    memory = memory_level(platform)
    computing = actions.op < WRITE
    far = ~computing & (actions.level != (-1 if memory is None else memory))
    seconds[computing | far] = 0.0
    seconds[~far] += platform.overhead
    rows = np.flatnonzero(computing)
    return Stretches(
        private=seconds,
        steps=_steps(schedule, computing),
        stretch=np.repeat(rows, (actions.end - actions.begin)[computing]),
    )


def is_shared(schedule: Schedule, platform: Platform, ranks: Ranks, /) -> NDArray[np.bool_]:
    """Return, for each action, whether it is a write or read on a shared channel.

    Raises BadInput if the platform has no channel with the name of a shared one.
    """
    names = {level.channel for level in platform.levels}
    for name in ranks.shared:
        if name not in names:
            known = ", ".join(sorted(names)) or "none"
            raise BadInput(f"no channel is named {name!r}; this platform has: {known}")
    shared = np.array([level.channel in ranks.shared for level in platform.levels], np.bool_)
    actions = schedule.actions
    rows: NDArray[np.bool_] = (actions.op == WRITE) | (actions.op == READ)
    rows[rows] = shared[actions.level[rows]]
    return rows


def fold(
    schedule: Schedule, platform: Platform, ranks: Ranks, /
) -> tuple[Stretches, list[SharedTransfer]]:
    """Return the m shared transfers of a rank, and its m + 1 stretches between and around them.

    This is without overlap. The work of a stretch includes the accesses to the rank's own levels,
    discards, and the latency of the next shared transfer. Raises BadInput as `is_shared` does.
    """
    shared, costs = is_shared(schedule, platform, ranks), shared_costs(platform, ranks)
    actions, seconds = schedule.actions, seconds_of(schedule, platform)
    computing, moved = actions.op < WRITE, moved_of(schedule, platform).data
    seconds[computing] = 0.0
    transfers = []
    for row in np.flatnonzero(shared).tolist():
        it = costs[int(actions.level[row]), int(actions.op[row]), True]
        alone = it.cost.per_byte * moved[row]
        transfers.append(SharedTransfer(it.channel, it.speed, it.ratio * moved[row], alone))
        seconds[row] = it.cost.latency
    stretch: NDArray[np.int64] = np.cumsum(shared) - shared  # the shared transfers before an action
    stretches = Stretches(
        private=_sums(stretch, seconds, len(transfers) + 1),
        steps=_steps(schedule, computing),
        stretch=np.repeat(stretch[computing], (actions.end - actions.begin)[computing]),
    )
    return stretches, transfers


def _sums(
    where: NDArray[np.int64], seconds: NDArray[np.float64], count: int
) -> NDArray[np.float64]:
    """Return the sums of `seconds` for each of `count` stretches; `where` gives the stretches."""
    return np.bincount(where, seconds, count).astype(np.float64, copy=False)


def _steps(schedule: Schedule, computing: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Return the seconds of each step of the advances, records and reversals."""
    actions = schedule.actions.take(computing)
    length = actions.end - actions.begin
    if (total := int(length.sum(dtype=np.float64))) > _MOST_STEPS:
        raise BadInput(
            f"ranks: the actions have {total} steps; at most {_MOST_STEPS} can be simulated"
        )
    first = np.cumsum(length) - length
    op = np.repeat(actions.op, length)
    step = np.arange(len(op)) + np.repeat(actions.begin - first, length)
    seconds = np.zeros(len(op))
    for code, name in enumerate(SECONDS):  # as the codes of actions: advance, record, reverse
        seconds[op == code] = schedule.chain.each(name)[step[op == code]]
    seconds[np.cumsum(length) - 1] -= schedule.chain.saved_by(schedule.actions)[computing]
    return np.maximum(seconds, 0.0)


@dataclass(frozen=True, eq=False)
class Groups:
    """The groups of equal ranks.

    Attributes
    ----------
    of_rank : int64 array
        The group of each rank.
    clients : int64 array
        The number of ranks of each group.
    stretches : iterable of float64 arrays
        For each group, the seconds of its private stretches; it can be iterated only once.
    waited : float64 array
        Seconds for which each rank waits at the barriers.
    """

    of_rank: NDArray[np.int64]
    clients: NDArray[np.int64]
    stretches: Iterable[Seconds]
    waited: Seconds


def divide(stretches: Stretches, ranks: Ranks, /, *, one_by_one: bool = False) -> Groups:
    """Put equal ranks into one group; with `one_by_one`, put each rank into its own group.

    With barriers all ranks are one group, which computes as long as the slowest rank, because from
    one barrier to the next all ranks do the same at the same time.
    """
    factors, waited = ranks.factors(), np.zeros(ranks.count)
    alike = np.arange(ranks.count)
    seconds: Iterable[Seconds]
    if ranks.barrier is not Barrier.NONE:
        slowest, waited = _abreast(stretches, ranks, factors)
        alike = alike if one_by_one else np.zeros_like(alike)
        seconds = (slowest for _ in range(1 + int(alike[-1])))
    elif ranks.jitter is not None:
        computed = _computed(stretches, ranks, factors)
        seconds = (stretches.computing(steps) + stretches.private for steps in computed)
    else:
        if not one_by_one:
            factors, alike = np.unique(factors, return_inverse=True)
        computing = stretches.computing(stretches.steps)
        seconds = (factor * computing + stretches.private for factor in factors.tolist())
    return Groups(alike, np.bincount(alike), seconds, waited)


def _abreast(stretches: Stretches, ranks: Ranks, factors: Seconds) -> tuple[Seconds, Seconds]:
    """Return the stretches of ranks that wait for each other, and the seconds that each waits."""
    if ranks.jitter is None:
        computing = stretches.computing(stretches.steps)
        most = factors.max()
        return most * computing + stretches.private, (most - factors) * computing.sum()
    own, slowest = np.zeros(ranks.count), np.zeros(())
    for rank, steps in enumerate(_computed(stretches, ranks, factors)):
        seconds = steps if ranks.barrier is Barrier.STEP else stretches.computing(steps)
        own[rank] = seconds.sum()
        slowest = np.maximum(slowest, seconds)
    if ranks.barrier is Barrier.STEP:
        slowest = stretches.computing(slowest)
    return slowest + stretches.private, np.maximum(slowest.sum() - own, 0.0)


def _computed(stretches: Stretches, ranks: Ranks, factors: Seconds) -> Iterator[Seconds]:
    """Yield, for each rank, the seconds of every step."""
    for rank, factor in enumerate(factors.tolist()):
        draws = ranks.draws(rank, len(stretches.steps))
        yield factor * stretches.steps if draws is None else factor * (draws * stretches.steps)
