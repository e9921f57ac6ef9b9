"""Whether a request is for the run in a directory, and the attempt that resumes this run.

`attempt_of` compares the request with the manifest, and makes the model. `ended` reads the result
of a run that has ended. For safety, no module or file is imported because a manifest names it: the
caller has to name the model, unless it is registered by an installed package.
"""

import logging
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ckio.adapters import registry
from ckio.errors import BadInput, StorageError
from ckio.jobs.directory import (
    CONTROL,
    SCHEDULE,
    RunDirectory,
    manifest_in,
    platform_in,
    with_paths,
)
from ckio.jobs.display import Display
from ckio.jobs.gradients import given_control, read_control, with_control
from ckio.jobs.known import code_of, known_costs
from ckio.jobs.levels import called, may_exist, opened
from ckio.jobs.models import factory_of, maker, variables_of
from ckio.jobs.planning import Planning, planner_call, policy, with_working_memory
from ckio.jobs.request import Manifest, Request
from ckio.jobs.result import Result, read_back
from ckio.jobs.run import Attempt, control_digest, has_tapes, variables_digest, wrapping
from ckio.jobs.states import adding_to, differences, first_states, read_states
from ckio.jobs.stopping import Stopper
from ckio.model import Array, Differentiable, optional
from ckio.parallel.group import RankGroup
from ckio.platform import Level, Platform
from ckio.platform.readable import option
from ckio.runner.reproducible import ReplayCheck
from ckio.schedule.policy import Overlap
from ckio.schedule.text import loads

log = logging.getLogger("ckio")


def attempt_of(
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
) -> tuple[Attempt, Differentiable]:
    """Return the attempt that resumes a run, and a fresh model.

    `make` is the model that the caller names, if any. Raises BadInput if the run is not the one
    that is requested, or if the model is not named and is not a registered one.
    """
    platform = _platform_of(request, directory, manifest, levels, ranks)
    begun = manifest.request
    whole = request.resumed(begun)
    _check_named(make, manifest, directory)
    replay = ReplayCheck(allow_rounding=whole.allow_rounding)
    make = make or begun.model or ""
    fresh = _maker_of_same(request, make, directory, manifest, ranks=ranks, replay=replay)
    replay.note = None if ranks.rank else adding_to(directory)
    planner = begun.planner or ""
    assert isinstance(begun.overlap, Overlap)
    attempt = Attempt(
        request=whole,
        directory=directory,
        fresh=fresh,
        planning=Planning(planner, manifest.chain, platform, planner_call(planner)),
        overlap=policy(request.overlap, begun.overlap, "that the run was begun with", display),
        stopper=stopper,
        display=display,
        ranks=ranks,
        replay=replay,
    )
    model = attempt.model()
    made_by, steps = factory_of(make), begun.steps
    _, known = known_costs(begun, made_by, model, platform.levels, steps=steps, ranks=ranks)
    if known is not None and known.are_of(platform):
        attempt = replace(attempt, costs=known)
    chain, tapes = manifest.chain, has_tapes(manifest.chain, lambda: model)
    if begun.by_variable:
        variables = variables_of(attempt.name, model).cut(manifest.chain.length)
        if variables_digest(variables) != manifest.variables:
            raise _another_run(directory, ["the model declares different variables"])
        # The stored checkpoints have the names in the last plan, which may combine variables.
        last = loads(directory.read(SCHEDULE)).schedule.chain.variables
        chain = replace(chain, variables=variables if last is None else last)
    return replace(attempt, planning=replace(attempt.planning, chain=chain, tapes=tapes)), model


