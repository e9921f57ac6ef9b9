"""The output of commands: text, tables, one line of JSON."""

import errno
import os
import platform
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from importlib.metadata import version
from io import BufferedWriter, FileIO, TextIOWrapper
from typing import Any

import click

from ckio.jobs.display import Display
from ckio.platform.readable import aligned, json_line


class _Lasting(FileIO):
    """A stream that discards what nobody reads: its pipe or its terminal was closed.

    A run continues then, and a command whose reader was `head` ends as usual.
    """

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            if error.errno not in (errno.EPIPE, errno.EIO):
                raise
            return memoryview(data).nbytes


def _lasting(stream: Any) -> Any:
    if not isinstance(stream, TextIOWrapper):  # None if it was closed
        return stream
    raw = BufferedWriter(_Lasting(stream.fileno(), "w", closefd=False))
    # ASCII has no µ.
    return TextIOWrapper(raw, stream.encoding, "replace", line_buffering=True)


@contextmanager
def lasting() -> Iterator[None]:
    """Discard output to stdout and stderr after its reader has closed it."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = map(_lasting, before)
    try:
        yield
    finally:
        for stream in {sys.stdout, sys.stderr} - {*before, None}:
            with suppress(OSError):  # whoever printed has received the error
                stream.close()
        sys.stdout, sys.stderr = before


def claim_stdout() -> TextIOWrapper:
    """Return a stream to the present stdout, and let all other output go to stderr from now on.

    This holds for output of a model in any language, because the descriptor 1 is replaced.
    """
    answers = TextIOWrapper(BufferedWriter(_Lasting(os.dup(1), "w")), encoding="utf-8")
    os.dup2(2, 1)
    return answers


def print_json(data: Mapping[str, Any], /) -> None:
    """Print one object as one line of JSON on the stdout with which the command began."""
    click.echo(json_line(data), file=click.get_current_context().find_object(TextIOWrapper))


def print_table(
    title: str, header: Sequence[str], rows: Sequence[Sequence[str]], *, bold: Sequence[int] = ()
) -> None:
    """Print a table with its first column aligned left and the others right; never cut it off."""
    if title:
        click.secho(title, bold=True)
    first, rule, *lines = aligned(header, rows)
    click.echo(f"{first}\n{rule}")
    for number, line in enumerate(lines):
        click.secho(line, bold=number in bold or None)
    click.echo()


def print_lossy(rounds: Mapping[str, str], /) -> None:
    """Print a line for each level that does not give back the very bytes it got, with its codec."""
    for name, codec in rounds.items():
        click.echo(f"level {name}: LOSSY, by {codec}")


def display(*, quiet: bool, rank: int = 0) -> Display:
    """Return the display through which a run prints messages, warnings and progress bars.

    Only the first rank prints. Errors of printing are ignored, because a log file on a full disk is
    no reason to end a run.
    """

    def printing(prefix: str, *, err: bool) -> Callable[[str], None]:
        def say(text: str, /) -> None:
            with suppress(OSError):
                click.echo(f"{prefix}{text}", err=err)

        return say

    def nothing(_text: str, /) -> None: ...

    notes = rank == 0 and not quiet
    return Display(
        printing("", err=False) if notes else nothing,
        printing("ckio: ", err=True) if rank == 0 else nothing,
        bars=notes,
    )


def origin() -> str:
    """Return the versions, the time and the host that made an output, as one line of text."""
    now = f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
    python, numpy = platform.python_version(), version("numpy")
    return f"ckio {version('ckio')}, {now}, on {platform.node()}; Python {python}, numpy {numpy}"
