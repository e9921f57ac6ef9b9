"""The runner: it performs a schedule with a real model and real storage levels."""

from collections.abc import Callable, Sequence

from ckio.backends.base import Backend
from ckio.model import Model
from ckio.platform import Platform
from ckio.platform.clock import Clock
from ckio.runner.finite import Finite
from ckio.runner.perform import Stop, perform, within
from ckio.runner.reproducible import Reproducible
from ckio.schedule import Schedule
from ckio.schedule.policy import Overlap
from ckio.schedule.timeline import Event, Timeline, TimelineRecorder, TransferRecorder

__all__ = ["Finite", "Reproducible", "Stop", "Watcher", "perform", "run"]

Watcher = Callable[[Event], None]


def run(
    schedule: Schedule,
    platform: Platform,
    model: Model,
    backends: Sequence[Backend],
    /,
    *,
    overlap: Overlap | None = None,
    clock: Clock | None = None,
    watch: Watcher | None = None,
    stop: Stop | None = None,
) -> Timeline:
    """Perform a schedule on open levels, and return when each action began and ended.

    Parameters, times and errors are those of `ckio.run`, which can also open the levels.
    """
    recorder, behind = TimelineRecorder(), TransferRecorder()
    times = perform(
        schedule,
        platform,
        model,
        backends,
        overlap=overlap,
        moved=behind.add,
        clock=clock,
        stop=stop,
    )
    with within(times):
        if watch is None:
            for each in times:
                recorder.add(*each)
        else:
            for action, each in zip(schedule.actions, times, strict=True):
                recorder.add(*each)
                watch(Event(action, *each))
    return recorder.timeline(schedule.actions, behind.timeline(schedule.actions))
