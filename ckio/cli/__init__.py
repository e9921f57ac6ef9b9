"""The command line. It reads and prints text; each command calls functions of the library."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ckio.cli.entry import main

__all__ = ["main"]


def __getattr__(name: str) -> Any:
    if name != "main":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from ckio.cli import entry

    return entry.main
