"""Failover: if a level fails during a run, plan the rest anew from the remaining checkpoints.

A failure ends one part of a run and begins the next part. A run of known length saves the state and
the adjoint of the model in memory (the carried memory). A fresh model reads them from there like
any checkpoint, as if a killed run were resumed in the same process. Therefore the rules of
`Machine` need no exception. A run of unknown length asks its rule again, and the model continues
from its current state, or from the stored restart data of the latest step.

A run always ends, because after each failure less is left to fail: either a level is not used any
more, or the capacity of a full level is reduced to its stored bytes, or the list of checkpoints
that a level may still lose gets shorter.
"""

from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from traceback import clear_frames
from typing import Final, NamedTuple, TypeAlias, TypeVar

import numpy as np

from ckio.actions import Action, Discard, Key, Kind, Layout, Read, Write, nbytes_of
from ckio.actions.columns import ACCESSES, KIND_CODE, READ, WRITE, Actions
from ckio.backends.base import Backend
from ckio.backends.ram import Ram
from ckio.backends.wrapper import Wrapper
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
from ckio.runner.perform import DeferredStop, Stop, Times, is_estimated, perform, within
from ckio.runner.reproducible import ReplayCheck, checked
from ckio.runner.space import levels_for, memory_for
from ckio.runner.unknown import Rule, RuleRun, check_fit
from ckio.schedule import Schedule
from ckio.schedule.machine import Machine
from ckio.schedule.policy import Overlap
from ckio.schedule.replay import validate
from ckio.schedule.timeline import Event, Timeline, TimelineRecorder, TransferRecorder

M = TypeVar("M", bound=Model)

Stored: TypeAlias = tuple[frozenset[Key], ...]
"""The keys on each level."""

Warn: TypeAlias = Callable[[str], None]
Watcher: TypeAlias = Callable[[Event], None]

Replan: TypeAlias = Callable[[Chain, Platform, Stored], Schedule]
"""Function that plans the rest of a chain from the keys that are stored on each level."""

Rules: TypeAlias = Callable[[Platform, Sequence[Collection[Key]]], Rule]
"""Function that returns the rule for a platform with stored keys; raises BadInput if none fits."""

_NAMED: Final = 6
"""Maximum number of failures that an error lists."""


def failover(
    schedule: Schedule,
    platform: Platform,
    model: M,
    backends: Sequence[Backend],
    /,
    *,
    fresh: Callable[[], M],
    replan: Replan,
    warn: Warn,
    overlap: Overlap | None = None,
    clock: Clock | None = None,
    watch: Watcher | None = None,
    stop: Stop | None = None,
    resumed: bool = False,
) -> tuple[Timeline, M]:
    """Perform a schedule as `run` does, and continue if a level fails, with the same gradient.

    If a level is full, its checkpoints stay, and its capacity is reduced to their size. If a
    checkpoint is missing or corrupt, it is discarded, and the level is still used; but if the level
    loses another checkpoint that was written after this, or cannot discard the damaged one, it is
    given up. After any other StorageError the level is given up, too. A level that is given up is
    not called again; its opener must close it.

    The run needs memory for one more restart checkpoint and one more adjoint checkpoint. If there
    is no such memory, they are computed again. The first model is released before a second one is
    made. A recorded tape is recorded again.

    Parameters
    ----------
    schedule, platform, model, backends, overlap, clock
        As in `run`; the chain must have the size of the model's adjoint checkpoints.
    fresh
        Function that returns a model of the same computation at x_0. After a failure, the last such
        model is the one of the run, also if the run then ends with an error.
    replan
        Function that plans the rest from the keys on each level. It gets the old platform plus one
        level, the carried memory, which is `read_only`; a level that was given up has capacity 0.
        If `replan` finds no schedule it raises BadInput. Then it is called again with fewer keys:
        first with the adjoints on the levels and all keys of the carried memory, then with only the
        adjoints, finally with no keys.
    warn
        Function that is called with a message after each failure, when the next part is planned.
    watch
        Function that is called with each event. If it raises an error, the run ends with it.
    stop
        As in `run`; it is not called before a new model has read the carried adjoint.
    resumed
        Whether the schedule is the rest of a run. A level on which it does not fit has failed then,
        and counts as full. Otherwise this is bad input.

    Returns
    -------
    The timeline of all parts, in their order and with a common origin, and the model that reached
    the end. Failed actions, planning and reads from the carried memory have no events, but the
    events after them are later by their time.

    Raises
    ------
    BadInput, IllegalAction, RunFailed, Stopped
        As `run`. In particular, it is BadInput if the schedule does not fit a level, unless it is
        the rest of a run.
    StorageError
        The run cannot continue; the first failure is the `__cause__`. The checkpoints on durable
        levels are intact, and the run can be resumed from them.
    """
    chain = schedule.chain
    overlap = schedule.overlap if overlap is None else overlap
    _check_adjoint(chain, model)
    backends, memory = levels_for(model, backends), memory_for(model)
    left, carried = LevelsLeft(chain, platform, backends), CarriedMemory(chain, platform, memory)
    parts = PartsOfRun(clock, watch, carried=len(platform.levels))
    replay, live, levels = ReplayCheck(), model, platform
    opened = left.backends if resumed or any(schedule.stored) else _at_first(backends)
    del model
    try:
        while True:
            begin = partial(
                perform,
                schedule,
                levels,
                checked(live, replay),
                opened,
                overlap=overlap,
                moved=parts.moved,
                clock=parts.clock,
                stop=_after_the_adjoint(stop, schedule, parts),
            )
            if (error := parts.perform(begin, schedule.actions)) is None:
                return parts.timeline(), live
            begun = replace(schedule, actions=schedule.actions[: parts.done])
            action = None if error.action is None else schedule.actions[error.action]
            machine = validate(begun, levels)
            with left.noted(error, action, machine, warn):
                left.facts += carried.carry(live, machine)
                stored = *left.stored(machine), carried.keys
                levels = replace(left.platform, levels=(*left.platform.levels, carried.level))
                schedule = _planned(replan, chain, levels, stored)
            opened = [*left.backends, carried.backend]
            del live, begin, error  # release the model before a new one is made
            live = fresh()
    finally:
        carried.close()


