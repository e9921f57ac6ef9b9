"""How much memory this process can still have: of the machine, and of the job it runs in."""

import os
import resource
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from ckio.errors import CkioError

_LIBRARIES: Final = 384 << 20
"""Bytes of address space that numpy, scipy and h5py take, and what they load."""

_THREAD: Final = 96 << 20
"""Bytes of address space for a thread of linear algebra: a buffer and a stack, in two libraries."""

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


def check_address_space(environment: Mapping[str, str] = os.environ, /) -> None:
    """Raise CkioError where a limit on the address space leaves too little for what ckio loads.

    Libraries of linear algebra do not fail without it: they wait for memory without end, and let no
    signal through.
    """
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit == resource.RLIM_INFINITY:
        return
    pages = _number_in(_lines(Path("/proc/self/statm")))
    left = limit - pages * resource.getpagesize()
    given = environment.get("OPENBLAS_NUM_THREADS") or environment.get("OMP_NUM_THREADS") or ""
    threads = int(given) if given.isdecimal() else len(os.sched_getaffinity(0))
    needed = _LIBRARIES + threads * _THREAD
    if left < needed:
        raise CkioError(
            f"too little address space: {limit >> 20} MiB are allowed, of which {left >> 20} are"
            f" left, and what is loaded for this command may take {needed >> 20}; raise the limit"
            f" (ulimit -v), or set OPENBLAS_NUM_THREADS=1"
        )


def _number_in(lines: list[str]) -> int:
    """The first number of a line; 0 where there is none."""
    return int(lines[0].split()[0]) if lines else 0


def _offers(root: Path) -> Iterator[int]:
    machine = _table(root / "proc/meminfo")
    if "MemAvailable" in machine:
        yield machine["MemAvailable"] * 1024
    for line in _lines(root / "proc/self/cgroup"):
        _, controllers, group = line.split(":", 2)
        if controllers not in ("", "memory"):
            continue
        mount, limit, used, cache = _LIMITS[controllers == "memory"]
        directory = root / mount / group.lstrip("/")
        # Every group above has a limit of its own.
        for folder in (directory, *directory.parents):
            most, now = _number(folder / limit), _number(folder / used)
            if most is not None and now is not None:
                statistics = _table(folder / "memory.stat")
                yield max(0, most - now + sum(statistics.get(name, 0) for name in cache))
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
