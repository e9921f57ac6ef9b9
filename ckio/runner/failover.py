"""A level that fails in the middle of a run: the rest is planned anew, from what can still be read.

A failure ends one part of a run and begins the next. A run of known length carries what the model
holds then, its state and its adjoint, in memory; a fresh model reads it from there as it would read
any checkpoint, as if a killed run were resumed in the same process. So the rules of the Machine
stay as they are. A run that does not know its end asks its rule again, and the model continues from
where it stands, or from the restart data that has come furthest.

It always ends. Each failure gives up a level for good, or makes what is known of one smaller: a
level that was full holds no more than then; what is lost was on a list that only gets shorter.
"""

from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from traceback import clear_frames
from typing import Final, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

import numpy as np

from ckio.actions import Action, Discard, Key, Kind, Layout, Read, Write, nbytes_of
from ckio.actions.columns import ACCESSES, KIND_CODE, READ, WRITE, Actions
from ckio.backends.base import Backend, Keeping
from ckio.backends.ram import Ram
from ckio.errors import (
    BadInput,
    CorruptCheckpoint,
    LevelFull,
    MissingCheckpoint,
    NoSchedule,
    StorageError,
    UnsupportedKind,
)
from ckio.model import Model
from ckio.platform import Level, Platform
from ckio.platform.chain import Chain
from ckio.platform.clock import Clock, WallClock
from ckio.runner.perform import (
    ALONE,
    Stop,
    Times,
    is_estimated,
    performed,
    within,
)
from ckio.runner.perform import reserve as reserve_plan
from ckio.runner.unknown import Rule, RuleRun, check_fit, reserve
from ckio.schedule import Schedule
from ckio.schedule.machine import Machine
from ckio.schedule.policy import Overlap
from ckio.schedule.replay import validate
from ckio.schedule.timeline import Event, Timeline, TimelineRecorder, TransferRecorder

M = TypeVar("M", bound=Model)

Stored: TypeAlias = tuple[frozenset[Key], ...]
"""The keys on each level."""

Say: TypeAlias = Callable[[str], None]
Watcher: TypeAlias = Callable[[Event], None]

Replan: TypeAlias = Callable[[Chain, Platform, Stored], Schedule]
"""Plans the rest of a chain from what is stored on each level."""

Rules: TypeAlias = Callable[[Platform, Sequence[Collection[Key]]], Rule]
"""The rule for a platform on which that is stored; raises BadInput where none is of use."""

_NAMED: Final = 6
"""How many failures an error lists."""


def failover(
    schedule: Schedule,
    platform: Platform,
    model: M,
    backends: Sequence[Backend],
    /,
    *,
    fresh: Callable[[], M],
    replan: Replan,
    say: Say,
    overlap: Overlap = ALONE,
    clock: Clock | None = None,
    watch: Watcher | None = None,
    stop: Stop | None = None,
) -> tuple[Timeline, M]:
    """Perform a schedule as `run` does, and continue when a level fails, to the same gradient.

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
        and one level more, in memory, which gives what it holds and is `read_only`; a level that
        was given up has capacity 0. It raises BadInput where it finds no way, and is asked again
        with less: without what is stored on the levels but for adjoints, then without anything.
    say
        Called once for each failure, when it is known how the run continues.
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
        There is no way to continue; the first failure is the `__cause__`. What lies on durable
        levels is intact, and the run can be resumed from it.
    """
    chain = schedule.chain
    _check_adjoint(chain, model)
    left, carried = LevelsLeft(chain, platform, backends), CarriedMemory(chain, platform)
    parts = RunParts(overlap, clock, watch, stop, carried=len(platform.levels))

    def again(before: PlannedPart[M], failure: Failure) -> PlannedPart[M]:
        assert before.model is not None
        left.facts += carried.carry(before.model, failure.machine)
        stored = *left.stored(failure.machine), carried.keys
        levels = replace(left.platform, levels=(*left.platform.levels, carried.level))
        plan = _planned(replan, chain, levels, stored)
        before.model = None  # before another is made
        return PlannedPart(plan, levels, [*left.backends, carried.backend], fresh)

    first = PlannedPart(schedule, platform, _at_first(backends), fresh, model)
    del model
    try:
        last = parts.last(first, left, again, say)
    finally:
        carried.close()
    assert last.model is not None
    return parts.timeline(), last.model


