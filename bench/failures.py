"""What do failures cost a long run, and how often is its adjoint best stored?

A chain of many steps on memory, a node's own disk and a shared archive, which fails as often as
once in half its makespan and as seldom as once in a hundred. Of ten failures one takes the node,
and with it what is on its disk. All runs of one mean time fail at the same moments, whichever the
interval between adjoint checkpoints is. The plans are those of `ckio run`, and of `--resume`.
"""

import math
import sys
import time

import record

from ckio.jobs.failing import planned
from ckio.jobs.planning import Planning
from ckio.planners.dp import hrevolve
from ckio.planners.recover import adjoint_seconds, every
from ckio.platform import Affine, Level, Platform
from ckio.platform.chain import Chain
from ckio.schedule import makespan
from ckio.sim.failures import (
    QUANTILES,
    Failure,
    Tried,
    best,
    compare,
    exponential,
    intervals,
)

GB = 10**9
STEPS = 1000
TIMES = (0.5, 2.0, 10.0, 100.0)
"""The mean time between failures, in makespans."""

FAILURES = 100
"""About so many for each interval."""

MOST_RUNS = 1000
NODES = 0.1
"""The part of the failures that takes the node."""

RESTART = 300.0
RATIO = 2.0
EACH_SIDE = 2
SEED = 1


def example(steps: int) -> Planning:
    """Steps of seconds and 4 GB of state; room for some checkpoints near, for more far off."""
    chain = Chain(
        steps=steps,
        advance=10,
        record=12,
        reverse=25,
        restart=4 * GB,
        tape=20 * GB,
        adjoint=8 * GB,
    )
    levels = (
        Level(name="ram", capacity=24 * GB, write=Affine(0, 1e-10), read=Affine(0, 1e-10)),
        Level(
            name="nvme",
            capacity=56 * GB,
            write=Affine(0.01, 5e-10),
            read=Affine(0.01, 4e-10),
            backend="directory",
            options={"path": "nvme"},
        ),
        Level(
            name="archive",
            capacity=40 * GB,
            write=Affine(0.1, 1e-8),
            read=Affine(0.1, 1e-8),
            backend="hdf5",
            options={"path": "archive.h5"},
        ),
    )
    return Planning("hrevolve", chain, Platform(levels, working_memory=20 * GB), hrevolve)


def kinds(mean: float) -> tuple[Failure, Failure]:
    """Failures of the process, and losses of the node: together once in so many seconds."""
    return (
        Failure(survive=frozenset({1, 2}), mtbf=mean / (1 - NODES), restart=RESTART),
        Failure(survive=frozenset({2}), mtbf=mean / NODES, restart=RESTART),
    )


def tried(plan: Planning, mean: float, runs: int) -> tuple[float, tuple[Tried, ...]]:
    """Daly's interval for this mean time, and what came of those around it."""
    daly = every(adjoint_seconds(plan.chain, plan.platform, 1), mean)
    ways = kinds(mean)
    plans = {
        interval: planned(plan, every=interval)[0]
        for interval in intervals(daly, ratio=RATIO, each_side=EACH_SIDE)
    }
    return daly, compare(plans, plan.platform, lambda run: exponential(ways, (SEED, run)), runs)


def table(steps: int, times: tuple[float, ...], failures: int) -> str:
    """A line for each interval, for each mean time."""
    plan = example(steps)
    alone = makespan(plan.planned(), plan.platform)
    rows = []
    for ratio in times:
        runs = min(MOST_RUNS, math.ceil(failures * ratio))
        start = time.perf_counter()
        daly, found = tried(plan, ratio * alone, runs)
        print(f"mtbf {ratio:g}: {time.perf_counter() - start:.0f} s", file=sys.stderr)
        at_daly = next(one for one in found if one.every == daly)
        rows += [_row(ratio, runs, one, at_daly, best(found)) for one in found]
    head = ["mtbf", "runs", "every s", "times", "no failure", "expected", "±"]
    head += [f"{share:.0%}" for share in QUANTILES]
    head += ["failures", "redone", "plans", "to Daly's", "±", ""]
    chain, ram = plan.chain, plan.platform.levels[0]
    return (
        f"{steps} steps of {chain.advance:g} s forward and {chain.reverse:g} s back, states of"
        f" {chain.restart // GB} GB; {ram.capacity // GB if ram.capacity else 0} GB of memory,"
        " 56 GB of nvme and 40 GB of archive;"
        f" without failures and adjoint checkpoints {alone:.0f} s\n"
        f"mtbf in units of that; {NODES:.0%} of the failures take the node with its nvme;"
        f" {RESTART:g} s to restart\n"
        "all times in s; to Daly's: of the mean, from run to run\n\n" + record.columns(head, rows)
    )


def _row(ratio: float, runs: int, one: Tried, at_daly: Tried, least: Tried) -> list[str]:
    outcomes, expected = one.outcomes, one.outcomes.expected
    more = at_daly.outcomes.less_than(outcomes)
    words = " and ".join(["Daly"] * (one is at_daly) + ["best"] * (one is least))
    return [
        f"{ratio:g}",
        f"{runs}",
        f"{one.every:.0f}",
        f"{one.adjoints}",
        f"{outcomes.planned:.0f}",
        f"{expected.seconds:.0f}",
        f"{expected.error:.0f}",
        *(f"{seconds:.0f}" for seconds in outcomes.quantiles()),
        f"{outcomes.failures.mean():.2f}",
        f"{outcomes.share_redone:.1%}",
        f"{outcomes.plans}",
        "" if one is at_daly else f"{more.seconds:+.0f}",
        "" if one is at_daly else f"{more.error:.0f}",
        words,
    ]


def tables(
    *, steps: int = STEPS, times: tuple[float, ...] = TIMES, failures: int = FAILURES
) -> str:
    return table(steps, times, failures)


if __name__ == "__main__":
    record.save("failures", tables())
