"""Probes: short runs that measure the steps of a model, or a level with a model's checkpoints.

Both use the code that runs schedules. `StepTimer` measures steps, with few checkpoints in memory.
`Probe` fills the slots of one level with the checkpoints of one model, and reads them back.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import Final, TypeAlias

import numpy as np
import xxhash

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
from ckio.actions.columns import ADVANCE, DISCARD, KIND_CODE, READ, RECORD, REVERSE, WRITE
from ckio.backends.base import Backend
from ckio.calibrate.samples import Floats, Sample, later, seconds_of, typical
from ckio.errors import BadInput, LevelFull, UnsupportedKind
from ckio.model import Model, as_bytes, handed_by, optional, reached, sizes_of
from ckio.planners.binomial import revolve
from ckio.planners.trivial import periodic
from ckio.platform import Level, Platform
from ckio.platform.chain import Chain
from ckio.platform.clock import Clock, WallClock
from ckio.runner import run
from ckio.runner.reproducible import unchecked
from ckio.runner.space import MemorySpace, memory_for
from ckio.schedule import Schedule, reservations
from ckio.schedule.timeline import Timeline

MakeModel = Callable[[], Model]

Checkpoint: TypeAlias = tuple[Key, Layout, Buffers]

_OPS: Final = {"advance": ADVANCE, "record": RECORD, "reverse": REVERSE}

STEPS: Final = 24
"""Maximum number of steps of a probe."""
ENOUGH: Final = 6
"""Number of steps of a probe of a slow model; with fewer there would be almost no checkpoints."""
BUDGET: Final = 5.0
"""A measurement that has taken this many seconds is not repeated."""
MOST_BYTES: Final = 256 << 20
"""Maximum bytes of all checkpoints of a probe, which every machine can spare."""


def measure_model(
    make: MakeModel,
    /,
    *,
    repeats: int = 5,
    clock: Clock | None = None,
    steps: int | None = None,
    most: int | None = None,
) -> Chain:
    """Return a model's seconds per step and bytes per checkpoint, as a chain without a length.

    Parameters
    ----------
    make
        Function that returns a fresh model.
    repeats
        Number of probes; fewer if the probes are slow.
    clock
        The clock for all times; by default the clock of the machine.
    steps
        Number of steps of a probe; by default the result of `reach`.
    most
        Number of steps of the run, which a probe does not exceed.
    """
    steps = steps or reach(make, clock=clock, most=most)
    return StepTimer(make, repeats=repeats, clock=clock, steps=steps).chain()


class StepTimer:
    """Measures the times of a model's steps with several probes, each with a fresh model.

    Each probe is a short adjoint computation with few checkpoints in memory. The speed of a
    processor varies from second to second, so that probes right after each other are not
    representative. Therefore call `measure` from time to time.

    Parameters
    ----------
    make
        Function that returns a fresh model.
    repeats
        Minimum number of probes; fewer if they take more than a few seconds.
    clock
        The clock for all times; by default the clock of the machine.
    steps
        Number of steps of a probe; by default the result of `reach`.
    budget
        Seconds after which no further probe is made.
    """

    def __init__(
        self,
        make: MakeModel,
        /,
        *,
        repeats: int = 5,
        clock: Clock | None = None,
        steps: int | None = None,
        budget: float = BUDGET,
    ) -> None:
        self._make, self._repeats, self._clock, self._budget = make, repeats, clock, budget
        steps = steps or reach(make, clock=clock)
        model = make()
        chain = Chain(steps=steps, advance=1, record=1, reverse=1, **sizes_of(model))
        restarts = optional(model).tape_restarts
        chain = replace(chain, handed=handed_by(model), tape_restarts=restarts)
        self._schedule = _few_checkpoints(chain)
        (most,) = reservations(self._schedule) or ({},)
        self._capacity = sum(nbytes * count for nbytes, count in most.items())
        self._platform = Platform((Level(name="ram", capacity=self._capacity),), chain.tape)
        self._timelines: list[Timeline] = []
        self._late = False

    def measure(self, *, always: bool = False) -> bool:
        """Make a probe unless all have taken the budget of seconds; return whether it was made.

        With `always`, the probe is made in any case.
        """
        if not always and sum(timeline.makespan for timeline in self._timelines) >= self._budget:
            return False
        model = self._make()
        level = memory_for(model, self._capacity)
        timeline = run(self._schedule, self._platform, unchecked(model), [level], clock=self._clock)
        self._timelines.append(timeline)
        self._late = bool(optional(model).records_late)
        return True

    def chain(self) -> Chain:
        """Return the mean times of all probes; missing probes are made before."""
        while len(self._timelines) < self._repeats and self.measure():
            pass
        taken = {name: _per_step(self._timelines, op) for name, op in _OPS.items()}
        means = {name: typical(*each) for name, each in taken.items() if len(each[0])}
        # A program of one step never advances; then the time of recording is used.
        means = {"advance": means["record"], **means}
        if self._late:  # the action that needs the state of a recorded step computes it
            only = _recorded_only(self._timelines)
            means["record_only"] = typical(*only) if len(only[0]) else 0.0
            means["record"] = means["record_only"] + means["advance"]
        return replace(self._schedule.chain, steps=None, **means)  # type: ignore[arg-type]


def _few_checkpoints(chain: Chain) -> Schedule:
    """Return a schedule that records and reverses each step once, with few states in memory.

    Tapes are stored, too, if the model records them in the memory of their slots, because memory
    that was not used just before is slower.
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
    """Return the seconds per step and the number of steps of each action with this operation.

    The first such action of each fresh model is omitted. The arrays are empty if there is none.
    """
    seconds, steps = [], []
    for timeline in timelines:
        actions = timeline.actions
        length = (actions.end - actions.begin)[actions.op == op].astype(np.float64)
        later = slice(1 if len(length) > 1 else 0, None)
        steps.append(length[later])
        seconds.append((seconds_of(timeline, op) / length)[later])
    return np.concatenate(seconds), np.concatenate(steps)


