"""One process of a run: it performs a schedule and writes the result.

A `Process` has the request, the model, the plan and the display. `conclude` performs a schedule,
shows its progress, checks the gradient if this was requested, and writes the gradient and then the
result, which has the name of the gradient's file.
"""

import platform as host
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import xxhash

from ckio.actions import Key, Kind
from ckio.actions.columns import REVERSE
from ckio.actions.variables import Variables
from ckio.adapters.registry import is_shared
from ckio.backends.base import Backend
from ckio.errors import (
    BadInput,
    RunFailed,
    Stopped,
    StorageError,
    UnsupportedKind,
)
from ckio.jobs import history
from ckio.jobs.adjoints import Kept, next_plan
from ckio.jobs.directory import GRADIENT, MEASURED, RESULT, RunDirectory
from ckio.jobs.display import QUIET, Display, Ticker
from ckio.jobs.gradients import controls_of, digest, shared_controls, write_gradient
from ckio.jobs.journal import Journal
from ckio.jobs.levels import Keep
from ckio.jobs.models import RESULTS, blamed, check_has, watched
from ckio.jobs.planning import OVERLAPPED, Planning
from ckio.jobs.remaining import by_the_wall
from ckio.jobs.request import Request
from ckio.jobs.result import Result, result_of
from ckio.jobs.stopping import Stopper, halted, seconds_to_stop, store_standing
from ckio.model import Array, Differentiable, Model
from ckio.model.comm import total
from ckio.model.directional import CERTAIN
from ckio.model.gradient import check_gradient
from ckio.parallel.agreed import in_background
from ckio.parallel.group import ALONE, RankGroup
from ckio.planners.compared import Plan
from ckio.platform import Platform
from ckio.platform.chain import Chain
from ckio.platform.readable import json_line
from ckio.report import Report
from ckio.runner.failover import Stored, failover
from ckio.runner.reproducible import ReplayCheck
from ckio.runner.space import levels_for
from ckio.schedule import Schedule
from ckio.schedule.policy import AUTO, SYNCHRONOUS, Overlap
from ckio.schedule.text import dumps
from ckio.schedule.timeline import EMPTY, Event, Timeline

WITH_TAPES: Final = ("mixed", AUTO, OVERLAPPED)
"""The planners that store tapes."""


@dataclass(frozen=True, kw_only=True)
class Process:
    """One process that begins or resumes a run.

    Attributes
    ----------
    request : Request
        The request; for a resumed run, combined with that of the begun run.
    fresh : callable
        Returns a fresh model.
    planning : Planning
        The planner, the chain and the platform.
    variables : Variables or None
        The variables of the state, if they are stored one by one.
    overlap : Overlap
        The policy that decides which transfers overlap with computation.
    stopper : Stopper or None
        Stops the run so that it can be resumed. With None, signals interrupt the run.
    display : Display
        Receives progress and notes.
    ranks : RankGroup
        The ranks; the first one writes files and messages.
    plans : list
        The plans that the same job has made so far, which are used again.
    replay : ReplayCheck
        The states that are compared when they are computed again.
    make : object
        The function that makes the model, if it is known.
    """

    request: Request
    fresh: Callable[[], Differentiable]
    planning: Planning
    variables: Variables | None = None
    overlap: Overlap = SYNCHRONOUS
    stopper: Stopper | None = None
    display: Display = QUIET
    ranks: RankGroup = ALONE
    plans: list[tuple[Planning, Plan]] = field(default_factory=list)
    replay: ReplayCheck = field(default_factory=ReplayCheck)
    make: object = None

    @property
    def name(self) -> str:
        """Return the name of the model."""
        return self.request.model or "model"

    @property
    def chain(self) -> Chain:
        return self.planning.chain

    @property
    def platform(self) -> Platform:
        return self.planning.platform

    @property
    def keeps(self) -> Keep:
        return "everything" if self.request.keep else "after errors"

    def model(self) -> Differentiable:
        """Return a fresh model; raises BadInput if it lacks an attribute that the run needs."""
        model = self.fresh()
        needed = (*RESULTS, "control") if self.request.check else RESULTS
        check_has(f"model {self.name!r}", model, needed)
        shared_controls(model, getattr(model, "control", None) or {}, self.ranks)
        return model

    def planned(self, planning: Planning, /) -> Plan:
        """Return the plan, which is made only once for the same planner, chain and platform."""
        for known, planned in self.plans:
            if known == planning:
                return planned
        planned = planning.planned(self.display)
        self.plans.append((planning, planned))
        return planned

    def with_chain(self, chain: Chain, /) -> "Process":
        """Return the same process for another chain."""
        return replace(self, planning=replace(self.planning, chain=chain))

    def journal(self) -> Journal | None:
        """Return the journal, if one was requested; raises BadInput if it cannot be written."""
        to, planning = self.request.journal, self.planning
        if to is None or self.ranks.rank:
            return None
        about = {"model": self.name, "planner": planning.planner, "steps": planning.chain.steps}
        levels = [level.name for level in planning.platform.levels]
        return Journal(to, about, levels=levels, warn=self.display.warn)

    def stores_tapes(self, survivors: Iterable[Iterable[Key]], /) -> bool:
        """Return whether the rest is planned with tapes: the planner stores them, or some exist."""
        return (self.planning.planner in WITH_TAPES and self.planning.tapes) or any(
            key.kind is Kind.TAPE for keys in survivors for key in keys
        )


