"""Stopping a run after a signal, or before its walltime is over.

A run stops at a pause between two steps, when its `Stopper` says so. It stores its present state
and adjoint (`store_stop_point`). If there is no space, checkpoints that save fewer steps are
discarded for them. The process ends with exit status 75, and `--resume` continues the run.
"""

import os
import signal
import threading
import time
from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from types import FrameType
from typing import Any, Final, Self, TypeAlias

import numpy as np

from ckio.actions import Key, Kind, field_nbytes, nbytes_of
from ckio.actions.columns import ADVANCE, REVERSE
from ckio.actions.variables import of_a_fresh_model
from ckio.backends.base import Backend
from ckio.errors import CkioError, LevelFull, RunFailed, Stopped, StorageError
from ckio.model import Model
from ckio.parallel.group import ALONE, RankGroup
from ckio.platform import Level, Platform
from ckio.platform.chain import Chain
from ckio.platform.readable import option
from ckio.schedule import Schedule, seconds_of

STOPPED: Final = 75
"""The exit status of a run that can be resumed: EX_TEMPFAIL of sysexits.h, "try again"."""

WALLTIME: Final = "--walltime"

_WARNINGS: Final = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU)
"""The signals by which batch systems announce the end of a job."""

_PAUSE: Final = 0.5
"""Seconds between two pauses within a long action, or one step of the model if that is longer."""

_LEAVING: Final = 0.25
"""Seconds that a process needs to end after everything is stored."""


class Stopper:
    """A function that returns whether a run has to stop, and a context that handles signals.

    While the context is entered, SIGTERM and SIGHUP ask the run to stop. SIGHUP is sent when a
    terminal is closed; it stays ignored if it was ignored before, as under nohup. The warnings of
    batch systems, SIGUSR1, SIGUSR2 and SIGXCPU, which end a process by default, ask the run to
    stop, too, unless the program handles or ignores them itself. After `start`,
    SIGINT asks the run to stop, too. Before `start`, Ctrl-C interrupts the preparation of the run.

    The first signal asks the run to stop at the next pause. This also holds while the run stores
    its state at the end. A second Ctrl-C interrupts the run immediately. Further SIGTERMs have no
    effect, because a batch system that sends them sends SIGKILL later, and the run can use the time
    until then.

    Parameters
    ----------
    walltime
        The seconds that the process may take since it began; None without a limit.
    ranks
        The ranks. If one of them is asked to stop, all stop at the same pause.

    Attributes
    ----------
    why : str
        The signal or option that asked the run to stop; "" if none did.
    walltime : float or None
        As given.
    clock : Clock
        Only on several ranks: the clock of the group. All ranks divide long actions by this clock,
        so that they pause at the same steps.
    """

    def __init__(self, walltime: float | None = None, ranks: RankGroup = ALONE) -> None:
        self.why = ""
        # Python allows only the main thread to set signal handlers.
        self._hears = threading.current_thread() is threading.main_thread()
        self._ranks, self._agreed = ranks, False
        if not ranks.is_alone:
            self.clock = ranks.clock
        self.walltime = walltime
        self._end = inf if walltime is None else began() + walltime
        self._deadline = inf
        self._behind = 0.0
        self._before: dict[int, Any] = {}

    def start(self, needed: float, /) -> None:
        """Begin a run that needs `needed` seconds to stop; raises RunFailed if it is too late."""
        self._deadline = self._end - needed
        if (left := self._deadline - time.monotonic()) <= 0:
            raise RunFailed(
                f"{option('walltime')} is over before the first step: to stop takes {needed:.2g} s,"
                f" and {max(0.0, left + needed):.2g} s remained after calibrating and planning;"
                f" give a longer {option('walltime')}"
            )
        self._listen(signal.SIGINT)
        if not self._ranks.is_alone:
            self._ranks.wish = self._asked

    def report_backlog(self, behind: float, /) -> None:
        """Set the measured seconds that the staged checkpoints still need to be written."""
        self._behind = 2 * behind

    def __call__(self) -> bool:
        if self._ranks.is_alone:
            return self._asked()
        if self._ranks.wished and not self._agreed:
            self._agreed = True
            self.why = next(filter(None, self._ranks.gather(self.why)), "")
        return self._ranks.wished

    def _asked(self) -> bool:
        """Return whether this process has to stop."""
        if not self.why and time.monotonic() + self._behind >= self._deadline:
            self.why = WALLTIME
        return bool(self.why)

    def __enter__(self) -> Self:
        self._listen(signal.SIGTERM)
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
            self._listen(signal.SIGHUP)
        for number in _WARNINGS:
            if signal.getsignal(number) is signal.SIG_DFL:
                self._listen(number)
        return self

    def __exit__(self, *_: object) -> None:
        while self._before:
            signal.signal(*self._before.popitem())

    def _listen(self, number: signal.Signals) -> None:
        if not self._hears:
            return
        before = signal.signal(number, self._ask)
        # `start` may be called twice, for the forward and the reverse sweep: the first handler
        # counts.
        self._before.setdefault(number, before)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        del frame
        if self.why and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.why = signal.Signals(number).name


