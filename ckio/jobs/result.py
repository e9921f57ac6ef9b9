"""The result of a run: functional, gradient, timelines and figures, also read from its files."""

import json
import logging
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any, Final

import numpy as np

from ckio.actions.columns import WRITE
from ckio.adapters.registry import lossy
from ckio.errors import BadInput
from ckio.jobs.directory import (
    MEASURED,
    PREDICTED,
    RESULT,
    SCHEDULE,
    RunDirectory,
    read_text,
    unsealed,
)
from ckio.jobs.gradients import Arrays, digest, read_gradient, whole
from ckio.jobs.images import read_images
from ckio.model import Differentiable, functional_of
from ckio.model.gradient import GradientCheck
from ckio.parallel.group import ALONE, RankGroup
from ckio.planners.binomial import revolve_forward_steps
from ckio.platform import Platform
from ckio.platform.chain import Chain
from ckio.platform.readable import bytes_text
from ckio.report import Report, compare
from ckio.report.headline import headline
from ckio.report.thumbnails import Thumbnail
from ckio.schedule import Schedule, counts, makespan
from ckio.schedule.policy import SYNCHRONOUS, Overlap
from ckio.schedule.text import loads
from ckio.schedule.timeline import EMPTY, Timeline

_FIGURES: Final = {
    "planner": str,
    "steps": int,
    "forward_steps": int,
    "forward_steps_minimum": int,
    "functional": float | int | None,
    "gradient_digest": str,
    "gradient_file": str,
    "gradient_checksum": str,
    "verified": bool | None,
    "levels": list,
}
"""The entries that a stored result must have, and their types."""


@dataclass(frozen=True)
class Result:
    """The result of a run that has ended.

    Attributes
    ----------
    functional : float
        J.
    gradient : mapping of str to array
        dJ/d(control) for each control; of many ranks the part of this one. Empty where the file of
        a run that ended earlier is no longer there.
    control : mapping of str to array
        The controls that the gradient is taken at.
    verified : bool or None
        Whether the gradient passed its Taylor test; None where none was made.
    schedule, platform
        What was performed, and where.
    prediction, timeline : Timeline
        The predicted and the measured times of each action, of the process that ended the run.
    report : Report or None
        Both compared; None where the rest was planned anew on the way.
    check : GradientCheck or None
        None also where an earlier process checked the gradient.
    figures : mapping
        What `ckio run --json` prints.
    images : tuple of Thumbnail
        Small images of the last state and of the gradient, if the model offers them.
    problems : tuple of str
        What went wrong with the images.
    """

    functional: float
    gradient: Arrays
    control: Arrays
    verified: bool | None
    schedule: Schedule
    platform: Platform
    prediction: Timeline
    timeline: Timeline
    report: Report | None
    check: GradientCheck | None
    figures: Mapping[str, Any]
    images: tuple[Thumbnail, ...] = ()
    problems: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Return the facts of the run, a line each."""
        rows = facts(self)
        width = max(len(name) for name, _ in rows)
        return "\n".join(f"{name:<{width}}  {text}" for name, text in rows)

    def _repr_html_(self) -> str:
        rows = (
            f"<tr><th>{escape(name)}</th><td>{escape(text)}</td></tr>" for name, text in facts(self)
        )
        return f"<table>{''.join(rows)}</table>"


def result_of(
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
    ranks: RankGroup = ALONE,
) -> Result:
    """Return everything that is to be said of a run that has just ended, with this policy.

    `before` is what the process did before there was a schedule. The figures are those of the
    gradient of all ranks together, and of all bytes that moved.
    """
    own = {name: np.asarray(array) for name, array in model.gradient.items()}
    control = getattr(model, "control", None) or {}
    gradient = whole(model, own, ranks)
    functional = float(functional_of(model))
    first = Schedule(schedule.chain, before.actions)
    figures = {
        "planner": planner,
        "steps": schedule.chain.length,
        "overlap": str(overlap) if overlap else None,
        "predicted": makespan(first, platform) + predicted.makespan,
        "measured": before.makespan + measured.makespan,
        "forward_steps": counts(first).forward + counts(schedule).forward,
        "forward_steps_minimum": forward_minimum(schedule, platform),
        "functional": functional,
        "gradient": {key: _summary(array) for key, array in gradient.items()},
        "gradient_digest": digest(gradient),
        "verified": None if check is None else check.verified,
        "levels": _levels(measured, platform, ranks),
    }
    return Result(
        functional=functional,
        gradient=own,
        control={name: np.array(array) for name, array in control.items()},
        verified=None if check is None else check.verified,
        schedule=schedule,
        platform=platform,
        prediction=predicted,
        timeline=measured,
        report=_report(predicted, measured, platform),
        check=check,
        figures=figures,
    )


def read_back(directory: RunDirectory, platform: Platform, ranks: RankGroup = ALONE, /) -> Result:
    """Read the result of a run that has ended; raises BadInput where its files are not whole."""
    texts = [
        loads(directory.read(name), source=str(directory.path / name))
        for name in (SCHEDULE, PREDICTED, MEASURED)
    ]
    plan, predicted, measured = texts
    figures = figures_of(directory.read(RESULT), directory.path / RESULT)
    if predicted.timeline is None or measured.timeline is None:
        raise BadInput(f"{directory.path}: its timelines are not there; they were edited")
    path = directory.path / figures["gradient_file"]
    if ranks.once(lambda: os.path.lexists(path)):
        gradient, control = read_gradient(path, figures["gradient_checksum"], ranks)
    else:
        logging.getLogger("ckio").warning("the gradient of the run is no longer at %s", path)
        gradient, control = {}, {}
    functional = figures["functional"]
    images, problems = read_images(directory.path) if ranks.is_alone else ([], [])
    return Result(
        functional=math.nan if functional is None else functional,
        gradient=gradient,
        control=control,
        verified=figures["verified"],
        schedule=plan.schedule,
        platform=platform,
        prediction=predicted.timeline,
        timeline=measured.timeline,
        report=_report(predicted.timeline, measured.timeline, platform),
        check=None,
        figures=figures,
        images=tuple(images),
        problems=tuple(problems),
    )


def figures_of(text: str, source: Path, /) -> dict[str, Any]:
    """Read the figures of a result; raises BadInput where they are not what a run writes."""
    try:
        said = json.loads(text)
        wrong = [name for name, kind in _FIGURES.items() if not isinstance(said[name], kind)]
    except (ValueError, TypeError, LookupError, RecursionError) as error:
        raise BadInput(f"{source} is damaged: {error}") from None
    if wrong:
        raise BadInput(f"{source} is damaged: {wrong[0]} is {said[wrong[0]]!r:.40}")
    return dict(said)


def _report(predicted: Timeline, measured: Timeline, platform: Platform) -> Report | None:
    if predicted.actions != measured.actions:
        return None
    names = [level.name for level in platform.levels]
    return compare(predicted, measured, names=names, lossy=lossy(platform))


def forward_minimum(schedule: Schedule, platform: Platform, /) -> int:
    """Return the fewest forward steps that restart checkpoints in these slots allow.

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
    """Return the most checkpoints that the levels hold, each with all that no other shares."""
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
    space = 0.0  # the variables of one checkpoint may lie on several levels
    for level in platform.levels:
        space += math.inf if level.capacity is None else level.capacity / level.ratio
    return int(min(chain.length, space / each)) if each else chain.length


