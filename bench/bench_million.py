"""How long does it take to plan millions of steps, on machines of every kind?

Each row is a process of its own: seconds of processor time, the median of three, with numba's
kernels loaded before. "plan" finds the segments; "columns" writes all actions; "general" is the
general algorithm for the same chain (up to the length given), which has to find the same makespan.
MiB is the most memory the process held for plan and columns.
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from fractions import Fraction
from math import lcm
from typing import Any, NamedTuple

import pytest
import record

from ckio.planners import compiled
from ckio.planners.dp import Solution, solve_states
from ckio.planners.dp.spaces import slots_of
from ckio.platform import Affine, Chain, Level, Platform


class Machine(NamedTuple):
    """By level: slots, and what a write and a read cost in steps."""

    slots: list[int]
    write: list[str]
    read: list[str]

    def units(self) -> tuple[list[int], list[int], list[int], int]:
        """Slots, write, read and one step, in multiples of one unit."""
        costs = [Fraction(cost) for cost in (*self.write, *self.read)]
        unit = lcm(*(cost.denominator for cost in costs))
        whole = [int(cost * unit) for cost in costs]
        return self.slots, whole[: len(self.slots)], whole[len(self.slots) :], unit

    def plan(self, length: int) -> Solution:
        """The solution of a chain of `length` + 1 steps, in these units."""
        levels = zip(*self.units()[:3], strict=True)
        platform = Platform(
            tuple(
                Level(name=str(number), capacity=slots, write=Affine(write), read=Affine(read))
                for number, (slots, write, read) in enumerate(levels)
            )
        )
        chain = self.chain(length)
        return solve_states(chain, platform, planner="hrevolve")

    def chain(self, length: int) -> Chain:
        costs = {"advance": self.units()[3], "record": 0, "reverse": 0}
        return Chain(steps=length + 1, **costs, restart=1, tape=1, adjoint=1)


TODAY = [50, 1000, 10_000]
MACHINES = {
    "RAM 50, NVMe 1000, archive 10000": Machine(TODAY, [".05", "1", "5"], [".05", "1", "5"]),
    "the same, NVMe 20000": Machine([50, 20_000, 10_000], [".05", "1", "5"], [".05", "1", "5"]),
    "measured costs": Machine(TODAY, [".014", "1.038", "4.817"], [".012", ".743", "6.02"]),
    "costs that cross": Machine(TODAY, ["1", ".2", "5"], [".1", "3", ".5"]),
    "dear levels: .5, 500, 2500": Machine(TODAY, [".5", "500", "2500"], [".5", "500", "2500"]),
    "dear levels: 50, 500, 1000": Machine(TODAY, ["50", "500", "1000"], ["50", "500", "1000"]),
    "RAM for all, w = .05": Machine([10**8, 1000, 10_000], [".05", "1", "5"], [".05", "1", "5"]),
    "RAM for all, w = 3.5": Machine([10**8, 1000], ["3.5", "4"], ["0", "1"]),
    "RAM 50 alone, free": Machine([50], ["0"], ["0"]),
    "arch_1": Machine([1, 1, 2, 20], ["1", "5", "10", "20"], ["1", "5", "10", "20"]),
    "arch_2": Machine([2, 20, 20], [".5", "10", "20"], [".5", "10", "20"]),
}
"""The papers' two machines are the last."""

NOW = next(iter(MACHINES))
LENGTHS = (10**5, 10**6)
TARGETS = {(NOW, 10**5): 0.4, (NOW, 10**6): 0.6, (NOW, 10**7): 3.0}
"""Seconds that a plan is to take at most."""


def took(action: Callable[[], object], repeats: int = 3) -> float:
    """Seconds of processor time of a call, the median of several."""
    seconds = []
    for _ in range(repeats):
        start = time.process_time()
        action()
        seconds.append(time.process_time() - start)
    return statistics.median(seconds)


def measure(name: str, length: int) -> dict[str, Any]:
    """A plan, its seconds and those of its columns, and what the process held."""
    machine = MACHINES[name]
    compiled.prepare()
    found = machine.plan(length)
    measured: dict[str, Any] = {"plan": took(lambda: machine.plan(length))}
    if found.first:
        chain, made = machine.chain(length), list[int]()

        def columns() -> None:
            made.append(len(found.schedule(chain, held=1)))

        measured |= {
            "cost": round(found.seconds),
            "table": found.stages[0].longest,
            "columns": took(columns),
            "actions": made[0],
        }
    measured["mebibytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return measured


def measure_general(name: str, length: int) -> dict[str, Any]:
    """The general algorithm's seconds, for tables up to the length of the chain."""
    from ckio.planners.dp.recurrence import in_order

    compiled.prepare()
    slots, write, read, unit = MACHINES[name].units()
    levels = [
        slots_of(str(k), k, min(slots[k], length), write=write[k], read=read[k])
        for k in range(len(slots))
    ]
    costs = list[int]()
    seconds = took(
        lambda: costs.append(in_order(levels, length + 1, move=unit, held=1)[-1].finish[-1]), 1
    )
    return {"plan": seconds, "cost": int(costs[0])}


def alone(function: str, name: str, length: int) -> dict[str, Any]:
    """What one of the two finds in a process of its own."""
    task = json.dumps([function, name, length])
    words = [sys.executable, __file__, "--task", task]
    done = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def row(name: str, length: int, *, general: bool) -> list[str]:
    """A machine and a length: all figures."""
    ours = alone("measure", name, length)
    cells = [f"{name}, l = {length}", f"{ours['plan']:.3f}", f"{TARGETS.get((name, length), '')}"]
    if "cost" in ours:
        cells += [f"{ours['columns']:.3f}", f"{ours['mebibytes']:.0f}"]
        cells += [str(ours["actions"]), str(ours["table"])]
    else:
        cells += ["-"] * 4
    if not general:
        return [*cells, "-"]
    theirs = alone("measure_general", name, length)
    same = ours.get("cost", theirs["cost"]) == theirs["cost"]
    return [*cells, f"{theirs['plan']:.2f}" if same else "DIFFERS"]


def table(longest_general: int) -> str:
    rows = [
        row(name, length, general=length <= longest_general)
        for name in MACHINES
        for length in (*LENGTHS, *([10**7] if name == NOW else []))
    ]
    header = ["steps", "plan s", "target", "columns s", "MiB", "actions"]
    return record.columns([*header, "table", "general s"], rows)


@pytest.mark.parametrize("name", MACHINES)
def test_planning(benchmark, name: str) -> None:
    assert benchmark(MACHINES[name].plan, 10_000).first


def test_a_measurement() -> None:
    assert alone("measure", "arch_1", 10_000)["cost"] == 90_271


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--general", type=int, default=10**5, help="longest chain for it")
    parser.add_argument("--task", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.task is None:
        record.save("million", table(given.general))
        return
    function, name, length = json.loads(given.task)
    print(
        json.dumps({"measure": measure, "measure_general": measure_general}[function](name, length))
    )


if __name__ == "__main__":
    main()
