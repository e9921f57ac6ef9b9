"""What the commands show: tables, progress, and the one line of JSON."""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import click


class Ticker(Protocol):
    """Tells the progress bar that `steps` more are done."""

    def __call__(self, steps: int = 1, /) -> None: ...


def json_line(data: Mapping[str, Any], /) -> str:
    """An object on one line."""
    return json.dumps(data, allow_nan=False)


def print_json(data: Mapping[str, Any], /) -> None:
    """Print exactly one object on one line."""
    click.echo(json_line(data))


def print_table(
    title: str, header: Sequence[str], rows: Sequence[Sequence[str]], *, bold: Sequence[int] = ()
) -> None:
    """A table with its first column to the left and the others to the right."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left", title_style="bold")
    for number, name in enumerate(header):
        table.add_column(name, justify="right" if number else "left", no_wrap=True)
    for number, row in enumerate(rows):
        table.add_row(*row, style="bold" if number in bold else None)
    Console(highlight=False, width=None if sys.stdout.isatty() else 110).print(table)


@contextmanager
def progress(what: str, total: int, /, *, quiet: bool = False) -> Iterator[Ticker]:
    """A bar with rate and remaining time, on a terminal; elsewhere nothing."""
    if quiet or not sys.stderr.isatty():
        yield lambda _steps=1, /: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        ProgressColumn,
        Task,
        TextColumn,
        TimeRemainingColumn,
    )
    from rich.text import Text

    class Rate(ProgressColumn):
        def render(self, task: Task) -> Text:
            return Text(f"{task.speed:,.0f} steps/s" if task.speed else "")

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        Rate(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total)

        def tick(steps: int = 1, /) -> None:
            bar.update(task, advance=steps)

        yield tick


@contextmanager
def status(what: str, /, *, quiet: bool = False) -> Iterator[Any]:
    """A line that says what is being done, on a terminal; returns what changes its text."""
    if quiet or not sys.stderr.isatty():
        yield lambda _text, /: None
        return
    from rich.console import Console

    with Console(stderr=True).status(what) as line:
        yield lambda text, /: line.update(f"{what}: {text}")


def seconds(value: float, /) -> str:
    """Seconds as people read them."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if abs(value) >= scale or unit == "µs":
            return f"{value / scale:.3g} {unit}" if unit != "s" else f"{value:.3f} s"
    raise AssertionError


def nbytes(value: float, /) -> str:
    """Bytes as people read them."""
    for unit, scale in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if value >= scale:
            return f"{value / scale:.1f} {unit}"
    return f"{value:.0f} B"
