"""What the tests of levels that fail in mid-run share: a model, levels, and calls that fail."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, TypeVar

import numpy as np
import pytest
from small_models import digest, reverse_all

from ckio.actions import Buffers, Key, Layout
from ckio.backends.base import Backend
from ckio.backends.ram import Ram
from ckio.backends.wrapper import Wrapper
from ckio.errors import MissingCheckpoint, StorageError
from ckio.model import ArrayModel, sizes_of
from ckio.planners.resume import resume
from ckio.planners.unknown import Online
from ckio.platform import Affine, Level, Platform
from ckio.platform.chain import Chain
from ckio.runner.failover import Forward, Stored, failover, run_forward
from ckio.schedule import Schedule
from ckio.schedule.policy import SYNCHRONOUS, Overlap
from ckio.schedule.timeline import Event, Timeline

THOROUGH = pytest.mark.parametrize(
    "thorough", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["quick", "thorough"]
)
T = TypeVar("T")


def some(cases: Sequence[T], number: int, *, thorough: bool) -> Sequence[T]:
    """Return all cases, or the one whose turn it is."""
    return cases if thorough else [cases[number % len(cases)]]


class Logistic(ArrayModel):
    """A chaotic map, whose gradient shows every bit that is not right."""

    def __init__(self, size: int = 8) -> None:
        x = np.linspace(0.2, 0.7, size)
        super().__init__({"x": x, "J": 0.0}, control={"x": x, "rate": 3.7})

    def step(self, state, i, /):  # type: ignore[no-untyped-def]
        x = state["x"]
        state["J"] += (x**2).sum() * (1 + i)
        x *= self.control["rate"] * (1 - x)

    def adjoint_step(self, adjoint, tape, i, /):  # type: ignore[no-untyped-def]
        x, rate = tape["x"], self.control["rate"]
        self.gradient["rate"] += (x * (1 - x) * adjoint["x"]).sum()
        adjoint["x"] *= rate * (1 - 2 * x)
        adjoint["x"] += 2 * x * (1 + i) * adjoint["J"]


def truth(steps: int, size: int = 8) -> tuple[object, ...]:
    return digest(reverse_all(Logistic(size), steps))


def chain_of(steps: int, size: int = 8) -> Chain:
    return Chain(steps=steps, advance=1.0, record=1.5, reverse=2.0, **sizes_of(Logistic(size)))


def platform_of(chain: Chain, *slots: int | None) -> Platform:
    """Levels, ever slower, with room for so many restart checkpoints each."""
    levels = (
        Level(
            name=f"level{number}",
            capacity=None if count is None else count * chain.restart,
            write=Affine(latency=0.3 * number),
            read=Affine(latency=0.2 * number),
        )
        for number, count in enumerate(slots)
    )
    return Platform(tuple(levels), working_memory=chain.tape)


def finished(chain: Chain, platform: Platform, stored: Stored) -> Schedule:
    """The rest, planned; the same rest of many runs is planned once."""
    plan = resume if chain.varies else _resumed
    return plan(chain, platform, stored)


_resumed = cache(resume)


@dataclass
class Told:
    """What a run said and made; `fresh`, `replan` and `warn` are given to it."""

    fresh: Callable[[], Logistic] = Logistic
    said: list[str] = field(default_factory=list)
    platforms: list[Platform] = field(default_factory=list)
    plans: list[Schedule] = field(default_factory=list)

    def replan(self, chain: Chain, platform: Platform, stored: Stored) -> Schedule:
        self.platforms.append(platform)
        assert len(self.platforms) < 200, "it does not end"
        self.plans.append(finished(chain, platform, stored))
        return self.plans[-1]

    def run(
        self,
        schedule: Schedule,
        platform: Platform,
        backends: Sequence[Backend],
        *,
        watch: Callable[[Event], None] | None = None,
        overlap: Overlap = SYNCHRONOUS,
        resumed: bool = False,
    ) -> tuple[Timeline, Logistic]:
        return failover(
            schedule,
            platform,
            self.fresh(),  # which nobody else holds
            backends,
            fresh=self.fresh,
            replan=self.replan,
            warn=self.said.append,
            resumed=resumed,
            overlap=overlap,
            watch=watch,
        )


class Forgetful(Ram):
    """A level that loses what it is given."""

    def read(self, key: Key, into: Buffers, /) -> int:
        raise MissingCheckpoint(f"{key} is gone")


def memory(faults: "Faults", platform: Platform) -> list["Faulty"]:
    """A level in memory for each of the platform's; they fail as they are told to."""
    return [Faulty(Ram(), number, faults) for number in range(len(platform.levels))]


