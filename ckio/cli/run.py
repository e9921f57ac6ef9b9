"""`ckio run`: a model's adjoint by a schedule, on real storage."""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np
import xxhash

from ckio import __version__, rundir
from ckio.backends.base import Backend
from ckio.chain import Chain
from ckio.cli import compare as comparison
from ckio.cli import console
from ckio.cli.options import (
    FILE,
    SETTING,
    Plan,
    Settings,
    identity,
    maker,
    planner_call,
    planner_options,
    read_platform,
)
from ckio.cli.plan import timed
from ckio.columns import REVERSE, WRITE
from ckio.errors import BadInput
from ckio.gradient import GradientCheck, check_gradient
from ckio.model import Differentiable
from ckio.planners.binomial import revolve_forward_steps
from ckio.platforms import Option, Platform
from ckio.registry import close, open_level
from ckio.report import Report, compare
from ckio.rundir import RunDirectory
from ckio.runner import run
from ckio.schedule import Schedule, counts
from ckio.sim.engine import simulate
from ckio.texts import dumps
from ckio.timeline import Timeline

HALVINGS = 5


@click.command(short_help="Run a model's adjoint by a schedule, on real storage.")
@click.argument("model")
@planner_options
@click.option("--set", "settings", type=SETTING, multiple=True, help="option of the model")
@click.option("--into", type=FILE, required=True, metavar="DIR", help="a new directory for the run")
@click.option("--keep", is_flag=True, help="leave the checkpoints that remain on the levels")
@click.option("--check-gradient", is_flag=True, help="verify the gradient by a Taylor test")
@click.option("--json", "as_json", is_flag=True, help="print one JSON object")
def command(
    *,
    model: str,
    planner: str,
    steps: int | None,
    platform: Path | None,
    on: str | None,
    period: int | None,
    settings: tuple[tuple[str, Option], ...],
    into: Path,
    keep: bool,
    check_gradient: bool,
    as_json: bool,
) -> None:
    """Run the adjoint of MODEL over --steps steps on the levels of --platform.

    MODEL is a registered name or MODULE:ATTRIBUTE. DIR gets the manifest, the result and both
    timelines. Checkpoints lie where the platform's levels say; they go when the run ends well.
    """
    if steps is None:
        raise BadInput("--steps is missing: the number of steps to run")
    if platform is None:
        raise BadInput("--platform is missing: a file from `ckio calibrate`")
    options = dict(settings)
    make = maker(model, options)
    machine = read_platform(platform)
    plan = Plan(
        planner,
        costs(model, options, machine, make).with_steps(steps),
        machine,
        planner_call(planner, on=on, period=period),
    )
    outcome = perform(
        model, options, make, plan, into, keep=keep, check=check_gradient, quiet=as_json
    )
    if as_json:
        console.print_json(outcome.figures)
    else:
        show(outcome)
        click.echo(f"kept in {into}")


def costs(
    model: str, settings: Settings, platform: Platform, make: Callable[[], Differentiable], /
) -> Chain:
    """The model's costs from the platform, or measured now where it has none."""
    known = platform.models.get(identity(model, settings))
    if known is not None:
        return known
    from ckio.calibrate import measure_model

    return measure_model(make)


@dataclass(frozen=True)
class Outcome:
    """A run that ended well: what was planned, what happened, and what came of it."""

    schedule: Schedule
    platform: Platform
    predicted: Timeline
    measured: Timeline
    report: Report
    check: GradientCheck | None
    figures: Mapping[str, Any]


def perform(
    name: str,
    settings: Settings,
    make: Callable[[], Differentiable],
    plan: Plan,
    into: Path,
    /,
    *,
    keep: bool = False,
    check: bool = False,
    quiet: bool = False,
) -> Outcome:
    """Plan, simulate, run and compare, with everything that is worth keeping kept in `into`."""
    chain, platform = plan.chain, plan.platform
    schedule, _ = timed(plan)
    predicted = simulate(schedule, platform)
    directory = RunDirectory(into)
    model = make()
    with ExitStack() as stack:
        backends = open_levels(stack, platform, directory.id)
        directory.write_manifest(
            {
                "ckio": __version__,
                "model": name,
                "settings": dict(settings),
                "planner": plan.planner,
                "chain": asdict(chain),
                "platform": platform.digest(),
                "levels": [level.name for level in platform.levels],
            }
        )
        directory.write(rundir.SCHEDULE, dumps(schedule, platform))
        directory.write(rundir.PREDICTED, dumps(schedule, platform, predicted))
        measured = _run(schedule, platform, model, backends, quiet=quiet)
        for backend in backends:
            close(backend, remove=not keep)
    report = compare(predicted, measured, names=[level.name for level in platform.levels])
    verified = _checked(make, chain.length, model.gradient, quiet=quiet) if check else None
    figures = {
        "planner": plan.planner,
        "steps": chain.length,
        "predicted": predicted.makespan,
        "measured": measured.makespan,
        "forward_steps": counts(schedule).forward,
        "forward_steps_minimum": forward_minimum(schedule, platform),
        "functional": float(model.functional),
        "gradient": {key: _summary(array) for key, array in model.gradient.items()},
        "gradient_digest": digest(model.gradient),
        "verified": None if verified is None else verified.verified,
        "levels": _levels(measured, platform),
    }
    directory.write(rundir.MEASURED, dumps(schedule, platform, measured))
    directory.write(rundir.RESULT, console.json_line(figures))
    return Outcome(schedule, platform, predicted, measured, report, verified, figures)


