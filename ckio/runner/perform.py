"""Perform a schedule, action by action.

`Performer` has a method for each of the six actions, which calls the model and the levels.
`in_turn` calls these methods for each row of the schedule's columns, measures the times, and adds
the action to error messages. It makes no action objects unless they are needed. This one loop is
used by all runs: a run with overlap has another performer (`overlapped`), and a run of unknown
length gets its rows from a rule (`unknown`).
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from functools import lru_cache
from itertools import product
from traceback import format_exception_only
from types import TracebackType
from typing import Final, TypeVar, cast

import numpy as np

from ckio.actions import (
    Action,
    Advance,
    Buffers,
    Discard,
    Key,
    Kind,
    Read,
    Reverse,
    Write,
    nbytes_of,
)
from ckio.actions.columns import (
    ACCESSES,
    ADVANCE,
    KIND_CODE,
    KINDS,
    READ,
    RECORD,
    REVERSE,
    SPANS,
    WRITE,
    Row,
)
from ckio.backends.base import Backend
from ckio.errors import BadInput, CkioError, LevelFull, RunFailed, Stopped, StorageError
from ckio.model import Handing, Model, handed_by, layout_of, optional, reached
from ckio.platform import Platform, memory_level
from ckio.platform.clock import Clock, WallClock
from ckio.platform.memory import available
from ckio.runner.reproducible import Reproducible, checked
from ckio.runner.space import levels_for
from ckio.schedule import Schedule, preparations, reservations
from ckio.schedule.policy import Overlap
from ckio.schedule.replay import validate

T = TypeVar("T")

Stop = Callable[[], bool]
"""Function that returns whether the run is to stop now."""

Moved = Callable[[int, float, float, int], object]
"""Function called after a transfer: the number of its action, start and stop in s, and bytes."""

Times = tuple[float, float, int]
"""For one action: start and stop in seconds from the start of the run, and transferred bytes."""

PIECE: Final = 0.5
"""Seconds between two calls of `stop`, as far as the model's steps allow."""

_KEYS: Final = 1024
"""Number of cached keys; most written keys are soon read and discarded."""

BEGIN, END = 3, 4
"""Indices of the first and last step in a row."""

_GROWTH: Final = 4
"""Maximum ratio of the steps of a piece to those of the piece before: steps may become slower."""


def perform(
    schedule: Schedule,
    platform: Platform,
    model: Model,
    backends: Sequence[Backend],
    /,
    *,
    overlap: Overlap | None = None,
    moved: Moved | None = None,
    clock: Clock | None = None,
    stop: Stop | None = None,
) -> Generator[Times]:
    """Perform a schedule as `run`; yield the times of each action after it, and store none of them.

    The checks and reservations are done when this function is called. The first action is done, and
    the clock starts, when the caller asks for the first times. If the caller leaves the loop, the
    model and the levels stay in their state after the last action.

    Parameters
    ----------
    schedule, platform, model, backends, overlap, clock
        As in `run`.
    moved
        With overlap, function that is called after each transfer with the number of its action,
        start and stop in seconds, and bytes. Only one thread at a time calls it, and all others
        wait meanwhile. If it raises an error, the run ends.
    stop
        Function that is called before every action, and about every half second within a long
        Advance or Reverse. For this, the model gets such an action in pieces; it still counts as
        one action. The first piece is one step; the length of the next pieces follows from the
        times of the steps before. A Record is never cut. If `stop` returns True, `Stopped` is
        raised.

        In a parallel run all ranks must use the same pieces. For this, `stop` has an attribute
        `clock`, from which all ranks read the same times. With overlap, if `stop` has a method
        `report_backlog`, this is called before with the seconds that stopping would take to write
        all staged checkpoints, by the costs of the levels.

    Raises
    ------
    IllegalAction, BadInput
        As `run`, before the first action.
    Stopped
        `stop` returned True. `action` is the number of the next action, a part of which may be
        done; `state` and `adjoint` are the steps of the model's state and adjoint. Nothing is known
        of its tape.
    StorageError, RunFailed
        As `run`. `action` is the number of the action that failed, from 0; if an access to a level
        failed, `level` is the number of the level.
    """
    given: tuple[object, ...] = schedule, platform, model, backends
    kinds = Schedule, Platform, object, Sequence
    if not all(map(isinstance, given, kinds)) or not hasattr(model, "advance"):
        names = ", ".join(type(each).__name__ for each in given)
        raise BadInput(
            f"the arguments are {names}; give a schedule, a platform, a model and a list of open"
            " levels, in this order"
        )
    backends = levels_for(model, backends)
    overlap = schedule.overlap if overlap is None else overlap
    if overlap:
        from ckio.runner.overlapped import overlapped

        return overlapped(
            schedule, platform, model, backends, overlap, clock=clock, stop=stop, moved=moved
        )
    make_ready(schedule, platform, model, backends)
    return by_schedule(schedule, platform, Performer(model, backends), clock or WallClock(), stop)


