"""The runner: a schedule performed on a real model and real storage."""

from collections.abc import Callable, Sequence

from ckio.backends.base import Backend
from ckio.model import Model
from ckio.platform import Platform
from ckio.platform.clock import Clock
from ckio.runner.finite import Finite
from ckio.runner.perform import ALONE, Stop, perform, performed, within
from ckio.schedule import Schedule
from ckio.schedule.policy import Overlap
from ckio.schedule.timeline import Event, Timeline, TimelineRecorder, TransferRecorder

__all__ = ["Finite", "Stop", "Watcher", "perform", "run"]

Watcher = Callable[[Event], None]


def run(
    schedule: Schedule,
    platform: Platform,
    model: Model,
    backends: Sequence[Backend],
    /,
    *,
    overlap: Overlap = ALONE,
    clock: Clock | None = None,
    watch: Watcher | None = None,
    stop: Stop | None = None,
) -> Timeline:
    """Perform a schedule and return when each action began and ended, in seconds from the start.

    Parameters
    ----------
    schedule
        What to do; the whole of it is checked by the rules of the Machine before anything is done.
    platform
        What it was planned for; names and capacities of the levels.
    model
        A fresh model at x_0, or whatever `schedule.stored` was saved from.
    backends
        One open storage level for each level of the platform, in its order. They stay open.
    overlap
        How much storage may go on behind the computation, by the rules of `ckio.overlap`; a thread
        for each channel does it. What is written behind counts as stored when this returns.
    clock
        What measures; the wall clock by default.
    watch
        Called with each event after it has happened; what it raises ends the run as it is.
    stop
        Asked now and then, also within long actions; `Stopped` is raised once it says yes: see
        `perform`, which is this for those who want no timeline, or leave in the middle.

    Raises
    ------
    IllegalAction
        The schedule breaks a rule.
    BadInput
        Something does not fit together, or the levels have no room for the plan: before the start.
    StorageError
        A level failed; its name and the action are in the message, and their numbers in `level`
        and `action`. What was stored is intact.
    Stopped
        `stop` said yes.
    RunFailed
        The model finished before the schedule's last step; or it, or a backend, raised something
        that is not ckio's own: then that is the `__cause__`, and the message names the action.
    """
    recorder, behind = TimelineRecorder(), TransferRecorder()
    times = performed(
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
