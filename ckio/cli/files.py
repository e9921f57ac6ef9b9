"""The files and directories that commands read and write."""

import os
import sys
from collections.abc import Callable
from functools import partial
from io import TextIOWrapper
from pathlib import Path
from typing import Any, Final

import click

from ckio.backends.files import write_whole
from ckio.cli import console
from ckio.errors import BadInput
from ckio.jobs.directory import SCHEDULE, is_run_directory
from ckio.platform import Platform
from ckio.platform.readable import MOST_BYTES, path_of, read_text
from ckio.schedule.text import Document, load

STDIN: Final = Path("/dev/stdin")
STDOUT: Final = Path("/dev/stdout")
"""The paths that stand for `-` if a file is read or written."""


class _Place(click.ParamType[Path]):
    """A path that is not empty, and of which the system can tell whether it exists.

    An empty path, for example from a shell variable that is not set, would mean the current
    directory. The system cannot tell if a name is too long, or in a directory of another user.
    `-` stands for the path `dash`, or is refused.
    """

    name = "path"

    def __init__(self, dash: Path | None = None) -> None:
        self.dash = dash

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None, /
    ) -> Path:
        if value == "-" and self.dash is not None:
            return self.dash
        if value == "-":
            self.fail("- is a stream, and this is a file or a directory; name it", param, ctx)
        if not str(value):
            self.fail("it is empty; give it a name (the current directory is .)", param, ctx)
        if self.dash == STDOUT and str(value).endswith(os.sep):
            self.fail(f"{value} ends as a directory does; name a file in it", param, ctx)
        path = path_of(value)
        try:
            os.lstat(path)
        except (FileNotFoundError, NotADirectoryError):
            pass
        except OSError as error:
            self.fail(f"{path}: {error.strerror}; give another path", param, ctx)
        return path


FILE: Final = _Place()
"""A file or directory; the library reports errors about it."""

INPUT: Final = _Place(STDIN)
"""A file to read, or `-` for stdin; the library reports errors about it."""


def _writable(context: click.Context, _option: click.Parameter, path: Path | None) -> Path | None:
    """Raise BadParameter, before any work is done, if no file can be written at this path.

    If it is stdout, everything else is printed on stderr from now on.
    """
    if path is None:
        return None
    if path == STDOUT:
        if context.find_object(TextIOWrapper) is not None:
            raise click.BadParameter(
                "stdout is taken by --json or by another file; give the name of a file"
            )
        if sys.stdout is not None:
            context.obj = console.claim_stdout()
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
    return click.option(*names, type=_Place(STDOUT), callback=_writable, **attributes)


def read_document(path: Path, /) -> Document:
    """Return the schedule or timeline in a file; raises BadInput if there is none."""
    try:
        with path.open(encoding="utf-8") as file:
            # A device may have no end of a line.
            return load(iter(partial(file.readline, MOST_BYTES), ""), source=str(path))
    except IsADirectoryError:
        hint = f"; name a file in it, e.g. {path / SCHEDULE}" if is_run_directory(path) else ""
        raise BadInput(f"{path}: is a directory{hint}") from None
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}") from None


def read_platform(path: Path, /) -> Platform:
    """Return the platform in a file: TOML, or the text form of Herrmann & Pallez (2020)."""
    return Platform.loads(read_text(path), source=str(path))


def platform_for(document: Document, path: Path, other: Path | None = None, /) -> Platform:
    """Return the platform in `other`, or else the platform of the schedule in `path`."""
    if other is not None:
        return read_platform(other)
    if document.platform is None:
        raise BadInput(f"{path}: it does not contain its platform; give `ckio simulate --platform`")
    return document.platform


def write_file(path: Path, data: str | bytes, /) -> None:
    """Write a file completely or not at all; a device or a pipe receives the bytes directly."""
    if isinstance(data, str):
        data = data.encode(errors="backslashreplace")  # JSON may have half a character
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


def print_written(path: Path, more: str = "", /) -> None:
    """Print the path of a written file, unless it is stdout."""
    if path != STDOUT:
        click.echo(f"written to {path}{more}")
