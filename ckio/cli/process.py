"""What one process does of a run: it begins it, or goes on with what an earlier one began."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from ckio import __version__
from ckio.chain import Chain
from ckio.cli import adjoints, console
from ckio.cli.adjoints import Kept, Wish, first_plan, next_plan
from ckio.cli.conclude import NotKept, conclude
from ckio.cli.guarding import guarding
from ckio.cli.job import How, Job, control_of, has_tapes, model_of, stores_tapes, variables_of
from ckio.cli.levels import opened
from ckio.cli.models import Settings, maker
from ckio.cli.outcome import Outcome, read_back
from ckio.cli.plans import Plan, overlap_figures, planner_call, policy
from ckio.cli.resume import (
    Found,
    Given,
    check_here,
    check_ranks,
    check_same,
    from_there,
    remove_left,
    reopened,
)
from ckio.cli.stopping import Halted
from ckio.cli.stored import counted
from ckio.columns import REVERSE
from ckio.errors import BadInput, StorageError
from ckio.model import Differentiable
from ckio.overlap import Overlap, Policy
from ckio.planners.compared import Planned
from ckio.platforms import Platform
from ckio.recover.again import Killed
from ckio.rundir import SCHEDULE, Manifest, RunDirectory
from ckio.runner.before import reserve
from ckio.schedule import Schedule, makespan
from ckio.sim.engine import simulate
from ckio.texts import dumps, loads
from ckio.timeline import Timeline
from ckio.variables import Variables


def perform(
    name: str,
    settings: Settings,
    fresh: Callable[[], Differentiable],
    plan: Plan,
    into: Path,
    /,
    *,
    check: bool = False,
    quiet: bool = False,
) -> Outcome:
    """Plan, simulate, run and compare, with everything that is worth keeping kept in `into`.

    Of what fails before a durable level holds a checkpoint, nothing is kept.
    """
    directory = RunDirectory(into)
    try:
        job = Job(name, settings, fresh, plan, {})
        return begin(job, directory, Wish(), How(check=check, quiet=quiet))
    finally:
        directory.release()


def begin(
    job: Job,
    directory: RunDirectory,
    wish: Wish,
    how: How,
    /,
    *,
    asked: Policy | None = None,
) -> Outcome:
    """Begin a run and carry it to its end; raises Halted where it is stopped before.

    What overlaps is what was `asked` for, or else what the plan was made for.
    """
    platform = job.plan.platform
    with cleared_if_nothing_is_left(directory):
        model = model_of(job, how)
        if how.by_variable:
            known = variables_of(job.model, model).cut(job.plan.chain.length)
            job = replace(job, variables=known)
        schedule, kept, planned = how.team.once(lambda: _first(job, model, wish, quiet=how.quiet))
        how = replace(how, overlap=policy(asked, planned.overlap, "of the plan", quiet=how.quiet))
        say(job.plan.not_considered, how)
        decided: dict[str, Any] = {}
        if job.plan.decides:
            say(planned.schedule.note, how)
            decided = {**overlap_figures(planned), "note": planned.schedule.note}
        predicted = write_plan(directory, schedule, platform, how)
        directory.begin(manifest_of(job, directory, model, kept, how))
        say(adjoints.told(schedule, platform, kept, how.overlap), how)
        with opened(platform.levels, directory.id, keep=how.keeps, team=how.team) as backends:
            return conclude(
                job,
                directory,
                model,
                schedule,
                platform=platform,
                backends=backends,
                predicted=predicted,
                kept=kept,
                how=how,
                decided=decided,
            )


def _first(
    job: Job, model: Differentiable, wish: Wish, /, *, quiet: bool
) -> tuple[Schedule, Kept, Planned]:
    """The schedule of a new run, where its adjoints go, and what it was made of.

    By variable it is the better of the plans for all rooms in which there is one.
    """
    found, reasons = [], list[BadInput]()
    for room in job.rooms:
        try:
            found.append(_first_in(room, job, model, wish, quiet=quiet))
        except BadInput as reason:
            reasons.append(reason)
    if not found:
        raise reasons[0]
    return min(found, key=lambda each: makespan(each[0], job.plan.platform))


def _first_in(
    room: tuple[Chain, Platform], job: Job, model: Differentiable, wish: Wish, /, *, quiet: bool
) -> tuple[Schedule, Kept, Planned]:
    """The same by the sizes of one chain, in the room of one platform."""
    chain, platform = room
    made: list[Planned] = []

    def planned(smaller: Platform) -> Schedule:
        plan = replace(job.plan, chain=chain, platform=smaller)
        made.append(plan.planned(quiet=quiet))
        return made[-1].schedule

    whole, kept = first_plan(chain, platform, model, planned, wish)
    # The last plan that there was room for is the one that is taken.
    return job.lowered(whole), kept, made[-1]


def same_job(
    given: Given, directory: RunDirectory, manifest: Manifest, how: How, /
) -> tuple[Job, Differentiable, How]:
    """The run that an earlier process began, and a fresh model of it.

    Raises BadInput where it is not the one that is `given`.
    """
    platform = directory.platform()
    if platform.digest() != manifest.platform:
        raise BadInput(f"{directory.path}: the platform in its schedule.txt is not that of the run")
    check_ranks(manifest, directory.path, how)
    check_here(manifest, platform, directory.path)
    try:
        fresh = maker(manifest.model, manifest.settings, how.team)
    except BadInput as error:
        if line := from_there(manifest, directory.path):
            error.add_note(f"the run was begun in another directory: {line}")
        raise
    if how.guarded:
        fresh = guarding(manifest.model, fresh)
    call = planner_call(manifest.planner, **manifest.options)
    plan = Plan(manifest.planner, manifest.chain, platform, call)
    job = Job(manifest.model, manifest.settings, fresh, plan, manifest.options)
    model = model_of(job, how)
    job = replace(job, plan=replace(plan, tapes=has_tapes(manifest.chain, lambda: model)))
    if manifest.by_variable:
        job = replace(job, variables=_variables(directory, manifest, model))
    control = control_of(model, how.team)
    check_same(given, manifest, platform, control, directory.path, by_variable=how.by_variable)
    begun, whose = Overlap.parse(manifest.overlap), "that the run was begun with"
    overlap = policy(given.overlap, begun, whose, quiet=how.quiet)
    how = replace(
        how, keep=how.keep or manifest.keep, by_variable=manifest.by_variable, overlap=overlap
    )
    return job, model, how


def _variables(directory: RunDirectory, manifest: Manifest, model: Differentiable) -> Variables:
    """Those of the last plan: what lies on the levels has their names."""
    last = loads(directory.read(SCHEDULE)).schedule.chain.variables
    return variables_of(manifest.model, model) if last is None else last


def go_on(
    given: Given, directory: RunDirectory, manifest: Manifest, wish: Wish, how: How
) -> Outcome:
    """What is left of a run that an earlier process began."""
    job, model, how = same_job(given, directory, manifest, how)
    platform = job.plan.platform
    if directory.has_ended:
        return _read_back(directory, platform, how)
    kept = Kept(manifest.adjoints, wish.every or manifest.every)
    there = reopened(platform, manifest.run, keep=how.keeps, quiet=how.quiet, team=how.team)
    with there as opened_again:
        last = killed_in(directory, platform)
        schedule, found, kept = _rest(job, model, opened_again, kept, last, how=how)
        for line in found.lost:
            how.warn(line)
        predicted = write_plan(directory, schedule, platform, how)
        say(survived(schedule, platform), how)
        say(adjoints.told(schedule, platform, kept, how.overlap), how)
        return conclude(
            job,
            directory,
            model,
            schedule,
            platform=found.platform,
            backends=found.backends,
            predicted=predicted,
            kept=kept,
            how=how,
        )


def manifest_of(
    job: Job, directory: RunDirectory, model: Differentiable, kept: Kept, how: How, /
) -> Manifest:
    """What identifies a run that begins with this fresh model."""
    return Manifest(
        run=directory.id,
        ckio=__version__,
        model=job.model,
        settings=job.settings,
        control=control_of(model, how.team),
        planner=job.plan.planner,
        options=job.options,
        chain=job.plan.chain,
        platform=job.plan.platform.digest(),
        adjoints=kept.level,
        every=kept.every,
        keep=how.keep,
        by_variable=how.by_variable,
        overlap=str(how.overlap) if how.overlap else "",
        ranks=how.team.size,
    )


@contextmanager
def cleared_if_nothing_is_left(directory: RunDirectory) -> Iterator[None]:
    """Leave no directory of a new run that failed before a durable level held a checkpoint."""
    try:
        yield
    except (Halted, NotKept):
        raise
    except BaseException as error:
        if getattr(error, "__notes__", ()):  # of what is left on a level
            error.add_note(f"the plan is in {directory.path}")
        else:
            directory.clear()
        raise


def write_plan(
    directory: RunDirectory, schedule: Schedule, platform: Platform, how: How
) -> Timeline:
    """Keep the plan of this process; returns the timeline that is predicted for it."""
    predicted = simulate(schedule, platform, overlap=how.overlap)
    times = dumps(schedule, platform, predicted, overlap=how.overlap, origin="predicted")
    directory.write_plan(dumps(schedule, platform, overlap=how.overlap), times)
    return predicted


def say(text: str, how: How, /) -> None:
    """Tell the user, if there is one; that it cannot be told ends no run."""
    if text and not how.quiet:
        with suppress(OSError):
            click.echo(text)


def _rest(
    job: Job,
    model: Differentiable,
    found: Found,
    kept: Kept,
    killed: Killed | None,
    /,
    *,
    how: How,
) -> tuple[Schedule, Found, Kept]:
    """The schedule from what was found, for which there is room.

    Where there is none, damaged levels are not used: their files may not grow any more.
    """
    tapes = stores_tapes(job, found.survivors)
    chain = replace(job.plan.chain, variables=job.variables)
    args = chain, found.platform, found.survivors, model, kept
    quiet = how.quiet
    with console.progress(f"planning the rest of {job.plan.chain.length} steps", quiet=quiet):
        schedule, now_kept = how.team.once(lambda: next_plan(*args, tapes=tapes, killed=killed))
    try:
        reserve(schedule, found.platform, found.backends)
    except (BadInput, StorageError) as error:
        if not found.damaged:
            raise
        sound = found.without(found.damaged, str(error))
        return _rest(job, model, sound, kept, killed, how=how)
    return schedule, found, now_kept


def killed_in(directory: RunDirectory, platform: Platform, /) -> Killed | None:
    """What the process before this one was to do; None where it had no plan yet."""
    schedule = loads(directory.read(SCHEDULE)).schedule
    return Killed(schedule, adjoints.durable(platform)) if len(schedule) else None


def survived(schedule: Schedule, platform: Platform) -> str:
    """What there is to go on from, and what is left."""
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


def _read_back(directory: RunDirectory, platform: Platform, how: How) -> Outcome:
    """The stored outcome of a run that has ended; what was left on its levels goes."""
    found = read_back(directory, platform)
    if how.check and found.figures["verified"] is None:
        raise BadInput(
            f"{directory.path}: the run has ended without --check-gradient; check it by a new run"
        )
    if not how.keep:
        remove_left(directory, platform, how.team)
    return found