def open_levels(stack: ExitStack, platform: Platform, run_id: str, /) -> list[Backend]:
    """Open every level for a run; whatever happens, they are closed when the stack is."""
    backends = []
    for level in platform.levels:
        backend = open_level(level, run=run_id)
        stack.callback(backend.close)
        backends.append(backend)
    return backends


def _run(
    schedule: Schedule,
    platform: Platform,
    model: Differentiable,
    backends: list[Backend],
    *,
    quiet: bool,
) -> Timeline:
    """Run with a bar of all steps, forward and back; the model's own callback moves it."""
    actions = schedule.actions
    total = int((actions.end - actions.begin)[actions.op <= REVERSE].sum())
    with console.progress("running", total, quiet=quiet) as tick:
        return run(schedule, platform, watched(lambda: model, tick)(), backends)


def watched(
    make: Callable[[], Differentiable], tick: console.Ticker, /
) -> Callable[[], Differentiable]:
    """A maker of the same models, which move a progress bar if they have a callback for it."""

    def made() -> Differentiable:
        model = make()
        if hasattr(model, "on_step"):
            model.on_step = lambda _step: tick()
        return model

    return made


def _checked(
    make: Callable[[], Differentiable], steps: int, gradient: Mapping[str, Any], *, quiet: bool
) -> GradientCheck:
    runs = HALVINGS + 4
    with console.progress("checking the gradient", runs * steps, quiet=quiet) as tick:
        return check_gradient(watched(make, tick), steps, gradient, halvings=HALVINGS)


def forward_minimum(schedule: Schedule, platform: Platform, /) -> int:
    """The fewest forward steps that restart checkpoints in all these slots allow, I/O ignored.

    Griewank & Walther's closed form over the slots of all levels together; a schedule that keeps
    tapes may need fewer, and then sets the figure.
    """
    chain = schedule.chain
    slots = sum(level.slots(chain.restart, chain.length) for level in platform.levels)
    own = counts(schedule).forward
    if chain.length == 1:
        return 1
    return min(own, revolve_forward_steps(chain.length, slots)) if slots else own


def digest(gradient: Mapping[str, Any], /) -> str:
    """Names and bytes of the arrays in hex: equal only for bitwise equal gradients."""
    hasher = xxhash.xxh3_128()
    for name in sorted(gradient):
        hasher.update(name.encode())
        hasher.update(np.ascontiguousarray(gradient[name]).data)
    return hasher.hexdigest()


def _summary(array: Any) -> dict[str, float]:
    values = np.asarray(array)
    return {
        "norm": float(np.sqrt(np.sum(np.abs(values) ** 2))),
        "min": float(values.min()),
        "max": float(values.max()),
    }


def _levels(timeline: Timeline, platform: Platform) -> list[dict[str, Any]]:
    actions, seconds = timeline.actions, timeline.stop - timeline.start
    found = []
    for number, level in enumerate(platform.levels):
        here = (actions.op >= WRITE) & (actions.level == number)
        written = here & (actions.op == WRITE)
        found.append(
            {
                "name": level.name,
                "written": int(timeline.nbytes[written].sum()),
                "read": int(timeline.nbytes[here & ~written].sum()),
                "seconds": float(seconds[here].sum()),
            }
        )
    return found


def facts(outcome: Outcome, /) -> list[tuple[str, str]]:
    """What one wants to know of a run, as pairs of words."""
    figures = outcome.figures
    forward, least = figures["forward_steps"], figures["forward_steps_minimum"]
    found = [
        ("steps", f"{figures['steps']}"),
        ("planner", str(figures["planner"])),
        ("forward steps", f"{forward} ({least} the least possible in these slots, I/O ignored)"),
    ]
    found += [
        (
            f"level {level['name']}",
            f"{console.nbytes(level['written'])} written, {console.nbytes(level['read'])} read",
        )
        for level in figures["levels"]
    ]
    found.append(("functional", f"{figures['functional']:.12g}"))
    found.append(("gradient", f"digest {figures['gradient_digest']}"))
    if outcome.check is not None:
        found.append(("gradient check", outcome.check.summary()))
    return found


def show(outcome: Outcome, /) -> None:
    """A run as a person reads it."""
    comparison.show(outcome.report)
    width = max(len(name) for name, _ in facts(outcome))
    for name, text in facts(outcome):
        click.echo(f"{name:<{width}}  {text}")
