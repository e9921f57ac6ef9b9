"""A schedule performed an action at a time.

`Performer` has a method for each of the six actions, which drives the model and the levels.
`in_turn` calls them by the codes of the actions' columns, takes the times, and lets errors say at
which action they came: no action object is made unless somebody looks at it. It is the one loop of
all runs: with overlap the performer is another one (`overlapped`), and where the end is not known
the rows come from a rule (`unknown`).
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from functools import lru_cache
from itertools import product
from traceback import format_exception_only
from types import TracebackType
from typing import Final, TypeVar

import numpy as np

from ckio.actions import (
    Action,
    Advance,
    Buffers,
    Discard,
    Key,
    Read,
    Reverse,
    Write,
    nbytes_of,
)
from ckio.actions.columns import (
    ACCESSES,
    ADVANCE,
    KINDS,
    READ,
    RECORD,
    REVERSE,
    SPANS,
    WRITE,
    Row,
)
from ckio.backends.base import Backend, Keeping
from ckio.errors import BadInput, CkioError, LevelFull, RunFailed, Stopped, StorageError
from ckio.model import Handing, Model, handed_by, layout_of, reached
from ckio.platform import Platform
from ckio.platform.clock import Clock, WallClock
from ckio.platform.memory import available
from ckio.schedule import Schedule, preparations, reservations
from ckio.schedule.policy import Overlap
from ckio.schedule.replay import validate
from ckio.schedule.timeline import Event

T = TypeVar("T")

Stop = Callable[[], bool]
"""Whether the run is to stop now."""

Moved = Callable[[int, float, float, int], object]
"""Called after a transfer: the number of its action, start and stop in seconds, and bytes."""

ALONE: Final = Overlap()
"""No transfer is concurrent with the computation."""

Times = tuple[float, float, int]
"""Of one action: start and stop in seconds from the start of the run, and bytes moved."""

PIECE: Final = 0.5
"""Seconds between two times that `stop` is asked, as far as the model's steps allow."""

_KEYS: Final = 1024
"""Keys that are cached, because most that are written are soon read and discarded."""

BEGIN, END = 3, 4
"""Places in a row."""

_GROWTH: Final = 4
"""A piece has at most so many times the steps of the one before: steps may become slower."""


def perform(
    schedule: Schedule,
    platform: Platform,
    model: Model,
    backends: Sequence[Backend],
    /,
    *,
    overlap: Overlap = ALONE,
    moved: Moved | None = None,
    clock: Clock | None = None,
    stop: Stop | None = None,
) -> Iterator[Event]:
    """Perform a schedule; gives each event as it has happened, and keeps none.

    What can be checked and reserved before the start is so when this is called; the first action
    is done, and the clock of the events starts, when the first event is asked for. Whoever leaves
    the loop leaves the model and the levels as they are after that event.

    Parameters
    ----------
    schedule, platform, model, backends, overlap, clock
        As `run` takes them.
    moved
        With overlap, told of each transfer that has ended: the number of its action, start, stop,
        and bytes. By one thread at a time, which holds up all others; what it raises ends the run.
    stop
        Asked before every action, and about every half second within a long Advance or Reverse:
        these are then given to the model in pieces, still one event each. Pieces are as long as
        the steps before them lasted, the first is one step; a Record is never cut. Once it says
        yes, `Stopped` is raised. Where several ranks run together, all have to be given the same
        pieces: it has an attribute `clock` then, of which they read the same times. With overlap,
        one that has a method `tell` is told before how many seconds stopping would take, as the
        levels are priced, to write what is staged.

    Raises
    ------
    IllegalAction, BadInput
        As `run` does, before the start.
    Stopped
        `stop` said yes. `action` is the number of the action to be done next, which may be done in
        part; `state` and `adjoint` say where the model stands, and nothing is said of its tape.
    StorageError, RunFailed
        As `run` does. `action` is the number of the one that failed, from 0, and for a
        StorageError of an access `level` is the number of the level.
    """
    times = performed(
        schedule,
        platform,
        model,
        backends,
        overlap=overlap,
        moved=moved,
        clock=clock,
        stop=stop,
    )
    return _events(schedule, times)


def _events(schedule: Schedule, times: Generator[Times]) -> Iterator[Event]:
    with within(times):
        for action, it in zip(schedule.actions, times, strict=True):
            yield Event(action, *it)


def performed(
    schedule: Schedule,
    platform: Platform,
    model: Model,
    backends: Sequence[Backend],
    /,
    *,
    overlap: Overlap = ALONE,
    moved: Moved | None = None,
    clock: Clock | None = None,
    stop: Stop | None = None,
) -> Generator[Times]:
    """Perform a schedule as `perform` does; gives the times of the actions alone."""
    if overlap:
        from ckio.runner.overlapped import overlapped

        return overlapped(
            schedule, platform, model, backends, overlap, clock=clock, stop=stop, moved=moved
        )
    make_ready(schedule, platform, model, backends)
    return by_schedule(schedule, platform, Performer(model, backends), clock or WallClock(), stop)