class Forward(NamedTuple):
    """The result of the way forward.

    Attributes
    ----------
    steps : int
        Where the model is finished.
    timeline : Timeline
        What was done; what failed has no event, but its time passes between those of the others.
        Steps that were done again are in it again.
    platform : Platform
        The levels as they are left: one that was given up has no capacity, and one that is full no
        more than what it holds.
    backends : list of Backend
        One for each of them; one that is full is not asked to make room any more.
    """

    steps: int
    timeline: Timeline
    platform: Platform
    backends: list[Backend]


def run_forward(
    rules: Rules,
    platform: Platform,
    model: Model,
    backends: Sequence[Backend],
    /,
    *,
    say: Say,
    stored: Sequence[Collection[Key]] = (),
    clock: Clock | None = None,
    watch: Watcher | None = None,
    stop: Stop | None = None,
) -> Forward:
    """Run a model forward until it is finished, and continue when a level fails.

    The rest can then be planned from what is stored, for a fresh model of a chain of so many steps,
    as the rest of a run that was killed is. So x_0 need not be stored.

    What becomes of a level that fails is what `failover` says: one that is full keeps what it
    holds, what is lost is discarded, and any other error gives a level up.

    Parameters
    ----------
    rules
        Makes the rule for this platform, and after a failure for what is left of it. It may set
        room for other things aside, but not that of what is stored.
    platform, model, backends, clock, watch
        As `run_to_end` takes them, but for what is stored.
    say
        Called once for each failure, when it is known how the run continues.
    stored
        What lies on each level of a run that is resumed. The restart data that has come furthest is
        read first.
    stop
        Asked at every action, and about every half second; `Stopped` is raised once it says yes.

    Raises
    ------
    Stopped
        `stop` said yes; the model stands at x_state, and `adjoint` is beyond the end.
    StorageError
        No level is left that holds a checkpoint; the first failure is the `__cause__`. What lies on
        durable levels is intact, and the run can be resumed from it.
    IllegalAction, BadInput, RunFailed
        As `run_to_end` does.
    """
    rule = rules(platform, stored)
    check_fit(rule, model, backends, stored)
    left = LevelsLeft(rule.chain, platform, backends)
    parts = RunParts(ALONE, clock, watch, stop)

    def again(before: RulePart, failure: Failure) -> RulePart:
        there = left.stored(failure.machine)
        rule, state = rules(left.platform, there), failure.machine.state
        _ = rule.levels  # raises where none is of use
        count = before.count + before.done
        return RulePart(rule, model, left.backends, stored=there, state=state, count=count)

    first = RulePart(rule, model, _at_first(backends), stored=stored)
    last = parts.last(first, left, again, say)
    assert last.run.end is not None
    return Forward(last.run.end, parts.timeline(), left.platform, left.for_others())


def ready_for_the_way_back(
    plan: Callable[[Platform, Stored], Schedule], chain: Chain, done: Forward, /, *, say: Say
) -> tuple[Schedule, Forward]:
    """Return the plan of the way back, for which there is room, and the levels as they are by then.

    A level that cannot say what it holds, or make room, has failed as on the way forward: the plan
    is made again without it, or from what it holds. Raises StorageError where there is none then,
    and what `plan` raises where nothing failed.
    """
    machine = Machine(chain, done.platform, [_listed(backend) for backend in done.backends])
    left = LevelsLeft(chain, done.platform, done.backends)

    def reserved(*_: object) -> ReservedPart:
        stored = left.stored(machine)
        schedule = plan(left.platform, stored)
        return ReservedPart(schedule, left.platform, left.backends, machine)

    last = RunParts(ALONE, None, None, None).last(reserved(), left, reserved, say)
    left.tell(say)
    return last.schedule, done._replace(platform=left.platform, backends=left.for_others())


