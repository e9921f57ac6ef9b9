"""What the steps of a model cost, and its checkpoints."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from ckio.actions import Kind
from ckio.actions.columns import ADVANCE, RECORD, REVERSE
from ckio.calibrate.samples import Floats, quantiles, seconds_of, typical
from ckio.errors import BadInput
from ckio.model import Handing, Model, handed_by, reached, sizes_of
from ckio.planners.binomial import revolve
from ckio.planners.trivial import periodic
from ckio.platform import Level, Platform
from ckio.platform.chain import Chain
from ckio.platform.clock import Clock, WallClock
from ckio.platform.profile import Quantiles
from ckio.runner import run
from ckio.schedule import Schedule, reservations
from ckio.schedule.timeline import Timeline

MakeModel = Callable[[], Model]

_OPS: Final = {"advance": ADVANCE, "record": RECORD, "reverse": REVERSE}

STEPS: Final = 24
"""Steps of a probe, the most."""
_ENOUGH: Final = 6
"""Steps of a probe of a slow model: fewer have next to no checkpoints."""
BUDGET: Final = 5.0
"""Seconds: what has taken this long is not measured once more."""
MOST_BYTES: Final = 256 << 20
"""Of the checkpoints of a probe together: what is no burden on a machine."""


def measure_model(
    make: MakeModel,
    /,
    *,
    repeats: int = 5,
    clock: Clock | None = None,
    steps: int | None = None,
) -> Chain:
    """A model's seconds per step and bytes per checkpoint, as a chain without a length.

    As `Pacer` finds them.
    """
    return Pacer(make, repeats=repeats, clock=clock, steps=steps).paces().chain


@dataclass(frozen=True)
class Paces:
    """What the steps of a model take.

    Attributes
    ----------
    chain : Chain
        In the mean, without a length.
    spreads : mapping of str to Quantiles
        The factor of a single step, by advance, record and reverse.
    drift : Quantiles or None
        The factor of a whole run, where there were enough of them.
    """

    chain: Chain
    spreads: Mapping[str, Quantiles]
    drift: Quantiles | None


class Pacer:
    """Finds out what a model's steps take, in the mean and in all, from fresh models.

    Each probe is a short adjoint computation with few checkpoints in memory. A processor is slower
    in one second than in the next, so that probes at once say little: call `again` now and then.

    Parameters
    ----------
    make
        Makes a fresh model.
    repeats
        Probes, the least; but for what has taken a few seconds, one will do.
    clock
        What measures; the wall clock by default.
    steps
        Of a probe; by default what `reach` finds.
    """

    def __init__(
        self,
        make: MakeModel,
        /,
        *,
        repeats: int = 5,
        clock: Clock | None = None,
        steps: int | None = None,
    ) -> None:
        self._make, self._repeats, self._clock = make, repeats, clock
        steps = steps or reach(make, clock=clock)
        model = make()
        chain = Chain(steps=steps, advance=1, record=1, reverse=1, **sizes_of(model))
        chain = replace(chain, handed=handed_by(model))
        self._schedule = _few_checkpoints(chain)
        (most,) = reservations(self._schedule) or ({},)
        self._capacity = sum(nbytes * count for nbytes, count in most.items())
        self._platform = Platform((Level(name="ram", capacity=self._capacity),), chain.tape)
        self._timelines: list[Timeline] = []

    def again(self) -> bool:
        """Probe once, unless that has taken some seconds already; whether it did."""
        from ckio.backends.ram import Ram

        if sum(timeline.makespan for timeline in self._timelines) >= BUDGET:
            return False
        level = Ram(capacity=self._capacity)
        model = self._make()
        timeline = run(self._schedule, self._platform, model, [level], clock=self._clock)
        self._timelines.append(timeline)
        return True

    def paces(self) -> Paces:
        """What all probes found, those included that are still lacking."""
        while len(self._timelines) < self._repeats and self.again():
            pass
        taken = {name: _per_step(self._timelines, op) for name, op in _OPS.items()}
        means = {name: typical(*each) for name, each in taken.items() if len(each[0])}
        # A program of one step never advances; then recording is the nearest that is known.
        means = {"advance": means["record"], **means}
        spreads = {name: quantiles([seconds]) for name, (seconds, _) in taken.items()}
        runs = np.array([timeline.makespan for timeline in self._timelines])
        return Paces(
            replace(self._schedule.chain, steps=None, **means),  # type: ignore[arg-type]
            {name: spread for name, spread in spreads.items() if spread},
            quantiles([runs]),
        )


def _few_checkpoints(chain: Chain) -> Schedule:
    """Each step recorded and reversed once, with the checkpoints of a few states in memory.

    And with tapes, where the model records them where they are stored: memory that was not used
    just before is slower than that of a tape register.
    """
    if Kind.TAPE in chain.handed and chain.length > 1:
        most = MOST_BYTES // max(1, chain.restart + chain.tape)
        period = max(1, min(chain.length // 3, most // 2))
        if period + (chain.length - 1) // period <= max(8, most):
            return periodic(chain, Platform((Level(name="ram"),), chain.tape), period=period)
    slots = max(2, min(4, MOST_BYTES // max(1, chain.restart)))
    level = Level(name="ram", capacity=slots * chain.restart)
    return revolve(chain, Platform((level,), chain.tape))


def _per_step(timelines: Sequence[Timeline], op: int) -> tuple[Floats, Floats]:
    """Seconds per step of one action, and its steps; the first of a fresh model is unlike others.

    Empty, where there is none.
    """
    seconds, steps = [], []
    for timeline in timelines:
        actions = timeline.actions
        length = (actions.end - actions.begin)[actions.op == op].astype(np.float64)
        later = slice(1 if len(length) > 1 else 0, None)
        steps.append(length[later])
        seconds.append((seconds_of(timeline, op) / length)[later])
    return np.concatenate(seconds), np.concatenate(steps)


def pace(make: MakeModel, steps: int, /, *, clock: Clock | None = None) -> float:
    """Seconds of a forward step, roughly: of the later ones of so many."""
    model, clock, warm = make(), clock or WallClock(), steps // 2
    if warm:
        model.advance(0, warm)
    begin = clock.now()
    model.advance(warm, steps)
    return (clock.now() - begin) / (steps - warm)


def reach(make: MakeModel, /, *, clock: Clock | None = None) -> int:
    """How many steps of a model a probe takes: fewer where it finishes early, or where it is slow.

    Raises BadInput for a model that has no step.
    """
    model, clock = make(), clock or WallClock()
    start = clock.now()
    for step in range(STEPS):
        if reached("advance", model.advance(step, step + 1), step, step + 1) == step:
            if step == 0:
                raise BadInput("the model finishes at step 0; there is no step to measure")
            return step
        spent = clock.now() - start
        if spent > BUDGET or (step + 1 >= _ENOUGH and spent > BUDGET / 2):
            return step + 1
    return STEPS


class Copying:
    """A model that hands nothing over: what levels are measured with are copies."""

    def __init__(self, model: Model) -> None:
        self.advance, self.record, self.reverse = model.advance, model.record, model.reverse
        self.layout, self.dump, self.load = model.layout, model.dump, model.load
        for name in ("largest_sizes", "estimated"):
            if hasattr(model, name):
                setattr(self, name, getattr(model, name))


def copying(make: MakeModel, /) -> Model:
    """A fresh model, whose checkpoints are all copied."""
    model = make()
    return Copying(model) if isinstance(model, Handing) else model
