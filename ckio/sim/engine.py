"""Simulate a schedule on a platform: the begin and end of each action, in seconds.

A schedule is replayed by a process of simpy in virtual time. Without overlap the program waits for
each transfer, so that actions follow one another. With overlap, transfers are concurrent with the
program (see `overlapped`).

In many simulated runs, each run has its own random factors from the measured distributions. The
factor of an action in a run is

    drift x mean of the factors of its steps      for a computation
    drift x factor of its access                  for a read, write or discard

where the drift of the platform is drawn once for each run, the factor of a step from the spreads of
the model, and the factor of an access from the spreads of the level's profile. Without a
distribution a factor is 1.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

import numpy as np
import simpy
from numpy.random import Generator, default_rng
from numpy.typing import NDArray

from ckio.actions.columns import DISCARD, READ, WRITE, Actions
from ckio.errors import BadInput
from ckio.overlap.costs import Backlog, backlogs_of
from ckio.platform import Platform
from ckio.platform.chain import SECONDS, Chain
from ckio.platform.profile import Spread
from ckio.schedule import Schedule, bytes_moved, read_cold, seconds_of
from ckio.schedule import makespan as seconds_alone
from ckio.schedule.policy import Overlap
from ckio.schedule.replay import validate
from ckio.schedule.timeline import Timeline
from ckio.sim import overlapped
from ckio.sim.overlapped import CHUNK, Process

Watch: TypeAlias = Callable[[int], object]

MOST_REPLAYED: Final = 1_000_000
"""Actions; the replay of so many takes some seconds."""


def simulate(
    schedule: Schedule,
    platform: Platform,
    /,
    *,
    overlap: Overlap | None = None,
    factors: NDArray[np.float64] | None = None,
    watch: Watch | None = None,
) -> Timeline:
    """Return the timeline of a legal schedule on this platform, in seconds.

    Without overlap the makespan of the timeline is bitwise that of the function `makespan`, which
    adds the same costs in the same order. It is larger if the profile of a level has a limit for
    the writes that the operating system caches (`dirty`): then a write waits if more bytes than
    this would wait for the device, which `makespan` does not take into account.

    A replay takes some microseconds for each action. Therefore the times of a million actions or
    more, of which none waits, are that sum itself.

    With overlap the timeline also has `transfers`, and the rules are those of `ckio.overlap`. The
    seconds of concurrent transfers are those of the level's profile; each such transfer also delays
    the computation during which it begins.

    Parameters
    ----------
    schedule, platform
        The schedule, and the platform with the costs.
    overlap
        How many transfers may be concurrent with the computation; by default, the policy of the
        schedule.
    factors
        For each action, the ratio of its time to its cost; copies in memory are not scaled.
    watch
        Function that is called with the number of further actions done, every few thousand
        actions.

    Raises IllegalAction if the schedule breaks a rule of `Machine`.
    """
    validate(schedule, platform)
    return _timeline(schedule, platform, overlap, factors, watch, replays=1)


def _timeline(
    schedule: Schedule,
    platform: Platform,
    overlap: Overlap | None,
    factors: NDArray[np.float64] | None,
    watch: Watch | None,
    /,
    *,
    replays: int,
) -> Timeline:
    """Return what `simulate` returns, as one of so many replays."""
    overlap = schedule.overlap if overlap is None else overlap
    if overlap:
        return overlapped.simulate(schedule, platform, overlap, factors=factors, watch=watch)
    seconds, nbytes = seconds_of(schedule, platform), bytes_moved(schedule, platform)
    if factors is not None:
        seconds *= factors
    backlogs = backlogs_of(platform)
    if replays * len(seconds) < MOST_REPLAYED or backlogs:
        clock = _replayed(schedule.actions, seconds, nbytes, backlogs, watch)
    else:
        with np.errstate(over="ignore"):
            clock = np.cumsum(np.concatenate(([0.0], seconds)))
        if watch is not None:
            watch(len(schedule))
    return Timeline(schedule.actions, clock[:-1], clock[1:], nbytes)


def _replayed(
    actions: Actions,
    seconds: NDArray[np.float64],
    nbytes: NDArray[np.int64],
    backlogs: Mapping[int, Backlog],
    watch: Watch | None,
) -> NDArray[np.float64]:
    """Return the start of each action and the end of the last, if none is concurrent with another.

    A write to a level with a backlog waits for the device first.
    """
    clock = np.zeros(len(seconds) + 1)
    writes = np.where(actions.op == WRITE, actions.level, -1).tolist()
    environment = simpy.Environment()

    def program() -> Process:
        for row, level in enumerate(writes):
            cost, backlog = float(seconds[row]), backlogs.get(level)
            if backlog is not None:
                cost += backlog.longer(environment.now, int(nbytes[row]))
            yield environment.timeout(cost)
            if backlog is not None:
                backlog.add(environment.now, int(nbytes[row]))
            clock[row + 1] = environment.now
            if watch is not None and (row + 1) % CHUNK == 0:
                watch(CHUNK)

    environment.process(program())
    environment.run()
    if watch is not None:
        watch(len(seconds) % CHUNK)
    return clock


def makespan(schedule: Schedule, platform: Platform, /) -> float:
    """Return the total seconds of a schedule, with its own policy of overlap.

    Without overlap, these are the seconds of all actions, added from left to right.

    For example, four steps that are all recorded and then reversed take 4 (1 + 2) s = 12 s:

    >>> from ckio.actions import Record, Reverse
    >>> chain = Chain(steps=4, advance=1, record=1, reverse=2, restart=8, tape=8, adjoint=8)
    >>> makespan(Schedule(chain, [Record(0, 4), Reverse(0, 4)]), Platform(()))
    12.0

    Raises BadInput for a level that the platform does not have, and IllegalAction if a schedule
    with overlap breaks a rule of `Machine`.
    """
    if schedule.overlap:
        return simulate(schedule, platform).makespan
    return seconds_alone(schedule, platform)


@dataclass(frozen=True, eq=False)
class Repeated:
    """The makespans of many simulated runs.

    Attributes
    ----------
    makespans : float64 array
        Seconds of each run.
    """

    makespans: NDArray[np.float64]

    @property
    def mean(self) -> float:
        """The mean of all makespans, in seconds."""
        return float(self.makespans.mean())

    def quantile(self, part: float, /) -> float:
        """Return the makespan in seconds that this fraction of the runs does not exceed."""
        return float(np.quantile(self.makespans, part))


def repeated(
    schedule: Schedule,
    platform: Platform,
    count: int,
    /,
    *,
    overlap: Overlap | None = None,
    seed: int = 0,
    watch: Watch | None = None,
) -> Repeated:
    """Simulate `count` runs, each with its own random factors.

    With the same seed, the first runs do not depend on `count`. `watch` is called from time to time
    with the number of further actions done, of all runs. Raises IllegalAction as `simulate`, and
    BadInput if the platform has no distribution, because then all runs would be equal.
    """
    steps = spreads_of(schedule.chain, platform)
    accesses = [level.profile for level in platform.levels if level.profile is not None]
    if platform.drift is None and not steps and not any(profile.spread for profile in accesses):
        raise BadInput(
            "this platform has no distributions of times; calibrate it with --model, or give its"
            " levels a profile with spreads"
        )
    validate(schedule, platform)
    makespans = np.zeros(count)
    for run in range(count):
        drawn = factors(schedule, platform, default_rng((seed, run)))
        timeline = _timeline(schedule, platform, overlap, drawn, watch, replays=count)
        makespans[run] = timeline.makespan
    return Repeated(makespans)


def factors(schedule: Schedule, platform: Platform, random: Generator, /) -> NDArray[np.float64]:
    """Return, for each action, the random ratio of its time in a run to its cost."""
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
    """Return the spreads of the model with the costs of this chain; empty if there is none."""
    for name, model in platform.models.items():
        if name in platform.spreads and model == replace(chain, steps=model.steps):
            return platform.spreads[name]
    return {}
