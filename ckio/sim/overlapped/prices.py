"""What transfers take beside the computation, by the numbers of a schedule's actions."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ckio.columns import READ, WRITE
from ckio.platforms import Platform
from ckio.prices import Affine
from ckio.profile import Profile
from ckio.schedule import Schedule, seconds_of
from ckio.traffic import memory_level

Seconds = NDArray[np.float64]

_NOTHING = Profile()


@dataclass(frozen=True, eq=False)
class Beside:
    """Of transfers that are staged or made ahead, were each action to be one.

    Attributes
    ----------
    seconds : float64 array
        What the transfer takes; where the level's profile says nothing, what the action takes.
    hinders : float64 array
        What the computation loses by it; 0 for discards, and for all that computes.
    """

    seconds: Seconds
    hinders: Seconds


def beside_of(schedule: Schedule, platform: Platform, /) -> Beside:
    """The columns of a legal schedule."""
    actions, nbytes = schedule.actions, schedule.chain.nbytes_of(schedule.actions)
    seconds, hinders = seconds_of(schedule, platform), np.zeros(len(actions))
    for number, level in enumerate(platform.levels):
        profile = level.profile or _NOTHING
        for op, price in ((WRITE, profile.write_beside), (READ, profile.read_beside)):
            there = (actions.op == op) & (actions.level == number)
            hinders[there] = _of(profile.hinders, nbytes[there])
            if price is not None:
                seconds[there] = _of(price, nbytes[there])
    return Beside(seconds, hinders)


def copies_of(schedule: Schedule, platform: Platform, /) -> Seconds:
    """Seconds of the program's own copies to and from the pool, were each access to be one."""
    memory = memory_level(platform)
    if memory is None:
        return np.zeros(len(schedule))
    level, nbytes = platform.levels[memory], schedule.chain.nbytes_of(schedule.actions)
    write, read = _of(level.write, nbytes), _of(level.read, nbytes)
    return np.where(schedule.actions.op == WRITE, write, read)


def _of(price: Affine, nbytes: NDArray[np.int64]) -> Seconds:
    return price.latency + price.per_byte * nbytes.astype(np.float64)