def _recorded_only(timelines: Sequence[Timeline]) -> tuple[Floats, Floats]:
    """Return the seconds of the Records of one step that compute no step, and ones.

    A Record computes the step before if that was recorded, too.
    """
    seconds = list[Floats]()
    for timeline in timelines:
        actions = timeline.actions
        states = (actions.op >= WRITE) & (actions.op <= READ)
        states &= actions.kind == KIND_CODE[Kind.RESTART]
        rows = np.flatnonzero((actions.op <= RECORD) | states)
        op = actions.op[rows]
        first = rows[1:][(op[1:] == RECORD) & (op[:-1] != RECORD)]
        single = first[actions.end[first] == actions.begin[first] + 1]
        seconds.append((timeline.stop - timeline.start)[single])
    every = np.concatenate(seconds)
    return every, np.ones(len(every))


def reach(
    make: MakeModel, /, *, clock: Clock | None = None, most: int | None = None, enough: int = ENOUGH
) -> int:
    """Return the number of steps for a probe: `STEPS`, or fewer if the model ends early or is slow.

    It is at most `most`, the steps of a run: later ones may need data that do not exist. From
    `enough` steps on, a slow model makes no further one. Raises BadInput for a model without any
    step.
    """
    model, clock = make(), clock or WallClock()
    start, steps = clock.now(), min(STEPS, most or STEPS)
    for step in range(steps):
        if reached("advance", model.advance(step, step + 1), step, step + 1) == step:
            if step == 0:
                raise BadInput("the model finishes at step 0; there is no step to measure")
            return step
        spent = clock.now() - start
        if spent > BUDGET or (step + 1 >= enough and spent > BUDGET * enough / (2 * ENOUGH)):
            return step + 1
    return steps


class Copying:
    """A model whose checkpoints are always copied, for the measurement of levels."""

    def __init__(self, model: Model) -> None:
        self.advance, self.record, self.reverse = model.advance, model.record, model.reverse
        self.layout, self.dump, self.load = model.layout, model.dump, model.load
        more = optional(model)
        self.largest_sizes, self.estimated = more.largest_sizes, more.estimated
        self.space = more.space


