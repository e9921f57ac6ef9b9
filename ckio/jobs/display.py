"""The output of a run while it works: notes, warnings, and a bar with the remaining time."""

import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, Protocol

AFTER: Final = 2.0
"""Seconds before a progress bar appears, because a bar for short work only flickers."""

_EVERY: Final = 0.1
"""Seconds between two updates of a progress bar."""


class Ticker(Protocol):
    """A function that advances a progress bar.

    `steps` is the number of steps done since the last call, `say` a text that is shown, and `total`
    the new total number of steps.
    """

    def __call__(self, steps: int = 1, /, *, say: str = "", total: int | None = None) -> None: ...


def _nothing(_text: str, /) -> None: ...


def _log(text: str, /) -> None:
    logging.getLogger("ckio").warning("%s", text)


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
    ) -> Iterator[Ticker]:
        """Show a bar with rate and remaining time if the block takes long, if bars are shown.

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
                if task.total is None:
                    return Text("")
                rate = f" {task.speed:,.0f} {unit}/s" if task.speed else ""
                return Text(f"{task.completed:,.0f}/{task.total:,.0f}{rate}")

        class Left(ProgressColumn):
            def render(self, task: Task) -> Text:
                del task
                return Text("" if left is None else str(timedelta(seconds=round(left()))))

        rest = Left() if left is not None else TimeRemainingColumn()
        bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(20),
            Rate(),
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
            bar.update(task, completed=done, description=f"{what}: {say}" if say else what)
            if total is not None:
                bar.update(task, total=total)

        late = threading.Timer(AFTER, bar.start)
        late.daemon = True
        late.start()
        try:
            yield tick
        finally:
            late.cancel()
            late.join()
            bar.stop()


QUIET: Final = Display(bars=False)
"""A display that only logs warnings."""


def share(tick: Ticker, /) -> Callable[[float], None]:
    """Return a function that advances a bar to the fraction that is done, from 0 to 1."""
    before = 0

    def watch(done: float, /) -> None:
        nonlocal before
        now = int(100 * done)
        tick(now - before, total=100)
        before = now

    return watch