def _listed(backend: Backend) -> Collection[Key]:
    """Return the keys on a level; none where it cannot say."""
    with suppress(StorageError):
        return set(backend.keys())
    return ()


def _check_adjoint(chain: Chain, model: Model) -> None:
    """Check the adjoint, which is stored when a level fails, whether that was planned or not."""
    key = Key(Kind.ADJOINT, chain.length)
    with suppress(UnsupportedKind):  # then it is computed again
        planned, real = chain.nbytes(key), nbytes_of(model.layout(key))
        if planned != real and not is_estimated(model):
            raise BadInput(
                f"the chain has {planned} bytes for an adjoint checkpoint; the model's has {real}:"
                " plan with the model's sizes"
            )


# The plan of the rest


def _planned(replan: Replan, chain: Chain, platform: Platform, stored: Stored) -> Schedule:
    """Return the plan of the rest, from as much of what is stored as there is a plan from.

    What is left out of it is discarded first of all, and not before such a plan is found. Raises
    the BadInput that says why there is none from all that is stored, where there is none at all.
    """
    reason: BadInput | None = None
    for some in _ever_less(stored):
        try:
            plan = replan(chain, platform, some)
            writes = plan.actions.level[plan.actions.op == WRITE]
            if any(platform.levels[number].read_only for number in np.unique(writes)):
                raise NoSchedule("what is left needs a level with room for another checkpoint")
        except BadInput as none:
            reason = reason or none
            continue
        return replace(plan, actions=_discards(stored, some) + plan.actions, stored=stored)
    assert reason is not None
    raise reason


def _ever_less(stored: Stored) -> Iterator[Stored]:
    """Yield what is stored; only adjoints and what is carried; only adjoints; nothing."""
    adjoints = tuple(frozenset(key for key in keys if key.kind is Kind.ADJOINT) for keys in stored)
    yield from dict.fromkeys(
        (stored, (*adjoints[:-1], stored[-1]), adjoints, tuple(frozenset[Key]() for _ in stored))
    )


def _discards(stored: Stored, some: Stored) -> Actions:
    """Return the Discards of what is stored and not among `some` of it."""
    return Actions.of(
        Discard(key, number)
        for number, (keys, others) in enumerate(zip(stored, some, strict=True))
        for key in sorted(keys - others, key=str)
    )


# What is left of the levels


class Failure(NamedTuple):
    """The end of a part of a run.

    Attributes
    ----------
    error : StorageError
    level : int
        The number of the level that failed.
    action : Action or None
        What failed; None where the level could not be made ready for a plan.
    machine : Machine
        Where the model stands, and what should be stored.
    """

    error: StorageError
    level: int
    action: Action | None
    machine: Machine


