"""Plans for overlap from synchronous ones: a Lagrangian dual in two phases, and its lower bound.

Phase f of a run with overlap lasts until the last step is first reached; phase b is the rest. A
phase takes at least C seconds, in which the program itself is busy (steps, accesses to memory,
copies to and from staging), and at least B_k seconds, in which channel k is busy with transfers.
Therefore the makespan T satisfies, for all multipliers a, b >= 0 with sum a = sum b = 1,

    T >= min over schedules of  a_0 C_f + sum_k a_k B_fk + b_0 C_b + sum_k b_k B_bk  -  zeta S.

The last term is necessary because transfers may change the phase. A write of phase f that is staged
at the end of phase f may be transferred in phase b, and a read of phase b may be made ahead in
phase f. Both then occupy memory at that time. S is the capacity of memory minus the checkpoints
stored there at the end of phase f, in bytes. zeta is the most that a byte can save,

    zeta = max(0, max_k (a_k - b_k) w_k, max_k (b_k - a_k) r_k),

where w_k and r_k are the seconds to write and read a byte on channel k. The minimum is a
synchronous problem, which `mixed` solves: far access costs its copy and mu_k = a_k / a_0 (in phase
b, b_k / b_0) times its transfer. The tables have the costs of phase b; `first_sweep` uses those of
both phases.

The bound is a concave function of the multipliers. Cutting planes (Kelley 1960) find its maximum,
with one linear program for each plane. Each plan that is computed gives a plane (a cut).

The bound is an estimate: `mixed` uses one level after the other, and a read may be cheaper if it
copies from a staged write.

For example, take 10 steps of 1 s to advance, record or reverse, a tape of 2 s to write to the only
level and 1 s to read, and h = 1. The schedule that stores nine tapes has C_f = 10, B_f = 18,
C_b = 10 and B_b = 9 s. With a = b = (1, 0) it costs 20 s. With a = (1/3, 2/3) it costs
10/3 + 36/3 + 10 = 25.3 s, and a state instead of two tapes would cost 3 - 4/3 s more. Therefore no
schedule takes less than 25.3 s.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache, cached_property
from math import floor, inf
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog

from ckio.actions import Key, Kind
from ckio.actions.columns import KIND_CODE, RECORD, WRITE
from ckio.planners.base import Seconds, held_steps, without_notes
from ckio.planners.dp import recurrence
from ckio.planners.dp.costs import IntegerCosts
from ckio.planners.dp.spaces import Space, orders, spaces, with_units
from ckio.planners.dp.sweep import SegmentTables, SweepCosts, first_sweep
from ckio.planners.dp.unroll import Segment, Unrolling
from ckio.planners.recording import quickest, recorded
from ckio.platform import Level, Platform, memory_level
from ckio.platform import copies as copied_by
from ckio.platform.chain import Chain
from ckio.platform.profile import Profile
from ckio.schedule import Schedule

_PARTS: Final = 1000
"""Costs in the tables are rounded down to multiples of a step divided by this."""

_SHORTEST: Final = 512
"""The longest segment, in steps, of the first tables; doubled if the best plan has one of more than
half of it."""

_LARGEST: Final = 1 << 21
"""The most numbers in all tables of one plan: 16 MB."""

_MOST_PLANS: Final = 12
"""The most cuts, so that the dual computes as many plans."""

_FROM: Final = (0.01, 0.3)
"""Multipliers of the first two plans: program seconds for one second of a channel."""

_CLOSE: Final = 1.001
"""The search for multipliers ends if the cuts limit the bound to this factor of the best one."""

_PROGRAM, _CHANNEL = 0.1, 1e-4
"""The least multiplier of the program and of a channel: with 0, transfers would be unlimited."""

_LIMIT: Final = float(1 << 58)
"""Sums of whole units stay below this."""

Capacities = tuple[int | None, ...]
"""Bytes of each level; None means no limit."""

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


@dataclass(frozen=True, eq=False)
class DualPlan:
    """The schedule of least cost at some multipliers: a plane that bounds the dual from above.

    Attributes
    ----------
    schedule : Schedule
    segments : tuple of Segment
        The segments of its first sweep, one by one.
    value : float
        Its cost at the multipliers: a bound of the makespan, in seconds.
    load : float64 array (2, 1 + channels)
        C, B_1, B_2, ... of both phases.
    stored : int
        Bytes stored on the memory level at the end of phase f.
    unrolling : Unrolling
        The actions of the segments.
    """

    schedule: Schedule
    segments: tuple[Segment, ...]
    value: float
    load: Seconds
    stored: int
    unrolling: Unrolling


def _held(chain: Chain, platform: Platform, tapes: bool) -> int:
    """Return the most steps whose tapes the program can have at a time.

    It is one step if a model has no tapes of its own to store: it then keeps the state of each
    recorded step, and these bytes are in no size of the chain.
    """
    return 1 if not tapes and not chain.tape else held_steps(chain, platform)


class Problem:
    """The problem of the best schedule at given multipliers, for a chain and a platform.

    Parameters
    ----------
    chain, platform
        All steps must be equal, and the platform must have a far level.
    tapes : bool
        Whether tapes may be stored.
    """

    def __init__(self, chain: Chain, platform: Platform, *, tapes: bool) -> None:
        self.given, self.chain = chain, quickest(chain) if tapes else chain
        self.platform, self.tapes = platform, tapes
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
        self.memory = None if self.near is None else platform.levels[self.near].capacity
        self.costs = _accesses(self)
        self._longest = min(chain.length, _SHORTEST)
        self.capacities = tuple(level.capacity for level in platform.levels)
        self._spaces = cache(self._with)

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

    def plan(
        self,
        multipliers: Seconds,
        capacities: Capacities | None = None,
        longest: int | None = None,
        /,
    ) -> DualPlan | None:
        """Return the plan of least cost at these multipliers; None if there is none.

        If they are given, it uses no more than `capacities` of the levels, and the segments of the
        first sweep have at most `longest` steps.
        """
        multipliers = multipliers / multipliers.sum(axis=1, keepdims=True)
        order = self._order(multipliers, capacities or self.capacities)
        swept = self._swept(multipliers, order)
        while True:
            tables = self._solved(order)
            sweep = first_sweep(tables, swept, self.chain.length, longest)
            longer = min(self.chain.length, 2 * self._longest)
            numbers = sum(len(stage.rows) for stage in tables.stages) * longer
            used = longer if sweep is None else max((it.steps for it in sweep.segments), default=0)
            enough = 2 * used <= self._longest or self._longest == self.chain.length
            if enough or longest or capacities or numbers > _LARGEST:
                break
            self._longest = longer
        if sweep is None:
            return None
        unrolling = Unrolling(tables.stages, held=self.held)
        schedule = self.schedule(unrolling, sweep.segments)
        near = Level(name="none") if self.near is None else self.platform.levels[self.near]
        sizes = [near.stored(self.chain.restart), near.stored(self.chain.tape)]
        here = (it for it in sweep.segments if order[it.stage].number == self.near)
        stored = sum(sizes[it.kind is Kind.TAPE] for it in here)
        value, load = self._value(multipliers, sweep.bound), self._load(schedule)
        return DualPlan(schedule, sweep.segments, value, load, stored, unrolling)

    def schedule(self, unrolling: Unrolling, segments: Sequence[Segment], /) -> Schedule:
        """Return the schedule that begins with these segments."""
        actions = unrolling.draft(self.chain.length, segments).actions()
        if self.tapes:
            actions = recorded(self.given, actions, self.held)
        return Schedule(self.given, actions)

    def _zeta(self, multipliers: Seconds, /) -> float:
        """Return the most seconds that a byte of memory can save at the end of phase f."""
        ahead, back = multipliers[:, 1:]
        worth = np.concatenate(
            ((ahead - back) * self.per_byte[0], (back - ahead) * self.per_byte[1])
        )
        return float(worth.max(initial=0.0))

    def _load(self, schedule: Schedule, /) -> Seconds:
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

    def _value(self, multipliers: Seconds, least: float) -> float:
        """Return the bound that follows from a first sweep that costs `least`."""
        each = self.chain.record + self.chain.reverse
        saved = (self.chain.length - 1) * self.chain.saved
        zeta = self._zeta(multipliers)
        staged = zeta * self.memory if self.memory is not None else (inf if zeta else 0.0)
        return float(multipliers[1, 0] * (least + self.chain.length * each - saved) - staged)

    def _swept(self, multipliers: Seconds, order: Sequence[Space]) -> SweepCosts:
        """Return the costs of the first sweep, as the tables have only those of phase b."""
        ahead, back = (_weighted(self.costs, self.of_level, row) for row in multipliers)
        program_ahead, program_back = multipliers[:, 0]
        ratio, zeta = program_ahead / program_back, self._zeta(multipliers) / program_back
        again = (ratio - 1) * self.chain.record
        restart, tape = [], []
        for at in (space.number for space in order):
            level, later = self.platform.levels[at], back[at, _READ] + back[at, _DISCARD]
            first, staged = ratio * ahead[at, _WRITE] + later, zeta * (at == self.near)
            restart.append(first[0] + staged * level.stored(self.chain.restart))
            tape.append(
                first[1] + again + self.chain.saved + staged * level.stored(self.chain.tape)
            )
        tapes = np.array(tape) if self.tapes else np.full(len(tape), inf)
        return SweepCosts(np.array(restart), tapes, ratio * self.chain.advance, again)

    def _order(self, multipliers: Seconds, capacities: Capacities) -> tuple[Space, ...]:
        """Return the levels with their costs in phase b, the cheapest first."""
        back = _weighted(self.costs, self.of_level, multipliers[1])
        weighted = [
            replace(
                it,
                write=float(back[it.number, _WRITE, 0] + back[it.number, _DISCARD, 0]),
                read=float(back[it.number, _READ, 0]),
                tape=float(back[it.number, :, 1].sum()) + self.chain.saved,
            )
            for it in self._spaces(capacities)
        ]
        return next(orders(weighted))

    def _solved(self, order: Sequence[Space]) -> SegmentTables:
        """Return the tables of an order of the levels."""
        costs = [cost for it in order for cost in it.costs if cost < inf]
        rounded = _rounded_down(self.chain.advance, costs, self.chain.length)
        given = with_units(order, rounded)
        stages = recurrence.in_order(given, self._longest, move=rounded.move, held=self.held)
        return SegmentTables(stages, self.held, float(rounded.unit))

    def _with(self, capacities: Capacities) -> list[Space]:
        pairs = zip(self.platform.levels, capacities, strict=True)
        levels = tuple(replace(level, capacity=nbytes) for level, nbytes in pairs)
        smaller = replace(self.platform, levels=levels)
        with without_notes():
            chain = replace(self.chain, tape_restarts=False)
            given = spaces(chain, smaller, held=self.held)
        return given if self.tapes else [space.without_tapes() for space in given]


def _weighted(costs: Accesses, of_level: NDArray[np.int64], multipliers: Seconds) -> Seconds:
    """Return the cost of each access in program seconds."""
    mu = np.append(multipliers[1:] / multipliers[0], 0.0)[of_level]
    priced: Seconds = costs.own + costs.moved * mu[:, np.newaxis, np.newaxis]
    return priced


def _rounded_down(move: float, costs: list[float], length: int) -> IntegerCosts:
    """Return the costs in whole units, rounded down."""
    most = max(move, *costs)
    unit = (move or min((it for it in costs if it), default=1.0)) / _PARTS
    unit = max(unit, most * (length + 2) * 4 / _LIMIT, move * (length + 2.0) ** 2 / _LIMIT)
    whole = [floor(it / unit * (1 + 1e-12)) for it in (move, *costs)]
    return IntegerCosts(whole[0], tuple(whole[1:]), Fraction(unit))


def _accesses(problem: Problem) -> Accesses:
    """Return the least costs of all accesses: with overlap, or without it if that costs less."""
    chain, levels, near = problem.chain, problem.platform.levels, problem.near
    own, moved = np.zeros((2, len(levels), 3, 2))
    for at, level in enumerate(levels):
        for kind, named in enumerate((Kind.RESTART, Kind.TAPE)):
            nbytes, copied = chain.nbytes(Key(named, 0)), chain.copied(Key(named, 0))
            direct = [level.write(nbytes), level.read(nbytes), level.discard(nbytes)]
            if at == near:
                moves = nbytes * copied_by(chain, problem.platform, at, named)
                own[at, :, kind] = level.write(moves), level.read(moves), direct[_DISCARD]
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
            transfers = [
                (profile.write_beside or level.write)(nbytes),
                (profile.read_beside or level.read)(nbytes),
                direct[_DISCARD],
            ]
            delays = [profile.write_hinders, profile.read_hinders, profile.discard_hinders]
            # The program waits for the transfer itself where this costs it less.
            own[at, :, kind] = np.minimum(np.add(copies, [it(nbytes) for it in delays]), direct)
            moved[at, :, kind] = np.minimum(transfers, direct)
    return Accesses(own, moved)


def dual(problem: Problem, simulate: Callable[[Schedule], object], /) -> float:
    """Return the greatest bound in seconds; 0 without any plan. Each plan is simulated.

    Raises NoSchedule if the levels are too small.
    """
    count = len(problem.channels)
    first = [np.array([[1.0] + [mu / count] * count] * 2) for mu in _FROM]
    multipliers, upper, found = first[0], inf, list[DualPlan]()
    bound = 0.0
    for turn in range(_MOST_PLANS):
        if turn >= len(first) and upper <= bound * _CLOSE:
            break
        plan = problem.plan(first[turn] if turn < len(first) else multipliers)
        if plan is None:
            break
        simulate(plan.schedule)
        found.append(plan)
        bound = max(bound, plan.value)
        multipliers, upper = _master(problem, found)
    return bound


def _master(problem: Problem, cuts: Sequence[DualPlan]) -> tuple[Seconds, float]:
    """Return the multipliers at which the least of all cuts is greatest, and that value.

    This is a linear program in a, b, the value v and z, the seconds that the whole memory can save
    at the end of phase f. If memory has no capacity limit, any number of transfers can be staged.
    Then a = b and z = 0. Seconds are divided by the largest load, because the solver has absolute
    tolerances, and refuses numbers above 10^15.
    """
    count, memory = len(problem.channels), problem.memory
    width = 2 * (count + 1)
    loads = np.array([cut.load.ravel() for cut in cuts])
    unit = float(loads.max()) or 1.0
    turn = []
    for channel in range(count):
        for sign, each in zip((1, -1), problem.per_byte[:, channel], strict=True):
            row = np.zeros(width + 2)
            row[1 + channel], row[width // 2 + 1 + channel] = sign, -sign
            row[-1] = -unit / max(each * memory, 1e-9 * unit) if memory is not None else 0.0
            turn.append(row)
    free = [1.0 - cut.stored / memory if memory else 1.0 for cut in cuts]
    rows = np.c_[-loads / unit, np.ones(len(cuts)), free]
    ones = np.zeros((2, width + 2))
    ones[0, : width // 2] = ones[1, width // 2 : width] = 1.0
    found = linprog(
        np.r_[np.zeros(width), -1.0, 0.0],
        A_ub=np.r_[rows, turn],
        b_ub=np.zeros(len(cuts) + len(turn)),
        A_eq=ones,
        b_eq=[1.0, 1.0],
        bounds=[
            *((it, 1.0) for it in ([_PROGRAM] + [_CHANNEL] * count) * 2),
            (None, None),
            (0, None),
        ],
    )
    multipliers = found.x[:width].reshape(2, -1)
    if memory is None:
        multipliers = np.array([multipliers.mean(axis=0)] * 2)  # equal to the last bit
    return multipliers, float(-found.fun) * unit
