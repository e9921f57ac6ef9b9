"""Ranks simulated in the plainest way: every client's bytes, from one instant to the next.

Nothing of `ckio.sim.ranks` but its words is used: a rank goes through its actions one by one, and
the level of water in max-min fairness is found by bisection.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf

from oracles.costs import all_seconds

from ckio.actions import Advance, Discard, Read, Record, Reverse, Write
from ckio.platform import Platform
from ckio.schedule import Schedule
from ckio.sim.ranks import Ranks


@dataclass
class Doing:
    """What a rank does: it passes time, or moves bytes on a channel."""

    seconds: float = 0.0
    channel: str = ""
    left: float = 0.0
    speed: float = inf


def program(schedule: Schedule, platform: Platform, ranks: Ranks, factor: float) -> Iterator[Doing]:
    """What one rank does, action by action."""
    for action, seconds in zip(schedule.actions, all_seconds(schedule, platform), strict=True):
        match action:
            case Advance() | Record() | Reverse():
                yield Doing(factor * seconds)
            case Discard():
                yield Doing(seconds)
            case Write(key, number) | Read(key, number):
                level, payload = platform.levels[number], schedule.chain.nbytes(key)
                price = level.write if isinstance(action, Write) else level.read
                if level.channel not in ranks.shared:
                    yield Doing(price(payload))
                    continue
                yield Doing(price.latency)
                speed = level.ratio / price.per_byte if price.per_byte else inf
                yield Doing(channel=level.channel, left=level.ratio * payload, speed=speed)


def water(bandwidth: float, speeds: list[float]) -> float:
    """The share at which clients of these speeds use the bandwidth up; it is not less than 0."""
    if sum(speeds) <= bandwidth:
        return inf
    low, high = 0.0, bandwidth
    for _ in range(200):
        middle = (low + high) / 2
        if sum(min(speed, middle) for speed in speeds) > bandwidth:
            high = middle
        else:
            low = middle
    return low


def finishes(
    schedule: Schedule, platform: Platform, ranks: Ranks, factors: list[float]
) -> list[float]:
    """When each rank is done, with these factors on its computing; there are no barriers."""
    programs = [program(schedule, platform, ranks, factor) for factor in factors]
    doing = [next(program, None) for program in programs]
    now, ends = 0.0, [0.0] * len(factors)
    while any(doing):
        speeds = _speeds(doing, ranks)
        lasts = [_lasts(one, speed) for one, speed in zip(doing, speeds, strict=True)]
        elapsed = min(lasts)
        now += elapsed if elapsed < inf else 0.0
        for rank, one in enumerate(doing):
            if one is None:
                continue
            if lasts[rank] <= elapsed:
                ends[rank], doing[rank] = now, next(programs[rank], None)
            elif one.channel:
                one.left -= speeds[rank] * elapsed
            else:
                one.seconds -= elapsed
    return ends


def _speeds(doing: list[Doing | None], ranks: Ranks) -> list[float]:
    """Bytes per second of each rank, 0 where it moves none."""
    found = [0.0] * len(doing)
    for name, bandwidth in ranks.shared.items():
        here = {at: one.speed for at, one in enumerate(doing) if one and one.channel == name}
        share = water(bandwidth, list(here.values()))
        for rank, speed in here.items():
            found[rank] = min(speed, share)
    return found


def _lasts(one: Doing | None, speed: float) -> float:
    """Seconds until this ends if nothing else changes; after the last, for ever."""
    if one is None:
        return inf
    return one.left / speed if one.channel else one.seconds
