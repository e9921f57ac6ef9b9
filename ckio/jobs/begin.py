"""Beginning a run: planning it, writing its directory, and opening its levels."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any, Final

import xxhash

from ckio import __version__
from ckio.actions.variables import Variables
from ckio.backends.base import Backend
from ckio.jobs import adjoints
from ckio.jobs.adjoints import Kept, first_plan
from ckio.jobs.directory import CONTROL, RunDirectory, checksum_of
from ckio.jobs.gradients import packed_control, set_control, space_for
from ckio.jobs.levels import called, left_by, new_folders, opened
from ckio.jobs.models import guarded, variables_of
from ckio.jobs.planning import overlap_figures, policy
from ckio.jobs.process import Process, ResultNotWritten, conclude, control_of
from ckio.jobs.request import DAY, Manifest, Request
from ckio.jobs.result import Result
from ckio.jobs.states import States, adding_to, first_states, source_of, write_states
from ckio.jobs.stopping import Halted
from ckio.model import Differentiable
from ckio.planners.compared import Plan
from ckio.platform import Platform
from ckio.platform.chain import Chain
from ckio.runner.finite import Finite
from ckio.runner.reproducible import ReplayCheck, Reproducible
from ckio.schedule import Schedule
from ckio.schedule.policy import AUTO
from ckio.schedule.text import dumps, header_lines
from ckio.schedule.timeline import Timeline
from ckio.sim.engine import simulate

_ALLOW: Final = "--allow-nan continues with such values"


def begin(process: Process, directory: RunDirectory, /) -> Result:
    """Begin a run, and perform it to its end; raises Halted if it is stopped before."""
    request, display = process.request, process.display
    with cleared_if_nothing_is_left(directory):
        first = first_states(process.model())  # before the run's own model needs memory
        model = process.model()
        if request.by_variable:
            known = variables_of(process.name, model).cut(process.chain.length)
            process = replace(process, variables=known)
        schedule, kept, planned = process.ranks.once(lambda: _first(process, model))
        overlap = policy(request.overlap, planned.overlap, "of the plan", display)
        process = replace(process, overlap=overlap)
        decided: dict[str, Any] = {}
        if process.planning.planner == AUTO or process.planning.decides:
            decided = {"note": schedule.note}
        if process.planning.decides:
            decided |= overlap_figures(planned)
        predicted = write_plan(directory, schedule, process)
        manifest = start(process, directory, model, kept, first)
        with levels_of(process, manifest) as backends:
            display.tell(process.planning.not_considered)
            display.tell(decided.get("note", ""))
            display.tell(
                adjoints.cost_of_a_kill(schedule, process.platform, kept, process.request.mtbf)
            )
            return conclude(
                process,
                directory,
                model,
                schedule,
                platform=process.platform,
                backends=backends,
                predicted=predicted,
                kept=kept,
                decided=decided,
            )


def levels_of(process: Process, manifest: Manifest, /) -> AbstractContextManager[list[Backend]]:
    """Open the levels of a run."""
    return opened(
        process.platform.levels,
        manifest.run,
        keep=process.keeps,
        ranks=process.ranks,
        identity=manifest.identity,
    )


def start(
    process: Process,
    directory: RunDirectory,
    model: Differentiable,
    kept: Kept,
    first: States,
    /,
) -> Manifest:
    """Write the manifest of a run that begins with this fresh model, and the controls if given.

    `first` are the first states of such a model.
    """
    request, planning, ranks = process.request, process.planning, process.ranks
    given = None
    if isinstance(request.control, Mapping):  # a file has been read by now
        data = packed_control(request.control, ranks)
        directory.write(CONTROL, data)
        given = checksum_of(data)
    write_states(directory, first, source_of(process.make, model), ranks)
    process.replay.note = None if ranks.rank else adding_to(directory)
    manifest = Manifest(
        run=directory.id,
        ckio=__version__,
        request=replace(request, planner=planning.planner, overlap=process.overlap),
        control=control_of(model, ranks),
        given=given,
        chain=planning.chain,
        variables=declared(process.variables),
        platform=planning.platform.digest(),
        adjoints=kept.level,
        every=kept.every,
        made=ranks.once(lambda: new_folders(process.platform.levels, called(directory.id, ranks))),
        ranks=ranks.size,
    )
    directory.reserve(space_for(model, ranks))
    directory.begin(manifest)
    return manifest


def declared(variables: Variables | None) -> str | None:
    """Return the digest of the variables and flows that a model declares; None without them."""
    if variables is None:
        return None
    return xxhash.xxh3_128("".join(header_lines(variables)).encode()).hexdigest()


def _first(process: Process, model: Differentiable, /) -> tuple[Schedule, Kept, Plan]:
    """Return the schedule of a new run, the level of its adjoint checkpoints, and its plan."""
    request, plans = process.request, list[Plan]()

    def planned(chain: Chain, smaller: Platform) -> Schedule:
        planning = replace(process.planning, chain=chain, platform=smaller)
        plans.append(process.planned(planning))
        return plans[-1]

    schedule, kept = first_plan(
        replace(process.chain, variables=process.variables),
        process.platform,
        model,
        planned,
        every=request.every,
        mtbf=request.mtbf or DAY,
        always=request.walltime is not None,
    )
    return schedule, kept, plans[-1]  # first_plan uses the last plan that it asks for


def wrapping(request: Request, replay: ReplayCheck, /) -> Callable[[Any], Any]:
    """Return a function that wraps a model of this run in its checks.

    The check of the declaration (`guarded`) is the inner one, because it changes values of the
    model on purpose during a step.
    """
    name = request.model or ""

    def wrap(model: Any, /) -> Any:
        if request.guarded:
            model = guarded(name, model)
        model = Reproducible(model, replay)
        if not request.allow_nan:
            model = Finite(model, advice=_ALLOW)
        return model

    return wrap


def with_control(fresh: Callable[[], Any], control: Any, /) -> Any:
    """Return a function that makes the same models with these controls."""

    def made() -> Any:
        model = fresh()
        set_control(model, control)
        return model

    return made


@contextmanager
def cleared_if_nothing_is_left(directory: RunDirectory) -> Iterator[None]:
    """Return a context that removes the directory of a new run which fails in the block.

    The directory remains if a durable level has a checkpoint of the run, if the run was stopped, or
    if an error occurred while the result was written.
    """
    try:
        yield
    except (Halted, ResultNotWritten):
        raise
    except BaseException as error:
        if left_by(error):
            error.add_note(f"the plan is in {directory.path}")
        else:
            directory.clear()
        raise


def write_plan(directory: RunDirectory, schedule: Schedule, process: Process, /) -> Timeline:
    """Write the plan of this process, and return its predicted timeline."""
    platform, overlap = process.platform, process.overlap
    predicted = simulate(schedule, platform, overlap=overlap)
    times = dumps(schedule, platform, predicted, overlap=overlap, origin="predicted")
    directory.write_plan(dumps(schedule, platform, overlap=overlap), times)
    return predicted
