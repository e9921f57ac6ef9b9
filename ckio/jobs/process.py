"""One process of a run: what it works with, and how it performs a schedule and writes the result.

A `Process` has the request, the model, the plan and who is told of it. `conclude` performs a
schedule, shows it, checks the gradient where that is asked for, and writes what came of it: the
gradient first, then the result that names it.
"""

import os
import platform as host
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

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
from ckio.jobs.directory import GRADIENT, MEASURED, RESULT, RunDirectory, json_line
from ckio.jobs.display import QUIET, Display, Ticker
from ckio.jobs.gradients import digest, write_gradient
from ckio.jobs.images import ImageTaker, taker_of
from ckio.jobs.journal import Journal
from ckio.jobs.levels import Keep
from ckio.jobs.models import RESULTS, blamed, check_has, watched
from ckio.jobs.planning import OVERLAPPED, Planning
from ckio.jobs.remaining import Remaining
from ckio.jobs.request import Request
from ckio.jobs.result import Result, result_of
from ckio.jobs.stopping import Stopper, halted, seconds_to_stop, store_standing
from ckio.model import Array, Differentiable, Model
from ckio.model.gradient import GradientCheck, check_gradient
from ckio.parallel.agreed import in_background
from ckio.parallel.group import ALONE, RankGroup
from ckio.planners.compared import Planned
from ckio.platform import Platform
from ckio.platform.chain import Chain
from ckio.runner.failover import Stored, failover
from ckio.schedule import Schedule
from ckio.schedule.policy import AUTO, SYNCHRONOUS, Overlap
from ckio.schedule.text import dumps
from ckio.schedule.timeline import EMPTY, Event, Timeline

WITH_TAPES: Final = ("mixed", AUTO, OVERLAPPED)
"""The planners that store tapes."""


@dataclass(frozen=True, kw_only=True)
class Process:
    """One process that works on a run, in which it was begun or resumed.

    Attributes
    ----------
    request : Request
        Of a resumed run, with what it was begun with.
    fresh : callable
        Makes the model anew.
    planning : Planning
        The planner, the chain and the platform.
    variables : Variables or None
        What states are made of, where checkpoints are stored variable by variable.
    overlap : Overlap
        How much I/O overlaps with computation.
    stopper : Stopper or None
        What stops the run so that it can be resumed; None where signals interrupt it.
    display : Display
    ranks : RankGroup
        The ranks that do it; the first one speaks for them.
    plans : list
        What was planned so far for the same job, to be taken again.
    """

    request: Request
    fresh: Callable[[], Differentiable]
    planning: Planning
    variables: Variables | None = None
    overlap: Overlap = SYNCHRONOUS
    stopper: Stopper | None = None
    display: Display = QUIET
    ranks: RankGroup = ALONE
    plans: list[tuple[Planning, Planned]] = field(default_factory=list)

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
        """Return a fresh model, which has what a run needs; raises BadInput."""
        model = self.fresh()
        needed = (*RESULTS, "control") if self.request.check else RESULTS
        check_has(f"model {self.name!r}", model, needed)
        return model

    def planned(self, planning: Planning, /) -> Planned:
        """Plan, or take what was planned before for just this chain and platform."""
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
        """Return the journal that was asked for; raises BadInput where it cannot be written."""
        to, planning = self.request.journal, self.planning
        if to is None or self.ranks.rank:
            return None
        about = {"model": self.name, "planner": planning.planner, "steps": planning.chain.steps}
        levels = [level.name for level in planning.platform.levels]
        return Journal(to, about, levels=levels, warn=self.display.warn)

    def stores_tapes(self, survivors: Iterable[Iterable[Key]], /) -> bool:
        """Whether the rest is planned with tapes, too: as the first plan, or as what survives."""
        return (self.planning.planner in WITH_TAPES and self.planning.tapes) or any(
            key.kind is Kind.TAPE for keys in survivors for key in keys
        )


