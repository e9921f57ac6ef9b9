"""A schedule without overlap, replayed by simpy: one process for the program and one per resource.

It is the independent check of `makespan` and of `simulate`, which only add up costs.
"""

from collections import deque
from collections.abc import Generator
from typing import Any

import numpy as np
import simpy
from numpy.typing import NDArray

from ckio.actions.columns import WRITE
from ckio.overlap.prices import Backlog, backlogs_of
from ckio.platform import Platform
from ckio.schedule import Schedule, bytes_moved, seconds_of
from ckio.schedule.timeline import Timeline, TimelineRecorder

Process = Generator[simpy.Event, Any, None]


def replayed(
    schedule: Schedule, platform: Platform, /, *, factors: NDArray[np.float64] | None = None
) -> Timeline:
    """Return the timeline of a legal schedule whose program waits for each of its orders."""
    environment = simpy.Environment()
    resources = {
        name: _Resource(environment)
        for name in ("compute", *(level.channel for level in platform.levels))
    }
    recorder, backlogs = TimelineRecorder(), backlogs_of(platform)
    actions, seconds = schedule.actions, seconds_of(schedule, platform)
    if factors is not None:
        seconds *= factors

    def program() -> Process:
        for row, nbytes in enumerate(bytes_moved(schedule, platform).tolist()):
            start, level, waits = environment.now, int(actions.level[row]), 0.0
            backlog: Backlog | None = backlogs.get(level) if actions.op[row] == WRITE else None
            if backlog is not None:
                waits = backlog.longer(start, nbytes)
            name = platform.levels[level].channel if actions.op[row] >= WRITE else "compute"
            yield resources[name].order(float(seconds[row]) + waits)
            if backlog is not None:
                backlog.add(environment.now, nbytes)
            recorder.add(start, environment.now, nbytes)

    environment.run(until=environment.process(program()))
    return recorder.timeline(actions)


class _Resource:
    """Serves its orders one by one, first come, first served."""

    def __init__(self, environment: simpy.Environment) -> None:
        self.environment = environment
        self.orders: deque[tuple[float, simpy.Event]] = deque()
        self.wake = environment.event()
        environment.process(self.serve())

    def order(self, seconds: float) -> simpy.Event:
        """Ask for so many seconds of service; the event says when it is done."""
        done = self.environment.event()
        self.orders.append((seconds, done))
        if not self.wake.triggered:
            self.wake.succeed()
        return done

    def serve(self) -> Process:
        while True:
            while self.orders:
                seconds, done = self.orders.popleft()
                yield self.environment.timeout(seconds)
                done.succeed()
            self.wake = self.environment.event()
            yield self.wake