class Faults:
    """Calls that fail, by their number: writes, reads and discards of all levels are counted."""

    def __init__(self, errors: Mapping[int, type[StorageError]], *, ever: bool = False) -> None:
        self.errors, self.ever = errors, ever
        self.count = 0
        self.broken: dict[tuple[int, str], type[StorageError]] = {}
        self.raised: list[tuple[int, str, type[StorageError]]] = []

    def called(self, level: int, verb: str) -> None:
        error = self.errors.get(self.count) or self.broken.get((level, verb))
        self.count += 1
        if error is not None:
            if self.ever:
                self.broken[level, verb] = error
            self.raised.append((level, verb, error))
            raise error(f"this {verb} was to fail")


class Faulty(Wrapper):
    """A level whose calls fail when `faults` says so; afterwards it holds what it held before."""

    def __init__(self, backend: Backend, number: int, faults: Faults) -> None:
        super().__init__(backend)
        self.keeps, self.number, self.faults = False, number, faults

    def write(self, key: Key, layout: Layout, data: Buffers, /) -> int:
        self.faults.called(self.number, "write")
        return super().write(key, layout, data)

    def read(self, key: Key, into: Buffers, /) -> int:
        for view in into:
            view[:] = bytes(view.nbytes)
        self.faults.called(self.number, "read")
        return super().read(key, into)

    def discard(self, key: Key, /) -> None:
        self.faults.called(self.number, "discard")
        super().discard(key)


class Unready(Faulty):
    """A level that fails as it is made ready: at calls of one method after the first ones."""

    def __init__(
        self,
        verb: str,
        error: type[StorageError],
        *,
        number: int = 0,
        after: int = 0,
        times: int = 1000,
    ) -> None:
        super().__init__(Ram(), number, Faults({}))
        self.verb, self.error, self.after, self.times = verb, error, after, times

    def reserve(self, sizes: Mapping[int, int], /) -> None:
        self._asked("reserve")
        super().reserve(sizes)

    def prepare(self, key: Key, layout: Layout, count: int, /) -> None:
        self._asked("prepare")

    def keys(self) -> Collection[Key]:
        self._asked("keys")
        return super().keys()

    def _asked(self, verb: str) -> None:
        if verb == self.verb:
            self.after -= 1
            if self.after < 0 < self.times:
                self.times -= 1
                raise self.error(f"{verb} was to fail")


class Ending(Logistic):
    """A program that says itself when it is finished."""

    def __init__(self, size: int = 8, steps: int = 7) -> None:
        super().__init__(size)
        self.steps = steps

    def finished(self, state: Any, i: int, /) -> bool:
        return i >= self.steps


@dataclass
class Unknown:
    """A run of unknown length on levels that fail, and what it said."""

    platform: Platform
    backends: Sequence[Backend]
    size: int = 8
    steps: int = 7
    said: list[str] = field(default_factory=list)
    seen: list[Event] = field(default_factory=list)
    platforms: list[Platform] = field(default_factory=list)
    watch: Callable[[Event], None] | None = None
    stop: Callable[[], bool] | None = None

    @property
    def chain(self) -> Chain:
        return chain_of(self.steps, self.size)

    def rule(self, platform: Platform, stored: Sequence[Collection[Key]]) -> Online:
        self.platforms.append(platform)
        assert len(self.platforms) < 200, "it does not end"
        return Online(replace(chain_of(1, self.size), steps=None), platform)

    def told(self, event: Event) -> None:
        self.seen.append(event)
        if self.watch is not None:
            self.watch(event)

    def forward(self, stored: Sequence[Collection[Key]] = ()) -> Forward:
        model = Ending(self.size, self.steps)
        return run_forward(
            self.rule, self.platform, model, self.backends,
            warn=self.said.append, stored=stored, watch=self.told, stop=self.stop,
        )  # fmt: skip

    def back(self, done: Forward) -> tuple[object, ...]:
        """The way back by a fresh model, as the command line goes it."""
        assert done.steps == self.steps
        plan = finished(self.chain, done.platform, done.stored)
        _, model = failover(
            plan, done.platform, Logistic(self.size), done.backends,
            fresh=lambda: Logistic(self.size), replan=finished, warn=self.said.append,
        )  # fmt: skip
        return digest(model)