def began() -> float:
    """Return the time on `time.monotonic` at which this process began; now if it is not known."""
    try:
        after_name = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        ticks = int(after_name[19])  # starttime, field 22 of proc(5), since the machine was booted
        age = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, LookupError, AttributeError):
        age = 0.0
    return time.monotonic() - max(0.0, age)


def seconds_to_stop(schedule: Schedule, platform: Platform, /) -> float:
    """Return the seconds that stopping may take: until the next pause, and to store the state.

    They are the longest time between two pauses, plus twice the seconds to write a state and an
    adjoint to the slowest level, plus 0.25 s. The factor 2 allows for levels that are slower than
    when they were measured. For example, with pauses of 0.5 s and 3 s to write, the result is
    0.5 + 2 * 3 + 0.25 = 6.75 s.
    """
    chain, actions = schedule.chain, schedule.actions
    step = max(_PAUSE, float(np.max(chain.advance)), float(np.max(chain.reverse)))
    seconds = seconds_of(schedule, platform)
    in_pieces = (actions.op == ADVANCE) | (actions.op == REVERSE)
    pause = float(np.where(in_pieces, np.minimum(seconds, step), seconds).max(initial=0.0))
    variables = chain.variables
    state = (
        [chain.largest("restart")]
        if variables is None
        else [variables.nbytes[name] for name in variables.stored]
    )
    sizes = *state, chain.largest("adjoint")
    store = max((sum(map(level.write, sizes)) for level in platform.levels), default=0.0)
    return pause + 2 * store + _LEAVING


_Levels: TypeAlias = Sequence[tuple[Backend, Level]]
"""The durable levels, in the order of the platform (nearest first)."""


@dataclass(frozen=True, slots=True)
class StopPoint:
    """The steps at which a run has stopped, and the checkpoints that are stored of them.

    Attributes
    ----------
    state, adjoint
        The step of the state (None if there is none) and that of the adjoint, as in `Stopped`.
    stored : sequence of (Key, str)
        The checkpoints of this state and adjoint on durable levels, with the names of the levels.
    refused : str
        The reason why one of them is not stored; "" if all are.
    further : bool
        Whether a resumed run would make progress: it starts later than this process did.
    """

    state: int | None
    adjoint: int
    stored: Sequence[tuple[Key, str]]
    refused: str
    further: bool = True

    def text(self) -> str:
        """Return the stored checkpoints as a sentence."""
        stored = [f"{key} is stored on {level}" for key, level in self.stored]
        lost = [f"the present state cannot be stored ({self.refused})"] if self.refused else []
        return "; ".join([*stored, *lost]) or "older checkpoints remain"