class LevelsLeft:
    """The levels of a run, as far as something can still be asked of them.

    It always gets less: a failure gives up a level, or takes room that it is known not to have, or
    a key from those that it held when it lost one for the first time. So a run ends, whatever
    fails.

    Attributes
    ----------
    facts : list of str
        What has become of the levels, in words.
    """

    def __init__(self, chain: Chain, platform: Platform, backends: Sequence[Backend]) -> None:
        self.facts = list[str]()
        self._chain, self._platform = chain, platform
        self._levels, self._backends = list(platform.levels), list(backends)
        self._full = set[int]()
        self._doubted: dict[int, frozenset[Key]] = {}
        self._said = 0

    @property
    def platform(self) -> Platform:
        """The levels, as large as they still are."""
        return replace(self._platform, levels=tuple(self._levels))

    @property
    def backends(self) -> list[Backend]:
        """One for each of them; those that are full make no more room for a plan."""
        return [
            FailoverLevel(backend, number, is_full=number in self._full)
            for number, backend in enumerate(self._backends)
        ]

    def for_others(self) -> list[Backend]:
        """Return the levels for who continues: as they were, or full, or empty memory."""
        backends = list(self._backends)
        for number in self._full:
            full = FailoverLevel(backends[number], is_full=True)
            backends[number] = full if self._levels[number].capacity else Ram(capacity=0)
        return backends

    def note(self, failure: Failure, /) -> None:
        """Hold against a level what it did."""
        error, number, action, machine = failure
        match error, action:
            case LevelFull(), Write() | None:
                self._shrink(number, error, machine.stored[number])
            case CorruptCheckpoint() | MissingCheckpoint(), Read(key, _) | Discard(key, _):
                self._lose(number, error, key)
            case _:
                self._give_up(number, error)

    def stored(self, machine: Machine, /) -> Stored:
        """Return what is really stored of what should be, on each level, and discard the others.

        With overlap a discard that the program has done may not have reached its level.
        """
        levels = range(len(self._levels))
        listed = [self._listed(number) for number in levels]
        for number in levels:
            for key in sorted(listed[number].difference(machine.stored[number]), key=str):
                with suppress(StorageError):  # in the same order on all ranks of a job
                    self._backends[number].discard(key)
        return tuple(listed[number].intersection(machine.stored[number]) for number in levels)

    def tell(self, say: Say, /) -> None:
        """Say what is not said yet."""
        for fact in self.facts[self._said :]:
            say(f"{fact}; the rest of the run is planned anew")
        self._said = len(self.facts)

    def hopeless(self, reason: BadInput, failure: Failure, /) -> StorageError:
        """Return the error that ends the run."""
        facts = self.facts[:_NAMED] + ["..."] * (len(self.facts) > _NAMED)
        error = StorageError(
            f"{'; '.join(facts)}; and there is no way to go on: {reason}. What lies on durable"
            " levels is intact: resume the run when they are there again, or have room"
        )
        error.action, error.level = failure.error.action, failure.level
        return error

    def _shrink(self, number: int, error: StorageError, stored: Collection[Key]) -> None:
        level = self._levels[number]
        keys = self._listed(number).intersection(stored)
        nbytes = sum(level.stored(self._chain.nbytes(key)) for key in keys)
        if number in self._full and level.capacity is not None and nbytes >= level.capacity:
            self._give_up(number, error)
            return
        if number not in self._full:
            self.facts.append(f"level {level.name!r} is full, and gets no more room: {error}")
        self._full.add(number)
        self._levels[number] = replace(level, capacity=nbytes)

    def _lose(self, number: int, error: StorageError, key: Key) -> None:
        """Discard what cannot be read; the second time, only what was there the first time."""
        with suppress(StorageError):
            self._backends[number].discard(key)
        listed = self._listed(number)
        doubted = self._doubted.get(number)
        if key in listed or (doubted is not None and key not in doubted):
            self._give_up(number, error)
            return
        self._doubted[number] = listed if doubted is None else doubted & listed
        self.facts.append(f"{key} on level {self._levels[number].name!r} is lost: {error}")

    def _give_up(self, number: int, error: StorageError) -> None:
        level = self._levels[number]
        self.facts.append(f"level {level.name!r} fails, and is given up: {error}")
        self._full.add(number)
        self._levels[number], self._backends[number] = replace(level, capacity=0), Ram(capacity=0)

    def _listed(self, number: int) -> frozenset[Key]:
        try:
            return frozenset(self._backends[number].keys())
        except StorageError as error:
            self._give_up(number, error)
            return frozenset()


