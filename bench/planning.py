"""How long does planning take, how much memory, and how long do others need for the same?

Every figure is taken in a process of its own: seconds of processor time of one call of the planner,
columns included, with numba's kernels loaded before, median of three; and the most memory that the
process ever held.
"""

import importlib.util
from collections.abc import Mapping, Sequence
from typing import Any

from bench import record
from ckio.adapters.registry import find
from ckio.planners import compiled
from ckio.platform import Platform
from ckio.platform.chain import Chain
from ckio.schedule import Schedule, counts, makespan
from ckio.schedule.replay import validate

# The two machines of Herrmann and Pallez (2020), then those of today, and some that are unusual;
# write and read in units of one advance.
PLATFORMS = {
    "arch_1": "4\n 1 1 1\n 1 5 5\n 2 10 10\n 20 20 20",
    "arch_2": "3\n 2 .5 .5\n 20 10 10\n 20 20 20",
    "RAM 50, NVMe 1000, archive 10000": "3\n 50 .05 .05\n 1000 1 1\n 10000 5 5",
    "the same, measured costs": "3\n 50 .0137 .0121\n 1000 1.0383 .7429\n 10000 4.8173 6.0218",
    "RAM 20, NVMe 200": "2\n 20 0 0\n 200 1 1",
    "costs that cross": "3\n 50 1 .1\n 1000 .2 3\n 10000 5 .5",
    "costly levels: .5, 500, 2500": "3\n 50 .5 .5\n 1000 500 500\n 10000 2500 2500",
    "RAM for all, w = 3.5": "2\n 100000000 3.5 0\n 1000 4 1",
    "RAM 50 alone, free": "1\n 50 0 0",
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
    "Mixed(n, 20)": ("mixed", "1\n 20 0 0", "MixedCheckpointSchedule(n, 20)"),
}
"""By what checkpoint_schedules calls it: the planner here, the same machine, its call."""


def measure(planner: str, length: int, platform: str, repeats: int = 3) -> dict[str, Any]:
    """A planner's seconds, what its schedule takes to check and to cost, and the memory of all."""
    compiled.prepare()
    record_seconds = float(planner == "mixed")
    costs = {"advance": 1, "record": record_seconds, "reverse": 0}
    chain = Chain(steps=length + 1, **costs, restart=1, tape=1, adjoint=1)
    machine, call, made = Platform.loads(platform), find("planners", planner), list[Schedule]()

    def plan() -> None:
        made.clear()  # two schedules at a time would count as memory
        made.append(call(chain, machine))

    seconds = record.processor_seconds(plan, repeats)
    planned = record.peak_bytes() / 2**20
    return {
        "seconds": seconds,
        "mebibytes": planned,
        "actions": len(made[0]),
        "makespan": makespan(made[0], machine),
        "check": record.processor_seconds(lambda: validate(made[0], machine), repeats),
        "cost": record.processor_seconds(lambda: makespan(made[0], machine), repeats),
        "forward": counts(made[0]).forward,
    }


def measure_peer(call: str, steps: int) -> dict[str, Any]:
    """The same of a schedule of checkpoint_schedules: made, and walked once."""
    import checkpoint_schedules

    def walk() -> None:
        schedule = eval(call, vars(checkpoint_schedules) | {"n": steps})
        forward.append(sum(int(a.n1 - a.n0) for a in schedule if type(a).__name__ == "Forward"))

    forward: list[int] = []
    seconds = record.processor_seconds(walk, repeats=1)
    return {"seconds": seconds, "forward": forward[-1]}


def targets(lengths: Sequence[int], platforms: Mapping[str, str]) -> str:
    """hrevolve's planning time."""
    rows = []
    for name, platform in platforms.items():
        for length in lengths:
            if length > 10**6 and name != TODAY:
                continue
            found = record.alone(measure, "hrevolve", length, platform)
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


def peers(lengths: Sequence[int]) -> str:
    """checkpoint_schedules beside ckio: the same machine, the same n = l + 1."""
    if importlib.util.find_spec("checkpoint_schedules") is None:
        return "checkpoint_schedules is not installed: nothing to compare with"
    rows = []
    for name, (planner, platform, call) in PEERS.items():
        for length in lengths:
            ours = record.alone(measure, planner, length, platform)
            theirs = record.alone(measure_peer, call, length + 1)
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


def table() -> str:
    lengths = (10**3, 10**4, 10**5, 10**6, 10**7)
    return f"{targets(lengths, PLATFORMS)}\n\n{peers((100, 1000))}"


if __name__ == "__main__":
    record.main("planning", table)