def _summary(array: Any) -> dict[str, float]:
    values = np.asarray(array)
    with np.errstate(over="ignore", invalid="ignore"):
        norm = float(np.sqrt(np.sum(np.abs(values) ** 2)))
    if not values.size:
        return {"norm": norm, "min": 0.0, "max": 0.0}
    return {"norm": norm, "min": float(values.min()), "max": float(values.max())}


def _levels(timeline: Timeline, platform: Platform, ranks: RankGroup) -> list[dict[str, Any]]:
    rounds, rows = lossy(platform), []
    for number, level in enumerate(platform.levels):
        *_, seconds = moved = _moved(timeline, number)
        written, read, _ = map(sum, zip(*ranks.gather(moved), strict=True))
        rows.append(
            {
                "name": level.name,
                "written": written,
                "read": read,
                "seconds": seconds,
                "codec": level.options.get("codec"),
                "lossless": level.name not in rounds,
            }
        )
    return rows


def _moved(timeline: Timeline, level: int) -> tuple[int, int, float]:
    """Return bytes written to a level and read from it, and the seconds that this took.

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


_CHECKED: Final = {True: "verified", False: "NOT verified", None: "not checked"}


def verdict(result: Result, /) -> str:
    """Return a paragraph: whether the gradient is right, what was gained, and what limits it."""
    predicted = None if result.report is None else result.prediction.makespan
    return headline(
        result.timeline,
        result.schedule.chain,
        result.platform,
        gradient=_CHECKED[result.figures["verified"]],
        predicted=predicted,
        interval=_interval(result.figures),
    )


def verdict_in(
    path: Path, measured: Timeline, chain: Chain, platform: Platform, /, *, predicted: float
) -> str:
    """Return the same of a run by its directory, or nothing where that holds no result.

    Raises BadInput where the result is damaged.
    """
    file = path / RESULT
    if not file.is_file():
        return ""
    figures = figures_of(unsealed(read_text(file), file), file)
    gradient, interval = _CHECKED[figures["verified"]], _interval(figures)
    return headline(
        measured, chain, platform, gradient=gradient, predicted=predicted, interval=interval
    )


def _interval(figures: Mapping[str, Any]) -> tuple[float, float] | None:
    """Return the seconds between which nine of ten runs were expected, if that is known."""
    bounds = figures.get("interval")
    if not isinstance(bounds, Mapping):
        return None
    low, high = bounds.get("low"), bounds.get("high")
    return (low, high) if isinstance(low, float) and isinstance(high, float) else None


def facts(result: Result, /) -> list[tuple[str, str]]:
    """Return what one wants to know of a run, as pairs of words."""
    figures = result.figures
    forward, least = figures["forward_steps"], figures["forward_steps_minimum"]
    by_variable = result.schedule.chain.variables is not None
    where = "all this room" if by_variable else "these slots"
    rows = [
        ("steps", f"{figures['steps']}"),
        ("planner", str(figures["planner"])),
        ("forward steps", f"{forward} (at least {least} with restart data in {where})"),
    ]
    if figures.get("overlap"):  # a result of an earlier version does not say it
        rows.append(("overlap", figures["overlap"]))
    rows += [
        (
            f"level {level['name']}",
            f"{bytes_text(level['written'])} written, {bytes_text(level['read'])} read"
            f"{'' if level['lossless'] else ', LOSSY'}",
        )
        for level in figures["levels"]
    ]
    if result.report is not None and result.report.rounding:
        rows.append(("rounded", result.report.rounding))
    rows.append(("functional", f"{result.functional:.12g}"))
    rows.append(("gradient", f"{figures['gradient_file']}, digest {figures['gradient_digest']}"))
    if result.check is not None:
        rows.append(("gradient check", result.check.summary()))
    elif figures["verified"] is not None:
        rows.append(("gradient check", "verified" if figures["verified"] else "NOT verified"))
    return rows
