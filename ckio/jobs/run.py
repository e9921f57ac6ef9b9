"""One process of a run: it plans, performs its plan, and writes the result.

An `Attempt` has everything that a process needs: the request, the directory, the model, the planner
and the display. `begin` plans a new run, `resume` the rest of one from the checkpoints that are
stored. Both then call `perform`, which performs the plan, shows its progress, checks the gradient
if this was requested, and writes the gradient and then the result, which names the gradient's file.

Throughout, `wished` is the level and the interval of adjoint checkpoints that a run was begun with,
or that are requested now. A plan may have to use others, for example because the level has failed.
"""

import platform as host
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from importlib.metadata import version
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import xxhash

from ckio import __version__
from ckio.actions import Key, Kind
from ckio.actions.columns import REVERSE
from ckio.actions.variables import Variables
from ckio.adapters.registry import is_shared
from ckio.backends.base import Backend
from ckio.errors import BadInput, RankFailed, RunFailed, Stopped, StorageError, UnsupportedKind
from ckio.jobs import adjoints, history
from ckio.jobs.adjoints import AdjointPolicy, first_plan, next_plan
from ckio.jobs.directory import (
    CONTROL,
    GRADIENT,
    MEASURED,
    RESULT,
    RunDirectory,
    checksum_of,
    with_paths,
)
from ckio.jobs.display import QUIET, Display, Ticker
from ckio.jobs.gradients import (
    controls_of,
    digest,
    packed_control,
    shared_controls,
    space_for,
    write_gradient,
)
from ckio.jobs.journal import Journal
from ckio.jobs.known import Known
from ckio.jobs.levels import LevelsFound, left_by, opened, reopened
from ckio.jobs.memory import Memory, expected_bytes, of_process, space_of
from ckio.jobs.models import RESULTS, check_has, guarded, naming, variables_of, with_ticker
from ckio.jobs.planning import OVERLAPPED, Planning, overlap_figures, policy
from ckio.jobs.remaining import Remaining
from ckio.jobs.request import DAY, Manifest, Request
from ckio.jobs.result import Result, result_of
from ckio.jobs.states import States, adding_to, first_states, write_states
from ckio.jobs.stopping import Halted, Stopper, halted, seconds_to_stop, store_stop_point
from ckio.model import Array, Differentiable, Model, optional
from ckio.model.comm import total
from ckio.model.directional import CERTAIN
from ckio.model.gradient import check_gradient
from ckio.parallel.agreed import in_background
from ckio.parallel.group import ALONE, RankGroup
from ckio.planners.compared import Plan
from ckio.platform import Platform
from ckio.platform.chain import Chain
from ckio.platform.readable import bytes_text, counted, json_line, option
from ckio.runner.failover import Stored, failover
from ckio.runner.finite import Finite
from ckio.runner.reproducible import ReplayCheck, Reproducible
from ckio.runner.space import levels_for
from ckio.schedule import Schedule
from ckio.schedule.policy import AUTO, SYNCHRONOUS, Overlap
from ckio.schedule.text import dumps, header_lines
from ckio.schedule.timeline import EMPTY, Event, Timeline
from ckio.sim.engine import simulate

WITH_TAPES: Final = ("mixed", AUTO, OVERLAPPED)
"""The planners that store tapes."""

_HALVINGS: Final = 5
"""Steps of the Taylor test of `--check-gradient`."""

