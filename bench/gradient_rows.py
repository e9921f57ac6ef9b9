"""The rows of `gradient_peers`: one gradient of the vorticity model by ckio and by others.

All call the same `step` and `adjoint_step`; they differ in what is between them.
"""

import importlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ckio.actions import Advance, Discard, Key, Kind, Read, Record, Reverse, Write
from ckio.arrays import Arrays
from ckio.chain import Chain
from ckio.columns import READ, WRITE
from ckio.model import sizes_of
from ckio.models.vorticity import Vorticity
from ckio.planners.hrevolve import hrevolve
from ckio.planners.mixed import mixed
from ckio.platforms import Level, Platform
from ckio.prices import Affine
from ckio.schedule import Schedule, counts

TAPE = "zeta", "psi"


@dataclass(frozen=True)
class Task:
    """What is asked of every row: steps on a grid, with slots in memory and in a directory."""

    grid: int
    steps: int
    slots: int
    disk: int
    place: str


class Work:
    """The vorticity model as steps on dicts of arrays, counted."""

    def __init__(self, task: Task) -> None:
        self.model, self.task = Vorticity(grid=task.grid), task
        self.forward = self.moved = 0
        self.schedule_seconds = 0.0
        layout = self.model.layout(Key(Kind.RESTART, 0))
        self.state = Arrays({field.name: np.zeros(field.shape) for field in layout})
        self.model.start(self.state)
        self.adjoint = Arrays({name: np.zeros_like(array) for name, array in self.state.items()})
        self.nbytes = sum(array.nbytes for array in self.state.values())
        self.functional = 0.0

    def step(self, state: Arrays, i: int) -> None:
        self.forward += 1
        self.model.step(state, i)

    def seed(self, state: Arrays) -> None:
        self.functional = self.model.adjoint_seed(state, self.adjoint, self.task.steps)

    def back(self, tape: Arrays, i: int) -> None:
        self.model.adjoint_step(self.adjoint, tape, i)

    def gradient(self) -> dict[str, Any]:
        self.model.adjoint_start(self.adjoint)
        return dict(self.model.gradient)

    def planned(self, make: Callable[[], Any]) -> Any:
        """A schedule, whose making is timed."""
        start = time.perf_counter()
        made = make()
        self.schedule_seconds += time.perf_counter() - start
        return made


def copied(arrays: Arrays, names: Any = None) -> Arrays:
    return Arrays({name: arrays[name].copy() for name in names or arrays})


# The rows


def store_all(work: Work) -> dict[str, Any]:
    """Every tape in memory: what everything else is held against."""
    tapes = []
    for i in range(work.task.steps):
        tapes.append(copied(work.state, TAPE))
        work.step(work.state, i)
    work.seed(work.state)
    while tapes:
        work.back(tapes.pop(), len(tapes))
    return work.gradient()


def platform(work: Work) -> tuple[Chain, Platform]:
    """Memory is free, a disk slot takes as long as two steps: all that the planners are told."""
    task = work.task
    costs = {"advance": 1.0, "record": 1.0, "reverse": 2.0}
    chain = Chain(steps=task.steps, **costs, **sizes_of(work.model))
    levels = [Level(name="ram", capacity=task.slots * chain.restart)]
    if task.disk:
        price = Affine(2.0)
        levels.append(
            Level(
                name="disk",
                capacity=task.disk * chain.restart,
                write=price,
                read=price,
                backend="directory",
            )
        )
    return chain, Platform(tuple(levels), working_memory=chain.tape)


