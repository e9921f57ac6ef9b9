"""The files that commands read and write."""

import os
import sys
from collections.abc import Callable, Iterator
from io import TextIOWrapper
from pathlib import Path
from typing import Any, Final, TextIO

import click

from ckio.backends.files import write_whole
from ckio.cli import console
from ckio.errors import BadInput
from ckio.jobs.directory import SCHEDULE
from ckio.jobs.leftovers import is_run_directory
from ckio.jobs.planning import read_text
from ckio.platform import Platform
from ckio.schedule.text import Document, load
from ckio.schedule.text.reader import LINE


class _Named(click.Path):
    """A path that has a name: "", as from a variable that is not set, would be where one is."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None, /
    ) -> Any:
        if not str(value):
            self.fail("it is empty; give it a name (the current directory is .)", param, ctx)
        return super().convert(value, param, ctx)


FILE = _Named(path_type=Path)
"""A file or directory; the library says what is wrong with it."""


class _Folder(_Named):
    """A directory to write to, which stdout cannot be."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None, /
    ) -> Any:
        if value == "-":
            self.fail("- is stdout, and this is a directory; give it a name", param, ctx)
        return super().convert(value, param, ctx)


FOLDER = _Folder(path_type=Path)
"""A directory to write to; the library says what is wrong with it."""

STDOUT: Final = Path("/dev/stdout")
"""The file that `-` names where one is to be written."""


class _In(_Named):
    """A file to read, or `-` for stdin."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None, /
    ) -> Any:
        return super().convert("/dev/stdin" if value == "-" else value, param, ctx)


class _Out(_Named):
    """A file to write, or `-`: then stdout is for it alone, and all else goes to stderr."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None, /
    ) -> Any:
        if str(value).endswith(os.sep):
            self.fail(f"{value} ends as a directory does; name a file in it", param, ctx)
        path = super().convert(STDOUT if value == "-" else value, param, ctx)
        if path == STDOUT and ctx is not None and sys.stdout is not None:
            if ctx.find_object(TextIOWrapper) is not None:
                self.fail("stdout is taken, by --json or another file; give it a name", param, ctx)
            ctx.obj = console.claim_stdout()
        return path


INPUT = _In(path_type=Path)
"""A file to read; the library says what is wrong with it."""


def _writable(_context: click.Context, _option: click.Parameter, path: Any) -> Any:
    """Refuse, before any work is done, a path at which no file can be written."""
    if path in (None, STDOUT):
        return path
    try:
        reason = _not_writable(path)
    except OSError as error:
        reason = str(error.strerror)
    if reason:
        raise click.BadParameter(f"{path} cannot be written: {reason}")
    return path


def _not_writable(path: Path) -> str:
    """Return why no file can be written there, if that is seen at once; raises OSError."""
    folder = Path(os.path.realpath(path)).parent
    if path.is_dir() or path.name in ("", ".."):
        return "it is a directory"
    if not folder.is_dir():
        return f"there is no directory {folder}"
    if not os.access(path if path.exists() else folder, os.W_OK):
        return "no permission"
    return ""


def out(*names: str, **attributes: Any) -> Callable[[Any], Any]:
    """Return an option for a file to write, which is checked before the work is done."""
    return click.option(*names, type=_Out(path_type=Path), callback=_writable, **attributes)


def _lines(file: TextIO) -> Iterator[str]:
    """Yield the lines of a file; of one that is longer than any may be, its beginning."""
    return iter(lambda: file.readline(LINE + 1), "")


def read_document(path: Path, /) -> Document:
    """Return the schedule or timeline in a file; BadInput where there is none."""
    try:
        with path.open(encoding="utf-8") as file:
            return load(_lines(file), source=str(path))
    except IsADirectoryError:
        hint = f"; name a file in it, e.g. {path / SCHEDULE}" if is_run_directory(path) else ""
        raise BadInput(f"{path}: is a directory{hint}") from None
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}") from None


def read_platform(path: Path, /) -> Platform:
    """Return a platform from a file in either form."""
    return Platform.loads(read_text(path), source=str(path))


def platform_for(document: Document, path: Path, other: Path | None, /) -> Platform:
    """Return the platform in `other`, or else the one that came with the schedule in `path`."""
    if other is not None:
        return read_platform(other)
    if document.platform is None:
        raise BadInput(f"{path}: it does not say for which platform it is; give --platform")
    return document.platform


def write_text(path: Path, text: str, /) -> None:
    """Write a file whole or not at all; a device or a pipe gets the text as it comes."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, data: bytes, /) -> None:
    """Write a file whole or not at all; a device or a pipe gets the bytes as they come."""
    if path == STDOUT:
        click.echo(data, nl=False, file=claimed_stdout())
        return
    try:
        if path.exists() and not path.is_file():
            path.write_bytes(data)
        else:
            write_whole(Path(os.path.realpath(path)), data)
    except OSError as error:
        raise BadInput(f"{path}: cannot be written: {error.strerror}") from None


def claimed_stdout() -> TextIOWrapper | None:
    """Return what was stdout when the command began, where that is for one file alone."""
    return click.get_current_context().find_object(TextIOWrapper)


def tell_written(path: Path, more: str = "", /) -> None:
    """Say where a file is; who asked for stdout sees it."""
    if path != STDOUT:
        console.echo(f"written to {path}{more}")
