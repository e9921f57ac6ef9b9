"""What is gained by knowing what a program does to its variables?

The vorticity model as a program that nobody has thought about holds it, all of its fields in the
state: bytes of a checkpoint and of a tape, and the gradient over many steps in the same memory, by
the same planner. `observed` knows what the first steps of the program were seen to do; with psi
`recomputed`, no checkpoint and no tape holds it, and it is computed again from zeta; `by variable`,
checkpoints are lowered to what is really needed of each. The tapes of the same step written in JAX
are in `analysis_traced`; other models, by the policies of the paper, are in `analysis_table1`, and
array by array in `analysis_arrays`.
"""

import argparse
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, ClassVar

import analysis_arrays
import analysis_table1
import analysis_traced
import numpy as np
import record
from example_models.ocean import FIELDS, Ocean

from ckio.actions import Key, Kind, nbytes_of
from ckio.actions.columns import WRITE
from ckio.actions.variables import Variables
from ckio.analysis.lowering import ByVariable
from ckio.analysis.recorded import observe
from ckio.backends.ram import Ram
from ckio.jobs.gradients import digest
from ckio.model.arraymodel import ArrayModel
from ckio.model.arrays import Arrays
from ckio.planners.base import Planner
from ckio.planners.binomial import revolve
from ckio.platform import Affine, Level, Platform
from ckio.platform.chain import Chain
from ckio.runner import run
from ckio.schedule import Schedule, bytes_moved, counts

GRID, STEPS, WHOLE, ROUNDS = 128, 1000, 10, 5
"""Cells along each side, steps, whole states that memory holds, and how often all is measured."""

COPY = Affine(per_byte=1e-10)
"""Seconds to copy bytes to memory or back; by these copies of variables are placed."""


class Known(ArrayModel):
    """Where a program leaves it to `ArrayModel` to hold everything, it is told what was observed.

    Attributes
    ----------
    found : Variables
        What was observed.
    """

    found: ClassVar[Variables]

    def __init__(self, state: dict[str, Any], /, **options: Any) -> None:
        found = self.found
        tape = [name for name in state if name in found.tape]
        super().__init__(state, flow=found.steps, seed=found.seed, tape=tape, **options)


class Recomputing(Known):
    """And it computes psi again, from zeta."""

    derived: ClassVar = {"psi": ("zeta",)}

    def __init__(self, state: dict[str, Any], /, **options: Any) -> None:
        super().__init__(state, recompute=["psi"], **options)

    def derive(self, name: str, arrays: Arrays, /) -> None:
        self._vorticity.derive(name, arrays)  # type: ignore[attr-defined]


@dataclass(frozen=True)
class Way:
    """A way to hold the program, and to plan for it."""

    name: str
    make: Callable[[], ArrayModel]
    by_variable: bool = False

    @cached_property
    def restart(self) -> int:
        """Bytes of a whole checkpoint."""
        return nbytes_of(self.make().layout(Key(Kind.RESTART, 0)))

    @cached_property
    def tape(self) -> int:
        """Bytes of the tape of a step."""
        return nbytes_of(self.make().layout(Key(Kind.TAPE, 0)))

    def planned(self, steps: int, platform: Platform) -> Schedule:
        """Restart checkpoints by revolve: its forward steps are the fewest."""
        model = self.make()
        planner: Planner = revolve
        if self.by_variable and model.variables is not None:
            planner = ByVariable(revolve, model.variables)
        chain = Chain(
            steps=steps,
            advance=1,
            record=1,
            reverse=1,
            restart=self.restart,
            tape=self.tape,
            adjoint=0,
        )
        return planner(chain, platform)


def ways(grid: int) -> tuple[Way, ...]:
    """From all fields to those that are needed."""
    found = observe(partial(Ocean, grid=grid))
    known, recomputing = (
        partial(type("Told", (Ocean, kind), {"found": found}), grid=grid)
        for kind in (Known, Recomputing)
    )
    return (
        Way("all fields", partial(Ocean, grid=grid)),
        Way("observed", known),
        Way("psi recomputed", recomputing),
        Way("observed, by variable", known, by_variable=True),
        Way("recomputed, by variable", recomputing, by_variable=True),
    )


