"""Everything that commands print: text, tables, one line of JSON; and a stdout that ends early.

What is printed to may end before a command does: a full disk, a pipe whose reader leaves.
"""

import errno
import json
import math
import os
import platform
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from importlib.metadata import version
from io import BufferedWriter, FileIO, TextIOWrapper
from typing import Any, Final

import click

from ckio.jobs.display import Display
from ckio.platform.readable import aligned, shown

_NOBODY: Final = frozenset({errno.EPIPE, errno.EIO})
"""Error numbers of writing where nobody reads any more: of a pipe, and of a terminal."""


class Unprinted(OSError):
    """Raised where stdout cannot be written although somebody reads it: a disk is full, say."""


class StandardOut(FileIO):
    """A descriptor to print to, of which errors are known from those of other files."""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            if error.errno in _NOBODY:
                raise
            raise Unprinted(error.errno, error.strerror) from None


class _Lasting(StandardOut):
    """A descriptor that is written to as long as somebody reads it, and leads nowhere then."""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            if error.errno not in _NOBODY:
                raise
        nowhere = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        os.dup2(nowhere, self.fileno())
        os.close(nowhere)
        return super().write(data)


@contextmanager
def printing() -> Iterator[None]:
    """Raise Unprinted where stdout cannot be written, also what nobody asked to be written yet."""
    with _replaced("stdout", StandardOut):
        yield
        if sys.stdout is not None:
            sys.stdout.flush()


@contextmanager
def lasting() -> Iterator[None]:
    """Let what is printed go nowhere once nobody reads it; what prints it is not stopped."""
    with ExitStack() as stack:
        for name in ("stdout", "stderr"):
            stack.enter_context(_replaced(name, _Lasting))
        yield


@contextmanager
def unread() -> Iterator[None]:
    """Let it be no error that nobody reads what is printed within this."""
    try:
        yield
    except OSError as error:
        if error.errno not in _NOBODY:
            raise


@contextmanager
def _replaced(name: str, kind: type[StandardOut]) -> Iterator[None]:
    before = getattr(sys, name)
    if not isinstance(before, TextIOWrapper):  # None where it was closed
        yield
        return
    raw = kind(before.fileno(), "w", closefd=False)
    now = TextIOWrapper(
        raw if before.write_through else BufferedWriter(raw),
        encoding=before.encoding,
        errors=before.errors,
        line_buffering=before.line_buffering,
        write_through=before.write_through,
    )
    setattr(sys, name, now)
    try:
        yield
    finally:
        setattr(sys, name, before)
        with suppress(OSError):  # whoever printed was told
            now.close()


def claim_stdout() -> TextIOWrapper:
    """Keep stdout for the line of JSON: what a model prints, in any language, goes to stderr."""
    answers = TextIOWrapper(BufferedWriter(StandardOut(os.dup(1), "w")), encoding="utf-8")
    os.dup2(2, 1)
    return answers


def json_line(data: Mapping[str, Any], /) -> str:
    """Return an object on one line; numbers that are not finite, which JSON lacks, are null."""
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
    """Print a table, never cropped: its first column to the left, the others to the right."""
    rows = [list(map(shown, row)) for row in rows]
    if title:
        echo(title, bold=True)
    first, rule, *lines = aligned(header, rows)
    echo(f"{first}\n{rule}")
    for number, line in enumerate(lines):
        echo(line, bold=number in bold or None)
    echo()


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


def origin() -> str:
    """Return when and where something is made, and by which versions."""
    now = f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
    python, numpy = platform.python_version(), version("numpy")
    return f"ckio {version('ckio')}, {now}, on {platform.node()}; Python {python}, numpy {numpy}"


def say_lossy(rounds: Mapping[str, str], /) -> None:
    """Print a line for each level that does not give back the very bytes it got, with its codec."""
    for name, codec in rounds.items():
        echo(f"level {name}: LOSSY, by {codec}")
