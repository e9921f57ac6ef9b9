"""Simulate a schedule on a platform: the begin and end of each action, in seconds.

A schedule is replayed by a process of simpy in virtual time. Without overlap the program waits for
each transfer, so that actions follow one another. With overlap, transfers are concurrent with the
program (see `overlapped`).
"""

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

import numpy as np
import simpy
from numpy.typing import NDArray

from ckio.actions.columns import WRITE, Actions
from ckio.overlap.costs import Backlog, backlogs_of
from ckio.platform import Platform
from ckio.schedule import Schedule, bytes_moved, seconds_of
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
    watch
        Function that is called with the number of further actions done, every few thousand
        actions.

    Raises IllegalAction if the schedule breaks a rule of `Machine`.
    """
    validate(schedule, platform)
    overlap = schedule.overlap if overlap is None else overlap
    if overlap:
        return overlapped.simulate(schedule, platform, overlap, watch=watch)
    seconds, nbytes = seconds_of(schedule, platform), bytes_moved(schedule, platform)
    backlogs = backlogs_of(platform)
    if len(seconds) < MOST_REPLAYED or backlogs:
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

    >>> from ckio import Chain
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
