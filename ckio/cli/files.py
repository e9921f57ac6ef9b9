"""The files and directories that commands read and write."""

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
from ckio.platform import Platform
from ckio.platform.readable import path_of, read_text
from ckio.schedule.text import Document, load
from ckio.schedule.text.reader import LINE


class _Named(click.Path):
    """A path that is not empty, and of which the system can tell whether it exists.

    An empty path, for example from a shell variable that is not set, would mean the current
    directory. The system cannot tell if a name is too long, or in a directory of another user.
    """

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None, /
    ) -> Any:
        if not str(value):
            self.fail("it is empty; give it a name (the current directory is .)", param, ctx)
        value = path_of(value)
        try:
            os.lstat(value)
        except (FileNotFoundError, NotADirectoryError):
            pass
        except OSError as error:
            self.fail(f"{value}: {error.strerror}; give another path", param, ctx)
        return super().convert(value, param, ctx)


FILE = _Named(path_type=Path)
"""A file or directory; the library reports errors about it."""


class _Folder(_Named):
    """A directory to write to; `-` (stdout) is refused."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None, /
    ) -> Any:
        if value == "-":
            self.fail(
                "- is stdout, and this is a directory; give the name of a directory", param, ctx
            )
        return super().convert(value, param, ctx)


FOLDER = _Folder(path_type=Path)
"""A directory to write to; the library reports errors about it."""

STDOUT: Final = Path("/dev/stdout")
"""The path that stands for `-` if a file is to be written."""


class _In(_Named):
    """A file to read, or `-` for stdin."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None, /
    ) -> Any:
        return super().convert("/dev/stdin" if value == "-" else value, param, ctx)


class _Out(_Named):
    """A file to write, or `-` for stdout; then everything else is printed on stderr."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None, /
    ) -> Any:
        if str(value).endswith(os.sep):
            self.fail(f"{value} ends as a directory does; name a file in it", param, ctx)
        path = super().convert(STDOUT if value == "-" else value, param, ctx)
        if path == STDOUT and ctx is not None and sys.stdout is not None:
            if ctx.find_object(TextIOWrapper) is not None:
                self.fail(
                    "stdout is taken by --json or by another file; give the name of a file",
                    param,
                    ctx,
                )
            ctx.obj = console.claim_stdout()
        return path


INPUT = _In(path_type=Path)
"""A file to read; the library reports errors about it."""


def _writable(_context: click.Context, _option: click.Parameter, path: Any) -> Any:
    """Raise BadParameter, before any work is done, if no file can be written at this path."""
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
    """Return the reason for which no file can be written at this path; or "". Raises OSError.

    Only reasons that are visible before the file is written are found.
    """
    folder = Path(os.path.realpath(path)).parent
    if path.is_dir() or path.name in ("", ".."):
        return "it is a directory"
    if not folder.is_dir():
        return f"there is no directory {folder}"
    if not os.access(path if path.exists() else folder, os.W_OK):
        return "no permission"
    return ""


def out(*names: str, **attributes: Any) -> Callable[[Any], Any]:
    """Return a decorator that adds an option for an output file, which is checked early."""
    return click.option(*names, type=_Out(path_type=Path), callback=_writable, **attributes)


def _lines(file: TextIO) -> Iterator[str]:
    """Yield the lines of a file; only the beginning of a line that is longer than allowed."""
    return iter(lambda: file.readline(LINE + 1), "")


def read_document(path: Path, /) -> Document:
    """Return the schedule or timeline in a file; raises BadInput if there is none."""
    try:
        with path.open(encoding="utf-8") as file:
            return load(_lines(file), source=str(path))
    except IsADirectoryError:
        hint = f"; name a file in it, e.g. {path / SCHEDULE}" if is_run_directory(path) else ""
        raise BadInput(f"{path}: is a directory{hint}") from None
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}") from None


def read_platform(path: Path, /) -> Platform:
    """Return the platform in a file: TOML, or the text form of Herrmann & Pallez (2020)."""
    return Platform.loads(read_text(path), source=str(path))


def platform_for(document: Document, path: Path, other: Path | None, /) -> Platform:
    """Return the platform in `other`, or else the platform of the schedule in `path`."""
    if other is not None:
        return read_platform(other)
    if document.platform is None:
        raise BadInput(f"{path}: it does not contain its platform; give --platform")
    return document.platform


def write_text(path: Path, text: str, /) -> None:
    """Write a file completely or not at all; a device or a pipe receives the text directly."""
    write_bytes(path, text.encode(errors="backslashreplace"))  # JSON may have half a character


def write_bytes(path: Path, data: bytes, /) -> None:
    """Write a file completely or not at all; a device or a pipe receives the bytes directly."""
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
    """Return the stdout with which the command began, if one file alone is written to it."""
    return click.get_current_context().find_object(TextIOWrapper)


def tell_written(path: Path, more: str = "", /) -> None:
    """Print the path of a written file, unless it is stdout."""
    if path != STDOUT:
        console.echo(f"written to {path}{more}")
