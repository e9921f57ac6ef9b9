"""What benches share: their options, processes of their own, tables, and files of results."""

import argparse
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from bench import ROOT

RESULTS = ROOT / "bench" / "results"


def main(name: str, table: Callable[..., str], /, **options: Any) -> None:
    """Print the table of the bench that was started; with --record, keep it in bench/results.

    `options` are those of the command line by name, with their defaults: arguments of `table`.
    """
    parser = argparse.ArgumentParser(
        description=sys.modules["__main__"].__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--record", action="store_true", help=f"write bench/results/{name}.txt")
    for option, default in options.items():
        kind = "store_true" if default is False else "store"
        typed = {} if default is False else {"type": type(default)}
        parser.add_argument(f"--{option.replace('_', '-')}", action=kind, default=default, **typed)
    given = vars(parser.parse_args())
    if given.pop("record"):
        save(name, table(**given))
    else:
        print(f"{machine()}\n\n{table(**given)}")


def alone(
    function: Callable[..., Any], /, *arguments: Any, env: Mapping[str, str] | None = None
) -> Any:
    """Call a function of a bench in a process of its own; arguments and result are JSON."""
    module = function.__module__
    if module == "__main__":
        module = sys.modules[module].__spec__.name  # type: ignore[union-attr]
    task = json.dumps([module, function.__name__, arguments])
    done = subprocess.run(
        [sys.executable, "-m", "bench.record", task],
        check=True,
        cwd=ROOT,
        env=os.environ | dict(env or {}),
        stdout=subprocess.PIPE,
        text=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


def processor_seconds(action: Callable[[], object], /, repeats: int = 3) -> float:
    """The median of some calls."""
    taken = []
    for _ in range(repeats):
        start = time.process_time()
        action()
        taken.append(time.process_time() - start)
    return statistics.median(taken)


def peak_bytes() -> int:
    """The most memory that this process has held at a time, as the system counts it."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return 1024 * int(re.findall(r"VmHWM:\s+(\d+)", status)[0])


def save(name: str, table: str, /) -> None:
    """Print a table and write it to bench/results/NAME.txt."""
    text = f"{name}: {datetime.now(UTC):%Y-%m-%d %H:%M} UTC\n{machine()}\n\n{table.rstrip()}\n"
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


if __name__ == "__main__":
    module, name, arguments = json.loads(sys.argv[1])
    print(json.dumps(getattr(import_module(module), name)(*arguments)))
    sys.stdout.flush()
    os._exit(0)  # some libraries take seconds to be taken down