def bare(work: Work) -> dict[str, Any]:
    """ckio's own schedule in a loop of a few lines, with dicts as slots: no ckio at all."""
    schedule: Schedule = work.planned(lambda: hrevolve(*platform(work)))
    slots: dict[tuple[int, Key], Arrays] = {}
    state, tape, farthest = work.state, work.state, 0
    for action in schedule.actions:
        match action:
            case Advance(begin=begin, end=end):
                for i in range(begin, end):
                    work.step(state, i)
            case Record(begin=begin, end=end):
                tape = copied(state, TAPE)
                work.step(state, begin)
                if end == work.task.steps and not farthest:
                    farthest = end
                    work.seed(state)
            case Reverse(begin=begin):
                work.back(tape, begin)
            case Write(key=key, level=level):
                slots[level, key] = copied(state)
                work.moved += work.nbytes
            case Read(key=key, level=level):
                for name, array in slots[level, key].items():
                    state[name][...] = array
                work.moved += work.nbytes
            case Discard(key=key, level=level):
                del slots[level, key]
    return work.gradient()


def by_ckio(planner: Callable[..., Schedule]) -> Callable[[Work], dict[str, Any]]:
    def row(work: Work) -> dict[str, Any]:
        from ckio.backends.directory import Directory
        from ckio.backends.ram import Ram
        from ckio.runner import run

        chain, machine = platform(work)
        schedule = work.planned(lambda: planner(chain, machine))
        backends: list[Any] = [Ram()]
        if work.task.disk:
            backends.append(Directory(Path(work.task.place) / "level"))
        run(schedule, machine, work.model, backends)
        for backend in backends:
            backend.remove()
        found = counts(schedule)
        work.forward, work.functional = found.forward, work.model.functional
        actions = schedule.actions
        sizes = np.where(actions.kind == 0, chain.restart, chain.tape)
        work.moved = int(sizes[(actions.op == WRITE) | (actions.op == READ)].sum())
        return dict(work.model.gradient)

    return row


def by_pyrevolve(work: Work) -> dict[str, Any]:
    peer = importlib.import_module("pyrevolve")
    task, state = work.task, work.state
    arrays = [array.reshape(-1) for array in state.values()]
    kept, seeded = [state], []

    class Slots(peer.Checkpoint):  # type: ignore[misc,name-defined]
        dtype = np.float64
        size = sum(array.size for array in arrays)

        def get_data(self, timestep: int) -> list[Any]:
            work.moved += work.nbytes
            return arrays

        get_data_location = get_data

    class Forward(peer.Operator):  # type: ignore[misc,name-defined]
        def apply(self, t_start: int, t_end: int) -> None:
            for i in range(t_start, t_end):
                if i == t_end - 1:  # it may be the step that is reversed next
                    kept[0] = copied(state, TAPE)
                work.step(state, i)

    class Back(peer.Operator):  # type: ignore[misc,name-defined]
        def apply(self, t_start: int, t_end: int) -> None:
            if not seeded:
                seeded.append(True)
                work.seed(state)
            work.back(kept[0], t_start)

    operators = Slots(), Forward(), Back()

    def revolver() -> Any:
        if not task.disk:
            return peer.SingleLevelRevolver(*operators, task.slots, task.steps)
        profiler, size = peer.Profiler(), Slots.size
        near = peer.NumpyStorage(size, task.slots, Slots.dtype, profiler=profiler)
        options = {"filedir": f"{task.place}/", "singlefile": False, "wd": 2, "rd": 2}
        far = peer.DiskStorage(size, task.disk, Slots.dtype, profiler=profiler, **options)
        levels = {"storage_list": [near, far], "profiler": profiler}
        return peer.MultiLevelRevolver(*operators, task.steps, **levels)

    made = work.planned(revolver)
    made.apply_forward()
    made.apply_reverse()
    return work.gradient()


