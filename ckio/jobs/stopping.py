"""Stopping a run in good time: by a signal, or before its walltime is over.

A run that is asked to stop does so at the next pause between two steps, stores where it stands, and
ends with exit status 75: `--resume` goes on from there.
"""

import os
import signal
import threading
import time
from math import inf
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Final, Self

import numpy as np

from ckio.actions.columns import ADVANCE, REVERSE
from ckio.errors import CkioError, RunFailed
from ckio.jobs.standing import Standing
from ckio.parallel.team import ALONE, Team
from ckio.platform import Platform
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
    team
        The ranks that stop together, once one of them is to: at the same pause.

    Attributes
    ----------
    why : str
        What asked to stop; "" if nothing did.
    walltime : float or None
        Seconds that the process has since it began; None if nobody said that.
    clock : Clock
        That of the team, where there are several ranks: by it, all cut long moves alike.
    """

    def __init__(self, end: float | None = None, team: Team = ALONE) -> None:
        self.why = ""
        # Python lets the main thread alone set what a signal calls.
        self._hears = threading.current_thread() is threading.main_thread()
        self._team, self._agreed = team, False
        if not team.is_alone:
            self.clock = team.clock
        self.walltime: float | None = None
        self._end = inf if end is None else end
        self._deadline = inf
        self._behind = 0.0
        self._before: dict[int, Any] = {}

    @classmethod
    def within(cls, walltime: float | None, team: Team = ALONE, /) -> Self:
        """Return one for a process that has so many seconds since it began; None for all time."""
        if walltime is None:
            return cls(None, team)
        stopper = cls(began() + walltime, team)
        stopper.walltime = walltime
        return stopper

    def start(self, needed: float, /) -> None:
        """A run begins that takes so many seconds to stop; raises RunFailed if it is too late."""
        self._deadline = self._end - needed
        if (left := self._deadline - time.monotonic()) <= 0:
            raise RunFailed(
                f"--walltime is over before the first step: to stop takes {needed:.2g} s, and"
                f" {max(0.0, left + needed):.2g} s of it were left; give more"
            )
        self._listen(signal.SIGINT)
        if not self._team.is_alone:
            self._team.wish = self._asked

    def tell(self, behind: float, /) -> None:
        """To write what is staged takes so many seconds more, as the levels were measured."""
        self._behind = 2 * behind

    def __call__(self) -> bool:
        if self._team.is_alone:
            return self._asked()
        if self._team.wished and not self._agreed:
            self._agreed = True
            self.why = next(filter(None, self._team.gather(self.why)), "")
        return self._team.wished

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
    """When this process began, on `time.monotonic`; now where the system does not say."""
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
    """The error that ends a stopped run: RunFailed where resuming it would come no further.

    Of a signal that is not known: the next one may come later.
    """
    if why == WALLTIME and not standing.further:
        return RunFailed(
            "--walltime is too short: the next process would stand where this one began"
            f" ({standing.told()}); give more"
        )
    return Halted(why, standing)
