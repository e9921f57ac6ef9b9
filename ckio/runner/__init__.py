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
    """Perform a schedule and return the begin and end of each action, in seconds from the start.

    Parameters
    ----------
    schedule
        The actions. Before the first one, the whole schedule is checked by the rules of `Machine`.
    platform
        The platform for which the schedule was planned, with names and capacities of the levels.
    model
        A fresh model at x_0, or the model from which the keys in `schedule.stored` were saved.
    backends
        One open storage level for each level of the platform, in the same order. They stay open.
    overlap
        How many transfers may be concurrent with the computation, by the rules of `ckio.overlap`;
        by default, the policy of the schedule.
        There is one thread for each channel. All writes are complete when this function returns.
    clock
        The clock for all times; by default the clock of the machine.
    watch
        Function that is called with each event after it has happened. If it raises an error, the
        run ends immediately with this error.
    stop
        Function that is called from time to time, also within long actions. If it returns True,
        `Stopped` is raised; see `perform`, which is for callers that need no timeline or leave
        the run before its end.

    Raises
    ------
    IllegalAction
        The schedule breaks a rule of `Machine`.
    BadInput
        The arguments do not fit together, or the plan does not fit the levels. This is raised
        before the first action.
    StorageError
        A level failed. The message has the name of the level and the action; `level` and `action`
        are their numbers. The stored checkpoints are intact.
    Stopped
        `stop` returned True.
    RunFailed
        The model finished before the last step of the schedule; or the model or a backend raised an
        error that is not one of ckio's. Then this error is the `__cause__`, and the message names
        the action.
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
