"""What do checkpoints of a pyadjoint tape cost: upstream's manager and schedules, and ckio's?

A row is one gradient of 1000 steps of a diffusion equation on 4096 cells: building the schedule,
going forward while the tape is recorded, and going back. 20 checkpoints in memory and 20 in files,
where one of these costs as much as two steps. Then the control is changed, and the gradient asked
for again: how far both are from those of a tape that stores all is in the last two columns.
"""

import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import checkpoint_schedules as upstream
import numpy as np
from adjoint_fields import (
    Array,
    Files,
    Function,
    State,
    apply,
    diffused,
    diffused_adjoint,
    half_square,
    half_square_adjoint,
)
from pyadjoint import (
    Control,
    ReducedFunctional,
    Tape,
    continue_annotation,
    pause_annotation,
    set_working_tape,
)

from bench import record
from ckio.actions import Key
from ckio.adapters.pyadjoint import enable
from ckio.platform import Affine, Level, Platform
from ckio.platform.chain import Chain


@dataclass
class Row:
    """What was measured of one way to store checkpoints."""

    seconds: list[float]
    forward: int = 0
    writes: int = 0
    reads: int = 0
    peak: int = 0
    error: float = 0.0
    error_again: float = 0.0


@dataclass(frozen=True)
class Case:
    """The size of everything."""

    steps: int
    cells: int
    slots: int = 20

    def control(self, seed: int) -> Array:
        return np.random.default_rng(seed).normal(scale=0.3, size=self.cells)

    def gradient(self, seed: int) -> Array:
        """Of a program without any tape."""
        states = [self.control(seed)]
        for _ in range(self.steps):
            states.append(diffused(states[-1]))
        bar = states.pop()
        for state in reversed(states):
            (bar,) = diffused_adjoint(bar, state)
        return bar

    def chain(self) -> Chain:
        nbytes = 8 * self.cells
        return Chain(
            steps=None,
            advance=1,
            record=1,
            reverse=1,
            restart=nbytes,
            tape=2 * nbytes,
            adjoint=nbytes,
        )

    def platform(self, place: Path) -> Platform:
        room, cost = self.slots * 8 * self.cells, Affine(latency=2, per_byte=0)
        disk = {"path": str(place / "disk")}
        return Platform(
            (
                Level(name="memory", capacity=room),
                Level(
                    name="disk",
                    capacity=room,
                    write=cost,
                    read=cost,
                    backend="directory",
                    options=disk,
                ),
            ),
            working_memory=2 * 8 * self.cells,
        )


Use = Callable[[Tape, Path], Callable[[Row], None]]
"""Lets a tape have checkpoints; what it returns says in the end what was done on disk."""


def of_upstream(make: Callable[[], Any] | None) -> Use:
    def use(tape: Tape, place: Path) -> Callable[[Row], None]:
        State.files = files = Files(place)
        if make is not None:
            tape._package_data["bench"] = files  # noqa: SLF001  as packages do
            tape.enable_checkpointing(make())

        def tell(row: Row) -> None:
            row.writes, row.reads, row.peak = files.writes, files.reads, files.peak

        return tell

    return use


def of_ckio(case: Case, planner: str, *, known: bool = True) -> Use:
    def use(tape: Tape, place: Path) -> Callable[[Row], None]:
        State.files = None
        manager = enable(
            tape,
            case.platform(place),
            steps=case.steps if known else None,
            planner=planner,
            chain=case.chain(),
        )
        scratch = manager.storage.scratch
        put, get, seen = scratch.put, scratch.get, Row([])

        def counted_put(level: int, arrays: Mapping[str, Any], /) -> Key:
            key = put(level, arrays)
            if level:
                seen.writes += 1
                seen.peak = max(seen.peak, len(list(scratch.backends[1].keys())))
            return key

        def counted_get(level: int, key: Key, /) -> dict[str, Any]:
            seen.reads += level
            return get(level, key)

        scratch.put, scratch.get = counted_put, counted_get  # type: ignore[assignment,method-assign]

        def tell(row: Row) -> None:
            row.writes, row.reads, row.peak = seen.writes, seen.reads, seen.peak

        return tell

    return use