_OFF: Final = 1e-3
"""By how much J may differ in two runs that round differently, relative to J."""


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One process that begins or resumes a run.

    Attributes
    ----------
    request : Request
        The request; for a resumed run, combined with that of the begun run.
    directory : RunDirectory
        The directory of the run.
    fresh : callable
        Returns a fresh model.
    planning : Planning
        The planner, the chain and the platform. The chain has the variables of the state, if they
        are stored one by one.
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
    code : str or None
        The digest of the code of the model, as of `code_of`; None if it could not be read.
    costs : Known or None
        The stored costs by which the run was planned; None if it was not by such costs.
    """

    request: Request
    directory: RunDirectory
    fresh: Callable[[], Differentiable]
    planning: Planning
    overlap: Overlap = SYNCHRONOUS
    stopper: Stopper | None = None
    display: Display = QUIET
    ranks: RankGroup = ALONE
    plans: list[tuple[Planning, Plan]] = field(default_factory=list)
    replay: ReplayCheck = field(default_factory=ReplayCheck)
    code: str | None = None
    costs: Known | None = None

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

    def model(self) -> Differentiable:
        """Return a fresh model; raises BadInput if it lacks an attribute that the run needs."""
        model = self.fresh()
        needed = (*RESULTS, "control") if self.request.check else RESULTS
        check_has(f"model {self.name!r}", model, needed)
        shared_controls(model, controls_of(model), self.ranks)
        return model

    def planned(self, chain: Chain, platform: Platform, /) -> Plan:
        """Return the plan of the planner, which is made once for the same chain and platform."""
        planning = replace(self.planning, chain=chain, platform=platform)
        for known, planned in self.plans:
            if known == planning:
                return planned
        planned = planning.planned(self.display)
        self.plans.append((planning, planned))
        return planned

    def with_steps(self, steps: int, /) -> "Attempt":
        """Return the same attempt for a number of steps that is known now."""
        planning = self.planning
        return replace(self, planning=replace(planning, chain=planning.chain.with_steps(steps)))

    def rest(
        self,
        chain: Chain,
        platform: Platform,
        stored: Stored,
        model: Differentiable,
        wished: AdjointPolicy,
        /,
    ) -> tuple[Schedule, AdjointPolicy]:
        """Return the plan of the rest from stored checkpoints, and its adjoint checkpoints.

        Tapes are stored if the planner stores them, or if some are stored already.
        """
        args = chain, platform, stored, model, wished
        tapes = (self.planning.planner in WITH_TAPES and self.planning.tapes) or any(
            key.kind is Kind.TAPE for keys in stored for key in keys
        )
        return self.ranks.once(lambda: next_plan(*args, tapes=tapes))

    def judge(self, predicted: float, measured: float, /) -> None:
        """Forget the known costs by which this part of the run was predicted, if they are wrong."""
        if self.costs is not None and not self.ranks.rank:
            self.costs.judge(predicted, measured)

    def journal(self) -> Journal | None:
        """Return the journal, if one was requested; raises BadInput if it cannot be written."""
        to, planning = self.request.journal, self.planning
        if to is None or self.ranks.rank:
            return None
        about = {"model": self.name, "planner": planning.planner, "steps": planning.chain.steps}
        levels = [level.name for level in planning.platform.levels]
        return Journal(to, about, levels=levels, warn=self.display.warn)


def wrapping(request: Request, replay: ReplayCheck, /, *, is_alone: bool) -> Callable[[Any], Any]:
    """Return a function that wraps a model of this run in its checks.

    The check of the declaration (`guarded`) is the inner one, because it changes values of the
    model on purpose during a step.
    """

    def wrap(model: Any, /) -> Any:
        if request.guarded:
            model = guarded(request.model or "", model)
        model = Reproducible(model, replay, is_alone=is_alone)
        advice = f"{option('allow_nan')} continues with such values"
        return model if request.allow_nan else Finite(model, advice=advice)

    return wrap


def has_tapes(chain: Chain, make: Callable[[], Model], /) -> bool:
    """Return whether a model can store tapes. If the chain has tapes of 0 bytes, ask the model."""
    if chain.largest("tape"):
        return True
    try:
        make().layout(Key(Kind.TAPE, 0))
    except UnsupportedKind:
        return False
    return True


@dataclass(frozen=True)
class RunPlan:
    """The schedule that one process performs, on the levels that are left.

    Attributes
    ----------
    schedule : Schedule
        The schedule.
    platform : Platform
        The levels as they are now; a level that has failed has no capacity.
    adjoints : AdjointPolicy
        The level and interval of adjoint checkpoints.
    predicted : Timeline
        The simulated timeline of the schedule.
    is_rest : bool
        Whether the schedule is the rest of a run.
    """

    schedule: Schedule
    platform: Platform
    adjoints: AdjointPolicy
    predicted: Timeline
    is_rest: bool = False


# The beginning


def begin(attempt: Attempt, /) -> Result:
    """Begin a run, and perform it to its end; raises Halted if it is stopped before."""
    display, planning = attempt.display, attempt.planning
    with cleared_if_nothing_is_left(attempt.directory):
        first = first_states(attempt.model())  # before the run's own model needs memory
        model = attempt.model()
        if attempt.request.by_variable:
            known = variables_of(attempt.name, model).cut(planning.chain.length)
            planning = replace(planning, chain=replace(planning.chain, variables=known))
            attempt = replace(attempt, planning=planning)
        schedule, (wished, planned) = attempt.ranks.once(lambda: plan_first(attempt, model))
        overlap = policy(attempt.request.overlap, planned.overlap, "of the plan", display)
        attempt = replace(attempt, overlap=overlap)
        figures: dict[str, Any] = {}
        if planning.planner == AUTO or planning.decides:
            figures = {"note": schedule.note}
        if planning.decides:
            figures |= overlap_figures(planned)
        plan = write_plan(attempt, schedule, attempt.platform, wished)
        manifest = write_manifest(attempt, model, wished, first)
        with new_levels(attempt, manifest) as backends:
            display.tell(planning.not_considered)
            display.tell(figures.get("note", ""))
            mtbf = attempt.request.mtbf
            display.tell(adjoints.cost_of_a_kill(schedule, attempt.platform, wished, mtbf))
            return perform(attempt, model, plan, backends, figures=figures)


def plan_first(
    attempt: Attempt, model: Differentiable, /
) -> tuple[Schedule, tuple[AdjointPolicy, Plan]]:
    """Return the schedule of a new run, its adjoint checkpoints, and the plan without these."""
    request = attempt.request
    return first_plan(
        attempt.chain,
        attempt.platform,
        model,
        attempt.planned,
        every=request.every,
        mtbf=request.mtbf or DAY,
        always=request.walltime is not None,
    )


def write_plan(
    attempt: Attempt, schedule: Schedule, platform: Platform, wished: AdjointPolicy, /
) -> RunPlan:
    """Write the plan of this process and its predicted timeline. Both have the run's platform."""
    own, overlap = attempt.platform, attempt.overlap
    predicted = simulate(schedule, own, overlap=overlap)
    times = dumps(schedule, own, predicted, overlap=overlap, origin="predicted")
    attempt.directory.write_plan(dumps(schedule, own, overlap=overlap), times)
    return RunPlan(schedule, platform, wished, predicted)


