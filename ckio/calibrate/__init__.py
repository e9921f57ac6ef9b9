"""Measure what levels and models cost on this machine, through the code that runs schedules.

Every figure comes from the timeline of a probe schedule, performed by `run`: the same dump, copy,
checksum and commit as in a real run, between steps of a model, on slots that a first pass has
warmed. What an action takes is counted from the end of the one before it: what it costs to come
from one to the next is part of it. The steps of a model are measured now and then between the
levels: a machine that is fast in one second is slow in another, and a run has both.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from statistics import fmean
from typing import Final

from ckio.backends.base import Backend
from ckio.backends.ram import Ram
from ckio.calibrate.beside import Beside
from ckio.calibrate.probe import (
    MOST_BYTES,
    STEPS,
    MakeModel,
    Noise,
    Pacer,
    Paces,
    Probe,
    Try,
    copying,
    late_checkpoints,
    measure_model,
    reach,
    worst_ratios,
)
from ckio.calibrate.samples import MARGIN, Sample, dirty_limit, fit, planned, spread_of, touch
from ckio.errors import BadInput
from ckio.model import sizes_of
from ckio.platform import Affine, Level, Platform
from ckio.platform.clock import Clock, WallClock
from ckio.platform.memory import available
from ckio.platform.profile import ACCESSES, Profile

__all__ = ["MARGIN", "SIZES", "Sample", "calibrate", "fit", "measure_model"]

SIZES: Final = (4 << 10, 64 << 10, 1 << 20, 16 << 20)
"""Bytes of the checkpoints that are tried where no model says better."""

BURSTS: Final = 12
"""Pauses between bursts of measurements are this part of the time that they are spread over."""

Progress = Callable[[str, int], None]
"""Told what is measured next, and how many measurements there are in all."""


def calibrate(
    backends: Mapping[str, Backend],
    sizes: Sequence[int] = (),
    /,
    *,
    repeats: int = 5,
    seconds: float = 0.0,
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
        Passes over the slots after the one that warms them; one of them at least, and then as many
        as a few seconds allow.
    seconds
        How long to go on measuring, in short bursts with pauses between them, so that a slow drift
        of the machine is seen; 0 for one burst.
    capacities
        Bytes that a level may hold, where it is limited.
    models
        Makers of fresh models by identity; their costs and sizes become `Platform.models`.
    progress
        Told before each measurement what it is, and how many there are in all.
    clock
        What measures; the wall clock by default.
    """
    capacities, models, timer = capacities or {}, models or {}, clock or WallClock()
    end = timer.now() + seconds
    steps = {name: reach(make, clock=clock) for name, make in models.items()}
    tries = [
        Try(partial(copying, make), sizes_of(make())["restart"], steps[name], own=True)
        for name, make in models.items()
    ]
    made_up = [
        Try(partial(Noise, nbytes), nbytes, STEPS, own=False)
        for nbytes in sorted(set(sizes) or _sizes([own.nbytes for own in tries]))
    ]
    probes = [
        Probe(name, backend, each, each.slots(capacity), repeats, clock)
        for name, backend in backends.items()
        for capacity in [capacities.get(name)]
        for each in _fitting(name, capacity, tries + made_up)
    ]
    # Plain memory is not accessed in the background, and one clock is not for many threads.
    far = [name for name, it in backends.items() if clock is None and not isinstance(it, Ram)]
    total = len(probes) + len(models) * (1 + len(far))
    pacers = {
        name: Pacer(make, repeats=repeats, clock=clock, steps=steps[name])
        for name, make in models.items()
    }
    touch(sum(probe.slots * probe.tried.nbytes for probe in probes if probe.tried.own))
    samples: list[Sample] = []
    for probe in probes:
        progress(f"{probe.level}, {probe.tried.nbytes} bytes", total)
        samples += probe.samples()
        for pacer in pacers.values():
            pacer.again()
    while timer.now() < end:
        timer.sleep(seconds / BURSTS)
        progress("another burst", total)
        for probe in probes:
            if probe.tried.own:
                samples += [it for it in probe.samples() if it.access != "first"]
        for pacer in pacers.values():
            pacer.again(always=True)
    paces = {}
    for (name, pacer), own in zip(pacers.items(), tries, strict=True):
        progress(name, total)
        paces[name] = pacer.paces()
        for level in far:
            progress(f"{level} beside {name}", total)
            if own.fits(capacities.get(level)):
                slots = own.slots(capacities.get(level))
                samples += Beside(level, backends[level], own, slots).samples()
    ratios = _ratios(backends, samples, models, steps)
    copies = _copies(backends, samples)
    levels = [
        _level(name, capacities.get(name), samples, ratio, copies) for name, ratio in ratios.items()
    ]
    return _platform(levels, paces, samples)


def _platform(
    levels: Sequence[Level], paces: Mapping[str, Paces], samples: Sequence[Sample]
) -> Platform:
    """Return the platform of the levels and the models together."""
    chains = {name: each.chain for name, each in paces.items()}
    overheads = [sample.seconds for sample in samples if sample.access == "overhead"]
    return Platform(
        tuple(levels),
        max((chain.tape for chain in chains.values()), default=None),
        chains,
        {name: each.spreads for name, each in paces.items() if each.spreads},
        next((each.drift for each in paces.values()), None),
        fmean(overheads) if overheads else 0.0,
    )


