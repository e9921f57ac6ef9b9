"""Stopping a run in good time: by a signal, or before its walltime is over.

A run that is asked to stop does so at the next pause between two steps: `Stopper` says when. It
stores where it stands (`store_standing`), if need be at the cost of checkpoints that save fewer
steps, and ends with exit status 75: `--resume` continues from there.
"""

import os
import signal
import threading
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from types import FrameType, TracebackType
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
from ckio.schedule import Schedule, seconds_of

STOPPED: Final = 75
"""The exit status of a run that can be resumed: EX_TEMPFAIL, try again."""

WALLTIME: Final = "--walltime"

_PAUSE: Final = 0.5
"""Seconds between two pauses within a long action, as far as the model's steps allow."""

_LEAVING: Final = 0.25
"""Seconds that a process takes to end."""


class Stopper:
    """Says whether a run is to stop, and why; it listens to SIGTERM while it is entered.

    To SIGHUP too, which comes where a terminal is closed, unless that is ignored, as by nohup. From
    `start` on it listens to SIGINT as well: before, Ctrl-C interrupts what is being prepared.
    The first signal asks to stop at the next pause, also while what is stored at the end is being
    stored. A second Ctrl-C does not wait: it interrupts. Further SIGTERMs change nothing, as those
    who send them follow up with SIGKILL, and until then the time is of use.

    Parameters
    ----------
    end
        When the process has to have ended, on `time.monotonic`; None if it has all the time.
    ranks
        The ranks that stop together, once one of them is to: at the same pause.

    Attributes
    ----------
    why : str
        What asked to stop; "" if nothing did.
    walltime : float or None
        Seconds that the process has since it began; None if nobody said that.
    clock : Clock
        That of the group, where there are several ranks: by it, all cut long moves alike.
    """

    def __init__(self, end: float | None = None, ranks: RankGroup = ALONE) -> None:
        self.why = ""
        # Python lets the main thread alone set what a signal calls.
        self._hears = threading.current_thread() is threading.main_thread()
        self._ranks, self._agreed = ranks, False
        if not ranks.is_alone:
            self.clock = ranks.clock
        self.walltime: float | None = None
        self._end = inf if end is None else end
        self._deadline = inf
        self._behind = 0.0
        self._before: dict[int, Any] = {}

    @classmethod
    def within(cls, walltime: float | None, ranks: RankGroup = ALONE, /) -> Self:
        """Return one for a process that has so many seconds since it began; None for all time."""
        if walltime is None:
            return cls(None, ranks)
        stopper = cls(began() + walltime, ranks)
        stopper.walltime = walltime
        return stopper

    def start(self, needed: float, /) -> None:
        """Begin a run that takes so many seconds to stop; raises RunFailed if it is too late."""
        self._deadline = self._end - needed
        if (left := self._deadline - time.monotonic()) <= 0:
            raise RunFailed(
                f"--walltime is over before the first step: to stop takes {needed:.2g} s, and"
                f" {max(0.0, left + needed):.2g} s of it were left; give more"
            )
        self._listen(signal.SIGINT)
        if not self._ranks.is_alone:
            self._ranks.wish = self._asked

    def tell(self, behind: float, /) -> None:
        """Take note that writing what is staged takes so many seconds more, as was measured."""
        self._behind = 2 * behind

    def __call__(self) -> bool:
        if self._ranks.is_alone:
            return self._asked()
        if self._ranks.wished and not self._agreed:
            self._agreed = True
            self.why = next(filter(None, self._ranks.gather(self.why)), "")
        return self._ranks.wished

    def _asked(self) -> bool:
        """Whether this process is to stop."""
        if not self.why and time.monotonic() + self._behind >= self._deadline:
            self.why = WALLTIME
        return bool(self.why)

    def __enter__(self) -> Self:
        self._listen(signal.SIGTERM)
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
            self._listen(signal.SIGHUP)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        while self._before:
            signal.signal(*self._before.popitem())

    def _listen(self, number: signal.Signals) -> None:
        if not self._hears:
            return
        before = signal.signal(number, self._ask)
        self._before.setdefault(number, before)  # a run may begin twice: forward, and back

    def _ask(self, number: int, frame: FrameType | None) -> None:
        del frame
        if self.why and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.why = signal.Signals(number).name


