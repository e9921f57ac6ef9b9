"""Plans for overlap from synchronous ones: a Lagrangian dual in two phases, and its lower bound.

Phase f of a run with overlap lasts until the last step is first reached; phase b is the rest. A
phase takes at least C seconds, in which the program itself is busy (steps, accesses to memory,
copies to and from staging), and at least B_k seconds, in which channel k is busy with transfers.
Therefore the makespan T satisfies, for all prices a, b >= 0 with sum a = sum b = 1,

    T >= min over schedules of  a_0 C_f + sum_k a_k B_fk + b_0 C_b + sum_k b_k B_bk  -  zeta S.

The last term is necessary because transfers may change the phase. A write of phase f that is staged
at the end of phase f may be transferred in phase b, and a read of phase b may be made ahead in
phase f. Both then occupy memory at that time. S is the capacity of memory minus the checkpoints
stored there at the end of phase f, in bytes. zeta is the most that a byte can save,

    zeta = max(0, max_k (a_k - b_k) w_k, max_k (b_k - a_k) r_k),

where w_k and r_k are the seconds to write and read a byte on channel k. The minimum is a
synchronous problem, which `mixed` solves: far access costs its copy and mu_k = a_k / a_0 (in phase
b, b_k / b_0) times its transfer. The tables have the prices of phase b; `first_sweep` uses those of
both phases.

The bound is a concave function of the prices. Cutting planes (Kelley 1960) find its maximum, with
one linear program for each plane. Each plan that is computed gives a plane (a cut). The cuts with
positive weight at the maximum form the mixture of plans that is optimal.

For example, take 10 steps of 1 s to advance, record or reverse, a tape of 2 s to write to the only
level and 1 s to read, and h = 1. The schedule that stores nine tapes has C_f = 10, B_f = 18,
C_b = 10 and B_b = 9 s. With a = b = (1, 0) it costs 20 s. With a = (1/3, 2/3) it costs
10/3 + 36/3 + 10 = 25.3 s, and a state instead of two tapes would cost 3 - 4/3 s more. Therefore no
schedule takes less than 25.3 s.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from itertools import islice
from math import floor, inf
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog

from ckio.actions import Key, Kind
from ckio.actions.columns import KIND_CODE, RECORD, WRITE
from ckio.planners.base import tapes as tapes_held
from ckio.planners.base import without_notes
from ckio.planners.dp import joint, recurrence
from ckio.planners.dp.costs import IntegerCosts
from ckio.planners.dp.spaces import (
    Space,
    counted,
    few_sums,
    in_units,
    orders,
    rows,
    spaces,
    sums,
)
from ckio.planners.dp.sweep import (
    Filling,
    Seconds,
    SegmentTables,
    Sweep,
    SweepCosts,
    actions,
    filling,
    first_sweep,
)
from ckio.platform import Level, Platform, memory_level
from ckio.platform import copies as copied_by
from ckio.platform.chain import Chain
from ckio.platform.profile import Profile
from ckio.schedule import Schedule

_PARTS: Final = 1000
"""Costs in the tables are rounded down to multiples of a step divided by this."""

_SHORTEST: Final = 512
"""The longest segment, in steps, of the first tables; doubled if the best plan needs more."""

_LARGEST: Final = 1 << 21
"""The most numbers in all tables of one plan: 16 MB."""

_KEPT: Final = 4
"""The number of SegmentTables that are cached for plans with the same prices of phase b."""

_MOST_SUMS: Final = 4000
"""The most sums of sizes that are distinguished on a level; with more, sizes are rounded."""

_FROM: Final = (0.01, 0.3)
"""Prices in the first two plans: program seconds for one second of a channel."""

_JOINT: Final = 2e7
"""The most comparisons in a bound on all levels together."""

_MOST_ORDERS: Final = 6
"""The most orders of the levels for a bound; a plan uses the first order."""

_CLOSE: Final = 1.001
"""The search for prices ends if the cuts limit the bound to this factor of the best one."""

_PROGRAM, _CHANNEL = 0.1, 1e-4
"""The least price of the program and of a channel: with 0, transfers would be unlimited."""

_LIMIT: Final = float(1 << 58)
"""Sums of whole units stay below this."""

_WRITE, _READ, _DISCARD = range(3)
_TAPE_CODE: Final = KIND_CODE[Kind.TAPE]


@dataclass(frozen=True, eq=False)
class Accesses:
    """Seconds of each access, as arrays (levels, write/read/discard, restart/tape).

    Attributes
    ----------
    own : float64 array
        Seconds of the program itself.
    moved : float64 array
        Seconds of the channel; 0 on the memory level.
    """

    own: Seconds
    moved: Seconds


@dataclass(frozen=True)
class Choice:
    """The limits of a plan, in addition to its prices.

    Attributes
    ----------
    reserve : int
        Bytes of the memory level that no checkpoint may use.
    quotas : tuple of int or None
        The most bytes that the first sweep may store on each level.
    longest : int or None
        The most steps in a segment of the first sweep. Short segments use a channel more evenly.
    """

    reserve: int = 0
    quotas: tuple[int | None, ...] = ()
    longest: int | None = None


@dataclass(frozen=True, eq=False)
class Cut:
    """A plane that bounds the dual from above: the loads of one plan.

    Attributes
    ----------
    load : float64 array (2, 1 + channels)
        C, B_1, B_2, ... of both phases.
    held : int
        Bytes stored on the memory level at the end of phase f.
    prices : float64 array (2, 1 + channels)
        a and b, at which the plan is the best.
    value : float
        The least cost of any schedule at these prices.
    """

    load: Seconds
    held: int
    prices: Seconds
    value: float


@dataclass(frozen=True, eq=False)
class DualPlan:
    """A schedule that is the best at some prices, with its cut, tables, first sweep and limits."""

    schedule: Schedule
    cut: Cut
    tables: SegmentTables
    sweep: Sweep
    choice: Choice

    @property
    def least(self) -> float:
        """A lower bound, in seconds, of its makespan with overlap."""
        return float(self.cut.load.max(axis=1).sum())


def _held(chain: Chain, platform: Platform, tapes: bool) -> int:
    """Return the most steps whose tapes the program can have at a time.

    It is one step if a model has no tapes of its own to store: it then keeps the state of each
    recorded step, and these bytes are in no size of the chain.
    """
    return 1 if not tapes and not chain.tape else tapes_held(chain, platform)


class Problem:
    """The problem of the best schedule at given prices, for a chain and a platform.

    Parameters
    ----------
    chain, platform
        All steps must be equal, and the platform must have a far level.
    tapes : bool
        Whether tapes may be stored.
    """

    def __init__(self, chain: Chain, platform: Platform, *, tapes: bool) -> None:
        self.chain, self.platform, self.tapes = chain, platform, tapes
        self.held, self.near = _held(chain, platform, tapes), memory_level(platform)
        far = [it.channel for at, it in enumerate(platform.levels) if at != self.near]
        self.channels = tuple(dict.fromkeys(far))
        self.of_level = np.array(
            [
                -1 if at == self.near else self.channels.index(it.channel)
                for at, it in enumerate(platform.levels)
            ]
        )
        self.kinds = (chain.restart, chain.tape)[: 1 + tapes]
        self.move = min(chain.advance, chain.record) if tapes else chain.advance
        self.recording = tapes and chain.record < chain.advance
        self.room = None if self.near is None else platform.levels[self.near].capacity
        self.costs, self.least_costs = _accesses(self, least=False), _accesses(self, least=True)
        self._longest = min(chain.length, _SHORTEST)
        self._spaces: dict[tuple[int, bool], list[Space]] = {}
        self._tables: dict[tuple[object, ...], SegmentTables] = {}

    @cached_property
    def per_byte(self) -> Seconds:
        """The most seconds that each channel needs for a byte: (writing/reading, channels)."""
        found = np.zeros((2, len(self.channels)))
        for level, channel in enumerate(self.of_level):
            if channel >= 0:
                rates = self.costs.moved[level, :_DISCARD, : len(self.kinds)] / np.maximum(
                    self.kinds, 1
                )
                found[:, channel] = np.maximum(found[:, channel], rates.max(axis=1))
        return found

    def plan(self, prices: Seconds, choice: Choice = Choice(), /) -> DualPlan | None:
        """Return the plan of least cost at these prices; None if none is within the limits."""
        prices = prices / prices.sum(axis=1, keepdims=True)
        found = next(self._sweeps(self.costs, prices, choice), None)
        if found is None:
            return None
        tables, sweep = found
        schedule = self.schedule(tables, sweep)
        near = Level(name="none") if self.near is None else self.platform.levels[self.near]
        sizes = [near.stored(self.chain.restart), near.stored(self.chain.tape)]
        held = sum(sizes[it.steps == 0] for it in sweep.segments if tables.level(it) == self.near)
        value = self._value(prices, sweep.bound)
        cut = Cut(self.load(schedule), held, prices, value)
        return DualPlan(schedule, cut, tables, sweep, choice)

    def schedule(self, tables: SegmentTables, sweep: Sweep, /) -> Schedule:
        """Return the schedule that begins with this first sweep."""
        return Schedule(self.chain, actions(tables, sweep.segments, sweep.rest))

    def bound(self, prices: Seconds, /) -> float:
        """Return a lower bound in seconds: the least cost of any schedule at these prices.

        The bound is for plans on all levels together if the problem is small enough (`exact`).
        Otherwise it is for plans on one level after the other, and is an estimate.
        """
        prices = prices / prices.sum(axis=1, keepdims=True)
        if self.exact:
            return self._value(prices, self._jointly(prices))
        found = self._sweeps(self.least_costs, prices, Choice())
        return min((self._value(prices, sweep.bound) for _, sweep in found), default=0.0)

    @cached_property
    def exact(self) -> bool:
        """Whether the bound is for plans on all levels together."""
        back = _priced(self.least_costs, self.of_level, np.ones(1 + len(self.channels)))
        given = next(self._orders(back, 0, generous=True), ())
        cells = rows(given) * (self.chain.length + 1) * (1 + 2 * len(given))
        return cells * self.chain.length <= _JOINT and all(space.exact for space in given)

    def _jointly(self, prices: Seconds) -> float:
        """Return the cost of the best first sweep on all levels together.

        It solves the recurrence of `mixed` for P with the prices of phase f.
        """
        back, length = _priced(self.least_costs, self.of_level, prices[1]), self.chain.length
        given = next(self._orders(back, 0, generous=True))
        swept = self._swept(self.least_costs, prices, given)
        lengths = np.arange(length + 1)
        tables = joint.solve(given, length, move=self.move, held=self.held)
        found = np.full(tables.seconds.shape, inf)
        for n in range(1, length + 1):
            row = np.full(len(found) - 1, n * swept.held if n <= self.held else inf)
            for k, space in enumerate(given):
                np.minimum(row, swept.tape[k] + found[tables.after_tape[k], n - 1], out=row)
                later = tables.again[k][:-1, 1:n] - space.read
                later = later + (swept.move - self.move) * lengths[1:n]
                sweep = (found[tables.after_restart[k], n - 1 : 0 : -1] + later).min(
                    axis=1, initial=inf
                )
                np.minimum(row, swept.restart[k] + sweep, out=row)
            found[:-1, n] = row
        return float(found[tables.empty, length])

    def zeta(self, prices: Seconds, /) -> float:
        """Return the most seconds that a byte of memory can save at the end of phase f."""
        ahead, back = prices[:, 1:]
        worth = np.concatenate(
            ((ahead - back) * self.per_byte[0], (back - ahead) * self.per_byte[1])
        )
        return float(worth.max(initial=0.0))

    def load(self, schedule: Schedule, /) -> Seconds:
        """Return C and all B_k of both phases, in seconds."""
        a, length = schedule.actions, self.chain.length
        turn = int(np.argmax((a.op <= RECORD) & (a.end == length)))
        phase = (np.arange(len(a)) > turn).astype(np.intp)
        access, kind = a.op >= WRITE, (a.kind == _TAPE_CODE).astype(np.intp)
        which = a.level, np.where(access, a.op - WRITE, 0), kind
        own = self.chain.seconds_of(a) + np.where(access, self.costs.own[which], 0.0)
        moved = np.where(access, self.costs.moved[which], 0.0)
        channel = np.where(access, self.of_level[a.level], -1)
        columns = [np.bincount(phase, own, 2)]
        columns += [
            np.bincount(phase, moved * (channel == k), 2) for k in range(len(self.channels))
        ]
        return np.array(columns, np.float64).T

    def _value(self, prices: Seconds, least: float) -> float:
        """Return the bound that follows from a first sweep that costs `least`."""
        each = self.chain.record + self.chain.reverse
        zeta = self.zeta(prices)
        staged = zeta * self.room if self.room is not None else (inf if zeta else 0.0)
        return float(prices[1, 0] * (least + self.chain.length * each) - staged)

    def _sweeps(
        self, costs: Accesses, prices: Seconds, choice: Choice
    ) -> Iterator[tuple[SegmentTables, Sweep]]:
        """Yield the best first sweep for each order of levels, in program seconds of phase b."""
        back, generous = _priced(costs, self.of_level, prices[1]), costs is self.least_costs
        for order in self._orders(back, choice.reserve, generous=generous):
            while True:
                tables = self._solved(order, (choice.reserve, generous))
                swept = self._swept(costs, prices, tables.spaces)
                fillings = [self._filling(space, choice.quotas) for space in tables.spaces]
                sweep = first_sweep(tables, swept, self.chain.length, fillings, choice.longest)
                longest = choice.longest or self.chain.length
                if sweep is not None:
                    longest = max((it.steps for it in sweep.segments), default=0)
                enough = 2 * longest <= tables.longest or tables.longest >= self.chain.length
                if enough or choice != Choice() or not self._lengthen(tables):
                    break
            if sweep is not None:
                yield tables, sweep

    def _swept(self, costs: Accesses, prices: Seconds, order: Sequence[Space]) -> SweepCosts:
        """Return the costs of the first sweep, because the tables have only prices of phase b."""
        ahead, back = (_priced(costs, self.of_level, row) for row in prices)
        ratio, zeta = prices[0, 0] / prices[1, 0], self.zeta(prices) / prices[1, 0]
        again = (ratio - 1) * self.chain.record
        restart, tape = [], []
        for at in (space.number for space in order):
            level, later = self.platform.levels[at], back[at, _READ] + back[at, _DISCARD]
            first, staged = ratio * ahead[at, _WRITE] + later, zeta * (at == self.near)
            restart.append(first[0] + staged * level.stored(self.chain.restart))
            tape.append(first[1] + again + staged * level.stored(self.chain.tape))
        tapes = np.array(tape) if self.tapes else np.full(len(tape), inf)
        return SweepCosts(np.array(restart), tapes, ratio * self.move, again)

    def _lengthen(self, tables: SegmentTables) -> bool:
        """Double the length of the tables if they stay small enough; return whether."""
        longest = min(self.chain.length, 2 * self._longest)
        if sum(len(stage.rows) for stage in tables.stages) * longest > _LARGEST:
            return False
        self._longest = longest
        self._tables.clear()
        return True

    def _orders(
        self, back: Seconds, reserve: int, *, generous: bool
    ) -> Iterator[tuple[Space, ...]]:
        """Yield the levels with the prices of phase b, in every order that may be the best."""
        if (reserve, generous) not in self._spaces:
            self._spaces[reserve, generous] = self._with_reserve(reserve, generous)
        priced = [
            replace(
                it,
                write=float(back[it.number, _WRITE, 0] + back[it.number, _DISCARD, 0]),
                read=float(back[it.number, _READ, 0]),
                tape=float(back[it.number, :, 1].sum()),
            )
            for it in self._spaces[reserve, generous]
        ]
        return islice(orders(priced), _MOST_ORDERS)

    def _solved(self, order: Sequence[Space], of: tuple[object, ...]) -> SegmentTables:
        """Return the tables of an order, from a cache if possible."""
        key = (*of, *((it.number, it.costs) for it in order))
        if key not in self._tables:
            while len(self._tables) >= _KEPT:
                del self._tables[next(iter(self._tables))]
            costs = [cost for it in order for cost in it.costs]
            prices = _rounded_down(self.move, costs, self.chain.length)
            stages = recurrence.in_order(
                counted(order, prices), self._longest, move=prices.advance, held=self.held
            )
            self._tables[key] = SegmentTables(stages, self.held, self.recording, float(prices.unit))
        return self._tables[key]

    def _with_reserve(self, reserve: int, generous: bool) -> list[Space]:
        near, *far = self.platform.levels
        if reserve and near.capacity is not None:
            near = replace(near, capacity=near.capacity - reserve)
        with without_notes():
            given = spaces(
                self.chain,
                replace(self.platform, levels=(near, *far)),
                held=self.held,
                most=_MOST_SUMS,
                generous=generous,
            )
        if self.tapes:
            return given
        return [replace(it, after_tape=np.full_like(it.after_tape, -1)) for it in given]

    def _filling(self, space: Space, quotas: tuple[int | None, ...]) -> Filling:
        """Return the free space of a level for the first sweep: all of it, or a quota."""
        level, whole = self.platform.levels[space.number], filling(space)
        quota = quotas[space.number] if quotas else None
        if quota is None or (level.capacity is not None and quota >= level.capacity):
            return whole
        restart = level.stored(self.chain.restart)
        tape = level.stored(self.chain.tape) if self.tapes else 0
        quota = min(quota, (self.chain.length + 1) * max(restart, tape))  # more is never used
        sizes, unit = (restart, tape), 1
        if not few_sums(*sizes, quota, _MOST_SUMS):
            r, t, units = in_units(*sizes, quota, _MOST_SUMS, generous=False)
            sizes, unit, quota = (r, t), quota // units, units
        within = sums(*sizes, quota)
        after = [np.searchsorted(within, within - size, side="right") - 1 for size in sizes]
        within = unit * within
        if not self.tapes:
            after[1] = np.full(len(within), -1)
        if True in whole.endless or level.capacity is None:
            layer = np.full(len(within), len(whole.layer) - 1)
        else:  # the capacity above the quota is free within segments
            part = (level.capacity - within[-1] + within) / max(level.capacity, 1)
            layer = np.floor(part * (len(whole.layer) - 1)).astype(np.intp)
            full = sums(restart, tape, level.capacity) if space.exact else within[:0]
            if len(full) == len(whole.layer):
                free = full[-1] - within[-1] + within
                layer = np.searchsorted(full, free, side="right") - 1
        return Filling(after[0], after[1], layer)


def _priced(costs: Accesses, of_level: NDArray[np.int64], prices: Seconds) -> Seconds:
    """Return the price of each access in program seconds."""
    mu = np.append(prices[1:] / prices[0], 0.0)[of_level]
    priced: Seconds = costs.own + costs.moved * mu[:, np.newaxis, np.newaxis]
    return priced


def _rounded_down(move: float, costs: list[float], length: int) -> IntegerCosts:
    """Return the costs in whole units, rounded down."""
    most = max(move, *costs)
    unit = (move or min((it for it in costs if it), default=1.0)) / _PARTS
    unit = max(unit, most * (length + 2) * 4 / _LIMIT, move * (length + 2.0) ** 2 / _LIMIT)
    whole = [floor(it / unit * (1 + 1e-12)) for it in (move, *costs)]
    return IntegerCosts(whole[0], tuple(whole[1:]), Fraction(unit))


def _accesses(problem: Problem, *, least: bool) -> Accesses:
    """Return the costs of all accesses with overlap: the expected ones, or the `least` possible."""
    chain, levels, near = problem.chain, problem.platform.levels, problem.near
    own, moved = np.zeros((2, len(levels), 3, 2))
    for at, level in enumerate(levels):
        for kind, named in enumerate((Kind.RESTART, Kind.TAPE)):
            nbytes, copied = chain.nbytes(Key(named, 0)), chain.copied(Key(named, 0))
            direct = [level.write(nbytes), level.read(nbytes), level.discard(nbytes)]
            if at == near:
                moves = nbytes * copied_by(chain, problem.platform, at, named)
                # A staged checkpoint can serve as one in memory, and needs no discard.
                drop = 0.0 if least else direct[_DISCARD]
                own[at, :, kind] = level.write(moves), level.read(moves), drop
                continue
            memory = Level(name="none") if near is None else levels[near]
            profile = level.profile or Profile()
            if near is not None and memory.capacity is not None and nbytes > memory.capacity:
                own[at, :, kind] = moved[at, :, kind] = direct  # it is never staged
                continue
            copies = [
                (profile.write_own or memory.write)(copied),
                (profile.read_own or memory.read)(copied),
                0.0,
            ]
            beside = [
                (profile.write_beside or level.write)(nbytes),
                (profile.read_beside or level.read)(nbytes),
                direct[_DISCARD],
            ]
            lost = [profile.write_hinders, profile.read_hinders, profile.discard_hinders]
            if least:
                own[at, :, kind] = np.minimum(copies, direct)
                moved[at, :, kind] = np.minimum(beside, direct)
                if kind == 0:  # it may be read while staged, so that the copy counts as a near one
                    own[at, _WRITE, kind] = 0.0
            else:
                own[at, :, kind] = np.add(copies, [it(nbytes) for it in lost])
                moved[at, :, kind] = beside
    return Accesses(own, moved)


@dataclass(frozen=True, eq=False)
class Dual:
    """The best prices that were found, their lower bound, and the cuts.

    Attributes
    ----------
    cuts : tuple of Cut
        All cuts, in the order of computation.
    weights : float64 array
        The weight of each cut in the best mixture.
    prices : float64 array (2, 1 + channels)
        The best prices.
    bound : float
        The lower bound at these prices, in seconds.
    """

    cuts: tuple[Cut, ...]
    weights: Seconds
    prices: Seconds
    bound: float

    @property
    def load(self) -> Seconds:
        """C, B_1, B_2, ... of both phases, for the mixture."""
        loads = np.array([cut.load for cut in self.cuts])
        return np.tensordot(self.weights / max(self.weights.sum(), 1e-12), loads, 1)


def dual(problem: Problem, most: int, look: Callable[[DualPlan], object] | None = None, /) -> Dual:
    """Search the prices of the greatest lower bound, with at most `most` plans.

    `look` is called with each plan. Raises NoSchedule if the levels are too small.
    """
    count = len(problem.channels)
    start = [np.array([[1.0] + [mu / count] * count] * 2) for mu in _FROM]
    cuts, best = list[Cut](), -inf
    prices, weights, upper = start[0], np.zeros(0), inf
    for turn in range(most):
        asked = start[turn] if turn < len(start) else prices
        if turn >= len(start) and upper <= best * _CLOSE:
            break
        plan = problem.plan(asked)
        if plan is None:
            break
        if look is not None:
            look(plan)
        cuts.append(plan.cut)
        best = max(best, plan.cut.value)
        prices, weights, upper = _master(problem, cuts)
    if not cuts:
        return Dual((), weights, prices, 0.0)
    tight = max(cuts, key=lambda cut: cut.value).prices
    return Dual(tuple(cuts), weights, tight, problem.bound(tight))


def _master(problem: Problem, cuts: list[Cut]) -> tuple[Seconds, Seconds, float]:
    """Return the prices at which the least of all cuts is greatest, the weights, and that value.

    This is a linear program in a, b, the value v and z, the seconds that the whole memory can save
    at the end of phase f. If memory has no capacity limit, any number of transfers can be staged.
    Then a = b and z = 0. Seconds are divided by the largest load, because the solver has absolute
    tolerances, and refuses numbers above 10^15.
    """
    count, room = len(problem.channels), problem.room
    width = 2 * (count + 1)
    loads = np.array([cut.load.ravel() for cut in cuts])
    unit = float(loads.max()) or 1.0
    turn = []
    for channel in range(count):
        for sign, each in zip((1, -1), problem.per_byte[:, channel], strict=True):
            row = np.zeros(width + 2)
            row[1 + channel], row[width // 2 + 1 + channel] = sign, -sign
            row[-1] = -unit / max(each * room, 1e-9 * unit) if room is not None else 0.0
            turn.append(row)
    free = [1.0 - cut.held / room if room else 1.0 for cut in cuts]
    rows = np.c_[-loads / unit, np.ones(len(cuts)), free]
    sums = np.zeros((2, width + 2))
    sums[0, : width // 2] = sums[1, width // 2 : width] = 1.0
    found = linprog(
        np.r_[np.zeros(width), -1.0, 0.0],
        A_ub=np.r_[rows, turn],
        b_ub=np.zeros(len(cuts) + len(turn)),
        A_eq=sums,
        b_eq=[1.0, 1.0],
        bounds=[
            *((it, 1.0) for it in ([_PROGRAM] + [_CHANNEL] * count) * 2),
            (None, None),
            (0, None),
        ],
    )
    weights, prices = -found.ineqlin.marginals[: len(cuts)], found.x[:width].reshape(2, -1)
    if room is None:
        prices = np.array([prices.mean(axis=0)] * 2)  # equal to the last bit
    return prices, weights, float(-found.fun) * unit