def _copies(backends: Mapping[str, Backend], samples: Sequence[Sample]) -> tuple[Affine, Affine]:
    """Return the prices to copy a checkpoint to memory and from it, as on the first such level."""
    near = [name for name, backend in backends.items() if isinstance(backend, Ram)][:1]
    moved = [[s for s in samples if s.level in near and s.access == it] for it in ("write", "read")]
    write, read = (fit(accesses) if accesses else Affine() for accesses in moved)
    return write, read


def _fitting(level: str, capacity: int | None, tries: Sequence[Try]) -> list[Try]:
    """Return those that a level can hold; raises BadInput where it holds none."""
    fitting = [each for each in tries if each.fits(capacity)]
    if not fitting:
        raise BadInput(
            f"level {level!r}: its capacity of {capacity} bytes holds none of the sizes to try"
        )
    return fitting


def _sizes(own: Sequence[int]) -> set[int]:
    """Return sizes around those of the models, but none that is a burden and theirs are not."""
    if not own:
        return set(SIZES)
    around = {max(1, nbytes * scale // 4) for nbytes in own for scale in (1, 2, 8)}
    return {SIZES[0], *(nbytes for nbytes in around if nbytes <= max(MOST_BYTES, *own))}


def _ratios(
    backends: Mapping[str, Backend],
    samples: Sequence[Sample],
    models: Mapping[str, MakeModel],
    steps: Mapping[str, int],
) -> dict[str, float]:
    """Return stored bytes per byte to plan with on each level: of models, where there are any."""
    worst = {}
    for name in backends:
        written = [s for s in samples if s.level == name and s.access == "write"]
        worst[name] = max(s.ratio for s in [s for s in written if s.model] or written)
    shrinking = {name: backends[name] for name, ratio in worst.items() if ratio < 1.0}
    for name, make in models.items() if shrinking else ():
        late = late_checkpoints(make, steps[name])
        for level, ratio in worst_ratios(shrinking, late).items():
            worst[level] = max(worst[level], ratio)
    return {name: planned(ratio) for name, ratio in worst.items()}


def _level(
    name: str,
    capacity: int | None,
    samples: Sequence[Sample],
    ratio: float,
    copies: tuple[Affine, Affine],
) -> Level:
    here = [sample for sample in samples if sample.level == name]

    def cost(access: str) -> Affine | None:
        chosen = [sample for sample in here if sample.access == access]
        return fit(chosen) if chosen else None

    return Level(
        name=name,
        capacity=capacity,
        write=cost("write") or Affine(),
        read=cost("read") or Affine(),
        read_cold=cost("read_cold"),
        discard=cost("discard") or Affine(),
        ratio=ratio,
        profile=_profile(here, cost, copies),
    )


def _drained(here: Sequence[Sample], write: Affine | None) -> float | None:
    """Return the bytes that reach the device in a second, by the largest checkpoint that was tried.

    None where they do as fast as they are written: then none ever waits.
    """
    accesses = [sample for sample in here if sample.access == "drained" and sample.nbytes]
    if not accesses or write is None:
        return None
    largest = max(accesses, key=lambda sample: sample.nbytes)
    return largest.nbytes / largest.seconds if largest.seconds > write(largest.nbytes) else None


def _law(here: Sequence[Sample], access: str, like: Affine | None) -> Affine | None:
    """Return a price that was measured beside the computation; of one size alone, like another."""
    accesses = [sample for sample in here if sample.access == access]
    sizes = {sample.nbytes for sample in accesses}
    if len(sizes) != 1 or like is None or not (one := like(*sizes)):
        return fit(accesses) if accesses else None
    times = fmean(sample.seconds for sample in accesses) / one
    return Affine(times * like.latency, times * like.per_byte)


def _profile(
    here: Sequence[Sample],
    cost: Callable[[str], Affine | None],
    copies: tuple[Affine, Affine],
) -> Profile:
    """Return what is known of a level beside its prices."""
    spreads = {
        access: spread_of([sample for sample in here if sample.access == access])
        for access in ACCESSES
    }
    cold, dirty, drained = cost("read_cold"), dirty_limit(), _drained(here, cost("write"))
    return Profile(
        first=cost("first"),
        write_beside=_law(here, "write_beside", cost("write")),
        read_beside=_law(here, "read_beside", cost("read")),
        write_own=_law(here, "write_own", copies[0]),
        read_own=_law(here, "read_own", copies[1]),
        write_hinders=_law(here, "write_hinders", cost("write")) or Affine(),
        read_hinders=_law(here, "read_hinders", cost("read")) or Affine(),
        discard_hinders=cost("discard_hinders") or Affine(),
        handoff=Affine(max((it.seconds for it in here if it.access == "handoff"), default=0.0)),
        cached=None if cold is None else available(),
        dirty=None if drained is None else dirty,
        drained=None if dirty is None else drained,
        spread={access: spread for access, spread in spreads.items() if spread},
    )