def began() -> float:
    """Return when this process began, on `time.monotonic`; now where that is not known."""
    try:
        after_name = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        ticks = int(after_name[19])  # since the machine was started; field 22 of proc(5)
        age = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, LookupError, AttributeError):
        age = 0.0
    return time.monotonic() - max(0.0, age)


def seconds_to_stop(schedule: Schedule, platform: Platform, /) -> float:
    """Return how long stopping may take: until the next pause, and to store where the run stands.

    Storing is taken to be twice as slow as when the levels were measured.
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
"""The durable levels, nearest first."""


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a stopped run stands, and what of it is stored.

    Attributes
    ----------
    state, adjoint
        As `Stopped` has them.
    stored : sequence of (Key, str)
        What lies on a durable level of where it stands, and the name of the level.
    refused : str
        Why something is not; "" if everything is.
    further : bool
        Whether the next process will stand further than this one began, as far as is known.
    """

    state: int | None
    adjoint: int
    stored: Sequence[tuple[Key, str]]
    refused: str
    further: bool = True

    def told(self) -> str:
        """Say it in words."""
        kept = [f"{key} is stored on {level}" for key, level in self.stored]
        lost = [f"where it stands cannot be stored ({self.refused})"] if self.refused else []
        return "; ".join([*kept, *lost]) or "older checkpoints remain"


