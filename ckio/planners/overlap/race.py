"""A race of schedules: simulate each with several policies, and keep the best."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Final

from ckio.planners.overlap.engine import Replayed
from ckio.platform import Platform, memory_level
from ckio.platform.chain import Chain
from ckio.schedule import Schedule
from ckio.schedule.policy import Overlap

_HORIZONS: Final = (2.0, 5.0, 10.0, 20.0)
"""Horizons of reads ahead, in units of the slowest transfer."""

_SCREENED: Final = 1.03
"""A schedule is tried with more policies only if it is within this factor of the best."""

_USUAL: Final = 2
"""Number of policies that are tried with every schedule."""


@dataclass(frozen=True)
class Candidate:
    """A schedule, the best policy for it, its seconds with this policy, and how it was planned."""

    schedule: Schedule
    overlap: Overlap
    seconds: float
    how: str


def policies(platform: Platform, sizes: Sequence[int], /) -> list[Overlap]:
    """Return the policies that are tried, for checkpoints of these sizes in bytes.

    They are: no overlap, overlap of reads and writes with several horizons, and overlap of writes
    or reads only.
    """
    near = memory_level(platform)
    far = [level for at, level in enumerate(platform.levels) if at != near]
    slowest = max((max(it.write(b), it.read(b)) for it in far for b in sizes), default=0.0)
    horizons = [times * slowest for times in _HORIZONS if 0 < slowest < inf]
    return [
        Overlap(),
        *(Overlap(None, None, horizon) for horizon in [inf, *horizons]),
        Overlap(None, 0),
        Overlap(0, None),
    ]


class Race:
    """The best of all schedules that were simulated, for one chain on one platform."""

    def __init__(self, chain: Chain, platform: Platform, tried: Sequence[Overlap]) -> None:
        self._chain, self._platform, self._tried = chain, platform, list(tried)
        self._wins = [0] * len(self._tried)
        self.best: Candidate | None = None
        self.synchronous = inf
        self.seconds_by_name: dict[str, float] = {}

    @property
    def seconds(self) -> float:
        """The seconds of the best schedule; infinite if there is none."""
        return self.best.seconds if self.best else inf

    def enter(self, schedule: Schedule, how: str, *, thoroughly: bool = False) -> float:
        """Simulate a schedule and return its least seconds over the policies.

        First the policies that have won most often are tried, and others only if the schedule is
        close to the best, or `thoroughly` is true. `how` is the name for the note. The chain of the
        schedule may be another one with the same number of steps.
        """
        if schedule.chain is not self._chain:
            schedule = Schedule(self._chain, schedule.actions)
        replayed = Replayed(schedule, self._platform)
        order = sorted(range(len(self._tried)), key=lambda at: -self._wins[at])
        seconds, chosen = inf, order[0]
        for rank, at in enumerate(order):
            if rank >= _USUAL and seconds > self.seconds * _SCREENED and not thoroughly:
                break
            taken = replayed.seconds(self._tried[at])
            if not self._tried[at]:
                self.synchronous = min(self.synchronous, taken)
            if taken < seconds:
                seconds, chosen = taken, at
        self._wins[chosen] += 1
        self.seconds_by_name[how] = min(seconds, self.seconds_by_name.get(how, inf))
        if seconds < self.seconds:
            self.best = Candidate(schedule, self._tried[chosen], seconds, how)
        return seconds
