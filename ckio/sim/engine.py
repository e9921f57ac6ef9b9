"""The simulator: a schedule replayed on a platform, one process per resource.

Here transfers are synchronous: the program waits for each. What goes on behind it is simulated in
`overlapped`.
"""

from collections import deque
from collections.abc import Callable, Generator, Iterator
from typing import Any

import numpy as np
import simpy

from ckio.columns import WRITE
from ckio.overlap import Overlap
from ckio.platforms import Platform
from ckio.replay import validate
from ckio.schedule import Schedule, bytes_moved, seconds_of
from ckio.sim import overlapped
from ckio.timeline import Recorder, Timeline

Process = Generator[simpy.Event, Any, None]

_NONE = Overlap()
_CHUNK = 1 << 14
"""Actions made ready at a time, and between two calls of `watch`."""


def simulate(
    schedule: Schedule,
    platform: Platform,
    /,
    *,
    overlap: Overlap = _NONE,
    watch: Callable[[int], object] | None = None,
) -> Timeline:
    """When every action of a legal schedule begins and ends on this platform, in seconds.

    Raises IllegalAction as `validate` does. Without overlap the timeline's makespan is `makespan`
    of the schedule, to the last bit: both add the same costs in the same order. With overlap the
    timeline has `transfers` too, and the rules are those of `ckio.traffic`. `watch` is called every
    few thousand actions with how many more are done.
    """
    validate(schedule, platform)
    if overlap:
        return overlapped.simulate(schedule, platform, overlap, watch=watch)
    environment = simpy.Environment()
    compute = _Resource(environment)
    channels = {level.channel: _Resource(environment) for level in platform.levels}
    resources = [compute, *(channels[level.channel] for level in platform.levels)]

    recorder = Recorder()
    program = _program(environment, resources, _orders(schedule, platform, watch), recorder)
    environment.run(until=environment.process(program))
    return recorder.timeline(schedule.actions)


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


def _program(
    environment: simpy.Environment,
    resources: list[_Resource],
    orders: Iterator[tuple[int, float, int]],
    recorder: Recorder,
) -> Process:
    """The run: it gives each action to its resource and waits for it."""
    for resource, seconds, nbytes in orders:
        start = environment.now
        yield resources[resource].order(seconds)
        recorder.add(start, environment.now, nbytes)


def _orders(
    schedule: Schedule, platform: Platform, watch: Callable[[int], object] | None
) -> Iterator[tuple[int, float, int]]:
    """Of each action: its resource (0 computes, 1 + n serves level n), its seconds, its bytes."""
    actions = schedule.actions
    resource = np.where(actions.op >= WRITE, actions.level + 1, 0)
    columns = resource, seconds_of(schedule, platform), bytes_moved(schedule, platform)
    for begin in range(0, len(actions), _CHUNK):
        chunk = slice(begin, begin + _CHUNK)
        yield from zip(*(column[chunk].tolist() for column in columns), strict=True)
        if watch is not None:
            watch(min(_CHUNK, len(actions) - begin))
