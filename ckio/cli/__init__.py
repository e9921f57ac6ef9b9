"""The command line. It reads and prints text; each command calls functions of the library.

This module is the first of ckio that is imported, and it imports no other. Therefore Ctrl-C prints
one line even while the command starts: its imports take most of the first second, and an interrupt
during them would print a traceback of another library. Nothing must be cleaned up then, so that the
process ends immediately. Only the command `ckio` installs this handler; a program that imports ckio
keeps its own.
"""

import os
import signal
import sys
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from ckio.cli.entry import main

__all__ = ["main"]


def _is_command() -> bool:
    """Return whether this process was started as `ckio` or as `python -m ckio`."""
    words: list[str] = getattr(sys, "argv", [])
    if not words:
        return False
    if words[0] == "-m":  # while the package is imported; later it is the path of __main__
        return sys.orig_argv[-len(words)] == "ckio"
    return os.path.basename(words[0]) == "ckio"  # noqa: PTH119 (pathlib would have to be imported)


def listen() -> None:
    """Let Ctrl-C end the process immediately, if it is `ckio` and has no other handler."""
    if _is_command() and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, end_at_once)


def end_at_once(number: int, frame: FrameType | None) -> NoReturn:
    """Print that the command was interrupted, and end the process."""
    del frame
    os.write(2, b"ckio: interrupted\n")
    os._exit(128 + number)


def __getattr__(name: str) -> Any:
    if name != "main":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from ckio.cli import entry

    return entry.main


listen()