def store_standing(
    stopped: Stopped,
    model: Model,
    backends: Sequence[Backend],
    platform: Platform,
    chain: Chain,
    /,
    *,
    before: Sequence[Collection[Key]] | None = None,
    ranks: RankGroup = ALONE,
) -> Standing:
    """Store the adjoint and the state of a stopped run on the nearest durable level that can.

    The adjoint is stored if anything was reversed, and takes the place of older ones, which need
    not be kept beside it; the state if the way there need not be gone again for it. Where there is
    no space, what saves fewer steps goes for it; and what saves more, too, if otherwise the next
    process would stand no further than this one, which began with what was there `before`. Nothing
    is raised where a level refuses: older checkpoints remain, and there is less to resume from. A
    run that stopped at the turn, of which nothing can be stored, keeps the last state that lies in
    memory instead. The ranks of a `ranks` store the same, by what is largest on any of them.
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
        come = _come(key, storing.there(), chain.length) if storing.is_further(began) else inf
        try:
            stored.append((key, storing.store(key, come)))
        except StorageError as error:
            refused = str(error)
            continue
        if key.kind is Kind.ADJOINT:
            _discard_older(key, levels)
    if not storing.is_further(began):
        stored += storing.from_memory([it for it in backends if not it.durable])
    further = storing.is_further(began)
    return Standing(stopped.state, stopped.adjoint, stored, refused, further)


def _wanted(stopped: Stopped, steps: int) -> Iterator[Key]:
    if stopped.adjoint < steps:
        yield Key(Kind.ADJOINT, stopped.adjoint)
    if stopped.state is not None and 0 < stopped.state < stopped.adjoint:
        yield Key(Kind.RESTART, stopped.state)


def _reach(keys: Collection[Key]) -> tuple[float, float]:
    """Return how far these keys reach, less being further: the adjoint, then the way to it."""
    adjoint = min((key.step for key in keys if key.kind is Kind.ADJOINT), default=inf)
    below = (key.step for key in keys if key.kind is Kind.RESTART and key.step < adjoint)
    return adjoint, -max(below, default=0)


def _come(key: Key, there: Collection[Key], steps: int) -> float:
    """Return the steps that are done again if this is not stored: to reverse one takes two."""
    held = {other.step for other in there if other.kind is key.kind}
    if key.kind is Kind.ADJOINT:
        return 2 * (min(held, default=steps) - key.step)
    return key.step - max((step for step in held if step <= key.step), default=0)


@dataclass(frozen=True)
class _Storing:
    """A way to store keys of a model whose adjoint is at this step, at the cost of other keys."""

    model: Model
    levels: _Levels
    adjoint: int
    chain: Chain
    ranks: RankGroup
    source: Backend | None = None

    def made(self, keys: Collection[Key]) -> dict[Key, tuple[Key, ...]]:
        """Return the whole checkpoints that these keys of one level make, with their parts.

        What a fresh model has need not be there: see `made.complete`.
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
        """Return the whole checkpoints where levels hold these keys."""
        return {key for keys in levels for key in self.made(keys)}

    def there(self) -> set[Key]:
        """Return the whole checkpoints that lie on a level."""
        return self.whole(*(_held(backend) for backend, _ in self.levels))

    def is_further(self, began: tuple[float, float]) -> bool:
        """Whether what lies there reaches further than this."""
        return _reach(self.there()) < began

    def store(self, key: Key, come: float) -> str:
        """Store it, unless it is, on the first level that takes it; returns that level's name.

        All its parts go to one level. As much as `come` steps is worth goes for it where no level
        takes it as they are. A level with a codec may take more than its plans have space for, and
        the next process could not resume from that: their space is what counts.
        """
        refused: StorageError = LevelFull("no level of this run outlives it")
        needed = self.chain.parts(key)
        needed = tuple(part for part in needed if not of_a_fresh_model(part))
        for backend, level in self.levels:
            if _held(backend).issuperset(needed):
                return level.name
        for displacing in (False, True):
            for backend, level in self.levels:
                try:
                    if displacing and not self._displace(needed, backend, level, come):
                        continue
                    if self._lacking(needed, backend, level)[0] > 0:
                        raise LevelFull(f"level {level.name} has no room for {key}")
                    self._write([part for part in needed if part not in _held(backend)], backend)
                except StorageError as error:
                    refused = error
                    continue
                return level.name
        raise refused

    def from_memory(self, volatile: Sequence[Backend]) -> list[tuple[Key, str]]:
        """Store the last whole state below the adjoint that such a level holds, if there is one."""
        held = [
            (key.step, number, key)
            for number, backend in enumerate(volatile)
            for key in self.made(_held(backend))
            if key.kind is Kind.RESTART and key.step < self.adjoint
        ]
        if not held:
            return []
        _, number, key = max(held, key=lambda it: it[:2])
        try:
            come = _come(key, self.there(), self.chain.length)
            return [(key, replace(self, source=volatile[number]).store(key, come))]
        except StorageError:
            return []

    def _write(self, keys: Collection[Key], backend: Backend) -> None:
        """Write all of them, or none; from the source, if there is one, else from the model."""
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

    def _displace(
        self, needed: Collection[Key], backend: Backend, level: Level, come: float
    ) -> bool:
        """Discard what is worth less than what is `needed`, if that frees enough; say if it did."""
        if level.capacity is None:  # it is its disk that is full
            return False
        lacking, sizes = self._lacking(needed, backend, level)
        made = self.made(sizes)
        gone = displaced(sizes, lacking, reversing=self.adjoint, come=come, made=made, stays=needed)
        for other in gone:
            backend.discard(other)
        return bool(gone)

    def _lacking(
        self, needed: Collection[Key], backend: Backend, level: Level
    ) -> tuple[int, dict[Key, int]]:
        """Return the bytes that a level lacks for what is `needed`, and those of all it holds.

        As plans count them, and of each checkpoint on the rank where it takes most.
        """
        if level.capacity is None:
            return 0, {}
        held = _held(backend)
        layouts = {key: backend.layout(key) for key in sorted(held, key=str)}
        layouts |= {key: self.model.layout(key) for key in needed if key not in held}
        taken = self._taken({key: level.stored(nbytes_of(it)) for key, it in layouts.items()})
        lacking = sum(taken.values()) - level.capacity
        return lacking, {key: nbytes for key, nbytes in taken.items() if key in held}

    def _taken(self, mine: Mapping[Key, int]) -> dict[Key, int]:
        """Return bytes of each of these on the rank where they are most."""
        every = self.ranks.gather(mine)
        return {key: max(there[key] for there in every) for key in mine}


