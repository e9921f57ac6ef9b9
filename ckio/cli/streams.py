"""What is printed to may end before a command does: a full disk, a pipe whose reader leaves."""

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from io import BufferedWriter, FileIO, TextIOWrapper
from typing import Any, Final

_NOBODY: Final = frozenset({errno.EPIPE, errno.EIO})
"""What writing says where nobody reads any more: a pipe, and a terminal."""


class Unprinted(OSError):
    """What is printed cannot be written, and not because nobody reads it: a disk is full, say."""


class Printed(FileIO):
    """A descriptor to print to, of which errors are known from those of other files."""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            if error.errno in _NOBODY:
                raise
            raise Unprinted(error.errno, error.strerror) from None


class _Lasting(Printed):
    """One that is written to as long as somebody reads it, and leads nowhere then."""

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
    with _replaced("stdout", Printed):
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
def _replaced(name: str, kind: type[Printed]) -> Iterator[None]:
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
