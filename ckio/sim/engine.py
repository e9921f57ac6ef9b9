"""Simulate a schedule on a platform: when each action begins and ends, in seconds.

Without overlap the program waits for each transfer, so that actions follow one another and their
times are a running sum. With overlap transfers are concurrent: `overlapped`.

Of many runs each has its own factors, drawn from what calibration has seen. The factor of an action
in a run is

    drift x mean of the factors of its steps      where it computes
    drift x factor of its access                  where it reads, writes or discards

with the platform's drift, drawn once for each run, the spreads of the model, for each step, and
those of the level's profile, for each access. What has no distribution has the factor 1.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.random import Generator, default_rng
from numpy.typing import NDArray

from ckio.actions.columns import DISCARD, READ, WRITE
from ckio.errors import BadInput
from ckio.overlap.prices import backlogs_of
from ckio.platform import Platform
from ckio.platform.chain import SECONDS, Chain
from ckio.platform.profile import Spread
from ckio.schedule import Schedule, bytes_moved, read_cold, seconds_of
from ckio.schedule.policy import SYNCHRONOUS, Overlap
from ckio.schedule.replay import validate
from ckio.schedule.timeline import Timeline
from ckio.sim import overlapped


def simulate(
    schedule: Schedule,
    platform: Platform,
    /,
    *,
    overlap: Overlap = SYNCHRONOUS,
    factors: NDArray[np.float64] | None = None,
    watch: Callable[[int], object] | None = None,
) -> Timeline:
    """Return when every action of a legal schedule begins and ends on this platform, in seconds.

    Raises IllegalAction as `validate` does. Without overlap the timeline's makespan is `makespan`
    of the schedule, to the last bit: both add the same costs in the same order. It is more where a
    level's profile says how many bytes of writes the operating system caches (`dirty`): a write
    waits where more would be on their way to the device, which `makespan` does not know.

    With overlap the timeline has `transfers` too, and the rules are those of `ckio.overlap`.
    Concurrent transfers take the seconds that the level's profile says, and delay the computation
    beside which they begin. `factors` says for each action how many times longer it takes than its
    price says; copies in memory are not meant. `watch` is called with how many more actions are
    done: with overlap every few thousand actions, else once, for a running sum takes no time.
    """
    validate(schedule, platform)
    if overlap:
        return overlapped.simulate(schedule, platform, overlap, factors=factors, watch=watch)
    seconds, nbytes = seconds_of(schedule, platform), bytes_moved(schedule, platform)
    if factors is not None:
        seconds *= factors
    _add_waits(seconds, nbytes, schedule, platform)
    with np.errstate(over="ignore"):
        clock = np.cumsum(np.concatenate(([0.0], seconds)))
    if watch is not None:
        watch(len(schedule))
    return Timeline(schedule.actions, clock[:-1], clock[1:], nbytes)


def _add_waits(
    seconds: NDArray[np.float64],
    nbytes: NDArray[np.int64],
    schedule: Schedule,
    platform: Platform,
) -> None:
    """Add to the seconds of each write those for which it waits until the device has caught up."""
    backlogs = backlogs_of(platform)
    if not backlogs:
        return
    actions, clock = schedule.actions, 0.0
    levels = np.where(actions.op == WRITE, actions.level, -1).tolist()
    for row, (level, cost) in enumerate(zip(levels, seconds.tolist(), strict=True)):
        backlog, stored = backlogs.get(level), int(nbytes[row])
        if backlog is None:
            clock += cost
            continue
        seconds[row] += backlog.longer(clock, stored)
        clock += float(seconds[row])
        backlog.add(clock, stored)


@dataclass(frozen=True, eq=False)
class Repeated:
    """The outcome of many runs.

    Attributes
    ----------
    makespans : float64 array
        Seconds of each run.
    """

    makespans: NDArray[np.float64]

    @property
    def mean(self) -> float:
        """Seconds, over all runs."""
        return float(self.makespans.mean())

    def quantile(self, part: float, /) -> float:
        """Seconds that this part of the runs does not exceed."""
        return float(np.quantile(self.makespans, part))


def repeated(
    schedule: Schedule,
    platform: Platform,
    count: int,
    /,
    *,
    overlap: Overlap = SYNCHRONOUS,
    seed: int = 0,
    watch: Callable[[int], object] | None = None,
) -> Repeated:
    """Simulate so many runs, each with its own factors.

    The first runs are the same however many there are. `watch` is called now and then with how many
    more actions are done, of all runs. Raises IllegalAction as `simulate` does, and BadInput where
    the platform has no distribution: then all runs would be alike.
    """
    steps = spreads_of(schedule.chain, platform)
    accesses = [level.profile for level in platform.levels if level.profile is not None]
    if platform.drift is None and not steps and not any(profile.spread for profile in accesses):
        raise BadInput(
            "this platform does not say how times vary; calibrate it with --model, or give its"
            " levels a profile"
        )
    makespans = np.zeros(count)
    for run in range(count):
        drawn = factors(schedule, platform, default_rng((seed, run)))
        timeline = simulate(schedule, platform, overlap=overlap, watch=watch, factors=drawn)
        makespans[run] = timeline.makespan
    return Repeated(makespans)


def factors(schedule: Schedule, platform: Platform, random: Generator, /) -> NDArray[np.float64]:
    """Return for each action how many times longer it takes in a run than its price says."""
    actions = schedule.actions
    drift = 1.0 if platform.drift is None else platform.drift.draw(random, 1)[0]
    times = np.full(len(actions), drift)
    for op, name in enumerate(SECONDS):  # as the codes of actions: advance, record, reverse
        spread = spreads_of(schedule.chain, platform).get(name)
        rows = np.flatnonzero(actions.op == op)
        if spread is not None and len(rows):
            length = (actions.end - actions.begin)[rows]
            drawn = spread.draw(random, int(length.sum()))
            times[rows] *= np.add.reduceat(drawn, np.cumsum(length) - length) / length
    for number, level in enumerate(platform.levels):
        if level.profile is None:
            continue
        cold = read_cold(schedule, platform, number)
        here = actions.level == number
        for name, mask in {
            "write": here & (actions.op == WRITE),
            "read": here & (actions.op == READ) & ~cold,
            "read_cold": cold,
            "discard": here & (actions.op == DISCARD),
        }.items():
            if (spread := level.profile.spread.get(name)) is not None:
                times[mask] *= spread.draw(random, int(mask.sum()))
    return times


def spreads_of(chain: Chain, platform: Platform, /) -> Mapping[str, Spread]:
    """Return the spreads of the model that has the costs of a chain; empty without one."""
    for name, model in platform.models.items():
        if name in platform.spreads and model == replace(chain, steps=model.steps):
            return platform.spreads[name]
    return {}