def has_tapes(chain: Chain, make: Callable[[], Model], /) -> bool:
    """Whether a model can store tapes; one that cannot says that they have no bytes."""
    if chain.largest("tape"):
        return True
    try:
        make().layout(Key(Kind.TAPE, 0))
    except UnsupportedKind:
        return False
    return True


def control_of(model: Differentiable, ranks: RankGroup = ALONE, /) -> str | None:
    """Return the digest of a fresh model's controls, if it has them; of those of all ranks."""
    control = getattr(model, "control", None)
    return None if control is None else digest_of(control, ranks)


def digest_of(control: Mapping[str, Array], ranks: RankGroup = ALONE, /) -> str:
    """Return the digest of controls; of those of all ranks."""
    mine = digest(control)
    if ranks.is_alone:
        return mine
    return xxhash.xxh3_128("".join(map(str, ranks.gather(mine))).encode()).hexdigest()


HALVINGS: Final = 5


class ResultNotWritten(RunFailed):
    """The result of a run that ended well cannot be written."""


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
    """Perform the schedule and write what came of it, while the levels are still there.

    `platform` has the levels as they are now, of which some may be gone; `before` is what the
    process has done already, and `decided` says what is known of its plan, to join the figures.
    Once the result is written, nothing is lost any more. Raises Halted where the run was stopped,
    ResultNotWritten where its result cannot be written.
    """
    load = os.getloadavg()[0]
    interval = history.expected(
        predicted.makespan, process.name, platform, overlap=bool(process.overlap)
    )
    taker = taker_of(model, schedule.chain.length, process.display.warn)
    taker = taker if process.ranks.is_alone else None
    measured, model = _performed(
        process,
        model,
        schedule,
        platform=platform,
        backends=backends,
        predicted=predicted,
        kept=kept,
        taker=taker,
    )
    platform = process.platform
    done = replace(schedule, actions=measured.actions)
    text = dumps(done, platform, measured, overlap=process.overlap, origin="measured")
    _write(directory, MEASURED, text)
    check = None
    if process.request.check:
        with blamed(f"model {process.name!r}, while its gradient is checked"):
            steps = None if len(before) else schedule.chain.length  # each has an end of its own
            check = _checked(process, steps, model.gradient)
    ended = result_of(
        process.planning.planner,
        model,
        done,
        platform,
        predicted=predicted,
        measured=measured,
        check=check,
        overlap=process.overlap,
        before=before,
        ranks=process.ranks,
    )
    if taker is not None:
        taker.take_gradient(model)
        taker.write(directory)
        ended = replace(ended, images=tuple(taker.images), problems=tuple(taker.problems))
    stored = _gradient_of(process, directory, model, ended)
    ended = replace(ended, figures={**decided, **ended.figures, **stored})
    if interval is not None:
        bounds = {"low": interval.low, "high": interval.high, "runs": interval.runs}
        ended = replace(ended, figures={**ended.figures, "interval": bounds})
    if ended.report is not None and not any(schedule.stored):  # all of it, in this process
        run = history.record_of(
            ended.report,
            model=process.name,
            planner=process.planning.planner,
            steps=schedule.chain.length,
            overlap=bool(process.overlap),
            load=load,
        )
        ended = replace(ended, figures={**ended.figures, "record": asdict(run)})
        if not process.ranks.rank:
            history.append(run)
    ended = replace(ended, figures={**ended.figures, "origin": _origin()})
    _write(directory, RESULT, json_line(ended.figures))
    return ended


def _origin() -> dict[str, str]:
    """Return when and where the run ended, and by which versions."""
    return {
        "host": host.node(),
        "when": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        "ckio": version("ckio"),
        "python": host.python_version(),
        "numpy": version("numpy"),
    }