@contextmanager
def within(run: Generator[T]) -> Iterator[None]:
    """Execute a block that iterates over `run`; an error in the block also ends the run.

    Without this, the generator would stay suspended as long as any object refers to the error, and
    it would continue later with levels that are closed or used for another purpose then.
    """
    try:
        yield
    except BaseException as error:
        run.throw(error)  # raises the error, with notes about further failures
        raise


class Loading:
    """The context of a model's `load`, which raises an error even if the model suppresses it.

    Without this, the model would continue with a wrong state, and the gradient would be wrong.
    """

    def __init__(self, loading: AbstractContextManager[Buffers]) -> None:
        self._loading = loading

    def __enter__(self) -> Buffers:
        return self._loading.__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._loading.__exit__(kind, error, at)


def where(action: Action, platform: Platform, /) -> str:
    """Return an action as text for errors, with the name of its level."""
    match action:
        case Write(_, level) | Read(_, level) | Discard(_, level):
            return f"{action} on {platform.levels[level].name!r}"
        case _:
            return str(action)


class Performer:
    """The six actions on a model and its open levels; each returns the transferred bytes.

    If the model passes a checkpoint without a copy, and the level can store it so, nothing is
    copied. A tape that the model has taken in this way is copied only if it is reversed while the
    level still stores it, because the adjoint step may overwrite it.
    """

    def __init__(self, model: Model, backends: Sequence[Backend]) -> None:
        self._model = model = checked(model)
        self._backends = levels_for(model, backends)
        if not all(backend.lossless for backend in self._backends):
            cast("Reproducible", model).replay_check.stop()
        self._handing = cast("Handing", model)  # used only for the kinds that it hands over
        self._handed = handed_by(model)
        self._keeping = [it if self._handed and it.keeps else None for it in self._backends]
        self._taken: tuple[Key, int] | None = None  # the tape in the register, and its level

    def advance(self, begin: int, end: int, /) -> int:
        step = self._model.advance(begin, end)
        return 0 if step is end else _arrived("advance", step, begin, end)

    def record(self, begin: int, end: int, /) -> int:
        self._taken = None
        step = self._model.record(begin, end)
        return 0 if step is end else _arrived("record", step, begin, end)

    def reverse(self, begin: int, end: int, /) -> int:
        if self._taken is not None:
            self._load(*self._taken)
        self._model.reverse(begin, end)
        return 0

    def write(self, key: Key, level: int, /) -> int:
        memory, layout = self._keeping[level], self._model.layout(key)
        if memory is None or key.kind not in self._handed or key.name:
            return self._backends[level].write(key, layout, self._model.dump(key))
        return memory.keep(key, layout, self._handing.give(key, memory.slot))

    def read(self, key: Key, level: int, /) -> int:
        memory = self._keeping[level]
        if memory is None or key.kind not in self._handed or key.name:
            return self._load(key, level)
        if (data := memory.kept(key)) is None:
            return self._load(key, level)
        self._handing.take(key, memory.layout(key), data)
        if key.kind is Kind.TAPE:
            self._taken = key, level
        return sum(map(len, data))

    def _load(self, key: Key, level: int) -> int:
        """Read a checkpoint into memory of the model's own."""
        backend = self._backends[level]
        with Loading(self._model.load(key, backend.layout(key))) as buffers:
            if key.kind is Kind.TAPE:
                self._taken = None
            return backend.read(key, buffers)

    def _hands_over(self, key: Key) -> Handing | None:
        """Return the model if it passes this checkpoint without a copy, else None."""
        return self._handing if key.kind in self._handed and not key.name else None

    def discard(self, key: Key, level: int, /) -> int:
        self._backends[level].discard(key)
        if self._taken == (key, level):
            self._taken = None
        return 0


