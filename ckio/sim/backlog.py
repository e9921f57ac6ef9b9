"""What the operating system has taken of a level's writes and not yet brought to the device."""

from ckio.platform import Level, Platform


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
    """That of a level, empty; None where its profile says nothing of it."""
    profile = level.profile
    if profile is None or profile.dirty is None or profile.drained is None:
        return None
    return Backlog(profile.dirty, profile.drained)


def backlogs_of(platform: Platform, /) -> dict[int, Backlog]:
    """By the number of the level, those that there are."""
    found = {number: backlog_of(level) for number, level in enumerate(platform.levels)}
    return {number: backlog for number, backlog in found.items() if backlog is not None}
