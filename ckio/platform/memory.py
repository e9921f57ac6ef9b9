"""The memory that is still available to this process, on the machine and within its job."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

_LIMITS: Final = (
    # The mount point of the group, the files with its limit and its usage, and the entries of
    # memory.stat with the part of the usage that is only cache.
    ("sys/fs/cgroup", "memory.max", "memory.current", ("inactive_file", "active_file")),
    (
        "sys/fs/cgroup/memory",
        "memory.limit_in_bytes",
        "memory.usage_in_bytes",
        ("total_inactive_file", "total_active_file"),
    ),
)
"""Files of Linux control groups, of version 2 and of version 1."""

_NO_LIMIT: Final = 1 << 60
"""Version 1 writes a number above this one, in bytes, if there is no limit."""


def available(root: Path = Path("/")) -> int | None:
    """Return the bytes that can be allocated without swapping or being killed; None if unknown.

    It is the minimum of the machine's available memory and of the limits of all control groups of
    this process. `root` is the directory with /proc and /sys.
    """
    return min(_offers(root), default=None)


def of_machine(root: Path = Path("/")) -> int | None:
    """Return the bytes of the machine's memory, used and free; None if unknown."""
    kib = _table(f"{root}/proc/meminfo").get("MemTotal")
    return None if kib is None else kib * 1024


def _offers(root: Path) -> Iterator[int]:
    machine = _table(f"{root}/proc/meminfo")
    if "MemAvailable" in machine:
        yield machine["MemAvailable"] * 1024
    for line in _lines(f"{root}/proc/self/cgroup"):
        _, controllers, group = line.split(":", 2)
        if controllers not in ("", "memory"):
            continue
        mount, limit, used, cache = _LIMITS[controllers == "memory"]
        for folder in _group_and_parents(f"{root}/{mount}", group):
            most = _number(f"{folder}/{limit}")
            if most is None or most >= _NO_LIMIT:
                continue
            if (now := _number(f"{folder}/{used}")) is not None:
                statistics = _table(f"{folder}/memory.stat")
                yield max(0, most - now + sum(statistics.get(name, 0) for name in cache))


def _group_and_parents(mount: str, group: str) -> list[str]:
    """Return the directories of a control group and of the groups above, each with a limit."""
    names = [name for name in group.split("/") if name]
    return ["/".join([mount, *names[:count]]) for count in range(len(names), -1, -1)]


def _lines(path: str) -> list[str]:
    try:
        with open(path) as file:  # noqa: PTH123  levels ask often; a Path takes half of the time
            return file.read().splitlines()
    except OSError:
        return []


def _number(path: str) -> int | None:
    """Return the number in a file; None if it has no number, for example because of no limit."""
    text = "".join(_lines(path))
    return int(text) if text.isdigit() else None


def _table(path: str) -> dict[str, int]:
    """Return the contents of a file with a name and a number in each line."""
    words = (line.replace(":", "").split() for line in _lines(path))
    return {word[0]: int(word[1]) for word in words if len(word) > 1 and word[1].isdigit()}
