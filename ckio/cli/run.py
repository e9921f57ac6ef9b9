"""`ckio run`: a model's adjoint by a schedule, on real storage."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np
import xxhash

from ckio import __version__, rundir
from ckio.backends.base import Backend
from ckio.cli import compare as comparison
from ckio.cli import console
from ckio.cli.files import FILE, read_platform
from ckio.cli.levels import Keep, opened
from ckio.cli.models import RESULTS, Settings, blamed, check_has, costs, maker, watched
from ckio.cli.options import json_option, planner_options, settings_option
from ckio.cli.plans import Plan, planner_call
from ckio.columns import REVERSE, WRITE
from ckio.errors import BadInput, RunFailed
from ckio.gradient import GradientCheck, check_gradient
from ckio.model import Differentiable
from ckio.pictures.words import bytes_text
from ckio.planners.binomial import revolve_forward_steps
from ckio.platforms import Platform
from ckio.registry import lossy
from ckio.report import Report, compare
from ckio.rundir import RunDirectory
from ckio.runner import run
from ckio.schedule import Schedule, counts
from ckio.sim.engine import simulate
from ckio.texts import dumps
from ckio.timeline import Timeline

HALVINGS = 5


@click.command()
@click.argument("model")
@planner_options
@settings_option
@click.option("--into", type=FILE, required=True, metavar="DIR", help="a new directory for the run")
@click.option("--keep", is_flag=True, help="leave the checkpoints that remain on the levels")
@click.option("--check-gradient", is_flag=True, help="verify the gradient by a Taylor test")
@json_option
def command(
    *,
    model: str,
    planner: str | None,
    steps: int | None,
    platform: Path | None,
    settings: Settings,
    into: Path,
    keep: bool,
    check_gradient: bool,
    as_json: bool,
    **own: Any,
) -> None:
    """Run the adjoint of MODEL over --steps steps on the levels of --platform.

    MODEL is a registered name or MODULE:ATTRIBUTE. DIR gets the manifest, the result and both
    timelines. Checkpoints lie where the platform's levels say; they go when the run ends well.

    With --check-gradient the exit status is 0 only if the gradient is verified.
    """
    if steps is None:
        raise BadInput("--steps is missing: the number of steps to run")
    if platform is None:
        raise BadInput("--platform is missing: a file from `ckio calibrate`")
    fresh = maker(model, settings)
    machine = read_platform(platform)
    call = planner_call(planner or "hrevolve", **own)
    chain = costs(model, settings, machine, quiet=as_json).with_steps(steps)
    plan = Plan(planner or "hrevolve", chain, machine, call)
    keeps: Keep = "everything" if keep else "after errors"
    outcome = perform(
        model, settings, fresh, plan, into, keep=keeps, check=check_gradient, quiet=as_json
    )
    if as_json:
        console.print_json(outcome.figures)
    else:
        show(outcome)
        click.echo(f"the plan, both timelines and the result are in {into}")
    if outcome.figures["verified"] is False:
        raise RunFailed("the gradient is NOT verified")


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
    fresh: Callable[[], Differentiable],
    plan: Plan,
    into: Path,
    /,
    *,
    keep: Keep = "after errors",
    check: bool = False,
    quiet: bool = False,
) -> Outcome:
    """Plan, simulate, run and compare, with everything that is worth keeping kept in `into`.

    Of what fails before a durable level holds a checkpoint, nothing is kept.
    """
    chain, platform = plan.chain, plan.platform
    model = fresh()
    check_has(f"model {name!r}", model, (*RESULTS, "control") if check else RESULTS)
    directory = RunDirectory(into)
    try:
        schedule, _ = plan.schedule(quiet=quiet)
        predicted = simulate(schedule, platform)
        with opened(platform.levels, directory.id, keep=keep) as backends:
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
            with blamed(f"model {name!r}"):
                measured = _run(schedule, platform, model, backends, quiet=quiet)
    except BaseException as error:
        if getattr(error, "__notes__", ()):
            error.add_note(f"the plan is in {into}")
        else:
            directory.clear()
        raise
    _keep(directory, rundir.MEASURED, dumps(schedule, platform, measured))
    verified = None
    if check:
        with blamed(f"model {name!r}, while its gradient is checked"):
            verified = _checked(fresh, chain.length, model.gradient, quiet=quiet)
    names = [level.name for level in platform.levels]
    report = compare(predicted, measured, names=names, lossy=lossy(platform))
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
    _keep(directory, rundir.RESULT, console.json_line(figures))
    return Outcome(schedule, platform, predicted, measured, report, verified, figures)


def _keep(directory: RunDirectory, name: str, text: str) -> None:
    """Write what came of a run; that this fails is no longer anybody's bad input."""
    try:
        directory.write(name, text)
    except BadInput as error:
        raise RunFailed(f"the run ended well, but {error}") from None


def _run(
    schedule: Schedule,
    platform: Platform,
    model: Differentiable,
    backends: Sequence[Backend],
    *,
    quiet: bool,
) -> Timeline:
    """Run with a bar of all steps, forward and back; the model's own callback moves it."""
    actions = schedule.actions
    total = int((actions.end - actions.begin)[actions.op <= REVERSE].sum())
    with console.progress("running", total, quiet=quiet) as tick:
        return run(schedule, platform, watched(lambda: model, tick)(), backends)


def _checked(
    fresh: Callable[[], Differentiable], steps: int, gradient: Mapping[str, Any], *, quiet: bool
) -> GradientCheck:
    runs = HALVINGS + 4
    with console.progress("checking the gradient", runs * steps, quiet=quiet) as tick:
        return check_gradient(watched(fresh, tick), steps, gradient, halvings=HALVINGS)


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
    with np.errstate(over="ignore", invalid="ignore"):
        norm = float(np.sqrt(np.sum(np.abs(values) ** 2)))
    if not values.size:
        return {"norm": norm, "min": 0.0, "max": 0.0}
    return {"norm": norm, "min": float(values.min()), "max": float(values.max())}


def _levels(timeline: Timeline, platform: Platform) -> list[dict[str, Any]]:
    actions, seconds = timeline.actions, timeline.stop - timeline.start
    rounds = lossy(platform)
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
                "codec": level.options.get("codec"),
                "lossless": level.name not in rounds,
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
        ("forward steps", f"{forward} (at least {least} with restart data in these slots)"),
    ]
    found += [
        (
            f"level {level['name']}",
            f"{bytes_text(level['written'])} written, {bytes_text(level['read'])} read"
            f"{'' if level['lossless'] else ', LOSSY'}",
        )
        for level in figures["levels"]
    ]
    if outcome.report.rounding:
        found.append(("rounded", outcome.report.rounding))
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
