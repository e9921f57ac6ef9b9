"""The command `ckio run`: compute the gradient of a model, with checkpoints on real storage."""

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
    argument,
    by_variable_option,
    duration_option,
    json_option,
    option,
    overlap_option,
    planner_options,
    settings_option,
    size_option,
    with_example,
)
from ckio.jobs.directory import all_ranks, check_alike
from ckio.jobs.job import Job
from ckio.jobs.models import Settings
from ckio.jobs.result import Result, facts, refuse_unverified, verdict
from ckio.jobs.resume import resume_line
from ckio.jobs.stopping import STOPPED, Halted, Stopper
from ckio.parallel.group import RankGroup
from ckio.platform import Platform

STORAGE_GROUP: Final = "Storage levels, without --platform"
RECOVERY_GROUP: Final = "Stopping, resuming, and failures"


@with_example("ckio run burgers --steps 200 --ram 16KiB --disk scratch --check-gradient")
@argument("model", "Model to run. May be left out with --resume.", required=False)
@planner_options
@settings_option
@size_option(
    "--ram",
    group=STORAGE_GROUP,
    help="Memory for checkpoints, e.g. 2GiB.  [default: half of the available memory, if no level"
    " is given]",
)
@option(
    "--disk",
    type=FOLDER,
    metavar="DIR",
    group=STORAGE_GROUP,
    help="Directory for checkpoints in files.",
)
@option(
    "--archive",
    type=FILE,
    metavar="FILE.h5",
    group=STORAGE_GROUP,
    help="HDF5 file for checkpoints.",
)
@option(
    "--into", type=FOLDER, default=Path("ckio-run"), show_default=True, metavar="DIR",
    help="Directory of the run, for its plan, timelines and results.",
)  # fmt: skip
@option(
    "--control",
    type=FILE,
    metavar="FILE",
    help="File with the values of the controls, npz or HDF5.  [default: those of the model]",
)
@option(
    "--resume",
    is_flag=True,
    group=RECOVERY_GROUP,
    help="Resume the run in DIR; begin a new run if DIR contains none.",
)
@duration_option(
    "--walltime",
    group=RECOVERY_GROUP,
    help="Stop before this time since the start is over, e.g. 3h55m or 03:55:00. The run can be"
    " resumed.  [default: no limit]",
)
@duration_option(
    "--every",
    group=RECOVERY_GROUP,
    help="Time of work between two adjoint checkpoints.  [default: computed from --mtbf]",
)
@duration_option(
    "--mtbf",
    group=RECOVERY_GROUP,
    help="Mean time between failures of the machine, e.g. 6h.  [default: 1d]",
)
@overlap_option
@by_variable_option
@option("--check-gradient", "check", is_flag=True, help="Verify the gradient by a Taylor test.")
@option(
    "--guarded",
    is_flag=True,
    help="Check that each step uses and overwrites only declared arrays; stop at the first error.",
)
@option("--allow-nan", is_flag=True, help="Continue if values are infinite or not a number.")
@option(
    "--allow-rounding",
    is_flag=True,
    help="Continue if states differ by rounding when they are computed again.",
)
@option("--keep", is_flag=True, help="Do not remove the checkpoints that are stored at the end.")
@out(
    "--log",
    metavar="FILE",
    help="Append one line of JSON for each action to this file; - is stdout.",
)
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
    """Compute the gradient of MODEL over --steps time steps, with checkpoints on real storage.

    Use it for production runs, or with --check-gradient to test a model. MODEL is
    FILE.py:ATTRIBUTE, MODULE:ATTRIBUTE, or a name that `ckio calibrate --help` lists. Without
    --steps, the model itself reports when it has finished. The schedule is planned for the storage
    levels of --platform, a file of `ckio calibrate`; without it, for those of --ram, --disk and
    --archive, which are calibrated first.

    DIR receives the manifest, the plan, the predicted and the measured timeline, and the result;
    its file gradient.h5 contains the cost function (functional), the controls and the gradient. The
    checkpoints are removed when the run has succeeded.

    With --resume, a run that was killed or stopped continues from the checkpoints that survived.
    Options that are not given again keep their values. If the run in DIR has ended, its result is
    printed. --walltime, Ctrl-C, SIGTERM and the warnings of batch systems
    (SIGUSR1, SIGUSR2, SIGXCPU) stop a run; the exit status is then 75.

    With --overlap auto, the plan is the fastest of all schedules, with and without overlap. This is
    the default without --planner, if `ckio calibrate --model` measured overlap on all levels but
    the nearest. A resumed run keeps its policy.

    With --by-variable, an array that does not change is stored once, and an array that is not read
    again is not stored. For this, the model must declare which arrays its steps use and overwrite;
    see `ckio analyze`.

    With --guarded, each step of such a model is checked. The exit status is 1 if a step uses or
    overwrites an array that is not declared, or keeps data between steps outside of its state. The
    run takes a few times longer.

    With --check-gradient, the exit status is 0 only if the gradient is verified.
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
        with Stopper.within(walltime, ranks) as stopper:  # also while the result is printed
            try:
                result = job.run_on(ranks, stopper, resume=resume)
            except Halted as halted:
                return _show_halted(halted, job, as_json=as_json, rank=ranks.rank, ranks=ranks.size)
            if ranks.rank == 0:
                _show(result, into, as_json=as_json)
        refuse_unverified(result)
    return 0


def _platform_of(path: Path, ranks: RankGroup) -> Platform:
    """Return the platform in a file, which only the first rank reads."""
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
    """Print the verdict on a run, the comparison of its timelines, and its facts."""
    if not len(result.timeline):
        console.echo("the measured timeline was not stored, because the disk was full\n")
    else:
        console.echo(f"{textwrap.fill(verdict(result), 80)}\n")
    if result.report is None and len(result.timeline):
        console.echo(
            "the remaining steps were planned again during the run; therefore it is not compared"
            " with a prediction\n"
        )
    elif result.report is not None:
        comparison.show(result.report)
    rows = facts(result)
    width = max(len(name) for name, _ in rows)
    for name, text in rows:
        console.echo(f"{name:<{width}}  {text}")


def _show_halted(halted: Halted, job: Job, /, *, as_json: bool, rank: int, ranks: int) -> int:
    """Print the command that resumes the run; return the exit status of a stopped run."""
    if rank:
        return 0  # the first rank gives the job its exit status
    line = resume_line(job.directory, ranks, job.request.model)
    if as_json:
        with suppress(OSError):
            console.print_json({**halted.figures(), "resume": line})
    with suppress(OSError):
        console.echo(f"ckio: {halted}; resume with: {line}", err=True)
    return STOPPED
