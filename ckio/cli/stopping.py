"""Stopping a run in good time: by a signal, or before its walltime is over.

A run that is asked to stop does so at the next pause between two steps, stores where it stands, and
ends with exit status 75: `--resume` goes on from there.
"""

import os
import re
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Final, Self

import click
import numpy as np

from ckio.actions import Key, Kind
from ckio.backends.base import Backend
from ckio.columns import ADVANCE, REVERSE
from ckio.errors import BadInput, CkioError, LevelFull, RunFailed, Stopped, StorageError
from ckio.model import Model
from ckio.platforms import Platform
from ckio.schedule import Schedule, seconds_of

STOPPED: Final = 75
"""The exit status of a run that can be resumed: EX_TEMPFAIL, try again."""

_UNITS: Final = {"d": 86400, "h": 3600, "m": 60, "s": 1}

_PAUSE: Final = 0.5
"""Seconds between two pauses within a long action, as far as the model's steps allow."""

_LEAVING: Final = 0.25
"""Seconds that a process takes to end."""


def duration(text: str, /) -> float:
    """Seconds from what a person writes; raises BadInput.

    >>> duration("90"), duration("30m"), duration("3h55m"), duration("1d"), duration("2.5s")
    (90.0, 1800.0, 14100.0, 86400.0, 2.5)
    """
    number = r"([0-9]{1,9}(?:\.[0-9]{1,9})?)"
    units = "".join(rf"(?:{number}\s*{unit}\s*)?" for unit in _UNITS)
    parts = re.fullmatch(rf"\s*(?:{number}|{units})\s*", text)
    values = parts.groups() if parts else ()
    seconds = sum(
        float(value) * unit
        for value, unit in zip(values, (1, *_UNITS.values()), strict=False)
        if value
    )
    if not seconds:
        raise BadInput(f"{text[:80]!r} is not a time; write seconds, or e.g. 30m, 3h55m, 1d")
    return seconds


def duration_option(*names: str, **attributes: Any) -> Callable[[Any], Any]:
    """An option for a time span."""

    def seconds(_context: click.Context, _option: click.Parameter, value: Any) -> Any:
        try:
            return None if value is None else duration(value)
        except BadInput as error:
            raise click.BadParameter(str(error)) from None

    return click.option(*names, metavar="TIME", callback=seconds, **attributes)


class Stopper:
    """Says whether a run is to stop, and why; it listens to SIGTERM while it is entered.

    From `start` on it listens to SIGINT as well: before, Ctrl-C interrupts what is being prepared.
    The first signal asks to stop at the next pause, also while what is stored at the end is being
    stored. A second Ctrl-C does not wait: it interrupts. Further SIGTERMs change nothing, as those
    who send them follow up with SIGKILL, and until then the time is of use.

    Parameters
    ----------
    end
        When the process has to have ended, on `time.monotonic`; None if it has all the time.

    Attributes
    ----------
    why : str
        What asked to stop; "" if nothing did.
    """

    def __init__(self, end: float | None = None) -> None:
        self.why = ""
        self._end = inf if end is None else end
        self._deadline = inf
        self._before: dict[int, Any] = {}

    def start(self, needed: float, /) -> None:
        """A run begins that takes so many seconds to stop; raises RunFailed if it is too late."""
        self._deadline = self._end - needed
        if (left := self._deadline - time.monotonic()) <= 0:
            raise RunFailed(
                f"--walltime is over before the first step: to stop takes {needed:.2g} s, and"
                f" {max(0.0, left + needed):.2g} s of it were left; give more"
            )
        self._listen(signal.SIGINT)

    def __call__(self) -> bool:
        if not self.why and time.monotonic() >= self._deadline:
            self.why = "--walltime"
        return bool(self.why)

    def __enter__(self) -> Self:
        self._listen(signal.SIGTERM)
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
        self._before[number] = signal.signal(number, self._ask)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        del frame
        if self.why and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.why = signal.Signals(number).name


