"""How much memory this process can still have: of the machine, and of the job it runs in."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

_LIMITS: Final = (
    # Where the group is mounted, its limit, what it uses, and what of that is only cache.
    ("sys/fs/cgroup", "memory.max", "memory.current", ("inactive_file", "active_file")),
    (
        "sys/fs/cgroup/memory",
        "memory.limit_in_bytes",
        "memory.usage_in_bytes",
        ("total_inactive_file", "total_active_file"),
    ),
)
"""Control groups of version 2, and of version 1."""


def available(root: Path = Path("/")) -> int | None:
    """Bytes that can be had without swapping or being killed, where the system says so.

    `root` is where /proc and /sys are.
    """
    return min(_offers(root), default=None)


def _offers(root: Path) -> Iterator[int]:
    machine = _table(root / "proc/meminfo")
    if "MemAvailable" in machine:
        yield machine["MemAvailable"] * 1024
    for line in _lines(root / "proc/self/cgroup"):
        _, controllers, group = line.split(":", 2)
        if controllers not in ("", "memory"):
            continue
        mount, limit, used, cache = _LIMITS[controllers == "memory"]
        here = root / mount / group.lstrip("/")
        # Every group above has a limit of its own.
        for folder in (here, *here.parents):
            most, now = _number(folder / limit), _number(folder / used)
            if most is not None and now is not None:
                held = _table(folder / "memory.stat")
                yield max(0, most - now + sum(held.get(name, 0) for name in cache))
            if folder == root / mount:
                break


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []


def _number(path: Path) -> int | None:
    """The number in a file; None if there is none, as where there is no limit."""
    text = "".join(_lines(path))
    return int(text) if text.isdigit() else None


def _table(path: Path) -> dict[str, int]:
    """A file of names and numbers."""
    words = (line.replace(":", "").split() for line in _lines(path))
    return {word[0]: int(word[1]) for word in words if len(word) > 1 and word[1].isdigit()}
