"""A run whose model says when it is finished: forward by a rule, and then as any other run.

Where the end is, is written to the run's directory once it is known. From then on the run has so
many steps, and the rest is planned for a fresh model from what is stored, as if it were resumed.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial

from ckio.actions import Key, Kind
from ckio.arraymodel import ArrayModel
from ckio.backends.base import Backend
from ckio.chain import Chain
from ckio.cli import adjoints, console
from ckio.cli.adjoints import Kept, Wish, next_plan
from ckio.cli.conclude import conclude
from ckio.cli.job import How, Job, model_of, stores_tapes
from ckio.cli.levels import opened
from ckio.cli.models import blamed, watched
from ckio.cli.outcome import Outcome
from ckio.cli.process import (
    cleared_if_nothing_is_left,
    manifest_of,
    same_job,
    say,
    write_plan,
)
from ckio.cli.resume import Given, reopened
from ckio.cli.standing import store_standing
from ckio.cli.stopping import halted, seconds_to_stop
from ckio.cli.watching import journal_of
from ckio.errors import BadInput, Stopped
from ckio.model import Differentiable
from ckio.planners.online import Online
from ckio.platforms import Platform
from ckio.rundir import Manifest, RunDirectory
from ckio.runner.forward import Forward, Stored, ready_for_the_way_back, run_forward
from ckio.schedule import Schedule
from ckio.texts import dumps

PLANNER = "online"
"""The planner of what does not know its end."""


def check_finishes(job: Job, model: Differentiable, /) -> None:
    """Raise BadInput for a model that never says that it is finished."""
    own = getattr(type(model), "finished", None)
    if isinstance(model, ArrayModel) and own is ArrayModel.finished:
        raise BadInput(
            f"--steps is missing: model {job.model!r} does not say itself when it is finished"
        )


def begin(job: Job, directory: RunDirectory, wish: Wish, how: How, /) -> Outcome:
    """Begin a run of unknown length and carry it to its end, as `process.begin` does."""
    chain, platform = job.plan.chain, job.plan.platform
    with cleared_if_nothing_is_left(directory):
        model = model_of(job, how)
        check_finishes(job, model)
        kept, smaller = adjoints.without_end(chain, platform, model, wish)
        _ = Online(chain, smaller).levels  # raises where none is of use
        directory.write_plan(_no_plan(chain, platform), "")
        manifest = manifest_of(job, directory, model, kept, how)
        directory.begin(manifest)
        with opened(platform.levels, directory.id, keep=how.keeps, team=how.team) as backends:
            none: list[set[Key]] = [set() for _ in backends]
            before = _forward(job, model, platform, backends, kept=kept, stored=none, how=how)
            return _back(job, directory, manifest, before, kept=kept, how=how)


def go_on(
    given: Given, directory: RunDirectory, manifest: Manifest, wish: Wish, how: How, /
) -> Outcome:
    """Go on with a run that was on its way forward, as `process.go_on` does."""
    job, model, how = same_job(given, directory, manifest, how)
    kept = Kept(manifest.adjoints, wish.every or manifest.every)
    levels = job.plan.platform, manifest.run
    with reopened(*levels, keep=how.keeps, quiet=how.quiet, team=how.team) as found:
        for line in found.lost:
            how.warn(line)
        stored = [{key for key in keys if key.kind is Kind.RESTART} for keys in found.survivors]
        furthest = max((key.step for keys in stored for key in keys), default=0)
        say(f"resumed at step {furthest}, on the way forward", how)
        there = found.platform, found.backends
        before = _forward(job, model, *there, kept=kept, stored=stored, how=how)
        return _back(job, directory, manifest, before, kept=kept, how=how)


def _no_plan(chain: Chain, platform: Platform) -> str:
    """What schedule.txt is before there is a plan."""
    text = dumps(Schedule(chain.with_steps(1), ()), platform)
    first, rest = text.split("\n", 1)
    return f"{first}\n## the number of steps is not known yet: this is no plan\n{rest}"


def _rule(kept: Kept, chain: Chain, platform: Platform, stored: Stored, /) -> Online:
    """The rule beside the room for adjoint checkpoints, as far as nothing is stored in it yet.

    There may be, where a run was stopped on its way forward, or a level has less room than planned.
    """
    smaller = adjoints.aside_for(kept, chain, platform)
    levels = []
    for level, keys in zip(smaller.levels, stored, strict=True):
        held = sum(level.stored(chain.nbytes(key)) for key in keys)
        fits = level.capacity is None or held <= level.capacity
        levels.append(level if fits else replace(level, capacity=held))
    return Online(chain, replace(smaller, levels=tuple(levels)))


def _forward(
    job: Job,
    model: Differentiable,
    platform: Platform,
    backends: Sequence[Backend],
    *,
    kept: Kept,
    stored: Stored,
    how: How,
) -> Forward:
    """Run to the end of the program; raises Halted where it is stopped before."""
    chain, stopper = job.plan.chain, how.stopper
    with ExitStack() as stack:
        tick = stack.enter_context(console.progress("running forward", quiet=how.quiet))
        live = watched(lambda: model, tick)()
        journal = journal_of(job, how)
        watch = None if journal is None else stack.enter_context(journal)
        if stopper is not None:
            stopper.start(seconds_to_stop(Schedule(chain.with_steps(1), ()), platform))
        try:
            with blamed(f"model {job.model!r}"):
                return run_forward(
                    partial(_rule, kept, chain),
                    platform,
                    live,
                    backends,
                    say=how.warn,
                    clock=None if how.team.is_alone else how.team.clock,
                    stored=stored,
                    watch=watch,
                    stop=stopper,
                )
        except Stopped as stopped:
            assert stopper is not None
            with blamed(f"model {job.model!r}, stopped"):
                chain = job.plan.chain.with_steps(max(1, stopped.adjoint))
                args = stopped, live, backends, platform, chain
                standing = store_standing(*args, before=stored, team=how.team)
            raise halted(stopper.why, standing) from None


def _back(
    job: Job,
    directory: RunDirectory,
    manifest: Manifest,
    before: Forward,
    /,
    *,
    kept: Kept,
    how: How,
) -> Outcome:
    """The rest, now that the end is known, by a fresh model."""
    steps, wished = before.steps, kept
    chain = job.plan.chain.with_steps(steps)
    directory.begin(replace(manifest, chain=chain))
    job = replace(job, plan=replace(job.plan, chain=chain))
    say(f"the model is finished after {steps} steps", how)
    model = model_of(job, how)

    def plan(rest: Platform, stored: Stored) -> Schedule:
        nonlocal kept
        tapes = stores_tapes(job, stored)
        args = chain, rest, stored, model, wished
        schedule, kept = how.team.once(lambda: next_plan(*args, tapes=tapes))
        return schedule

    with console.progress(f"planning the way back over {steps} steps", quiet=how.quiet):
        schedule, before = ready_for_the_way_back(plan, chain, before, say=how.warn)
    platform = before.platform
    predicted = write_plan(directory, schedule, job.plan.platform, how)
    say(adjoints.told(schedule, platform, kept, how.overlap), how)
    return conclude(
        job,
        directory,
        model,
        schedule,
        platform=platform,
        backends=before.backends,
        predicted=predicted,
        kept=kept,
        how=how,
        before=before.timeline,
    )
