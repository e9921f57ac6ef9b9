"""How long a plan takes: Table 7 of Herrmann and Pallez (2020), beside ckio and a peer."""

import time
from collections.abc import Callable
from dataclasses import dataclass

import planner_peers
import record
from paper_004_figures import chain, machine
from printed import folded

from ckio.adapters.registry import find
from ckio.platform import Platform

LENGTHS = (100, 1000, 10_000)

DISK = folded(20, 10, 2)
"""The machine of all rows but one: 20 free slots, and a disk with w = 10, r = 2."""


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

PATIENCE = 30.0
"""Seconds that a longer chain may take a peer, judged from a shorter one and l^2."""


def table(lengths: tuple[int, ...] = LENGTHS) -> str:
    """The times in CPU seconds, best of three."""
    rows = []
    for row in ROWS:
        printed = dict(zip(LENGTHS, row.printed, strict=True))
        planner = find("planners", row.planner)
        times = [best(lambda n, r=row, p=planner: p(chain(n), r.platform), n) for n in lengths]
        rows.append([f"{row.name}, as printed", *(printed.get(n, "") for n in lengths)])
        rows.append([f"  ckio {row.planner}", *map(spelt, times)])
    for name, make in planner_peers.table_7().items():
        rows.append([f"{planner_peers.NAME}: {name}", *peer_times(make, lengths)])
    head = (
        f"Table 7: CPU seconds to plan, best of 3; {planner_peers.named()};"
        " u_f = u_b = 1 for it, and its\nactions are walked through once;"
        f" - where that would have taken it longer than {PATIENCE:g} s\n"
    )
    return head + record.columns(["", *(f"l = {n}" for n in lengths)], rows)


def peer_times(make: Callable[[int], object], lengths: tuple[int, ...]) -> list[str]:
    known: list[str] = []
    shorter, took = lengths[0], 0.0
    for length in lengths:
        if took * (length / shorter) ** 2 > PATIENCE:
            known.append("-")
            continue
        shorter, took = length, best(lambda n: make(n + 1), length)
        known.append(spelt(took))
    return known


def best(make: Callable[[int], object], length: int) -> float:
    """CPU seconds of the quickest of three; one is enough where it is long."""
    times: list[float] = []
    while len(times) < 3 and sum(times) < 5:
        start = time.process_time()
        make(length)
        times.append(time.process_time() - start)
    return min(times)


def spelt(seconds: float) -> str:
    return f"{seconds:.2g} s" if seconds >= 0.1 else f"{1000 * seconds:.2g} ms"
