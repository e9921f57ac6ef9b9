"""`ckio run`: a model's adjoint by a schedule, on real storage."""

from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from ckio.cli import console, stopping, unknown
from ckio.cli.adjoints import DAY, Wish, kept_on
from ckio.cli.files import FOLDER, out
from ckio.cli.guarding import TOLD, guarding
from ckio.cli.job import How, Job, has_tapes
from ckio.cli.models import Settings, costs, maker
from ckio.cli.options import (
    effort_option,
    json_option,
    overlap_option,
    planner_options,
    settings_option,
)
from ckio.cli.outcome import Outcome, digest, facts, show
from ckio.cli.plans import Plan, chosen, planner_call
from ckio.cli.process import begin, go_on, perform, say
from ckio.cli.resume import Given, again
from ckio.cli.stopping import Halted, Stopper, duration_option
from ckio.cli.streams import Unprinted, lasting, unread
from ckio.cli.team import all_ranks, check_alike, platform_file, run_directory
from ckio.errors import BadInput, RunFailed
from ckio.overlap import AUTO, SYNCHRONOUS, Policy, exactly
from ckio.platforms import Platform
from ckio.rundir import MANIFEST, Manifest, RunDirectory, check_new

__all__ = ["Outcome", "command", "digest", "facts", "perform", "show"]


@click.command()
@click.argument("model", required=False)
@planner_options
@settings_option
@click.option("--into", type=FOLDER, required=True, metavar="DIR", help="the directory of the run")
@click.option("--resume", is_flag=True, help="go on with the run in DIR, if there is one")
@duration_option("--every", help="work between two adjoint checkpoints  [default: by --mtbf]")
@duration_option("--mtbf", help="mean time between failures of the machine  [default: 1d]")
@duration_option("--walltime", help="stop in time, to be resumed, before so long has passed")
@overlap_option
@effort_option
@click.option(
    "--by-variable", is_flag=True, help="store each variable of a state only where it is needed"
)
@click.option(
    "--guarded", is_flag=True, help="fail at the first step that breaks the model's declaration"
)
@out("--log", metavar="FILE", help="append a line of JSON for each action; - is stdout")
@click.option("--keep", is_flag=True, help="leave the checkpoints that remain on the levels")
@click.option("--check-gradient", is_flag=True, help="verify the gradient by a Taylor test")
@json_option
def command(
    *,
    model: str | None,
    planner: str | None,
    steps: int | None,
    platform: Path | None,
    settings: Settings,
    into: Path,
    resume: bool,
    every: float | None,
    mtbf: float | None,
    walltime: float | None,
    overlap: Policy | None,
    effort: int | None,
    by_variable: bool,
    guarded: bool,
    log: Path | None,
    keep: bool,
    check_gradient: bool,
    as_json: bool,
    **own: Any,
) -> int:
    """Run the adjoint of MODEL over --steps steps on the levels of --platform.

    MODEL is MODULE:ATTRIBUTE, or a name that `ckio calibrate --help` lists. Without --steps it says
    itself when it is finished. DIR gets the manifest, the result and both timelines. Checkpoints
    lie where the platform's levels say; they go when the run ends well.

    With --resume a run that was killed or stopped goes on from the checkpoints that are left; what
    is not given again is as it was begun. Where there is no run in DIR one begins, and of one that
    has ended the result is printed. SIGTERM, Ctrl-C and --walltime stop a run with exit status 75.

    With --overlap auto the plan is the best of all, synchronous and overlapped, and says what I/O
    overlaps with computation; so it is without a --planner, too, where `ckio calibrate` has
    measured on all far levels what that costs. A run that is resumed goes on with its policy.

    With --by-variable, for a model that says what its steps use and overwrite (see `ckio analyze`),
    an array that does not change is stored once, and one that is not read again is not stored.

    With --guarded, for such a model, the exit status is 1 where a step uses or overwrites what is
    not declared, or keeps between steps what is not in its state. It takes a few times as long.

    With --check-gradient the exit status is 0 only if the gradient is verified.
    """
    began = stopping.began()
    wish = Wish(every, mtbf or DAY, always=walltime is not None)
    with lasting(), all_ranks() as team:
        check_alike(team, click.get_current_context().params)
        given = Given(
            model=model,
            settings=settings,
            steps=steps,
            platform=None if platform is None else platform_file(platform, team),
            planner=planner,
            options={name: value for name, value in own.items() if value is not None},
            overlap=overlap,
            effort=effort,
            mtbf=mtbf,
        )
        stopper = Stopper(None if walltime is None else began + walltime, team)
        how = How(
            keep=keep,
            by_variable=by_variable,
            guarded=guarded,
            check=check_gradient,
            quiet=as_json or team.rank > 0,
            stopper=stopper,
            overlap=exactly(overlap) or SYNCHRONOUS,
            log=log,
            team=team,
        )
        check_alone(how)
        with stopper:  # also while it is told what came of it
            try:
                ended = _ended(given, into, wish, how, resume=resume)
            except Halted as halted:
                return _show_halted(halted, into, how, as_json=as_json)
            if team.rank == 0:
                _show(ended, into, as_json=as_json)
        if ended.figures["verified"] is False:
            wrong = RunFailed("the gradient is NOT verified")
            wrong.shared = True  # all ranks compared the same figures
            raise wrong
    return 0


