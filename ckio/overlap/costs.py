"""Seconds of transfers that are concurrent with the computation, and of writes that must wait.

A write waits if the operating system has cached its maximum of written bytes that are not on the
device yet.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ckio.actions.columns import DISCARD, READ, WRITE
from ckio.platform import Level, Platform, memory_level
from ckio.platform.profile import Affine, Profile
from ckio.schedule import Schedule, seconds_of

Seconds = NDArray[np.float64]

_NOTHING = Profile()


@dataclass(frozen=True, eq=False)
class TransferSeconds:
    """Seconds of each action, if it is a transfer in the background.

    Attributes
    ----------
    seconds : float64 array
        Duration of the transfer; without a value in the level's profile, that of the action.
    own : float64 array
        The program's part of it; without a value in the level's profile, that of a copy in memory.
        Checkpoints that the model passes without a copy have 0 copied bytes.
    hinders : float64 array
        Seconds by which it delays the computation, also for a discard; 0 for computations.
    handoffs : float64 array
        Additional seconds of the program if it waits for the transfer.
    """

    seconds: Seconds
    own: Seconds
    hinders: Seconds
    handoffs: Seconds


def transfer_seconds(schedule: Schedule, platform: Platform, /) -> TransferSeconds:
    """Return the seconds for each action of a legal schedule."""
    actions, nbytes = schedule.actions, schedule.chain.nbytes_of(schedule.actions)
    copied, memory = schedule.chain.copied_of(actions), memory_level(platform)
    seconds, own = seconds_of(schedule, platform), _copies(schedule, platform)
    hinders, handoffs = np.zeros((2, len(actions)))
    for number, level in enumerate(platform.levels):
        profile = _NOTHING if number == memory else level.profile or _NOTHING
        for op, beside, copy, loss, handoff in (
            (
                WRITE,
                profile.write_beside,
                profile.write_own,
                profile.write_hinders,
                profile.handoff,
            ),
            (READ, profile.read_beside, profile.read_own, profile.read_hinders, profile.handoff),
            (DISCARD, None, None, profile.discard_hinders, None),
        ):
            rows = (actions.op == op) & (actions.level == number)
            for column, cost, size in (
                (seconds, beside, nbytes),
                (own, copy, copied),
                (hinders, loss, nbytes),
                (handoffs, handoff, nbytes),
            ):
                if cost is not None:
                    column[rows] = _of(cost, size[rows])
    return TransferSeconds(seconds, own, hinders, handoffs)


def _copies(schedule: Schedule, platform: Platform) -> Seconds:
    """Return the seconds of each access, if it were a copy to or from memory."""
    memory = memory_level(platform)
    if memory is None:
        return np.zeros(len(schedule))
    level, copied = platform.levels[memory], schedule.chain.copied_of(schedule.actions)
    write, read = _of(level.write, copied), _of(level.read, copied)
    return np.where(schedule.actions.op == WRITE, write, read)


def _of(cost: Affine, nbytes: NDArray[np.int64]) -> Seconds:
    return cost.latency + cost.per_byte * nbytes.astype(np.float64)


class Backlog:
    """Written bytes of one level that are not on the device yet.

    Each write adds its bytes, and `drained` bytes per second reach the device. If more than `dirty`
    bytes would wait, a write takes longer, by the time in which the excess reaches the device.

    For example, with at most 100 waiting bytes and 10 bytes/s, two writes of 80 bytes at the same
    time: the second one waits for 60 bytes, which is 6 s.

    >>> backlog = Backlog(100, 10.0)
    >>> backlog.longer(0.0, 80), backlog.add(0.0, 80), backlog.longer(0.0, 80)
    (0.0, None, 6.0)
    """

    __slots__ = ("_dirty", "_drained", "_now", "_waiting")

    def __init__(self, dirty: int, drained: float, /) -> None:
        """Set the maximum of waiting bytes, and the bytes per second that reach the device."""
        self._dirty, self._drained = dirty, drained
        self._now = self._waiting = 0.0

    def longer(self, now: float, nbytes: float, /) -> float:
        """Return the additional seconds of a write of `nbytes` stored bytes that begins now."""
        return max(0.0, (self._at(now) + nbytes - self._dirty) / self._drained)

    def add(self, now: float, nbytes: float, /) -> None:
        """Record that a write of `nbytes` stored bytes ends now."""
        self._now, self._waiting = now, self._at(now) + nbytes

    def _at(self, now: float) -> float:
        return max(0.0, self._waiting - self._drained * (now - self._now))


def backlog_of(level: Level, /) -> Backlog | None:
    """Return an empty backlog for a level; None if its profile has no `dirty` and `drained`."""
    profile = level.profile
    if profile is None or profile.dirty is None or profile.drained is None:
        return None
    return Backlog(profile.dirty, profile.drained)


def backlogs_of(platform: Platform, /) -> dict[int, Backlog]:
    """Return the backlogs of all levels that have one, by the number of the level."""
    backlogs = {number: backlog_of(level) for number, level in enumerate(platform.levels)}
    return {number: backlog for number, backlog in backlogs.items() if backlog is not None}
