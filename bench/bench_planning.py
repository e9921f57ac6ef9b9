"""How long does planning take, how much memory, and how long do others need for the same?

Every figure is taken in a process of its own: seconds of processor time of one call of the planner,
columns included, with numba's kernels loaded before, median of three; and the most memory that the
process ever held.
"""

import argparse
import importlib.util
import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import pytest
import record

from ckio.adapters.registry import find
from ckio.errors import NoSchedule
from ckio.planners.dp import hrevolve
from ckio.platform import Platform
from ckio.platform.chain import Chain
from ckio.schedule import Schedule, counts, makespan
from ckio.schedule.replay import validate

# Paper 004's two machines, one of today, and one as it is measured; write and read in units of one
# advance.
PLATFORMS = {
    "arch_1": "4\n 1 1 1\n 1 5 5\n 2 10 10\n 20 20 20",
    "arch_2": "3\n 2 .5 .5\n 20 10 10\n 20 20 20",
    "RAM 50, NVMe 1000, archive 10000": "3\n 50 .05 .05\n 1000 1 1\n 10000 5 5",
    "the same, measured costs": "3\n 50 .0137 .0121\n 1000 1.0383 .7429\n 10000 4.8173 6.0218",
    "RAM 20, NVMe 200": "2\n 20 0 0\n 200 1 1",
}
TODAY = "RAM 50, NVMe 1000, archive 10000"

TARGETS = {
    ("arch_1", 10**4): 0.15,
    ("arch_2", 10**4): 0.15,
    ("arch_1", 10**5): 1.5,
    ("arch_2", 10**5): 1.5,
    ("arch_1", 10**6): 12,
    ("arch_2", 10**6): 12,
    (TODAY, 10**5): 0.4,
    (TODAY, 10**6): 0.6,
    (TODAY, 10**7): 3,
}
"""Seconds that hrevolve is to take at most."""

PEERS: Mapping[str, tuple[str, str, str]] = {
    "Revolve(n, 20)": ("revolve", "1\n 20 0 0", "Revolve(n, 20)"),
    "HRevolve(n, 20, 100)": ("hrevolve", "2\n 20 0 0\n 100 2 2", "HRevolve(n, 20, 100)"),
    "DiskRevolve(n, 20)": ("disk-revolve", "2\n 20 0 0\n 100000 2 2", "DiskRevolve(n, 20)"),
    "Multistage(n, 20, 100)": (
        "multistage",
        "2\n 20 0 0\n 100 0 0",
        "MultistageCheckpointSchedule(n, 20, 100)",
    ),
    "Mixed(n, 20)": (
        "mixed",
        "1\n 20 0 0",
        "MixedCheckpointSchedule(n, 20)",
    ),
}
"""By what checkpoint_schedules calls it: the planner here, the same machine, its call."""


def example(length: int, platform: str, *, record: float = 0) -> tuple[Chain, Platform]:
    """Paper 004's chain of size l, on a machine in its notation."""
    costs = {"advance": 1, "record": record, "reverse": 0, "restart": 1, "tape": 1, "adjoint": 1}
    return Chain(steps=length + 1, **costs), Platform.loads(platform)


def took(action: Callable[[], object], repeats: int) -> float:
    """Seconds of processor time of a call, the median of several."""
    seconds = []
    for _ in range(repeats):
        start = time.process_time()
        action()
        seconds.append(time.process_time() - start)
    return statistics.median(seconds)


def measure(planner: str, length: int, platform: str, *, repeats: int = 3) -> dict[str, Any]:
    """A planner's seconds, what its schedule takes to check and to cost, and the memory of all."""
    from ckio.planners import compiled

    compiled.prepare()
    chain, machine = example(length, platform, record=float(planner == "mixed"))
    call, made = find("planners", planner), list[Schedule]()

    def plan() -> None:
        made.clear()  # two schedules at a time would count as memory
        made.append(call(chain, machine))

    seconds = took(plan, repeats)
    planned = _mebibytes()
    return {
        "seconds": seconds,
        "mebibytes": planned,
        "actions": len(made[0]),
        "makespan": makespan(made[0], machine),
        "check": took(lambda: validate(made[0], machine), repeats),
        "cost": took(lambda: makespan(made[0], machine), repeats),
        "forward": counts(made[0]).forward,
    }


