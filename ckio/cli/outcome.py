"""What came of a run: as figures, as a person reads it, and read back from its directory."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import click
import numpy as np
import xxhash

from ckio.chain import Chain
from ckio.cli import compare as comparison
from ckio.columns import WRITE
from ckio.errors import BadInput
from ckio.gradient import GradientCheck
from ckio.model import Differentiable, functional_of
from ckio.overlap import SYNCHRONOUS, Overlap
from ckio.pictures.words import bytes_text
from ckio.planners.binomial import revolve_forward_steps
from ckio.platforms import Platform
from ckio.registry import lossy
from ckio.report import Report, compare
from ckio.rundir import MEASURED, PREDICTED, RESULT, SCHEDULE, RunDirectory
from ckio.schedule import Schedule, counts, makespan
from ckio.team import ALONE, Team
from ckio.texts import loads
from ckio.timeline import EMPTY, Timeline


@dataclass(frozen=True)
class Outcome:
    """A run that ended well: what was planned, what happened, and what came of it.

    All of it is of the process that ended the run; `check` is None also where an earlier one
    checked the gradient. There is no report where the rest was planned anew on the way.
    """

    schedule: Schedule
    platform: Platform
    predicted: Timeline
    measured: Timeline
    report: Report | None
    check: GradientCheck | None
    figures: Mapping[str, Any]


def outcome(
    planner: str,
    model: Differentiable,
    schedule: Schedule,
    platform: Platform,
    /,
    *,
    predicted: Timeline,
    measured: Timeline,
    check: GradientCheck | None,
    overlap: Overlap = SYNCHRONOUS,
    before: Timeline = EMPTY,
    team: Team = ALONE,
) -> Outcome:
    """Everything that is to be said of a run that has just ended, with this policy.

    `before` is what the process did before there was a schedule. The gradient is that of all ranks
    together, and so are the bytes that moved.
    """
    gradient = whole(model, model.gradient, team)
    first = Schedule(schedule.chain, before.actions)
    figures = {
        "planner": planner,
        "steps": schedule.chain.length,
        "overlap": str(overlap) if overlap else None,
        "predicted": makespan(first, platform) + predicted.makespan,
        "measured": before.makespan + measured.makespan,
        "forward_steps": counts(first).forward + counts(schedule).forward,
        "forward_steps_minimum": forward_minimum(schedule, platform),
        "functional": float(functional_of(model)),
        "gradient": {key: _summary(array) for key, array in gradient.items()},
        "gradient_digest": digest(gradient),
        "verified": None if check is None else check.verified,
        "levels": _levels(measured, platform, team),
    }
    report = _report(predicted, measured, platform)
    return Outcome(schedule, platform, predicted, measured, report, check, figures)


def read_back(directory: RunDirectory, platform: Platform, /) -> Outcome:
    """The outcome of a run that has ended; raises BadInput where its files are not whole."""
    texts = [
        loads(directory.read(name), source=str(directory.path / name))
        for name in (SCHEDULE, PREDICTED, MEASURED)
    ]
    plan, predicted, measured = texts
    try:
        figures = json.loads(directory.read(RESULT))
    except ValueError:
        raise BadInput(f"{directory.path / RESULT} is damaged: it is not JSON") from None
    if predicted.timeline is None or measured.timeline is None:
        raise BadInput(f"{directory.path}: its timelines are not there; they were edited")
    times = predicted.timeline, measured.timeline
    return Outcome(plan.schedule, platform, *times, _report(*times, platform), None, figures)


def _report(predicted: Timeline, measured: Timeline, platform: Platform) -> Report | None:
    if predicted.actions != measured.actions:
        return None
    names = [level.name for level in platform.levels]
    return compare(predicted, measured, names=names, lossy=lossy(platform))


def forward_minimum(schedule: Schedule, platform: Platform, /) -> int:
    """The fewest forward steps that restart checkpoints in all these slots allow, I/O ignored.

    Griewank & Walther's closed form over the slots of all levels together; a schedule that keeps
    tapes may need fewer, and then sets the figure. Where single variables are stored, it counts
    what is overwritten in every step: of this, two checkpoints share nothing.
    """
    chain = schedule.chain
    slots = _slots(chain, platform)
    own = counts(schedule).forward
    if chain.length == 1:
        return 1
    return min(own, revolve_forward_steps(chain.length, slots)) if slots else own


def _slots(chain: Chain, platform: Platform) -> int:
    """How many checkpoints the levels hold at most, each with all that no other one shares."""
    if chain.variables is None:
        return sum(level.slots(chain.restart, chain.length) for level in platform.levels)
    variables, over = chain.variables, chain.variables.over(chain.length)
    each = sum(
        variables.nbytes[name]
        for name in variables.stored
        if over.has(name, "forward", "out").all()
        and over.live(name, seed=name in variables.seed)[:-1].all()
        and not over.restores(name).any()
    )
    room = 0.0  # the variables of one checkpoint may lie on several levels
    for level in platform.levels:
        room += math.inf if level.capacity is None else level.capacity / level.ratio
    return int(min(chain.length, room / each)) if each else chain.length


def digest(gradient: Mapping[str, Any], /) -> str:
    """Names and bytes of the arrays in hex: equal only for bitwise equal gradients."""
    hasher = xxhash.xxh3_128()
    for name in sorted(gradient):
        hasher.update(name.encode())
        hasher.update(np.ascontiguousarray(gradient[name]).data)
    return hasher.hexdigest()


def whole(model: Differentiable, arrays: Mapping[str, Any], team: Team, /) -> Mapping[str, Any]:
    """Arrays of the controls' shapes as they are over all ranks, on each of them.

    A model that has its part of them alone puts them together: `gathered(name, array)`. Without
    that, they are one part behind the other.
    """
    if team.is_alone:
        return arrays
    gathered = getattr(model, "gathered", None)
    if gathered is not None:
        return {name: np.asarray(gathered(name, array)) for name, array in arrays.items()}
    parts = {name: np.ravel(array) for name, array in arrays.items()}
    every = team.gather(parts)
    return {name: np.concatenate([part[name] for part in every]) for name in parts}


def _summary(array: Any) -> dict[str, float]:
    values = np.asarray(array)
    with np.errstate(over="ignore", invalid="ignore"):
        norm = float(np.sqrt(np.sum(np.abs(values) ** 2)))
    if not values.size:
        return {"norm": norm, "min": 0.0, "max": 0.0}
    return {"norm": norm, "min": float(values.min()), "max": float(values.max())}


def _levels(timeline: Timeline, platform: Platform, team: Team) -> list[dict[str, Any]]:
    rounds, found = lossy(platform), []
    for number, level in enumerate(platform.levels):
        *_, seconds = moved = _moved(timeline, number)
        written, read, _ = map(sum, zip(*team.gather(moved), strict=True))
        found.append(
            {
                "name": level.name,
                "written": written,
                "read": read,
                "seconds": seconds,
                "codec": level.options.get("codec"),
                "lossless": level.name not in rounds,
            }
        )
    return found


def _moved(timeline: Timeline, level: int) -> tuple[int, int, float]:
    """Bytes written to a level and read from it, and the seconds that this took.

    Where transfers moved them behind the program, those count, and not what it copied or waited.
    """
    behind = timeline.transfers
    if len(behind) and (behind.actions.level == level).any():
        timeline = behind
    actions = timeline.actions
    here = (actions.op >= WRITE) & (actions.level == level)
    written = here & (actions.op == WRITE)
    return (
        int(timeline.nbytes[written].sum()),
        int(timeline.nbytes[here & ~written].sum()),
        float((timeline.stop - timeline.start)[here].sum()),
    )


def facts(outcome: Outcome, /) -> list[tuple[str, str]]:
    """What one wants to know of a run, as pairs of words."""
    figures = outcome.figures
    forward, least = figures["forward_steps"], figures["forward_steps_minimum"]
    by_variable = outcome.schedule.chain.variables is not None
    where = "all this room" if by_variable else "these slots"
    found = [
        ("steps", f"{figures['steps']}"),
        ("planner", str(figures["planner"])),
        ("forward steps", f"{forward} (at least {least} with restart data in {where})"),
    ]
    if figures.get("overlap"):  # a result of an earlier version does not say it
        found.append(("overlap", figures["overlap"]))
    found += [
        (
            f"level {level['name']}",
            f"{bytes_text(level['written'])} written, {bytes_text(level['read'])} read"
            f"{'' if level['lossless'] else ', LOSSY'}",
        )
        for level in figures["levels"]
    ]
    if outcome.report is not None and outcome.report.rounding:
        found.append(("rounded", outcome.report.rounding))
    found.append(("functional", f"{figures['functional']:.12g}"))
    found.append(("gradient", f"digest {figures['gradient_digest']}"))
    if outcome.check is not None:
        found.append(("gradient check", outcome.check.summary()))
    elif figures["verified"] is not None:
        found.append(("gradient check", "verified" if figures["verified"] else "NOT verified"))
    return found


def show(outcome: Outcome, /) -> None:
    """A run as a person reads it."""
    if outcome.report is None:
        click.echo("the rest was planned anew on the way: nothing to compare with the first plan\n")
    else:
        comparison.show(outcome.report)
    width = max(len(name) for name, _ in facts(outcome))
    for name, text in facts(outcome):
        click.echo(f"{name:<{width}}  {text}")
