"""What the commands show: tables, progress, and the one line of JSON."""

import json
import math
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from io import BufferedWriter, TextIOWrapper
from typing import TYPE_CHECKING, Any, Final, Protocol

import click

from ckio.cli.streams import Printed
from ckio.spelling import shown as visible

if TYPE_CHECKING:
    from rich.progress import Progress

_EVERY: Final = 0.1
"""Seconds between two looks of a progress bar."""

PATIENCE: Final = 2.0
"""Seconds for which nobody needs to see that something goes on."""


class Ticker(Protocol):
    """Tells a progress bar that `steps` more are done, what comes next, and how many there are."""

    def __call__(self, steps: int = 1, /, *, say: str = "", total: int | None = None) -> None: ...


def claim_stdout() -> TextIOWrapper:
    """Keep stdout for the line of JSON: what a model prints, in any language, goes to stderr."""
    answers = TextIOWrapper(BufferedWriter(Printed(os.dup(1), "w")), encoding="utf-8")
    os.dup2(2, 1)
    return answers


def json_line(data: Mapping[str, Any], /) -> str:
    """An object on one line; numbers that are not finite, which JSON does not have, are null."""
    return json.dumps(_finite(data), allow_nan=False)


def _finite(value: Any) -> Any:
    match value:
        case float():
            return value if math.isfinite(value) else None
        case Mapping():
            return {name: _finite(entry) for name, entry in value.items()}
        case list():
            return [_finite(entry) for entry in value]
        case _:
            return value


def print_json(data: Mapping[str, Any], /) -> None:
    """Print exactly one object on one line, alone on what was stdout when the command began."""
    click.echo(json_line(data), file=click.get_current_context().find_object(TextIOWrapper))


def echo(
    text: str = "", /, *, bold: bool | None = None, err: bool = False, nl: bool = True
) -> None:
    """Print a text: all that commands say goes through here, and nothing in it steers a terminal.

    Names and paths may come from files. What is not printable is shown as its escape, but for the
    ends of lines and tabs, which are the command's own.
    """
    click.secho(visible(text, keep="\n\t"), bold=bold, err=err, nl=nl)


def say(line: str, /) -> None:
    """Print a line, if there is one."""
    if line:
        echo(line)


def print_table(
    title: str, header: Sequence[str], rows: Sequence[Sequence[str]], *, bold: Sequence[int] = ()
) -> None:
    """A table with its first column to the left and the others to the right; never cropped."""
    rows = [list(map(visible, row)) for row in rows]
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]

    def line(cells: Sequence[str]) -> str:
        first, *others = zip(cells, widths, strict=True)
        words = [first[0].ljust(first[1]), *(cell.rjust(width) for cell, width in others)]
        return "  ".join(words).rstrip()

    if title:
        echo(title, bold=True)
    echo(line(header))
    echo("-" * (sum(widths) + 2 * (len(widths) - 1)))
    for number, row in enumerate(rows):
        echo(line(row), bold=number in bold or None)
    echo()


def is_shown(*, quiet: bool) -> bool:
    """Whether a bar would be shown."""
    return not quiet and sys.stderr is not None and sys.stderr.isatty()


@contextmanager
def progress(
    what: str,
    /,
    total: int | None = None,
    *,
    unit: str = "steps",
    quiet: bool = False,
    left: Callable[[], float] | None = None,
    after: float = 0.0,
) -> Iterator[Ticker]:
    """A bar with rate and remaining time, on a terminal; elsewhere nothing.

    Without a total, one that says that the work goes on. `left` says how many seconds remain; where
    it is not given, they are taken from the rate. It is shown `after` so many seconds.
    """
    if not is_shown(quiet=quiet):
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

    what = visible(what)
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
        bar.update(task, completed=done, description=f"{what}: {visible(say)}" if say else what)
        if total is not None:
            bar.update(task, total=total)

    with _shown(bar, after):
        yield tick


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
