"""Resuming a run that an earlier process began: by the same request, from what survived of it.

`resumed` compares the request with the manifest, and makes the model again. `again` opens the
levels, plans the rest from what is sound on them, and carries the run to its end. `ended` reads the
result of a run that has ended. Nothing that a file names is imported.
"""

import logging
import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

from ckio.actions.columns import REVERSE
from ckio.actions.variables import Variables
from ckio.adapters import registry
from ckio.backends.runid import of_rank
from ckio.errors import BadInput, StorageError
from ckio.jobs import adjoints
from ckio.jobs.adjoints import Kept, next_plan
from ckio.jobs.begin import declared, with_control, wrapping, write_plan
from ckio.jobs.directory import CONTROL, SCHEDULE, RunDirectory
from ckio.jobs.display import Display
from ckio.jobs.gradients import control_in
from ckio.jobs.leftovers import holdings, remove
from ckio.jobs.levels import Reopened, called, opened, reopened
from ckio.jobs.models import maker, variables_of
from ckio.jobs.planning import Planning, planner_call, policy, with_room
from ckio.jobs.process import Process, conclude, control_of, digest_of, has_tapes
from ckio.jobs.request import DAY, Manifest, Request
from ckio.jobs.result import Result, read_back
from ckio.jobs.stopping import Stopper
from ckio.model import Differentiable
from ckio.parallel.group import RankGroup
from ckio.planners.recover import Killed
from ckio.platform import Level, Platform
from ckio.platform.readable import counted
from ckio.runner.perform import reserve
from ckio.schedule import Schedule
from ckio.schedule.policy import Overlap
from ckio.schedule.text import loads

log = logging.getLogger("ckio")


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
    ranks: RankGroup,
) -> tuple[Process, Differentiable]:
    """Return the process that resumes a run, and a fresh model of it.

    `make` makes the model where the caller names it. Raises BadInput where the run is not the one
    that is requested, or its model is not named: nothing that a file names is imported.
    """
    platform = _platform_of(request, directory, manifest, levels, ranks)
    _check_here(manifest, platform, directory.path)
    begun = manifest.request
    whole = request.resumed(begun)
    _check_named(make, manifest, directory)
    try:
        fresh = maker(make or begun.model or "", whole.settings, ranks, wrap=wrapping(whole))
    except BadInput as error:
        if line := _line_from_there(manifest, directory.path, elsewhere=True):
            error.add_note(f"the run was begun in another directory: {line}")
        raise
    control = request.control
    if control is None and (given := manifest.given) is not None:
        parts = ranks.once(lambda: control_in(directory.path / CONTROL, given))
        control = parts.get(ranks.rank, {})
    if control is not None:
        fresh = with_control(fresh, control)
    call = planner_call(begun.planner or "", **begun.options)
    planning = Planning(begun.planner or "", manifest.chain, platform, call)
    process = Process(
        request=whole, fresh=fresh, planning=planning, stopper=stopper, display=display, ranks=ranks
    )
    model = process.model()
    tapes = has_tapes(manifest.chain, lambda: model)
    process = replace(process, planning=replace(planning, tapes=tapes))
    if begun.by_variable:
        process = replace(process, variables=_variables(directory, manifest, model))
    if control_of(model, ranks) != manifest.control:
        raise _another_run(directory, ["the controls of the model are others"])
    if manifest.variables is not None:
        known = variables_of(process.name, model).cut(manifest.chain.length)
        if declared(known) != manifest.variables:
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
    ranks: RankGroup,
) -> Result:
    """Return the stored result of a run that has ended; what was left on its levels goes.

    No model is needed. Raises BadInput where the run is not the one that is requested.
    """
    platform = _platform_of(request, directory, manifest, levels, ranks)
    if request.control is not None and digest_of(request.control, ranks) != manifest.control:
        raise _another_run(directory, ["the controls of the model are others"])
    result = read_back(directory, platform, ranks)
    if request.check and result.verified is None:
        raise BadInput(
            f"{directory.path}: the run has ended without --check-gradient; check it by a new run"
        )
    if not (request.keep or manifest.request.keep):
        _remove_left(directory, platform, ranks)
    return result


def again(
    process: Process, model: Differentiable, directory: RunDirectory, manifest: Manifest, /
) -> Result:
    """Carry a run that an earlier process began to its end."""
    display, platform, kept = process.display, process.platform, interval(process, manifest)
    with levels_left(process, manifest) as survived:
        killed = _killed(directory, platform)
        schedule, levels, kept = _rest(process, model, survived, kept, killed)
        for line in levels.lost:
            display.warn(line)
        predicted = write_plan(directory, schedule, process)
        display.tell(_survived(schedule, platform))
        display.tell(adjoints.cost_of_a_kill(schedule, platform, kept, process.overlap))
        return conclude(
            process,
            directory,
            model,
            schedule,
            platform=levels.platform,
            backends=levels.backends,
            predicted=predicted,
            kept=kept,
        )