class CarriedMemory:
    """The memory in which the state and the adjoint of a model come to the next one.

    Attributes
    ----------
    level : Level
        That memory to a planner: it is `read_only`.
    """

    def __init__(self, chain: Chain, platform: Platform) -> None:
        names, name = {level.name for level in platform.levels}, "carried"
        while name in names:
            name += "_"
        self.level = Level(name=name, read_only=True)
        self._chain, self._memory = chain, Ram()
        self.backend: Backend = FailoverLevel(self._memory, len(names), is_full=True)
        self.close = self._memory.close

    @property
    def keys(self) -> frozenset[Key]:
        return frozenset(self._memory.keys())

    def carry(self, model: Model, machine: Machine, /) -> list[str]:
        """Dump what a fresh model does not have, where it is of use: x_i only below the adjoint.

        Returns what could not be dumped, in words.
        """
        end, facts = self._chain.length, list[str]()
        moved = machine.turned or machine.adjoint < end
        if moved and machine.adjoint < self._adjoint(end + 1):
            facts += self._dump(model, Key(Kind.ADJOINT, machine.adjoint))
        if machine.state is not None and 0 < machine.state < self._adjoint(end):
            facts += self._dump(model, Key(Kind.RESTART, machine.state))
        return facts

    def _adjoint(self, default: int) -> int:
        """Return the step of the adjoint that is carried."""
        return min((key.step for key in self.keys if key.kind is Kind.ADJOINT), default=default)

    def _dump(self, model: Model, key: Key) -> Iterator[str]:
        """Dump a checkpoint in place of another of this kind."""
        parts, stored = self._chain.parts(key), self.keys
        for other in stored:
            if other.kind is key.kind and other not in parts:
                self._memory.discard(other)
        try:
            for part in parts:
                if part not in stored:
                    self._memory.write(part, model.layout(part), model.dump(part))
        except StorageError as error:
            yield f"{key} cannot be carried, and is computed again: {error}"


class NotReady(Exception):
    """A level, of this number, failed before the first action of a part."""

    def __init__(self, error: StorageError, level: int) -> None:
        super().__init__(error, level)
        self.error, self.level = error, level


def _at_first(backends: Sequence[Backend], /) -> list[Backend]:
    """Return the levels of a run that begins: that one has no room for the plan is bad input."""
    return [FailoverLevel(backend, number, is_new=True) for number, backend in enumerate(backends)]


class FailoverLevel:
    """A level that raises NotReady where it cannot be made ready.

    One that is full is not made ready: what a plan stores there takes the place of what is there.
    One that is new raises LevelFull as it is.
    """

    def __init__(
        self,
        backend: Backend,
        number: int | None = None,
        *,
        is_full: bool = False,
        is_new: bool = False,
    ) -> None:
        self.durable, self.lossless = backend.durable, getattr(backend, "lossless", True)
        self.write, self.layout, self.read = backend.write, backend.layout, backend.read
        self.discard, self.close = backend.discard, backend.close
        self._backend, self._number = backend, number
        self._is_full, self._is_new = is_full, is_new
        if isinstance(backend, Keeping):
            self.slot, self.keep, self.kept = backend.slot, backend.keep, backend.kept

    def reserve(self, sizes: Mapping[int, int], /) -> None:
        if not self._is_full:
            with self._numbered():
                self._backend.reserve(sizes)

    def prepare(self, key: Key, layout: Layout, count: int, /) -> None:
        """Let the level prepare slots, if it can and is not full."""
        prepare = getattr(self._backend, "prepare", None)
        if prepare is not None and not self._is_full:
            # Of the kinds together there may be more than fits: they peak at different times.
            with self._numbered(), suppress(LevelFull):
                prepare(key, layout, count)

    def keys(self) -> Iterable[Key]:
        with self._numbered():
            return self._backend.keys()

    @contextmanager
    def _numbered(self) -> Generator[None]:
        try:
            yield
        except StorageError as error:
            if self._number is None or (self._is_new and isinstance(error, LevelFull)):
                raise
            raise NotReady(error, self._number) from error


# The parts of a run


class RunPart(Protocol):
    """A part of a run: to its end, or to the failure of a level.

    Attributes
    ----------
    done : int
        How many of its actions are done.
    """

    done: int

    def begin(self, parts: "RunParts", /) -> Generator[Times]:
        """Make everything ready; returns what performs the part, and gives the times of actions."""

    def actions(self) -> Iterator[Action]:
        """Return the actions whose times are given."""

    def columns(self) -> Actions:
        """Return all of these, of which the first are done."""

    def failed(self, error: StorageError) -> tuple[Action | None, Machine]:
        """Return the action that failed, None for none yet, and where the model stands."""


P = TypeVar("P", bound=RunPart)


