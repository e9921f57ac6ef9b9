"""The room that an adjoint run sets aside: for two adjoints, the last one and the next one."""

from dataclasses import replace

from ckio.actions import Key
from ckio.errors import BadInput, NoSchedule
from ckio.platform import Level, Platform
from ckio.platform.chain import Chain

_HELD = 2
"""Adjoints that lie on the level at a time: the older one goes once the next one is complete."""


def aside(platform: Platform, chain: Chain, level: int, /) -> Platform:
    """The platform to plan for: this level's capacity, in bytes, is less by two adjoints.

    The largest ones of the chain count, as they are stored. A level that never fills stays as it
    is. Raises BadInput where the platform has no such level, NoSchedule where it is too small.
    """
    here = numbered(platform, level)
    needed = _HELD * here.stored(chain.largest("adjoint"))
    if here.capacity is not None and here.capacity < needed:
        raise NoSchedule(
            f"two adjoints take {needed} bytes of level {here.name}, which offers {here.capacity}:"
            " give it more capacity, or keep the adjoint on another level"
        )
    return less(platform, level, needed)


def without(platform: Platform, chain: Chain, key: Key, level: int, /) -> Platform:
    """The platform without the room that one checkpoint takes of a level."""
    return less(platform, level, platform.levels[level].stored(chain.nbytes(key)))


def less(platform: Platform, level: int, nbytes: int, /) -> Platform:
    """The platform with a level that holds so many bytes less, and none at worst."""
    levels, here = list(platform.levels), platform.levels[level]
    if here.capacity is not None:
        levels[level] = replace(here, capacity=max(0, here.capacity - nbytes))
    return replace(platform, levels=tuple(levels))


def numbered(platform: Platform, level: int, /) -> Level:
    """The level of this number; raises BadInput where there is none."""
    if not 0 <= level < len(platform.levels):
        raise BadInput(
            f"level = {level}: the platform has {len(platform.levels)} levels, numbered from 0"
        )
    return platform.levels[level]
