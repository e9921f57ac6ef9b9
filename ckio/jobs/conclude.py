"""From a schedule to the result: it is performed, checked, and what came of it is written."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from ckio.adapters.registry import is_shared
from ckio.backends.base import Backend
from ckio.errors import BadInput, RunFailed, Stopped, StorageError
from ckio.jobs.adjoints import Kept, next_plan
from ckio.jobs.directory import GRADIENT, MEASURED, RESULT, RunDirectory, json_line
from ckio.jobs.gradients import write_gradient
from ckio.jobs.models import blamed, watched
from ckio.jobs.process import Process
from ckio.jobs.result import Result, result_of
from ckio.jobs.standing import store_standing
from ckio.jobs.stopping import halted, seconds_to_stop
from ckio.jobs.watching import watching
from ckio.model import Differentiable
from ckio.model.gradient import GradientCheck, check_gradient
from ckio.parallel.agreed import in_background
from ckio.platform import Platform
from ckio.platform.chain import Chain
from ckio.runner.failover import Stored, failover
from ckio.schedule import Schedule
from ckio.schedule.text import dumps
from ckio.schedule.timeline import EMPTY, Timeline

HALVINGS: Final = 5


class NotKept(RunFailed):
    """The result of a run that ended well cannot be written."""


def conclude(
    process: Process,
    directory: RunDirectory,
    model: Differentiable,
    schedule: Schedule,
    /,
    *,
    platform: Platform,
    backends: Sequence[Backend],
    predicted: Timeline,
    kept: Kept,
    before: Timeline = EMPTY,
    decided: Mapping[str, Any] = MappingProxyType({}),
) -> Result:
    """Perform the schedule and write what came of it, while the levels are still there.

    `platform` has the levels as they are now, of which some may be gone; `before` is what the
    process has done already, and `decided` says what is known of its plan, to join the figures.
    The gradient is written first, then the result that names it: from then on nothing is lost.
    Raises Halted where the run was stopped, NotKept where its result cannot be written.
    """
    measured, model = _performed(
        process,
        model,
        schedule,
        platform=platform,
        backends=backends,
        predicted=predicted,
        kept=kept,
    )
    platform = process.platform
    done = replace(schedule, actions=measured.actions)
    text = dumps(done, platform, measured, overlap=process.overlap, origin="measured")
    _keep(directory, MEASURED, text)
    check = None
    if process.request.check:
        with blamed(f"model {process.name!r}, while its gradient is checked"):
            steps = None if len(before) else schedule.chain.length  # each has an end of its own
            check = _checked(process, steps, model.gradient)
    ended = result_of(
        process.planning.planner,
        model,
        done,
        platform,
        predicted=predicted,
        measured=measured,
        check=check,
        overlap=process.overlap,
        before=before,
        team=process.team,
    )
    stored = _gradient_of(process, directory, model, ended)
    ended = replace(ended, figures={**decided, **ended.figures, **stored})
    _keep(directory, RESULT, json_line(ended.figures))
    return ended


def _gradient_of(
    process: Process, directory: RunDirectory, model: Differentiable, ended: Result
) -> dict[str, Any]:
    """Write the gradient; return where it is, and its checksum."""
    asked = process.request.gradient
    path = Path(asked).absolute() if asked else directory.path / GRADIENT
    steps = ended.schedule.chain.length
    about = {"run": directory.id, "model": process.name, "steps": steps}
    try:
        checksum = write_gradient(path, model, ended.functional, about, process.team)
    except StorageError as error:
        raise NotKept(f"the run ended well, but {error}") from None
    return {"gradient_file": str(path) if asked else GRADIENT, "gradient_checksum": checksum}


def _performed(
    process: Process,
    model: Differentiable,
    schedule: Schedule,
    *,
    platform: Platform,
    backends: Sequence[Backend],
    predicted: Timeline,
    kept: Kept,
) -> tuple[Timeline, Differentiable]:
    """Run, and show it; the model's own callback moves the bar.

    Returns the model that came to the end, too. Raises Halted where the run was stopped; where it
    stands is then stored.
    """
    stopper, team, name = process.stopper, process.team, process.name
    levels = _behind(backends, platform, model) if process.overlap else backends
    with watching(process, schedule, predicted) as (tick, watch):
        live = watched(lambda: model, tick)()

        def fresh() -> Differentiable:
            nonlocal live
            live = watched(process.fresh, tick)()
            return live

        def replan(chain: Chain, rest: Platform, stored: Stored) -> Schedule:
            args = chain, rest, stored, live, kept
            return team.once(lambda: next_plan(*args, tapes=process.stores_tapes(stored))[0])

        if stopper is not None:
            stopper.start(seconds_to_stop(schedule, platform))
        try:
            with blamed(f"model {name!r}"):
                return failover(
                    schedule,
                    platform,
                    live,
                    levels,
                    fresh=fresh,
                    replan=replan,
                    say=process.display.warn,
                    overlap=process.overlap,
                    watch=watch,
                    stop=stopper,
                )
        except Stopped as stopped:
            assert stopper is not None
            with blamed(f"model {name!r}, stopped"):
                standing = store_standing(
                    stopped,
                    live,
                    backends,
                    platform,
                    schedule.chain,
                    before=schedule.stored,
                    team=team,
                )
            raise halted(stopper.why, standing) from None


def _behind(
    backends: Sequence[Backend], platform: Platform, model: Differentiable | None = None
) -> list[Backend]:
    """Return the levels to which transfers overlap with steps; raises BadInput where none can."""
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
    return list(map(in_background, backends))


def _checked(process: Process, steps: int | None, gradient: Mapping[str, Any]) -> GradientCheck:
    total = None if steps is None else (HALVINGS + 4) * steps
    with process.display.progress("checking the gradient", total) as tick:
        again: Callable[[], Differentiable] = watched(process.fresh, tick)
        ranks = process.team.comm.apart()
        return check_gradient(again, steps, gradient, halvings=HALVINGS, comm=ranks)


def _keep(directory: RunDirectory, name: str, text: str) -> None:
    """Write what came of a run; that this fails is no longer anybody's bad input."""
    try:
        directory.write(name, text)
    except BadInput as error:
        raise NotKept(f"the run ended well, but {error}") from None