def _after_the_adjoint(stop: Stop | None, schedule: Schedule, parts: "PartsOfRun") -> Stop | None:
    """Return `stop`, which is not called before the adjoint at the beginning was read."""
    if stop is None:
        return None
    actions = schedule.actions
    adjoint = np.flatnonzero((actions.op == READ) & (actions.kind == KIND_CODE[Kind.ADJOINT]))
    last = int(adjoint.max(initial=-1))
    return DeferredStop(stop, lambda: parts.done > last)


class Forward(NamedTuple):
    """The result of the forward sweep.

    Attributes
    ----------
    steps : int
        The step at which the model is finished.
    timeline : Timeline
        The actions that were done. Failed actions have no event, but the events after them are
        later by their time. Steps that were repeated occur again.
    platform : Platform
        The remaining levels. A level that was given up has capacity 0; the capacity of a full level
        is the size of its checkpoints.
    backends : list of Backend
        One for each level; a full one ignores reservations.
    stored : tuple of frozenset of Key
        The keys on each level.
    """

    steps: int
    timeline: Timeline
    platform: Platform
    backends: list[Backend]
    stored: Stored


def run_forward(
    rules: Rules,
    platform: Platform,
    model: Model,
    backends: Sequence[Backend],
    /,
    *,
    warn: Warn,
    stored: Sequence[Collection[Key]] = (),
    clock: Clock | None = None,
    watch: Watcher | None = None,
    stop: Stop | None = None,
) -> Forward:
    """Run a model forward until it is finished, and continue if a level fails.

    Afterwards the rest can be planned from the stored checkpoints, for a fresh model and a chain of
    this length, like the rest of a killed run, and performed by `failover`. Therefore x_0 need not
    be stored.

    A failed level is treated as in `failover`: a full level keeps its checkpoints, a lost
    checkpoint is discarded, and after any other error the level is given up.

    Parameters
    ----------
    rules
        Function that returns the rule for the platform and the stored keys; it is called again
        after each failure. It may leave a part of a level's capacity unused, but not the part with
        stored checkpoints.
    platform, model, backends, clock, watch
        As in `run_to_end`, except that checkpoints may be stored already.
    warn
        Function that is called with a message after each failure, when the run can continue.
    stored
        The keys on each level, for a run that is resumed. The restart data of the latest step is
        read first.
    stop
        Function that is called at every action, and about every half second. If it returns True,
        `Stopped` is raised.

    Raises
    ------
    Stopped
        `stop` returned True; the model is at x_state, and `adjoint` is a step after the end.
    StorageError
        No level is left that can store a checkpoint; the first failure is the `__cause__`. The
        checkpoints on durable levels are intact, and the run can be resumed from them.
    IllegalAction, BadInput, RunFailed
        As `run_to_end`.
    """
    model, rule = checked(model), rules(platform, stored)
    check_fit(rule, model, backends, stored)
    backends = levels_for(model, backends)
    left, parts = LevelsLeft(rule.chain, platform, backends), PartsOfRun(clock, watch)
    opened = _at_first(backends)
    state: int | None = 0
    count = 0
    while True:
        run = RuleRun(rule, model, opened, stored=stored, state=state, count=count)
        begin = partial(_forward, run, parts.clock, stop)
        if (error := parts.perform(begin, run.actions)) is None:
            assert run.end is not None
            keys = tuple(map(frozenset, run.machine.stored))
            return Forward(run.end, parts.timeline(), left.platform, left.for_others(), keys)
        action, machine = (None, run.machine) if error.action is None else run.failed()
        with left.noted(error, action, machine, warn):
            stored = left.stored(machine)
            rule = rules(left.platform, stored)
            _ = rule.levels  # raises BadInput if no level can be used
        opened, state, count = left.backends, machine.state, count + parts.done


