"""Ranks of one host: what agreeing costs, and what a level gives to each when all write at once.

python bench/mpi.py [--ranks 1 2 4] [--size BYTES] [--record]
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import record

HERE = Path(sys.executable).parent
AGREEMENTS, HALOS, WRITES, SLOTS = 300, 300, 24, 4


def main() -> None:
    """A line for each number of ranks."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--size", type=int, default=4 << 20, help="bytes of a rank's checkpoint")
    parser.add_argument("--record", action="store_true", help="write bench/results/mpi.txt")
    asked = parser.parse_args()
    header = ["ranks", "agree us", "halo us", "write ms", "MB/s a rank", "MB/s together"]
    rows = [row(ranks, asked.size) for ranks in asked.ranks]
    table = f"{asked.size} bytes a rank; medians, of the slowest\n\n" + record.columns(header, rows)
    if asked.record:
        record.save("mpi", table)
    else:
        print(f"{record.machine()}\n\n{table}")


def row(ranks: int, size: int) -> list[str]:
    """What so many ranks take, in words."""
    found = measured(ranks, size)
    rate = size / found["write"] / 1e6
    micro = [f"{found[name] * 1e6:.0f}" for name in ("agree", "halo")]
    return [f"{ranks}", *micro, f"{found['write'] * 1e3:.2f}", f"{rate:.0f}", f"{ranks * rate:.0f}"]


def measured(ranks: int, size: int) -> dict[str, float]:
    """Seconds of an agreement, an exchange with both neighbours, and a write by all at once."""
    with tempfile.TemporaryDirectory() as place:
        done = subprocess.run(
            [HERE / "mpiexec", "-n", str(ranks), sys.executable, __file__, "--as-rank", str(size)],
            cwd=place, capture_output=True, text=True, check=True,
        )  # fmt: skip
    found: dict[str, float] = json.loads(done.stdout)
    return found


def as_rank(size: int) -> None:
    """What each rank of the job does; the first one says what was found."""
    import numpy as np
    from mpi4py import MPI

    from ckio.actions import Field, Key, Kind
    from ckio.adapters.mpi import of
    from ckio.backends.directory import Directory
    from ckio.parallel.agreed import AgreedLevel
    from ckio.parallel.group import CollectiveClock, RankGroup

    ranks = RankGroup(of(MPI.COMM_WORLD))
    apart = ranks.comm.duplicate()
    beside = [rank for rank in (ranks.rank - 1, ranks.rank + 1) if 0 <= rank < ranks.size]
    row = np.zeros(512)
    layout = (Field("u", "uint8", (size,)),)
    data = np.random.default_rng(ranks.rank).integers(0, 256, size, np.uint8).data
    level = AgreedLevel(Directory(Path(f"rank-{ranks.rank}"), capacity=2 * SLOTS * size), ranks)
    clock, times = CollectiveClock(ranks), list[float]()
    for number in range(WRITES):
        key = Key(Kind.RESTART, number % SLOTS)
        if number >= SLOTS:
            level.discard(key)
        begin = clock.now()
        level.write(key, layout, [data])
        times.append(clock.now() - begin)
    level.close()
    figures = {
        "agree": _median(ranks.agree, AGREEMENTS),
        "halo": _median(
            lambda: apart.exchange(dict.fromkeys(beside, row), {r: row.copy() for r in beside}),
            HALOS,
        ),
        "write": statistics.median(times[SLOTS:]),
    }
    every = ranks.gather(figures)
    if ranks.rank == 0:
        print(json.dumps({name: max(each[name] for each in every) for name in figures}))


def _median(do: Callable[[], object], times: int) -> float:
    taken = []
    for _ in range(times):
        begin = time.perf_counter()
        do()
        taken.append(time.perf_counter() - begin)
    return statistics.median(taken)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--as-rank"]:
        as_rank(int(sys.argv[2]))
    else:
        main()
