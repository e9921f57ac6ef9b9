"""One gradient by ckio and by its peers: the same steps of the vorticity model, the same slots.

A slot holds a state, in memory or in a directory, which is the same for all; beside the slots there
is the tape of one step. Nobody waits for the disk: files are in the page cache. ckio alone takes
checksums of them, verifies these, and commits each so that a kill leaves it sound.

Every row runs in a process of its own, one after the other in each round, after a gradient of few
steps in the same process. Its seconds are those of planning, of the model's steps, and of what is
beside them: storage and bookkeeping. Memory is what the peak adds to a process that stands at x_0.
Directories are made in `--place`.
The row "limit" has the steps of the fastest row of ckio alone. PETSc's trajectory, which wants a TS
of its own, is in petsc_peer; a peer that is not installed is named, with the reason.
"""

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, replace
from importlib.metadata import version
from importlib.util import find_spec
from math import nan
from pathlib import Path
from typing import Any

import numpy as np

from bench import record
from bench.peers.vorticity_others import THEIRS, WHERE
from bench.peers.vorticity_rows import Row, Task, Work, ours, warm_up

TOLERANCE = 1e-12

FOUND = "gradient.npz"

PARTS = "planning", "steps", "beside"

Figures = dict[str, float]


def rows_of(task: Task) -> dict[str, Row]:
    return ours(task) | {name: row for name, row in THEIRS.items() if find_spec(name)}


# One row in a process of its own


Found = tuple[Figures, dict[str, Any]]
"""The figures of a row, and the J and gradient that it computed."""


def measured(name: str, task: Task) -> Found:
    """A row from x_0 to the gradient, in this process."""
    row = rows_of(task)[name]
    warm_up(row, task)
    work = Work(task)
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before, start, cpu = _resident(), time.perf_counter(), time.process_time()
    gradient = row(work)
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    memory = record.peak_bytes() - before
    planning, steps = work.seconds["planning"], work.seconds["steps"]
    figures = {
        "seconds": seconds,
        "planning": planning,
        "steps": steps,
        "beside": seconds - planning - steps,
        "cpu": cpu,
        "forward": work.calls["step"],
        "moved": work.moved,
        "memory": memory,
    }
    return figures, {"J": np.asarray(work.functional), **gradient}


def _resident() -> int:
    """Bytes of this process just now, as the system counts them."""
    return os.sysconf("SC_PAGE_SIZE") * int(Path("/proc/self/statm").read_text().split()[1])


def asked(name: str, task: Task) -> Found:
    """A row in a new process."""
    with tempfile.TemporaryDirectory(dir=task.place) as place:
        figures = record.alone(answer, name, astuple(replace(task, place=place)))
        with np.load(Path(place) / FOUND) as found:
            return figures, dict(found)


def distance(found: Mapping[str, Any], expected: Mapping[str, Any]) -> float:
    """The largest difference of J and of the gradients, relatively."""
    return max(
        float(np.abs(found[name] - array).max() / np.abs(array).max())
        for name, array in expected.items()
    )


def answer(name: str, fields: Sequence[Any]) -> Figures:
    """What `asked` asks for: the figures, and the gradient in a file."""
    task = Task(*fields)
    figures, found = measured(name, task)
    np.savez(Path(task.place) / FOUND, **found)
    return figures


def rounds(task: Task, many: int, ask: Callable[[str, Task], Found] = asked) -> dict[str, Figures]:
    """The medians of all rows, taken in turns, and how far each is from the first at most."""
    figures: dict[str, list[Figures]] = {name: [] for name in rows_of(task)}
    expected: dict[str, Any] | None = None
    for _ in range(many):
        for name, rows in figures.items():
            row, found = ask(name, task)
            expected = expected or found
            row["error"] = distance(found, expected)
            assert row["error"] <= TOLERANCE, f"{name}: {row['error']:.1e} from the gradient"
            rows.append(row)
    return {
        name: {key: statistics.median(row[key] for row in rows) for key in rows[0]}
        | {"error": max(row["error"] for row in rows)}
        for name, rows in figures.items()
    }


# The table


def best_of_ckio(rows: Mapping[str, Figures]) -> str:
    """The fastest of ckio's rows."""
    return min((name for name in rows if name.startswith("ckio")), key=lambda n: rows[n]["seconds"])


def ratio(row: Figures, base: Figures, key: str) -> float:
    return row[key] / base[key] if base[key] else nan


HEADER = (
    "row", "seconds", "planning", "steps", "beside", "cpu s", "memory MB", "forward", "moved MB",
    "error",
)  # fmt: skip


def table(task: Task, rows: Mapping[str, Figures], many: int) -> str:
    """Absolute figures, and in parentheses those relative to the fastest row of ckio."""
    best = best_of_ckio(rows)
    base = rows[best]
    limit = base | {"seconds": base["steps"], "cpu": nan} | dict.fromkeys(("memory", "moved"), 0)
    rows = {**rows, "limit": limit | dict.fromkeys(("planning", "beside"), 0)}

    def both(row: Figures, key: str, text: str) -> str:
        return f"{text} ({ratio(row, base, key):.2f})"

    cells = [
        [
            name,
            both(row, "seconds", f"{row['seconds']:.2f}"),
            *(f"{row[part]:.2f}" for part in PARTS),
            f"{row['cpu']:.2f}",
            both(row, "memory", f"{row['memory'] / 1e6:.1f}"),
            both(row, "forward", f"{row['forward']:.0f}"),
            both(row, "moved", f"{row['moved'] / 1e6:.0f}"),
            f"{row['error']:.0e}",
        ]
        for name, row in rows.items()
    ]
    room = f"{task.slots} slots in memory" + (f", {task.disk} in a directory" if task.disk else "")
    return (
        f"{room}, of {Work(task).nbytes / 1e6:.2f} MB; medians of {many} rounds;"
        f" in parentheses, times '{best}', whose planning and beside are"
        f" {(base['planning'] + base['beside']) / base['steps']:.1%} of its steps\n"
        f"{record.columns(HEADER, cells)}"
    )


def tables(task: Task, many: int) -> str:
    """Without the slots in a directory, and with them."""
    names = [*filter(find_spec, THEIRS), *filter(find_spec, ("checkpoint_schedules",))]
    missing = [f"not installed: {name} ({WHERE[name]})" for name in THEIRS if name not in names]
    peers = ", ".join([*(f"{name} {_version(name)}" for name in names), *missing])
    parts = [
        f"vorticity, {task.grid} x {task.grid} cells, {task.steps} steps, J and gradient of all"
        f" rows equal; {peers}",
        *(table(each, rounds(each, many), many) for each in (replace(task, disk=0), task)),
    ]
    return "\n\n".join(parts)


def _version(name: str) -> str:
    return version({"pyadjoint": "pyadjoint-ad"}.get(name, name))


def text(*, grid: int, steps: int, slots: int, disk: int, rounds: int, place: str) -> str:
    return tables(Task(grid, steps, slots, disk, place), rounds)


if __name__ == "__main__":
    options = {"grid": 128, "steps": 1000, "slots": 20, "disk": 20, "rounds": 3}
    record.main("peers", text, **options, place=tempfile.gettempdir())
