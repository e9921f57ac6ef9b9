"""What does overlap cost the program, and what does it save?

    python bench/overlap.py

The first table is of the processor time that the program's own thread takes for a step, while
checkpoints stream out past the page cache beside it. The second runs the vorticity model with and
without overlap, beside what the simulator says of both with the costs that were just measured.
"""

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import record

from ckio.actions import (
    Action,
    Advance,
    Buffers,
    Discard,
    Field,
    Key,
    Kind,
    Layout,
    Read,
    Record,
    Reverse,
    Write,
)
from ckio.actions.columns import WRITE
from ckio.backends.base import Backend
from ckio.backends.compressed import Compressed
from ckio.backends.directory import Directory
from ckio.backends.ram import Ram
from ckio.calibrate import calibrate
from ckio.compression import Zstd
from ckio.model.arrays import as_bytes, empty
from ckio.models.vorticity import Vorticity
from ckio.platform import Level, Platform
from ckio.platform.chain import Chain
from ckio.runner import run
from ckio.runner.overlapped import overlapped
from ckio.schedule import Schedule
from ckio.schedule.policy import Overlap
from ckio.sim.engine import simulate

NBYTES = 64 << 20
STEPS = 6
ROUNDS = 5
MOST = 1.05
"""Of the processor time of a step without checkpoints."""

GRID = 512
LENGTH = 10
RUNS = 5
SLOTS = 3
"""Checkpoints that memory holds."""

POLICY = Overlap(None, None)
DISKS: dict[str, Callable[[Path], Backend]] = {
    "directory, fdatasync": lambda place: Directory(place / "plain", durability="fdatasync"),
    "directory, direct": lambda place: Directory(place / "direct", durability="direct"),
    "directory, zstd": lambda place: Compressed(Directory(place / "zstd"), Zstd(1), threads=1),
}