def _forward(run: RuleRun, clock: Clock, stop: Stop | None) -> Generator[Times]:
    """Reserve the levels of a rule; return the times of the actions of its forward sweep."""
    run.reserve()
    return run.times(run.forward(), clock, stop)


def _check_adjoint(chain: Chain, model: Model) -> None:
    """Check the size of adjoint checkpoints, which are needed in every failover."""
    key = Key(Kind.ADJOINT, chain.length)
    with suppress(UnsupportedKind):  # such an adjoint is computed again
        planned, real = chain.nbytes(key), nbytes_of(model.layout(key))
        if planned != real and not is_estimated(model):
            raise BadInput(
                f"the chain has {planned} bytes for an adjoint checkpoint; the model's has {real}:"
                " plan with the model's sizes"
            )


# The plan of the rest


def _planned(replan: Replan, chain: Chain, platform: Platform, stored: Stored) -> Schedule:
    """Return a plan of the rest, from as many of the stored keys as possible.

    The plan begins with discards of all keys that it does not use. If there is no plan, raises the
    first BadInput, which gives the reason why all stored keys together do not permit one.
    """
    reason: BadInput | None = None
    for some in _ever_less(stored):
        try:
            plan = replan(chain, platform, some)
            writes = plan.actions.level[plan.actions.op == WRITE]
            if any(platform.levels[number].read_only for number in np.unique(writes)):
                raise NoSchedule("the rest needs a level with space for another checkpoint")
        except BadInput as none:
            reason = reason or none
            continue
        return replace(plan, actions=_discards(stored, some) + plan.actions, stored=stored)
    assert reason is not None
    raise reason


def _ever_less(stored: Stored) -> Iterator[Stored]:
    """Yield all stored keys; the adjoints and the carried keys; only the adjoints; no keys."""
    adjoints = tuple(frozenset(key for key in keys if key.kind is Kind.ADJOINT) for keys in stored)
    yield from dict.fromkeys(
        (stored, (*adjoints[:-1], stored[-1]), adjoints, tuple(frozenset[Key]() for _ in stored))
    )


def _discards(stored: Stored, some: Stored) -> Actions:
    """Return the Discards of all stored keys that are not in `some`."""
    return Actions.of(
        Discard(key, number)
        for number, (keys, others) in enumerate(zip(stored, some, strict=True))
        for key in sorted(keys - others, key=str)
    )


# What is left of the levels