def levels_left(process: Process, manifest: Manifest, /) -> AbstractContextManager[Reopened]:
    """Open the levels of a run again, with what survived on them."""
    return reopened(
        process.platform,
        manifest.run,
        keep=process.keeps,
        ranks=process.ranks,
        identity=manifest.identity,
        display=process.display,
    )


def interval(process: Process, manifest: Manifest, /) -> Kept:
    """Return where adjoint checkpoints go: as the run began, or at the interval asked for now."""
    request, begun = process.request, manifest.request
    every = request.every if request.every != begun.every else None
    if request.mtbf != begun.mtbf and every is None and manifest.adjoints is not None:
        number = process.platform.number(manifest.adjoints)
        return adjoints.kept_on(process.chain, process.platform, number, mtbf=request.mtbf or DAY)
    return Kept(manifest.adjoints, every or manifest.every)


def _rest(
    process: Process,
    model: Differentiable,
    levels: Reopened,
    kept: Kept,
    killed: Killed | None,
    /,
) -> tuple[Schedule, Reopened, Kept]:
    """Return the schedule from what is left on the levels, for which there is space.

    Where there is none, damaged levels are not used: their files may not grow any more.
    """
    tapes = process.stores_tapes(levels.survivors)
    chain = replace(process.chain, variables=process.variables)
    args = chain, levels.platform, levels.survivors, model, kept
    with process.display.progress(f"planning the rest of {process.chain.length} steps"):
        schedule, now_kept = process.ranks.once(
            lambda: next_plan(*args, tapes=tapes, killed=killed)
        )
    try:
        reserve(schedule, levels.platform, levels.backends)
    except (BadInput, StorageError) as error:
        if not levels.damaged:
            raise
        for number in sorted(levels.damaged):
            levels = levels.without(number, str(error))
        return _rest(process, model, levels, kept, killed)
    return schedule, levels, now_kept


def _killed(directory: RunDirectory, platform: Platform) -> Killed | None:
    """Return the plan of the process before this one; None where it had none yet."""
    schedule = loads(directory.read(SCHEDULE)).schedule
    return Killed(schedule, adjoints.durable(platform)) if len(schedule) else None


def _survived(schedule: Schedule, platform: Platform) -> str:
    """Say what there is to resume from, and what is left."""
    what = "checkpoint" if schedule.chain.variables is None else "array"
    survivors = [
        f"{counted(len(keys), what)} on {level.name}"
        for level, keys in zip(platform.levels, schedule.stored, strict=False)
        if keys
    ]
    steps = int(
        (schedule.actions.end - schedule.actions.begin)[schedule.actions.op == REVERSE].sum()
    )
    return (
        f"resumed from {' and '.join(survivors) or 'the start'};"
        f" {steps} of {schedule.chain.length} steps are left to reverse"
    )


def _platform_of(
    request: Request,
    directory: RunDirectory,
    manifest: Manifest,
    levels: Sequence[Level],
    ranks: RankGroup,
    /,
) -> Platform:
    """Return the platform of a run; raises BadInput where it is not the one that is requested."""
    platform = directory.platform()
    if platform.digest() != manifest.platform:
        raise BadInput(f"{directory.path}: the platform in its schedule.txt is not that of the run")
    _check_ranks(manifest, directory.path, ranks)
    differences = list(_differences(request, manifest, platform, levels))
    if differences:
        raise _another_run(directory, differences)
    return platform


def _differences(
    request: Request, manifest: Manifest, platform: Platform, levels: Sequence[Level]
) -> Iterator[str]:
    """Say what is requested and is not the same in the run."""
    yield from request.differences(manifest.request)
    given = request.platform
    if given is not None and manifest.platform not in (
        given.digest(),
        with_room(given, manifest.chain).digest(),
    ):
        yield f"--platform differs ({', '.join(_other_parts(given, platform))})"
    known = {level.name: level for level in platform.levels}
    for level in levels:
        own = known.get(level.name)
        if own is None or own.capacity != level.capacity or own.options != level.options:
            yield f"level {level.name} is asked for as it is not in the run"


def _another_run(directory: RunDirectory, differences: list[str]) -> BadInput:
    return BadInput(
        f"{directory.path} holds another run: {'; '.join(differences)}. Resume it as it was begun,"
        " or choose another directory"
    )


