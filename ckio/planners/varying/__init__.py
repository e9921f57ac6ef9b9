"""The planner for chains whose steps differ, which `hrevolve` and `mixed` use for such chains.

It solves the recurrence of `intervals`, and simplifies it if it would take too long:

* If a chain has more than 240 steps, longer ranges are split at some of the steps only. Of 480
  steps, this loses 0.4 % at most (bench/varying.py).
* If the free space on all levels has too many combinations, the planner uses one level at a time.
* If the free space of a level has too many values in bytes, it is counted in units, and the sizes
  of checkpoints are rounded up to units.
* The planner first assumes that no level fills. If the plan does not fit, the planner repeats with
  the capacity of one more level that is too small, the one with the fewest slots.

A simplified plan is compared with schedules that ignore costs, and with a plan without tapes. The
note of the schedule gives the gap to a lower bound.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import product
from math import comb, inf
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from ckio.actions import Key, Kind
from ckio.actions.columns import DISCARD, WRITE, Actions
from ckio.errors import BadInput, NoSchedule
from ckio.planners import base
from ckio.planners.base import Ints, Seconds
from ckio.planners.binomial import revolve
from ckio.planners.recording import quickest, recorded
from ckio.planners.trivial import recompute_all, store_all
from ckio.planners.varying.intervals import FreeSpace, IntervalCosts, Scale, in_units, short
from ckio.planners.varying.unfold import Unfolding
from ckio.platform import Affine, Level, Platform, copies
from ckio.platform.chain import Chain
from ckio.schedule import Schedule, makespan

_Number = TypeVar("_Number", bound=np.number)

_COMPARED = 6e9
"""The most comparisons in a plan: about ten seconds."""

_MOST_NUMBERS = 1 << 26
"""The most numbers in memory at a time: half a gigabyte."""

_UNITS = 256, 128, 64
"""The most units of free space on a level; the next value is used if one is too many."""

_POINTS = 240
"""The points of the coarsest scale. A chain of up to so many steps has one scale."""

_RATIO = 16
"""Ratio of the points of one scale to the next; twice this if the next one is the coarsest."""


def varying(chain: Chain, platform: Platform, /, *, tapes: bool, planner: str) -> Schedule:
    """Return the best schedule found for steps that differ.

    The schedule stores restart checkpoints and, with `tapes`, also tapes. Raises NoSchedule, with
    the name of `planner`, if no level can store what the chain needs.
    """
    base.held_steps(chain, platform)
    planned = quickest(chain) if tapes else chain
    slots = {level.name: _slots(level, chain, tapes) for level in platform.levels}
    levels = [level for level in platform.levels if slots[level.name]]
    for level in platform.levels:
        if level not in levels:
            base.note_ignored(level, planner)
    made = [_fitting(planned, platform, levels, slots, tapes)]
    if made[0] is None or not made[0].complete:
        made += _plain(planned, platform, tapes)
        made += [_fitting(planned, platform, levels, slots, False)] * (tapes and chain.length > 1)
    actions = [plan.actions for plan in made if plan is not None]
    if not actions:
        raise base.no_schedule(platform.levels, f"{planner} needs {_need(chain, tapes)}")
    best = min(actions, key=lambda it: makespan(Schedule(planned, it), platform))
    schedule = Schedule(chain, recorded(chain, best, 1) if tapes else best)
    return _with_note(schedule, platform, min(chain.length, sum(slots.values())), tapes)


class _Plan(NamedTuple):
    """The actions of a schedule, and whether the recurrence was not simplified."""

    actions: Actions
    complete: bool


def _fitting(
    chain: Chain, platform: Platform, levels: Sequence[Level], slots: dict[str, int], tapes: bool
) -> _Plan | None:
    """Return the plan that exceeds the capacity of no level, or None."""
    bounded: set[str] = set()
    while (plan := _plan(chain, platform, levels, bounded, tapes)) is not None:
        schedule = Schedule(chain, plan.actions)
        over = [level.name for level in levels if _overflows(schedule, platform, level)]
        if not over:
            break
        bounded.add(min(over, key=slots.__getitem__))
    return plan


def _plain(chain: Chain, platform: Platform, tapes: bool) -> Iterator[_Plan]:
    """Yield schedules that ignore costs.

    With one or two slots they may be better than a plan on few points of a scale. Revolve plans for
    equal steps with checkpoints as large as the largest. It is left out if such a chain would have
    more bytes than a chain may have.
    """
    plain = [(recompute_all, chain)]
    with suppress(BadInput):
        size = chain.largest("restart")
        alike = Chain(
            steps=chain.length, advance=1, record=1, reverse=1, restart=size, tape=0, adjoint=0
        )
        plain.append((revolve, alike))
    plain += [(store_all, chain)] * tapes
    for planner, asked in plain:
        for level in platform.levels:
            with suppress(NoSchedule):
                yield _Plan(planner(asked, platform, on=level.name).actions, complete=False)


def _plan(
    chain: Chain, platform: Platform, levels: Sequence[Level], bounded: set[str], tapes: bool
) -> _Plan | None:
    """Return the plan that assumes that only the `bounded` levels can be full."""
    order = sorted(levels, key=lambda level: _round_trip(level, chain))
    counted = _counted(chain, order, bounded, tapes)
    scale = Scale.finest(_costs(chain, platform, order, counted.units, tapes), counted.space)
    if chain.length > _POINTS:
        while len(scale.at) > 2 * _RATIO * _POINTS:
            scale = scale.coarser(len(scale.at) // _RATIO)
        scale = scale.coarser(_POINTS)
    unfolding = Unfolding(scale, [platform.number(level.name) for level in order])
    if not np.isfinite(unfolding.seconds):
        return None
    return _Plan(unfolding.draft.actions(), counted.exact and scale.finer is None)


class _Counted(NamedTuple):
    """Free space, and the units (levels, n or 2 n) that each state, then each tape, occupies.

    `exact` if all combinations of free space are counted, and no size is rounded.
    """

    space: FreeSpace
    units: Ints
    exact: bool


def _counted(chain: Chain, levels: Sequence[Level], bounded: set[str], tapes: bool) -> _Counted:
    """Return the most precise way to count free space for which there are time and memory."""
    for together, most in product((True, False), _UNITS):
        total, units, exact = np.zeros(len(levels), np.int64), list[Ints](), together
        for number, level in enumerate(levels):
            sizes = _stored_sizes(level, chain, tapes)
            if level.name in bounded and level.capacity is not None:
                total[number], sizes, fits = in_units(level.capacity, sizes, most)
                exact = exact and fits
            else:
                sizes = np.zeros_like(sizes)
            units.append(sizes)
        values = np.prod(total + 1.0) if together else float((total + 1).sum())
        if _is_quick(chain.length, values, len(levels) if together else 1):
            break
    shape = len(levels), chain.length * (1 + tapes)
    count = FreeSpace.of_all_levels if together else FreeSpace.of_one_level_at_a_time
    return _Counted(count(total), np.reshape(units, shape).astype(np.int64), exact)


def _is_quick(steps: int, values: float, ways: int) -> bool:
    """Return whether there are time and memory for these values of free space."""
    points, near = min(steps, _POINTS), short(values * ways)
    splits = points**3 / 6 + (steps > points) * steps * near**2 / 2
    ranges = points**2 + (steps > points) * 20 * near**2
    return splits * values * ways <= _COMPARED and ranges * values * (1 + ways) <= _MOST_NUMBERS


def _costs(
    chain: Chain, platform: Platform, levels: Sequence[Level], units: Ints, tapes: bool
) -> IntervalCosts:
    """Return the costs in the recurrence."""
    steps = chain.length
    restart, tape = chain.each("restart")[:steps], chain.each("tape")
    shape, ends = (len(levels), steps), _ends(chain, platform, tapes)
    # Where several steps are recorded together, the states between them are computed, too.
    saved = chain.saved_of_each() if (ends == np.arange(1, steps + 1)).all() else 0.0
    numbers = [platform.number(level.name) for level in levels]
    states = [restart * copies(chain, platform, number, Kind.RESTART) for number in numbers]
    taped = [tape * copies(chain, platform, number, Kind.TAPE) for number in numbers]
    write = [
        _seconds(moved, level.write) + _seconds(restart, level.discard)
        for level, moved in zip(levels, states, strict=True)
    ]
    read = [_seconds(moved, level.read) for level, moved in zip(levels, states, strict=True)]
    keep = [
        _seconds(moved, level.write, level.read) + _seconds(tape, level.discard) + saved
        for level, moved in zip(levels, taped, strict=True)
    ]
    return IntervalCosts(
        before=sums(chain.each("advance")),
        reach=ends,
        write=np.reshape(write, shape),
        read=np.reshape(read, shape),
        restart=units[:, :steps],
        tapes=tapes,
        keep=sums(np.reshape(keep, shape)),
        tape=sums(units[:, steps:] if tapes else np.zeros(shape, np.int64)),
    )


def _seconds(nbytes: Ints, *accesses: Affine) -> Seconds:
    """Return the seconds of all these accesses together, for checkpoints of `nbytes` bytes."""
    seconds = np.zeros(len(nbytes))
    for access in accesses:
        seconds += access.latency + access.per_byte * nbytes
    return seconds


def _stored_sizes(level: Level, chain: Chain, tapes: bool) -> Ints:
    """Return the bytes that x_0, ..., x_(n-1) and then, if stored, the tapes occupy on a level."""
    restart = chain.each("restart")[: chain.length]
    return level.stored_of(np.append(restart, chain.each("tape")) if tapes else restart)


def _slots(level: Level, chain: Chain, tapes: bool) -> int:
    """Return how many of the smallest checkpoints fit on a level, at most n."""
    smallest = int(_stored_sizes(level, chain, tapes).min())
    if level.read_only:
        return 0
    if level.capacity is None or not smallest:
        return chain.length
    return min(chain.length, level.capacity // smallest)


def _round_trip(level: Level, chain: Chain) -> float:
    """Return the seconds to write, read and discard all restart data; the least is nearest."""
    return float(_seconds(chain.each("restart"), level.write, level.read, level.discard).sum())


def _overflows(schedule: Schedule, platform: Platform, level: Level) -> bool:
    """Whether the schedule exceeds the capacity of a level."""
    if level.capacity is None:
        return False
    actions = schedule.actions
    here = actions.take((actions.level == platform.number(level.name)) & (actions.op >= WRITE))
    stored = level.stored_of(schedule.chain.nbytes_of(here))
    change = (here.op == WRITE).astype(np.int64) - (here.op == DISCARD)
    return bool(np.cumsum(change * stored).max(initial=0) > level.capacity)


def _need(chain: Chain, tapes: bool) -> str:
    first = chain.nbytes(Key(Kind.RESTART, 0))
    return f"a level with space for x_0 ({first} bytes)" + ", or every step's tape" * tapes


def _with_note(schedule: Schedule, platform: Platform, slots: int, tapes: bool) -> Schedule:
    chain, seconds = schedule.chain, makespan(schedule, platform)
    bound = sorted_bound(chain, platform, slots=slots, tapes=tapes)
    gap = f"{seconds / bound - 1:.1%} above" if bound else "above"
    note = (
        f"steps differ: {seconds:.6g} s, {gap} a lower bound of {bound:.6g} s, which leaves out the"
        " time of access to levels"
    )
    return Schedule(chain, schedule.actions, note=note)


def sorted_bound(chain: Chain, platform: Platform, /, *, slots: int, tapes: bool) -> float:
    """Return a lower bound, in seconds, for all schedules with `slots` slots on all levels.

    With s slots, at most C(s + t, s) steps are advanced over t times or fewer. With tapes, of which
    the register holds h, the number is C(s + t + 1, s) + (h - 1) C(s + t, s). Therefore the time is
    least if the most costly steps are repeated least often, and access costs nothing. The bound is
    true for any sizes if `slots` is the number of the smallest checkpoints that fit.

    For example, with s = 1 and no tapes, one step (t = 0) is never advanced over, one more step
    (t = 1) once, and so on: steps with an advance of 3, 2 and 1 s take at least
    0 * 3 + 1 * 2 + 2 * 1 = 4 s in addition to recording and reversing.
    """
    held = int((_ends(chain, platform, tapes) - np.arange(chain.length)).max())
    seconds = float((chain.each("record") + chain.each("reverse")).sum())
    seconds -= float(chain.saved_of_each()[:-1].sum())  # only J needs a state after its step
    forward = quickest(chain) if tapes else chain
    dearest = np.sort(forward.each("advance"))[::-1]
    first, t = 0, 0
    if not slots and held < chain.length:
        return inf  # no schedule reverses the chain
    while first < chain.length:
        most = comb(slots + t, slots)
        if tapes:
            most = comb(slots + t + 1, slots) + (held - 1) * most
        last = min(most, chain.length)
        seconds += t * float(dearest[first:last].sum())
        first, t = last, t + 1
    return seconds


def _ends(chain: Chain, platform: Platform, tapes: bool) -> Ints:
    """Return for each step the end of the steps that are recorded together from there."""
    return base.held_ends(chain, platform) if tapes else np.arange(1, chain.length + 1)


def sums(values: NDArray[_Number], /) -> NDArray[_Number]:
    """Return the sums of all values before each position, and before the end."""
    return np.insert(np.cumsum(values, axis=-1), 0, 0, axis=-1)
