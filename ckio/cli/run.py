"""The command `ckio run`: compute the gradient of a model, with checkpoints on real storage."""

import textwrap
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from ckio.cli import compare as comparison
from ckio.cli import console
from ckio.cli.files import FILE, STDOUT, claimed_stdout, out, read_platform
from ckio.cli.options import (
    by_variable_option,
    duration_option,
    json_option,
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
from ckio.jobs.result import Result, refuse_unverified, verdict
from ckio.jobs.resume import resume_line
from ckio.jobs.stopping import STOPPED, Halted, Stopper
from ckio.parallel.group import RankGroup
from ckio.platform import Platform


@with_example("ckio run burgers --steps 200 --ram 16KiB --disk scratch --check-gradient")
@click.argument("model", help="Model to run. May be left out with --resume.", required=False)
@planner_options
@settings_option
@size_option(
    "--ram",
    help="Memory for checkpoints, e.g. 2GiB.  [default: half of the available memory, if no level"
    " is given]",
)  # fmt: skip
@click.option(
    "--disk", type=FILE, metavar="DIR[:SIZE]",
    help="Directory for checkpoints in files, e.g. scratch:100GB.  [size: 90% of what is free]",
)  # fmt: skip
@click.option(
    "--archive", type=FILE, metavar="FILE.h5[:SIZE]", hidden=True,
    help="HDF5 file for checkpoints.",
)  # fmt: skip
@click.option(
    "--copies", type=FILE, metavar="DIR[:TIME]", hidden=True,
    help="Directory for copies of the files of --disk, e.g. /shared/saved:10m, from which a job on"
    " another node resumes the run.",
)  # fmt: skip
@click.option(
    "--into", type=FILE, default=Path("ckio-run"), show_default=True, metavar="DIR",
    help="Directory of the run, for its plan, timelines and results.",
)  # fmt: skip
@click.option(
    "--control", type=FILE, metavar="FILE", hidden=True,
    help="File with the values of the controls, npz or HDF5.  [default: those of the model]",
)  # fmt: skip
@click.option(
    "--resume", is_flag=True,
    help="Resume the run in DIR; begin a new run if DIR contains none.",
)  # fmt: skip
@duration_option(
    "--walltime",
    help="Stop before this time since the start is over, e.g. 3h55m or 03:55:00. The run can be"
    " resumed.  [default: no limit]",
)  # fmt: skip
@duration_option(
    "--mtbf", hidden=True,
    help="Mean time between failures of the machine, e.g. 6h.  [default: 1d]",
)  # fmt: skip
@duration_option(
    "--every", hidden=True,
    help="Time of work between two adjoint checkpoints.  [default: computed from --mtbf]",
)  # fmt: skip
@overlap_option
@by_variable_option
@click.option(
    "--check-gradient", "check", is_flag=True, help="Verify the gradient by a Taylor test."
)
@click.option(
    "--guarded", is_flag=True, hidden=True,
    help="Check that each step uses and overwrites only the arrays that the model declares, and"
    " keeps no data outside of its state; stop at the first error. The run takes a few times"
    " longer.",
)  # fmt: skip
@click.option(
    "--allow-nan", is_flag=True, hidden=True,
    help="Continue if values are infinite or not a number.",
)  # fmt: skip
@click.option(
    "--allow-rounding", is_flag=True, hidden=True,
    help="Continue if states differ by rounding when they are computed again.",
)  # fmt: skip
@out(
    "--log", metavar="FILE", hidden=True,
    help="Append one line of JSON for each action to this file; - is stdout.",
)  # fmt: skip
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

    MODEL is FILE.py:ATTRIBUTE, MODULE:ATTRIBUTE, or a name that `ckio calibrate --help` lists.
    Without --steps, the model itself reports when it has finished. The schedule is planned for the
    storage levels of --platform, a file of `ckio calibrate`; without it, for those of --ram, --disk
    and --archive, which are calibrated first.

    DIR receives the plan, the predicted and the measured timeline, and the result; its file
    gradient.h5 contains the cost function (functional), the controls and the gradient. The
    checkpoints are removed when the run has succeeded.

    With --resume, a run that was killed or stopped continues from the checkpoints that survived.
    Options that are not given again keep their values. --walltime, Ctrl-C,
    SIGTERM and the warnings of batch systems (SIGUSR1, SIGUSR2, SIGXCPU) stop a run; the exit
    status is then 75. With --check-gradient it is 0 only if the gradient is verified.
    """
    with all_ranks() as ranks:
        check_alike(ranks, click.get_current_context().params)
        job = Job(
            into,
            platform=None if platform is None else _platform_of(platform, ranks),
            settings=settings,
            journal=(claimed_stdout() if log == STDOUT else None) or log,
            display=console.display(quiet=as_json, rank=ranks.rank),
            **asked,
        )
        with Stopper(walltime, ranks) as stopper:  # also while the result is printed
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
            console.print_json(result.figures)
        else:
            show(result)
            where = f"the plan, both timelines and the result are in {into}"
            click.echo(f"{where}; `ckio show {into} --html run.html` draws them")
    except OSError as error:
        raise RunFailed(
            f"stdout cannot be written: {error.strerror}; the run has ended, and its result is in"
            f" {into}"
        ) from None


def show(result: Result, /) -> None:
    """Print the verdict on a run, the comparison of its timelines, and its facts."""
    if not len(result.timeline):
        click.echo("the measured timeline was not stored, because the disk was full\n")
    else:
        click.echo(f"{textwrap.fill(verdict(result), 80)}\n")
    if result.report is None and len(result.timeline):
        click.echo(
            "the remaining steps were planned again during the run; therefore it is not compared"
            " with a prediction\n"
        )
    elif result.report is not None:
        comparison.show(result.report)
    click.echo(str(result))


def _show_halted(halted: Halted, job: Job, /, *, as_json: bool, rank: int, ranks: int) -> int:
    """Print the command that resumes the run; return the exit status of a stopped run."""
    if rank:
        return 0  # the first rank gives the job its exit status
    line = resume_line(job.directory, ranks, job.request.model)
    if as_json:
        with suppress(OSError):
            console.print_json({**halted.figures(), "resume": line})
    with suppress(OSError):
        click.echo(f"ckio: {halted}; resume with: {line}", err=True)
    return STOPPED