def by_pyadjoint(work: Work) -> dict[str, Any]:
    peer, schedules = map(importlib.import_module, ("pyadjoint", "checkpoint_schedules"))
    Overloaded = importlib.import_module("pyadjoint.overloaded_type").OverloadedType  # noqa: N806
    tapes = importlib.import_module("pyadjoint.tape")
    task = work.task

    class Files(tapes.TapePackageData):  # type: ignore[misc,name-defined]
        """Where states go while pyadjoint says that they go to disk."""

        on, made = False, 0

        def continue_checkpointing(self) -> None:
            self.on = True

        def pause_checkpointing(self) -> None:
            self.on = False

        def copy(self) -> Any:
            return self

        def checkpoint(self) -> None: ...
        def clear(self) -> None: ...
        def reset(self) -> None: ...
        def restore_from_checkpoint(self, _state: object) -> None: ...

    files = Files()

    class Stored(Overloaded):  # type: ignore[misc,valid-type]
        """A state in a file, which goes when pyadjoint lets go of it."""

        def __init__(self, state: Arrays) -> None:
            super().__init__()
            files.made += 1
            self.path = Path(task.place) / f"{files.made}.npz"
            np.savez(self.path, **state)
            work.moved += work.nbytes

        def _ad_restore_at_checkpoint(self, _checkpoint: object) -> Any:
            return self.restored()

        def restored(self) -> Any:
            with np.load(self.path) as found:
                work.moved += work.nbytes
                return State(Arrays({name: found[name] for name in work.state}))

        def __del__(self) -> None:
            self.path.unlink(missing_ok=True)

    class State(Overloaded):  # type: ignore[misc,valid-type]
        def __init__(self, arrays: Arrays) -> None:
            super().__init__()
            self.arrays = arrays

        def _ad_create_checkpoint(self) -> Any:
            return Stored(self.arrays) if files.on else self

        def _ad_restore_at_checkpoint(self, checkpoint: Any) -> Any:
            found = checkpoint
            return found.restored() if isinstance(found, Stored) else found

        def _ad_convert_riesz(self, value: Any, riesz_map: object = None) -> Any:
            return value

        def _ad_copy(self) -> Any:
            return State(copied(self.arrays))

    def stepped(state: Any, i: int) -> Any:
        arrays = copied(state.arrays)
        work.step(arrays, i)
        return State(arrays)

    class Step(peer.Block):  # type: ignore[misc,name-defined]
        def __init__(self, state: Any, i: int) -> None:
            super().__init__()
            self.add_dependency(state)
            self.i = i

        def recompute_component(self, inputs: Any, *_: Any) -> Any:
            return stepped(inputs[0], self.i)

        def evaluate_adj_component(self, inputs: Any, adj_inputs: Any, *_: Any, **__: Any) -> Any:
            assert adj_inputs[0] is work.adjoint  # which is handed on, changed in place
            work.back(inputs[0].arrays, self.i)
            return work.adjoint

    class End(peer.Block):  # type: ignore[misc,name-defined]
        def __init__(self, state: Any) -> None:
            super().__init__()
            self.add_dependency(state)

        def recompute_component(self, *_: Any) -> Any:
            return peer.AdjFloat(work.functional)

        def evaluate_adj_component(self, *_: Any, **__: Any) -> Any:
            return work.adjoint

    def schedule() -> Any:
        if task.disk:
            return schedules.MultistageCheckpointSchedule(task.steps, task.slots, task.disk)
        return schedules.Revolve(task.steps, task.slots)

    tape = peer.Tape()
    peer.set_working_tape(tape)
    peer.continue_annotation()
    tape._package_data["files"] = files  # noqa: SLF001 - there is no other door
    tape.enable_checkpointing(work.planned(schedule))
    state = first = State(work.state)
    control = peer.Control(first)
    for i in tape.timestepper(iter(range(task.steps))):
        block, state = Step(state, i), stepped(state, i)
        tape.add_block(block)
        block.add_output(state.create_block_variable())
    work.seed(state.arrays)
    block, value = End(state), peer.AdjFloat(work.functional)
    tape.add_block(block)
    block.add_output(value.create_block_variable())
    peer.ReducedFunctional(value, control).derivative()
    return work.gradient()


ROWS: dict[str, Callable[[Work], dict[str, Any]]] = {
    "numpy, every tape kept": store_all,
    "numpy, ckio's schedule": bare,
    "ckio, hrevolve": by_ckio(hrevolve),
    "ckio, mixed": by_ckio(mixed),
    "pyrevolve": by_pyrevolve,
    "pyadjoint": by_pyadjoint,
}
NEEDS = {"pyrevolve": "pyrevolve", "pyadjoint": "pyadjoint"}