def began() -> float:
    """When this process began, on `time.monotonic`; now where the system does not say."""
    try:
        after_name = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        ticks = int(after_name[19])  # since the machine was started; field 22 of proc(5)
        age = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, LookupError, AttributeError):
        age = 0.0
    return time.monotonic() - max(0.0, age)


def seconds_to_stop(schedule: Schedule, platform: Platform, /) -> float:
    """What stopping may take: the longest time between two pauses, then to store where it stands.

    Storing is taken to be twice as slow as when the levels were measured.
    """
    chain, actions = schedule.chain, schedule.actions
    step = max(_PAUSE, float(np.max(chain.advance)), float(np.max(chain.reverse)))
    seconds = seconds_of(schedule, platform)
    in_pieces = (actions.op == ADVANCE) | (actions.op == REVERSE)
    pause = float(np.where(in_pieces, np.minimum(seconds, step), seconds).max(initial=0.0))
    sizes = chain.largest("restart"), chain.largest("adjoint")
    store = max((sum(map(level.write, sizes)) for level in platform.levels), default=0.0)
    return pause + 2 * store + _LEAVING


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
    """

    state: int | None
    adjoint: int
    stored: Sequence[tuple[Key, str]]
    refused: str

    def told(self) -> str:
        """It in words."""
        kept = [f"{key} is stored on {level}" for key, level in self.stored]
        lost = [f"where it stands cannot be stored ({self.refused})"] if self.refused else []
        return "; ".join([*kept, *lost]) or "older checkpoints remain"


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
        """What `--json` says."""
        standing = self.standing
        return {
            "stopped": True,
            "why": self.why,
            "state": standing.state,
            "adjoint": standing.adjoint,
            "stored": {str(key): level for key, level in standing.stored},
            "refused": standing.refused or None,
        }


def store_standing(
    stopped: Stopped, model: Model, backends: Sequence[Backend], platform: Platform, steps: int, /
) -> Standing:
    """Store the adjoint and the state of a stopped run on the nearest durable level that can.

    The adjoint is stored if anything was reversed, and takes the place of older ones, which need
    not be kept beside it; the state if the way there need not be gone again for it. Nothing is
    raised where a level refuses: older checkpoints remain, and there is less to go on from.
    """
    levels = [
        (backend, level.name)
        for backend, level in zip(backends, platform.levels, strict=True)
        if backend.durable
    ]
    stored, refused = [], ""
    for key in _wanted(stopped, steps):
        try:
            stored.append((key, _stored(key, model, levels)))
        except StorageError as error:
            refused = str(error)
            continue
        if key.kind is Kind.ADJOINT:
            _discard_older(key, levels)
    return Standing(stopped.state, stopped.adjoint, stored, refused)


def _wanted(stopped: Stopped, steps: int) -> Iterator[Key]:
    if stopped.adjoint < steps:
        yield Key(Kind.ADJOINT, stopped.adjoint)
    if stopped.state is not None and 0 < stopped.state < stopped.adjoint:
        yield Key(Kind.RESTART, stopped.state)


def _stored(key: Key, model: Model, levels: Sequence[tuple[Backend, str]]) -> str:
    """Store it, unless it is, on the first level that takes it; returns the name of the level."""
    refused: StorageError = LevelFull("no level of this run outlives it")
    for backend, name in levels:
        if key in set(backend.keys()):
            return name
    for backend, name in levels:
        try:
            backend.write(key, model.layout(key), model.dump(key))
        except StorageError as error:
            refused = error
            continue
        return name
    raise refused


def _discard_older(adjoint: Key, levels: Sequence[tuple[Backend, str]]) -> None:
    for backend, _ in levels:
        for key in list(backend.keys()):
            if key.kind is Kind.ADJOINT and key.step > adjoint.step:
                with suppress(StorageError):
                    backend.discard(key)
