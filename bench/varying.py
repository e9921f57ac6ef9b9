"""How far from the best is a chain of many different steps planned?

Six profiles of what a step costs; each is scaled to a mean of one second.
"""

import time
from collections.abc import Callable
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

from bench import record
from ckio.planners import varying as rooms
from ckio.planners.varying import sorted_bound, varying
from ckio.platform import Affine, Level, Platform
from ckio.platform.chain import Chain
from ckio.schedule import Schedule, makespan

Seconds = NDArray[np.float64]


def uniform(steps: int, rng: np.random.Generator) -> Seconds:
    return rng.uniform(0.5, 1.5, steps)


def lognormal(steps: int, rng: np.random.Generator) -> Seconds:
    return rng.lognormal(0, 1, steps)


def adaptive(steps: int, rng: np.random.Generator) -> Seconds:
    """Slowly changing numbers of iterations, and a few bursts."""
    log = np.zeros(steps)
    for step in range(1, steps):
        log[step] = 0.98 * log[step - 1] + 0.15 * rng.standard_normal()
    seconds = np.exp(log)
    for begin in rng.integers(0, steps, 4):
        seconds[begin : begin + rng.integers(5, 30)] *= 8
    return seconds


def ramp(steps: int, rng: np.random.Generator) -> Seconds:
    del rng
    return np.linspace(1, 10, steps)


def two_phases(steps: int, rng: np.random.Generator) -> Seconds:
    del rng
    return np.where(np.arange(steps) < steps // 2, 10.0, 1.0)


def spikes(steps: int, rng: np.random.Generator) -> Seconds:
    seconds = np.ones(steps)
    seconds[rng.integers(0, steps, steps // 40)] = 60
    return seconds


PROFILES = (uniform, lognormal, adaptive, ramp, two_phases, spikes)


def chain(profile: Callable[..., Seconds], steps: int, *, seed: int = 0) -> Chain:
    seconds = profile(steps, np.random.default_rng(seed))
    seconds /= seconds.mean()
    return Chain(
        steps=steps, advance=seconds, record=seconds, reverse=0, restart=1, tape=1, adjoint=1
    )


def ram(slots: int, seconds: float) -> Platform:
    level = Level(name="ram", capacity=slots, write=Affine(seconds), read=Affine(seconds))
    return Platform((level,), working_memory=1)


def timed(case: Chain, platform: Platform) -> tuple[float, float]:
    """Seconds of the schedule, and of planning it."""
    start = time.process_time()
    schedule = varying(case, platform, tapes=False, planner="varying")
    return makespan(schedule, platform), time.process_time() - start


def in_two_scales(case: Chain, platform: Platform, points: int) -> Schedule:
    """The schedule of a chain that is taken for too long, with about so many points."""
    with patch.object(rooms, "_POINTS", points):
        return varying(case, platform, tapes=False, planner="varying")


def gaps(steps: int, slots: int, seconds: float, points: int) -> list[list[str]]:
    """How far two scales, and the bound, are from the best, as a mean of two seeds."""
    rows = []
    for profile in PROFILES:
        found = []
        for seed in range(2):
            case, platform = chain(profile, steps, seed=seed), ram(slots, seconds)
            best, planning = timed(case, platform)
            scales = makespan(in_two_scales(case, platform, points), platform)
            bound = sorted_bound(case, platform, slots=slots, tapes=False)
            found.append((scales / best - 1, bound / best - 1, planning))
        two, bound, planning = np.mean(found, axis=0)
        rows.append(
            [
                f"{steps} steps, {slots} slots, w = r = {seconds:g}: {profile.__name__}",
                f"{two:+.2%}",
                f"{bound:+.1%}",
                f"{planning:.1f}",
            ]
        )
    return rows


def table(steps: int = 480, points: int = 120) -> str:
    rows = [
        row
        for slots, seconds in ((5, 0), (20, 0), (10, 2))
        for row in gaps(steps, slots, seconds, points)
    ]
    return (
        f"Compared with the best schedule of nested ranges: split at {points} steps, and the"
        " bound;\nand CPU seconds to find the best\n"
        + record.columns(["chain", "two scales", "bound", "s"], rows)
    )


if __name__ == "__main__":
    record.main("varying", table)