class RunParts:
    """The parts of a run, and their common timeline.

    Attributes
    ----------
    overlap, clock, stop
        As `failover` takes them.
    """

    def __init__(
        self,
        overlap: Overlap,
        clock: Clock | None,
        watch: Watcher | None,
        stop: Stop | None,
        /,
        *,
        carried: int = -1,
    ) -> None:
        self.overlap, self.clock, self.stop = overlap, clock or WallClock(), stop
        self._watch, self._carried = watch, carried
        self._recorder, self._actions = TimelineRecorder(), Actions.of(())
        self._transfers, self._concurrent = TransferRecorder(), list[Timeline]()
        self._origin: float | None = None
        self._begun = 0.0

    def last(self, part: P, left: LevelsLeft, again: Callable[[P, Failure], P], say: Say, /) -> P:
        """Perform a part, and after each failure the one that is planned `again`; return the last.

        Raises what `run` raises, and StorageError where there is no plan of the rest.
        """
        first: StorageError | None = None
        while (failure := self._perform(part)) is not None:
            _let_go(failure.error)
            first = first or failure.error
            left.note(failure)
            try:
                part = again(part, failure)
            except BadInput as none:
                raise left.hopeless(none, failure) from first
            left.tell(say)
        return part

    def moved(self, row: int, start: float, stop: float, nbytes: int) -> None:
        """Note a transfer of the part that is being performed."""
        self._transfers.add(row, self._begun + start, self._begun + stop, nbytes)

    def timeline(self) -> Timeline:
        """Return all that was done, without what was only carried."""
        concurrent = self._without_carried(_joined(self._concurrent)) if self._concurrent else None
        return self._without_carried(self._recorder.timeline(self._actions), concurrent)

    def _perform(self, part: RunPart) -> Failure | None:
        """Perform a part to its end, for which None is returned, or to the failure of a level."""
        self._transfers = TransferRecorder()
        try:
            times = part.begin(self)
        except NotReady as failed:
            return Failure(failed.error, failed.level, *part.failed(failed.error))
        except StorageError as early:
            if early.level is None:
                raise
            return Failure(early, early.level, *part.failed(early))
        now = self.clock.now()
        self._origin = now if self._origin is None else self._origin
        self._begun = now - self._origin
        with within(times):
            error = self._collect(times, part)
        actions = part.columns()
        self._actions += actions[: part.done]
        self._concurrent.extend(filter(None, [self._transfers.timeline(actions)]))
        if error is None or error.level is None:
            return None
        return Failure(error, error.level, *part.failed(error))

    def _collect(self, times: Iterator[Times], part: RunPart) -> StorageError | None:
        """Note and show the events of a part; returns the error of a level that failed."""
        actions, begun = part.actions(), self._begun
        while True:
            try:
                each = next(times, None)
            except StorageError as error:
                if error.level is None or error.level == self._carried:
                    raise
                return error
            if each is None:
                return None
            event = begun + each[0], begun + each[1], each[2]
            self._recorder.add(*event)
            part.done += 1
            if self._watch is not None and self._is_shown(action := next(actions)):
                self._watch(Event(action, *event))

    def _is_shown(self, action: Action) -> bool:
        return not isinstance(action, ACCESSES) or action.level != self._carried

    def _without_carried(self, timeline: Timeline, concurrent: Timeline | None = None) -> Timeline:
        actions = timeline.actions
        shown = (actions.op < WRITE) | (actions.level != self._carried)
        start, stop, nbytes = (
            column[shown] for column in (timeline.start, timeline.stop, timeline.nbytes)
        )
        return Timeline(actions.take(shown), start, stop, nbytes, concurrent)


def _joined(timelines: Sequence[Timeline]) -> Timeline:
    """Join timelines of one origin, one after the other."""
    actions = Actions.of([])
    for timeline in timelines:
        actions += timeline.actions
    return Timeline(
        actions,
        np.concatenate([timeline.start for timeline in timelines]),
        np.concatenate([timeline.stop for timeline in timelines]),
        np.concatenate([timeline.nbytes for timeline in timelines]),
    )


