"""The command line: strings in and out; everything it does is a call of the library.

Importing this package loads nothing else, so that `started` comes before all other modules;
`main` is imported when it is asked for.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ckio.cli.entry import main

__all__ = ["main"]


def __getattr__(name: str) -> Any:
    if name != "main":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from ckio.cli import entry

    return entry.main
