"""How far above its bound is a plan for overlapped storage, and how long does planning take?

First on a grid: memory for 20 checkpoints and 200 far ones, which take as long to write as to read,
for a chain of size l in paper 004's sense whose steps take 1 second, forward and back. Then on
machines that are drawn at random: those of seed 2020 were looked at while the planner was made; of
those of seed 2021 only the two with the widest gaps, when annealing was added, and one of them
again for the bound by writes; of those of seed 2100 the three with the widest, for the bound by
reads; of those of seed 2102 one, to see with how many near slots that is of use; of those of seed
2101 the three with the widest gaps, and nothing came of it. Those of seeds 2103 and 2104 were not
looked at before the planner was as it is.
"""

import math
import time
from dataclasses import dataclass
from random import Random

import record

from ckio.chain import Chain
from ckio.planners import compiled
from ckio.planners.overlapped import plan
from ckio.platforms import Affine, Level, Platform

LENGTHS = (1000, 5000, 20_000)
SECONDS = (0.5, 1.0, 2.0, 5.0, 20.0)
SEEDS, DRAWN = (2020, 2021, 2100, 2101, 2102, 2103, 2104), 20


@dataclass(frozen=True)
class Case:
    """A chain of l + 1 steps, near and far slots, seconds to write and read a far checkpoint."""

    length: int
    near: int
    far: int
    write: float
    read: float

    def __str__(self) -> str:
        return (
            f"l = {self.length}, {self.near} + {self.far} slots,"
            f" w = {self.write:g}, r = {self.read:g}"
        )

    @property
    def chain(self) -> Chain:
        return Chain(
            steps=self.length + 1, advance=1, record=0, reverse=1, restart=1, tape=1, adjoint=1
        )

    @property
    def platform(self) -> Platform:
        near = Level(name="ram", capacity=self.near)
        far = Level(
            name="nvme",
            capacity=self.far,
            write=Affine(latency=self.write),
            read=Affine(latency=self.read),
            backend="directory",
        )
        return Platform((near, far), working_memory=1)


def grid() -> list[Case]:
    return [Case(length, 20, 200, w, w) for length in LENGTHS for w in SECONDS]


def drawn(seed: int, count: int) -> list[Case]:
    """Machines with 3 to 50 near slots and 10 to 1000 far ones, evenly on a logarithmic scale."""
    random = Random(seed)

    def between(low: float, high: float) -> float:
        return math.exp(random.uniform(math.log(low), math.log(high)))

    return [
        Case(
            length=round(between(500, 10_000)),
            near=round(between(3, 50)),
            far=round(between(10, 1000)),
            write=round(between(0.4, 40), 1),
            read=round(between(0.4, 40), 1),
        )
        for _ in range(count)
    ]


def row(case: Case) -> list[str]:
    start = time.process_time()
    made = plan(case.chain, case.platform)
    seconds = time.process_time() - start
    return [
        str(case),
        f"{made.synchronous:.0f}",
        f"{made.makespan:.0f}",
        f"{made.bound:.1f}",
        f"{made.gap:.2%}",
        f"{1 - made.makespan / made.synchronous:.1%}",
        f"{seconds:.1f}",
    ]


HEADER = ["", "synchronous", "overlapped", "bound", "gap", "less", "planning s"]


def table() -> str:
    compiled.prepare()
    plan(Case(100, 5, 10, 2, 3).chain, Case(100, 5, 10, 2, 3).platform)
    groups = {"the grid": grid()} | {f"seed {seed}": drawn(seed, DRAWN) for seed in SEEDS}
    return "\n\n".join(
        record.columns([name, *HEADER[1:]], [row(case) for case in cases])
        for name, cases in groups.items()
    )


def main() -> None:
    record.save("overlap_planning", table())


if __name__ == "__main__":
    main()
