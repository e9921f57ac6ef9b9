"""The command `ckio demo`: all steps from calibration to a verified gradient, on one model."""

import itertools
import os
from collections.abc import Callable, Mapping
from pathlib import Path

import click

from ckio.actions import Key, Kind, nbytes_of
from ckio.backends.files import missing_folders, remove_directories
from ckio.cli import calibrate, console
from ckio.cli.files import FILE, write_file
from ckio.cli.options import json_option, with_example
from ckio.cli.run import show
from ckio.errors import BadInput, RunFailed
from ckio.jobs.gradients import digest
from ckio.jobs.job import Job
from ckio.jobs.models import identity, maker, measured, with_ticker
from ckio.jobs.planning import plan_of
from ckio.jobs.result import Result, facts, verdict
from ckio.jobs.sweeping import sweep
from ckio.model import Array, Differentiable
from ckio.parallel.group import ALONE
from ckio.report.page import page
from ckio.report.pictures import MemoryCurve

MODEL = "vorticity"
LEVELS = {"ram=ram": 6}
"""The levels, with capacities in checkpoints: so few that the schedule chooses what to store."""


@with_example("ckio demo --steps 60 --grid 32")
@click.option(
    "--steps", type=click.IntRange(1), metavar="N", default=400, show_default=True,
    help="Number of time steps.",
)  # fmt: skip
@click.option(
    "--grid", type=int, metavar="N", default=128, show_default=True,
    help="Number of grid cells in each direction.",
)  # fmt: skip
@click.option(
    "--into", type=FILE, metavar="DIR",
    help="New directory for checkpoints and results.  [default: ckio-demo]",
)  # fmt: skip
@json_option
def command(*, steps: int, grid: int, into: Path | None, as_json: bool) -> None:
    """Run all of ckio on an example, the gradient of an ocean model.

    Use it to see on this machine what ckio does; it needs no input. The model is the barotropic
    vorticity equation. The demo measures memory and the model for a second, plans a schedule with 6
    states in memory, runs it, compares the predicted with the measured times, and verifies the
    gradient: by a Taylor test, and against the gradient without checkpoints. The exit status is 0
    only if the gradient is verified.
    """
    settings = {"grid": grid}
    fresh = maker(MODEL, settings)
    restart = nbytes_of(fresh().layout(Key(Kind.RESTART, 0)))
    display = console.display(quiet=as_json)
    directory = into or _free(Path("ckio-demo"))
    if directory.is_dir() and any(directory.iterdir()):
        raise BadInput(f"{directory}: it is not empty; choose another directory for the demo")
    missing = missing_folders(directory)
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(f"{directory}: it cannot be made: {error.strerror}") from None
    try:
        asked = [
            calibrate.parse_level(f"{text},capacity={slots * restart}", here=directory)
            for text, slots in LEVELS.items()
        ]
        models = {identity(MODEL, settings): fresh}
        platform = measured(asked, models=models, run_steps=steps, display=display)
        write_file(directory / "platform.toml", platform.dumps())
        if not as_json:
            click.echo(f"ckio demo: {MODEL} on {grid} x {grid} cells, {steps} steps\n")
            calibrate.show(platform)
        job = Job(
            directory / "run",
            model=MODEL,
            settings=settings,
            steps=steps,
            platform=platform,
            check=True,
            display=display,
        )
        outcome = job.run_on(ALONE, None, resume=False)  # None: signals interrupt it
    except BadInput:
        (directory / "platform.toml").unlink(missing_ok=True)
        remove_directories(missing)
        raise
    with display.progress("computing the reference gradient", 2 * steps) as tick:
        reference = store_all_gradient(with_ticker(fresh, tick), steps)
    same = digest(reference) == outcome.figures["gradient_digest"]
    plan = plan_of(
        platform=directory / "platform.toml", model=MODEL, settings=settings, steps=steps
    )
    memory = sweep(plan, display=display).curve()
    report = directory / "report.html"
    write_file(report, _page(outcome, grid, memory, same=same))

    verified = bool(outcome.figures["verified"]) and same
    if as_json:
        figures = {**outcome.figures, "verified": verified, "equals_store_all": same}
        console.print_json({**figures, "report": str(report)})
    else:
        show(outcome)
        click.echo(f"store-all       {_sameness(same)}\n")
        click.echo(f"{memory.text()}\n")
        click.echo(f"{report}: the report, with pictures")
        click.echo(f"{directory / 'platform.toml'}: the platform, for your own plans")
        click.echo("\nNext, the same with files, and with your own model:")
        click.echo("  ckio run vorticity --set grid=64 --steps 200 --ram 1MiB --disk scratch")
        click.echo("  ckio run FILE.py --steps N --ram 1GiB --check-gradient")
    if not verified:
        raise RunFailed("the gradient is NOT verified")


def store_all_gradient(fresh: Callable[[], Differentiable], steps: int, /) -> Mapping[str, Array]:
    """Return the gradient without checkpoints: record all steps, then reverse all of them."""
    model = fresh()
    model.record(0, steps)
    model.reverse(0, steps)
    return model.gradient


def _page(outcome: Result, grid: int, memory: MemoryCurve, *, same: bool) -> str:
    return page(
        title=f"ckio demo: {MODEL}, {grid} x {grid} cells",
        facts=[*facts(outcome), ("store-all", _sameness(same))],
        platform=outcome.platform,
        chain=outcome.schedule.chain,
        predicted=outcome.prediction,
        measured=outcome.timeline,
        report=outcome.report,
        verdict=verdict(outcome),
        memory=memory,
        origin=console.origin(),
    )


def _sameness(same: bool) -> str:
    return f"the gradient is {'' if same else 'NOT '}bitwise equal to the one without checkpoints"


def _free(path: Path) -> Path:
    """Return the path, or the first of path-2, path-3, ... that does not exist."""
    names = itertools.chain(
        (path,), (path.with_name(f"{path.name}-{n}") for n in itertools.count(2))
    )
    return next(name for name in names if not os.path.lexists(name))
