"""From a schedule to its outcome: it is performed, checked, and what came of it is written."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any, Final

from ckio.backends.base import Backend
from ckio.cli import console
from ckio.cli.job import How, Job
from ckio.cli.models import blamed, watched
from ckio.cli.outcome import Outcome, outcome
from ckio.cli.stopping import Halted, seconds_to_stop, store_standing
from ckio.columns import REVERSE
from ckio.errors import BadInput, RunFailed, Stopped
from ckio.gradient import GradientCheck, check_gradient
from ckio.model import Differentiable
from ckio.rundir import MEASURED, RESULT, RunDirectory
from ckio.runner import run
from ckio.schedule import Schedule
from ckio.texts import dumps
from ckio.timeline import Timeline

HALVINGS: Final = 5


class NotKept(RunFailed):
    """What came of a run that ended well cannot be written."""


def conclude(
    job: Job,
    directory: RunDirectory,
    model: Differentiable,
    schedule: Schedule,
    backends: Sequence[Backend],
    /,
    *,
    predicted: Timeline,
    how: How,
) -> Outcome:
    """Perform the schedule and write what came of it, while the levels are still there.

    Raises Halted where the run was stopped, NotKept where its result cannot be written.
    """
    platform = job.plan.platform
    measured = _performed(job, model, schedule, backends, how=how)
    _keep(directory, MEASURED, dumps(schedule, platform, measured))
    check = None
    if how.check:
        with blamed(f"model {job.model!r}, while its gradient is checked"):
            check = _checked(job.fresh, schedule.chain.length, model.gradient, quiet=how.quiet)
    ended = outcome(
        job.plan.planner,
        model,
        schedule,
        platform,
        predicted=predicted,
        measured=measured,
        check=check,
    )
    _keep(directory, RESULT, console.json_line(ended.figures))
    return ended


def _performed(
    job: Job, model: Differentiable, schedule: Schedule, backends: Sequence[Backend], *, how: How
) -> Timeline:
    """Run with a bar of all steps, forward and back; the model's own callback moves it.

    Raises Halted where it was stopped; where it stands is then stored.
    """
    actions, platform, stopper = schedule.actions, job.plan.platform, how.stopper
    total = int((actions.end - actions.begin)[actions.op <= REVERSE].sum())
    with (
        console.progress("running", total, quiet=how.quiet) as tick,
        stopper or nullcontext(),
    ):
        live = watched(lambda: model, tick)()
        if stopper is not None:
            stopper.start(seconds_to_stop(schedule, platform))
        try:
            with blamed(f"model {job.model!r}"):
                return run(schedule, platform, live, backends, stop=stopper)
        except Stopped as stopped:
            assert stopper is not None
            with blamed(f"model {job.model!r}, stopped"):
                standing = store_standing(stopped, live, backends, platform, schedule.chain.length)
            raise Halted(stopper.why, standing) from None


def _checked(
    fresh: Callable[[], Differentiable], steps: int, gradient: Mapping[str, Any], *, quiet: bool
) -> GradientCheck:
    runs = HALVINGS + 4
    with console.progress("checking the gradient", runs * steps, quiet=quiet) as tick:
        return check_gradient(watched(fresh, tick), steps, gradient, halvings=HALVINGS)


def _keep(directory: RunDirectory, name: str, text: str) -> None:
    """Write what came of a run; that this fails is no longer anybody's bad input."""
    try:
        directory.write(name, text)
    except BadInput as error:
        raise NotKept(f"the run ended well, but {error}") from None
