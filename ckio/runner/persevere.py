"""A level that fails in the middle of a run: the rest is planned anew, from what can still be read.

A failure ends one part of a run and begins the next. What the model holds then, its state and its
adjoint, is dumped into memory; a fresh model reads it from there as it would read any checkpoint,
as if a killed run were resumed in the same process. So the rules of the Machine stay as they are.

It always ends. Each failure gives up a level for good, or makes what is known of one smaller: a
level that was full holds no more than then; what is lost was on a list that only gets shorter.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from traceback import clear_frames
from typing import TypeAlias, TypeVar

import numpy as np

from ckio.actions import Action, Discard, Key, Kind, nbytes_of
from ckio.actions.columns import ACCESSES, KIND_CODE, READ, WRITE, Actions
from ckio.backends.base import Backend
from ckio.errors import BadInput, NoSchedule, StorageError, UnsupportedKind
from ckio.model import Model
from ckio.platform import Platform
from ckio.platform.chain import Chain
from ckio.platform.clock import Clock, WallClock
from ckio.runner.before import is_estimated
from ckio.runner.leaving import within
from ckio.runner.perform import ALONE, Stop, Times, performed
from ckio.runner.remains import Failure, NotReady, Remains, Stored, blamed
from ckio.schedule import Schedule
from ckio.schedule.machine import Machine
from ckio.schedule.policy import Overlap
from ckio.schedule.replay import validate
from ckio.schedule.timeline import Event, Timeline, TimelineRecorder, TransferRecorder

M = TypeVar("M", bound=Model)
Watcher: TypeAlias = Callable[[Event], None]
Replan: TypeAlias = Callable[[Chain, Platform, Stored], Schedule]


def persevere(
    schedule: Schedule,
    platform: Platform,
    model: M,
    backends: Sequence[Backend],
    /,
    *,
    fresh: Callable[[], M],
    replan: Replan,
    say: Callable[[str], None],
    overlap: Overlap = ALONE,
    clock: Clock | None = None,
    watch: Watcher | None = None,
    stop: Stop | None = None,
) -> tuple[Timeline, M]:
    """Perform a schedule as `run` does, and go on when a level fails; the gradient is the same.

    A level that is full keeps what it holds, and gets no more than that from then on. A checkpoint
    that is missing or corrupt is discarded, and the level stays; unless it then loses one that was
    written since, or cannot discard it. After any other StorageError the level is given up: nothing
    is asked of it again, and closing it is left to who opened it.

    Memory has to have room for one restart and one adjoint checkpoint more. Where it has not, they
    are computed again. A second model is made only once the first is let go, if nobody else holds
    it. A tape that was held is recorded again.

    Parameters
    ----------
    schedule, platform, model, backends, overlap, clock
        As `run` takes them; the chain has to have the size of the model's adjoint checkpoints.
    fresh
        Makes a model of the same computation that stands at x_0. After a failure the model that it
        made last is the one that stands where the run does, also if the run then ends by an error.
    replan
        Plans the rest from what is stored on each level. The platform is as large as the old one
        and one level more, in memory, which gives what it holds and takes nothing; a level that was
        given up has capacity 0. It raises BadInput where it finds no way, and is asked again with
        less: without what is stored on the levels but for adjoints, then without anything.
    say
        Told once of each failure, when it is known how the run goes on.
    watch
        Called with each event; what it raises ends the run as it is.
    stop
        As `run` takes it, but not asked before the adjoint that is carried is the model's again.

    Returns
    -------
    The timeline of all parts, one after the other and from one origin: what failed, the planning
    and what is read from memory again have no events, but their time passes between those of the
    others. And the model that came to the end.

    Raises
    ------
    BadInput, IllegalAction, RunFailed, Stopped
        As `run` does; so it is BadInput where a level has no room for the plan at the start.
    StorageError
        There is no way to go on; the first failure is the `__cause__`. What lies on durable levels
        is intact, and the run can be resumed from it.
    """
    _check_adjoint(schedule.chain, model)
    remains = Remains(schedule.chain, platform, backends)
    parts = _Parts(overlap, clock or WallClock(), watch, stop, carried=len(platform.levels))
    first: StorageError | None = None
    try:
        failure = parts.perform(schedule, platform, model, blamed(backends))
        while failure is not None:
            _let_go(failure.error)
            first = first or failure.error
            remains.note(failure)
            remains.carry(model, failure.machine)
            stored = remains.stored(failure.machine)
            try:
                schedule = _planned(replan, schedule.chain, remains.platform, stored)
            except BadInput as none:
                raise remains.hopeless(none, failure) from first
            remains.tell(say)
            del model  # before another is made
            model = fresh()
            failure = parts.perform(schedule, remains.platform, model, remains.backends)
    finally:
        remains.close()
    return parts.timeline(), model


def _check_adjoint(chain: Chain, model: Model) -> None:
    """The adjoint is stored when a level fails, whether that was planned or not."""
    key = Key(Kind.ADJOINT, chain.length)
    with suppress(UnsupportedKind):  # then it is computed again
        planned, real = chain.nbytes(key), nbytes_of(model.layout(key))
        if planned != real and not is_estimated(model):
            raise BadInput(
                f"the chain has {planned} bytes for an adjoint checkpoint; the model's has {real}:"
                " plan with the model's sizes"
            )


def _let_go(error: BaseException | None) -> None:
    """Let an error that is kept not hold on to the model and its arrays."""
    while error is not None:
        clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__


def _planned(replan: Replan, chain: Chain, platform: Platform, stored: Stored) -> Schedule:
    """The plan of the rest, from as much of what is stored as there is a plan from.

    What is left out of it is discarded first of all, and not before such a plan is found. Raises
    the BadInput that says why there is none from all that is stored, where there is none at all.
    """
    reason: BadInput | None = None
    for kept in _ever_less(stored):
        try:
            plan = _fitting(replan, chain, platform, kept)
        except BadInput as none:
            reason = reason or none
            continue
        return replace(plan, actions=_dropped(stored, kept) + plan.actions, stored=stored)
    assert reason is not None
    raise reason


def _ever_less(stored: Stored) -> Iterator[Stored]:
    """What is stored; only adjoints and what is carried; only adjoints; nothing."""
    adjoints = tuple(frozenset(key for key in keys if key.kind is Kind.ADJOINT) for keys in stored)
    yield from dict.fromkeys(
        (stored, (*adjoints[:-1], stored[-1]), adjoints, tuple(frozenset[Key]() for _ in stored))
    )


def _dropped(stored: Stored, kept: Stored) -> Actions:
    """The Discards of what is stored and not kept."""
    return Actions.of(
        Discard(key, number)
        for number, (keys, others) in enumerate(zip(stored, kept, strict=True))
        for key in sorted(keys - others, key=str)
    )


def _fitting(replan: Replan, chain: Chain, platform: Platform, stored: Stored) -> Schedule:
    """A plan that writes nothing where things are carried, which has room for those alone."""
    *levels, carried = platform.levels
    parts = 1 if chain.variables is None else len(chain.variables.stored)
    carried = replace(carried, capacity=len(stored[-1]) * max(1, parts))
    plan = replan(chain, replace(platform, levels=(*levels, carried)), stored)
    actions = plan.actions
    if ((actions.op == WRITE) & (actions.level == len(levels))).any():
        raise NoSchedule("what is left needs a level with room for another checkpoint")
    return plan


class _Parts:
    """The parts of a run, and their common timeline."""

    def __init__(
        self,
        overlap: Overlap,
        clock: Clock,
        watch: Watcher | None,
        stop: Stop | None,
        /,
        *,
        carried: int,
    ) -> None:
        self._overlap, self._clock, self._watch, self._stop = overlap, clock, watch, stop
        self._carried = carried
        self._recorder, self._actions = TimelineRecorder(), Actions.of(())
        self._transfers, self._behind = TransferRecorder(), list[Timeline]()
        self._origin: float | None = None
        self._done, self._begun = 0, 0.0

    def perform(
        self, schedule: Schedule, platform: Platform, model: Model, backends: Sequence[Backend]
    ) -> Failure | None:
        """Perform a schedule to its end, for which None is returned, or to the failure of a level.

        Raises what `run` raises.
        """
        self._done, clock, actions = 0, self._clock, schedule.actions
        self._transfers = TransferRecorder()
        stop = self._patient(actions)
        try:
            times = performed(
                schedule,
                platform,
                model,
                backends,
                overlap=self._overlap,
                moved=self._moved,
                clock=clock,
                stop=stop,
            )
        except NotReady as failed:
            return Failure(failed.error, failed.level, None, _machine(schedule, platform, 0))
        except StorageError as early:
            if early.level is None:
                raise
            return Failure(early, early.level, None, _machine(schedule, platform, 0))
        del model  # an error that is kept keeps this frame
        now = clock.now()
        self._origin = now if self._origin is None else self._origin
        self._begun = now - self._origin
        with within(times):
            error = self._collect(times, actions, self._begun)
        self._actions += actions[: self._done]
        self._behind.extend(filter(None, [self._transfers.timeline(actions)]))
        if error is None or error.level is None:
            return None
        machine = _machine(schedule, platform, self._done)
        number = self._done if error.action is None else error.action
        return Failure(error, error.level, actions[number], machine)

    def _collect(
        self, times: Iterator[Times], actions: Actions, begun: float
    ) -> StorageError | None:
        """Note and show the events of a part that began so many seconds after the first."""
        each = iter(actions)
        while True:
            try:
                one = next(times, None)
            except StorageError as error:
                if error.level is None or error.level == self._carried:
                    raise
                return error
            if one is None:
                return None
            event = begun + one[0], begun + one[1], one[2]
            self._recorder.add(*event)
            self._done += 1
            if self._watch is not None and self._is_told(action := next(each)):
                self._watch(Event(action, *event))

    def _moved(self, row: int, start: float, stop: float, nbytes: int) -> None:
        """Note a transfer of the part that is being performed."""
        self._transfers.add(row, self._begun + start, self._begun + stop, nbytes)

    def _is_told(self, action: Action) -> bool:
        return not isinstance(action, ACCESSES) or action.level != self._carried

    def _patient(self, actions: Actions) -> Stop | None:
        """`stop`, but not asked before an adjoint that is read in the beginning has been read."""
        stop = self._stop
        if stop is None:
            return None
        adjoint = np.flatnonzero((actions.op == READ) & (actions.kind == KIND_CODE[Kind.ADJOINT]))
        last = int(adjoint.max(initial=-1))
        return _Patient(stop, lambda: self._done > last)

    def timeline(self) -> Timeline:
        """All that was done, without what was only carried."""
        behind = self._told(_joined(self._behind)) if self._behind else None
        return self._told(self._recorder.timeline(self._actions), behind)

    def _told(self, timeline: Timeline, behind: Timeline | None = None) -> Timeline:
        actions = timeline.actions
        told = (actions.op < WRITE) | (actions.level != self._carried)
        start, stop, nbytes = (
            column[told] for column in (timeline.start, timeline.stop, timeline.nbytes)
        )
        return Timeline(actions.take(told), start, stop, nbytes, behind)


class _Patient:
    """`stop`, asked only where it may be."""

    def __init__(self, stop: Stop, may: Callable[[], bool]) -> None:
        self._stop, self._may = stop, may
        for name in ("clock", "tell"):
            if hasattr(stop, name):
                setattr(self, name, getattr(stop, name))

    def __call__(self) -> bool:
        return self._may() and self._stop()


def _joined(timelines: Sequence[Timeline]) -> Timeline:
    """Timelines of one origin, one after the other."""
    actions = Actions.of([])
    for timeline in timelines:
        actions += timeline.actions
    return Timeline(
        actions,
        np.concatenate([timeline.start for timeline in timelines]),
        np.concatenate([timeline.stop for timeline in timelines]),
        np.concatenate([timeline.nbytes for timeline in timelines]),
    )


def _machine(schedule: Schedule, platform: Platform, done: int) -> Machine:
    """The machine after so many actions of a schedule."""
    return validate(replace(schedule, actions=schedule.actions[:done]), platform)