def _arrived(method: str, value: object, begin: int, end: int) -> int:
    """Return 0, the transferred bytes; raises RunFailed unless the model has reached `end`."""
    step = reached(method, value, begin, end)
    if step == end:
        return 0
    raise RunFailed(
        f"the model finished at step {step}; plan for {step} steps, and begin a new run"
    )


def by_schedule(
    schedule: Schedule, platform: Platform, performer: Performer, clock: Clock, stop: Stop | None, /
) -> Generator[Times]:
    """Perform all actions of a schedule after all checks; yield the times of each."""
    actions = schedule.actions

    def key(kind: int, step: int, name: int) -> Key:
        return Key(KINDS[kind], step, actions.names[name])

    def stopped(number: int, piece: Row) -> Stopped:
        return _stopped(schedule, platform, number, piece)

    return in_turn(
        enumerate(actions.rows()),
        lru_cache(_KEYS)(key),
        platform,
        performer,
        clock=clock,
        stop=stop,
        stopped=stopped,
    )


def in_turn(
    rows: Iterable[tuple[int, Row]],
    key: Callable[[int, int, int], Key],
    platform: Platform,
    performer: Performer,
    /,
    *,
    clock: Clock,
    stop: Stop | None,
    stopped: Callable[[int, Row], Stopped],
) -> Generator[Times]:
    """Perform one row after the other; yield the times of each, from the first request on.

    Parameters
    ----------
    rows
        The rows, each with its number for errors. A row is requested when all rows before it are
        done.
    key
        Function that returns the key for the kind, step and name of a row.
    stopped
        Function that returns the error to raise if `stop` returns True before this piece of the
        row with this number.
    """
    cut = None if stop is None else Pace(_common(stop, clock)).pieces
    spans = performer.advance, performer.record, performer.reverse
    accesses = performer.write, performer.read, performer.discard
    now = clock.now
    origin = now()
    for number, row in rows:
        start = now() - origin
        for piece in (row,) if cut is None else cut(row):
            if stop is not None and stop():
                raise stopped(number, piece)
            op, kind, level, begin, end, name = piece
            try:
                if op < WRITE:
                    nbytes = spans[op](begin, end)
                else:
                    nbytes = accesses[op - WRITE](key(kind, begin, name), level)
            except CkioError as error:
                named(error, number, _action(row, key), platform)
                raise
            except Exception as error:
                raise named(error, number, _action(row, key), platform) from error
        yield start, now() - origin, nbytes


def _action(row: Row, key: Callable[[int, int, int], Key]) -> Action:
    op, kind, level, begin, end, name = row
    if op < WRITE:
        return SPANS[op](begin, end)
    return ACCESSES[op - WRITE](key(kind, begin, name), level)


def own(error: BaseException, /) -> CkioError:
    """Return an error of ckio unchanged; for any other error a RunFailed with it as the cause."""
    if isinstance(error, CkioError):
        return error
    failed = RunFailed(" ".join(map(str.strip, format_exception_only(error))))
    failed.__cause__ = error
    return failed


def named(error: BaseException, number: int, action: Action, platform: Platform, /) -> CkioError:
    """Return the error as one of ckio's, with the failed action and level in its message."""
    failed = own(error)
    failed.args = (f"#{number} {where(action, platform)}: {failed}",)
    failed.action = number
    if isinstance(failed, StorageError) and isinstance(action, ACCESSES):
        failed.level = action.level
    return failed