def _check_ranks(manifest: Manifest, where: object, ranks: RankGroup, /) -> None:
    """Raise BadInput where the run has another number of ranks: each of them has its own part."""
    if manifest.ranks != ranks.size:
        begun, now = (f"{n} rank{'s' * (n > 1)}" for n in (manifest.ranks, ranks.size))
        raise BadInput(
            f"{where} holds a run of {begun}, and this job has {now}: what a rank stored is its"
            f" own part of the state; resume it on {begun}"
        )


def _check_named(
    make: str | Callable[..., Any] | None, manifest: Manifest, directory: RunDirectory, /
) -> None:
    """Raise BadInput where a model is named by a file alone, and is not one that is installed."""
    name = manifest.request.model
    if make is None and name not in registry.names("models"):
        line = _line_from_there(manifest, directory.path)
        raise BadInput(
            f"{directory.path} is a run of {name!r}, and nothing that a file names is imported:"
            f" name the model again, as in: {line}"
        )


def _variables(directory: RunDirectory, manifest: Manifest, model: Differentiable) -> Variables:
    """Return the variables of the last plan: what lies on the levels has their names."""
    last = loads(directory.read(SCHEDULE)).schedule.chain.variables
    return variables_of(manifest.request.model or "", model) if last is None else last


def _other_parts(given: Platform, there: Platform) -> Iterator[str]:
    """Say what differs between two platforms."""
    if given.working_memory != there.working_memory:
        yield f"working_memory {given.working_memory} for {there.working_memory}"
    mine, theirs = ({level.name: level for level in platform.levels} for platform in (given, there))
    if list(mine) != list(theirs):
        yield f"levels {', '.join(mine)} for {', '.join(theirs)}"
        return
    for name, level in mine.items():
        yield from (
            f"{name}: {part} {getattr(level, part)} for {getattr(theirs[name], part)}"
            for part in ("capacity", "backend", "options", "write", "read", "discard", "ratio")
            if getattr(level, part) != getattr(theirs[name], part)
        )


def _check_here(manifest: Manifest, platform: Platform, into: Path, /) -> None:
    """Raise BadInput where a level is found only from the directory in which the run was begun."""
    line = _line_from_there(manifest, into, elsewhere=True)
    first = manifest.run if manifest.ranks == 1 else of_rank(manifest.run, 0)
    for level in platform.levels if line else ():
        where = registry.place(level, first)
        if where is not None and not where.exists() and (Path(manifest.here) / where).exists():
            raise BadInput(
                f"{into} was begun in another directory, from which its level {level.name} is"
                f" {where}; go on with: {line}"
            )


def _line_from_there(manifest: Manifest, into: Path, /, *, elsewhere: bool = False) -> str:
    """Return `resume_line`, after a change to the directory where the run was begun, if need be.

    With `elsewhere` it is "" where that is the current directory.
    """
    model, here = manifest.request.model, Path(manifest.here).resolve()
    if not manifest.here or not here.is_dir() or here == Path.cwd():
        return "" if elsewhere else resume_line(into, manifest.ranks, model)
    there = into.resolve()
    near = there.relative_to(here) if there.is_relative_to(here) else there
    return f"cd {shlex.quote(str(here))} && {resume_line(near, manifest.ranks, model)}"


def resume_line(into: Path, ranks: int, model: str | None = None, /) -> str:
    """Return the command that resumes a run of so many ranks.

    A model that is not installed with ckio or another package is named in it, as nothing is
    imported that a file alone names.
    """
    job = f"mpiexec -n {ranks} " if ranks > 1 else ""
    named = model is not None and model not in registry.names("models")
    words = f"{shlex.quote(model)} " if model and named else ""
    return f"{job}ckio run {words}--resume --into {shlex.quote(str(into))}"


def _remove_left(directory: RunDirectory, platform: Platform, ranks: RankGroup, /) -> None:
    """Remove the checkpoints that a process left which was killed after it wrote its result."""
    if not ranks.is_alone:
        _remove_parts(directory.id, platform, ranks)
        return
    for holding in holdings(directory.path):
        try:
            remove(holding)
        except StorageError as error:
            log.warning("%s", error)


def _remove_parts(run: str, platform: Platform, ranks: RankGroup) -> None:
    """Remove what each rank has left where it sees it; nothing is made where nothing is."""
    own = called(run, ranks)
    places = [registry.place(level, own) for level in platform.levels]
    if any(ranks.gather(any(where is not None and where.exists() for where in places))):
        with opened(platform.levels, run, keep="nothing", ranks=ranks):
            pass