@dataclass
class Result:
    """A schedule, the gradient that it led to, and the seconds of each round."""

    way: Way
    schedule: Schedule
    platform: Platform
    seconds: list[float]
    gradient: dict[str, np.ndarray]

    def round(self) -> None:
        """Take the gradient once, on a fresh model and fresh memory."""
        model = self.way.make()
        level = Ram(capacity=self.platform.levels[0].capacity)
        taken = record.seconds(lambda: run(self.schedule, self.platform, model, [level]))
        level.close()
        self.seconds.append(taken)
        self.gradient = {name: array.copy() for name, array in model.gradient.items()}

    def away(self, first: "Result") -> str:
        """How far the gradient is from another: the largest difference by the largest value."""
        if digest(self.gradient) == digest(first.gradient):
            return "same bits"
        parts = [
            np.abs(array - first.gradient[name]).max() / np.abs(first.gradient[name]).max()
            for name, array in self.gradient.items()
        ]
        return f"{max(parts):.1e}"


def measured(grid: int, steps: int, whole: int, rounds: int) -> list[Result]:
    """All ways in the memory that so many whole states take; they take turns."""
    found: list[Result] = []
    for way in ways(grid):
        capacity = whole * (found[0].way.restart if found else way.restart)
        level = Level(name="ram", capacity=capacity, write=COPY, read=COPY)
        platform = Platform((level,), working_memory=way.tape)
        found.append(Result(way, way.planned(steps, platform), platform, [], {}))
    for turn in range(1 + rounds):  # the first one warms up
        for result in found:
            result.round()
            if not turn:
                result.seconds.clear()
    return found


HEADER = ["", "restart", "fields", "tape", "fields", "slots", "written", "read", "peak"]
TIMES = ["", "forward steps", "seconds", "of all", "spread", "gradient"]


def size(nbytes: float) -> str:
    return f"{nbytes / 1e6:.3f}"


def table(grid: int, steps: int, whole: int, rounds: int) -> str:
    """Bytes, and what the same memory does with them."""
    results = measured(grid, steps, whole, rounds)
    first, field = results[0], (grid + 1) ** 2 * 8
    middle = statistics.median(first.seconds)
    sizes, times = [], []
    for result in results:
        way, schedule = result.way, result.schedule
        level = counts(schedule).levels[0]
        moved, writes = bytes_moved(schedule, result.platform), schedule.actions.op == WRITE
        seconds = statistics.median(result.seconds)
        quarters = statistics.quantiles(result.seconds, n=4) if rounds > 1 else [seconds] * 3
        sizes.append(
            [
                way.name,
                *(it for x in (way.restart, way.tape) for it in (size(x), f"{x / field:.2f}")),
                f"{whole * first.way.restart // way.restart}",
                *map(size, (moved[writes].sum(), moved[~writes].sum(), level.peak_bytes)),
            ]
        )
        times.append(
            [
                way.name,
                str(counts(schedule).forward),
                f"{seconds:.3f}",
                f"{seconds / middle:.1%}",
                f"{(quarters[2] - quarters[0]) / seconds:.0%}",
                result.away(first),
            ]
        )
    return (
        f"barotropic vorticity, {grid + 1} x {grid + 1} points, {len(FIELDS)} fields of"
        f" {size(field)} MB and J; {steps} steps by revolve in memory for {whole} whole states\n"
        "bytes in MB, of a whole checkpoint and of all that the schedule does\n\n"
        f"{record.columns(HEADER, sizes)}\n\n"
        f"medians of {rounds} interleaved runs; spread: distance of the quartiles\n\n"
        f"{record.columns(TIMES, times)}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small, and nothing is kept")
    if parser.parse_args().quick:
        print(quick())
        return
    record.save(
        "analysis",
        "\n\n\n".join(
            [
                table(GRID, STEPS, WHOLE, ROUNDS),
                analysis_traced.table(GRID),
                analysis_table1.table(),
                analysis_arrays.table(),
            ]
        ),
    )


def quick() -> str:
    """All tables, of small models and few steps."""
    return "\n\n\n".join(
        [
            table(16, 40, 3, 2),
            analysis_traced.table(8, analysis_traced.QUICK),
            analysis_table1.table(small=True),
            analysis_arrays.table(small=True),
        ]
    )


if __name__ == "__main__":
    main()
