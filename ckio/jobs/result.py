"""The result of a run: functional, gradient, timelines and figures. It can be read from files."""

import json
import logging
import math
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from ckio.actions.columns import WRITE
from ckio.adapters.registry import lossy
from ckio.errors import BadInput, NotVerified
from ckio.jobs.directory import (
    GRADIENT,
    MEASURED,
    PREDICTED,
    RESULT,
    SCHEDULE,
    RunDirectory,
    read_sealed,
)
from ckio.jobs.gradients import Arrays, digest, read_gradient, whole
from ckio.jobs.memory import Memory
from ckio.model import Differentiable, functional_of
from ckio.model.gradient import GradientCheck
from ckio.parallel.group import ALONE, RankGroup
from ckio.platform import Platform
from ckio.platform.readable import bytes_text
from ckio.report import Report, compare
from ckio.report.headline import headline
from ckio.schedule import Schedule, counts, makespan
from ckio.schedule.policy import SYNCHRONOUS, Overlap
from ckio.schedule.text import loads
from ckio.schedule.timeline import EMPTY, Timeline


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
    memory: Memory,
    ranks: RankGroup = ALONE,
) -> Result:
    """Return the result of a run that has just ended and was performed with this overlap.

    `gradient` is that of this rank, `control` contains the controls at which it was computed, and
    `shared` names those that all ranks share. `before` is the timeline of
    the actions before there was a schedule, and `memory` that of the process. The figures of the
    gradient and the bytes are those of all ranks together.
    """
    names = dict.fromkeys(name for name in (*control, *gradient) if name in gradient)
    gradient = {name: np.asarray(gradient[name]) for name in names}
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
        "functional": functional,
        "gradient": {key: _summary(array) for key, array in together.items()},
        "gradient_digest": digest(together),
        "verified": None,
        "levels": _levels(measured, platform, ranks),
        "memory": memory._asdict(),
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


def refuse_unverified(result: Result, /, where: str = "its result is stored") -> None:
    """Raise NotVerified if the gradient was checked and is not verified.

    The message says `where` the result is.
    """
    if result.verified is False:
        told = "" if result.check is None else f" ({result.check.reason})"
        error = NotVerified(
            f"the gradient is NOT verified{told}; the run has ended, and {where}",
            result=result,
        )
        error.shared = True  # all ranks raise it, because they compared the same numbers
        raise error


@dataclass(frozen=True)
class StoredRun:
    """The stored data of a run that has ended, without its gradient.

    The attributes have the meaning of those of `Result`.
    """

    figures: dict[str, Any]
    schedule: Schedule
    platform: Platform
    prediction: Timeline
    timeline: Timeline

    @property
    def report(self) -> Report | None:
        """The comparison of both timelines; None if the rest was planned again during the run."""
        return _report(self.prediction, self.timeline, self.platform)


def stored_run(path: Path, /) -> StoredRun:
    """Read the directory of a run that has ended; raises BadInput if a file was changed."""
    predicted, platform = _timeline_in(path / PREDICTED)
    return StoredRun(
        figures=json.loads(read_sealed(path / RESULT)),
        schedule=loads(read_sealed(path / SCHEDULE), source=str(path / SCHEDULE)).schedule,
        platform=platform,
        prediction=predicted,
        timeline=_timeline_in(path / MEASURED)[0] if (path / MEASURED).exists() else EMPTY,
    )


def _timeline_in(file: Path) -> tuple[Timeline, Platform]:
    document = loads(read_sealed(file), source=str(file))
    if document.timeline is None or document.platform is None:
        raise BadInput(f"{file}: it contains no timeline, because it was edited; run again")
    return document.timeline, document.platform


def read_back(directory: RunDirectory, platform: Platform, ranks: RankGroup = ALONE, /) -> Result:
    """Read the result of a run that has ended; raises BadInput if its files are damaged."""
    run = ranks.once(lambda: stored_run(directory.path))
    figures, path = run.figures, directory.path / GRADIENT
    if ranks.once(lambda: os.path.lexists(path)):
        gradient, control = read_gradient(path, figures["gradient_checksum"], ranks)
    else:
        logging.getLogger("ckio").warning("the gradient of the run is not at %s any more", path)
        gradient, control = {}, {}
    functional = figures["functional"]  # null in JSON stands for NaN
    return Result(
        functional=math.nan if functional is None else functional,
        gradient=gradient,
        control=control,
        verified=figures["verified"],
        schedule=run.schedule,
        platform=platform,
        prediction=run.prediction,
        timeline=run.timeline,
        report=run.report,
        check=None,
        figures=figures,
        source=f"{directory.path}, computed at {figures['origin']['when']}",
    )


def _report(predicted: Timeline, measured: Timeline, platform: Platform) -> Report | None:
    if predicted.actions != measured.actions:
        return None
    names = [level.name for level in platform.levels]
    return compare(predicted, measured, names=names, lossy=lossy(platform))


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


OUTCOMES: Final = {True: "verified", False: "NOT verified", None: "not checked"}
"""The words for the outcome of a gradient check; None if there was none."""


def verdict(run: Result | StoredRun, /) -> str:
    """Return a paragraph: whether the gradient is right, memory, work, and what limits the run."""
    return headline(
        run.timeline,
        run.schedule.chain,
        run.platform,
        gradient=OUTCOMES[run.figures["verified"]],
        forward=run.figures["forward_steps"],
        predicted=None if run.report is None else run.prediction.makespan,
        earlier=run.figures.get("earlier", ""),
    )


def facts(result: Result, /) -> list[tuple[str, str]]:
    """Return the facts of a run, as pairs of a name and a text."""
    figures = result.figures
    rows = [("read from", result.source)] if result.source else []
    rows += [
        ("steps", f"{figures['steps']}"),
        ("planner", str(figures["planner"])),
        ("forward steps", f"{figures['forward_steps']}"),
    ]
    if figures["overlap"]:
        rows.append(("overlap", figures["overlap"]))
    rows += [
        (
            f"level {level['name']}",
            f"{bytes_text(level['written'])} written, {bytes_text(level['read'])} read"
            f"{'' if level['lossless'] else ', LOSSY'}",
        )
        for level in figures["levels"]
    ]
    memory = Memory(**figures["memory"])
    if memory.expected:
        rows.append(("memory", str(memory)))
    if result.report is not None and result.report.rounding:
        rows.append(("rounded", result.report.rounding))
    rows.append(("functional", f"{result.functional:.12g}"))
    rows.append(("gradient", f"{GRADIENT}, digest {figures['gradient_digest']}"))
    if result.check is not None:
        rows.append(("gradient check", result.check.summary()))
    elif figures["verified"] is not None:
        rows.append(("gradient check", OUTCOMES[figures["verified"]]))
    return rows
