"""What a long run prints to may end before it: a pipe whose reader leaves, a closed terminal."""

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from io import BufferedWriter, FileIO, TextIOWrapper
from typing import Any, Final

_NOBODY: Final = frozenset({errno.EPIPE, errno.EIO})
"""What writing says where nobody reads any more: a pipe, and a terminal."""


class _Lasting(FileIO):
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
def lasting() -> Iterator[None]:
    """Let what is printed go nowhere once nobody reads it; what prints it is not stopped."""
    with ExitStack() as stack:
        for name in ("stdout", "stderr"):
            stack.enter_context(_replaced(name))
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
def _replaced(name: str) -> Iterator[None]:
    before = getattr(sys, name)
    if not isinstance(before, TextIOWrapper):  # None where it was closed
        yield
        return
    raw = _Lasting(before.fileno(), "w", closefd=False)
    now = TextIOWrapper(
        BufferedWriter(raw),
        encoding=before.encoding,
        errors=before.errors,
        line_buffering=before.line_buffering,
    )
    setattr(sys, name, now)
    try:
        yield
    finally:
        setattr(sys, name, before)
        with suppress(OSError):  # whoever printed was told
            now.close()
