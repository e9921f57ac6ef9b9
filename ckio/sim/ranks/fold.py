"""A schedule as one rank sees the others: stretches of its own, and transfers between them."""

from dataclasses import dataclass
from math import inf
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ckio.actions.columns import READ, WRITE, Actions
from ckio.errors import BadInput
from ckio.platform import Affine, Level, Platform, memory_level
from ckio.platform.chain import SECONDS
from ckio.schedule import Schedule, moved_of, seconds_of
from ckio.sim.ranks.words import Ranks

Row: TypeAlias = tuple[int, int, float, float, float, bool]

_MOST_STEPS: Final = 20_000_000
"""Steps of all actions, each of which takes some 50 bytes here."""

_MOST_SECONDS: Final = 1e200
"""So that no sum is infinite, whatever factors are drawn and however many ranks there are."""


@dataclass(frozen=True, eq=False)
class Transfers:
    """The transfers on shared channels in their order, of one rank.

    Each takes its latency, then it moves its bytes, at most as fast as its lane.

    Attributes
    ----------
    channel, lane : int64 arrays
        Where it takes place, as an index into `lanes`, and how fast, as one into its item.
    nbytes : float64 array
        Bytes to be moved, as they are stored: payload times the ratio of the level.
    latency, alone : float64 arrays
        Seconds before the first byte, and then to the last, by the level's own price.
    collective : bool array
        Whether it begins only when all ranks have come.
    lanes : tuple of tuples of float
        For each shared channel: the speeds of one client alone, in bytes per second; infinite
        where a price has no part for each byte.
    """

    channel: NDArray[np.int64]
    lane: NDArray[np.int64]
    nbytes: NDArray[np.float64]
    latency: NDArray[np.float64]
    alone: NDArray[np.float64]
    collective: NDArray[np.bool_]
    lanes: tuple[tuple[float, ...], ...]

    def __len__(self) -> int:
        return len(self.channel)

    def rows(self) -> list[Row]:
        """Each transfer in plain numbers: channel, lane, nbytes, latency, alone, collective."""
        columns = (self.channel, self.lane, self.nbytes, self.latency, self.alone, self.collective)
        return list(zip(*(column.tolist() for column in columns), strict=True))

    def moved(self, channel: int, /) -> float:
        """Bytes that one rank moves there."""
        return float(self.nbytes[self.channel == channel].sum())


@dataclass(frozen=True, eq=False)
class Stretches:
    """What one rank does by itself.

    Attributes
    ----------
    private : float64 array, one item for each stretch
        Seconds that do not depend on the rank.
    steps : float64 array
        Seconds of each step that is computed, in this order.
    stretch : int64 array
        In which stretch it is computed.
    """

    private: NDArray[np.float64]
    steps: NDArray[np.float64]
    stretch: NDArray[np.int64]

    def computing(self, steps: NDArray[np.float64], /) -> NDArray[np.float64]:
        """The sum of each stretch, added from left to right, of seconds given for each step."""
        return _sums(self.stretch, steps, len(self.private))


@dataclass(frozen=True, eq=False)
class Folded(Stretches):
    """Between m shared transfers, and around them, there are m + 1 private stretches.

    Private are levels of its own, discards, and the latency of the transfer that follows, unless
    it is collective.

    Attributes
    ----------
    transfers : Transfers
    """

    transfers: Transfers


def by_rows(schedule: Schedule, platform: Platform, /) -> Stretches:
    """With overlap each action is a stretch of its own, and far ones none: they have transfers.

    Raises BadInput for more than 1e200 seconds.
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
    """Which actions are transfers on a shared channel: its writes and reads.

    Raises BadInput where the platform has no channel of such a name.
    """
    names = {level.channel for level in platform.levels}
    for name in ranks.shared:
        if name not in names:
            known = ", ".join(sorted(names)) or "none"
            raise BadInput(f"no channel is named {name!r}; this platform has: {known}")
    shared = np.array([level.channel in ranks.shared for level in platform.levels], np.bool_)
    actions = schedule.actions
    found: NDArray[np.bool_] = (actions.op == WRITE) | (actions.op == READ)
    found[found] = shared[actions.level[found]]
    return found


def fold(schedule: Schedule, platform: Platform, ranks: Ranks, /) -> Folded:
    """The stretches and the shared transfers of a legal schedule.

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
    )  # how many shared transfers are before each action
    return Folded(
        transfers=transfers,
        private=_sums(stretch, seconds, len(transfers) + 1),
        steps=_steps(schedule, actions.take(computing)),
        stretch=np.repeat(stretch[computing], (actions.end - actions.begin)[computing]),
    )


def _sums(
    where: NDArray[np.int64], seconds: NDArray[np.float64], count: int
) -> NDArray[np.float64]:
    """The seconds added up by where they belong, in their order."""
    return np.bincount(where, seconds, count).astype(np.float64, copy=False)


def _transfers(
    schedule: Schedule, platform: Platform, ranks: Ranks, rows: NDArray[np.bool_]
) -> Transfers:
    """The shared transfers, a level and a direction at a time."""
    actions = schedule.actions.take(rows)
    payload = moved_of(schedule, platform)[rows]
    channel, lane = np.zeros((2, len(actions)), np.int64)
    nbytes, latency, alone = np.zeros((3, len(actions)))
    lanes: dict[str, list[float]] = {name: [] for name in ranks.shared}
    for number, level in enumerate(platform.levels):
        if level.channel not in ranks.shared:
            continue
        for op, price in ((WRITE, level.write), (READ, level.read)):
            here = (actions.op == op) & (actions.level == number)
            channel[here] = list(lanes).index(level.channel)
            lane[here] = _lane(lanes[level.channel], speed_of(level, price))
            nbytes[here] = level.ratio * payload[here]
            latency[here] = price.latency
            alone[here] = price.per_byte * payload[here]
    collective = np.array([shared.collective for shared in ranks.shared.values()], np.bool_)
    return Transfers(
        channel=channel,
        lane=lane,
        nbytes=nbytes,
        latency=latency,
        alone=alone,
        collective=(actions.op == WRITE) & collective[channel] if len(actions) else rows[:0],
        lanes=tuple(map(tuple, lanes.values())),
    )


def speed_of(level: Level, price: Affine, /) -> float:
    """Stored bytes per second of one client alone."""
    return level.ratio / price.per_byte if price.per_byte else inf


def _lane(speeds: list[float], speed: float) -> int:
    """Where this speed is among the others; it is added if it is not there."""
    if speed not in speeds:
        speeds.append(speed)
    return speeds.index(speed)


def _steps(schedule: Schedule, actions: Actions) -> NDArray[np.float64]:
    """Seconds of each step of these advances, records and reversals."""
    length = actions.end - actions.begin
    if (total := int(length.sum(dtype=np.float64))) > _MOST_STEPS:
        raise BadInput(
            f"ranks: the actions make {total} steps, each of which is kept; {_MOST_STEPS} at most"
        )
    first = np.cumsum(length) - length
    op = np.repeat(actions.op, length)
    step = np.arange(len(op)) + np.repeat(actions.begin - first, length)
    seconds = np.zeros(len(op))
    for code, name in enumerate(SECONDS):  # as the codes of actions: advance, record, reverse
        seconds[op == code] = schedule.chain.each(name)[step[op == code]]
    return seconds