def write_manifest(
    attempt: Attempt, model: Differentiable, wished: AdjointPolicy, first: States, /
) -> Manifest:
    """Write the manifest of a run that begins with this fresh model, and the controls if given.

    `first` are the first states of such a model.
    """
    request, planning, ranks = attempt.request, attempt.planning, attempt.ranks
    directory = attempt.directory
    given = None
    if isinstance(request.control, Mapping):  # a file has been read by now
        data = packed_control(request.control, ranks)
        directory.write(CONTROL, data)
        given = checksum_of(data)
    write_states(directory, first, ranks)
    attempt.replay.note = None if ranks.rank else adding_to(directory)
    manifest = Manifest(
        run=directory.id,
        ckio=__version__,
        request=replace(request, planner=planning.planner, overlap=attempt.overlap),
        control=control_digest(optional(model).control, ranks),
        given=given,
        code=attempt.code,
        chain=replace(planning.chain, variables=None),
        variables=variables_digest(planning.chain.variables),
        platform=planning.platform.digest(),
        adjoints=wished.level,
        every=wished.every,
        ranks=ranks.size,
    )
    directory.reserve(space_for(model, ranks))
    directory.begin(manifest)
    return manifest


def new_levels(attempt: Attempt, manifest: Manifest, /) -> AbstractContextManager[list[Backend]]:
    """Open the levels of a new run."""
    return opened(
        attempt.platform.levels,
        manifest.run,
        ranks=attempt.ranks,
        identity=manifest.identity,
    )


@contextmanager
def cleared_if_nothing_is_left(directory: RunDirectory) -> Iterator[None]:
    """Return a context that removes the directory of a new run which fails in the block.

    The directory remains if a durable level has a checkpoint of the run on any rank, if the run was
    stopped, or if an error occurred while the result was written. All ranks raise the same error;
    the first one, which prints it, gets a note about checkpoints of another.
    """
    ranks = directory.ranks
    try:
        with nullcontext() if ranks.is_alone else ranks.together():
            yield
    except (Halted, ResultNotWritten):
        raise
    except BaseException as error:
        if mine := left_by(error):
            error.add_note(f"the plan is in {directory.path}")
        with suppress(RankFailed):  # a rank has ended, and its checkpoints may remain
            every = ranks.comm.gather(mine)
            if not any(every):
                directory.clear()
            elif not mine:
                rank = next(rank for rank, texts in enumerate(every) if texts)
                error.add_note(f"{'; '.join(every[rank])} (rank {rank})")
        raise