def _gradient_of(
    process: Process, directory: RunDirectory, model: Differentiable, ended: Result
) -> dict[str, Any]:
    """Write the gradient; return where it is, and its checksum."""
    asked = process.request.gradient
    path = Path(asked).absolute() if asked else directory.path / GRADIENT
    steps = ended.schedule.chain.length
    about = {"run": directory.id, "model": process.name, "steps": steps}
    try:
        checksum = write_gradient(path, model, ended.functional, about, process.ranks)
    except StorageError as error:
        raise ResultNotWritten(f"the run ended well, but {error}") from None
    return {"gradient_file": str(path) if asked else GRADIENT, "gradient_checksum": checksum}


def _performed(
    process: Process,
    model: Differentiable,
    schedule: Schedule,
    *,
    platform: Platform,
    backends: Sequence[Backend],
    predicted: Timeline,
    kept: Kept,
    taker: ImageTaker | None,
) -> tuple[Timeline, Differentiable]:
    """Perform the schedule, and show it; the model's own callback moves the bar.

    Returns the model that came to the end, too. Raises Halted where the run was stopped; where it
    stands is then stored.
    """
    stopper, ranks, name = process.stopper, process.ranks, process.name
    levels = _in_background(backends, platform, model) if process.overlap else backends
    live = model

    def look(event: Event) -> None:
        assert taker is not None
        taker.watch(event, live)

    looks = None if taker is None else look
    with _watching(process, schedule, predicted, looks) as (tick, watch):
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
    """Return the levels to which transfers overlap with steps; raises BadInput where none can."""
    if getattr(model, "unequal", False):
        raise BadInput(
            "--overlap is for parts of one size, and those of these ranks differ: leave it out, or"
            " run on a number of ranks that shares the model out evenly"
        )
    for level in platform.levels:
        if is_shared(level):
            raise BadInput(
                f"level {level.name!r} is one file to which all ranks write together: run without"
                " --overlap, or take hdf5, a file per rank"
            )
    return list(map(in_background, backends))


def _checked(process: Process, steps: int | None, gradient: Mapping[str, Any]) -> GradientCheck:
    total = None if steps is None else (HALVINGS + 4) * steps
    with process.display.progress("checking the gradient", total) as tick:
        again: Callable[[], Differentiable] = watched(process.fresh, tick)
        ranks = process.ranks.comm.apart()
        return check_gradient(again, steps, gradient, halvings=HALVINGS, comm=ranks)


def _write(directory: RunDirectory, name: str, text: str) -> None:
    """Write what came of a run; that this fails is no longer anybody's bad input."""
    try:
        directory.write(name, text)
    except BadInput as error:
        raise ResultNotWritten(f"the run ended well, but {error}") from None


@contextmanager
def _watching(
    process: Process,
    schedule: Schedule,
    predicted: Timeline,
    look: Callable[[Event], None] | None,
) -> Iterator[tuple[Ticker, Callable[[Event], None] | None]]:
    """Give the ticker of a bar of all steps, and the function to call with each event, if any.

    The bar, on a terminal, goes forward and back; the time that remains is the predicted one,
    corrected by what was measured so far. Events go to the journal, too, where one was asked for.
    Raises BadInput where that cannot be written.
    """
    actions = schedule.actions
    total = int((actions.end - actions.begin)[actions.op <= REVERSE].sum())
    watchers, left = [] if look is None else [look], None
    if process.display.is_shown:
        watch_remaining, left = _remaining_by_the_wall(predicted)
        watchers.append(watch_remaining)

    def watch(event: Event) -> None:
        for watcher in watchers:
            watcher(event)

    with ExitStack() as stack:
        if (journal := process.journal()) is not None:
            watchers.append(stack.enter_context(journal))
        tick = stack.enter_context(process.display.progress("running", total, left=left))
        yield tick, watch if watchers else None


def _remaining_by_the_wall(
    predicted: Timeline,
) -> tuple[Callable[[Event], None], Callable[[], float]]:
    """Return a function to call with each event, and the seconds that remain by the wall clock."""
    remaining, origin = Remaining(predicted), time.monotonic()

    def watch(event: Event) -> None:
        nonlocal origin
        origin = time.monotonic() - event.stop
        remaining(event)

    return watch, lambda: remaining.seconds(time.monotonic() - origin)
