"""What the commands show: tables, progress, and the one line of JSON."""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import click


class Ticker(Protocol):
    """Tells a progress bar that `steps` more are done, what comes next, and how many there are."""

    def __call__(self, steps: int = 1, /, *, say: str = "", total: int | None = None) -> None: ...


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
def progress(
    what: str, /, total: int | None = None, *, unit: str = "steps", quiet: bool = False
) -> Iterator[Ticker]:
    """A bar with rate and remaining time, on a terminal; elsewhere nothing.

    Without a total, one that says that the work goes on.
    """
    if quiet or not sys.stderr.isatty():
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
            return Text(f"{task.completed:,.0f} of {task.total:,.0f} {unit}" if known else "")

    columns = (TextColumn("{task.description}"), BarColumn(), Count(), Rate())
    times = (TimeRemainingColumn(),) if total is not None else (TimeElapsedColumn(),)
    with Progress(*columns, *times, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total)

        def tick(steps: int = 1, /, *, say: str = "", total: int | None = None) -> None:
            text = f"{what}: {say}" if say else what
            bar.update(task, advance=steps, description=text)
            if total is not None:
                bar.update(task, total=total)

        yield tick


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
