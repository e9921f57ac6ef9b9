"""Seconds of transfers: of those concurrent with the computation, and of writes that have to wait.

A write waits where the operating system has cached as many bytes as it does, and not yet brought
them to the device.
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
    """Seconds of each action, were it a transfer that is staged or made ahead.

    Attributes
    ----------
    seconds : float64 array
        What the transfer takes; where the level's profile says nothing, what the action takes.
    own : float64 array
        What the program does of it; where the level's profile says nothing, a copy in memory. Of
        what the model hands over no byte is copied.
    hinders : float64 array
        What the computation loses by it, also by a discard; 0 for all that computes.
    handoffs : float64 array
        What the program takes in addition where it waits for a transfer.
    """

    seconds: Seconds
    own: Seconds
    hinders: Seconds
    handoffs: Seconds


def transfer_seconds(schedule: Schedule, platform: Platform, /) -> TransferSeconds:
    """The columns of a legal schedule."""
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
            for column, price, size in (
                (seconds, beside, nbytes),
                (own, copy, copied),
                (hinders, loss, nbytes),
                (handoffs, handoff, nbytes),
            ):
                if price is not None:
                    column[rows] = _of(price, size[rows])
    return TransferSeconds(seconds, own, hinders, handoffs)


def _copies(schedule: Schedule, platform: Platform) -> Seconds:
    """Seconds to copy to memory and from it, were each access to be that."""
    memory = memory_level(platform)
    if memory is None:
        return np.zeros(len(schedule))
    level, copied = platform.levels[memory], schedule.chain.copied_of(schedule.actions)
    write, read = _of(level.write, copied), _of(level.read, copied)
    return np.where(schedule.actions.op == WRITE, write, read)


def _of(price: Affine, nbytes: NDArray[np.int64]) -> Seconds:
    return price.latency + price.per_byte * nbytes.astype(np.float64)


class Backlog:
    """Bytes that wait, of one level: each write adds to them, and time takes them away.

    Where more would wait than the operating system takes, a write waits for the rest.
    """

    __slots__ = ("_dirty", "_drained", "_now", "_waiting")

    def __init__(self, dirty: int, drained: float, /) -> None:
        """Up to `dirty` bytes wait for nothing; `drained` bytes a second reach the device."""
        self._dirty, self._drained = dirty, drained
        self._now = self._waiting = 0.0

    def longer(self, now: float, nbytes: float, /) -> float:
        """Seconds that a write of so many stored bytes, which begins now, takes longer."""
        return max(0.0, (self._at(now) + nbytes - self._dirty) / self._drained)

    def add(self, now: float, nbytes: float, /) -> None:
        """A write of so many stored bytes ends now."""
        self._now, self._waiting = now, self._at(now) + nbytes

    def _at(self, now: float) -> float:
        return max(0.0, self._waiting - self._drained * (now - self._now))


def backlog_of(level: Level, /) -> Backlog | None:
    """Return an empty backlog for a level; None where its profile says nothing of it."""
    profile = level.profile
    if profile is None or profile.dirty is None or profile.drained is None:
        return None
    return Backlog(profile.dirty, profile.drained)


def backlogs_of(platform: Platform, /) -> dict[int, Backlog]:
    """Return the backlogs of all levels that have one, by the number of the level."""
    backlogs = {number: backlog_of(level) for number, level in enumerate(platform.levels)}
    return {number: backlog for number, backlog in backlogs.items() if backlog is not None}
