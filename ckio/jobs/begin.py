"""Beginning a run, and resuming one that an earlier process began."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import xxhash

from ckio import __version__
from ckio.actions.columns import REVERSE
from ckio.actions.variables import Variables
from ckio.adapters.registry import names
from ckio.errors import BadInput, StorageError
from ckio.jobs import adjoints
from ckio.jobs.adjoints import Kept, first_plan, next_plan
from ckio.jobs.conclude import NotKept, conclude
from ckio.jobs.directory import CONTROL, SCHEDULE, RunDirectory
from ckio.jobs.display import Display
from ckio.jobs.gradients import checksum_of, control_in, packed_control, set_control
from ckio.jobs.guarding import guarded
from ckio.jobs.levels import left_by, opened
from ckio.jobs.models import maker
from ckio.jobs.planning import Planning, overlap_figures, planner_call, policy
from ckio.jobs.process import Process, control_of, digest_of, has_tapes, variables_of
from ckio.jobs.reopened import Reopened, check_here, check_same, from_there, remove_left, reopened
from ckio.jobs.request import DAY, Manifest, Request
from ckio.jobs.result import Result, read_back
from ckio.jobs.stopping import Halted, Stopper
from ckio.model import Differentiable
from ckio.parallel.team import Team
from ckio.planners.compared import Planned
from ckio.platform import Level, Platform
from ckio.platform.chain import Chain
from ckio.platform.readable import counted
from ckio.recover.again import Killed
from ckio.runner.finite import Finite
from ckio.runner.perform import reserve
from ckio.schedule import Schedule, makespan
from ckio.schedule.policy import AUTO, Overlap
from ckio.schedule.text import dumps, loads
from ckio.schedule.text.reader import header_lines
from ckio.schedule.timeline import Timeline
from ckio.sim.engine import simulate

ALLOW: Final = "--allow-nan goes on with such values"


def begin(process: Process, directory: RunDirectory, /) -> Result:
    """Begin a run and carry it to its end; raises Halted where it is stopped before."""
    request, display = process.request, process.display
    with cleared_if_nothing_is_left(directory):
        model = process.model()
        if request.by_variable:
            known = variables_of(process.name, model).cut(process.chain.length)
            process = replace(process, variables=known)
        schedule, kept, planned = process.team.once(lambda: _first(process, model))
        overlap = policy(request.overlap, planned.overlap, "of the plan", display)
        process = replace(process, overlap=overlap)
        decided: dict[str, Any] = {}
        if process.planning.planner == AUTO or process.planning.decides:
            decided = {"note": planned.schedule.note}
        if process.planning.decides:
            decided |= overlap_figures(planned)
        predicted = write_plan(directory, schedule, process)
        manifest = start(process, directory, model, kept)
        with levels_of(process, manifest) as backends:
            display.tell(process.planning.not_considered)
            display.tell(decided.get("note", ""))
            display.tell(adjoints.told(schedule, process.platform, kept, overlap))
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


def levels_of(process: Process, manifest: Manifest, /) -> Any:
    """Open the levels of a run."""
    return opened(
        process.platform.levels,
        manifest.run,
        keep=process.keeps,
        team=process.team,
        identity=manifest.identity,
    )


def start(
    process: Process, directory: RunDirectory, model: Differentiable, kept: Kept, /
) -> Manifest:
    """Write what identifies a run that begins with this fresh model, and its given controls."""
    request, planning, team = process.request, process.planning, process.team
    given = None
    if request.control is not None:
        data = packed_control(request.control, team)
        directory.write(CONTROL, data)
        given = checksum_of(data)
    manifest = Manifest(
        run=directory.id,
        ckio=__version__,
        request=replace(request, planner=planning.planner, overlap=process.overlap),
        control=control_of(model, team),
        given=given,
        chain=planning.chain,
        variables=_declared(process.variables),
        platform=planning.platform.digest(),
        adjoints=kept.level,
        every=kept.every,
        ranks=team.size,
    )
    directory.begin(manifest)
    return manifest


def _declared(variables: Variables | None) -> str | None:
    """Return the digest of what a model declares of its variables."""
    if variables is None:
        return None
    return xxhash.xxh3_128("".join(header_lines(variables)).encode()).hexdigest()


def _first(process: Process, model: Differentiable, /) -> tuple[Schedule, Kept, Planned]:
    """Return the schedule of a new run, where its adjoints go, and what it was made of.

    By variable it is the better of the plans for all rooms in which there is one.
    """
    found, reasons = [], list[BadInput]()
    for room in process.rooms:
        try:
            found.append(_first_in(*room, process, model))
        except BadInput as reason:
            reasons.append(reason)
    if not found:
        raise reasons[0]
    return min(found, key=lambda each: makespan(each[0], process.platform))


def _first_in(
    chain: Chain, platform: Platform, process: Process, model: Differentiable, /
) -> tuple[Schedule, Kept, Planned]:
    """Plan by the sizes of one chain, in the room of one platform."""
    made: list[Planned] = []
    request = process.request

    def planned(smaller: Platform) -> Schedule:
        planning = replace(process.planning, chain=chain, platform=smaller)
        made.append(process.planned(planning))
        return made[-1].schedule

    whole, kept = first_plan(
        chain,
        platform,
        model,
        planned,
        every=request.every,
        mtbf=request.mtbf or DAY,
        always=request.walltime is not None,
    )
    # The last plan that there was room for is the one that is taken.
    return process.lowered(whole), kept, made[-1]


def resumed(
    request: Request,
    make: str | Callable[..., Any] | None,
    directory: RunDirectory,
    manifest: Manifest,
    /,
    *,
    levels: Sequence[Level] = (),
    display: Display,
    stopper: Stopper | None,
    team: Team,
) -> tuple[Process, Differentiable]:
    """Return the process that resumes a run, and a fresh model of it.

    `make` makes the model where the caller names it. Raises BadInput where the run is not the one
    that is requested, or its model is not named: nothing that a file names is imported.
    """
    platform = _platform_of(request, directory, manifest, levels, team)
    check_here(manifest, platform, directory.path)
    begun = manifest.request
    whole = request.resumed(begun)
    _check_named(make, manifest, directory)
    try:
        fresh = maker(make or begun.model or "", whole.settings, team, wrap=wrapping(whole))
    except BadInput as error:
        if line := from_there(manifest, directory.path, elsewhere=True):
            error.add_note(f"the run was begun in another directory: {line}")
        raise
    control = request.control
    if control is None and (given := manifest.given) is not None:
        parts = team.once(lambda: control_in(directory.path / CONTROL, given))
        control = parts.get(team.rank, {})
    if control is not None:
        fresh = with_control(fresh, control)
    call = planner_call(begun.planner or "", **begun.options)
    planning = Planning(begun.planner or "", manifest.chain, platform, call)
    process = Process(
        request=whole, fresh=fresh, planning=planning, stopper=stopper, display=display, team=team
    )
    model = process.model()
    tapes = has_tapes(manifest.chain, lambda: model)
    process = replace(process, planning=replace(planning, tapes=tapes))
    if begun.by_variable:
        process = replace(process, variables=_variables(directory, manifest, model))
    if control_of(model, team) != manifest.control:
        raise _another_run(directory, ["the controls of the model are others"])
    if _declared_now(process, manifest, model) != manifest.variables:
        raise _another_run(directory, ["the model declares other variables"])
    assert isinstance(begun.overlap, Overlap)
    asked = request.overlap
    overlap = policy(asked, begun.overlap, "that the run was begun with", display)
    return replace(process, overlap=overlap), model


def ended(
    request: Request,
    directory: RunDirectory,
    manifest: Manifest,
    /,
    *,
    levels: Sequence[Level] = (),
    team: Team,
) -> Result:
    """Return the stored result of a run that has ended; what was left on its levels goes.

    No model is needed. Raises BadInput where the run is not the one that is requested.
    """
    platform = _platform_of(request, directory, manifest, levels, team)
    if request.control is not None and digest_of(request.control, team) != manifest.control:
        raise _another_run(directory, ["the controls of the model are others"])
    found = read_back(directory, platform, team)
    if request.check and found.verified is None:
        raise BadInput(
            f"{directory.path}: the run has ended without --check-gradient; check it by a new run"
        )
    if not (request.keep or manifest.request.keep):
        remove_left(directory, platform, team)
    return found


def _platform_of(
    request: Request,
    directory: RunDirectory,
    manifest: Manifest,
    levels: Sequence[Level],
    team: Team,
    /,
) -> Platform:
    """Return the platform of a run; raises BadInput where it is not the one that is requested."""
    platform = directory.platform()
    if platform.digest() != manifest.platform:
        raise BadInput(f"{directory.path}: the platform in its schedule.txt is not that of the run")
    _check_ranks(manifest, directory.path, team)
    found = list(_found_different(request, manifest, platform, levels))
    if found:
        raise _another_run(directory, found)
    return platform


def _declared_now(process: Process, manifest: Manifest, model: Differentiable) -> str | None:
    """Return the digest of what the model declares now, as the manifest has it."""
    if manifest.variables is None:
        return None
    known = variables_of(process.name, model)
    return _declared(known.cut(manifest.chain.length))


def _check_named(
    make: str | Callable[..., Any] | None, manifest: Manifest, directory: RunDirectory, /
) -> None:
    """Raise BadInput where a model is named by a file alone, and is not one that is installed."""
    name = manifest.request.model
    if make is None and name not in names("models"):
        line = from_there(manifest, directory.path)
        raise BadInput(
            f"{directory.path} is a run of {name!r}, and nothing that a file names is imported:"
            f" name the model again, as in: {line}"
        )


def wrapping(request: Request, /) -> Callable[[Any], Any] | None:
    """Return what a model of this run is put into; None for nothing.

    Steps are held against the declaration first: such a model is altered on purpose meanwhile.
    """
    name = request.model or ""

    def wrap(model: Any, /) -> Any:
        if request.guarded:
            model = guarded(name, model)
        if not request.allow_nan:
            model = Finite(model, advice=ALLOW)
        return model

    return wrap if request.guarded or not request.allow_nan else None


def with_control(fresh: Callable[[], Any], control: Any, /) -> Any:
    """Return a maker of the same models with these controls."""

    def made() -> Any:
        model = fresh()
        set_control(model, control)
        return model

    return made


def _found_different(
    request: Request, manifest: Manifest, platform: Platform, levels: Sequence[Level]
) -> Iterator[str]:
    yield from request.differences(manifest.request)
    yield from check_same(request.platform, manifest, platform)
    known = {level.name: level for level in platform.levels}
    for level in levels:
        there = known.get(level.name)
        if there is None or there.capacity != level.capacity or there.options != level.options:
            yield f"level {level.name} is asked for as it is not in the run"


def _another_run(directory: RunDirectory, found: list[str]) -> BadInput:
    return BadInput(
        f"{directory.path} holds another run: {'; '.join(found)}. Resume it as it was begun, or"
        " choose another directory"
    )


def _check_ranks(manifest: Manifest, where: object, team: Team, /) -> None:
    """Raise BadInput where the run has another number of ranks: each of them has its own part."""
    if manifest.ranks != team.size:
        begun, now = (f"{n} rank{'s' * (n > 1)}" for n in (manifest.ranks, team.size))
        raise BadInput(
            f"{where} holds a run of {begun}, and this job has {now}: what a rank stored is its"
            f" own part of the state; resume it on {begun}"
        )


def _variables(directory: RunDirectory, manifest: Manifest, model: Differentiable) -> Variables:
    """Return the variables of the last plan: what lies on the levels has their names."""
    last = loads(directory.read(SCHEDULE)).schedule.chain.variables
    return variables_of(manifest.request.model or "", model) if last is None else last


def again(
    process: Process, model: Differentiable, directory: RunDirectory, manifest: Manifest, /
) -> Result:
    """Carry a run that an earlier process began to its end."""
    display = process.display
    kept = interval(process, manifest)
    there = reopened(process, manifest)
    with there as opened_again:
        last = killed_in(directory, process.platform)
        schedule, found, kept = _rest(process, model, opened_again, kept, last)
        for line in found.lost:
            display.warn(line)
        predicted = write_plan(directory, schedule, process)
        display.tell(survived(schedule, process.platform))
        display.tell(adjoints.told(schedule, process.platform, kept, process.overlap))
        return conclude(
            process,
            directory,
            model,
            schedule,
            platform=found.platform,
            backends=found.backends,
            predicted=predicted,
            kept=kept,
        )


def interval(process: Process, manifest: Manifest, /) -> Kept:
    """Return where adjoint checkpoints go: as the run began, or at the interval asked for now."""
    request, begun = process.request, manifest.request
    every = request.every if request.every != begun.every else None
    if request.mtbf != begun.mtbf and every is None and manifest.adjoints is not None:
        number = process.platform.number(manifest.adjoints)
        return adjoints.kept_on(process.chain, process.platform, number, mtbf=request.mtbf or DAY)
    return Kept(manifest.adjoints, every or manifest.every)


@contextmanager
def cleared_if_nothing_is_left(directory: RunDirectory) -> Iterator[None]:
    """Leave no directory of a new run that failed before a durable level held a checkpoint.

    A result that was written stays, whatever failed after it.
    """
    try:
        yield
    except (Halted, NotKept):
        raise
    except BaseException as error:
        if left_by(error):
            error.add_note(f"the plan is in {directory.path}")
        else:
            directory.clear()
        raise


def write_plan(directory: RunDirectory, schedule: Schedule, process: Process, /) -> Timeline:
    """Keep the plan of this process; return the timeline that is predicted for it."""
    platform, overlap = process.platform, process.overlap
    predicted = simulate(schedule, platform, overlap=overlap)
    times = dumps(schedule, platform, predicted, overlap=overlap, origin="predicted")
    directory.write_plan(dumps(schedule, platform, overlap=overlap), times)
    return predicted


def _rest(
    process: Process,
    model: Differentiable,
    found: Reopened,
    kept: Kept,
    killed: Killed | None,
    /,
) -> tuple[Schedule, Reopened, Kept]:
    """Return the schedule from what was found, for which there is room.

    Where there is none, damaged levels are not used: their files may not grow any more.
    """
    tapes = process.stores_tapes(found.survivors)
    chain = replace(process.chain, variables=process.variables)
    args = chain, found.platform, found.survivors, model, kept
    with process.display.progress(f"planning the rest of {process.chain.length} steps"):
        schedule, now_kept = process.team.once(lambda: next_plan(*args, tapes=tapes, killed=killed))
    try:
        reserve(schedule, found.platform, found.backends)
    except (BadInput, StorageError) as error:
        if not found.damaged:
            raise
        sound = found.without(found.damaged, str(error))
        return _rest(process, model, sound, kept, killed)
    return schedule, found, now_kept


def killed_in(directory: RunDirectory, platform: Platform, /) -> Killed | None:
    """Return what the process before this one was to do; None where it had no plan yet."""
    schedule = loads(directory.read(SCHEDULE)).schedule
    return Killed(schedule, adjoints.durable(platform)) if len(schedule) else None


def survived(schedule: Schedule, platform: Platform) -> str:
    """Say what there is to resume from, and what is left."""
    what = "checkpoint" if schedule.chain.variables is None else "array"
    held = [
        f"{counted(len(keys), what)} on {level.name}"
        for level, keys in zip(platform.levels, schedule.stored, strict=False)
        if keys
    ]
    steps = int(
        (schedule.actions.end - schedule.actions.begin)[schedule.actions.op == REVERSE].sum()
    )
    return (
        f"resumed from {' and '.join(held) or 'the start'};"
        f" {steps} of {schedule.chain.length} steps are left to reverse"
    )


def perform(process: Process, into: Path, /) -> Result:
    """Begin a run in a new directory and carry it to its end; signals interrupt it."""
    directory = RunDirectory(into)
    try:
        return begin(process, directory)
    finally:
        directory.release()
