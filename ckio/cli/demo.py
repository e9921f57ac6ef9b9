"""`ckio demo`: the whole loop on a real model, nothing to configure."""

import itertools
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

import click

from ckio.actions import Key, Kind
from ckio.cli import calibrate, compare, console
from ckio.cli.options import FILE, Plan, identity, maker, planner_call, write_text
from ckio.cli.run import Outcome, digest, facts, perform, show, watched
from ckio.errors import BadInput
from ckio.layout import nbytes_of
from ckio.model import Array, Differentiable
from ckio.page import page
from ckio.platforms import Level, Option

MODEL = "vorticity"
SLOTS = {"ram": 6, "nvme": 24, "archive": 60}
"""Room that the demo allows itself, in checkpoints, so that a plan is worth making."""


@click.command(short_help="The whole loop on a real model, nothing to configure.")
@click.option("--steps", type=click.IntRange(1), default=600, show_default=True)
@click.option("--grid", type=int, default=128, show_default=True, help="points in each direction")
@click.option("--planner", default="hrevolve", show_default=True)
@click.option("--into", type=FILE, help="a new directory  [default: ckio-demo]")
@click.option("--json", "as_json", is_flag=True, help="print one JSON object")
def command(*, steps: int, grid: int, planner: str, into: Path | None, as_json: bool) -> None:
    """Calibrate this machine, plan, simulate, run and compare: the adjoint of an ocean model.

    The model is the barotropic vorticity equation; its checkpoints go to memory, to files and to an
    HDF5 archive. The exit status is 0 only if the gradient is verified.
    """
    into = into or _free(Path("ckio-demo"))
    settings = {"grid": grid}
    make = maker(MODEL, settings)
    call = planner_call(planner)
    asked = demo_levels(nbytes_of(make().layout(Key(Kind.RESTART, 0))), into / "levels")
    _new_folder(into)

    models = {identity(MODEL, settings): make}
    platform = calibrate.measured(asked, models=models, quiet=as_json)
    write_text(into / "platform.toml", platform.dumps())
    if not as_json:
        click.echo(f"ckio demo: {MODEL} on {grid} x {grid} points, {steps} steps")
        calibrate.show(platform)

    (costs,) = platform.models.values()
    plan = Plan(planner, costs.with_steps(steps), platform, call)
    outcome = perform(MODEL, settings, make, plan, into / "run", check=True, quiet=as_json)
    with console.progress("store-all", 2 * steps, quiet=as_json) as tick:
        reference = store_all_gradient(watched(make, tick), steps)
    same = digest(reference) == outcome.figures["gradient_digest"]
    verified = bool(outcome.figures["verified"]) and same
    report = into / "report.html"
    write_text(report, _page(outcome, grid, same=same))
    with suppress(OSError):
        (into / "levels").rmdir()

    if as_json:
        figures = {**outcome.figures, "verified": verified, "equals_store_all": same}
        console.print_json({**figures, "report": str(report)})
    else:
        show(outcome)
        click.echo(f"store-all        {_sameness(same)}")
        click.echo(
            f"\n{report}: the pictures;  {into / 'platform.toml'}: this machine, for your plans"
        )
    if not verified:
        click.echo("ckio: the gradient is NOT verified", err=True)
        sys.exit(1)


def demo_levels(restart: int, place: Path, /) -> list[Level]:
    """Memory, files and an HDF5 archive, each with room for a few checkpoints."""
    backends: dict[str, tuple[str, dict[str, Option]]] = {
        "ram": ("ram", {}),
        "nvme": ("directory", {"path": str(place.absolute() / "nvme")}),
        "archive": ("hdf5", {"path": str(place.absolute() / "archive.h5")}),
    }
    return [
        Level(name=name, backend=backend, options=options, capacity=SLOTS[name] * restart)
        for name, (backend, options) in backends.items()
    ]


def store_all_gradient(make: Callable[[], Differentiable], steps: int, /) -> Mapping[str, Array]:
    """The gradient without any checkpoint: one recording sweep, one adjoint sweep."""
    model = make()
    model.record(0, steps)
    model.reverse(0, steps)
    return model.gradient


def _page(outcome: Outcome, grid: int, *, same: bool) -> str:
    return page(
        title=f"ckio demo: {MODEL}, {grid} x {grid} points",
        facts=[*facts(outcome), ("store-all", _sameness(same))],
        rows=[compare.HEADER, *compare.table(outcome.report)],
        platform=outcome.platform,
        chain=outcome.schedule.chain,
        predicted=outcome.predicted,
        measured=outcome.measured,
    )


def _sameness(same: bool) -> str:
    return f"the gradient is {'' if same else 'NOT '}bitwise equal to store-all's"


def _free(path: Path) -> Path:
    """The path, or the first of path-2, path-3, ... that does not exist."""
    names = itertools.chain(
        (path,), (path.with_name(f"{path.name}-{n}") for n in itertools.count(2))
    )
    return next(name for name in names if not name.exists())


def _new_folder(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
        if any(path.iterdir()):
            raise BadInput(f"{path}: it is not empty; choose another directory for the demo")
    except OSError as error:
        raise BadInput(f"{path}: cannot hold the demo: {error.strerror}") from None
