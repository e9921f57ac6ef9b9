"""One gradient by ckio and by its peers: the same steps of the vorticity model, the same room.

All call the same `step` and `adjoint_step`; they differ in what is between them. A slot holds a
state, in memory or in a directory; beside the slots there is the tape of one step. Every row runs
in a process of its own, one row after the other in each round; its seconds contain the making of
the schedule, which is also shown apart. What a row moves are copies to and from its slots.

pyadjoint keeps references to states that it never changes where others copy; it is spared the
derivative by the wind, which its blocks add up themselves. `python bench/gradient_peers.py`.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import record
from gradient_rows import NEEDS, ROWS, Task, Work

TOLERANCE = 1e-12


# One row in a process of its own


def measured(name: str, task: Task) -> dict[str, Any]:
    """One row, from the model that stands at x_0 to the gradient; memory is what is added to it.

    It was done with few steps before, which loads and compiles what it needs.
    """
    few = Task(task.grid, 6, 2, min(task.disk, 2), task.place)
    ROWS[name](Work(few))
    work = Work(task)
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before, start = _status("VmRSS"), time.perf_counter()
    gradient = ROWS[name](work)
    seconds = time.perf_counter() - start
    np.savez(Path(task.place) / "gradient.npz", J=work.functional, **gradient)
    return {
        "seconds": seconds,
        "schedule": work.schedule_seconds,
        "forward": work.forward,
        "moved": work.moved,
        "memory": _status("VmHWM") - before,
    }


def _status(name: str) -> int:
    """Bytes of this process, as the system counts them."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith(name)).split()[1])


def asked(name: str, task: Task) -> tuple[dict[str, Any], dict[str, Any]]:
    """A row by a new process: its figures, and what it found."""
    with tempfile.TemporaryDirectory(dir=task.place) as place:
        words = [name, task.grid, task.steps, task.slots, task.disk, place]
        command = [sys.executable, __file__, "--task", json.dumps(words)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        with np.load(Path(place) / "gradient.npz") as found:
            return json.loads(done.stdout.splitlines()[-1]), dict(found)


def distance(found: dict[str, Any], expected: dict[str, Any]) -> float:
    """The largest difference of J and of the gradients, relatively."""
    return max(
        float(np.abs(found[name] - array).max() / np.abs(array).max())
        for name, array in expected.items()
    )


def rounds(task: Task, many: int) -> tuple[dict[str, list[dict[str, Any]]], dict[str, float]]:
    """All rows in turns, and how far each is from the first."""
    names = [name for name in ROWS if name not in NEEDS or find_spec(NEEDS[name])]
    figures: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    errors = dict.fromkeys(names, 0.0)
    expected: dict[str, Any] | None = None
    for _ in range(many):
        for name in names:
            row, found = asked(name, task)
            expected = expected or found
            figures[name].append(row)
            errors[name] = max(errors[name], distance(found, expected))
            assert errors[name] <= TOLERANCE, f"{name}: {errors[name]:.1e} from the gradient"
    return figures, errors


HEADER = (
    "row", "seconds", "of store-all", "of ckio", "schedule s", "forward steps", "us/forward",
    "memory MB", "moved MB", "error",
)  # fmt: skip


def table(task: Task, many: int) -> str:
    figures, errors = rounds(task, many)
    middle = {
        name: {key: statistics.median(row[key] for row in rows) for key in rows[0]}
        for name, rows in figures.items()
    }
    first = middle[next(iter(ROWS))]["seconds"]
    ours = middle["ckio, hrevolve"]["seconds"]
    rows = [
        [
            name,
            f"{row['seconds']:.3f}",
            f"{row['seconds'] / first:.2f}",
            f"{row['seconds'] / ours:.2f}",
            f"{row['schedule']:.3f}",
            f"{row['forward']:.0f}",
            f"{1e6 * (row['seconds'] - row['schedule']) / row['forward']:.0f}",
            f"{row['memory'] / 1e6:.1f}",
            f"{row['moved'] / 1e6:.0f}",
            f"{errors[name]:.1e}",
        ]
        for name, row in middle.items()
    ]
    nbytes = Work(task).nbytes
    room = f"{task.slots} slots in memory" + (f", {task.disk} in a directory" if task.disk else "")
    return (
        f"{room}, of {nbytes / 1e6:.2f} MB; medians of {many} rounds\n"
        f"{record.columns(HEADER, rows)}"
    )


def tables(task: Task, many: int) -> str:
    """Without the slots in a directory, and with them."""
    cells = f"{task.grid} x {task.grid} cells"
    parts = [f"vorticity, {cells}, {task.steps} steps, J and gradient of all rows equal"]
    parts += [table(each, many) for each in (replace(task, disk=0), task)]
    return "\n\n".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--grid", type=int, default=128)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--slots", type=int, default=20)
    parser.add_argument("--disk", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--place", default=tempfile.gettempdir(), help="where the directories go")
    parser.add_argument("--print", action="store_true", help="print only, keep nothing")
    parser.add_argument("--task", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.task is not None:
        name, *task = json.loads(given.task)
        print(json.dumps(measured(name, Task(*task))))
        return
    asked_for = Task(given.grid, given.steps, given.slots, given.disk, given.place)
    text = tables(asked_for, given.rounds)
    if given.print:
        print(text)
    else:
        record.save("gradient_peers", text)


if __name__ == "__main__":
    main()