def _stopped(schedule: Schedule, platform: Platform, number: int, piece: Row, /) -> Stopped:
    """Return the error with the model's state and adjoint before this piece of an action."""
    actions = schedule.actions
    machine = validate(replace(schedule, actions=actions[:number]), platform)
    match actions[number]:
        case Advance(begin, _) if begin < (reached := piece[BEGIN]):
            machine.apply(Advance(begin, reached))
        case Reverse(_, end) if (reached := piece[END]) < end:
            machine.apply(Reverse(reached, end))
    state = (
        "the model has no whole state"
        if machine.state is None
        else f"the state is x_{machine.state}"
    )
    return Stopped(
        f"stopped before action #{number} of {len(actions)}: {state},"
        f" the adjoint is at {machine.adjoint}",
        action=number,
        state=machine.state,
        adjoint=machine.adjoint,
    )


class DeferredStop:
    """`stop` with its other methods, called only after `ready` has returned True."""

    def __init__(self, stop: Stop, ready: Callable[[], bool], /) -> None:
        self._stop, self._ready = stop, ready
        for name in ("clock", "report_backlog"):
            if hasattr(stop, name):
                setattr(self, name, getattr(stop, name))

    def __call__(self) -> bool:
        return self._ready() and self._stop()


def _common(stop: Stop, clock: Clock) -> Clock:
    """Return the clock by which long actions are cut: in a parallel run, that of `stop`."""
    common: Clock = getattr(stop, "clock", clock)
    return common


class Pace:
    """Cuts long actions into pieces of about `PIECE` seconds, by the times of earlier pieces.

    The costs of the plan are not used, because they may have other units, or be wrong.
    """

    def __init__(self, clock: Clock) -> None:
        self._now = clock.now
        self._steps = {ADVANCE: 1, REVERSE: 1}

    def pieces(self, row: Row) -> Iterator[Row]:
        """Yield the rows of the pieces; each must be done before the next one is requested."""
        op, _, _, begin, end, _ = row
        if op not in self._steps:
            yield row
            return
        while begin < end:
            most, start = self._steps[op], self._now()
            if op == ADVANCE:
                low, high = begin, min(begin + most, end)
                begin = high
            else:
                low, high = max(end - most, begin), end
                end = low
            yield op, 0, 0, low, high, 0
            self._learn(op, high - low, self._now() - start)

    def _learn(self, op: int, steps: int, took: float) -> None:
        most = _GROWTH * self._steps[op]
        fit = steps * PIECE / took if took > 0 else most
        self._steps[op] = max(1, int(min(most, fit)))


def make_ready(
    schedule: Schedule, platform: Platform, model: Model, backends: Sequence[Backend], /
) -> None:
    """Do all checks and reservations before a run; raises IllegalAction or BadInput."""
    validate(schedule, platform)
    fit(schedule, platform, model, backends)
    tape(schedule)
    reserve(schedule, platform, model, backends)
    prepare(schedule, model, backends)
    begins_at_x_0 = len(schedule) > 0 and int(schedule.actions.op[0]) != READ
    if begins_at_x_0:
        optional(model).make_start()


def fit(schedule: Schedule, platform: Platform, model: Model, backends: Sequence[Backend]) -> None:
    """Raise BadInput unless the schedule, the platform, the model and the levels fit together."""
    if len(backends) != len(platform.levels):
        raise BadInput(f"{len(backends)} open levels for a platform of {len(platform.levels)}")
    chain = schedule.chain
    if chain.tape_restarts and not optional(model).tape_restarts:
        raise BadInput(
            "the schedule continues the forward from tapes (`tape_restarts`), and the tapes of this"
            " model contain no state: plan with the model's own costs"
        )
    for key in () if is_estimated(model) else _one_of_each_size(schedule):
        planned, real = chain.nbytes(key), nbytes_of(layout_of(model, key))
        if planned != real:
            kind = f"{key.name} in " * bool(key.name) + f"a {key.kind.name.lower()} checkpoint"
            what = str(key) if chain.varies else kind
            raise BadInput(
                f"the schedule plans {planned} bytes for {what};"
                f" the model's has {real}: plan with the model's sizes"
            )
    for number, (level, backend) in enumerate(zip(platform.levels, backends, strict=True)):
        stored(schedule, number, level.name, set(backend.keys()))


def is_estimated(model: Model, /) -> bool:
    """Return whether the planned sizes of the model's checkpoints are only estimates."""
    return optional(model).estimated