def _let_go(error: BaseException | None) -> None:
    """Let an error that is stored not hold on to the model and its arrays."""
    while error is not None:
        clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__


class PlannedPart(Generic[M]):
    """A schedule, performed by a model; by a fresh one, if none is given."""

    def __init__(
        self,
        schedule: Schedule,
        platform: Platform,
        backends: Sequence[Backend],
        fresh: Callable[[], M],
        model: M | None = None,
    ) -> None:
        self.model, self.done = model, 0
        self._schedule, self._platform, self._backends = schedule, platform, backends
        self._fresh = fresh

    def begin(self, parts: RunParts, /) -> Generator[Times]:
        self.model = self._fresh() if self.model is None else self.model
        return performed(
            self._schedule,
            self._platform,
            self.model,
            self._backends,
            overlap=parts.overlap,
            moved=parts.moved,
            clock=parts.clock,
            stop=self._patient(parts.stop),
        )

    def actions(self) -> Iterator[Action]:
        return iter(self._schedule.actions)

    def columns(self) -> Actions:
        return self._schedule.actions

    def failed(self, error: StorageError) -> tuple[Action | None, Machine]:
        schedule, number = self._schedule, error.action
        machine = validate(replace(schedule, actions=schedule.actions[: self.done]), self._platform)
        return None if number is None else schedule.actions[number], machine

    def _patient(self, stop: Stop | None) -> Stop | None:
        """Return `stop`, not asked before an adjoint that is read in the beginning was read."""
        if stop is None:
            return None
        actions = self._schedule.actions
        adjoint = np.flatnonzero((actions.op == READ) & (actions.kind == KIND_CODE[Kind.ADJOINT]))
        last = int(adjoint.max(initial=-1))
        return PatientStop(stop, lambda: self.done > last)


class PatientStop:
    """`stop`, asked only where it may be."""

    def __init__(self, stop: Stop, may: Callable[[], bool]) -> None:
        self._stop, self._may = stop, may
        for name in ("clock", "tell"):
            if hasattr(stop, name):
                setattr(self, name, getattr(stop, name))

    def __call__(self) -> bool:
        return self._may() and self._stop()


class RulePart:
    """The way forward by a rule, after `count` actions of other parts."""

    def __init__(
        self,
        rule: Rule,
        model: Model,
        backends: Sequence[Backend],
        /,
        *,
        stored: Sequence[Collection[Key]],
        state: int | None = 0,
        count: int = 0,
    ) -> None:
        self.run = RuleRun(rule, model, backends, stored=stored, state=state, count=count)
        self.count, self.done = count, 0
        self._make_ready = partial(reserve, rule, model, backends)

    def begin(self, parts: RunParts, /) -> Generator[Times]:
        self._make_ready()
        return self._times(self.run.events(self.run.forward(), parts.clock, parts.stop))

    @staticmethod
    def _times(events: Generator[Event]) -> Generator[Times]:
        with within(events):
            for event in events:
                yield event.start, event.stop, event.nbytes

    def actions(self) -> Iterator[Action]:
        return iter(self.run.actions)

    def columns(self) -> Actions:
        return Actions.of(self.run.actions)

    def failed(self, error: StorageError) -> tuple[Action | None, Machine]:
        return (None, self.run.machine) if error.action is None else self.run.failed()


def _no_times() -> Generator[Times]:
    yield from ()


class ReservedPart:
    """A schedule for which room is made, and nothing more."""

    def __init__(
        self,
        schedule: Schedule,
        platform: Platform,
        backends: Sequence[Backend],
        machine: Machine,
    ) -> None:
        self.schedule, self.done = schedule, 0
        self._platform, self._backends, self._machine = platform, backends, machine

    def begin(self, _parts: RunParts, /) -> Generator[Times]:
        reserve_plan(self.schedule, self._platform, self._backends)
        return _no_times()

    def actions(self) -> Iterator[Action]:
        return iter(())

    def columns(self) -> Actions:
        return Actions.of(())

    def failed(self, _error: StorageError) -> tuple[Action | None, Machine]:
        return None, self._machine