def copying(make: MakeModel, /) -> Model:
    """Return a fresh model that passes no checkpoint without a copy."""
    return Copying(make())


_NOISE_BYTES: Final = 16 << 20

_PASS_BYTES: Final = 32 << 20
"""Minimum bytes of all slots together, so that they do not fit the caches, as in a real run."""


@dataclass(frozen=True, slots=True)
class Workload:
    """A model for the measurement of a level.

    Attributes
    ----------
    make : function
        Function that returns a fresh model.
    nbytes : int
        Bytes of its checkpoints.
    steps : int
        Number of steps of a probe.
    own : bool
        Whether it is the user's model, not an artificial one.
    most_slots : int
        The most slots that are filled.
    """

    make: MakeModel
    nbytes: int
    steps: int
    own: bool
    most_slots: int = STEPS

    def fits(self, capacity: int | None) -> bool:
        """Return whether a checkpoint fits a level with this capacity."""
        return capacity is None or self.nbytes <= capacity

    def slots(self, capacity: int | None) -> int:
        """Return the number of slots for a probe: too many for the caches, but at most 256 MiB."""
        each = max(1, self.nbytes)
        most = MOST_BYTES if capacity is None else min(MOST_BYTES, capacity)
        return max(1, min(self.steps, self.most_slots, max(4, _PASS_BYTES // each), most // each))


@dataclass(frozen=True)
class Probe:
    """A probe of one level with the checkpoints of one model."""

    level: str
    backend: Backend
    workload: Workload
    slots: int
    repeats: int
    clock: Clock | None
    budget: float = BUDGET

    def samples(self) -> Iterator[Sample]:
        """Measure every kind of access: in a first pass the first writes, then all others."""
        there, back = self._there(), self._back()
        first = self._run(there + back)
        yield self._sample("first", [first], WRITE)
        spent = first.makespan
        warm: list[Timeline] = []
        while not warm or (len(warm) < self.repeats and spent < self.budget):
            warm.append(self._run(there + back))
            spent += warm[-1].makespan
        for access, op in (("write", WRITE), ("read", READ), ("discard", DISCARD)):
            yield self._sample(access, warm, op)
        if self.backend.cached:
            self._run(there)
            yield self._drain()
            cold = self._run(back, stored=[map(x, self._steps)])
            yield self._sample("read_cold", [cold], READ)

    def _drain(self) -> Sample:
        """Measure the time until all written bytes are on the device."""
        clock = self.clock or WallClock()
        start = clock.now()
        self.backend.evict()
        seconds = (clock.now() - start) / self.slots
        nbytes = self.workload.nbytes
        return Sample(self.level, "drained", nbytes, seconds, 1.0, self.workload.own)

    @property
    def _steps(self) -> range:
        """The last steps, one for each slot."""
        return range(self.workload.steps - self.slots, self.workload.steps)

    def _there(self) -> list[Action]:
        """Return the actions that advance to these steps and fill the slots."""
        first = self._steps.start
        actions: list[Action] = [Advance(0, first)] if first else []
        for step in self._steps:
            actions += [Write(x(step), 0), Advance(step, step + 1)]
        return actions

    def _back(self) -> list[Action]:
        """Return the actions that reverse these steps, each after reading a checkpoint."""
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
        """Perform one pass, with a fresh model."""
        chain = Chain(
            steps=self.workload.steps,
            advance=0,
            record=0,
            reverse=0,
            restart=self.workload.nbytes,
            tape=0,
            adjoint=0,
        )
        schedule = Schedule(chain, actions, stored)
        platform = Platform((Level(name=self.level),))
        model = unchecked(self.workload.make())
        return run(schedule, platform, model, [self.backend], clock=self.clock)

    def _sample(self, access: str, timelines: Sequence[Timeline], op: int) -> Sample:
        seconds = np.concatenate([later(seconds_of(timeline, op)) for timeline in timelines])
        moved = max(int(t.nbytes[t.actions.op == op].max()) for t in timelines)
        nbytes = self.workload.nbytes
        return Sample(
            level=self.level,
            access=access,
            nbytes=nbytes,
            seconds=typical(seconds),
            ratio=moved / nbytes if nbytes else 1.0,
            model=self.workload.own,
        )


def x(step: int) -> Key:
    """Return the restart data of a step."""
    return Key(Kind.RESTART, step)


class FrozenModel:
    """A model that always has the same checkpoint, so that a probe of a level computes no steps.

    Parameters
    ----------
    layout, data
        The checkpoint.
    estimated
        Tells the runner that the sizes of this checkpoint are upper bounds.
    space
        The memory of the buffers, which are copies of `data`, if it is not that of the host.
    """

    def __init__(
        self,
        layout: Layout,
        data: Buffers,
        *,
        estimated: bool = False,
        space: MemorySpace | None = None,
    ) -> None:
        self._layout, self._data, self._buffers = layout, data, data
        self.estimated, self.space = estimated, space
        if space is not None:
            level, ends = space.level(), list(accumulate(map(len, data), initial=0))
            memory = level.slot(ends[-1])
            level.gather(memory, data)
            self._buffers = [memory[begin:end] for begin, end in pairwise(ends)]

    def layout(self, key: Key, /) -> Layout:
        del key
        return self._layout

    def advance(self, begin: int, end: int, /) -> int:
        del begin
        for view in self._data:  # read all data, so that the caches are as after a step
            xxhash.xxh3_64_intdigest(view)
        return end

    def record(self, begin: int, end: int, /) -> int:
        return self.advance(begin, end)

    def reverse(self, begin: int, end: int, /) -> None: ...

    def dump(self, key: Key, /) -> Buffers:
        del key
        return self._buffers

    @contextmanager
    def load(self, key: Key, layout: Layout, /) -> Iterator[Buffers]:
        del layout
        yield self.dump(key)


def random_data(nbytes: int, space: MemorySpace | None = None, /) -> FrozenModel:
    """Return a model with a checkpoint of four arrays of random bytes, `nbytes` in all."""
    random, quarter = np.random.default_rng(nbytes), nbytes // 32 * 8
    # The noise repeats after 16 MiB, to save time. No codec looks back as far as that.
    noise = random.integers(0, 256, min(nbytes, _NOISE_BYTES), np.uint8)
    parts = np.split(np.resize(noise, nbytes), [quarter, 2 * quarter, 3 * quarter])
    arrays = [part for part in parts if part.size]
    layout = tuple(Field(f"part{n}", "uint8", array.shape) for n, array in enumerate(arrays))
    return FrozenModel(layout, list(map(as_bytes, arrays)), space=space)


def late_checkpoints(make: MakeModel, steps: int, /) -> Iterator[Checkpoint]:
    """Yield the restart data of the last of `steps` steps, and its tape if the model has one.

    Each checkpoint is valid until the next one is requested.
    """
    model, last = make(), steps - 1
    if last:
        model.advance(0, last)
    yield _dumped(model, x(last))
    model.record(last, steps)
    with suppress(UnsupportedKind):
        yield _dumped(model, Key(Kind.TAPE, last))


def copy_checkpoints(checkpoints: Iterable[Checkpoint], /) -> list[Checkpoint]:
    """Return copies of checkpoints, which stay valid."""
    return [
        (key, layout, [memoryview(bytearray(view)) for view in data])
        for key, layout, data in checkpoints
    ]


def worst_ratios(
    backends: Mapping[str, Backend], checkpoints: Iterable[Checkpoint], /
) -> dict[str, float]:
    """Return, for each level, the largest ratio of stored bytes to bytes of a checkpoint."""
    worst = dict.fromkeys(backends, 0.0)
    for key, layout, data in checkpoints:
        nbytes = sum(map(len, data))
        for name, backend in backends.items():
            with suppress(LevelFull):  # a tape may be larger than the whole level
                stored = backend.write(key, layout, data)
                backend.discard(key)
                worst[name] = max(worst[name], stored / nbytes if nbytes else 1.0)
    return worst


def _dumped(model: Model, key: Key) -> Checkpoint:
    return key, model.layout(key), model.dump(key)
