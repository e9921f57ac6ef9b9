"""How long do a thousand what-if questions about 1000 steps take, and what do they answer?

Each row is a sweep in a process of its own, on two processes: how many points have no schedule, how
many are on the Pareto front, seconds by the clock and of processors, importing and starting
processes included, and the command's sentence. Plans are H-Revolve's, unless planners vary. Half of
the processor seconds is what the clock says where nothing else is going on.
"""

import argparse
import json
import subprocess
import sys
from dataclasses import asdict, dataclass
from tempfile import TemporaryDirectory

import record

MOST_SECONDS = 60
"""What any of the rows is to take at most, by the clock, on two cores that do nothing else."""

PLATFORM = """
format = 1
working_memory = "2GiB"
[[level]]
name = "ram"
capacity = "16GiB"
backend = "ram"
write = {latency = 0, per_byte = 1.25e-10}
read = {latency = 0, per_byte = 1.25e-10}
[[level]]
name = "nvme"
capacity = "64GiB"
backend = "directory"
write = {latency = 1e-4, per_byte = 7e-10}
read = {latency = 1e-4, per_byte = 4e-10}
[[level]]
name = "archive"
backend = "hdf5"
write = {latency = 5e-3, per_byte = 1.2e-9}
read = {latency = 5e-3, per_byte = 1e-9}
"""
COSTS = (
    *("--advance", "1", "--record", "1.2", "--reverse", "2.5"),
    *("--restart", "1GiB", "--tape", "2GiB", "--adjoint", "1GiB"),
)


@dataclass(frozen=True)
class Case:
    """Axes in words."""

    name: str
    axes: tuple[str, ...]


CASES = (
    Case(
        "is an NVMe worth it",
        ("ram.capacity=1GiB:128GiB:20", "nvme.bandwidth=250MB:16GB:25", "nvme=on,off"),
    ),
    Case(
        "which planner",
        ("planner=multistage,two-level,disk-revolve,1d-revolve", "ram.capacity=1GiB:256GiB:250"),
    ),
)


def measure(case: Case, steps: int) -> dict[str, object]:
    """What a row needs to know, found in this process and those that it starts."""
    import os
    import time

    from click.testing import CliRunner

    from ckio.cli.sweep import command

    start = time.perf_counter()
    with TemporaryDirectory() as place:
        path = f"{place}/node.toml"
        with open(path, "w", encoding="utf-8") as file:  # noqa: PTH123
            file.write(PLATFORM)
        words = ["--platform", path, "--steps", str(steps), "--processes", "2", *COSTS]
        axes = [word for axis in case.axes for word in ("--vary", axis)]
        done = CliRunner().invoke(command, [*words, *axes, "--json"], catch_exceptions=False)
    found = json.loads(done.output)
    used = os.times()
    return {
        "points": len(found["points"]),
        "unplanned": sum("reason" in point for point in found["points"]),
        "front": sum(point.get("pareto", False) for point in found["points"]),
        "seconds": time.perf_counter() - start,
        "processor": used.user + used.system + used.children_user + used.children_system,
        "answer": found["answer"],
    }


def alone(case: Case, steps: int) -> dict[str, object]:
    """What `measure` finds in a process of its own."""
    task = json.dumps([asdict(case), steps])
    words = [sys.executable, __file__, "--task", task]
    done = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, object] = json.loads(done.stdout)
    return found


HEADER = ["", "points", "no schedule", "front", "seconds", "processor s"]


def table(steps: int, cases: tuple[Case, ...] = CASES) -> str:
    """All rows, and what each sweep says."""
    rows, said, most = [], [], 0.0
    for case in cases:
        found = alone(case, steps)
        most = max(most, float(str(found["seconds"])))
        counts = [str(found[name]) for name in ("points", "unplanned", "front")]
        times = [f"{found[name]:.1f}" for name in ("seconds", "processor")]
        rows.append([case.name, *counts, *times])
        said.append(f"{case.name}: {' '.join(case.axes)}\n    {found['answer']}")
    title = f"{steps} steps, two processes; the most: {most:.0f} of {MOST_SECONDS} s by the clock"
    return "\n".join([title, "", record.columns(HEADER, rows), "", *said])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--task", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.task is None:
        record.save("sweep", table(1000))
        return
    case, steps = json.loads(given.task)
    print(json.dumps(measure(Case(case["name"], tuple(case["axes"])), steps)))


if __name__ == "__main__":
    main()