def _one_of_each_size(schedule: Schedule) -> Iterator[Key]:
    """Yield one key of each accessed kind and variable; if steps differ, all accessed keys."""
    actions = schedule.actions
    for (code, kind), (name, words) in product(enumerate(KINDS), enumerate(actions.names)):
        rows = (actions.op >= WRITE) & (actions.kind == code) & (actions.name == name)
        steps = actions.begin[rows]
        if schedule.chain.varies and not name:
            yield from (Key(kind, step) for step in np.unique(steps).tolist())
        elif len(steps):
            yield Key(kind, 0, words)


def stored(schedule: Schedule, number: int, name: str, present: set[Key]) -> None:
    """Raise BadInput unless a level has the keys with which the schedule starts.

    It must not have any other key that the schedule writes.
    """
    stored = schedule.stored_on(number)
    if missing := stored - present:
        raise BadInput(
            f"the schedule starts with {min(map(str, missing))} on level {name!r}; it is not"
            " stored there: open the level that stores it, or plan without it"
        )
    if not present - stored:
        return
    actions = schedule.actions
    writes = actions.take((actions.op == WRITE) & (actions.level == number))
    if twice := (present - stored).intersection(map(writes.key, writes.rows())):
        raise BadInput(
            f"level {name!r} already holds {min(map(str, twice))}, which the schedule writes there;"
            " give it an empty level, or discard the old checkpoints"
        )


def tape(schedule: Schedule) -> None:
    """Raise BadInput if the longest tape of the schedule does not fit in memory."""
    free, (needed, steps) = available(), longest_tape(schedule)
    if free is not None and needed > free:
        raise BadInput(
            f"the plan needs memory for the tape of {steps} steps, {needed} bytes; {free} are"
            " available: lower the platform's working_memory and plan again"
        )


def longest_tape(schedule: Schedule, /) -> tuple[int, int]:
    """Return the bytes and the steps of the longest tape of a schedule."""
    actions = schedule.actions
    record = np.flatnonzero(actions.op == RECORD)
    if not record.size:
        return 0, 0
    begin, end = actions.begin[record], actions.end[record]
    nbytes = schedule.chain.tape_bytes_of(begin, end)
    most = int(nbytes.argmax())
    return int(nbytes[most]), int(end[most] - begin[most])


def slots_of(schedule: Schedule, platform: Platform, model: Model, /) -> tuple[dict[int, int], ...]:
    """Return the slots that each level needs: its checkpoints but those in memory of the model."""
    slots, memory = reservations(schedule), memory_level(platform)
    handed = frozenset() if optional(model).exchanges else handed_by(model)
    if memory is None or not handed or memory >= len(slots):
        return slots
    actions = schedule.actions
    own = (actions.op >= WRITE) & (actions.level == memory)
    own &= np.isin(actions.kind, [KIND_CODE[kind] for kind in handed])
    copied = dict(enumerate(reservations(replace(schedule, actions=actions.take(~own)))))
    return (*slots[:memory], copied.get(memory, {}), *slots[memory + 1 :])


def reserve(
    schedule: Schedule, platform: Platform, model: Model, backends: Sequence[Backend]
) -> None:
    """Reserve space for the whole plan, so that missing space is noticed before the start."""
    slots = slots_of(schedule, platform, model)
    for level, backend, sizes in zip(platform.levels, backends, slots, strict=False):
        wanted, free = {}, level.capacity
        # The numbers of checkpoints of each size peak at different times. Therefore their sum may
        # be larger than the level will ever store.
        for nbytes, most in sorted(sizes.items(), reverse=True):
            each = level.stored(nbytes)
            wanted[nbytes] = most if free is None else min(most, free // max(1, each))
            free = None if free is None else free - wanted[nbytes] * each
        try:
            backend.reserve(wanted)
        except LevelFull as error:
            raise BadInput(
                f"level {level.name!r} has no space for this plan: {error};"
                " free some, or lower the level's capacity and plan again"
            ) from error


def prepare(schedule: Schedule, model: Model, backends: Sequence[Backend]) -> None:
    """Let the levels make slots before the first write of each kind."""
    for backend, kinds in zip(backends, preparations(schedule), strict=False):
        for key, most in kinds.items():
            with suppress(LevelFull):  # the kinds may peak at different times
                backend.prepare(key, model.layout(key), most)
