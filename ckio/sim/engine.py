"""The simulator: a schedule replayed on a platform, one process per resource.

Here transfers are synchronous: the program waits for each. Overlap and contention change only what
the program waits for; the resources stay as they are.
"""

from collections.abc import Generator
from typing import Any

import simpy

from ckio.columns import READ, WRITE
from ckio.platforms import Platform
from ckio.replay import validate
from ckio.schedule import Schedule, seconds_of
from ckio.timeline import Recorder, Timeline

Process = Generator[simpy.Event, Any, None]


def simulate(schedule: Schedule, platform: Platform, /) -> Timeline:
    """When every action of a legal schedule begins and ends on this platform, in seconds.

    Raises IllegalAction as `validate` does. Without overlap the timeline's makespan is `makespan`
    of the schedule, to the last bit: both add the same costs in the same order.
    """
    validate(schedule, platform)
    actions = schedule.actions
    environment = simpy.Environment()
    compute = simpy.Store(environment)
    channels = {level.channel: simpy.Store(environment) for level in platform.levels}
    by_level = [channels[level.channel] for level in platform.levels]
    for inbox in (compute, *channels.values()):
        environment.process(_resource(environment, inbox))

    recorder = Recorder()
    places = [by_level[n] if op >= WRITE else compute for op, _, n, *_ in actions.rows()]
    costs = seconds_of(schedule, platform).tolist()
    moved = _bytes_moved(schedule, platform)
    program = environment.process(_program(environment, places, costs, moved, recorder))
    environment.run(until=program)
    return recorder.timeline(actions)


def _resource(environment: simpy.Environment, inbox: simpy.Store) -> Process:
    """A resource: it serves its orders one by one, first come, first served."""
    while True:
        seconds, done = yield inbox.get()
        yield environment.timeout(seconds)
        done.succeed()


def _program(
    environment: simpy.Environment,
    places: list[simpy.Store],
    costs: list[float],
    moved: list[int],
    recorder: Recorder,
) -> Process:
    """The run: it gives each action to its resource and waits for it."""
    for inbox, seconds, nbytes in zip(places, costs, moved, strict=True):
        start = environment.now
        done = environment.event()
        inbox.put((seconds, done))
        yield done
        recorder.add(start, environment.now, nbytes)


def _bytes_moved(schedule: Schedule, platform: Platform) -> list[int]:
    """Bytes that reach or leave a level in each action."""
    sizes = schedule.chain.nbytes_of(schedule.actions).tolist()
    levels = platform.levels
    return [
        levels[number].stored(nbytes) if op in (WRITE, READ) else 0
        for nbytes, (op, _, number, *_) in zip(sizes, schedule.actions.rows(), strict=True)
    ]
