"""The command line: strings in and out; everything it does is a call of the library.

This is the first module of ckio that is imported, and it loads nothing of it, so that Ctrl-C while
the command starts is one line. The imports of a command take most of its first second, and an
interrupt there would be a traceback of somebody else's code. Nothing has to be put in order then:
the process ends at once. Only the command `ckio` listens: a program that imports ckio keeps its own
handlers.
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
    if words[0] == "-m":  # while the package is imported; afterwards it is the path of __main__
        return sys.orig_argv[-len(words)] == "ckio"
    return os.path.basename(words[0]) == "ckio"  # noqa: PTH119 (pathlib would have to be imported)


def listen() -> None:
    """End the process at Ctrl-C, if it is the command and nobody else handles that."""
    if _is_command() and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, end_at_once)


def end_at_once(number: int, frame: FrameType | None) -> NoReturn:
    """Say in a line that the command was interrupted, and end the process."""
    del frame
    os.write(2, b"ckio: interrupted\n")
    os._exit(128 + number)


def __getattr__(name: str) -> Any:
    if name != "main":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from ckio.cli import entry

    return entry.main


listen()
