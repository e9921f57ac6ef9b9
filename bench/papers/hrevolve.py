"""Herrmann and Pallez (2020), section 5: their Figures 2 to 5 and Table 7 with ckio's planners.

What the paper says of each figure stands beside what is measured, then the times of Table 7. It
takes some minutes; `--quick` takes few and short chains.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from bench import record
from bench.papers import hrevolve_claims
from bench.papers.hrevolve_figures import FIGURES, Point, chain, machine, points
from bench.papers.hrevolve_printed import folded
from ckio.adapters.registry import find
from ckio.platform import Platform

FULL = {
    2: [*range(2, 60), *range(60, 1001, 10), *range(1200, 3001, 200)],
    3: [*range(10, 1001, 10), *range(1100, 5001, 100)],
    4: [*range(10, 1001, 10), *range(1100, 3001, 100)],
    5: [100, *range(500, 10_001, 500)],
}
QUICK = {2: [20, 60, 120, 300], 3: [30, 60], 4: [20, 60], 5: [100, 200, 300]}
"""Lengths by figure; the paper's text does not say which ones it took."""

TIMED = (100, 1000, 10_000)

DISK = folded(20, 10, 2)
"""The machine of all rows of Table 7 but one: 20 free slots, and a disk with w = 10, r = 2."""


@dataclass(frozen=True)
class Row:
    """An algorithm by the paper's name, its times as printed, and who plans it here."""

    name: str
    printed: tuple[str, str, str]
    planner: str
    platform: Platform


ROWS = (
    Row("Revolve(l, 20)", ("40 ms", "4 s", "6 min"), "revolve", DISK),
    Row("Disk-Revolve(l, 20, 10, 2)", ("40 ms", "4 s", "8 min"), "disk-revolve", DISK),
    Row("Per-Disk-Revolve(l, 20, 10, 2)", ("0.3 s", "0.5 s", "1 s"), "periodic-disk-revolve", DISK),
    Row("Per-Rev-Revolve(l, 20, 10, 2)", ("10 ms", "60 ms", "0.6 s"), "per-rev-revolve", DISK),
    Row("H-Revolve(l, arch_1)", ("30 ms", "2.6 s", "6 min"), "hrevolve", machine("arch_1")),
)


def campaign(lengths: Mapping[int, Sequence[int]]) -> dict[int, list[Point]]:
    """The points of every figure."""
    return {number: list(points(figure(), lengths[number])) for number, figure in FIGURES.items()}


def times(lengths: tuple[int, ...]) -> str:
    """How long a plan takes, in CPU seconds, the best of three."""
    rows = []
    for row in ROWS:
        printed = dict(zip(TIMED, row.printed, strict=True))
        planner = find("planners", row.planner)
        taken = [best(lambda n, r=row, p=planner: p(chain(n), r.platform), n) for n in lengths]
        rows.append([f"{row.name}, as printed", *(printed[n] for n in lengths)])
        rows.append([f"  ckio {row.planner}", *map(in_words, taken)])
    head = "Table 7: CPU seconds to plan, best of 3\n"
    return head + record.columns(["", *(f"l = {n}" for n in lengths)], rows)


def best(make: Callable[[int], object], length: int) -> float:
    """CPU seconds of the quickest of three."""
    taken = []
    for _ in range(3):
        start = time.process_time()
        make(length)
        taken.append(time.process_time() - start)
    return min(taken)


def in_words(seconds: float) -> str:
    return f"{seconds:.2g} s" if seconds >= 0.1 else f"{1000 * seconds:.2g} ms"


def table(*, quick: bool = False) -> str:
    """Claims and times."""
    found = campaign(QUICK if quick else FULL)
    claims = [claim for number in found for claim in hrevolve_claims.of(number, found[number])]
    return "\n".join(map(str, claims)) + "\n\n" + times(TIMED[:1] if quick else TIMED)


if __name__ == "__main__":
    record.main("hrevolve", table, quick=False)
