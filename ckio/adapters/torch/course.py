"""How a loop is run: what is planned for it, and the run in two halves."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from time import perf_counter
from typing import Any, Final
from weakref import WeakKeyDictionary

import torch

from ckio.actions import Record
from ckio.adapters import registry
from ckio.adapters.torch.loop import At, Loop
from ckio.adapters.torch.steps import Steps
from ckio.adapters.torch.tensors import Tensors, owned
from ckio.backends.base import Backend
from ckio.planners.base import Planner
from ckio.planners.online import Online
from ckio.platform import Level, Platform
from ckio.platform.chain import Chain
from ckio.platform.clock import WallClock
from ckio.runner import perform
from ckio.runner.unknown import RuleRun, check_fit, reserve
from ckio.schedule import Schedule

Done = Callable[[Any, int], Any]
"""Whether the loop ends at x_i, of x_i and i."""

_STATES: Final = 100
"""States in memory, of a loop whose end is not known, where no platform is given."""

_took: WeakKeyDictionary[Any, dict[Any, float]] = WeakKeyDictionary()
"""Seconds of a step, by its code, or its module, and its states: it is measured once."""


@dataclass(frozen=True, slots=True)
class Course:
    """How a loop is run: by a schedule, or by a rule until it is done."""

    loop: Loop
    plan: Schedule | Online
    platform: Platform
    done: Done | None

    def run(self, model: Steps, backends: Sequence[Backend], /) -> Iterator[None]:
        """A run in two halves: it yields once, where the loop has come to its end."""
        if isinstance(self.plan, Online):
            return _until_done(self.plan, model, backends)
        return _by_schedule(self.plan, self.platform, model, backends)


def planned(
    loop: Loop,
    state: Tensors,
    n: int | None,
    /,
    *,
    done: Done | None,
    platform: Platform | None,
    planner: str | Planner,
    seconds: float | None,
) -> Course:
    """Plan a loop of n steps from this state, or one that ends where it is done.

    Raises NoSchedule and BadInput as planners do.
    """
    random = loop.random()
    nbytes = sum(t.nbytes for t in (*state, *random))
    platform = platform or _memory(nbytes, n)
    if seconds is None:
        priced = any(_has_price(level, nbytes) for level in platform.levels)
        seconds = _seconds(loop, At(owned(state), random)) if priced else 1.0
    # Plans do not depend on what the way back costs: here a rule of thumb, the step itself in it.
    chain = Chain(
        steps=n,
        advance=seconds,
        record=seconds,
        reverse=3 * seconds,
        restart=nbytes,
        tape=nbytes,
        adjoint=0,
    )
    if n is None:
        rule = Online(chain, platform)
        _ = rule.levels  # raises where none is of use
        return Course(loop, rule, platform, done)
    plan: Any = planner  # who gives one that has no hash is told so
    return Course(loop, _schedule(plan, chain, platform), platform, None)


@lru_cache(maxsize=64)
def _schedule(planner: Any, chain: Chain, platform: Platform) -> Schedule:
    """A schedule; the same loop is often run many times."""
    plan: Planner = registry.find("planners", planner) if isinstance(planner, str) else planner
    return plan(chain, platform)


def _by_schedule(
    schedule: Schedule, platform: Platform, model: Steps, backends: Sequence[Backend]
) -> Iterator[None]:
    turned = False
    for event in perform(schedule, platform, model, backends):
        match event.action:
            case Record(_, end) if end == schedule.chain.length and not turned:
                turned = True
                yield


def _until_done(rule: Online, model: Steps, backends: Sequence[Backend]) -> Iterator[None]:
    check_fit(rule, model, backends, [])
    reserve(rule, model, backends)
    run, clock = RuleRun(rule, model, backends), WallClock()
    for _ in run.events(run.forward(), clock):
        pass
    yield
    for _ in run.events(run.back(), clock):
        pass


def _memory(nbytes: int, n: int | None) -> Platform:
    """Memory for some states, and the tape of one step.

    So many that no step is run more than three times: with s of them, (s + 1)(s + 2) / 2 >= n.
    """
    slots = _STATES if n is None else math.ceil(math.sqrt(2 * n + 0.25) - 1.5)
    level = Level(name="ram", capacity=max(1, slots) * nbytes)
    return Platform((level,), working_memory=nbytes)


def _has_price(level: Level, nbytes: int) -> bool:
    return any(price(nbytes) > 0 for price in (level.write, level.read, level.discard))


def _seconds(loop: Loop, at: At) -> float:
    """Of a step as this; a loop that is trained asks a thousand times, and plans but once."""
    owner = getattr(loop.step, "__self__", loop.step)
    if not isinstance(owner, torch.nn.Module):
        owner = getattr(loop.step, "__code__", type(owner))
    known = _took.setdefault(owner, {})
    if loop.like not in known:
        known[loop.like] = _measured(loop, at)
    return known[loop.like]


def _measured(loop: Loop, at: At) -> float:
    """Seconds of the first step; what it does the first time is not counted."""
    took = 0.0
    for _ in range(2):
        with torch.no_grad(), loop.inside(at.random):
            start = perf_counter()
            loop.after(at.state, 0)
            took = perf_counter() - start
    return took