def has_tapes(chain: Chain, make: Callable[[], Model], /) -> bool:
    """Return whether a model can store tapes. If the chain has tapes of 0 bytes, ask the model."""
    if chain.largest("tape"):
        return True
    try:
        make().layout(Key(Kind.TAPE, 0))
    except UnsupportedKind:
        return False
    return True


def control_of(model: Differentiable, ranks: RankGroup = ALONE, /) -> str | None:
    """Return the digest of a fresh model's controls on all ranks; None if it has no controls."""
    control = getattr(model, "control", None)
    return None if control is None else digest_of(control, ranks)


def digest_of(control: Mapping[str, Array], ranks: RankGroup = ALONE, /) -> str:
    """Return the digest of the controls on all ranks."""
    mine = digest(control)
    if ranks.is_alone:
        return mine
    return xxhash.xxh3_128("".join(map(str, ranks.gather(mine))).encode()).hexdigest()


HALVINGS: Final = 5

_OFF: Final = 1e-3
"""By how much J may differ in two runs that round differently, relative to J."""


class ResultNotWritten(RunFailed):
    """The run has ended without an error, but its result cannot be written."""


def conclude(
    process: Process,
    directory: RunDirectory,
    model: Differentiable,
    schedule: Schedule,
    /,
    *,
    platform: Platform,
    backends: Sequence[Backend],
    predicted: Timeline,
    kept: Kept,
    before: Timeline = EMPTY,
    decided: Mapping[str, Any] = MappingProxyType({}),
) -> Result:
    """Perform the schedule, and write the result while the checkpoints still exist.

    Parameters
    ----------
    process, directory, model, schedule
        The process, the directory of the run, a fresh model, and the schedule to perform.
    platform : Platform
        The levels as they are now; a level that has failed has no capacity.
    backends : sequence of Backend
        The open levels.
    predicted : Timeline
        The simulated timeline of the schedule.
    kept : Kept
        The level and interval of adjoint checkpoints.
    before : Timeline
        The actions that this process has performed before the schedule.
    decided : mapping
        Figures of the plan, which are added to those of the result.

    Raises
    ------
    Halted
        If the run was stopped.
    ResultNotWritten
        If the result cannot be written.
    """
    steps = schedule.chain.length
    earlier = history.earlier(process.name, platform, overlap=bool(process.overlap))
    measured, model = _perform(
        process,
        model,
        schedule,
        platform=platform,
        backends=backends,
        predicted=predicted,
        kept=kept,
    )
    done = replace(schedule, actions=measured.actions)
    with _stored_if_not_written(process, model, schedule, platform, backends):
        ended, file = _collect(
            process, directory, model, done, predicted=predicted, measured=measured, before=before
        )
        if process.request.check:
            # If the model decides its end, it may take other numbers of steps for others.
            ended = _verify(process, model, ended, None if len(before) else steps)
        report = None if any(schedule.stored) else ended.report  # of a process that did all
        figures = {**decided, **ended.figures, "verified": ended.verified, **file}
        figures |= _circumstances(process, report, earlier)
        _write_result(directory, figures)
    _write_measured(process, directory, done, measured)
    return replace(ended, figures=figures)


def _collect(
    process: Process,
    directory: RunDirectory,
    model: Differentiable,
    schedule: Schedule,
    *,
    predicted: Timeline,
    measured: Timeline,
    before: Timeline,
) -> tuple[Result, dict[str, Any]]:
    """Write the gradient; return the result, not checked yet, and the figures of its file."""
    control = _controls(process, directory, model)
    shared = shared_controls(model, control, process.ranks)
    gradient = _sum_over_ranks(process, model, control, shared)
    ended = result_of(
        process.planning.planner,
        model,
        schedule,
        process.platform,
        gradient=gradient,
        control=control,
        shared=shared,
        predicted=predicted,
        measured=measured,
        overlap=process.overlap,
        before=before,
        ranks=process.ranks,
    )
    return ended, _write_gradient(process, directory, model, ended, shared)