def store_stop_point(
    stopped: Stopped,
    model: Model,
    backends: Sequence[Backend],
    platform: Platform,
    chain: Chain,
    /,
    *,
    before: Sequence[Collection[Key]] | None = None,
    ranks: RankGroup = ALONE,
) -> StopPoint:
    """Store the adjoint and the state of a stopped run on the nearest durable level with space.

    The adjoint is stored if a step was reversed. Older adjoint checkpoints are then discarded,
    because they are not needed any more. The state is stored if it is that of a step between 0 and
    the adjoint, because the next process then need not compute these steps again.

    If there is no space, checkpoints that save fewer steps are discarded. Checkpoints that save
    more steps are discarded, too, if the next process would otherwise begin no further on than this
    process, which began with the keys `before`.

    No error is raised if a level refuses to store: older checkpoints remain, from which more steps
    have to be computed. If a run has stopped at the end of the forward sweep and nothing can be
    stored of it, the last state that is stored in memory is copied to a durable level instead. All
    `ranks` store the same checkpoints; sizes are those of the rank where they are largest.
    """
    levels = [
        (backend, level)
        for backend, level in zip(backends, platform.levels, strict=True)
        if backend.durable
    ]
    storing = _Storing(model, levels, stopped.adjoint, chain, ranks)
    began = _reach(storing.whole(*before)) if before is not None else (inf, inf)
    stored, refused = [], ""
    for key in _wanted(stopped, chain.length):
        saves = storing.steps_saved(key)
        try:
            where = storing.store(key, saves if storing.is_further(began) else inf)
            stored.append((key, where))
        except StorageError as error:
            refused = str(error)
            continue
        if key.kind is Kind.ADJOINT:
            _discard_older(key, levels)
    if not storing.is_further(began):
        stored += storing.from_memory([it for it in backends if not it.durable])
    further = storing.is_further(began)
    return StopPoint(stopped.state, stopped.adjoint, stored, refused, further)


def _wanted(stopped: Stopped, steps: int) -> Iterator[Key]:
    if stopped.adjoint < steps:
        yield Key(Kind.ADJOINT, stopped.adjoint)
    if stopped.state is not None and 0 < stopped.state < stopped.adjoint:
        yield Key(Kind.RESTART, stopped.state)


def _reach(keys: Collection[Key]) -> tuple[float, float]:
    """Return the progress that these keys represent; a smaller pair is more progress.

    The pair is the step of the adjoint, and minus the step of the last state below it. For example,
    an adjoint at 60 and states at 0 and 40 give (60, -40).
    """
    adjoint = min((key.step for key in keys if key.kind is Kind.ADJOINT), default=inf)
    below = (key.step for key in keys if key.kind is Kind.RESTART and key.step < adjoint)
    return adjoint, -max(below, default=0)


def steps_saved(key: Key, restarts: Sequence[int], adjoint: int, /) -> int:
    """Return the number of steps that have to be done again if a checkpoint is not stored.

    `restarts` are the steps of the stored restart data, in order, and `adjoint` is that of the last
    stored adjoint. To reverse a step counts as two steps, because it is recorded before. For
    example, with restart data at 0 and 30 and an adjoint at 60, an adjoint at 50 saves 20 steps,
    restart data at 40 save 10 steps, and those at 60 save none.
    """
    if key.kind is Kind.ADJOINT:
        return 2 * (adjoint - key.step)
    if key.step >= adjoint:
        return 0
    begin = key.step + (key.kind is Kind.TAPE)  # a tape is lost with the step that it describes
    before = bisect_left(restarts, begin) - 1
    return begin - (restarts[before] if before >= 0 else 0)


