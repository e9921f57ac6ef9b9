"""What the levels and the models cost on this machine, measured through the code that runs them.

Every figure is the median of events in the timeline of a probe schedule, performed by `run`: the
same dump, copy, checksum and commit as in a real run, on slots that a first pass has warmed.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ckio.actions import Action, Advance, Buffers, Discard, Field, Key, Kind, Layout, Read, Write
from ckio.backends.base import Backend
from ckio.chain import Chain
from ckio.clock import Clock
from ckio.columns import ADVANCE, DISCARD, READ, RECORD, REVERSE, WRITE
from ckio.errors import BadInput
from ckio.layout import nbytes_of
from ckio.model import Model, as_bytes, sizes_of
from ckio.planners.binomial import revolve
from ckio.platforms import Affine, Level, Platform
from ckio.runner import run
from ckio.schedule import Schedule
from ckio.timeline import Timeline

SIZES: Final = (4 << 10, 64 << 10, 1 << 20, 16 << 20)
"""Bytes of the checkpoints that are tried where no model says better."""

MARGIN: Final = 1.1
"""How much worse than measured a checkpoint may compress before its level counts as full."""

_PASS_BYTES = 32 << 20
_MODEL_STEPS = 24
_MODEL_SLOTS = 4
_OWN_WEIGHT = 100.0

MakeModel = Callable[[], Model]
Progress = Callable[[str, int], None]
"""Told what is measured next, and how many measurements there are in all."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One access to one level at one size.

    Attributes
    ----------
    level, access : str
        Where, and "write", "read", "read_cold" or "discard".
    nbytes : int
        Bytes of the checkpoint, before compression.
    seconds, spread : float
        The median, and the distance between its quartiles as a part of it.
    ratio : float
        Bytes that reached the level per byte of the checkpoint.
    model : bool
        Whether it was a model's own checkpoint, and not made up.
    """

    level: str
    access: str
    nbytes: int
    seconds: float
    spread: float
    ratio: float
    model: bool


def calibrate(
    backends: Mapping[str, Backend],
    sizes: Sequence[int] = (),
    /,
    *,
    repeats: int = 5,
    capacities: Mapping[str, int | None] | None = None,
    models: Mapping[str, MakeModel] | None = None,
    progress: Progress = lambda _what, _total: None,
    clock: Clock | None = None,
) -> Platform:
    """Measure open, empty levels, and models, and return the platform that they make.

    Parameters
    ----------
    backends
        The levels by name, nearest first.
    sizes
        Bytes of the checkpoints to try; by default around those of the models, or `SIZES`.
    repeats
        Passes over the slots after the one that warms them.
    capacities
        Bytes that a level may hold, where it is limited.
    models
        Makers of fresh models by identity; their costs and sizes become `Platform.models`.
    progress
        Told before each measurement what it is, and how many there are in all.
    clock
        What measures; the wall clock by default.
    """
    capacities, models = capacities or {}, models or {}
    probes = _probes(
        backends, sizes, repeats=repeats, capacities=capacities, models=models, clock=clock
    )
    total = len(probes) + len(models)
    samples: list[Sample] = []
    for probe in probes:
        progress(f"{probe.level}, {probe.nbytes} bytes", total)
        samples += probe.samples()
    levels = tuple(_level(name, capacities.get(name), samples) for name in backends)
    chains = {}
    for name, make in models.items():
        progress(name, total)
        chains[name] = measure_model(make, repeats=repeats, clock=clock)
    return Platform(levels, min((c.tape for c in chains.values()), default=None), chains)


def _probes(
    backends: Mapping[str, Backend],
    sizes: Sequence[int],
    *,
    repeats: int,
    capacities: Mapping[str, int | None],
    models: Mapping[str, MakeModel],
    clock: Clock | None,
) -> list["_Probe"]:
    """One for each level and each size that it can hold; BadInput for a level that holds none."""
    own = [_restart_nbytes(make) for make in models.values()]
    noise: list[MakeModel] = [partial(_Noise, n) for n in sorted(set(sizes) or _sizes(own))]
    probes: list[_Probe] = []
    for level, backend in backends.items():
        capacity = capacities.get(level)
        here = [
            _Probe(level, backend, make, nbytes, _slots(nbytes, capacity), repeats, clock, real)
            for makers, real in ((noise, False), (models.values(), True))
            for make in makers
            if (nbytes := _restart_nbytes(make)) <= (nbytes if capacity is None else capacity)
        ]
        if not here:
            raise BadInput(
                f"level {level!r}: its capacity of {capacity} bytes holds none of the sizes to try"
            )
        probes += here
    return probes


def _sizes(own: Sequence[int]) -> set[int]:
    """Sizes around those of the models."""
    around = {nbytes * scale // 4 for nbytes in own for scale in (1, 2, 8)}
    return {SIZES[0], *around} if around else set(SIZES)


def _slots(nbytes: int, capacity: int | None) -> int:
    """Enough checkpoints a pass to leave the caches, as a real run does, but not more."""
    slots = min(_MODEL_STEPS - 1, max(4, _PASS_BYTES // max(1, nbytes)))
    return slots if capacity is None else max(1, min(slots, capacity // max(1, nbytes)))


@dataclass(frozen=True)
class _Probe:
    """One level probed with the checkpoints of one model, which it fills its slots with."""

    level: str
    backend: Backend
    make: MakeModel
    nbytes: int
    slots: int
    repeats: int
    clock: Clock | None
    model: bool

    def samples(self) -> Iterator[Sample]:
        """What every access takes, after a first pass that warms the slots."""
        passes = self.repeats + 1
        timeline = self._run(self._there() + self._back(), times=passes)
        warm = timeline[len(timeline) // passes :]
        for access, op in (("write", WRITE), ("read", READ), ("discard", DISCARD)):
            yield self._sample(access, warm, op)
        evict = getattr(self.backend, "evict", None)
        if evict is not None:
            self._run(self._there())
            evict()
            cold = self._run(self._back(), stored=[map(_x, range(self.slots))])
            yield self._sample("read_cold", cold, READ)

    def _there(self) -> list[Action]:
        """Fill the slots, going forward."""
        return [
            action
            for step in range(self.slots)
            for action in (Write(_x(step), 0), Advance(step, step + 1))
        ]

    def _back(self) -> list[Action]:
        """Read them and go on from each, as a run does, going back; and empty them."""
        return [
            action
            for step in reversed(range(self.slots))
            for action in (Read(_x(step), 0), Discard(_x(step), 0))
        ]

    def _run(
        self, actions: list[Action], *, times: int = 1, stored: Sequence[Iterable[Key]] = ()
    ) -> Timeline:
        chain = Chain(
            steps=self.slots + 1,
            advance=0,
            record=0,
            reverse=0,
            restart=self.nbytes,
            tape=0,
            adjoint=0,
        )
        schedule = Schedule(chain, actions * times, stored)
        platform = Platform((Level(name=self.level),))
        return run(schedule, platform, self.make(), [self.backend], clock=self.clock)

    def _sample(self, access: str, timeline: Timeline, op: int) -> Sample:
        chosen = timeline.actions.op == op
        seconds = (timeline.stop - timeline.start)[chosen]
        low, middle, high = np.percentile(seconds, (25, 50, 75))
        moved = int(timeline.nbytes[chosen].max())
        return Sample(
            level=self.level,
            access=access,
            nbytes=self.nbytes,
            seconds=float(middle),
            spread=float((high - low) / middle) if middle else 0.0,
            ratio=moved / self.nbytes if self.nbytes else 1.0,
            model=self.model,
        )


def _level(name: str, capacity: int | None, samples: Sequence[Sample]) -> Level:
    here = [sample for sample in samples if sample.level == name]

    def cost(access: str) -> Affine | None:
        chosen = [sample for sample in here if sample.access == access]
        return fit(chosen) if chosen else None

    stored = max(
        (s.ratio for s in here if s.access == "write" and s.model),
        default=max(s.ratio for s in here if s.access == "write"),
    )
    return Level(
        name=name,
        capacity=capacity,
        write=cost("write") or Affine(),
        read=cost("read") or Affine(),
        read_cold=cost("read_cold"),
        discard=cost("discard") or Affine(),
        ratio=1.0 if stored == 1.0 else stored * MARGIN,
    )


def fit(samples: Sequence[Sample], /) -> Affine:
    """Latency and seconds per byte, both >= 0, with the least relative error.

    A model's own checkpoints weigh most: where a platform is for a model, its sizes come out right.
    """
    from scipy.optimize import nnls

    seconds = np.array([max(sample.seconds, 1e-9) for sample in samples])
    weight = np.array([_OWN_WEIGHT if sample.model else 1.0 for sample in samples]) / seconds
    nbytes = np.array([sample.nbytes for sample in samples], float)
    # Bytes in units of the largest, so that both unknowns are of one magnitude.
    unit = max(nbytes.max(), 1.0)
    matrix = np.stack((np.ones_like(nbytes), nbytes / unit), axis=1)
    (latency, slope), _ = nnls(matrix * weight[:, None], seconds * weight)
    return Affine(float(latency), float(slope / unit))


def measure_model(make: MakeModel, /, *, repeats: int = 5, clock: Clock | None = None) -> Chain:
    """A model's seconds per step and bytes per checkpoint, as a chain without a length.

    A short adjoint computation with few checkpoints in memory, `repeats` times from fresh models.
    """
    from ckio.backends.ram import Ram

    chain = Chain(steps=_MODEL_STEPS, advance=1, record=1, reverse=1, **sizes_of(make()))
    capacity = _MODEL_SLOTS * chain.restart
    platform = Platform((Level(name="ram", capacity=capacity),), chain.tape)
    schedule = revolve(chain, platform)
    seconds: dict[int, list[NDArray[np.float64]]] = {ADVANCE: [], RECORD: [], REVERSE: []}
    for _ in range(repeats):
        timeline = run(schedule, platform, make(), [Ram(capacity=capacity)], clock=clock)
        actions = timeline.actions
        for op, found in seconds.items():
            there = actions.op == op
            steps = (actions.end - actions.begin)[there]
            found.append((timeline.stop - timeline.start)[there] / steps)
    advance, record, reverse = (float(np.median(np.concatenate(s))) for s in seconds.values())
    return replace(chain, steps=None, advance=advance, record=record, reverse=reverse)


def _restart_nbytes(make: MakeModel) -> int:
    return nbytes_of(make().layout(_x(0)))


def _x(step: int) -> Key:
    return Key(Kind.RESTART, step)


class _Noise:
    """A model that is nothing but a checkpoint of a given size: four arrays of noise."""

    def __init__(self, nbytes: int) -> None:
        sizes = [nbytes // 32 * 8] * 3
        sizes.append(nbytes - sum(sizes))
        noise = np.random.default_rng(nbytes)
        self._arrays = [
            np.frombuffer(bytearray(noise.bytes(size)), np.uint8) for size in sizes if size
        ]

    def layout(self, key: Key, /) -> Layout:
        del key
        return tuple(
            Field(f"part{n}", "uint8", array.shape) for n, array in enumerate(self._arrays)
        )

    def advance(self, begin: int, end: int, /) -> int:
        for array in self._arrays:
            array[:: 1 << 12] += np.uint8(end - begin)
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
