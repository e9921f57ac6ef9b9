"""The private work of each rank, its shared transfers, and groups of equal ranks.

A stretch is private work of a rank between two transfers on shared channels. Without overlap a
schedule is folded into stretches and the transfers between them; with overlap each action is a
stretch. Ranks that do the same at the same time form one group.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import inf
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ckio.actions.columns import READ, WRITE, Actions
from ckio.errors import BadInput
from ckio.platform import Affine, Platform, memory_level
from ckio.platform.chain import SECONDS
from ckio.platform.profile import Profile
from ckio.schedule import Schedule, moved_of, seconds_of
from ckio.sim.ranks import Barrier, Ranks

Row: TypeAlias = tuple[int, int, float, float, float, bool]
Seconds = NDArray[np.float64]

_MOST_STEPS: Final = 20_000_000
"""Maximum number of steps of all actions; each needs about 50 bytes here."""

_MOST_SECONDS: Final = 1e200
"""Maximum seconds, so that no sum is infinite with any factors and any number of ranks."""

_NOTHING: Final = Profile()


@dataclass(frozen=True, slots=True)
class LanePrice:
    """The speed and cost of one sort of transfers on a shared channel.

    Attributes
    ----------
    channel, speed : int
        The speed of such a transfer alone is `Lanes.speeds[channel][speed]`.
    cost : Affine
        The cost of the level, in seconds.
    ratio : float
        Stored bytes per byte.
    """

    channel: int
    speed: int
    cost: Affine
    ratio: float


class Lanes:
    """The lanes of all shared channels.

    Attributes
    ----------
    speeds : list of lists of float
        For each shared channel, the different speeds of a single client, in stored bytes per
        second. A speed is infinite if the cost of the level has no part per byte.
    of : dict
        The LanePrice for the level's number, the code of the action, and whether the program waits
        for the transfer. Without overlap it always waits.
    """

    def __init__(self, platform: Platform, ranks: Ranks, /, *, overlap: bool = False) -> None:
        names = list(ranks.shared)
        self.speeds: list[list[float]] = [[] for _ in names]
        self.of: dict[tuple[int, int, bool], LanePrice] = {}
        for number, level in enumerate(platform.levels):
            if level.channel not in names:
                continue
            channel, profile = names.index(level.channel), level.profile or _NOTHING
            for op, cost, concurrent in (
                (WRITE, level.write, profile.write_beside),
                (READ, level.read, profile.read_beside),
            ):
                for waits in (True, False) if overlap else (True,):
                    paid = cost if waits else concurrent or cost
                    speed = level.ratio / paid.per_byte if paid.per_byte else inf
                    speeds = self.speeds[channel]
                    if speed not in speeds:
                        speeds.append(speed)
                    index = speeds.index(speed)
                    self.of[number, op, waits] = LanePrice(channel, index, paid, level.ratio)


@dataclass(frozen=True, eq=False)
class SharedTransfers:
    """The transfers of one rank on shared channels, in their order.

    A transfer first takes its latency; then it transfers its bytes, at most at its speed.

    Attributes
    ----------
    channel, speed : int64 arrays
        The speed of a transfer alone is `speeds[channel][speed]`.
    nbytes : float64 array
        Stored bytes to transfer: payload times the ratio of the level.
    latency, alone : float64 arrays
        Seconds before the first byte, and from then to the last byte, by the level's own cost.
    collective : bool array
        Whether the transfer begins only when all ranks have reached it.
    speeds : list of lists of float
        As in `Lanes`.
    """

    channel: NDArray[np.int64]
    speed: NDArray[np.int64]
    nbytes: NDArray[np.float64]
    latency: NDArray[np.float64]
    alone: NDArray[np.float64]
    collective: NDArray[np.bool_]
    speeds: list[list[float]]

    def __len__(self) -> int:
        return len(self.channel)

    def rows(self) -> list[Row]:
        """Return each transfer as a tuple: channel, speed, nbytes, latency, alone, collective."""
        columns = (self.channel, self.speed, self.nbytes, self.latency, self.alone, self.collective)
        return list(zip(*(column.tolist() for column in columns), strict=True))

    def moved(self, channel: int, /) -> float:
        """Return the bytes that one rank transfers on a channel."""
        return float(self.nbytes[self.channel == channel].sum())


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


@dataclass(frozen=True, eq=False)
class Folded(Stretches):
    """The m shared transfers of a rank, and its m + 1 private stretches between and around them.

    Private work includes the accesses to the rank's own levels, discards, and the latency of the
    next shared transfer unless that is collective.

    Attributes
    ----------
    transfers : SharedTransfers
    """

    transfers: SharedTransfers


def by_rows(schedule: Schedule, platform: Platform, /) -> Stretches:
    """Return the stretches with overlap: each action is a stretch; far accesses take no time here.

    The times of far accesses are those of their transfers. Raises BadInput for more than 1e200
    seconds.
    """
    actions, seconds = schedule.actions, _seconds(schedule, platform)
    memory = memory_level(platform)
    computing = actions.op < WRITE
    far = ~computing & (actions.level != (-1 if memory is None else memory))
    seconds[computing | far] = 0.0
    seconds[~far] += platform.overhead
    rows = np.flatnonzero(computing)
    return Stretches(
        private=seconds,
        steps=_steps(schedule, actions.take(computing)),
        stretch=np.repeat(rows, (actions.end - actions.begin)[computing]),
    )


def _seconds(schedule: Schedule, platform: Platform) -> NDArray[np.float64]:
    seconds = seconds_of(schedule, platform)
    if seconds.max(initial=0.0) * max(1, len(seconds)) > _MOST_SECONDS:
        raise BadInput(f"ranks: this schedule may take more than {_MOST_SECONDS:g} seconds")
    return seconds


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


def fold(schedule: Schedule, platform: Platform, ranks: Ranks, /) -> Folded:
    """Return the stretches and the shared transfers of a legal schedule, without overlap.

    Raises BadInput as `is_shared` does, and for more than 1e200 seconds.
    """
    rows = is_shared(schedule, platform, ranks)
    actions, seconds = schedule.actions, _seconds(schedule, platform)
    computing = actions.op < WRITE
    transfers = _transfers(schedule, platform, ranks, rows)
    seconds[computing] = 0.0
    seconds[rows] = np.where(transfers.collective, 0.0, transfers.latency)
    stretch: NDArray[np.int64] = (
        np.cumsum(rows) - rows
    )  # the number of shared transfers before each action
    return Folded(
        transfers=transfers,
        private=_sums(stretch, seconds, len(transfers) + 1),
        steps=_steps(schedule, actions.take(computing)),
        stretch=np.repeat(stretch[computing], (actions.end - actions.begin)[computing]),
    )


def _sums(
    where: NDArray[np.int64], seconds: NDArray[np.float64], count: int
) -> NDArray[np.float64]:
    """Return the sums of `seconds` for each of `count` stretches; `where` gives the stretches."""
    return np.bincount(where, seconds, count).astype(np.float64, copy=False)


def _transfers(
    schedule: Schedule, platform: Platform, ranks: Ranks, rows: NDArray[np.bool_]
) -> SharedTransfers:
    """Return the shared transfers; the arrays are filled for one level and direction at a time."""
    actions = schedule.actions.take(rows)
    payload = moved_of(schedule, platform)[rows]
    channel, speed = np.zeros((2, len(actions)), np.int64)
    nbytes, latency, alone = np.zeros((3, len(actions)))
    lanes = Lanes(platform, ranks)
    for (number, op, _), lane in lanes.of.items():
        here = (actions.op == op) & (actions.level == number)
        channel[here], speed[here] = lane.channel, lane.speed
        nbytes[here] = lane.ratio * payload[here]
        latency[here] = lane.cost.latency
        alone[here] = lane.cost.per_byte * payload[here]
    collective = np.array([shared.collective for shared in ranks.shared.values()], np.bool_)
    return SharedTransfers(
        channel=channel,
        speed=speed,
        nbytes=nbytes,
        latency=latency,
        alone=alone,
        collective=(actions.op == WRITE) & collective[channel] if len(actions) else rows[:0],
        speeds=lanes.speeds,
    )


def _steps(schedule: Schedule, actions: Actions) -> NDArray[np.float64]:
    """Return the seconds of each step of these advances, records and reversals."""
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
    return seconds


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


def divide(folded: Stretches, ranks: Ranks, /, *, one_by_one: bool = False) -> Groups:
    """Put equal ranks into one group; with `one_by_one`, put each rank into its own group.

    With barriers all ranks are one group, which computes as long as the slowest rank, because from
    one barrier to the next all ranks do the same at the same time.
    """
    factors, waited = ranks.factors(), np.zeros(ranks.count)
    alike = np.arange(ranks.count)
    stretches: Iterable[Seconds]
    if ranks.barrier is not Barrier.NONE:
        slowest, waited = _abreast(folded, ranks, factors)
        alike = alike if one_by_one else np.zeros_like(alike)
        stretches = (slowest for _ in range(1 + int(alike[-1])))
    elif ranks.jitter is not None:
        computed = _computed(folded, ranks, factors)
        stretches = (folded.computing(steps) + folded.private for steps in computed)
    else:
        if not one_by_one:
            factors, alike = np.unique(factors, return_inverse=True)
        computing = folded.computing(folded.steps)
        stretches = (factor * computing + folded.private for factor in factors.tolist())
    return Groups(alike, np.bincount(alike), stretches, waited)


def _abreast(folded: Stretches, ranks: Ranks, factors: Seconds) -> tuple[Seconds, Seconds]:
    """Return the stretches of ranks that wait for each other, and the seconds that each waits."""
    if ranks.jitter is None:
        computing = folded.computing(folded.steps)
        most = factors.max()
        return most * computing + folded.private, (most - factors) * computing.sum()
    own, slowest = np.zeros(ranks.count), np.zeros(())
    for rank, steps in enumerate(_computed(folded, ranks, factors)):
        seconds = steps if ranks.barrier is Barrier.STEP else folded.computing(steps)
        own[rank] = seconds.sum()
        slowest = np.maximum(slowest, seconds)
    if ranks.barrier is Barrier.STEP:
        slowest = folded.computing(slowest)
    return slowest + folded.private, np.maximum(slowest.sum() - own, 0.0)


def _computed(folded: Stretches, ranks: Ranks, factors: Seconds) -> Iterator[Seconds]:
    """Yield, for each rank, the seconds of every step."""
    for rank, factor in enumerate(factors.tolist()):
        draws = ranks.draws(rank, len(folded.steps))
        yield factor * folded.steps if draws is None else factor * (draws * folded.steps)