def _controls(process: Process, directory: RunDirectory, model: Differentiable) -> dict[str, Array]:
    """Return a copy of the controls at which the run was begun.

    A control can be the memory of the state, which the steps have overwritten. Then the controls
    are those of a fresh model.
    """
    begun = None if directory.manifest is None else directory.manifest.control
    if begun is not None and control_of(model, process.ranks) != begun:
        model = process.fresh()
    return {name: np.array(array) for name, array in controls_of(model).items()}


def _sum_over_ranks(
    process: Process,
    model: Differentiable,
    control: Mapping[str, Array],
    shared: Collection[str],
) -> dict[str, Array]:
    """Return the gradient: of shared controls over all ranks, of others the part of this rank."""
    gradient = {name: np.asarray(array) for name, array in model.gradient.items()}
    comm = process.ranks.comm
    for name in sorted(shared):
        part = gradient[name]
        gradient[name] = total(model, name, part, comm)
        alike = all(np.array_equal(part, other) for other in comm.gather(part))
        if alike and part.any() and not np.array_equal(part, gradient[name]):
            process.display.warn(
                f"each rank had the same gradient of the control {name!r}, and they were added up;"
                " if the adjoint steps add over the ranks already, let each add its own part only"
            )
    for name, array in control.items():
        if name not in gradient or gradient[name].shape != array.shape:
            process.display.warn(
                f"the model has no gradient of the control {name!r} in its shape {array.shape};"
                " its `gradient` must have such an array for each control"
            )
    return gradient


def _circumstances(
    process: Process, report: Report | None, earlier: history.EarlierRuns | None
) -> dict[str, Any]:
    """Return figures of earlier runs of this kind, and of this run's host and versions.

    If there is a report, the run is also added to the history of the user.
    """
    if report is not None and not process.ranks.rank:
        history.add(
            process.name,
            overlap=bool(process.overlap),
            predicted=report.predicted,
            measured=report.measured,
        )
    origin = {
        "host": host.node(),
        "when": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        "ckio": version("ckio"),
        "python": host.python_version(),
        "numpy": version("numpy"),
    }
    return {"origin": origin} | ({} if earlier is None else {"earlier": asdict(earlier)})


def _write_gradient(
    process: Process,
    directory: RunDirectory,
    model: Differentiable,
    ended: Result,
    shared: Collection[str],
) -> dict[str, Any]:
    """Write the gradient; return the name of its file, and its checksum."""
    asked = process.request.gradient
    path = Path(asked).absolute() if asked else directory.path / GRADIENT
    steps = ended.schedule.chain.length
    about = {"run": directory.id, "model": process.name, "steps": steps}
    try:
        checksum = write_gradient(
            path,
            model,
            ended.functional,
            about,
            process.ranks,
            gradient=ended.gradient,
            control=ended.control,
            shared=shared,
        )
    except StorageError as error:
        raise ResultNotWritten(f"the run ended without an error, but {error}") from None
    return {"gradient_file": str(path) if asked else GRADIENT, "gradient_checksum": checksum}


def _write_result(directory: RunDirectory, figures: Mapping[str, Any]) -> None:
    """Write the figures of the result; their file marks the run as ended."""
    try:
        directory.write(RESULT, json_line(figures))
    except BadInput as error:
        raise ResultNotWritten(f"the run ended without an error, but {error}") from None


def _write_measured(
    process: Process, directory: RunDirectory, done: Schedule, measured: Timeline
) -> None:
    """Write the measured timeline, without which the result is complete: an error is a warning."""
    try:
        text = dumps(done, process.platform, measured, overlap=process.overlap, origin="measured")
        directory.write(MEASURED, text)
    except BadInput as error:
        process.display.warn(f"the measured timeline is not stored: {error}")