@contextmanager
def within(run: Generator[T]) -> Iterator[None]:
    """Run a block that takes from a run what it gives: what the block raises ends the run too.

    Otherwise the run would go on with its levels for as long as somebody holds the error, and with
    it the frames that it came through: though they are closed, or used for something else, by then.
    """
    try:
        yield
    except BaseException as error:
        run.throw(error)  # raises it, with notes on what else has failed
        raise


class Loading:
    """The context of a model's `load`; an error within remains one, also if the model hides it.

    Its state would be another one than everybody thinks, and so would the gradient.
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
    """Return an action as errors name it: with the name of its level."""
    match action:
        case Write(_, level) | Read(_, level) | Discard(_, level):
            return f"{action} on {platform.levels[level].name!r}"
        case _:
            return str(action)


class Performer:
    """The six actions, done by a model and its open levels; each returns the bytes that it moved.

    Where the model hands a checkpoint over, and the level keeps it where it is, nothing is copied.
    """

    def __init__(self, model: Model, backends: Sequence[Backend]) -> None:
        self._model, self._backends = model, backends
        self._handing = model if isinstance(model, Handing) else None
        self._handed = handed_by(model)
        self._keeping = [
            it if self._handed and isinstance(it, Keeping) else None for it in backends
        ]

    def advance(self, begin: int, end: int, /) -> int:
        return _arrived("advance", self._model.advance(begin, end), begin, end)

    def record(self, begin: int, end: int, /) -> int:
        return _arrived("record", self._model.record(begin, end), begin, end)

    def reverse(self, begin: int, end: int, /) -> int:
        self._model.reverse(begin, end)
        return 0

    def write(self, key: Key, level: int, /) -> int:
        model, memory = self._hands_over(key), self._keeping[level]
        layout = self._model.layout(key)
        if model is None or memory is None:
            return self._backends[level].write(key, layout, self._model.dump(key))
        return memory.keep(key, layout, model.give(key, memory.slot))

    def read(self, key: Key, level: int, /) -> int:
        backend, model, memory = self._backends[level], self._hands_over(key), self._keeping[level]
        layout = backend.layout(key)
        if model is not None and memory is not None and (data := memory.kept(key)) is not None:
            model.take(key, layout, data)
            return sum(view.nbytes for view in data)
        with Loading(self._model.load(key, layout)) as buffers:
            return backend.read(key, buffers)

    def _hands_over(self, key: Key) -> Handing | None:
        """Return the model, if it hands this checkpoint over."""
        return self._handing if key.kind in self._handed and not key.name else None

    def discard(self, key: Key, level: int, /) -> int:
        self._backends[level].discard(key)
        return 0


def _arrived(method: str, value: object, begin: int, end: int) -> int:
    """Return 0, the bytes that are moved; raises RunFailed unless the model came to `end`."""
    step = reached(method, value, begin, end)
    if step == end:
        return 0
    raise RunFailed(
        f"the model finished at step {step}, on the way to {end}; plan for {step} steps"
    )


def by_schedule(
    schedule: Schedule, platform: Platform, performer: Performer, clock: Clock, stop: Stop | None, /
) -> Generator[Times]:
    """Perform all actions of a schedule that is ready; gives the times of each."""
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
    """Perform one row after the other; gives the times of each from when the first is asked for.

    Parameters
    ----------
    rows
        Each with the number by which errors call it; asked for when those before it are done.
    key
        Makes the key of a row, of its kind, step and name.
    stopped
        Makes the error that is raised where `stop` says yes before this piece of this row.
    """
    cut, stop = (_whole, _never) if stop is None else (Pace(_common(stop, clock)).pieces, stop)
    spans = performer.advance, performer.record, performer.reverse
    accesses = performer.write, performer.read, performer.discard
    now = clock.now
    origin = now()
    for number, row in rows:
        start = now() - origin
        for piece in cut(row):
            if stop():
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
    """Return an error of ckio's as it is; for any other a RunFailed, of which it is the cause."""
    if isinstance(error, CkioError):
        return error
    failed = RunFailed(" ".join(map(str.strip, format_exception_only(error))))
    failed.__cause__ = error
    return failed


def named(error: BaseException, number: int, action: Action, platform: Platform, /) -> CkioError:
    """Return the error as one of ckio's that says which action it ended, on which level."""
    failed = own(error)
    failed.args = (f"#{number} {where(action, platform)}: {failed}",)
    failed.action = number
    if isinstance(failed, StorageError) and isinstance(action, ACCESSES):
        failed.level = action.level
    return failed


def _stopped(schedule: Schedule, platform: Platform, number: int, piece: Row, /) -> Stopped:
    """Return the error that says where the model stands before this piece of an action."""
    actions = schedule.actions
    machine = validate(replace(schedule, actions=actions[:number]), platform)
    match actions[number]:
        case Advance(begin, _) if begin < (reached := piece[BEGIN]):
            machine.apply(Advance(begin, reached))
        case Reverse(_, end) if (reached := piece[END]) < end:
            machine.apply(Reverse(reached, end))
    state = "no whole state is held" if machine.state is None else f"the state is x_{machine.state}"
    return Stopped(
        f"stopped before action #{number} of {len(actions)}: {state},"
        f" the adjoint is at {machine.adjoint}",
        action=number,
        state=machine.state,
        adjoint=machine.adjoint,
    )


