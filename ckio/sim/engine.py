"""Simulate a schedule on a platform: when each action begins and ends, in seconds.

Without overlap the program waits for each transfer, so that actions follow one another and their
times are a running sum. With overlap transfers are concurrent: `overlapped`.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from ckio.actions.columns import WRITE
from ckio.overlap.prices import backlogs_of
from ckio.platform import Platform
from ckio.schedule import Schedule, bytes_moved, seconds_of
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
