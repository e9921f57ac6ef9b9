"""The planner of chains whose steps differ: what hrevolve and mixed do with them.

It solves the recurrence of `intervals`, and gives way to length and to the number of levels: where
a chain is too long for every range of its steps, longer ranges are split at some points only; where
what is free on all levels has too many combinations, one level is used at a time; where room in
bytes has too many values, it is counted in parts of a capacity, to which sizes are rounded up. A
level with much room is first taken for one that never fills, and where that plan fits it is kept.
What gives way is compared with schedules that do not look at costs, and with one without tapes.
The schedule's note says what was done, and how far it is from a lower bound at most.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import comb, inf
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from ckio.actions import Key, Kind
from ckio.actions.columns import DISCARD, WRITE
from ckio.errors import BadInput, NoSchedule
from ckio.planners import base
from ckio.planners.binomial import revolve
from ckio.planners.trivial import recompute_all, store_all
from ckio.planners.varying.intervals import SHORT, FreeSpace, IntervalCosts, Scale, in_units, short
from ckio.planners.varying.unfold import Unfolding, sweep
from ckio.platform import Affine, Level, Platform, copies
from ckio.platform.chain import Chain
from ckio.schedule import Schedule, makespan

_Ints = NDArray[np.int64]
_Number = TypeVar("_Number", bound=np.number)

_COMPARED = 3e9
"""Numbers that a plan may compare: some five seconds."""

_HELD = 1 << 26
"""Numbers that it may hold at a time: half a gigabyte."""

_UNITS = 256, 128, 64
"""Units of room on a level at most, and where these are too many."""

_FEW = 64
"""A level with fewer slots is not taken for one that never fills, if it has the fewest."""

_POINTS = 240
"""Points of the coarsest scale, if there are several; more where there is time for more."""

_RATIO = 16
"""Points of a scale for one of the next; twice as many, if that one is the coarsest."""


def varying(chain: Chain, platform: Platform, /, *, tapes: bool, planner: str) -> Schedule:
    """The best schedule found for steps that differ, with restart checkpoints and with `tapes`.

    Raises NoSchedule, on behalf of `planner`, where no level serves.
    """
    base.tapes(chain, platform)
    levels = [level for level in platform.levels if _slots(level, chain, tapes)]
    for level in platform.levels:
        if level not in levels:
            base.note_ignored(level, planner)
    slots = {level.name: _slots(level, chain, tapes) for level in levels}
    best = _fitting(chain, platform, levels, slots, tapes)
    if best is None or not best.complete:
        others = [best] if best is not None else []
        others += _plain(chain, platform, tapes)
        if tapes and chain.length > 1:
            others += filter(None, [_fitting(chain, platform, levels, slots, False)])
        best = min(others, key=lambda plan: makespan(plan.schedule, platform), default=None)
    if best is None:
        raise base.no_schedule(platform.levels, f"{planner} needs {_need(chain, tapes)}")
    return _with_note(best, platform, min(chain.length, sum(slots.values())), tapes)


@dataclass(frozen=True)
class _Plan:
    """A schedule, how it was found, and whether among all that the recurrence compares."""

    schedule: Schedule
    how: str
    complete: bool = False


def _fitting(
    chain: Chain, platform: Platform, levels: Sequence[Level], slots: dict[str, int], tapes: bool
) -> _Plan | None:
    """The plan in which no level has to hold more than it can."""
    bounded: set[str] = set()
    if (least := min(slots.values(), default=_FEW)) < _FEW:
        bounded.add(next(name for name in slots if slots[name] == least))
    while True:
        plan = _plan(chain, platform, levels, bounded, tapes)
        if plan is None:
            return None
        over = {level.name for level in levels if _overflows(plan.schedule, platform, level)}
        if not over:
            return plan
        bounded |= over


def _plain(chain: Chain, platform: Platform, tapes: bool) -> Iterator[_Plan]:
    """Schedules that do not look at costs: with a slot or two, few points of a scale are no match.

    Revolve is asked for as many steps alike, with checkpoints as large as the largest: not where so
    many of those are beyond what a chain may have.
    """
    plain = [("recompute-all", recompute_all, chain)]
    with suppress(BadInput):
        size = chain.largest("restart")
        alike = Chain(
            steps=chain.length, advance=1, record=1, reverse=1, restart=size, tape=0, adjoint=0
        )
        plain.append(("Revolve", revolve, alike))
    plain += [("store-all", store_all, chain)] * tapes
    for name, planner, asked in plain:
        for level in platform.levels:
            with suppress(NoSchedule):
                schedule = planner(asked, platform, on=level.name)
                how = f"{name} on level {level.name}, than which no interval plan found is faster"
                yield _Plan(Schedule(chain, schedule.actions), how)


def _plan(
    chain: Chain, platform: Platform, levels: Sequence[Level], bounded: set[str], tapes: bool
) -> _Plan | None:
    """The plan where only the `bounded` levels ever fill."""
    order = sorted(levels, key=lambda level: _round_trip(level, chain))
    forms = list(_forms(chain, order, bounded, tapes))
    form = next((form for form in forms if form.is_quick(chain.length)), forms[-1])
    scale = Scale.finest(_costs(chain, platform, order, form, tapes), form.room)
    exact = "exact " * (not form.caveats and _sizes_alike(chain, tapes))
    how, count = f"{exact}interval plan of {chain.length} steps", form.points(chain.length)
    first = None
    if count < chain.length:
        first, scales = sweep(scale), 2
        while len(scale.at) > 2 * _RATIO * count:
            scale, scales = scale.coarser(len(scale.at) // _RATIO), scales + 1
        scale = scale.coarser(count)
        how = (
            f"interval plan on {scales} scales, ranges of more than {scale.short} steps split at"
            f" {len(scale.at) - 2} of {chain.length - 1} places at the last"
        )
    unfolding = Unfolding(scale, chain, [platform.number(level.name) for level in order], first)
    if unfolding.swept:
        how = (
            f"interval plan of at most {scale.short} steps between checkpoints on a level with room"
        )
    if not np.isfinite(unfolding.seconds):
        return None
    complete = not form.caveats and count == chain.length
    return _Plan(unfolding.draft.schedule(chain), ", ".join((how, *form.caveats)), complete)


@dataclass(frozen=True)
class _Form:
    """How free room is counted.

    Attributes
    ----------
    room : FreeSpace
        The free rooms.
    restart, tape : int arrays (levels, n)
        Units that x_i and t_i take.
    caveats : tuple of str
        What is given up by counting so.
    """

    room: FreeSpace
    restart: _Ints
    tape: _Ints
    caveats: tuple[str, ...]

    @property
    def _compared(self) -> int:
        """Numbers that are compared for each split of a range."""
        return max(1, self.room.level.size)

    @property
    def _held(self) -> int:
        """Numbers that are held for each range."""
        return self.room.level.size + self.room.count

    def points(self, steps: int) -> int:
        """Points of the coarsest scale: all, where there is time and memory for every range."""
        most = min((6 * _COMPARED / self._compared) ** (1 / 3), (_HELD / self._held) ** 0.5)
        return steps if steps <= most else min(steps // 2, max(_POINTS, int(0.8 * most)))

    def is_quick(self, steps: int) -> bool:
        """Whether a plan in this form takes seconds."""
        splits, ranges = steps * short(self.room) ** 2 / 2, 20 * short(self.room) ** 2
        quick = splits * self._compared <= 2 * _COMPARED and ranges * self._held <= _HELD
        return quick or self.points(steps) == steps


def _forms(
    chain: Chain, levels: Sequence[Level], bounded: set[str], tapes: bool
) -> Iterator[_Form]:
    """Ways to count free room, the most precise first."""
    steps = chain.length
    for together in (True, False) if len(levels) > 1 else (True,):
        for most in _UNITS:
            total, units, exact = np.zeros(len(levels), np.int64), [], True
            for number, level in enumerate(levels):
                sizes = _stored_sizes(level, chain, tapes)
                if level.name in bounded and level.capacity is not None:
                    total[number], sizes, fits = in_units(level.capacity, sizes, most)
                    exact = exact and fits
                else:
                    sizes = np.zeros_like(sizes)
                units.append(sizes)
            if together and np.prod(total + 1.0) * len(levels) > _HELD / SHORT**2:
                continue
            sizes = np.reshape(units, (len(levels), steps * (1 + tapes))).astype(np.int64)
            count = FreeSpace.of_all_levels if together else FreeSpace.of_one_level_at_a_time
            caveats = [] if together else ["one level at a time, nearer ones free"]
            if not exact:
                caveats.append(f"sizes rounded up to parts of a capacity, {total.max()} at most")
            tape = sizes[:, steps:] if tapes else np.zeros_like(sizes)
            yield _Form(count(total), sizes[:, :steps], tape, tuple(caveats))


def _costs(
    chain: Chain, platform: Platform, levels: Sequence[Level], form: _Form, tapes: bool
) -> IntervalCosts:
    """Return the costs that the recurrence asks for."""
    steps = chain.length
    restart, tape = chain.each("restart")[:steps], chain.each("tape")
    shape = len(levels), steps
    numbers = [platform.number(level.name) for level in levels]
    states = [restart * copies(chain, platform, number, Kind.RESTART) for number in numbers]
    taped = [tape * copies(chain, platform, number, Kind.TAPE) for number in numbers]
    write = [
        _seconds(moved, level.write) + _seconds(restart, level.discard)
        for level, moved in zip(levels, states, strict=True)
    ]
    read = [_seconds(moved, level.read) for level, moved in zip(levels, states, strict=True)]
    keep = [
        _seconds(moved, level.write, level.read) + _seconds(tape, level.discard)
        for level, moved in zip(levels, taped, strict=True)
    ]
    return IntervalCosts(
        before=sums(forward(chain, tapes)),
        reach=reach(chain, platform, tapes),
        write=np.reshape(write, shape),
        read=np.reshape(read, shape),
        restart=form.restart,
        tapes=tapes,
        keep=sums(np.reshape(keep, shape)),
        tape=sums(form.tape),
    )


def _seconds(nbytes: _Ints, *prices: Affine) -> NDArray[np.float64]:
    """Return the seconds of doing all this with checkpoints of so many bytes."""
    seconds = np.zeros(len(nbytes))
    for price in prices:
        seconds += price.latency + price.per_byte * nbytes
    return seconds


def _stored_sizes(level: Level, chain: Chain, tapes: bool) -> _Ints:
    """Bytes that x_0, ..., x_(n-1) take of a level, and then those of the tapes, if stored."""
    restart = chain.each("restart")[: chain.length]
    return level.stored_of(np.append(restart, chain.each("tape")) if tapes else restart)


def _sizes_alike(chain: Chain, tapes: bool) -> bool:
    """Whether all that is stored has one size, or tapes one and restart data another."""
    return all(np.ptp(chain.each(name)) == 0 for name in ("restart", "tape")[: 1 + tapes])


def _slots(level: Level, chain: Chain, tapes: bool) -> int:
    """How many of the smallest checkpoints fit on a level; n at most."""
    smallest = int(_stored_sizes(level, chain, tapes).min())
    if level.read_only:
        return 0
    if level.capacity is None or not smallest:
        return chain.length
    return min(chain.length, level.capacity // smallest)


def _round_trip(level: Level, chain: Chain) -> float:
    """Seconds to write and read all restart data: what puts the nearer level first."""
    return float(_seconds(chain.each("restart"), level.write, level.read, level.discard).sum())


def _overflows(schedule: Schedule, platform: Platform, level: Level) -> bool:
    """Whether a level would have to hold more than its capacity."""
    if level.capacity is None:
        return False
    actions = schedule.actions
    here = actions.take((actions.level == platform.number(level.name)) & (actions.op >= WRITE))
    stored = level.stored_of(schedule.chain.nbytes_of(here))
    change = (here.op == WRITE).astype(np.int64) - (here.op == DISCARD)
    return bool(np.cumsum(change * stored).max(initial=0) > level.capacity)


def _need(chain: Chain, tapes: bool) -> str:
    first = chain.nbytes(Key(Kind.RESTART, 0))
    return f"room for x_0, {first} bytes" + ", or for the tape of every step" * tapes


def _with_note(plan: _Plan, platform: Platform, slots: int, tapes: bool) -> Schedule:
    chain, actions = plan.schedule.chain, plan.schedule.actions
    seconds = makespan(plan.schedule, platform)
    bound = sorted_bound(chain, platform, slots=slots, tapes=tapes)
    gap = f"{seconds / bound - 1:.1%} above" if bound else "above"
    note = (
        f"steps differ: {plan.how}; {seconds:.6g} s, {gap} the sorted lower bound of {bound:.6g} s,"
        " which leaves out access"
    )
    return Schedule(chain, actions, note=note)


def sorted_bound(chain: Chain, platform: Platform, /, *, slots: int, tapes: bool) -> float:
    """No schedule with so many slots on all levels together takes less time than this.

    At most C(s + t, s) steps are advanced over no more than t times with s slots; with tapes, of
    which the register holds h, at most C(s + t + 1, s) + (h - 1) C(s + t, s) are. So the least is
    reached where the dearest steps are repeated least, and access costs nothing. It holds for any
    sizes if the slots are those of the smallest.
    """
    seconds_forward = forward(chain, tapes)
    held = int((reach(chain, platform, tapes) - np.arange(chain.length)).max())
    seconds = float((chain.each("record") + chain.each("reverse")).sum())
    dearest = np.sort(seconds_forward)[::-1]
    first, t = 0, 0
    if not slots and held < chain.length:
        return inf  # there is no way back to a step
    while first < chain.length:
        most = comb(slots + t, slots)
        if tapes:
            most = comb(slots + t + 1, slots) + (held - 1) * most
        last = min(most, chain.length)
        seconds += t * float(dearest[first:last].sum())
        first, t = last, t + 1
    return seconds


def forward(chain: Chain, tapes: bool, /) -> NDArray[np.float64]:
    """Seconds to go forward over each step: recording may be the quicker way."""
    advance = chain.each("advance")
    return np.minimum(advance, chain.each("record")) if tapes else advance


def reach(chain: Chain, platform: Platform, tapes: bool, /) -> NDArray[np.int64]:
    """Up to where the register holds the tape from each step on; of one step without `tapes`."""
    first = np.arange(chain.length)
    if not tapes:
        return first + 1
    if platform.working_memory is None:
        return np.full(chain.length, chain.length)
    before = sums(chain.each("tape"))
    room = min(platform.working_memory, int(before[-1]))
    return np.searchsorted(before, before[:-1] + room, side="right") - 1


def sums(values: NDArray[_Number], /) -> NDArray[_Number]:
    """The sums of all values before each, and before the end."""
    return np.insert(np.cumsum(values, axis=-1), 0, 0, axis=-1)