def displaced(
    held: Mapping[Key, int],
    lacking: int,
    /,
    *,
    reversing: int,
    come: float,
    made: Mapping[Key, Collection[Key]] | None = None,
    stays: Collection[Key] = (),
) -> list[Key]:
    """Return the keys that are cheapest to lose and free so many bytes; none where that is dear.

    `held` says what each takes of its level. `reversing` is the step of the adjoint: what lies from
    there on is of no use any more. Adjoints stay, and so does what `stays`. It is dear if all
    together save more than `come` steps: as many are lost if nothing is discarded.

    `made` are the whole checkpoints with their parts, where these are single variables: one that no
    checkpoint needs goes first, and one that several need goes with the last of them.
    """
    made = {key: (key,) for key in held} if made is None else made
    needing = Counter(part for key in made for part in made[key])
    free = [key for key in held if key.kind is not Kind.ADJOINT and key not in needing]
    gone, lost = list[Key](), 0
    for saved, parts_of in [(0, [key]) for key in sorted(free, key=str)] + [
        (saved, made[key]) for key, saved in _by_worth(made, reversing)
    ]:
        if lacking <= 0:
            break
        if not any(part in held for part in parts_of):
            continue
        lost += saved
        needing.subtract(parts_of)
        for part in parts_of:
            if needing[part] <= 0 and part in held and part not in stays:
                gone.append(part)
                lacking -= held[part]
    return gone if lacking <= 0 and lost <= come else []


def _by_worth(held: Collection[Key], reversing: int) -> list[tuple[Key, int]]:
    """Return restart data and tapes with the steps that each saves, the cheapest first."""
    restarts = sorted(key.step for key in held if key.kind is Kind.RESTART)

    def saved(key: Key) -> int:
        if key.step >= reversing:
            return 0
        tape = key.kind is Kind.TAPE
        lower = bisect_left(restarts, key.step + tape) - 1
        return key.step + tape - (restarts[lower] if lower >= 0 else 0)

    worth = [(key, saved(key)) for key in held if key.kind is not Kind.ADJOINT]
    return sorted(worth, key=lambda pair: (pair[1], pair[0].kind.value, -pair[0].step))


def _discard_older(adjoint: Key, levels: _Levels) -> None:
    for backend, _ in levels:
        for key in sorted(_held(backend), key=str):
            if key.kind is Kind.ADJOINT and key.step > adjoint.step:
                with suppress(StorageError):
                    backend.discard(key)


def _held(backend: Backend) -> frozenset[Key]:
    """Return the keys on a level; none where it cannot say, as one that has failed."""
    with suppress(StorageError):
        return frozenset(backend.keys())
    return frozenset()


class Halted(CkioError):
    """A run has stopped as it was asked to, and can be resumed.

    Attributes
    ----------
    why : str
        What asked it to: a signal, or --walltime.
    standing : Standing
    """

    def __init__(self, why: str, standing: Standing) -> None:
        super().__init__(f"stopped by {why}: {standing.told()}")
        self.why = why
        self.standing = standing

    def figures(self) -> dict[str, Any]:
        """Return the entries of `--json`."""
        standing = self.standing
        return {
            "stopped": True,
            "why": self.why,
            "state": standing.state,
            "adjoint": standing.adjoint,
            "stored": {str(key): level for key, level in standing.stored},
            "refused": standing.refused or None,
        }


def halted(why: str, standing: Standing, /) -> Halted | RunFailed:
    """Return the error that ends a stopped run: RunFailed where resuming it would come no further.

    Of a signal that is not known: the next one may come later.
    """
    if why == WALLTIME and not standing.further:
        return RunFailed(
            "--walltime is too short: the next process would stand where this one began"
            f" ({standing.told()}); give more"
        )
    return Halted(why, standing)
