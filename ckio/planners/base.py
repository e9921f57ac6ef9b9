"""What a planner is: a pure function from a chain and a platform to a schedule."""

from typing import Protocol

from ckio.chain import Chain
from ckio.platforms import Platform
from ckio.schedule import Schedule


class Planner(Protocol):
    """Pure: the same inputs give the same schedule, on every rank.

    Raises NoSchedule where n > 1 and no level can serve it.
    """

    def __call__(self, chain: Chain, platform: Platform, /) -> Schedule: ...