@dataclass(frozen=True)
class _Storing:
    """The storing of checkpoints of a model whose adjoint is at this step, with discards for it.

    If there is a `source`, the data come from this level, and otherwise from the model.
    """

    model: Model
    levels: _Levels
    adjoint: int
    chain: Chain
    ranks: RankGroup
    source: Backend | None = None

    def made(self, keys: Collection[Key]) -> dict[Key, tuple[Key, ...]]:
        """Return the whole checkpoints that these keys of one level make up, with their parts.

        Variables that a fresh model has need not be stored: see `Variables.complete`.
        """
        made: dict[Key, tuple[Key, ...]] = {key: (key,) for key in keys if not key.name}
        if (variables := self.chain.variables) is None:
            return made
        length = self.chain.length
        complete = [
            Key(kind, step)
            for kind in variables.kinds
            for step in variables.complete(keys, kind, length)
        ]
        return made | {key: variables.parts(key, length) for key in complete}

    def whole(self, *levels: Collection[Key]) -> set[Key]:
        """Return the whole checkpoints of levels that have these keys."""
        return {key for keys in levels for key in self.made(keys)}

    def there(self) -> set[Key]:
        """Return the whole checkpoints on the durable levels."""
        return self.whole(*(_held(backend) for backend, _ in self.levels))

    def steps_saved(self, key: Key) -> int:
        """Return the number of steps that have to be done again if `key` is not stored."""
        there = self.there()
        adjoints = (key.step for key in there if key.kind is Kind.ADJOINT)
        return steps_saved(key, _restarts(there), min(adjoints, default=self.chain.length))

    def is_further(self, began: tuple[float, float]) -> bool:
        """Return whether the stored checkpoints represent more progress than `began`."""
        return _reach(self.there()) < began

    def store(self, key: Key, saves: float) -> str:
        """Store `key` on the first level that accepts it, and return the name of that level.

        Nothing is written if it is stored already. All its parts are stored on one level. If no
        level has free space, checkpoints that save at most `saves` steps are discarded for it.
        """
        refused: StorageError = LevelFull(
            "no level of this run is durable; add a directory or an archive as a level"
        )
        parts = [part for part in self.chain.parts(key) if not of_a_fresh_model(part)]
        for backend, level in self.levels:
            if _held(backend).issuperset(parts):
                return level.name
        for loss in (0, saves):
            for backend, level in self.levels:
                try:
                    self._make_space(parts, backend, level, loss)
                    self._write([part for part in parts if part not in _held(backend)], backend)
                except StorageError as error:
                    refused = error
                    continue
                return level.name
        raise refused

    def from_memory(self, volatile: Sequence[Backend]) -> list[tuple[Key, str]]:
        """Store the last whole state below the adjoint that a volatile level has, if any."""
        states = [
            (key.step, number, key)
            for number, backend in enumerate(volatile)
            for key in self.made(_held(backend))
            if key.kind is Kind.RESTART and key.step < self.adjoint
        ]
        if not states:
            return []
        _, number, key = max(states, key=lambda it: it[:2])
        try:
            saves = self.steps_saved(key)
            return [(key, replace(self, source=volatile[number]).store(key, saves))]
        except StorageError:
            return []

    def _write(self, keys: Collection[Key], backend: Backend) -> None:
        """Write all keys, or none."""
        written = list[Key]()
        try:
            for key in keys:
                if self.source is None:
                    backend.write(key, self.model.layout(key), self.model.dump(key))
                else:
                    layout = self.source.layout(key)
                    data = [memoryview(bytearray(field_nbytes(field))) for field in layout]
                    self.source.read(key, data)
                    backend.write(key, layout, data)
                written.append(key)
        except StorageError:
            for key in written:
                with suppress(StorageError):
                    backend.discard(key)
            raise

    def _make_space(
        self, parts: Sequence[Key], backend: Backend, level: Level, loss: float
    ) -> None:
        """Discard checkpoints that save at most `loss` steps, so that the parts of one more fit.

        Raises LevelFull if they do not fit. The space is counted as in plans. A level with a codec
        may accept more bytes, but the next process could not make a plan with them.
        """
        if level.capacity is None:
            return
        held = _held(backend)
        layouts = {key: backend.layout(key) for key in sorted(held, key=str)}
        layouts |= {key: self.model.layout(key) for key in parts if key not in held}
        mine = {key: level.stored(nbytes_of(layout)) for key, layout in layouts.items()}
        every = self.ranks.gather(mine)
        nbytes = {key: max(there[key] for there in every) for key in mine}
        space = nbytes, level.capacity
        gone = keys_to_discard(self.made(held), parts, *space, reversing=self.adjoint, loss=loss)
        if gone is None:
            raise LevelFull(
                f"level {level.name} has no space for {parts[0]}; increase its capacity"
            )
        for key in gone:
            backend.discard(key)


