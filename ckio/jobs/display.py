"""The output of a run while it works: notes, warnings, and a bar with the remaining time."""

import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Protocol

from ckio.platform.readable import shown as shown_text

if TYPE_CHECKING:
    from rich.progress import Progress

_EVERY: Final = 0.1
"""Seconds between two updates of a progress bar."""

PATIENCE: Final = 2.0
"""Seconds before a progress bar is shown, because shorter work needs none."""


class Ticker(Protocol):
    """A function that advances a progress bar.

    `steps` is the number of steps done since the last call, `say` a text that is shown, and `total`
    the new total number of steps.
    """

    def __call__(self, steps: int = 1, /, *, say: str = "", total: int | None = None) -> None: ...


def _nothing(_text: str, /) -> None: ...


def _log(text: str, /) -> None:
    logging.getLogger("ckio").warning("%s", shown_text(text))


@dataclass(frozen=True)
class Display:
    """The output of a run. By default notes are dropped, warnings are logged, and bars are shown.

    Attributes
    ----------
    say : callable
        Called with each note, for example the note of the plan.
    warn : callable
        Called with each warning, for example the failure of a level.
    bars : bool
        Whether progress bars are shown on stderr, if it is a terminal.
    """

    say: Callable[[str], Any] = _nothing
    warn: Callable[[str], Any] = _log
    bars: bool = True

    def tell(self, text: str, /) -> None:
        """Call `say` with a text, unless it is empty."""
        if text:
            self.say(text)

    @property
    def is_shown(self) -> bool:
        """Whether bars are shown: stderr is a terminal, and bars are wanted."""
        return self.bars and sys.stderr is not None and sys.stderr.isatty()

    @contextmanager
    def progress(
        self,
        what: str,
        /,
        total: int | None = None,
        *,
        unit: str = "steps",
        left: Callable[[], float] | None = None,
        after: float = 0.0,
    ) -> Iterator[Ticker]:
        """Show a bar with rate and remaining time while the block runs, if bars are shown.

        Parameters
        ----------
        what : str
            The description of the work.
        total : int, optional
            The total number of steps. Without it, the bar shows only that the work continues.
        unit : str
            The unit of the rate.
        left : callable, optional
            Returns the remaining seconds. Without it, they are computed from the rate.
        after : float
            The seconds after which the bar appears.
        """
        if not self.is_shown:
            yield lambda *_, **__: None
            return
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            Progress,
            ProgressColumn,
            Task,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )
        from rich.text import Text

        class Rate(ProgressColumn):
            def render(self, task: Task) -> Text:
                return Text(f"{task.speed:,.0f} {unit}/s" if task.speed and task.total else "")

        class Count(ProgressColumn):
            def render(self, task: Task) -> Text:
                known = task.total is not None
                return Text(f"{task.completed:,.0f}/{task.total:,.0f}" if known else "")

        class Left(ProgressColumn):
            def render(self, task: Task) -> Text:
                return Text("" if left is None else str(timedelta(seconds=round(left()))))

        what = shown_text(what)
        columns = (TextColumn("{task.description}", markup=False), BarColumn(20), Count(), Rate())
        rest = Left() if left is not None else TimeRemainingColumn()
        bar = Progress(
            *columns,
            TimeElapsedColumn() if total is None else rest,
            console=Console(stderr=True),
            transient=True,
        )
        task = bar.add_task(what, total=total)
        done, shown = 0, time.monotonic()

        def tick(steps: int = 1, /, *, say: str = "", total: int | None = None) -> None:
            # Steps may take microseconds and are measured, so that the bar must not take longer.
            nonlocal done, shown
            done += steps
            if not say and time.monotonic() < shown + _EVERY:
                return
            shown = time.monotonic()
            bar.update(
                task, completed=done, description=f"{what}: {shown_text(say)}" if say else what
            )
            if total is not None:
                bar.update(task, total=total)

        with _shown(bar, after):
            yield tick


QUIET: Final = Display(bars=False)
"""A display that only logs warnings."""


@contextmanager
def _shown(bar: "Progress", after: float) -> Iterator[None]:
    """Show a bar from `after` seconds on until the block ends."""
    if not after:
        with bar:
            yield
        return
    timer = threading.Timer(after, bar.start)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()  # because the timer may be starting the bar at this moment
        if bar.live.is_started:
            bar.stop()


def share(tick: Ticker, /) -> Callable[[float], None]:
    """Return a function that advances a bar to the fraction that is done, from 0 to 1."""
    before = 0

    def watch(done: float, /) -> None:
        nonlocal before
        now = int(100 * done)
        tick(now - before, total=100)
        before = now

    return watch