def measure_peer(call: str, steps: int, *, repeats: int = 1) -> dict[str, Any]:
    """The same of a schedule of checkpoint_schedules: made, and walked once."""
    import checkpoint_schedules

    def walk() -> None:
        schedule = eval(call, vars(checkpoint_schedules) | {"n": steps})
        forward.append(sum(int(a.n1 - a.n0) for a in schedule if type(a).__name__ == "Forward"))

    forward: list[int] = []
    seconds = took(walk, repeats)
    return {"seconds": seconds, "mebibytes": _mebibytes(), "forward": forward[-1]}


def _mebibytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def alone(function: str, *arguments: Any, **options: Any) -> dict[str, Any]:
    """What `measure` or `measure_peer` finds in a process of its own."""
    task = json.dumps({"function": function, "arguments": arguments, "options": options})
    words = [sys.executable, __file__, "--task", task]
    done = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def targets(lengths: tuple[int, ...]) -> str:
    """hrevolve's planning time."""
    rows = []
    for name, platform in PLATFORMS.items():
        for length in lengths:
            if length > 10**6 and name != TODAY:
                continue
            found = alone("measure", "hrevolve", length, platform)
            target = TARGETS.get((name, length))
            rows.append(
                [
                    f"{name}, l = {length}",
                    f"{found['seconds']:.3f}",
                    "" if target is None else f"{target:g}",
                    f"{found['mebibytes']:.0f}",
                    str(found["actions"]),
                    f"{found['check']:.2f}",
                    f"{found['cost']:.2f}",
                ]
            )
    header = ["hrevolve", "plan s", "target", "MiB", "actions", "check s", "cost s"]
    return record.columns(header, rows)


def peers(lengths: tuple[int, ...]) -> str:
    """checkpoint_schedules beside ckio: the same machine, the same n = l + 1."""
    if importlib.util.find_spec("checkpoint_schedules") is None:
        return "checkpoint_schedules is not installed: nothing to compare with"
    rows = []
    for name, (planner, platform, call) in PEERS.items():
        for length in lengths:
            ours = alone("measure", planner, length, platform)
            theirs = alone("measure_peer", call, length + 1)
            rows.append(
                [
                    f"{name}, n = {length + 1}",
                    f"{theirs['seconds']:.3f}",
                    f"{ours['seconds']:.3f}",
                    f"{theirs['seconds'] / max(ours['seconds'], 1e-6):.0f} x",
                    str(theirs["forward"]),
                    str(ours["forward"]),
                ]
            )
    header = ["checkpoint_schedules", "plan s", "ckio s", "ratio", "forward steps", "ckio's"]
    return record.columns(header, rows)


PLANNERS = (
    "hrevolve", "hrevolve-2020", "mixed", "auto", "revolve", "multistage", "two-level",
    "disk-revolve", "1d-revolve", "periodic-disk-revolve", "per-rev-revolve", "online",
    "periodic", "store-all", "recompute-all",
)  # fmt: skip


def everyone(lengths: tuple[int, ...]) -> str:
    """Every planner on one machine that all can use."""
    machine = "3\n 50 .05 .05\n 1000 1 1\n 1000000 5 5"
    rows = []
    for planner in PLANNERS:
        cells = []
        for length in lengths:
            chain, platform = example(length, machine, record=1)
            call = find("planners", planner)
            try:
                cells.append(f"{1000 * took(partial(call, chain, platform), 3):.1f}")
            except NoSchedule:
                cells.append("-")
        rows.append([planner, *cells])
    return record.columns(["milliseconds", *(f"l = {length}" for length in lengths)], rows)


def table() -> str:
    return "\n\n".join(
        (
            targets((10**3, 10**4, 10**5, 10**6, 10**7)),
            peers((100, 1000)),
            everyone((100, 1000, 10_000)),
        )
    )


@pytest.mark.parametrize("platform", PLATFORMS)
def test_planning(benchmark, platform: str) -> None:
    benchmark(hrevolve, *example(100, PLATFORMS[platform]))


def test_a_measurement() -> None:
    assert alone("measure", "hrevolve", 1000, PLATFORMS["arch_1"], repeats=1)["makespan"] == 8145


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--task", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.task is None:
        record.save("planning", table())
        return
    task = json.loads(given.task)
    function = {"measure": measure, "measure_peer": measure_peer}[task["function"]]
    print(json.dumps(function(*task["arguments"], **task["options"])))


if __name__ == "__main__":
    main()