def _whole(row: Row) -> tuple[Row]:
    return (row,)


def _never() -> bool:
    return False


def _common(stop: Stop, clock: Clock) -> Clock:
    """Return the clock by which long actions are cut: that of `stop`, where many ranks ask it."""
    common: Clock = getattr(stop, "clock", clock)
    return common


class Pace:
    """Cuts long moves into pieces of about `PIECE` seconds, by what the pieces before took.

    What was planned is not asked: the costs may be in other units, or wrong.
    """

    def __init__(self, clock: Clock) -> None:
        self._now = clock.now
        self._steps = {ADVANCE: 1, REVERSE: 1}

    def pieces(self, row: Row) -> Iterator[Row]:
        """The rows of the pieces, each to be done before the next is asked for."""
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
    """Check and reserve everything; raises IllegalAction or BadInput, and nothing was done."""
    validate(schedule, platform)
    fit(schedule, platform, model, backends)
    tape(schedule)
    reserve(schedule, platform, backends)
    prepare(schedule, model, backends)
    begins_at_x_0 = len(schedule) > 0 and int(schedule.actions.op[0]) != READ
    if begins_at_x_0 and (make_start := getattr(model, "make_start", None)) is not None:
        make_start()


def fit(schedule: Schedule, platform: Platform, model: Model, backends: Sequence[Backend]) -> None:
    """The schedule, the platform, the model and the open levels must speak of the same things."""
    if len(backends) != len(platform.levels):
        raise BadInput(f"{len(backends)} open levels for a platform of {len(platform.levels)}")
    chain = schedule.chain
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
    """Whether what was planned of its bytes is an estimate: they are known once they are there."""
    return bool(getattr(model, "estimated", False))


def _one_of_each_size(schedule: Schedule) -> Iterator[Key]:
    """One key of each kind and variable that is accessed; where steps differ, every key that is."""
    actions = schedule.actions
    for (code, kind), (name, words) in product(enumerate(KINDS), enumerate(actions.names)):
        there = (actions.op >= WRITE) & (actions.kind == code) & (actions.name == name)
        steps = actions.begin[there]
        if schedule.chain.varies and not name:
            yield from (Key(kind, step) for step in np.unique(steps).tolist())
        elif len(steps):
            yield Key(kind, 0, words)


def stored(schedule: Schedule, number: int, name: str, there: set[Key]) -> None:
    """A level must hold what the schedule starts with, and nothing else that it will write."""
    stored = schedule.stored[number] if number < len(schedule.stored) else frozenset()
    if missing := stored - there:
        raise BadInput(
            f"the schedule starts with {min(map(str, missing))} on level {name!r}; it is not"
            " stored there"
        )
    if not there - stored:
        return
    actions = schedule.actions
    writes = actions.take((actions.op == WRITE) & (actions.level == number))
    if twice := (there - stored).intersection(map(writes.key, writes.rows())):
        raise BadInput(
            f"level {name!r} already holds {min(map(str, twice))}, which the schedule writes there;"
            " give it an empty level, or discard what was left"
        )


def tape(schedule: Schedule) -> None:
    """The longest tape that is held at one time must fit in memory."""
    actions, there = schedule.actions, available()
    record = np.flatnonzero(actions.op == RECORD)
    if there is None or not record.size:
        return
    begin, end = actions.begin[record], actions.end[record]
    needed = schedule.chain.tape_bytes_of(begin, end)
    most = int(needed.argmax())
    if needed[most] > there:
        raise BadInput(
            f"the plan holds the tape of {end[most] - begin[most]} steps in memory,"
            f" {needed[most]} bytes; {there} are available: lower the platform's working_memory"
            " and plan again"
        )


def reserve(schedule: Schedule, platform: Platform, backends: Sequence[Backend]) -> None:
    """Make room for the whole plan, so that what is lacking is seen before the start."""
    for level, backend, sizes in zip(
        platform.levels, backends, reservations(schedule), strict=False
    ):
        wanted, room = {}, level.capacity
        # Sizes peak at different times: together they may ask for more than ever lies there.
        for nbytes, most in sorted(sizes.items(), reverse=True):
            each = level.stored(nbytes)
            wanted[nbytes] = most if room is None else min(most, room // max(1, each))
            room = None if room is None else room - wanted[nbytes] * each
        try:
            backend.reserve(wanted)
        except LevelFull as error:
            raise BadInput(
                f"level {level.name!r} has no room for this plan: {error};"
                " free some, or lower the level's capacity and plan again"
            ) from error


def prepare(schedule: Schedule, model: Model, backends: Sequence[Backend]) -> None:
    """Let levels that have use for it make now what the first write of a kind would make."""
    able = [getattr(backend, "prepare", None) for backend in backends]
    for prepare, kinds in zip(able, preparations(schedule) if any(able) else (), strict=False):
        if prepare is None:
            continue
        for key, most in kinds.items():
            with suppress(LevelFull):  # of the kinds together; they may peak at different times
                prepare(key, model.layout(key), most)
