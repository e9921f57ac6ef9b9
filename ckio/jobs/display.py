"""Lines of text, warnings, and a bar with the remaining time, while a run goes on."""

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
"""Seconds for which nobody needs to see that something goes on."""


class Ticker(Protocol):
    """Tells a progress bar that `steps` more are done, what comes next, and how many there are."""

    def __call__(self, steps: int = 1, /, *, say: str = "", total: int | None = None) -> None: ...


def _nothing(_text: str, /) -> None: ...


def _log(text: str, /) -> None:
    logging.getLogger("ckio").warning("%s", shown_text(text))


@dataclass(frozen=True)
class Display:
    """Where a run tells what goes on; by default warnings are logged, and bars are on stderr.

    Attributes
    ----------
    say : callable
        Called with each line that is worth reading, such as the plan's note.
    warn : callable
        Called with each line that has to be known, such as the failure of a level.
    bars : bool
        Whether progress bars are shown where stderr is a terminal.
    """

    say: Callable[[str], Any] = _nothing
    warn: Callable[[str], Any] = _log
    bars: bool = True

    def tell(self, text: str, /) -> None:
        """Say a text, if there is one."""
        if text:
            self.say(text)

    @property
    def is_shown(self) -> bool:
        """Whether a bar would be seen."""
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
        """Show a bar with rate and remaining time, on a terminal; elsewhere nothing.

        Without a total, it says that the work goes on. `left` returns how many seconds remain;
        without it, they are taken from the rate. The bar is shown `after` so many seconds.
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
            # Steps may take microseconds, and they are being timed: the bar must not cost more.
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
"""Tells warnings alone, through logging."""


@contextmanager
def _shown(bar: "Progress", after: float) -> Iterator[None]:
    """Show a bar after so many seconds, until the end."""
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
        timer.join()  # it may be starting the bar just now
        if bar.live.is_started:
            bar.stop()


def share(tick: Ticker, /) -> Callable[[float], None]:
    """Return a function that moves a bar to the part that is done, from 0 to 1."""
    told = 0

    def watch(done: float, /) -> None:
        nonlocal told
        now = int(100 * done)
        tick(now - told, total=100)
        told = now

    return watch