def _maker_of_same(
    request: Request,
    make: str | Callable[..., Any],
    directory: RunDirectory,
    manifest: Manifest,
    /,
    *,
    ranks: RankGroup,
    replay: ReplayCheck,
) -> Callable[[], Any]:
    """Return a function that makes fresh models of a run, after one of them has made a step.

    The controls and the first states are compared with those of the run, and later states will be
    by `replay`. Raises BadInput if they differ.
    """
    whole = request.resumed(manifest.request)
    wrap = wrapping(whole, replay, is_alone=ranks.is_alone)
    fresh = maker(make, whole.settings, ranks, wrap=wrap)
    control: Mapping[str, Array] | None = None
    if request.control is not None:
        control = given_control(request.control, ranks)
    elif (given := manifest.given) is not None:
        control = read_control(directory.path / CONTROL, ranks, checksum=given)
    if control is not None:
        fresh = with_control(fresh, control)
    model = fresh()
    if control_digest(optional(model).control, ranks) != manifest.control:
        raise _another_run(directory, ["the controls of the model are different"])
    states = ranks.once(lambda: read_states(directory.path))
    mine, now = states.get(ranks.rank, {}), first_states(model)
    different = list(differences(mine, now, allow_rounding=whole.allow_rounding))
    if every := [text for each in ranks.gather(different) for text in each]:
        reason = f"{every[0]}; its data, its code or its environment has changed"
        raise _another_run(directory, [reason])
    if manifest.code not in (None, ranks.once(lambda: code_of(factory_of(make)))):
        log.warning(
            "%s: the file of the model has changed since this run was begun, or one beside it that"
            " it imports; what it has computed is of the old code: begin a new run in another"
            " directory, unless both compute the same",
            directory.path,
        )
    # The states of steps 0 and 1 are those that have just been compared.
    replay.marks = {step: marks for step, marks in mine.items() if step > 1}
    replay.earlier = frozenset(replay.marks)
    return fresh


def ended(
    request: Request,
    make: str | Callable[..., Any] | None,
    directory: RunDirectory,
    manifest: Manifest,
    /,
    *,
    levels: Sequence[Level] = (),
    ranks: RankGroup,
) -> Result:
    """Return the stored result of a run that has ended, and remove checkpoints that remain of it.

    No model is needed. If one is given, it is compared with that of the run. Raises BadInput if the
    run is not the one that is requested.
    """
    platform = _platform_of(request, directory, manifest, levels, ranks)
    if make is not None:
        _maker_of_same(request, make, directory, manifest, ranks=ranks, replay=ReplayCheck())
    result = read_back(directory, platform, ranks)
    if request.control is not None:
        control = given_control(request.control, ranks)
        if control_digest(control, ranks) != manifest.control:
            raise _another_run(directory, ["the controls of the model are different"])
    if request.check and result.verified is None:
        raise BadInput(
            f"{directory.path}: the run has ended without {option('check')}; to check the gradient,"
            " begin a new run in another directory"
        )
    _remove_left(manifest, with_paths(platform, directory.path, manifest), ranks)
    return result


def _platform_of(
    request: Request,
    directory: RunDirectory,
    manifest: Manifest,
    levels: Sequence[Level],
    ranks: RankGroup,
    /,
) -> Platform:
    """Return the platform of a run; raises BadInput if it is not the one that is requested."""
    platform = directory.platform()
    if platform.digest() != manifest.platform:
        raise BadInput(
            f"{directory.path}: the platform in its schedule.txt is not that of the run; restore"
            " the file, or begin a new run in another directory"
        )
    _check_ranks(manifest, directory.path, ranks)
    found = list(_differences(request, manifest, platform, levels))
    if found:
        raise _another_run(directory, found)
    return platform


def _other_capacity(level: Level, own: Level) -> bool:
    """Return whether a capacity was given, and is another one; that of a disk may be left out."""
    is_left_out = level.capacity is None and "path" in level.options
    return level.capacity != own.capacity and not is_left_out


