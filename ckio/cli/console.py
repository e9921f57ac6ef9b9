"""The output of commands: text, tables, one line of JSON.

Writing to stdout may fail before a command ends, because a disk is full or because the reader of a
pipe has closed it. The context managers of this module decide what happens then.
"""

import errno
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
from ckio.platform.readable import aligned, json_line, shown

_NOBODY: Final = frozenset({errno.EPIPE, errno.EIO})
"""The error numbers of writing to a pipe (EPIPE) or a terminal (EIO) that nobody reads."""


class Unprinted(OSError):
    """Raised if stdout cannot be written for another reason, for example because a disk is full."""


class StandardOut(FileIO):
    """A stream for stdout that raises Unprinted, so that its errors differ from those of files."""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            if error.errno in _NOBODY:
                raise
            raise Unprinted(error.errno, error.strerror) from None


class _Lasting(StandardOut):
    """A stream for stdout or stderr that discards its output after the reader has closed it."""

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
    """Raise Unprinted if stdout cannot be written, including the output that is still buffered."""
    with _replaced("stdout", StandardOut):
        yield
        if sys.stdout is not None:
            sys.stdout.flush()


@contextmanager
def lasting() -> Iterator[None]:
    """Discard output after its reader has closed it, so that the command continues."""
    with ExitStack() as stack:
        for name in ("stdout", "stderr"):
            stack.enter_context(_replaced(name, _Lasting))
        yield


@contextmanager
def unread() -> Iterator[None]:
    """Ignore errors of printing within this context that occur because nobody reads the output."""
    try:
        yield
    except OSError as error:
        if error.errno not in _NOBODY:
            raise


@contextmanager
def _replaced(name: str, kind: type[StandardOut]) -> Iterator[None]:
    before = getattr(sys, name)
    if not isinstance(before, TextIOWrapper):  # None if it was closed
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
        with suppress(OSError):  # whoever printed has received the error
            now.close()


def claim_stdout() -> TextIOWrapper:
    """Return a stream to the present stdout, and let all other output go to stderr from now on.

    This holds for output of a model in any language, because the descriptor 1 is replaced.
    """
    answers = TextIOWrapper(BufferedWriter(StandardOut(os.dup(1), "w")), encoding="utf-8")
    os.dup2(2, 1)
    return answers


def print_json(data: Mapping[str, Any], /) -> None:
    """Print one object as one line of JSON on the stdout with which the command began."""
    click.echo(json_line(data), file=click.get_current_context().find_object(TextIOWrapper))


def echo(
    text: str = "", /, *, bold: bool | None = None, err: bool = False, nl: bool = True
) -> None:
    """Print a text without control characters, which could change the state of a terminal.

    All output of commands is printed by this function, because names and paths in it may come from
    files. Characters that are not printable are shown as escapes, except newlines and tabs.
    """
    click.secho(shown(text, keep="\n\t"), bold=bold, err=err, nl=nl)


def say(line: str, /) -> None:
    """Print a line unless it is empty."""
    if line:
        echo(line)


def print_table(
    title: str, header: Sequence[str], rows: Sequence[Sequence[str]], *, bold: Sequence[int] = ()
) -> None:
    """Print a table with its first column aligned left and the others right; never cut it off."""
    rows = [list(map(shown, row)) for row in rows]
    if title:
        echo(title, bold=True)
    first, rule, *lines = aligned(header, rows)
    echo(f"{first}\n{rule}")
    for number, line in enumerate(lines):
        echo(line, bold=number in bold or None)
    echo()


def display(*, quiet: bool, rank: int = 0) -> Display:
    """Return the display through which a run prints messages, warnings and progress bars.

    Only the first rank prints. Errors of printing are ignored, because a log file on a full disk is
    no reason to end a run.
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
    """Return the versions, the time and the host that made an output, as one line of text."""
    now = f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
    python, numpy = platform.python_version(), version("numpy")
    return f"ckio {version('ckio')}, {now}, on {platform.node()}; Python {python}, numpy {numpy}"


def say_lossy(rounds: Mapping[str, str], /) -> None:
    """Print a line for each level that does not give back the very bytes it got, with its codec."""
    for name, codec in rounds.items():
        echo(f"level {name}: LOSSY, by {codec}")
