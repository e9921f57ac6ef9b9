"""What the commands show: tables, progress, and the one line of JSON."""

import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from io import BufferedWriter, TextIOWrapper
from typing import Any

import click

from ckio.cli.streams import Printed
from ckio.jobs.display import PATIENCE, Display, Ticker, share
from ckio.platform.readable import aligned, shown

__all__ = ["PATIENCE", "Display", "Ticker", "share"]


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
    click.secho(shown(text, keep="\n\t"), bold=bold, err=err, nl=nl)


def say(line: str, /) -> None:
    """Print a line, if there is one."""
    if line:
        echo(line)


def print_table(
    title: str, header: Sequence[str], rows: Sequence[Sequence[str]], *, bold: Sequence[int] = ()
) -> None:
    """A table with its first column to the left and the others to the right; never cropped."""
    rows = [list(map(shown, row)) for row in rows]
    if title:
        echo(title, bold=True)
    first, rule, *lines = aligned(header, rows)
    echo(f"{first}\n{rule}")
    for number, line in enumerate(lines):
        echo(line, bold=number in bold or None)
    echo()


@contextmanager
def progress(
    what: str, /, total: int | None = None, *, quiet: bool = False, **more: Any
) -> Iterator[Ticker]:
    """Show a bar as `Display.progress` does, unless the command is to be quiet."""
    with Display(bars=not quiet).progress(what, total, **more) as tick:
        yield tick


def display(*, quiet: bool, rank: int = 0) -> Display:
    """Return what a run tells the user of a command: the first rank speaks for all.

    That something cannot be told, as in a log on a disk that is full, is no reason to end a run.
    """

    def say(text: str, /) -> None:
        with suppress(OSError):
            echo(text)

    def warn(text: str, /) -> None:
        with suppress(OSError):
            echo(f"ckio: {text}", err=True)

    def nothing(_text: str, /) -> None: ...

    first = rank == 0
    return Display(
        say if first and not quiet else nothing,
        warn if first else nothing,
        bars=first and not quiet,
    )
