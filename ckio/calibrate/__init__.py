"""Measure the costs of levels and models on this machine, with the code that runs schedules.

All times come from the timelines of probe schedules, which `run` performs. They contain the same
dump, copy, checksum and commit as a real run, between steps of a model, on slots to which a first
pass has written. The time of an action is measured from the end of the action before, so that the
time between two actions is included. The steps of a model are measured several times, between the
measurements of levels, because the speed of a machine varies from second to second, and a run sees
all of these speeds.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from statistics import fmean
from typing import Final

from ckio.backends.base import Backend
from ckio.backends.ram import is_near
from ckio.calibrate.overlap import OverlapProbe
from ckio.calibrate.probe import (
    BUDGET,
    ENOUGH,
    MOST_BYTES,
    STEPS,
    MakeModel,
    Probe,
    StepTimer,
    Workload,
    copying,
    late_checkpoints,
    measure_model,
    random_data,
    reach,
    worst_ratios,
)
from ckio.calibrate.samples import MARGIN, Sample, dirty_limit, fit, touch, with_margin
from ckio.errors import BadInput
from ckio.model import optional, sizes_of
from ckio.platform import Affine, Level, Platform
from ckio.platform.chain import Chain
from ckio.platform.clock import Clock, WallClock
from ckio.platform.memory import available
from ckio.platform.profile import Profile
from ckio.platform.readable import bytes_text

__all__ = ["MARGIN", "SIZES", "Sample", "calibrate", "fit", "measure_model"]

SIZES: Final = (4 << 10, 64 << 10, 1 << 20, 16 << 20)
"""Sizes of the measured checkpoints in bytes, if there is no model."""

_LEAST, _SHARE = 1.0, 0.03
"""The measurement for one run takes at most a second, or this part of the predicted run."""

_PASSES: Final = 12
"""Roughly how often a brief measurement passes over the steps of a probe."""

_FEWEST: Final = 2
"""Steps of a probe of a slow model, of a run of three steps or more: a run computes more."""

_MOVES: Final = 4
"""How often a brief measurement writes a checkpoint to each slot, roughly; a run of as many steps
for each slot does not move less."""

_TICK: Final = 1e-9
"""The least seconds of a step, also by a clock that stands still."""

_OF_AN_ADVANCE: Final = 4.0
"""Times of a step forward that a step of a run takes, roughly: forward, recorded, and reversed."""

BURSTS: Final = 12
"""A pause between two bursts of measurements is the whole time divided by this number."""

Progress = Callable[[str, int], None]
"""Function called with the next measurement as text, and with the number of all measurements."""


def calibrate(
    backends: Mapping[str, Backend],
    sizes: Sequence[int] = (),
    /,
    *,
    repeats: int = 5,
    seconds: float = 0.0,
    capacities: Mapping[str, int | None] | None = None,
    models: Mapping[str, MakeModel] | None = None,
    run_steps: int | None = None,
    at_length: bool = False,
    progress: Progress = lambda _what, _total: None,
    clock: Clock | None = None,
) -> Platform:
    """Measure open, empty levels and models, and return the resulting platform.

    Parameters
    ----------
    backends
        The levels by name, fastest first.
    sizes
        Sizes of the checkpoints to measure, in bytes; by default sizes around those of the models,
        or `SIZES`.
    repeats
        Maximum number of passes over the slots after the first pass. At least one is made, and more
        as a few seconds allow.
    seconds
        Duration of the measurement, in short bursts with pauses between them, so that slow changes
        of the machine's speed are included; 0 for a single burst.
    capacities
        Capacities of levels in bytes, by name; None means no limit.
    models
        Functions that return fresh models, by the identity of the model. The costs and sizes of the
        models become `Platform.models`.
    run_steps
        The number of steps of the one run for which is measured; no later step is computed. The
        measurement is repeated for at most 1 s or 3 % of the predicted run, whichever is longer,
        and only sizes of the models and one more are measured. If a few steps or checkpoints take
        longer, only these are measured, fewer than those of the run. Whether transfers overlap with
        computation is measured if that part is longer. By default each measurement takes up to 5 s.
    at_length
        Whether `run_steps` only limits the steps, and all is measured.
    progress
        Function that is called before each measurement, with its name and the number of all
        measurements.
    clock
        The clock for all times; by default the clock of the machine.

    Raises BadInput if a level cannot store a checkpoint of any of the sizes.
    """
    capacities, models, wall = capacities or {}, models or {}, clock or WallClock()
    end = wall.now() + seconds
    begun = wall.now()
    one_run = run_steps if models and not at_length else None
    enough, most_slots = _least_of(one_run)
    steps = {
        name: reach(make, clock=clock, most=run_steps, enough=enough)
        for name, make in models.items()
    }
    brief, overlaps, computes = None, True, True
    if one_run is not None:
        brief, steps, computes = _for_one_run(one_run, steps, wall.now() - begun, enough)
        overlaps = computes and brief > _LEAST
    space = next((it for make in models.values() if (it := optional(make()).space)), None)
    own_workloads = []
    for name, make in models.items():
        nbytes = sizes_of(make())["restart"]
        alike = partial(copying, make) if computes else partial(random_data, nbytes, space)
        many = steps[name] if computes else max(ENOUGH, steps[name])
        own_workloads.append(Workload(alike, nbytes, many, own=True, most_slots=most_slots))
    made_up = [
        Workload(partial(random_data, nbytes, space), nbytes, STEPS, own=False)
        for nbytes in sorted(set(sizes) or _sizes([own.nbytes for own in own_workloads], brief))
    ]
    # Plain memory is not accessed in the background; and a given clock may not be for many threads.
    far = [name for name, it in backends.items() if clock is None and not is_near(it)]
    if not overlaps:
        far = []
    fitting = {
        name: _fitting(name, capacities.get(name), own_workloads + made_up) for name in backends
    }
    total = sum(map(len, fitting.values())) + len(models) * (1 + len(far))
    each = BUDGET if brief is None else min(BUDGET, brief / total)
    probes = [
        Probe(name, backend, it, it.slots(capacities.get(name)), repeats, clock, each)
        for name, backend in backends.items()
        for it in fitting[name]
    ]
    timers = {
        name: StepTimer(make, repeats=repeats, clock=clock, steps=steps[name], budget=each)
        for name, make in models.items()
    }
    touch(sum(probe.slots * probe.workload.nbytes for probe in probes if probe.workload.own))
    samples: list[Sample] = []
    for probe in probes:
        progress(f"{probe.level}, {probe.workload.nbytes} bytes", total)
        samples += probe.samples()
        for timer in timers.values():
            timer.measure()
    while wall.now() < end:
        wall.sleep(seconds / BURSTS)
        progress("another burst", total)
        for probe in probes:
            if probe.workload.own:
                samples += [it for it in probe.samples() if it.access != "first"]
        for timer in timers.values():
            timer.measure(always=True)
    chains = {}
    for (name, timer), own in zip(timers.items(), own_workloads, strict=True):
        progress(name, total)
        chains[name] = timer.chain()
        for level in far:
            progress(f"{level} concurrently with {name}", total)
            if own.fits(capacities.get(level)):
                slots = own.slots(capacities.get(level))
                samples += OverlapProbe(level, backends[level], own, slots, each).samples()
    ratios = _ratios(backends, samples, models, steps)
    copies = _copies(backends, samples)
    levels = [
        _level(name, capacities.get(name), samples, ratio, copies) for name, ratio in ratios.items()
    ]
    return _platform(levels, chains, samples)


def seconds_of_brief(run_steps: int, per_step: float, /) -> float:
    """Return the seconds of a brief measurement for a run: 1 s, or 3 % of the predicted run.

    For example, for a million steps of 1 ms:

    >>> round(seconds_of_brief(10**6, 1e-3), 3)
    120.0
    """
    return max(_LEAST, _SHARE * _OF_AN_ADVANCE * per_step * run_steps)


def _least_of(one_run: int | None) -> tuple[int, int]:
    """Return the fewest steps, and the most slots, to measure for a run of so many steps, or any.

    >>> _least_of(None), _least_of(100), _least_of(2)
    ((6, 24), (2, 25), (1, 1))
    """
    if one_run is None:
        return ENOUGH, STEPS
    return min(_FEWEST, (one_run + 1) // 2), max(1, one_run // _MOVES)


def _for_one_run(
    run_steps: int, steps: Mapping[str, int], took: float, enough: int
) -> tuple[float, dict[str, int], bool]:
    """Return the seconds of a brief measurement, the steps of its probes, and whether it computes.

    All `steps` of the models `took` so many seconds. If steps are slow, as few are measured as take
    these seconds, but at least `enough`. Levels are then measured with other data of the same size,
    between which no step is computed.
    """
    per_step = max(took / sum(steps.values()), _TICK)
    brief = seconds_of_brief(run_steps, per_step)
    at_once = brief / (_OF_AN_ADVANCE * per_step)
    few = max(int(at_once / _PASSES), min(ENOUGH, int(at_once)), enough)
    fewer = {name: min(most, few) for name, most in steps.items()}
    return brief, fewer, _PASSES * max(fewer.values()) * per_step <= brief


def _platform(
    levels: Sequence[Level], chains: Mapping[str, Chain], samples: Sequence[Sample]
) -> Platform:
    """Return the platform with these levels and models."""
    overheads = [sample.seconds for sample in samples if sample.access == "overhead"]
    return Platform(
        tuple(levels),
        max((chain.tape for chain in chains.values()), default=None),
        chains,
        fmean(overheads) if overheads else 0.0,
    )


def _copies(backends: Mapping[str, Backend], samples: Sequence[Sample]) -> tuple[Affine, Affine]:
    """Return the costs of a copy to memory and from memory, measured on the first memory level."""
    near = [name for name, backend in backends.items() if is_near(backend)][:1]
    moved = [[s for s in samples if s.level in near and s.access == it] for it in ("write", "read")]
    write, read = (fit(accesses) if accesses else Affine() for accesses in moved)
    return write, read


def _fitting(level: str, capacity: int | None, workloads: Sequence[Workload]) -> list[Workload]:
    """Return the checkpoints that fit a level; raises BadInput if none fits."""
    fitting = [each for each in workloads if each.fits(capacity)]
    if not fitting:
        least = bytes_text(min(each.nbytes for each in workloads))
        raise BadInput(
            f"level {level!r}: its capacity of {bytes_text(capacity or 0)} is less than the"
            f" smallest checkpoint to measure, of {least}; give a larger capacity"
        )
    return fitting


def _sizes(own: Sequence[int], brief: float | None) -> set[int]:
    """Return sizes around those of the models, but none larger than both theirs and 256 MiB.

    In a brief measurement it is one small size, from which the latency follows.
    """
    if not own:
        return set(SIZES)
    if brief is not None:
        return {min(SIZES[0], *own)}
    around = {max(1, nbytes * scale // 4) for nbytes in own for scale in (1, 2, 8)}
    return {SIZES[0], *(nbytes for nbytes in around if nbytes <= max(MOST_BYTES, *own))}


def _ratios(
    backends: Mapping[str, Backend],
    samples: Sequence[Sample],
    models: Mapping[str, MakeModel],
    steps: Mapping[str, int],
) -> dict[str, float]:
    """Return the ratio for plans on each level, from the checkpoints of models if there are any."""
    worst = {}
    for name in backends:
        written = [s for s in samples if s.level == name and s.access == "write"]
        worst[name] = max(s.ratio for s in [s for s in written if s.model] or written)
    shrinking = {name: backends[name] for name, ratio in worst.items() if ratio < 1.0}
    for name, make in models.items() if shrinking else ():
        late = late_checkpoints(make, steps[name])
        for level, ratio in worst_ratios(shrinking, late).items():
            worst[level] = max(worst[level], ratio)
    return {name: with_margin(ratio) for name, ratio in worst.items()}


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
    """Return the bytes per second that reach the device, from the largest measured checkpoint.

    Return None if they reach the device as fast as they are written; then no write ever waits.
    """
    accesses = [sample for sample in here if sample.access == "drained" and sample.nbytes]
    if not accesses or write is None:
        return None
    largest = max(accesses, key=lambda sample: sample.nbytes)
    return largest.nbytes / largest.seconds if largest.seconds > write(largest.nbytes) else None


def _law(here: Sequence[Sample], access: str, like: Affine | None) -> Affine | None:
    """Return the cost of a concurrent access; None if it was not measured.

    If only one size was measured, it is the cost `like`, scaled to agree at this size.
    """
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
    """Return the measurements of a level in addition to its costs."""
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
    )
