"""Does storing a tape cost anything, where the model records it where it is stored?

The bare loop makes the same steps, and keeps each tape in memory of NumPy that was made and touched
before: that copy of the state's arrays is all that a tape needs. Beside it, store-all by ckio with
all tapes in RAM, and with all tapes but the last in a directory behind the computation; each once
with what `ArrayModel` hands over, and once with copies. All in one process, in turns. Seconds are
processor time of the thread that computes, so that other people's load says less; what other
threads do beside it is not in them, but that they slow it down is.

    python bench/copies.py [--rounds 9]
"""

import argparse
import gc
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import record

from ckio.actions import Key, Kind
from ckio.backends.directory import Directory
from ckio.backends.ram import Ram
from ckio.calibrate.probe import Copying
from ckio.model import Model, sizes_of
from ckio.model.arraymodel import ArrayModel, functional_at
from ckio.model.arrays import Arrays, copy
from ckio.models.burgers import Burgers
from ckio.models.vorticity import Vorticity
from ckio.planners.trivial import store_all
from ckio.platform import Level, Platform
from ckio.platform.chain import Chain
from ckio.runner import run
from ckio.schedule import Schedule
from ckio.schedule.policy import Overlap

MOST = 1.05
"""What store-all in RAM may take of the bare loop."""

BARE = "bare loop"
RAM, RAM_COPIED = "in RAM", "in RAM, copied"
FAR, FAR_COPIED = "in a directory", "in a directory, copied"

POLICY = Overlap(4, 4)


class Case(NamedTuple):
    """A model, how to make it, and its steps."""

    name: str
    make: Callable[[], ArrayModel]
    steps: int


def cases() -> list[Case]:
    return [
        *(
            Case(f"burgers, {grid}", lambda grid=grid: Burgers(grid=grid, time=1e9), steps)
            for grid, steps in ((1_000, 1000), (30_000, 600), (100_000, 200), (1_000_000, 24))
        ),
        *(
            Case(f"vorticity, {grid}", lambda grid=grid: Vorticity(grid=grid), steps)
            for grid, steps in ((32, 1000), (128, 600), (512, 40), (1024, 12))
        ),
    ]


def arrays(model: ArrayModel, key: Key, /) -> Arrays:
    """Copies of what lies in a checkpoint."""
    views = zip(model.layout(key), model.dump(key), strict=True)
    return Arrays({f.name: copy(np.ndarray(f.shape, f.dtype, view)) for f, view in views})


class Work:
    """What all contenders have in common: the bare loop's memory, a schedule, open levels."""

    def __init__(self, case: Case, path: Path) -> None:
        self.case, model = case, case.make()
        sizes = sizes_of(model)
        self.state = arrays(model, Key(Kind.RESTART, 0))
        model.record(0, 1)
        self.tapes = [arrays(model, Key(Kind.TAPE, 0)) for _ in range(case.steps)]
        chain = Chain(steps=case.steps, advance=1, record=1, reverse=1, **sizes)
        near, far = Level(name="ram"), Level(name="far", backend="directory")
        self.platform = Platform((near, far), working_memory=chain.tape)
        self.ram = store_all(chain, self.platform)
        self.far = store_all(chain, self.platform, on="far")
        self.levels = [Ram(), Directory(path)]

    def bare(self) -> ArrayModel:
        """A model that has made the steps of a loop without ckio."""
        model, steps = self.case.make(), self.case.steps
        state, tapes = Arrays({name: copy(array) for name, array in self.state.items()}), self.tapes
        adjoint = Arrays({n: np.zeros_like(x) for n, x in state.items() if x.dtype.kind in "fc"})
        start = time.thread_time()
        model.start(state)
        for i in range(steps):
            for name, array in tapes[i].items():
                np.copyto(array, state[name])
            model.step(state, i)
        functional_at(model.adjoint_seed, state, adjoint, steps)
        for i in reversed(range(steps)):
            model.adjoint_step(adjoint, tapes[i], i)
        model.adjoint_start(adjoint)
        self.took = time.thread_time() - start
        return model

    def by_ckio(self, schedule: Schedule, overlap: Overlap, *, copied: bool) -> ArrayModel:
        model = self.case.make()
        driven: Model = Copying(model) if copied else model
        start = time.thread_time()
        run(schedule, self.platform, driven, self.levels, overlap=overlap)
        self.took = time.thread_time() - start
        return model

    def contenders(self) -> dict[str, Callable[[], ArrayModel]]:
        alone = Overlap()
        return {
            BARE: self.bare,
            RAM: lambda: self.by_ckio(self.ram, alone, copied=False),
            RAM_COPIED: lambda: self.by_ckio(self.ram, alone, copied=True),
            FAR: lambda: self.by_ckio(self.far, POLICY, copied=False),
            FAR_COPIED: lambda: self.by_ckio(self.far, POLICY, copied=True),
        }


def times(case: Case, rounds: int) -> dict[str, list[float]]:
    """Seconds of each contender in each round, after one that warms all memory."""
    with tempfile.TemporaryDirectory(prefix="ckio-copies-") as path:
        work = Work(case, Path(path) / "level")
        took: dict[str, list[float]] = {name: [] for name in work.contenders()}
        for turn in range(rounds + 1):
            wanted: Mapping[str, Any] | None = None
            for name, contender in work.contenders().items():
                gc.collect()
                found = contender().gradient
                wanted = wanted or found
                for control, array in found.items():
                    assert np.array_equal(array, wanted[control]), (name, control)
                if turn:
                    took[name].append(work.took)
        for level in work.levels:
            level.close()
    return took


def table(tried: list[Case], rounds: int) -> str:
    rows, noise = [], []
    for case in tried:
        took = times(case, rounds)
        bare, nbytes = took[BARE], sizes_of(case.make())["tape"]
        low, middle, high = statistics.quantiles(bare, n=4)
        noise.append((high - low) / middle)
        ratios = [
            statistics.median(mine / its for mine, its in zip(took[name], bare, strict=True))
            for name in list(took)[1:]
        ]
        each = f"{middle / case.steps * 1e6:.0f}"
        missed = "missed" if ratios[0] > MOST else ""
        ratio = [f"{it:.3f}" for it in ratios]
        more = f"{(ratios[0] - 1) * middle / case.steps * 1e6:.0f}"
        rows.append([case.name, f"{nbytes / 1024:.0f}", each, *ratio, more, missed])
    header = ["", "tape, KiB", "bare, µs", RAM, "copied", FAR, "copied", "more, µs", ""]
    return (
        "store-all: processor time of the computing thread, as a multiple of the bare loop's of the"
        f" same round\nmedians of {rounds} interleaved rounds; bare: µs per step, forward and back;"
        f" more: µs per step of the first ratio, at most {MOST}\nnoise (quartile distance of the"
        f" bare loops): {min(noise):.0%} to {max(noise):.0%}\n\n{record.columns(header, rows)}"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=9)
    record.save("copies", table(cases(), parser.parse_args().rounds))
