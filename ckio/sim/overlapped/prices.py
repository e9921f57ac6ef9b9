"""What transfers take beside the computation, by the numbers of a schedule's actions."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ckio.columns import DISCARD, READ, WRITE
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
    hinders, hinders_reverse : float64 array
        What the computation loses by it, also by a discard, and what a step of the adjoint does; 0
        for all that computes.
    handoffs : float64 array
        What the program takes in addition where it waits for a transfer.
    """

    seconds: Seconds
    hinders: Seconds
    hinders_reverse: Seconds
    handoffs: Seconds


def beside_of(schedule: Schedule, platform: Platform, /) -> Beside:
    """The columns of a legal schedule."""
    actions, nbytes = schedule.actions, schedule.chain.nbytes_of(schedule.actions)
    memory = memory_level(platform)
    seconds = seconds_of(schedule, platform)
    hinders, hinders_reverse, handoffs = np.zeros((3, len(actions)))
    for number, level in enumerate(platform.levels):
        profile = _NOTHING if number == memory else level.profile or _NOTHING
        losses = (
            (hinders, profile.hinders),
            (hinders_reverse, profile.hinders_reverse or profile.hinders),
        )
        for op, price in ((WRITE, profile.write_beside), (READ, profile.read_beside)):
            there = (actions.op == op) & (actions.level == number)
            for loses, loss in losses:
                loses[there] = _of(loss, nbytes[there])
            handoffs[there] = _of(profile.handoff, nbytes[there])
            if price is not None:
                seconds[there] = _of(price, nbytes[there])
        for loses, loss in losses:
            loses[(actions.op == DISCARD) & (actions.level == number)] = loss(0)
    return Beside(seconds, hinders, hinders_reverse, handoffs)


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