def variables_digest(variables: Variables | None) -> str | None:
    """Return the digest of the variables and flows that a model declares; None without them."""
    if variables is None:
        return None
    return xxhash.xxh3_128("".join(header_lines(variables)).encode()).hexdigest()


def control_digest(control: Mapping[str, Array] | None, ranks: RankGroup = ALONE, /) -> str | None:
    """Return the digest of the controls on all ranks; None if a model has no controls."""
    if control is None or ranks.is_alone:
        return None if control is None else digest(control)
    return xxhash.xxh3_128("".join(map(str, ranks.gather(digest(control)))).encode()).hexdigest()


# The rest of a run


def resume(attempt: Attempt, model: Differentiable, manifest: Manifest, /) -> Result:
    """Perform the rest of a run that an earlier process began, and return its result."""
    with levels_left(attempt, manifest) as levels:
        for line in levels.lost:
            attempt.display.warn(line)
        wished = adjoint_policy(attempt, manifest)
        stored = tuple(map(frozenset, levels.survivors))
        plan = plan_rest(attempt, model, wished, levels.platform, stored)
        attempt.display.tell(_survived(plan.schedule, attempt.platform))
        return perform(attempt, model, plan, levels.backends)


def plan_rest(
    attempt: Attempt,
    model: Differentiable,
    wished: AdjointPolicy,
    platform: Platform,
    stored: Stored,
    /,
) -> RunPlan:
    """Plan the rest from the checkpoints stored on each level, and write the plan."""
    display = attempt.display
    with display.progress(f"planning the rest of {attempt.chain.length} steps"):
        schedule, own = attempt.rest(attempt.chain, platform, stored, model, wished)
    plan = write_plan(attempt, schedule, platform, own)
    display.tell(adjoints.cost_of_a_kill(schedule, platform, own))
    return replace(plan, is_rest=True)


def levels_left(attempt: Attempt, manifest: Manifest, /) -> AbstractContextManager[LevelsFound]:
    """Open the levels of a run again, with the checkpoints that are intact on them."""
    return reopened(
        with_paths(attempt.platform, attempt.directory.path, manifest),
        manifest.run,
        ranks=attempt.ranks,
        identity=manifest.identity,
        display=attempt.display,
    )


def adjoint_policy(attempt: Attempt, manifest: Manifest, /) -> AdjointPolicy:
    """Return level and interval of adjoint checkpoints: those of the run, or requested now."""
    request, begun = attempt.request, manifest.request
    every = request.every if request.every != begun.every else None
    if request.mtbf != begun.mtbf and every is None and manifest.adjoints is not None:
        number, mtbf = attempt.platform.number(manifest.adjoints), request.mtbf or DAY
        return adjoints.policy_on(attempt.planning.chain, attempt.platform, number, mtbf=mtbf)
    return AdjointPolicy(manifest.adjoints, every or manifest.every)


def _survived(schedule: Schedule, platform: Platform) -> str:
    """Return a sentence on the checkpoints from which the run resumes, and the steps left."""
    what = "checkpoint" if schedule.chain.variables is None else "array"
    survivors = [
        f"{counted(len(keys), what)} on {level.name}"
        for level, keys in zip(platform.levels, schedule.stored, strict=False)
        if keys
    ]
    return (
        f"resumed from {' and '.join(survivors) or 'the start'};"
        f" {_steps(schedule, schedule.actions.op == REVERSE)} of {schedule.chain.length} steps are"
        " left to reverse"
    )


def _steps(schedule: Schedule, rows: Any) -> int:
    """Return the number of steps of these rows of a schedule."""
    return int((schedule.actions.end - schedule.actions.begin)[rows].sum())


# Performing the plan