def ways(case: Case) -> dict[str, Use]:
    """All that are compared."""
    n, slots = case.steps, case.slots
    disk, memory = upstream.StorageType.DISK, upstream.StorageType.RAM
    theirs: dict[str, Callable[[], Any] | None] = {
        "store all": None,
        "Revolve": lambda: upstream.Revolve(n, slots),
        "HRevolve": lambda: upstream.HRevolve(n, slots, slots),
        "Multistage": lambda: upstream.MultistageCheckpointSchedule(n, slots, slots),
        "Mixed, memory": lambda: upstream.MixedCheckpointSchedule(n, slots, storage=memory),
        "Mixed, disk": lambda: upstream.MixedCheckpointSchedule(n, slots, storage=disk),
    }
    ours = ("revolve", "hrevolve", "multistage", "mixed")
    return (
        {f"pyadjoint {name}": of_upstream(make) for name, make in theirs.items()}
        | {f"ckio {name}": of_ckio(case, name) for name in ours}
        | {"ckio, end not known": of_ckio(case, "hrevolve", known=False)}
    )


def measure(case: Case, use: Use, row: Row, *, again: bool) -> None:
    """One gradient, and with `again` that after a new control."""
    with tempfile.TemporaryDirectory() as place:
        tape = Tape()
        set_working_tape(tape)
        continue_annotation()
        Function.evaluated, begun = 0, time.perf_counter()
        tell = use(tape, Path(place))
        control = state = State(case.control(0))
        for _ in tape.timestepper(iter(range(case.steps))):
            state = apply(diffused, diffused_adjoint, state)
        functional = apply(half_square, half_square_adjoint, state)
        pause_annotation()
        reduced = ReducedFunctional(functional, Control(control))
        gradient = reduced.derivative().data
        row.seconds.append(time.perf_counter() - begun)
        row.forward = Function.evaluated - 1
        tell(row)
        if again:
            row.error = off(gradient, case.gradient(0))
            reduced(State(case.control(1)))
            row.error_again = off(reduced.derivative().data, case.gradient(1))
        tape.clear_tape()


def off(gradient: Array, right: Array) -> float:
    return float(np.linalg.norm(gradient - right) / np.linalg.norm(right))


def measured(case: Case, rounds: int) -> dict[str, Row]:
    """All ways, in turns; what is compiled or imported at the first use is so before."""
    for use in ways(small := Case(steps=10, cells=8, slots=2)).values():
        measure(small, use, Row([]), again=False)
    rows = {name: Row([]) for name in ways(case)}
    for number in range(rounds):
        for name, use in ways(case).items():
            measure(case, use, rows[name], again=number == 0)
    return rows


def table(case: Case, rows: Mapping[str, Row]) -> str:
    least = statistics.median(rows["pyadjoint store all"].seconds)
    cells = []
    for name, row in rows.items():
        seconds = statistics.median(row.seconds)
        times = f"{seconds:.2f}", f"{seconds / least:.1f}"
        numbers = (row.forward, row.writes, row.reads, row.peak)
        errors = f"{row.error:.0e}", f"{row.error_again:.0e}"
        cells.append((name, *times, *map(str, numbers), *errors))
    header = ("", "seconds", "ratio", "forward", "writes", "reads", "peak", "error", "new control")
    rounds = len(next(iter(rows.values())).seconds)
    what = f"{case.steps} steps, {case.cells} cells, {case.slots} slots in memory and on disk"
    peers = ", ".join(
        f"{name} {version(name)}" for name in ("pyadjoint-ad", "checkpoint_schedules")
    )
    return f"{what}; medians of {rounds} in turns; {peers}\n{record.columns(header, cells)}"


def text(*, steps: int, cells: int, rounds: int) -> str:
    case = Case(steps, cells)
    return table(case, measured(case, rounds))


if __name__ == "__main__":
    record.main("adjoint_tapes", text, steps=1000, cells=4096, rounds=3)
