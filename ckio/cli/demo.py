"""The command `ckio demo`: all steps from calibration to a verified gradient, on one model."""

import itertools
import os
import textwrap
from pathlib import Path

import click

from ckio.actions import Key, Kind, nbytes_of
from ckio.backends.files import missing_folders, remove_directories
from ckio.cli import calibrate, console
from ckio.cli.files import FILE, write_file
from ckio.cli.options import json_option, settings_option, size_option, with_example
from ckio.cli.run import show
from ckio.errors import BadInput, RunFailed
from ckio.jobs.gradients import digest
from ckio.jobs.job import Job
from ckio.jobs.models import Settings, identity, maker, measured, with_ticker
from ckio.jobs.paying import Comparison, compare_with_store_all, store_all_gradient
from ckio.jobs.planning import plan_of
from ckio.jobs.result import Result, facts, verdict
from ckio.jobs.sweeping import sweep
from ckio.parallel.group import ALONE
from ckio.platform.readable import bytes_text
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
    "--grid", type=int, metavar="N",
    help="Number of grid cells in each direction.  [default: 128]",
)  # fmt: skip
@click.option(
    "--into", type=FILE, metavar="DIR",
    help="New directory for checkpoints and results.  [default: ckio-demo]",
)  # fmt: skip
@click.option(
    "--model", metavar="MODEL",
    help="Your model, as for `ckio run`: compare ckio with storing every tape.",
)  # fmt: skip
@settings_option
@size_option("--ram", help="With --model: memory for checkpoints, as for `ckio run`.")
@click.option(
    "--disk", type=FILE, metavar="DIR[:SIZE]",
    help="With --model: directory for checkpoints, as for `ckio run`.",
)  # fmt: skip
@json_option
def command(
    *,
    steps: int,
    grid: int | None,
    into: Path | None,
    model: str | None,
    settings: Settings,
    ram: int | None,
    disk: Path | None,
    as_json: bool,
) -> None:
    """Run all of ckio on an example, the gradient of an ocean model; or compare on your model.

    Use it to see on this machine what ckio does; it needs no input. The model is the barotropic
    vorticity equation. The demo measures memory and the model for a second, plans a schedule with 6
    states in memory, runs it, compares the predicted with the measured times, and verifies the
    gradient: by a Taylor test, and against the gradient without checkpoints. The exit status is 0
    only if the gradient is verified.

    With --model it tells whether ckio pays for your model on this machine: it computes the gradient
    with the memory of --ram and the files of --disk, and again with every tape stored, if they fit
    in memory. No file is left.
    """
    if model is not None:
        if grid is not None or into is not None:
            raise BadInput("demo: --grid and --into are not for --model; use --set grid=64")
        levels, display = {"ram": ram, "disk": disk}, console.display(quiet=as_json)
        found = compare_with_store_all(model, steps, settings, levels, display=display)
        _show(found, as_json=as_json)
        return
    if settings or ram is not None or disk is not None:
        raise BadInput("demo: --set, --ram and --disk are for your own model; give --model")
    _example(steps=steps, grid=grid or 128, into=into, as_json=as_json)


def _example(*, steps: int, grid: int, into: Path | None, as_json: bool) -> None:
    """Go all the way on the example, and print each result."""
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
        reference = store_all_gradient(with_ticker(fresh, tick)(), steps)
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


def _show(found: Comparison, /, *, as_json: bool) -> None:
    """Print the verdict on a model, and what was measured."""
    ways = {"ckio": found.ckio}
    ways |= {"every tape stored": found.store_all} if found.store_all else {}
    if as_json:
        measured = {name: way._asdict() for name, way in ways.items()}
        console.print_json({"verdict": found.verdict(), "factor": found.factor, **measured})
        return
    click.echo(f"{textwrap.fill(found.verdict(), 80)}\n")
    rows = [
        [name, f"{way.seconds:.4g}", bytes_text(way.memory), str(way.forward_steps)]
        for name, way in ways.items()
    ]
    console.print_table("", ["gradient", "seconds", "memory", "forward steps"], rows)
    if len({way.digest for way in ways.values()}) < len(ways):
        click.echo("both gradients are bitwise equal")


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