def perform(
    attempt: Attempt,
    model: Differentiable,
    plan: RunPlan,
    backends: Sequence[Backend],
    /,
    *,
    before: Timeline = EMPTY,
    figures: Mapping[str, Any] = MappingProxyType({}),
) -> Result:
    """Perform a plan with a fresh model, and write the result while the checkpoints still exist.

    Parameters
    ----------
    attempt, model, plan
        The process, a fresh model, and the plan.
    backends : sequence of Backend
        The open levels.
    before : Timeline
        The forward sweep that was performed before the number of steps was known; usually empty.
    figures : mapping
        Figures of the plan, which are added to those of the result.

    Raises
    ------
    Halted
        If the run was stopped.
    ResultNotWritten
        If the result cannot be written.
    """
    overlap, schedule = bool(attempt.overlap), plan.schedule
    if overlap:
        check_can_overlap(plan.platform, model)
    earlier = history.earlier(attempt.name, overlap=overlap)
    space = space_of(schedule, plan.platform, attempt.overlap)
    expected = expected_bytes(space, attempt.ranks)
    attempt.display.tell(_expected(expected, space.files, attempt.ranks))
    with _watching(attempt, plan) as (tick, watch):
        measured, model = _perform_schedule(attempt, model, plan, backends, tick=tick, watch=watch)
    peak = Memory(expected, max(attempt.ranks.gather(of_process()[1])))
    done = replace(schedule, actions=measured.actions)
    with _stored_if_not_written(attempt, model, replace(plan, schedule=done), backends):
        control = _controls(attempt, model)
        shared = shared_controls(model, control, attempt.ranks)
        ended = result_of(
            attempt.planning.planner,
            model,
            done,
            attempt.platform,
            gradient=_sum_over_ranks(attempt, model, control, shared),
            control=control,
            shared=shared,
            predicted=plan.predicted,
            measured=measured,
            overlap=attempt.overlap,
            before=before,
            memory=peak,
            ranks=attempt.ranks,
        )
        checksum = _write_gradient(attempt, model, ended, shared)
        if attempt.request.check:
            # A model that decides its end may take another number of steps for other controls.
            ended = _verify(attempt, model, ended, None if len(before) else schedule.chain.length)
        entries = {**figures, **ended.figures, "verified": ended.verified, "origin": _origin()}
        entries["gradient_checksum"] = checksum
        if earlier:
            entries["earlier"] = earlier
        try:  # the file of the result marks the run as ended
            attempt.directory.write(RESULT, json_line(entries))
        except BadInput as error:
            raise ResultNotWritten(f"the run ended without an error, but {error}") from None
    _write_measured(attempt, done, measured)
    report = ended.report
    if report is not None and not any(done.stored) and not attempt.ranks.rank:
        made = {"predicted": report.predicted, "measured": report.measured}
        history.add(attempt.name, overlap=overlap, **made)
    if report is not None:
        attempt.judge(report.predicted, report.measured)
    return replace(ended, figures=entries)


def _expected(memory: int, files: int, ranks: RankGroup) -> str:
    """Return the note on what a run needs; empty if its memory is not known.

    >>> _expected(1 << 30, 3 << 30, ALONE)
    'expected: 1 GiB of memory, 3 GiB of files'
    """
    if not memory:
        return ""
    whose = "" if ranks.is_alone else " for each rank"
    of_files = f", {bytes_text(files)} of files" if files else ""
    return f"expected: {bytes_text(memory)} of memory{of_files}{whose}"


class ResultNotWritten(RunFailed):
    """The run has ended without an error, but its result cannot be written. All ranks raise it."""

    shared = True


@contextmanager
def _watching(
    attempt: Attempt, plan: RunPlan, /
) -> Iterator[tuple[Ticker, Callable[[Event], None] | None]]:
    """Return a context with the ticker of a progress bar, and a function for each event, if any.

    The bar is shown on a terminal and counts the steps of both sweeps. The remaining time is the
    predicted one, corrected by the times that were measured so far. Events are also written to the
    journal, if one was requested. Raises BadInput if the journal cannot be written.
    """
    total = _steps(plan.schedule, plan.schedule.actions.op <= REVERSE)
    watchers: list[Callable[[Event], None]] = []
    left: Callable[[], float] | None = None
    if attempt.display.is_shown:
        remaining = Remaining(plan.predicted)
        watchers.append(remaining)
        left = remaining.by_the_wall

    def watch(event: Event) -> None:
        for watcher in watchers:
            watcher(event)

    with ExitStack() as stack:
        if (journal := attempt.journal()) is not None:
            watchers.append(stack.enter_context(journal))
        tick = stack.enter_context(attempt.display.progress("running", total, left=left))
        yield tick, watch if watchers else None


