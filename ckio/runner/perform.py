"""A schedule performed an action at a time.

The model and its levels are driven through `Hands`, which say what each action does to them. There
is one table of their six methods by the codes of the actions' columns: no action object is made
unless somebody looks at it.
"""

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from traceback import format_exception_only
from typing import Final, assert_never

from ckio.actions import Action, Advance, Discard, Key, Read, Record, Reverse, Write
from ckio.actions.columns import ACCESSES, ADVANCE, KINDS, REVERSE, WRITE, Row
from ckio.backends.base import Backend, Keeping
from ckio.errors import CkioError, RunFailed, Stopped, StorageError
from ckio.model import Handing, Model, handed_by, reached
from ckio.platform import Platform
from ckio.platform.clock import Clock, WallClock
from ckio.runner.before import make_ready
from ckio.runner.leaving import Loading, within
from ckio.schedule import Schedule
from ckio.schedule.policy import Overlap
from ckio.schedule.replay import validate
from ckio.schedule.timeline import Event

Stop = Callable[[], bool]
"""Whether the run is to stop now."""

Moved = Callable[[int, float, float, int], object]
"""Told of a transfer: the number of its action, start and stop in seconds, and bytes."""

ALONE: Final = Overlap()
"""Nothing goes on behind the program."""

Times = tuple[float, float, int]
"""Of one action: start and stop in seconds from the start of the run, and bytes moved."""

PIECE: Final = 0.5
"""Seconds between two times that `stop` is asked, as far as the model's steps allow."""

_KEYS: Final = 1024
"""Keys kept at hand, because most that are written are soon read and discarded."""

_BEGIN, _END = 3, 4
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
    """`perform` for those who do not look at the actions: their times alone."""
    if overlap:
        from ckio.runner.overlapped import overlapped

        return overlapped(
            schedule, platform, model, backends, overlap, clock=clock, stop=stop, moved=moved
        )
    make_ready(schedule, platform, model, backends)
    return by_hands(schedule, platform, Hands(model, backends), clock or WallClock(), stop)


def perform_one(action: Action, model: Model, backends: Sequence[Backend], /) -> int:
    """Do one action; returns the bytes that reached or left a level.

    Raises what the model or the level raises, and RunFailed where the model finished before.
    """
    return Hands(model, backends).do(action)


def where(action: Action, platform: Platform, /) -> str:
    """An action as errors name it: with the name of its level."""
    match action:
        case Write(_, level) | Read(_, level) | Discard(_, level):
            return f"{action} on {platform.levels[level].name!r}"
        case _:
            return str(action)


class Hands:
    """A model and its open levels: what each action does, and the bytes that it moves.

    Where the model hands a checkpoint over, and the level keeps it where it is, nothing is copied.
    """

    def __init__(self, model: Model, backends: Sequence[Backend]) -> None:
        self._model, self._backends = model, backends
        self._handing = model if isinstance(model, Handing) else None
        self._handed = handed_by(model)
        self._keeping = [
            it if self._handed and isinstance(it, Keeping) else None for it in backends
        ]

    def do(self, action: Action, /) -> int:
        """Any action; returns the bytes that reached or left a level."""
        match action:
            case Advance(begin, end):
                return self.advance(begin, end)
            case Record(begin, end):
                return self.record(begin, end)
            case Reverse(begin, end):
                return self.reverse(begin, end)
            case Write(key, level):
                return self.write(key, level)
            case Read(key, level):
                return self.read(key, level)
            case Discard(key, level):
                return self.discard(key, level)
            case _:
                assert_never(action)

    def advance(self, begin: int, end: int, /) -> int:
        return _came("advance", self._model.advance(begin, end), begin, end)

    def record(self, begin: int, end: int, /) -> int:
        return _came("record", self._model.record(begin, end), begin, end)

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
        """The model, if it hands this checkpoint over."""
        return self._handing if key.kind in self._handed and not key.name else None

    def discard(self, key: Key, level: int, /) -> int:
        self._backends[level].discard(key)
        return 0


def _came(method: str, value: object, begin: int, end: int) -> int:
    """No bytes are moved by a model that came to the end of its steps, as it must."""
    step = reached(method, value, begin, end)
    if step == end:
        return 0
    raise RunFailed(
        f"the model finished at step {step}, on the way to {end}; plan for {step} steps"
    )


def by_hands(
    schedule: Schedule, platform: Platform, hands: Hands, clock: Clock, stop: Stop | None, /
) -> Generator[Times]:
    """The times of all actions of a schedule that is ready, as these hands do them."""
    cut, stop = (_whole, _never) if stop is None else (Pace(agreed(stop, clock)).pieces, stop)
    spans = hands.advance, hands.record, hands.reverse
    accesses = hands.write, hands.read, hands.discard
    actions, now = schedule.actions, clock.now
    key = lru_cache(_KEYS)(partial(_key, actions.names))
    origin = now()
    for number, row in enumerate(actions.rows()):
        start = now() - origin
        for piece in cut(row):
            if stop():
                raise _stopped(schedule, platform, number, piece)
            op, kind, level, begin, end, name = piece
            try:
                if op < WRITE:
                    nbytes = spans[op](begin, end)
                else:
                    nbytes = accesses[op - WRITE](key(kind, begin, name), level)
            except CkioError as error:
                _name(error, str(error), number, actions[number], platform)
                raise
            except Exception as error:
                words = " ".join(map(str.strip, format_exception_only(error)))
                failed = RunFailed()
                _name(failed, words, number, actions[number], platform)
                raise failed from error
        yield start, now() - origin, nbytes


def _name(error: CkioError, words: str, number: int, action: Action, platform: Platform) -> None:
    """Let an error say which action it ended, and on which level."""
    error.args = (f"#{number} {where(action, platform)}: {words}",)
    error.action = number
    if isinstance(error, StorageError) and isinstance(action, ACCESSES):
        error.level = action.level


def _stopped(schedule: Schedule, platform: Platform, number: int, piece: Row) -> Stopped:
    """Where the model stands before this piece of an action: the Machine says it."""
    actions = schedule.actions
    machine = validate(replace(schedule, actions=actions[:number]), platform)
    match actions[number]:
        case Advance(begin, _) if begin < (reached := piece[_BEGIN]):
            machine.apply(Advance(begin, reached))
        case Reverse(_, end) if (reached := piece[_END]) < end:
            machine.apply(Reverse(reached, end))
    state = "no whole state is held" if machine.state is None else f"the state is x_{machine.state}"
    return Stopped(
        f"stopped before action #{number} of {len(actions)}: {state},"
        f" the adjoint is at {machine.adjoint}",
        action=number,
        state=machine.state,
        adjoint=machine.adjoint,
    )


def _key(names: tuple[str, ...], kind: int, step: int, name: int) -> Key:
    return Key(KINDS[kind], step, names[name])


def _whole(row: Row) -> tuple[Row]:
    return (row,)


def _never() -> bool:
    return False


def agreed(stop: Stop | None, clock: Clock, /) -> Clock:
    """The clock by which long moves are cut: that of `stop`, where it is asked on many ranks."""
    found: Clock = getattr(stop, "clock", clock)
    return found


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
