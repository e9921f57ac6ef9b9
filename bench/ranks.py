"""How long does it take to simulate thousands of ranks, and what do they wait for?

Each has the same plan of 1000 steps for RAM, NVMe and an archive, by H-Revolve, and all share the
archive's bandwidth. Each row is a process of its own: seconds of processor time for simulating, not
for planning, and the most memory that it held. "held up" is the makespan, as a multiple of what one
rank alone takes. Where ranks are alike, "one by one" simulates each by itself all the same, and has
to find the same.
"""

import time
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from bench import record
from ckio.planners.dp import hrevolve
from ckio.platform import Affine, Level, Platform
from ckio.platform.chain import Chain
from ckio.schedule import Schedule
from ckio.schedule.policy import Overlap
from ckio.sim.engine import simulate
from ckio.sim.ranks import Barrier, Ranks
from ckio.sim.ranks.sharing import RanksOutcome, simulate_ranks
from ckio.sim.ranks.spread import parse_spread
from ckio.sim.ranks.stretches import is_shared

GIB = 1 << 30
MOST_SECONDS, MOST_MEBIBYTES = 120, 4096
"""What any of the rows is to take at most."""


@dataclass(frozen=True)
class Case:
    """Ranks in words, and the archive's bandwidth in bytes per second for each of them."""

    name: str
    count: int
    spread: str = ""
    jitter: str = ""
    barrier: str = "none"
    near: bool = True
    each: float = 0.1e9
    overlap: str = ""

    def ranks(self) -> Ranks:
        return Ranks(
            count=self.count,
            shared={"archive": self.count * self.each},
            spread=parse_spread(self.spread) if self.spread else None,
            jitter=parse_spread(self.jitter) if self.jitter else None,
            barrier=Barrier(self.barrier),
        )

    def plan(self, steps: int) -> tuple[Schedule, Platform]:
        """Without near levels the archive has all checkpoints, of every second step or so."""
        levels = [
            Level(name="ram", capacity=8 * GIB, write=Affine(0, 1 / 8e9), read=Affine(0, 1 / 8e9)),
            Level(
                name="nvme",
                capacity=16 * GIB,
                write=Affine(1e-4, 1 / 1e9),
                read=Affine(1e-4, 1 / 2e9),
            ),
            Level(name="archive", write=Affine(5e-3, 1 / 0.8e9), read=Affine(5e-3, 1 / 1e9)),
        ]
        platform = Platform(tuple(levels if self.near else levels[2:]), working_memory=2 * GIB)
        chain = Chain(
            steps=steps,
            advance=1.0,
            record=1.2,
            reverse=2.5,
            restart=GIB,
            tape=2 * GIB,
            adjoint=GIB,
        )
        return hrevolve(chain, platform), platform


DRAWN = {"spread": "lognormal:0.05", "jitter": "lognormal:0.1"}
STEPS, COUNT = 1000, 4096
CASES = (
    Case("all alike", COUNT),
    Case("each as fast as it is", COUNT, spread=DRAWN["spread"]),
    Case("each step as long as it is", COUNT, **DRAWN),
    Case("the same, a barrier before transfers", COUNT, **DRAWN, barrier="stretch"),
    Case("the same, a barrier after each step", COUNT, **DRAWN, barrier="step"),
    Case("the same, fewer, transfers behind", 1024, **DRAWN, overlap="write_behind=1,read_ahead=1"),
    Case("the archive alone", 256, **DRAWN, near=False, each=0.4e9),
    Case("all alike", 100_000),
    Case("all alike, transfers behind", 100_000, overlap="write_behind=1,read_ahead=1"),
    Case("one in a hundred slower", 100_000, spread="quantiles:" + "1," * 100 + "1.5"),
    Case("a barrier after each step", 100_000, **DRAWN, barrier="step"),
)
ALIKE = Case("all alike", 1024)


def measure(fields: dict[str, Any], steps: int, one_by_one: bool = False) -> dict[str, Any]:
    """What a row needs to know; in a process of its own, the memory is that of this case."""
    case = Case(**fields)
    schedule, platform = case.plan(steps)
    ranks, overlap = case.ranks(), Overlap.parse(case.overlap)
    start = time.process_time()
    outcome = simulate_ranks(schedule, platform, ranks, overlap=overlap, one_by_one=one_by_one)
    seconds = time.process_time() - start
    use = outcome.channels["archive"]
    return {
        "groups": outcome.groups,
        "transfers": case.count * int(is_shared(schedule, platform, ranks).sum()),
        "seconds": seconds,
        "mebibytes": record.peak_bytes() / 2**20,
        "makespan": outcome.makespan,
        "alone": simulate(schedule, platform, overlap=overlap).makespan,
        "achieved": use.achieved / use.bandwidth,
        "slowed": float(np.median(use.slowed)),
        "waited": float(np.median(outcome.waited)),
        "finish": _digest(outcome),
    }


def _digest(outcome: RanksOutcome) -> list[float]:
    """Enough of the outcome to see whether two are the same to the last bit."""
    use = outcome.channels["archive"]
    return [*np.unique(outcome.finish).tolist(), *np.unique(use.slowed).tolist(), use.busy]


def alone(case: Case, steps: int, *, one_by_one: bool = False) -> dict[str, Any]:
    """What `measure` finds in a process of its own."""
    found: dict[str, Any] = record.alone(measure, asdict(case), steps, one_by_one)
    return found


HEADER = ["", "ranks", "groups", "transfers", "processor s", "MiB"]
HEADER += ["makespan s", "held up", "bandwidth used", "slowed s", "waited s"]


def row(name: str, count: int, found: dict[str, Any]) -> list[str]:
    return [
        name,
        str(count),
        str(found["groups"]),
        str(found["transfers"]),
        f"{found['seconds']:.2f}",
        f"{found['mebibytes']:.0f}",
        f"{found['makespan']:.0f}",
        f"{found['makespan'] / found['alone']:.3f}",
        f"{found['achieved']:.1%}",
        f"{found['slowed']:.0f}",
        f"{found['waited']:.0f}",
    ]


def table(steps: int = STEPS, cases: tuple[Case, ...] = CASES, alike: Case = ALIKE) -> str:
    """All rows; says so where a row takes too much, or ranks one by one find something else."""
    found = [alone(case, steps) for case in cases]
    rows = [row(case.name, case.count, one) for case, one in zip(cases, found, strict=True)]
    grouped, each = alone(alike, steps), alone(alike, steps, one_by_one=True)
    same = "the same to the last bit" if grouped["finish"] == each["finish"] else "DIFFERS"
    rows.append(row(f"{alike.name}, one by one: {same}", alike.count, each))
    costs = [
        (max(one[cost] for one in (*found, each)), most, unit)
        for cost, most, unit in (
            ("seconds", MOST_SECONDS, "s"),
            ("mebibytes", MOST_MEBIBYTES, "MiB"),
        )
    ]
    title = f"{steps} steps; slowed, waited: of the median rank, on the archive and for others"
    limits = [f"the most: {had:.0f} of {most} {unit}" for had, most, unit in costs]
    return "\n".join([title, *limits, "", record.columns(HEADER, rows)])


if __name__ == "__main__":
    record.main("ranks", table)