def check_alone(how: How, /) -> None:
    """Raise BadInput for what one rank can do and many cannot."""
    asked = {
        "--by-variable": how.by_variable,
        "--guarded": how.guarded,
    }
    if not how.team.is_alone and any(asked.values()):
        option = next(option for option, is_asked in asked.items() if is_asked)
        raise BadInput(f"{option} is for one rank, and this job has {how.team.size}: leave it out")


def _show(ended: Outcome, into: Path, /, *, as_json: bool) -> None:
    try:
        if as_json:
            with unread():
                console.print_json(ended.figures)
        else:
            show(ended)
            click.echo(f"the plan, both timelines and the result are in {into}")
    except Unprinted as error:
        error.add_note(f"the run has ended, and its result is in {into}")
        raise


def _show_halted(halted: Halted, into: Path, how: How, /, *, as_json: bool) -> int:
    """Say how to resume; returns the exit status, which says it where nothing can be printed."""
    if how.team.rank:
        return 0  # the first one gives the job its status
    line = again(into, how.team.size)
    if as_json:
        with suppress(OSError):
            console.print_json({**halted.figures(), "resume": line})
    with suppress(OSError):
        click.echo(f"ckio: {halted}; go on with: {line}", err=True)
    return stopping.STOPPED


def _ended(given: Given, into: Path, wish: Wish, how: How, /, *, resume: bool) -> Outcome:
    """Begin a run, or go on with one, or read back what came of it."""
    there = how.team.once(lambda: resume and (into / MANIFEST).is_file())
    if not resume:
        how.team.once(lambda: check_new(into))  # what follows may measure for a long time
    job = None if there else _new_job(given, into, how, resume=resume)
    if job is not None and job.plan.chain.steps is None and how.by_variable:
        raise BadInput("--by-variable needs --steps: it plans for a known number of them")
    directory = run_directory(into, how.team, resume=resume)
    try:
        if directory.manifest is not None:
            if how.guarded and not directory.has_ended:
                say(TOLD, how)
            wish = _again(wish, given, directory, directory.manifest)
            endless = directory.manifest.chain.steps is None
            go = unknown.go_on if endless else go_on
            return go(given, directory, directory.manifest, wish, how)
        if job is None:
            raise BadInput(f"{into}: its run was removed just now")
        if how.guarded:
            say(TOLD, how)
        if job.plan.chain.steps is None:
            return unknown.begin(job, directory, wish, how)
        return begin(job, directory, wish, how, asked=given.overlap)
    finally:
        directory.release()


def _again(wish: Wish, given: Given, directory: RunDirectory, manifest: Manifest) -> Wish:
    """What a process that goes on wishes: with another --mtbf, the interval that is best for it."""
    if given.mtbf is None or wish.every is not None or manifest.adjoints is None:
        return wish
    platform = directory.platform()
    number = platform.number(manifest.adjoints)
    return replace(wish, every=kept_on(manifest.chain, platform, number, wish).every)


def _new_job(given: Given, into: Path, how: How, /, *, resume: bool) -> Job:
    """A run that nobody has begun; raises BadInput where something is missing."""
    hint = f"; {into.absolute()} holds no run that says it" if resume else ""
    if given.model is None:
        raise BadInput(f"MODEL is missing: what to run{hint}")
    if given.platform is None:
        raise BadInput(f"--platform is missing: a file from `ckio calibrate`{hint}")
    if given.steps is None and given.planner not in (None, unknown.PLANNER):
        raise BadInput(
            f"--steps is missing: planner {given.planner!r} has to know the number of steps;"
            f" {unknown.PLANNER!r} has not{hint}"
        )
    planner, overlap, levels = _chosen(given, given.platform, how)
    fresh = plain = maker(given.model, given.settings, how.team)
    if how.guarded:
        fresh = guarding(given.model, plain)
        fresh()  # which says what cannot be guarded, before anything is measured
    call = planner_call(planner, **given.options)
    chain = costs(given.model, given.settings, given.platform, quiet=how.quiet, team=how.team)
    if given.steps is not None:
        chain = chain.with_steps(given.steps)
    tapes = overlap != AUTO or has_tapes(chain, fresh)
    plan = Plan(planner, chain, given.platform, call, overlap, given.effort, tapes, levels)
    job = Job(given.model, given.settings, fresh, plan, given.options)
    if how.guarded and given.steps is None:
        unknown.check_finishes(job, plain())
    return job


def _chosen(given: Given, platform: Platform, how: How, /) -> tuple[str, Policy, tuple[str, ...]]:
    """The planner, what is to overlap, and the levels for which that was not considered.

    Plans that overlap are compared for one rank, whole checkpoints and a known number of steps:
    otherwise nothing overlaps that is not asked for. Raises BadInput where it is asked to decide.
    """
    refused = {
        "--by-variable: it plans with whole checkpoints": how.by_variable,
        "a run without --steps: what overlaps is decided with the plan": given.steps is None,
    }
    overlap = given.overlap
    if overlap is None and (not how.team.is_alone or any(refused.values())):
        overlap = SYNCHRONOUS
    for why, is_so in refused.items():
        if is_so and overlap == AUTO:
            raise BadInput(f"--overlap auto is not for {why}; say --overlap POLICY, or none")
    planner = given.planner or (None if given.steps else unknown.PLANNER)
    return chosen(planner, overlap, platform, given.options)