def keys_to_discard(
    made: Mapping[Key, Collection[Key]],
    parts: Collection[Key],
    nbytes: Mapping[Key, int],
    capacity: int,
    /,
    *,
    reversing: int,
    loss: float,
) -> list[Key] | None:
    """Return the keys to discard from a level so that the parts of one more checkpoint fit.

    Whole checkpoints are given up, those first that save the fewest steps, until the parts of the
    others fit together with the new ones. The result is None if they never fit, or if more than
    `loss` steps would be lost.

    Parameters
    ----------
    made : mapping of Key to keys
        The whole checkpoints on the level with their parts. Adjoint checkpoints are not given up.
    parts : collection of Key
        The parts of the new checkpoint.
    nbytes : mapping of Key to int
        The bytes of each key on the level, and of each new part.
    capacity : int
        The bytes of the level.
    reversing : int
        The step of the adjoint. Checkpoints at this step or later are not needed any more.
    loss : int
        The number of steps that the new checkpoint saves.
    """
    if sum(nbytes.values()) <= capacity:
        return []
    kept, lost, least = dict(made), 0, _by_worth(made, reversing)
    while True:
        needed = nbytes.keys() & {*parts}.union(*kept.values())
        if sum(nbytes[part] for part in needed) <= capacity:
            return sorted(nbytes.keys() - needed, key=str)
        if not least:
            return None
        key, saved = least.pop(0)
        del kept[key]
        lost += saved
        if lost > loss:
            return None


def _by_worth(checkpoints: Collection[Key], reversing: int) -> list[tuple[Key, int]]:
    """Return restart data and tapes with the number of steps that each saves, the least first."""
    restarts = _restarts(checkpoints)
    worth = [
        (key, steps_saved(key, restarts, reversing))
        for key in checkpoints
        if key.kind is not Kind.ADJOINT
    ]
    return sorted(worth, key=lambda pair: (pair[1], pair[0].kind.value, -pair[0].step))


def _restarts(keys: Collection[Key]) -> list[int]:
    return sorted(key.step for key in keys if key.kind is Kind.RESTART)


def _discard_older(adjoint: Key, levels: _Levels) -> None:
    for backend, _ in levels:
        for key in sorted(_held(backend), key=str):
            if key.kind is Kind.ADJOINT and key.step > adjoint.step:
                with suppress(StorageError):
                    backend.discard(key)


def _held(backend: Backend) -> frozenset[Key]:
    """Return the keys on a level; none if the level has failed and cannot list them."""
    with suppress(StorageError):
        return frozenset(backend.keys())
    return frozenset()


class Halted(CkioError):
    """A run was stopped by a signal or its walltime, and can be resumed.

    Attributes
    ----------
    why : str
        The name of the signal, or "--walltime".
    stop_point : StopPoint
        The steps at which it has stopped, and the stored checkpoints.
    """

    def __init__(self, why: str, stop_point: StopPoint) -> None:
        reason = option("walltime") if why == WALLTIME else why
        super().__init__(f"stopped by {reason}: {stop_point.text()}")
        self.why = why
        self.stop_point = stop_point

    def figures(self) -> dict[str, Any]:
        """Return the entries of `--json`."""
        stop_point = self.stop_point
        return {
            "stopped": True,
            "why": self.why,
            "state": stop_point.state,
            "adjoint": stop_point.adjoint,
            "stored": {str(key): level for key, level in stop_point.stored},
            "refused": stop_point.refused or None,
        }


def halted(why: str, stop_point: StopPoint, /) -> Halted | RunFailed:
    """Return the error that ends a stopped run.

    It is RunFailed if the walltime is so short that resumed processes would never make progress.
    After a signal it is always Halted, because the next signal may come later.
    """
    if why == WALLTIME and not stop_point.further:
        return RunFailed(
            f"{option('walltime')} is too short: the next process would begin at the same step as"
            f" this one ({stop_point.text()}); give a longer {option('walltime')}"
        )
    return Halted(why, stop_point)