class Waves:
    """A model of one array, which a step goes through again and again; it notes its own time.

    Attributes
    ----------
    seconds : list of float
        Processor seconds of its thread, by step.
    """

    def __init__(self, nbytes: int) -> None:
        self._array = empty((nbytes // 8,), np.float64)
        self._array[...] = np.linspace(0.0, 1.0, nbytes // 8)
        self.seconds: list[float] = []

    def layout(self, key: Key, /) -> Layout:
        del key
        return (Field("x", "<f8", self._array.shape),)

    def advance(self, begin: int, end: int, /) -> int:
        for _ in range(begin, end):
            start = time.thread_time()
            for _ in range(2):
                np.sin(self._array, out=self._array)
            self.seconds.append(time.thread_time() - start)
        return end

    def dump(self, key: Key, /) -> Buffers:
        del key
        return [as_bytes(self._array)]

    def record(self, begin: int, end: int, /) -> int:
        return self.advance(begin, end)

    def reverse(self, begin: int, end: int, /) -> None: ...

    @contextmanager
    def load(self, key: Key, layout: Layout, /) -> Iterator[Buffers]:
        del layout
        yield self.dump(key)


def streaming(nbytes: int, steps: int, *, write: bool) -> Schedule:
    """Steps forward, each after its checkpoint was written, and the one before discarded."""
    actions: list[Action] = []
    for step in range(steps):
        if write:
            actions.append(Write(x(step), 1))
            if step:
                actions.append(Discard(x(step - 1), 1))
        actions.append(Advance(step, step + 1))
    chain = Chain(steps=steps, advance=1, record=1, reverse=1, restart=nbytes, tape=0, adjoint=0)
    return Schedule(chain, actions)


@dataclass(frozen=True)
class Spent:
    """Processor seconds of the program for a step: of the model alone, and of all it does."""

    model: float
    all: float


def spent(schedule: Schedule, backends: Sequence[Backend], nbytes: int) -> Spent:
    """The median of the steps, and the mean of all."""
    levels = (Level(name="ram", capacity=4 * nbytes), Level(name="disk", backend="directory"))
    model = Waves(nbytes)
    times = overlapped(schedule, Platform(levels), model, backends, Overlap(2, 0))
    start = time.thread_time()
    for _ in times:
        pass
    seconds = time.thread_time() - start
    return Spent(statistics.median(model.seconds), seconds / len(model.seconds))


def cost(place: Path, nbytes: int, steps: int, rounds: int) -> str:
    """The table of the program's own time, with direct I/O beside it and without."""
    backends = [Ram(), Directory(place / "direct", durability="direct")]
    found: dict[bool, list[Spent]] = {False: [], True: []}
    for turn in range(1 + rounds):  # the first one warms up
        for write in (False, True):
            each = spent(streaming(nbytes, steps, write=write), backends, nbytes)
            for key in list(backends[1].keys()):
                backends[1].discard(key)
            if turn:
                found[write].append(each)
    backends[1].remove()  # type: ignore[attr-defined]
    rows = []
    for name in ("model", "all"):
        alone, beside = ([getattr(each, name) for each in found[write]] for write in (False, True))
        ratio = statistics.median(b / a for a, b in zip(alone, beside, strict=True))
        words = "the model" if name == "model" else "all, with the copy to staging memory"
        row = [words, *(f"{statistics.median(each) * 1e3:.1f}" for each in (alone, beside))]
        spread = (max(alone) - min(alone)) / statistics.median(alone)
        verdict = "" if name == "all" or ratio <= MOST else "missed"
        rows.append(
            [
                *row,
                f"{ratio:.3f}",
                f"{MOST:.2f}" if name == "model" else "",
                f"{spread:.0%}",
                verdict,
            ]
        )
    head = [
        "processor ms of the program, a step",
        "alone",
        "beside",
        "ratio",
        "at most",
        "spread",
        "",
    ]
    return (
        f"{steps} steps, a checkpoint of {nbytes >> 20} MiB before each, past the page cache,"
        f" write_behind=2; medians of {rounds} interleaved rounds\n\n" + record.columns(head, rows)
    )


def there_and_back(chain: Chain) -> Schedule:
    """Every state goes to the disk, and comes back when its step is reversed."""
    steps = range(chain.length)
    there = [(Write(x(step), 1), Advance(step, step + 1)) for step in steps[:-1]]
    last = (Record(steps[-1], chain.length), Reverse(steps[-1], chain.length))
    back = [
        (
            Read(x(step), 1),
            Discard(x(step), 1),
            Record(step, step + 1),
            Reverse(step, step + 1),
        )
        for step in reversed(steps[:-1])
    ]
    return Schedule(chain, [action for part in (*there, last, *back) for action in part])


def x(step: int) -> Key:
    return Key(Kind.RESTART, step)


def plan(place: Path, disk: str, grid: int, length: int) -> tuple[Schedule, Platform]:
    """The schedule, with the costs of the vorticity model measured here, and the platform."""
    backends = {"ram": Ram(), "disk": DISKS[disk](place / "calibration")}
    platform = calibrate(backends, models={"vorticity": lambda: Vorticity(grid=grid)}, repeats=3)
    backends["disk"].remove()  # type: ignore[attr-defined]
    chain = replace(platform.models["vorticity"], steps=length)
    near, far = platform.levels
    levels = replace(near, capacity=SLOTS * chain.largest("restart")), replace(far, backend="x")
    platform = replace(platform, levels=levels)
    return there_and_back(chain), platform


def measured(
    place: Path, case: tuple[Schedule, Platform], disk: str, grid: int
) -> tuple[float, float]:
    """Seconds of a run without overlap, and with it."""
    schedule, platform = case
    took = []
    for overlap in (None, POLICY):
        model = Vorticity(grid=grid)
        backends = [Ram(capacity=platform.levels[0].capacity), DISKS[disk](place / "run")]
        if overlap is None:
            took.append(run(schedule, platform, model, backends).makespan)
        else:
            times = overlapped(schedule, platform, model, backends, overlap)
            start = time.perf_counter()
            for _ in times:
                pass
            took.append(time.perf_counter() - start)
        backends[1].remove()  # type: ignore[attr-defined]
    return took[0], took[1]


def savings(place: Path, grid: int, length: int, runs: int) -> str:
    """The table of what overlap saves, measured and simulated."""
    rows = []
    for disk in DISKS:
        case = plan(place, disk, grid, length)
        found = [measured(place, case, disk, grid) for _ in range(runs)]
        alone, beside = (statistics.median(each) for each in zip(*found, strict=True))
        simulated = simulate(*case).makespan, simulate(*case, overlap=POLICY).makespan
        access = simulate(*case)
        there = (access.actions.op >= WRITE) & (access.actions.level == 1)
        share = float((access.stop - access.start)[there].sum()) / simulated[0]
        rows.append(
            [
                disk,
                f"{share:.0%}",
                *(f"{seconds:.2f}" for seconds in (alone, beside)),
                f"{1 - beside / alone:.1%}",
                *(f"{seconds:.2f}" for seconds in simulated),
                f"{1 - simulated[1] / simulated[0]:.1%}",
            ]
        )
    head = ["", "share", "measured s", "overlap s", "saved", "simulated s", "overlap s", "saved"]
    state = 8 * 4 * (grid + 1) ** 2 / 2**20
    return (
        f"vorticity {grid}^2, {length} steps, whose {state:.0f} MiB go all to the disk and"
        f" back, with room for {SLOTS} in memory; overlap {POLICY}; medians of {runs} interleaved"
        " runs\n"
        "share: of the far level in the synchronous run; costs of the simulation are measured"
        " before\n\n" + record.columns(head, rows)
    )


def tables(
    *,
    nbytes: int = NBYTES,
    steps: int = STEPS,
    rounds: int = ROUNDS,
    grid: int = GRID,
    length: int = LENGTH,
    runs: int = RUNS,
) -> str:
    with tempfile.TemporaryDirectory() as place:
        first = cost(Path(place), nbytes, steps, rounds)
        second = savings(Path(place), grid, length, runs)
    return f"{first}\n\n{second}"


if __name__ == "__main__":
    record.save("overlap", tables())