def _perform_schedule(
    attempt: Attempt,
    model: Differentiable,
    plan: RunPlan,
    backends: Sequence[Backend],
    *,
    tick: Ticker,
    watch: Callable[[Event], None] | None,
) -> tuple[Timeline, Differentiable]:
    """Perform the schedule, with a progress bar that the model's `on_step` advances.

    Return the measured timeline, and the model with the result. If the run is stopped, its state
    is stored, and Halted is raised.
    """
    schedule, platform = plan.schedule, plan.platform
    backends = levels_for(model, backends)
    levels = in_the_background(backends, platform, model) if attempt.overlap else backends
    live = with_ticker(lambda: model, tick)()

    def fresh() -> Differentiable:
        nonlocal live
        live = with_ticker(attempt.fresh, tick)()
        return live

    def replan(chain: Chain, rest: Platform, stored: Stored) -> Schedule:
        return attempt.rest(chain, rest, stored, live, plan.adjoints)[0]

    begun = time.monotonic()
    with stoppable(attempt, schedule, platform, backends, model=lambda: live):
        try:
            return failover(
                schedule,
                platform,
                live,
                levels,
                fresh=fresh,
                replan=replan,
                warn=attempt.display.warn,
                overlap=attempt.overlap,
                watch=watch,
                stop=attempt.stopper,
                resumed=plan.is_rest,
            )
        except Stopped as stopped:
            took, action = time.monotonic() - begun, stopped.action
            # A part of this action may be done.
            begin, end = plan.predicted.start[action], plan.predicted.stop[action]
            attempt.judge(float(np.clip(took, begin, end)), took)
            raise


@contextmanager
def stoppable(
    attempt: Attempt,
    schedule: Schedule,
    platform: Platform,
    backends: Sequence[Backend],
    /,
    *,
    model: Callable[[], Model],
) -> Iterator[None]:
    """Return a context for the actions of a run; raises Halted if its block is stopped.

    Then the state and the adjoint of the current model are stored. `schedule` has the checkpoints
    that are stored already.
    """
    stopper = attempt.stopper
    if stopper is not None:
        stopper.start(seconds_to_stop(schedule, platform))
    try:
        with naming(f"model {attempt.name!r}"):
            yield
    except Stopped as stopped:
        assert stopper is not None
        chain = schedule.chain
        if chain.length < stopped.adjoint:  # the number of steps is not known yet
            chain = chain.with_steps(stopped.adjoint)
        with naming(f"model {attempt.name!r}, stopped"):
            args = stopped, model(), backends, platform, chain
            stop_point = store_stop_point(*args, before=schedule.stored, ranks=attempt.ranks)
            attempt.ranks.agree()
        error = halted(stopper.why, stop_point)
        error.shared = True  # all ranks have stopped at the same steps
        raise error from None


def in_the_background(
    backends: Sequence[Backend], platform: Platform, model: Differentiable | None = None, /
) -> list[Backend]:
    """Return the levels for transfers that overlap with steps; raises BadInput if they cannot."""
    check_can_overlap(platform, model)
    return list(map(in_background, backends))


def check_can_overlap(platform: Platform, model: Differentiable | None, /) -> None:
    """Raise BadInput if transfers cannot overlap with the steps of a model on these levels."""
    if optional(model).unequal:
        raise BadInput(
            f"{option('overlap')} needs parts of the model of equal size, and those of these ranks"
            " differ; leave it out, or use a number of ranks that divides the model evenly"
        )
    for level in platform.levels:
        if is_shared(level):
            raise BadInput(
                f"level {level.name!r} is one file to which all ranks write collectively, which"
                f" cannot overlap with computation; run without {option('overlap')}, or use the"
                " backend hdf5, with a file for each rank"
            )


@contextmanager
def _stored_if_not_written(
    attempt: Attempt, model: Differentiable, plan: RunPlan, backends: Sequence[Backend]
) -> Iterator[None]:
    """Return a context that stores the adjoint of step 0 on a durable level if the block fails.

    The schedule has discarded its checkpoints, and a process that resumes the run needs only this
    one to write the result.
    """
    try:
        yield
    except BaseException as error:
        # ResultNotWritten is raised by all ranks together.
        if attempt.ranks.is_alone or isinstance(error, ResultNotWritten):
            end = Stopped("the end", action=0, state=None, adjoint=0)
            args = end, model, backends, plan.platform, plan.schedule.chain
            with suppress(Exception):  # the error that is being raised is more important
                store_stop_point(*args, ranks=attempt.ranks)
        raise


