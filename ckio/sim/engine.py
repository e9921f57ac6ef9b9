"""The simulator: a schedule replayed on a platform, one process per resource.

Here transfers are synchronous: the program waits for each. What goes on behind it is simulated in
`overlapped`.
"""

from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import Any, TypeAlias

import numpy as np
import simpy
from numpy.typing import NDArray

from ckio.actions.columns import WRITE
from ckio.platform import Platform
from ckio.schedule import Schedule, bytes_moved, seconds_of
from ckio.schedule.policy import Overlap
from ckio.schedule.replay import validate
from ckio.schedule.timeline import Timeline, TimelineRecorder
from ckio.sim import overlapped
from ckio.sim.backlog import Backlog, backlogs_of

Process = Generator[simpy.Event, Any, None]

_Order: TypeAlias = tuple[int, float, int, bool]
"""A resource (0 computes, 1 + n serves level n), seconds, bytes, and whether it is a write."""

_NONE = Overlap()
_CHUNK = 1 << 14
"""Actions made ready at a time, and between two calls of `watch`."""


def simulate(
    schedule: Schedule,
    platform: Platform,
    /,
    *,
    overlap: Overlap = _NONE,
    factors: NDArray[np.float64] | None = None,
    watch: Callable[[int], object] | None = None,
) -> Timeline:
    """When every action of a legal schedule begins and ends on this platform, in seconds.

    Raises IllegalAction as `validate` does. Without overlap the timeline's makespan is `makespan`
    of the schedule, to the last bit: both add the same costs in the same order. It is more where a
    level's profile says how many bytes the operating system takes of writes (`dirty`): a write
    waits where more would be under way to the device, which `makespan` does not know.

    With overlap the timeline has `transfers` too, and the rules are those of `ckio.overlap`.
    Transfers that go on behind the program take what the level's profile says of them, and put off
    what it does when they begin. `factors` says for each action how many times longer it takes than
    its price says; copies in memory are not meant. `watch` is called every few thousand actions
    with how many more are done.
    """
    validate(schedule, platform)
    if overlap:
        return overlapped.simulate(schedule, platform, overlap, factors=factors, watch=watch)
    environment = simpy.Environment()
    compute = _Resource(environment)
    channels = {level.channel: _Resource(environment) for level in platform.levels}
    resources = [compute, *(channels[level.channel] for level in platform.levels)]

    recorder, backlogs = (
        TimelineRecorder(),
        {1 + at: it for at, it in backlogs_of(platform).items()},
    )
    seconds = seconds_of(schedule, platform)
    if factors is not None:
        seconds *= factors
    orders = _orders(schedule, platform, seconds, watch)
    program = _program(environment, resources, orders, recorder, backlogs)
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
    orders: Iterator[_Order],
    recorder: TimelineRecorder,
    backlogs: Mapping[int, Backlog],
) -> Process:
    """The run: it gives each action to its resource and waits for it."""
    for resource, seconds, nbytes, writes in orders:
        start = environment.now
        backlog = backlogs.get(resource) if writes else None
        more = 0.0 if backlog is None else backlog.longer(start, nbytes)
        yield resources[resource].order(seconds + more)
        if backlog is not None:
            backlog.add(environment.now, nbytes)
        recorder.add(start, environment.now, nbytes)


def _orders(
    schedule: Schedule,
    platform: Platform,
    seconds: NDArray[np.float64],
    watch: Callable[[int], object] | None,
) -> Iterator[_Order]:
    """Of each action in turn, what the program has to know."""
    actions = schedule.actions
    resource = np.where(actions.op >= WRITE, actions.level + 1, 0)
    moved = bytes_moved(schedule, platform)
    columns = resource, seconds, moved, actions.op == WRITE
    for begin in range(0, len(actions), _CHUNK):
        chunk = slice(begin, begin + _CHUNK)
        yield from zip(*(column[chunk].tolist() for column in columns), strict=True)
        if watch is not None:
            watch(min(_CHUNK, len(actions) - begin))