class LevelsLeft:
    """The levels of a run, as far as they can still be used.

    With each failure they become fewer or smaller: a level is given up, or its capacity is reduced,
    or the set of keys that it may still lose gets smaller. Therefore a run ends after any number of
    failures.

    Attributes
    ----------
    facts : list of str
        A message for each failure.
    """

    def __init__(self, chain: Chain, platform: Platform, backends: Sequence[Backend]) -> None:
        self.facts = list[str]()
        self._chain, self._platform = chain, platform
        self._levels, self._backends = list(platform.levels), list(backends)
        self._full = set[int]()
        self._doubted: dict[int, frozenset[Key]] = {}
        self._first: StorageError | None = None

    @property
    def platform(self) -> Platform:
        """The platform with the current capacities of its levels."""
        return replace(self._platform, levels=tuple(self._levels))

    @property
    def backends(self) -> list[Backend]:
        """The backend of each level, for the next part; a full one ignores reservations."""
        return [
            FailoverLevel(backend, number, is_full=number in self._full)
            for number, backend in enumerate(self._backends)
        ]

    def for_others(self) -> list[Backend]:
        """Return the backends for later use: unchanged, or full, or replaced by empty memory."""
        backends = list(self._backends)
        for number in self._full:
            full = FailoverLevel(backends[number], is_full=True)
            backends[number] = full if self._levels[number].capacity else Ram(capacity=0)
        return backends

    @contextmanager
    def noted(
        self, error: StorageError, action: Action | None, machine: Machine, warn: Warn, /
    ) -> Iterator[None]:
        """Reduce the level that failed, for a block that plans the rest; then report the failure.

        `action` is the action that failed; None if the level failed before the first action of a
        part. `machine` has the positions of the model's state and adjoint, and the keys that should
        be stored. Raises StorageError if the block raises BadInput.
        """
        _let_go(error)
        self._first, begin = self._first or error, len(self.facts)
        number = error.level
        assert number is not None
        match error, action:
            case LevelFull(), Write() | None:
                self._shrink(number, error, machine.stored[number])
            case CorruptCheckpoint() | MissingCheckpoint(), Read(key, _) | Discard(key, _):
                self._lose(number, error, key)
            case _:
                self._give_up(number, error)
        try:
            yield
        except BadInput as none:
            raise self._hopeless(none, error) from self._first
        for fact in self.facts[begin:]:
            warn(f"{fact}; the rest of the run is planned anew")

    def stored(self, machine: Machine, /) -> Stored:
        """Return, for each level, the keys that are stored and should be; discard all others.

        There may be others because, with overlap, a discard may not have reached its level yet.
        """
        levels = range(len(self._levels))
        listed = [self._listed(number) for number in levels]
        for number in levels:
            for key in sorted(listed[number].difference(machine.stored[number]), key=str):
                with suppress(StorageError):  # sorted, for the same order on all ranks
                    self._backends[number].discard(key)
        return tuple(listed[number].intersection(machine.stored[number]) for number in levels)

    def _hopeless(self, reason: BadInput, failure: StorageError) -> StorageError:
        """Return the error that ends the run if no plan is possible."""
        facts = self.facts[:_NAMED] + ["..."] * (len(self.facts) > _NAMED)
        error = StorageError(
            f"{'; '.join(facts)}; and there is no way to continue: {reason}. The checkpoints on"
            " durable levels are intact: resume the run when the levels work again or have free"
            " space"
        )
        error.action, error.level = failure.action, failure.level
        return error

    def _shrink(self, number: int, error: StorageError, stored: Collection[Key]) -> None:
        level = self._levels[number]
        keys = self._listed(number).intersection(stored)
        nbytes = sum(level.stored(self._chain.nbytes(key)) for key in keys)
        if number in self._full and level.capacity is not None and nbytes >= level.capacity:
            self._give_up(number, error)
            return
        if number not in self._full:
            self.facts.append(
                f"level {level.name!r} is full; its capacity is {nbytes} bytes from now on: {error}"
            )
        self._full.add(number)
        self._levels[number] = replace(level, capacity=nbytes)

    def _lose(self, number: int, error: StorageError, key: Key) -> None:
        """Discard a checkpoint that cannot be read.

        After the first loss, only keys that were stored at that time may be lost. If a newer one is
        lost, or if the discard fails, the level is given up.
        """
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
    """The memory that carries the state and the adjoint from a model to the next one.

    Attributes
    ----------
    level : Level
        This memory as a level for planners; it is `read_only`.
    """

    def __init__(self, chain: Chain, platform: Platform, memory: Ram) -> None:
        names, name = {level.name for level in platform.levels}, "carried"
        while name in names:
            name += "_"
        self.level = Level(name=name, read_only=True)
        self._chain, self._memory = chain, memory
        self.backend: Backend = FailoverLevel(self._memory, len(names), is_full=True)
        self.close = self._memory.close

    @property
    def keys(self) -> frozenset[Key]:
        return frozenset(self._memory.keys())

    def carry(self, model: Model, machine: Machine, /) -> list[str]:
        """Store the model's adjoint and state, if a fresh model needs them.

        The state x_i is needed only if i is smaller than the step of the adjoint. Returns a message
        for each checkpoint that could not be stored.
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
        """Store a checkpoint instead of an older one of the same kind."""
        parts, stored = self._chain.parts(key), self.keys
        for other in stored:
            if other.kind is key.kind and other not in parts:
                self._memory.discard(other)
        try:
            for part in parts:
                if part not in stored:
                    self._memory.write(part, model.layout(part), model.dump(part))
        except StorageError as error:
            yield f"{key} cannot be carried in memory, and is computed again: {error}"


class NotReady(Exception):
    """A level failed before the first action of a part."""

    def __init__(self, error: StorageError, level: int) -> None:
        super().__init__(error, level)
        self.error = error
        error.level = level


def _at_first(backends: Sequence[Backend], /) -> list[Backend]:
    """Return the levels of a new run, for which LevelFull before the first action is bad input."""
    return [FailoverLevel(backend, number, is_new=True) for number, backend in enumerate(backends)]


class FailoverLevel(Wrapper):
    """A level that raises NotReady if a call before the first action fails.

    If `is_full`, `reserve` does nothing: the level has no free space, and each new checkpoint takes
    the slot of a discarded one. If `is_new`, LevelFull is raised unchanged.
    """

    def __init__(
        self,
        backend: Backend,
        number: int | None = None,
        *,
        is_full: bool = False,
        is_new: bool = False,
    ) -> None:
        super().__init__(backend)
        self._number, self._is_full, self._is_new = number, is_full, is_new

    def reserve(self, sizes: Mapping[int, int], /) -> None:
        if not self._is_full:
            with self._numbered():
                self.backend.reserve(sizes)

    def prepare(self, key: Key, layout: Layout, count: int, /) -> None:
        if not self._is_full:
            # The kinds peak at different times, so that all their slots together may not fit.
            with self._numbered(), suppress(LevelFull):
                self.backend.prepare(key, layout, count)

    def keys(self) -> Iterable[Key]:
        with self._numbered():
            return self.backend.keys()

    @contextmanager
    def _numbered(self) -> Generator[None]:
        try:
            yield
        except StorageError as error:
            if self._number is None or (self._is_new and isinstance(error, LevelFull)):
                raise
            raise NotReady(error, self._number) from error


# The parts of a run


class PartsOfRun:
    """The parts of a run, each up to its end or to the failure of a level; their common timeline.

    Attributes
    ----------
    clock : Clock
    done : int
        Number of actions of the current part that are done.
    """

    def __init__(self, clock: Clock | None, watch: Watcher | None, /, *, carried: int = -1) -> None:
        self.clock, self.done = clock or WallClock(), 0
        self._watch, self._carried = watch, carried
        self._recorder, self._actions = TimelineRecorder(), Actions.of(())
        self._transfers, self._concurrent = TransferRecorder(), list[Timeline]()
        self._origin: float | None = None
        self._begun = 0.0

    def perform(
        self, begin: Callable[[], Generator[Times]], actions: Sequence[Action], /
    ) -> StorageError | None:
        """Perform a part; return None at its end, or the error of a level that failed.

        `begin` does checks and reservations, and returns a generator that performs `actions` and
        yields their times. Errors that are not of a level are raised.
        """
        self.done, self._transfers = 0, TransferRecorder()
        try:
            times = begin()
        except NotReady as failed:
            return failed.error
        except StorageError as early:
            if early.level is None:
                raise
            return early
        finally:
            del begin  # it holds the model, and the error of a level may hold this frame
        now = self.clock.now()
        self._origin = now if self._origin is None else self._origin
        self._begun = now - self._origin
        with within(times):
            error = self._collect(times, iter(actions))
        columns = Actions.of(actions)
        self._actions += columns[: self.done]
        self._concurrent.extend(filter(None, [self._transfers.timeline(columns)]))
        return error

    def moved(self, row: int, start: float, stop: float, nbytes: int) -> None:
        """Record a transfer of the current part."""
        self._transfers.add(row, self._begun + start, self._begun + stop, nbytes)

    def timeline(self) -> Timeline:
        """Return the timeline of all parts, without accesses to the carried memory."""
        concurrent = self._without_carried(_joined(self._concurrent)) if self._concurrent else None
        return self._without_carried(self._recorder.timeline(self._actions), concurrent)

    def _collect(self, times: Iterator[Times], actions: Iterator[Action]) -> StorageError | None:
        """Record the events of a part; return the error of a level that failed, or None."""
        begun = self._begun
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
            self.done += 1
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
    """Join timelines with a common origin, one after the other."""
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
    """Clear the frames of a stored error, so that it does not keep the model's arrays alive."""
    while error is not None:
        clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__
