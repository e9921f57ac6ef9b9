"""From a schedule to its outcome: it is performed, checked, and what came of it is written."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final

from ckio.backends.base import Backend
from ckio.chain import Chain
from ckio.cli import console
from ckio.cli.adjoints import Kept, next_plan
from ckio.cli.job import How, Job, stores_tapes
from ckio.cli.models import blamed, watched
from ckio.cli.outcome import Outcome, outcome
from ckio.cli.standing import store_standing
from ckio.cli.stopping import halted, seconds_to_stop
from ckio.cli.watching import watching
from ckio.errors import BadInput, RunFailed, Stopped
from ckio.gradient import GradientCheck, check_gradient
from ckio.model import Differentiable
from ckio.platforms import Platform
from ckio.registry import is_shared
from ckio.rundir import MEASURED, RESULT, RunDirectory
from ckio.runner.persevere import persevere
from ckio.runner.remains import Stored
from ckio.schedule import Schedule
from ckio.team.levels import behind
from ckio.texts import dumps
from ckio.timeline import EMPTY, Timeline

HALVINGS: Final = 5


class NotKept(RunFailed):
    """What came of a run that ended well cannot be written."""


def conclude(
    job: Job,
    directory: RunDirectory,
    model: Differentiable,
    schedule: Schedule,
    /,
    *,
    platform: Platform,
    backends: Sequence[Backend],
    predicted: Timeline,
    kept: Kept,
    how: How,
    before: Timeline = EMPTY,
    decided: Mapping[str, Any] = MappingProxyType({}),
) -> Outcome:
    """Perform the schedule and write what came of it, while the levels are still there.

    `platform` has the levels as they are now, of which some may be gone; `before` is what the
    process has done already, and `decided` says what is known of its plan, to join the figures.
    Raises Halted where the run was stopped, NotKept where its result cannot be written.
    """
    measured, model = _performed(
        job,
        model,
        schedule,
        platform=platform,
        backends=backends,
        predicted=predicted,
        kept=kept,
        how=how,
    )
    platform = job.plan.platform
    done = replace(schedule, actions=measured.actions)
    _keep(
        directory, MEASURED, dumps(done, platform, measured, overlap=how.overlap, origin="measured")
    )
    check = None
    if how.check:
        with blamed(f"model {job.model!r}, while its gradient is checked"):
            steps = (
                None if len(before) else schedule.chain.length
            )  # each model has an end of its own
            check = _checked(job.fresh, steps, model.gradient, how)
    ended = outcome(
        job.plan.planner,
        model,
        done,
        platform,
        predicted=predicted,
        measured=measured,
        check=check,
        overlap=how.overlap,
        before=before,
        team=how.team,
    )
    ended = replace(ended, figures={**decided, **ended.figures})
    _keep(directory, RESULT, console.json_line(ended.figures))
    return ended


def _performed(
    job: Job,
    model: Differentiable,
    schedule: Schedule,
    *,
    platform: Platform,
    backends: Sequence[Backend],
    predicted: Timeline,
    kept: Kept,
    how: How,
) -> tuple[Timeline, Differentiable]:
    """Run, and show it; the model's own callback moves the bar.

    Returns the model that came to the end, too. Raises Halted where the run was stopped; where it
    stands is then stored.
    """
    stopper = how.stopper
    levels = _behind(backends, platform, model) if how.overlap else backends
    with watching(job, schedule, predicted, how) as (tick, watch):
        live = watched(lambda: model, tick)()

        def fresh() -> Differentiable:
            nonlocal live
            live = watched(job.fresh, tick)()
            return live

        def replan(chain: Chain, rest: Platform, stored: Stored) -> Schedule:
            args = chain, rest, stored, live, kept
            return how.team.once(lambda: next_plan(*args, tapes=stores_tapes(job, stored))[0])

        if stopper is not None:
            stopper.start(seconds_to_stop(schedule, platform))
        try:
            with blamed(f"model {job.model!r}"):
                return persevere(
                    schedule,
                    platform,
                    live,
                    levels,
                    fresh=fresh,
                    replan=replan,
                    say=how.warn,
                    overlap=how.overlap,
                    watch=watch,
                    stop=stopper,
                )
        except Stopped as stopped:
            assert stopper is not None
            with blamed(f"model {job.model!r}, stopped"):
                standing = store_standing(
                    stopped,
                    live,
                    backends,
                    platform,
                    schedule.chain,
                    before=schedule.stored,
                    team=how.team,
                )
            raise halted(stopper.why, standing) from None


def _behind(
    backends: Sequence[Backend], platform: Platform, model: Differentiable | None = None
) -> list[Backend]:
    """What transfers go to that go on behind the steps; raises BadInput where none can."""
    if getattr(model, "unequal", False):
        raise BadInput(
            "--overlap is for parts of one size, and those of these ranks differ: leave it out, or"
            " run on a number of ranks that shares the model out evenly"
        )
    for level in platform.levels:
        if is_shared(level):
            raise BadInput(
                f"level {level.name!r} is one file to which all ranks write together: run without"
                " --overlap, or take hdf5, a file per rank"
            )
    return list(map(behind, backends))


def _checked(
    fresh: Callable[[], Differentiable],
    steps: int | None,
    gradient: Mapping[str, Any],
    how: How,
) -> GradientCheck:
    total = None if steps is None else (HALVINGS + 4) * steps
    with console.progress("checking the gradient", total, quiet=how.quiet) as tick:
        again = watched(fresh, tick)
        ranks = how.team.comm.apart()
        return check_gradient(again, steps, gradient, halvings=HALVINGS, comm=ranks)


def _keep(directory: RunDirectory, name: str, text: str) -> None:
    """Write what came of a run; that this fails is no longer anybody's bad input."""
    try:
        directory.write(name, text)
    except BadInput as error:
        raise NotKept(f"the run ended well, but {error}") from None
