"""Keep a bench's table with its date and the machine it was taken on."""

import os
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import numpy as np

RESULTS = Path(__file__).parent / "results"
FIGURES = Path(__file__).parent / "figures"
"""Pictures and their numbers, which a script writes again whenever they are wanted."""


def save(name: str, table: str, /) -> None:
    """Print a table and write it to bench/results/NAME.txt."""
    text = f"{name}: {datetime.now(UTC):%Y-%m-%d %H:%M} UTC\n{machine()}\n\n{table.rstrip()}\n"
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.txt").write_text(text)
    print(text)


def machine() -> str:
    """The machine in a line, with how noisy it is while the bench runs."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next(line.split(":", 1)[1].strip() for line in lines if "model name" in line)
    except (OSError, StopIteration):
        model = platform.machine()
    packages = ", ".join(f"{name} {version(name)}" for name in ("numpy", "h5py", "zstandard"))
    return (
        f"{model}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, noise {noise():.0%}"
        f" (spread of one copy); {platform.system()} {platform.release()},"
        f" Python {platform.python_version()}, {packages}"
    )


def noise() -> float:
    """The distance between the quartiles of one and the same copy, as a part of its median."""
    source, target = np.ones(1 << 21), np.ones(1 << 21)
    times = [seconds(lambda: np.copyto(target, source)) for _ in range(31)]
    low, middle, high = statistics.quantiles(times, n=4)
    return (high - low) / middle


def seconds(action: Callable[[], object], /) -> float:
    """How long one call takes."""
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def columns(header: Sequence[str], rows: Sequence[Sequence[str]], /) -> str:
    """A table in plain text: the first column to the left, the others to the right."""
    widths = [max(len(row[i]) for row in (header, *rows)) for i in range(len(header))]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if i else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in (header, *rows)
    )