def _differences(
    request: Request, manifest: Manifest, platform: Platform, levels: Sequence[Level]
) -> Iterator[str]:
    """Yield a text for each difference between the request and the run."""
    yield from request.differences(manifest.request)
    given = request.platform
    if given is not None and manifest.platform not in (
        given.digest(),
        with_working_memory(given, manifest.chain).digest(),
    ):
        yield f"{option('platform')} differs ({', '.join(_other_parts(given, platform))})"
    known = {level.name: level for level in platform.levels}
    for level in levels:
        own = known.get(level.name)
        if own is None or own.options != level.options or _other_capacity(level, own):
            yield f"level {level.name} has other options or another capacity than in the run"


def _another_run(directory: RunDirectory, differences: list[str]) -> BadInput:
    return BadInput(
        f"{directory.path} holds another run: {'; '.join(differences)}. Resume it as it was begun,"
        f" or choose another directory: {option('directory', 'DIR')}"
    )


def _check_ranks(manifest: Manifest, where: object, ranks: RankGroup, /) -> None:
    """Raise BadInput if the run has another number of ranks: each rank stored its own part."""
    if manifest.ranks != ranks.size:
        begun, now = (f"{n} rank{'s' * (n > 1)}" for n in (manifest.ranks, ranks.size))
        raise BadInput(
            f"{where} holds a run of {begun}, and this job has {now}: each rank has stored its own"
            f" part of the state; resume the run on {begun}"
        )


def _check_named(
    make: str | Callable[..., Any] | None, manifest: Manifest, directory: RunDirectory, /
) -> None:
    """Raise BadInput if only the manifest names the model, and it is not a registered one."""
    name = manifest.request.model
    if make is None and name not in registry.names("models"):
        line = resume_line(directory.path, manifest.ranks, name)
        raise BadInput(
            f"{directory.path} is a run of {name!r}; for safety, ckio imports no model that only a"
            f" file names; name the model again: {line}"
        )


def _other_parts(given: Platform, own: Platform) -> Iterator[str]:
    """Yield a text for each difference between a given platform and that of the run."""
    if given.working_memory != own.working_memory:
        yield f"working_memory {given.working_memory} for {own.working_memory}"
    mine, theirs = ({level.name: level for level in platform.levels} for platform in (given, own))
    if list(mine) != list(theirs):
        yield f"levels {', '.join(mine)} for {', '.join(theirs)}"
        return
    for name, level in mine.items():
        yield from (
            f"{name}: {part} {getattr(level, part)} for {getattr(theirs[name], part)}"
            for part in ("capacity", "backend", "options", "write", "read", "discard", "ratio")
            if getattr(level, part) != getattr(theirs[name], part)
        )


def resume_line(into: Path, ranks: int, model: str | None = None, /) -> str:
    """Return the command that resumes a run on this number of ranks.

    The command names the model, unless it is a registered one, because ckio imports no model that
    only a file names.
    """
    job = f"mpiexec -n {ranks} " if ranks > 1 else ""
    named = model is not None and model not in registry.names("models")
    words = f"{shlex.quote(model)} " if model and named else ""
    return f"{job}ckio run {words}--resume --into {shlex.quote(str(into))}"


def remove_checkpoints(path: Path, ranks: RankGroup, /) -> None:
    """Remove the checkpoints of a run in this directory that has ended with an error.

    Raises BadInput if the run has no plan yet, and so no checkpoints.
    """
    manifest = manifest_in(path)
    _remove_left(manifest, with_paths(platform_in(path / SCHEDULE), path, manifest), ranks)


def _remove_left(manifest: Manifest, platform: Platform, ranks: RankGroup, /) -> None:
    """Remove the checkpoints of a process that was killed after it had written its result."""
    own, run = called(manifest.run, ranks), manifest.run
    levels = [level for level in platform.levels if registry.place(level, own) is not None]
    places = [registry.place(level, own) for level in levels]
    if not any(ranks.gather(any(where and may_exist(where) for where in places))):
        return
    try:
        with opened(levels, run, temporary=True, ranks=ranks, identity=manifest.identity):
            pass
    except (StorageError, BadInput) as error:
        log.warning("%s", error)
