"""`ckio run`: a model's adjoint by a schedule, on real storage."""

import textwrap
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import click

from ckio.cli import compare as comparison
from ckio.cli import console
from ckio.cli.console import Unprinted, lasting, unread
from ckio.cli.files import FILE, FOLDER, STDOUT, claimed_stdout, out, read_platform
from ckio.cli.options import (
    by_variable_option,
    duration_option,
    effort_option,
    json_option,
    option,
    overlap_option,
    planner_options,
    settings_option,
    size_option,
    with_example,
)
from ckio.errors import RunFailed
from ckio.jobs.directory import all_ranks, check_alike
from ckio.jobs.job import Job
from ckio.jobs.models import Settings
from ckio.jobs.result import Result, facts, verdict
from ckio.jobs.resume import resume_line
from ckio.jobs.stopping import STOPPED, Halted, Stopper
from ckio.parallel.group import RankGroup
from ckio.platform import Platform

STORAGE_GROUP: Final = "Storage, without --platform"
RECOVERY_GROUP: Final = "Stopping, resuming, and failures"


@with_example("ckio run burgers --steps 200 --ram 16KiB --disk scratch --check-gradient")
@click.argument("model", required=False)
@planner_options
@settings_option
@size_option("--ram", group=STORAGE_GROUP, help="memory for checkpoints, e.g. 2GiB")
@option("--disk", type=FOLDER, metavar="DIR", group=STORAGE_GROUP, help="a place for files")
@option("--archive", type=FILE, metavar="FILE.h5", group=STORAGE_GROUP, help="an HDF5 archive")
@option(
    "--into", type=FOLDER, default=Path("ckio-run"), show_default=True, metavar="DIR",
    help="the directory of the run",
)  # fmt: skip
@option("--control", type=FILE, metavar="FILE", help="controls to begin with: npz or HDF5")
@option(
    "--gradient", type=FILE, metavar="FILE", help="the gradient's file  [default: DIR/gradient.h5]"
)
@option(
    "--resume",
    is_flag=True,
    group=RECOVERY_GROUP,
    help="go on with the run in DIR, if there is one",
)
@duration_option(
    "--walltime",
    group=RECOVERY_GROUP,
    help="stop in time, to be resumed, before so long has passed",
)
@duration_option(
    "--every",
    group=RECOVERY_GROUP,
    help="work between two adjoint checkpoints  [default: by --mtbf]",
)
@duration_option(
    "--mtbf", group=RECOVERY_GROUP, help="mean time between failures of the machine  [default: 1d]"
)
@overlap_option
@effort_option
@by_variable_option
@option("--check-gradient", "check", is_flag=True, help="verify the gradient by a Taylor test")
@option(
    "--guarded", is_flag=True, help="fail at the first step that breaks the model's declaration"
)
@option("--allow-nan", is_flag=True, help="go on where values are not finite")
@option("--keep", is_flag=True, help="leave the checkpoints that remain on the levels")
@out("--log", metavar="FILE", help="append a line of JSON for each action; - is stdout")
@json_option
def command(
    *,
    platform: Path | None,
    settings: Settings,
    into: Path,
    resume: bool,
    walltime: float | None,
    log: Path | None,
    as_json: bool,
    **asked: Any,
) -> int:
    """Run the adjoint of MODEL over --steps steps.

    MODEL is FILE.py:ATTRIBUTE, MODULE:ATTRIBUTE, or a name that `ckio calibrate --help` lists.
    Without --steps it says itself when it is finished. The levels are those of --platform, a file
    of `ckio calibrate`; without it those of --ram, --disk and --archive, which are calibrated
    first. DIR gets the manifest, the plan, both timelines, the result, and in gradient.h5 the
    functional, the controls and the gradient. Checkpoints go when the run ends well.

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
    with lasting(), all_ranks() as ranks:
        check_alike(ranks, click.get_current_context().params)
        job = Job(
            into,
            platform=None if platform is None else _platform_of(platform, ranks),
            settings=settings,
            journal=(claimed_stdout() if log == STDOUT else None) or log,
            display=console.display(quiet=as_json, rank=ranks.rank),
            **asked,
        )
        with Stopper.within(walltime, ranks) as stopper:  # also while it is told what came of it
            try:
                result = job.run_on(ranks, stopper, resume=resume)
            except Halted as halted:
                return _show_halted(halted, job, as_json=as_json, rank=ranks.rank, ranks=ranks.size)
            if ranks.rank == 0:
                _show(result, into, as_json=as_json)
        if result.verified is False:
            wrong = RunFailed("the gradient is NOT verified")
            wrong.shared = True  # all ranks compared the same figures
            raise wrong
    return 0


def _platform_of(path: Path, ranks: RankGroup) -> Platform:
    """Return the platform in a file, as the first rank finds it."""
    if ranks.is_alone:
        return read_platform(path)
    text = ranks.once(lambda: read_platform(path).dumps())
    return Platform.loads(text, source=str(path))


def _show(result: Result, into: Path, /, *, as_json: bool) -> None:
    try:
        if as_json:
            with unread():
                console.print_json(result.figures)
        else:
            show(result)
            console.echo(f"the plan, both timelines and the result are in {into}")
    except Unprinted as error:
        error.add_note(f"the run has ended, and its result is in {into}")
        raise


def show(result: Result, /) -> None:
    """Print a run as a person reads it: the verdict first."""
    console.echo(f"{textwrap.fill(verdict(result), 80)}\n")
    if result.report is None:
        console.echo(
            "the rest was planned anew on the way: nothing to compare with the first plan\n"
        )
    else:
        comparison.show(result.report)
    rows = facts(result)
    width = max(len(name) for name, _ in rows)
    for name, text in rows:
        console.echo(f"{name:<{width}}  {text}")


def _show_halted(halted: Halted, job: Job, /, *, as_json: bool, rank: int, ranks: int) -> int:
    """Say how to resume; return the exit status, which says it where nothing can be printed."""
    if rank:
        return 0  # the first one gives the job its status
    line = resume_line(job.directory, ranks, job.request.model)
    if as_json:
        with suppress(OSError):
            console.print_json({**halted.figures(), "resume": line})
    with suppress(OSError):
        console.echo(f"ckio: {halted}; go on with: {line}", err=True)
    return STOPPED
