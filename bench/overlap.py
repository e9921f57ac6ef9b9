"""What does overlap cost the program, what does it save, and which plan is the fastest?

    python bench/overlap.py costs
    python bench/overlap.py plans

The first table is of the processor time that the program's own thread takes for a step, while
checkpoints stream out past the page cache beside it. The second runs the vorticity model with and
without overlap, beside what the simulator says of both with the costs that were just measured.

The third, `plans`, runs a model whose tape is about as large as its state on memory for a few
states, a directory past the page cache, and an HDF5 archive, whose costs are measured before: the
plan that is made for overlap, and others with and without it, in turns. What each is said to save
stands beside what it saved. It needs 5 GB of memory, as much on the disk, and a quarter of an hour.
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import record
from example_models.shallow_water import ShallowWater

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
from ckio.adapters.registry import find
from ckio.backends.base import Backend
from ckio.backends.compressed import Compressed
from ckio.backends.directory import Directory
from ckio.backends.hdf5 import Hdf5
from ckio.backends.ram import Ram
from ckio.calibrate import calibrate
from ckio.compression import Zstd
from ckio.errors import NoSchedule
from ckio.model.arrays import as_bytes, empty
from ckio.models.vorticity import Vorticity
from ckio.planners.base import without_notes
from ckio.planners.overlap import overlapped as best_plan
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


@dataclass(frozen=True)
class Contest:
    """A model with so many steps, the states that each level holds, and how often all plans run.

    After `most_seconds` no other turn begins.
    """

    grid: int = 1300
    steps: int = 30
    states: tuple[int, int, int] = (7, 12, 36)
    turns: int = 5
    most_seconds: float = 780.0
    repeats: int = 3

    def model(self) -> ShallowWater:
        """A fresh one: its tape is five sixths of its state."""
        return ShallowWater(grid=self.grid)


@dataclass(frozen=True)
class Entry:
    """A schedule with a policy, what is said of it, and what its runs took, in seconds."""

    name: str
    schedule: Schedule
    overlap: Overlap
    predicted: float
    measured: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        return statistics.median(self.measured)


@contextmanager
def three_levels(capacities: Sequence[int | None]) -> Iterator[dict[str, Backend]]:
    """Memory, a directory past the page cache and an archive; they are removed in the end."""
    ram, nvme, archive = capacities
    with tempfile.TemporaryDirectory() as folder, ExitStack() as ends:
        backends: dict[str, Backend] = {
            "ram": Ram(capacity=ram),
            "nvme": Directory(Path(folder) / "nvme", capacity=nvme, durability="direct"),
            "archive": Hdf5(Path(folder) / "archive.h5", capacity=archive, durability="fdatasync"),
        }
        for backend in backends.values():
            ends.enter_context(closing(backend))
        yield backends


def calibrated(contest: Contest) -> tuple[Chain, Platform]:
    """The chain and the platform as they are measured, with as much room as the levels have."""
    with three_levels([None] * 3) as backends:
        models = {"model": contest.model}
        platform = calibrate(backends, models=models, repeats=contest.repeats)
    chain = replace(platform.models["model"], steps=contest.steps)
    levels = tuple(
        replace(level, capacity=states * chain.largest("restart"), backend=kind)
        for level, states, kind in zip(
            platform.levels, contest.states, ("ram", "directory", "hdf5"), strict=True
        )
    )
    memory = chain.largest("tape")
    return chain, replace(platform, levels=levels, working_memory=memory)


def entries(chain: Chain, platform: Platform) -> list[Entry]:
    """The plan for overlap, and three others without overlap and with the best policy for them."""
    made = best_plan(chain, platform)
    sizes = chain.largest("restart"), chain.largest("tape")
    slowest = max(
        cost(n)
        for level in platform.levels[1:]
        for cost in (level.write, level.read)
        for n in sizes
    )
    horizons = [*(times * slowest for times in (2, 5, 10, 20)), float("inf")]
    policies = [Overlap(None, None, horizon) for horizon in horizons]
    policies += [Overlap(None, 0), Overlap(0, None)]
    found = [Entry("planned for overlap", made, made.overlap, made.makespan)]
    for name in ("mixed", "hrevolve", "store-all"):
        try:
            with without_notes():
                schedule = find("planners", name)(chain, platform)
        except NoSchedule:
            continue
        seconds = [simulate(schedule, platform, overlap=one).makespan for one in policies]
        best = min(range(len(policies)), key=seconds.__getitem__)
        alone = simulate(schedule, platform).makespan
        found.append(Entry(f"{name}, synchronous", schedule, Overlap(), alone))
        found.append(Entry(f"{name}, overlapped", schedule, policies[best], seconds[best]))
    return found


def take_turns(contest: Contest, platform: Platform, given: Sequence[Entry]) -> None:
    """Run all, one after the other, and again, until there were enough turns."""
    start = time.perf_counter()
    capacities = [level.capacity for level in platform.levels]
    for _ in range(contest.turns):
        if time.perf_counter() - start > contest.most_seconds:
            return
        for entry in given:
            with three_levels(capacities) as backends:
                timeline = run(
                    entry.schedule,
                    platform,
                    contest.model(),
                    [*backends.values()],
                    overlap=entry.overlap,
                )
            entry.measured.append(timeline.makespan)
            print(f"{entry.name}: {timeline.makespan:.2f} s", file=sys.stderr)
            os.sync()  # what one run leaves to be written does not slow the next one


def plans(contest: Contest = Contest()) -> str:
    """The table of plans, of which the one that is made for overlap is to be the fastest."""
    chain, platform = calibrated(contest)
    given = entries(chain, platform)
    take_turns(contest, platform, given)
    alone = min(
        (entry for entry in given[1:] if not entry.overlap), key=lambda entry: entry.predicted
    )
    rows = [
        [
            entry.name,
            f"{entry.predicted:.2f}",
            f"{entry.median:.2f}",
            f"{min(entry.measured):.2f} to {max(entry.measured):.2f}",
            f"{entry.median / entry.predicted - 1:+.1%}",
            f"{1 - entry.predicted / alone.predicted:.1%}",
            f"{1 - entry.median / alone.median:.1%}",
            str(entry.overlap) if entry.overlap else "none",
        ]
        for entry in given
    ]
    head = [
        "",
        "predicted s",
        "measured s",
        "from to",
        "error",
        "saves, predicted",
        "measured",
        "overlap",
    ]
    prices = "; ".join(
        f"{level.name} {states} states, written in {level.write(chain.largest('restart')):.3f} s"
        f" and read in {level.read(chain.largest('restart')):.3f} s"
        for level, states in zip(platform.levels, contest.states, strict=True)
    )
    return (
        f"shallow water {contest.grid}^2, {contest.steps} steps of"
        f" {float(np.mean(chain.advance)):.3f} s, {float(np.mean(chain.record)):.3f} s to record"
        f" and {float(np.mean(chain.reverse)):.3f} s to reverse; a state of"
        f" {chain.largest('restart') / 2**20:.0f} MiB, a tape of"
        f" {chain.largest('tape') / 2**20:.0f} MiB\n{prices}\n"
        f"medians of {len(given[0].measured)} turns; saved is what is less than {alone.name} takes;"
        f" the plan: {given[0].schedule.note or 'no note'}\n\n" + record.columns(head, rows)
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
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("table", nargs="?", choices=("costs", "plans"), help="one of them alone")
    table = parser.parse_args().table
    if table != "plans":
        record.save("overlap", tables())
    if table != "costs":
        record.save("overlap_plans", plans())
