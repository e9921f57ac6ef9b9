"""The result of a run: functional, gradient, timelines and figures. It can be read from files."""

import json
import logging
import math
import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any, Final

import numpy as np

from ckio.actions.columns import WRITE
from ckio.adapters.registry import lossy
from ckio.errors import BadInput, NotVerified
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
from ckio.jobs.history import EarlierRuns
from ckio.model import Array, Differentiable, functional_of
from ckio.model.gradient import GradientCheck
from ckio.parallel.group import ALONE, RankGroup
from ckio.planners.binomial import revolve_forward_steps
from ckio.platform import Platform
from ckio.platform.chain import Chain
from ckio.platform.readable import bytes_text
from ckio.report import Report, compare
from ckio.report.headline import headline
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

_OF_LEVEL: Final = {"name": str, "written": int, "read": int, "lossless": bool}
"""The entries that a stored result must have for each level, and their types."""


@dataclass(frozen=True)
class Result:
    """The result of a run that has ended.

    Attributes
    ----------
    functional : float
        The functional J.
    gradient : mapping of str to array
        dJ/d(control) for each control, in the shape of the control and in the order of the model's
        controls. With many ranks, the part of this rank, or the sum over the ranks for a control
        that they share. Empty if the file of an earlier run has been removed.
    control : mapping of str to array
        The controls at which the gradient was computed, in the same order.
    verified : bool or None
        Whether the gradient passed the Taylor test; None if it was not tested.
    schedule, platform
        The schedule that was performed, and the platform on which it ran.
    prediction, timeline : Timeline
        The predicted and the measured times of each action of the process that ended the run. The
        measured one is empty if the disk was too full to store it.
    report : Report or None
        The comparison of both; None if the rest of the run was planned again during the run.
    check : GradientCheck or None
        The Taylor test; None if there was none, or if an earlier process made it.
    figures : mapping
        The entries that `ckio run --json` prints.
    source : str
        The directory from which a stored result was read, and when it was computed; "" for one that
        was just computed.
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
    source: str = ""

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        """Return the facts of the run, one in each line."""
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
    gradient: Arrays,
    control: Arrays,
    shared: Collection[str] = (),
    predicted: Timeline,
    measured: Timeline,
    overlap: Overlap = SYNCHRONOUS,
    before: Timeline = EMPTY,
    ranks: RankGroup = ALONE,
) -> Result:
    """Return the result of a run that has just ended and was performed with this overlap.

    `gradient` is that of this rank, `control` contains the controls at which it was computed, and
    `shared` names those that all ranks share. `before` is the timeline of
    the actions before there was a schedule. The figures of the gradient and the bytes are those of
    all ranks together.
    """
    gradient = in_order({name: np.asarray(array) for name, array in gradient.items()}, control)
    together = whole(model, gradient, shared, ranks)
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
        "gradient": {key: _summary(array) for key, array in together.items()},
        "gradient_digest": digest(together),
        "verified": None,
        "levels": _levels(measured, platform, ranks),
    }
    return Result(
        functional=functional,
        gradient=gradient,
        control=control,
        verified=None,
        schedule=schedule,
        platform=platform,
        prediction=predicted,
        timeline=measured,
        report=_report(predicted, measured, platform),
        check=None,
        figures=figures,
    )


def refuse_unverified(result: Result, /) -> None:
    """Raise NotVerified if the gradient was checked and is not verified."""
    if result.verified is False:
        told = "" if result.check is None else f" ({result.check.reason})"
        error = NotVerified(
            f"the gradient is NOT verified{told}; the run has ended, and its result is stored",
            result=result,
        )
        error.shared = True  # all ranks raise it, because they compared the same numbers
        raise error


def read_back(directory: RunDirectory, platform: Platform, ranks: RankGroup = ALONE, /) -> Result:
    """Read the result of a run that has ended; raises BadInput if its files are damaged."""
    lost = not ranks.once(lambda: os.path.lexists(directory.path / MEASURED))
    texts = [
        loads(directory.read(name), source=str(directory.path / name))
        for name in (SCHEDULE, PREDICTED, PREDICTED if lost else MEASURED)
    ]
    plan, predicted, measured = texts
    figures = figures_of(directory.read(RESULT), directory.path / RESULT)
    if predicted.timeline is None or measured.timeline is None:
        raise BadInput(
            f"{directory.path}: {PREDICTED} or {MEASURED} has no times, so that one of them was"
            " changed after the run; restore both files from a copy"
        )
    path = directory.path / figures["gradient_file"]
    if ranks.once(lambda: os.path.lexists(path)):
        gradient, control = read_gradient(path, figures["gradient_checksum"], ranks)
    else:
        logging.getLogger("ckio").warning("the gradient of the run is not at %s any more", path)
        gradient, control = {}, {}
    functional = figures["functional"]
    return Result(
        functional=math.nan if functional is None else functional,
        gradient=in_order(gradient, figures.get("gradient", ())),
        control=in_order(control, figures.get("gradient", ())),
        verified=figures["verified"],
        schedule=plan.schedule,
        platform=platform,
        prediction=predicted.timeline,
        timeline=EMPTY if lost else measured.timeline,
        report=None if lost else _report(predicted.timeline, measured.timeline, platform),
        check=None,
        figures=figures,
        source=f"{directory.path}, computed at {_when(figures)}",
    )


def in_order(arrays: Arrays, order: Iterable[str], /) -> dict[str, Array]:
    """Return the same arrays, those with names in `order` first and in this order."""
    return {name: arrays[name] for name in dict.fromkeys([*order, *arrays]) if name in arrays}


def _when(figures: Mapping[str, Any]) -> str:
    origin = figures.get("origin")
    return str(origin.get("when")) if isinstance(origin, Mapping) else "an unknown time"


def figures_of(text: str, source: Path, /) -> dict[str, Any]:
    """Read the figures of a result; raises BadInput if an entry is missing or has another type."""
    try:
        said = json.loads(text)
        _check_entries(said, _FIGURES)
        for level in said["levels"]:
            _check_entries(level, _OF_LEVEL)
    except (ValueError, TypeError, LookupError, RecursionError) as error:
        raise BadInput(f"{source} is damaged: {error}") from None
    return dict(said)


def _check_entries(said: Any, types: Mapping[str, Any]) -> None:
    """Raise an error for an entry of a wrong type, or for an integer that no float can express."""
    for name, kind in types.items():
        value = said[name]
        if not isinstance(value, kind) or (isinstance(value, int) and abs(value) >= 2**63):
            raise ValueError(f"{name} is {value!r:.40}")


def _report(predicted: Timeline, measured: Timeline, platform: Platform) -> Report | None:
    if predicted.actions != measured.actions:
        return None
    names = [level.name for level in platform.levels]
    return compare(predicted, measured, names=names, lossy=lossy(platform))


def forward_minimum(schedule: Schedule, platform: Platform, /) -> int:
    """Return the fewest forward steps that are possible with restart checkpoints in these slots.

    It is the closed form of Griewank & Walther (2000) for the slots of all levels together. A
    schedule that stores tapes may need fewer steps; then its own number is returned. If single
    variables are stored, a slot has the size of the variables that every step overwrites, because
    two checkpoints cannot share these.

    For example, with 3 slots and at most 2 repetitions of each step, 10 steps can be reversed, and
    this takes 2 * 10 - 5 + 10 = 25 forward steps.
    """
    chain = schedule.chain
    slots = _slots(chain, platform)
    own = counts(schedule).forward
    if chain.length == 1:
        return 1
    return min(own, revolve_forward_steps(chain.length, slots)) if slots else own


def _slots(chain: Chain, platform: Platform) -> int:
    """Return the most checkpoints that the levels can store, by the bytes that none can share."""
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
    space = 0.0  # of all levels, because the variables of a checkpoint may be on several levels
    for level in platform.levels:
        space += math.inf if level.capacity is None else level.capacity / level.ratio
    return int(min(chain.length, space / each)) if each else chain.length


def _summary(array: Any) -> dict[str, float]:
    values = np.asarray(array)
    with np.errstate(over="ignore", invalid="ignore"):
        norm = float(np.sqrt(np.sum(np.abs(values) ** 2)))
    if not values.size:
        return {"norm": norm, "min": 0.0, "max": 0.0}
    values = np.abs(values) if np.iscomplexobj(values) else values
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
    """Return the bytes written to a level and read from it, and the seconds that this took.

    If transfers ran in the background, their own bytes and seconds count, and not the time for
    which the program copied or waited.
    """
    background = timeline.transfers
    if len(background) and (background.actions.level == level).any():
        timeline = background
    actions = timeline.actions
    here = (actions.op >= WRITE) & (actions.level == level)
    written = here & (actions.op == WRITE)
    return (
        int(timeline.nbytes[written].sum()),
        int(timeline.nbytes[here & ~written].sum()),
        float((timeline.stop - timeline.start)[here].sum()),
    )


VERDICTS: Final = {True: "verified", False: "NOT verified", None: "not checked"}
"""The words for the outcome of a gradient check; None if there was none."""


def verdict(result: Result, /) -> str:
    """Return a paragraph: whether the gradient is right, memory, work, and what limits the run."""
    predicted = None if result.report is None else result.prediction.makespan
    return headline(
        result.timeline,
        result.schedule.chain,
        result.platform,
        gradient=VERDICTS[result.figures["verified"]],
        predicted=predicted,
        earlier=_earlier(result.figures),
    )


def verdict_in(
    path: Path, measured: Timeline, chain: Chain, platform: Platform, /, *, predicted: float
) -> str:
    """Return this paragraph for a run by its directory; "" if the directory has no result.

    Raises BadInput if the result is damaged.
    """
    file = path / RESULT
    if not file.is_file():
        return ""
    figures = figures_of(unsealed(read_text(file), file), file)
    gradient, earlier = VERDICTS[figures["verified"]], _earlier(figures)
    return headline(
        measured, chain, platform, gradient=gradient, predicted=predicted, earlier=earlier
    )


def _earlier(figures: Mapping[str, Any]) -> str:
    """Return how far earlier runs were from their predictions, if that was known."""
    match figures.get("earlier"):
        case {"low": float() as low, "high": float() as high, "runs": int() as runs}:
            return EarlierRuns(low, high, runs).text()
        case _:
            return ""


def facts(result: Result, /) -> list[tuple[str, str]]:
    """Return the facts of a run, as pairs of a name and a text."""
    figures = result.figures
    forward, least = figures["forward_steps"], figures["forward_steps_minimum"]
    by_variable = result.schedule.chain.variables is not None
    where = "all this space" if by_variable else "these slots"
    rows = [("read from", result.source)] if result.source else []
    rows += [
        ("steps", f"{figures['steps']}"),
        ("planner", str(figures["planner"])),
        ("forward steps", f"{forward} (at least {least} with restart data in {where})"),
    ]
    if figures.get("overlap"):  # missing in a result of an earlier version
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