# The result


def _controls(attempt: Attempt, model: Differentiable) -> dict[str, Array]:
    """Return a copy of the controls at which the run was begun.

    A control can be the memory of the state, which the steps have overwritten. Then the controls
    are those of a fresh model.
    """
    manifest = attempt.directory.manifest
    mine = control_digest(optional(model).control, attempt.ranks)
    if manifest is not None and manifest.control not in (None, mine):
        model = attempt.fresh()
    return {name: np.array(array) for name, array in controls_of(model).items()}


def _sum_over_ranks(
    attempt: Attempt,
    model: Differentiable,
    control: Mapping[str, Array],
    shared: Collection[str],
) -> dict[str, Array]:
    """Return the gradient: of shared controls over all ranks, of others the part of this rank."""
    gradient = {name: np.asarray(array) for name, array in model.gradient.items()}
    comm = attempt.ranks.comm
    for name in sorted(shared):
        part = gradient[name]
        gradient[name] = total(model, name, part, comm)
        alike = all(np.array_equal(part, other) for other in comm.gather(part))
        if alike and part.any() and not np.array_equal(part, gradient[name]):
            attempt.display.warn(
                f"each rank had the same gradient of the control {name!r}, and they were added up;"
                " if the adjoint steps add over the ranks already, let each add its own part only"
            )
    for name, array in control.items():
        if name not in gradient or gradient[name].shape != array.shape:
            attempt.display.warn(
                f"the model has no gradient of the control {name!r} in its shape {array.shape};"
                " its `gradient` must have such an array for each control"
            )
    return gradient


def _write_gradient(
    attempt: Attempt, model: Differentiable, ended: Result, shared: Collection[str]
) -> str:
    """Write the gradient; return the checksum of its file."""
    directory, steps = attempt.directory, ended.schedule.chain.length
    about = {"run": directory.id, "model": attempt.name, "steps": steps}
    try:
        return write_gradient(
            directory.path / GRADIENT,
            model,
            ended.functional,
            about,
            attempt.ranks,
            gradient=ended.gradient,
            control=ended.control,
            shared=shared,
        )
    except StorageError as error:
        raise ResultNotWritten(f"the run ended without an error, but {error}") from None


def _verify(attempt: Attempt, model: Differentiable, ended: Result, steps: int | None) -> Result:
    """Check the gradient by forward runs; return the result with the check.

    Raises RunFailed if J of the run is not that of a forward run.
    """
    total = None if steps is None else (2 * _HALVINGS + 3) * steps
    with naming(f"model {attempt.name!r}, while its gradient is checked"):
        with attempt.display.progress("checking the gradient", total) as tick:
            make: Callable[[], Differentiable] = with_ticker(attempt.fresh, tick)
            ranks = attempt.ranks.comm.duplicate()
            check = check_gradient(make, steps, model.gradient, halvings=_HALVINGS, comm=ranks)
        own, off = check.functional, abs(ended.functional - check.functional)
        if off > max(_OFF * abs(own), CERTAIN * check.rounding):
            raise RunFailed(
                f"J is {ended.functional:.6g} after the run, but {own:.6g} after a forward run: the"
                " model's `functional` must stay the J of x_n in the reverse sweep, and adjoint"
                " checkpoints must have it; mend the model, and begin a new run in another"
                " directory"
            )
    return replace(ended, check=check, verified=check.verified)


def _origin() -> dict[str, str]:
    """Return the entry of a result on this host, the time, and versions."""
    return {
        "host": host.node(),
        "when": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        "ckio": version("ckio"),
        "python": host.python_version(),
        "numpy": version("numpy"),
    }


def _write_measured(attempt: Attempt, done: Schedule, measured: Timeline) -> None:
    """Write the measured timeline, without which the result is complete: an error is a warning."""
    try:
        text = dumps(done, attempt.platform, measured, overlap=attempt.overlap, origin="measured")
        attempt.directory.write(MEASURED, text)
    except BadInput as error:
        attempt.display.warn(f"the measured timeline is not stored: {error}")
