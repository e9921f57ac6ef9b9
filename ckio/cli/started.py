"""The first thing of ckio that is imported: Ctrl-C while the command starts is one line.

What a command imports takes most of its first second. An interrupt there would be a traceback of
somebody else's code, or an error of it, as few libraries can be interrupted while they are
imported. Nothing has to be put in order then, so that the process ends at once.

Only the command `ckio` listens: a program that imports ckio keeps its own handlers.
"""

import os
import signal
import sys
from types import FrameType
from typing import NoReturn


def _is_command() -> bool:
    """Whether this process was started as `ckio` or as `python -m ckio`."""
    words: list[str] = getattr(sys, "argv", [])
    if not words:
        return False
    if words[0] == "-m":  # while the package is imported; afterwards it is the path of __main__
        return sys.orig_argv[-len(words)] == "ckio"
    return os.path.basename(words[0]) == "ckio"  # noqa: PTH119 (pathlib would have to be imported)


def listen() -> None:
    """End the process at Ctrl-C, if it is the command and nobody else handles that."""
    if _is_command() and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)


def begin() -> None:
    """From here on Ctrl-C is a KeyboardInterrupt again: there is something to put in order."""
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _end(number: int, frame: FrameType | None) -> NoReturn:
    del frame
    os.write(2, b"ckio: interrupted\n")
    os._exit(128 + number)


listen()