def _perform(
    process: Process,
    model: Differentiable,
    schedule: Schedule,
    *,
    platform: Platform,
    backends: Sequence[Backend],
    predicted: Timeline,
    kept: Kept,
) -> tuple[Timeline, Differentiable]:
    """Perform the schedule with a progress bar, which the model's `on_step` advances.

    Return the measured timeline, and the model with the result. If the run is stopped, its state
    is stored, and Halted is raised.
    """
    stopper, ranks, name = process.stopper, process.ranks, process.name
    backends = levels_for(model, backends)
    levels = _in_background(backends, platform, model) if process.overlap else backends
    live = model

    with _watching(process, schedule, predicted) as (tick, watch):
        live = watched(lambda: model, tick)()

        def fresh() -> Differentiable:
            nonlocal live
            live = watched(process.fresh, tick)()
            return live

        def replan(chain: Chain, rest: Platform, stored: Stored) -> Schedule:
            args = chain, rest, stored, live, kept
            return ranks.once(lambda: next_plan(*args, tapes=process.stores_tapes(stored))[0])

        if stopper is not None:
            stopper.start(seconds_to_stop(schedule, platform))
        try:
            with blamed(f"model {name!r}"):
                return failover(
                    schedule,
                    platform,
                    live,
                    levels,
                    fresh=fresh,
                    replan=replan,
                    say=process.display.warn,
                    overlap=process.overlap,
                    watch=watch,
                    stop=stopper,
                )
        except Stopped as stopped:
            assert stopper is not None
            with blamed(f"model {name!r}, stopped"):
                standing = store_standing(
                    stopped,
                    live,
                    backends,
                    platform,
                    schedule.chain,
                    before=schedule.stored,
                    ranks=ranks,
                )
            raise halted(stopper.why, standing) from None


def _in_background(
    backends: Sequence[Backend], platform: Platform, model: Differentiable | None = None
) -> list[Backend]:
    """Return the levels for transfers that overlap with steps; raises BadInput if they cannot."""
    if getattr(model, "unequal", False):
        raise BadInput(
            "--overlap needs parts of the model of equal size, and those of these ranks differ;"
            " leave it out, or use a number of ranks that divides the model evenly"
        )
    for level in platform.levels:
        if is_shared(level):
            raise BadInput(
                f"level {level.name!r} is one file to which all ranks write collectively, which"
                " cannot overlap with computation; run without --overlap, or use the backend hdf5,"
                " with a file for each rank"
            )
    return list(map(in_background, backends))


def _verify(process: Process, model: Differentiable, ended: Result, steps: int | None) -> Result:
    """Check the gradient by forward runs; return the result with the check.

    Raises RunFailed if J of the run is not that of a forward run.
    """
    total = None if steps is None else (2 * HALVINGS + 3) * steps
    with blamed(f"model {process.name!r}, while its gradient is checked"):
        with process.display.progress("checking the gradient", total) as tick:
            make: Callable[[], Differentiable] = watched(process.fresh, tick)
            ranks = process.ranks.comm.apart()
            check = check_gradient(make, steps, model.gradient, halvings=HALVINGS, comm=ranks)
        own, off = check.functional, abs(ended.functional - check.functional)
        if off > max(_OFF * abs(own), CERTAIN * check.rounding):
            raise RunFailed(
                f"J is {ended.functional:.6g} after the run, but {own:.6g} after a forward run: the"
                " model's `functional` must stay the J of x_n in the reverse sweep, and adjoint"
                " checkpoints must have it; mend the model, and begin a new run in another"
                " directory"
            )
    return replace(ended, check=check, verified=check.verified)


@contextmanager
def _stored_if_not_written(
    process: Process,
    model: Differentiable,
    schedule: Schedule,
    platform: Platform,
    backends: Sequence[Backend],
) -> Iterator[None]:
    """Return a context that stores the adjoint of step 0 on a durable level if the block fails.

    The schedule has discarded its checkpoints, and a process that resumes the run needs only this
    one to write the result.
    """
    ranks = process.ranks
    try:
        yield
    except BaseException as error:
        if ranks.is_alone or isinstance(error, ResultNotWritten):  # which all ranks raise
            with suppress(Exception):  # the error that is being raised is more important
                end = Stopped("the end", action=0, state=None, adjoint=0)
                store_standing(end, model, backends, platform, schedule.chain, ranks=ranks)
        raise


@contextmanager
def _watching(
    process: Process,
    schedule: Schedule,
    predicted: Timeline,
) -> Iterator[tuple[Ticker, Callable[[Event], None] | None]]:
    """Return a context with the ticker of a progress bar, and a function for each event, if any.

    The bar is shown on a terminal and counts the steps of both sweeps. The remaining time is the
    predicted one, corrected by the times that were measured so far. Events are also written to the
    journal, if one was requested. Raises BadInput if the journal cannot be written.
    """
    actions = schedule.actions
    total = int((actions.end - actions.begin)[actions.op <= REVERSE].sum())
    watchers, left = list[Callable[[Event], None]](), None
    if process.display.is_shown:
        watch_remaining, left = by_the_wall(predicted)
        watchers.append(watch_remaining)

    def watch(event: Event) -> None:
        for watcher in watchers:
            watcher(event)

    with ExitStack() as stack:
        if (journal := process.journal()) is not None:
            watchers.append(stack.enter_context(journal))
        tick = stack.enter_context(process.display.progress("running", total, left=left))
        yield tick, watch if watchers else None
