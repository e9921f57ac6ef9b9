"""The rows of `vorticity` that are ours: one gradient of the vorticity model by numpy and by ckio.

All rows, those in `vorticity_others` too, call the same `step` and `adjoint_step`, which are timed
and counted here; they differ in what is between them.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any

import numpy as np

from ckio.actions import Advance, Discard, Key, Kind, Read, Record, Reverse, Write
from ckio.backends.directory import Directory
from ckio.backends.ram import Ram
from ckio.model import sizes_of
from ckio.model.arraymodel import functional_at
from ckio.model.arrays import Arrays
from ckio.models.vorticity import Vorticity
from ckio.planners.compiled import prepare
from ckio.planners.dp import hrevolve, mixed
from ckio.platform import Level, Platform
from ckio.platform.chain import Chain
from ckio.platform.profile import Affine
from ckio.runner import run
from ckio.schedule import Schedule
from ckio.schedule.policy import Overlap

TAPE = "zeta", "psi"
ALL = Overlap(None, None)


@dataclass(frozen=True)
class Task:
    """What is asked of every row: steps on a grid, with slots in memory and in a directory."""

    grid: int
    steps: int
    slots: int
    disk: int
    place: str


class Work:
    """The vorticity model as steps on dicts of arrays.

    Attributes
    ----------
    seconds : Counter
        Of wall time, in "steps" of the model and in "planning".
    calls : Counter
        Of the model's methods.
    moved : int
        Bytes copied to slots and from them.
    """

    def __init__(self, task: Task) -> None:
        self.model, self.task, self.moved = Vorticity(grid=task.grid), task, 0
        self.seconds: Counter[str] = Counter()
        self.calls: Counter[str] = Counter()
        layout = self.model.layout(Key(Kind.RESTART, 0))
        self.state = Arrays({field.name: np.zeros(field.shape) for field in layout})
        self.model.start(self.state)
        self.adjoint = Arrays({name: np.zeros_like(array) for name, array in self.state.items()})
        self.nbytes = sum(array.nbytes for array in self.state.values())
        self.functional = 0.0
        for name in ("step", "adjoint_step", "adjoint_seed"):
            setattr(self.model, name, self._measured(getattr(self.model, name)))

    def _measured(self, method: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(method)
        def call(*arguments: object) -> Any:
            self.calls[method.__name__] += 1
            with self.spent("steps"):
                return method(*arguments)

        return call

    @contextmanager
    def spent(self, on: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.seconds[on] += time.perf_counter() - start  # type: ignore[assignment]

    def step(self, state: Arrays, i: int) -> None:
        self.model.step(state, i)

    def seed(self, state: Arrays) -> None:
        steps, of_x = self.task.steps, self.adjoint
        self.functional = functional_at(self.model.adjoint_seed, state, of_x, steps)

    def back(self, tape: Arrays, i: int) -> None:
        self.model.adjoint_step(self.adjoint, tape, i)

    def gradient(self) -> dict[str, Any]:
        self.model.adjoint_start(self.adjoint)
        return dict(self.model.gradient)

    def planned(self, make: Callable[[], Any]) -> Any:
        """A schedule, whose making is timed."""
        with self.spent("planning"):
            return make()


Row = Callable[[Work], dict[str, Any]]
"""Computes the gradient."""


def copied(arrays: Arrays, names: Any = None) -> Arrays:
    return Arrays({name: arrays[name].copy() for name in names or arrays})


def store_all(work: Work) -> dict[str, Any]:
    """Every tape in memory: a loop with nothing to compute again."""
    tapes = []
    for i in range(work.task.steps):
        tapes.append(copied(work.state, TAPE))
        work.moved += sum(array.nbytes for array in tapes[-1].values())
        work.step(work.state, i)
    work.seed(work.state)
    while tapes:
        work.back(tapes.pop(), len(tapes))
    return work.gradient()


def platform(work: Work) -> tuple[Chain, Platform]:
    """Memory is free, a disk slot takes as long as two steps: all that the planners are told."""
    task, price = work.task, Affine(2.0)
    sizes = sizes_of(work.model)
    chain = Chain(
        steps=task.steps, advance=1.0, record=1.08, record_only=0.08, reverse=1.4, **sizes
    )
    levels = [Level(name="ram", capacity=task.slots * chain.restart)]
    if task.disk:
        room = task.disk * chain.restart
        far = Level(name="disk", capacity=room, write=price, read=price, backend="directory")
        levels.append(far)
    return chain, Platform(tuple(levels), working_memory=chain.tape)


def bare(work: Work) -> dict[str, Any]:
    """ckio's own schedule in a loop of a few lines, with dicts as slots: no ckio at all.

    Those in the directory are in memory, too. A step whose state nothing needs is not computed.
    """
    schedule: Schedule = work.planned(lambda: hrevolve(*platform(work)))
    slots: dict[tuple[int, Key], Arrays] = {}
    state, tape, farthest = work.state, work.state, 0
    saved = schedule.chain.saved_by(schedule.actions).tolist()
    for action, is_recorded_only in zip(schedule.actions, saved, strict=True):
        match action:
            case Advance(begin=begin, end=end):
                for i in range(begin, end):
                    work.step(state, i)
            case Record(begin=begin, end=end):
                tape = copied(state, TAPE)
                if not is_recorded_only:
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


def by_ckio(planner: Callable[..., Schedule], overlap: Overlap | None = None) -> Row:
    def row(work: Work) -> dict[str, Any]:
        chain, machine = platform(work)
        schedule = work.planned(lambda: planner(chain, machine))
        backends: list[Any] = [Ram()]
        if work.task.disk:
            backends.append(Directory(Path(work.task.place) / "level"))
        done = run(schedule, machine, work.model, backends, overlap=overlap or Overlap())
        for backend in backends:
            backend.remove()
        work.moved = int(done.nbytes.sum() + done.transfers.nbytes.sum())
        work.functional = work.model.functional
        return dict(work.model.gradient)

    return row


def ours(task: Task) -> dict[str, Row]:
    """The rows of numpy and those of ckio; without a directory nothing can overlap."""
    rows = {
        "numpy, every tape kept": store_all,
        "numpy, ckio's schedule": bare,
        "ckio, hrevolve": by_ckio(hrevolve),
        "ckio, mixed": by_ckio(mixed),
    }
    if task.disk:
        rows["ckio, mixed, overlap"] = by_ckio(mixed, ALL)
    return rows


def warm_up(row: Row, task: Task) -> None:
    """Load and compile what a row needs, by a gradient of few steps."""
    prepare()
    row(Work(Task(task.grid, 6, 2, min(task.disk, 2), task.place)))
