"""One level measured with the checkpoints of one model, through the code that runs them."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import numpy as np

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
from ckio.actions.columns import DISCARD, READ, WRITE
from ckio.backends.base import Backend
from ckio.calibrate.samples import Sample, later, seconds_of, typical
from ckio.calibrate.steps import BUDGET, MOST_BYTES, MakeModel
from ckio.model import as_bytes
from ckio.platform import Level, Platform
from ckio.platform.chain import Chain
from ckio.platform.clock import Clock, WallClock
from ckio.runner import run
from ckio.schedule import Schedule
from ckio.schedule.timeline import Timeline

_NOISE_BYTES: Final = 16 << 20

_PASS_BYTES: Final = 32 << 20
"""Of all slots together: what leaves the caches, as a real run does."""


@dataclass(frozen=True, slots=True)
class Try:
    """What a level is tried with: the checkpoints of a model, which takes so many steps."""

    make: MakeModel
    nbytes: int
    steps: int
    own: bool

    def fits(self, capacity: int | None) -> bool:
        """Whether a level can hold one."""
        return capacity is None or self.nbytes <= capacity

    def slots(self, capacity: int | None) -> int:
        """How many: enough to leave the caches, but not more than anybody can spare."""
        each = max(1, self.nbytes)
        most = MOST_BYTES if capacity is None else min(MOST_BYTES, capacity)
        return max(1, min(self.steps, max(4, _PASS_BYTES // each), most // each))


@dataclass(frozen=True)
class Probe:
    """One level probed with the checkpoints of one model, which it fills its slots with."""

    level: str
    backend: Backend
    tried: Try
    slots: int
    repeats: int
    clock: Clock | None

    def samples(self) -> Iterator[Sample]:
        """What every access takes: the first to each slot, and after that pass the others."""
        there, back = self._there(), self._back()
        first = self._run(there + back)
        yield self._sample("first", [first], WRITE)
        spent = first.makespan
        warm: list[Timeline] = []
        while not warm or (len(warm) < self.repeats and spent < BUDGET):
            warm.append(self._run(there + back))
            spent += warm[-1].makespan
        for access, op in (("write", WRITE), ("read", READ), ("discard", DISCARD)):
            yield self._sample(access, warm, op)
        evict = getattr(self.backend, "evict", None)
        if evict is not None:
            self._run(there)
            yield self._drain(evict)
            cold = self._run(back, stored=[map(x, self._steps)])
            yield self._sample("read_cold", [cold], READ)

    def _drain(self, evict: Callable[[], object]) -> Sample:
        """How long it takes for all that was written to be on the device, for each checkpoint."""
        clock = self.clock or WallClock()
        start = clock.now()
        evict()
        seconds = (clock.now() - start) / self.slots
        nbytes = self.tried.nbytes
        return Sample(self.level, "drained", nbytes, seconds, 1.0, self.tried.own)

    @property
    def _steps(self) -> range:
        """The last ones, one for each slot."""
        return range(self.tried.steps - self.slots, self.tried.steps)

    def _there(self) -> list[Action]:
        """Go to these steps, and fill the slots."""
        first = self._steps.start
        actions: list[Action] = [Advance(0, first)] if first else []
        for step in self._steps:
            actions += [Write(x(step), 0), Advance(step, step + 1)]
        return actions

    def _back(self) -> list[Action]:
        """The adjoint of these steps: after each of them the next checkpoint is read, and goes."""
        return [
            action
            for step in reversed(self._steps)
            for action in (
                Read(x(step), 0),
                Discard(x(step), 0),
                Record(step, step + 1),
                Reverse(step, step + 1),
            )
        ]

    def _run(self, actions: list[Action], *, stored: Sequence[Iterable[Key]] = ()) -> Timeline:
        """One pass, with a fresh model."""
        chain = Chain(
            steps=self.tried.steps,
            advance=0,
            record=0,
            reverse=0,
            restart=self.tried.nbytes,
            tape=0,
            adjoint=0,
        )
        schedule = Schedule(chain, actions, stored)
        platform = Platform((Level(name=self.level),))
        return run(schedule, platform, self.tried.make(), [self.backend], clock=self.clock)

    def _sample(self, access: str, timelines: Sequence[Timeline], op: int) -> Sample:
        seconds = np.concatenate([later(seconds_of(timeline, op)) for timeline in timelines])
        moved = max(int(t.nbytes[t.actions.op == op].max()) for t in timelines)
        nbytes = self.tried.nbytes
        return Sample(
            level=self.level,
            access=access,
            nbytes=nbytes,
            seconds=typical(seconds),
            ratio=moved / nbytes if nbytes else 1.0,
            model=self.tried.own,
            each=tuple(seconds.tolist()),
        )


def x(step: int) -> Key:
    """The restart data of a step."""
    return Key(Kind.RESTART, step)


class Noise:
    """A model that is nothing but a checkpoint of a given size: four arrays of noise."""

    def __init__(self, nbytes: int) -> None:
        random, quarter = np.random.default_rng(nbytes), nbytes // 32 * 8
        # Repeated at a distance that no codec looks back to: large noise takes long to make.
        noise = random.integers(0, 256, min(nbytes, _NOISE_BYTES), np.uint8)
        parts = np.split(np.resize(noise, nbytes), [quarter, 2 * quarter, 3 * quarter])
        self._arrays = [part for part in parts if part.size]

    def layout(self, key: Key, /) -> Layout:
        del key
        return tuple(
            Field(f"part{n}", "uint8", array.shape) for n, array in enumerate(self._arrays)
        )

    def advance(self, begin: int, end: int, /) -> int:
        for array in self._arrays:  # all of it, so that the caches are as after a step
            np.add(array, np.uint8(end - begin), out=array)
        return end

    def record(self, begin: int, end: int, /) -> int:
        return self.advance(begin, end)

    def reverse(self, begin: int, end: int, /) -> None: ...

    def dump(self, key: Key, /) -> Buffers:
        del key
        return [as_bytes(array) for array in self._arrays]

    @contextmanager
    def load(self, key: Key, layout: Layout, /) -> Iterator[Buffers]:
        del layout
        yield self.dump(key)
