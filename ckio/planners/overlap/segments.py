"""Plans of restart checkpoints in memory and on one far level, one segment at a time.

The module needs numba. If memory has few slots and a chain is long, the reverse sweep of a segment
writes to the far level again, and the time of the segment depends on when it writes. Therefore each
segment is planned and simulated by itself, for the lengths and numbers of far slots of a grid and
with several rules. Then the best sequence of segments is chosen. For two levels, c near slots, m
far slots and a least gap between writes, the recurrence is

    near:  S_c(l) = min_{1<=j<=l} j u_f + F_c-1(l-j) + r_1 + S_c(j-1),    F_c(l) = w_1 + S_c(l)
    last:  E_c(l) = min(S_c-1(l) + max(0, h - t_c-1(l)),
                        min_j j u_f + F_c-1(l-j) + r_1 + E_c(j-1)),       G_c(l) = w_1 + E_c(l)
    far:   D_m(l) = min(G(l), min_j rho r_2 + D_m(j-1) + min(j u_f + G(l-j),
                                      max(j u_f, g) + rho w_2 + D_m-1(l-j)))

Each value is the time of a segment of l + 1 steps without its Records and Reverses. Its first state
is in the register and, for S, E and D, also on the level. u_f is the time to advance one step; w_1,
r_1 and w_2, r_2 are the times to write and read on the near and the far level. Far access overlaps
with computing, so that only a fraction rho of its cost counts. The number of slots m and the gap g
between two writes of a sweep limit its use. A read ahead occupies a near slot during its transfer.
Therefore E leaves one of the c slots free for the last h seconds before each far read. The steps in
this time are reversed with c - 1 slots. They take t_c-1 seconds with Records and Reverses; if this
is less than h, the program waits for the rest.

For example, with one slot, u_f = 1 and r_1 = 0, S_1(2) = 2 + F_0(0) + S_1(1) = 3: two steps lead to
the last one, and one step leads to the one before. Let w_1 = 0, let recording and reversing a step
take one second together, and h = 5. With two slots, S_2(2) = 2, and E_2(2) = S_1(2) = 3, because
t_1(2) = 6 s is more than h.

Let T(p, m) be the time that the engine computes for a segment of p steps with m far slots. Then

    C_i(x) = min_p C_i-1(x - p) + T(p, c - i + 1),    C_0(0) = 0

is the time of i segments with x steps in total, where c is the number of far slots: i - 1 of them
store the first states of earlier segments. The steps after x use memory only. Some of the best
sequences are simulated as a whole.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from math import ceil, inf
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ckio.actions.columns import ADVANCE, DISCARD, READ, RECORD, REVERSE, WRITE
from ckio.planners.overlap.engine import (
    ALL,
    NONE,
    WAYS,
    Ints,
    Policy,
    Seconds,
    State,
    TransferProgram,
    kernel,
    link,
    perform,
    program,
    state,
)

# mypy: disable-error-code="no-any-return"

Table = NDArray[np.float64]
Splits = NDArray[np.int32]

_PRICES: Final = (0.0, 0.05, 0.3)
"""Fractions rho of the cost of far access; if near slots are few, far access is not free."""

_GAPS: Final = (0.0, 0.75, 1.0)
"""Least gaps between writes, in units of the time of a write."""

_AHEAD: Final = (1.0, 0.5, 1.5, 0.0)
"""Times h in which a near slot is free for a read ahead, in units of the time of a read."""

_CUTS: Final = 12
"""Sequences that are simulated for each least length, as the sum over segments is not exact."""

_LONGEST: Final = 1200
"""The most steps in a segment."""

_MOST_WORK: Final = 6 * 10**9
"""The most sums that are compared to divide a chain: about ten seconds."""


LOW = 0
"""Instead of a split: the segment uses the near level only, or one near slot less."""


class Costs(NamedTuple):
    """Seconds of each action, for one step or one checkpoint, in the order of `columns`."""

    advance: float
    record: float
    reverse: float
    near_write: float
    near_read: float
    near_discard: float
    far_write: float
    far_read: float
    far_discard: float


class Values(NamedTuple):
    """The solution of a recurrence by slots and length, and its j.

    For the near level, row c is S_c, and the last row is E for all slots. For the far level, row m
    is D_m. Its j is LOW; or j if the rest uses the near level; or -j if the rest begins with a far
    write.
    """

    seconds: Table
    split: Splits


class Rules(NamedTuple):
    """Costs of far access in the recurrence, and the least gap between writes, in seconds."""

    write: float
    read: float
    gap: float


def near_values(slots: int, length: int, costs: Costs) -> Values:
    """Return S for all lengths up to `length`."""
    near = Values(
        np.full((slots + 1, length + 1), inf), np.zeros((slots + 1, length + 1), np.int32)
    )
    near.seconds[1:, 0] = 0.0
    for c in range(1, slots + 1):
        _solve_row(near, c, c - 1, costs)
    return near


def with_last(near: Values, slots: int, ahead: float, costs: Costs) -> Values:
    """Return S for up to `slots` slots, and E; h is `ahead`, in seconds."""
    less = near.seconds[slots - 1].copy()
    less[0] = 0.0
    steps = np.arange(1, len(less) + 1)
    last = less + np.maximum(0.0, ahead - less - steps * (costs.record + costs.reverse))
    found = Values(
        np.vstack((near.seconds[: slots + 1], last)),
        np.vstack((near.split[: slots + 1], np.full_like(near.split[0], LOW))),
    )
    _solve_row(found, slots + 1, slots - 1, costs)
    return found


@kernel
def _solve_row(near: Values, row: int, less: int, costs: Costs) -> None:
    """Minimise a row over checkpoints; with one of them stored, the rest uses row `less`."""
    seconds, split = near
    for length in range(1, seconds.shape[1]):
        for j in range(1, length + 1):
            value = j * costs.advance + costs.near_read + seconds[row, j - 1]
            if j < length:
                value += costs.near_write + costs.near_discard + seconds[less, length - j]
            if value < seconds[row, length]:
                seconds[row, length], split[row, length] = value, j


def far_values(low: Seconds, slots: int, advance: float, rules: Rules) -> Values:
    """Return D for all lengths of `low`, which is G."""
    far = Values(np.full((slots + 1, len(low)), inf), np.zeros((slots + 1, len(low)), np.int32))
    far.seconds[1:, 0] = 0.0
    _solve_far(far, low, advance, rules)
    return far


@kernel
def _solve_far(far: Values, low: Seconds, advance: float, rules: Rules) -> None:
    slots, lengths = far.seconds.shape
    for m in range(1, slots):
        for length in range(1, lengths):
            best, split = low[length], LOW
            for j in range(1, length + 1):
                back = rules.read + far.seconds[m, j - 1]
                value = j * advance + low[length - j] + back
                if value < best:
                    best, split = value, j
                if m > 1 and j < length:
                    value = max(j * advance, rules.gap) + rules.write + back
                    value += far.seconds[m - 1, length - j]
                    if value < best:
                        best, split = value, -j
            far.seconds[m, length], far.split[m, length] = best, split


class Levels(NamedTuple):
    """The solution for the near level, the number of its slots, and that for the far level."""

    near: Values
    slots: int
    far: Values


class Rows(NamedTuple):
    """Columns of `Actions` for restart checkpoints: near is level 0, far level 1.

    `todo` is a stack of tasks.
    """

    op: Ints
    level: Ints
    begin: Ints
    end: Ints
    todo: Ints


FRESH, NEAR, FAR, READ_NEAR, READ_FAR = range(5)
"""Kinds of task: reverse from a state that is only in the register, or also on the near level, or
also on the far level; or first read it from the near or the far level."""

_MARGIN = 8


@kernel
def unroll(levels: Levels, task: tuple[int, int, int, int], rows: Rows, count: int) -> int:
    """Append the actions of a task (kind, first step, length, free slots) after `count` rows.

    Return the number of rows in use; more than the number of rows if the actions do not fit.
    """
    near, slots, far = levels
    todo = rows.todo
    left = push(todo, 0, task)
    while left:
        if count + _MARGIN > len(rows.op):
            return len(rows.op) + 1
        left -= 1
        what, at, length, free = todo[left, 0], todo[left, 1], todo[left, 2], todo[left, 3]
        if what >= READ_NEAR:
            what -= READ_NEAR - NEAR
            count = access(rows, count, READ, what - NEAR, at)
        if what == FRESH and length:
            count = access(rows, count, WRITE, 0, at)
            what = NEAR
        if what == FAR and (length == 0 or far.split[free, length] == LOW):
            count = access(rows, count, DISCARD, 1, at)
            left = push(todo, left, (FRESH, at, length, slots + 1))
        elif what == FAR:
            j = far.split[free, length]
            count = move(rows, count, ADVANCE, at, at + abs(j))
            left = push(todo, left, (READ_FAR, at, abs(j) - 1, free))
            if j < 0:
                count = access(rows, count, WRITE, 1, at - j)
                left = push(todo, left, (FAR, at - j, length + j, free - 1))
            else:
                left = push(todo, left, (FRESH, at + j, length - j, slots + 1))
        elif length and near.split[free, length] == LOW:
            left = push(todo, left, (NEAR, at, length, slots - 1))
        elif length:
            j = near.split[free, length]
            count = move(rows, count, ADVANCE, at, at + j)
            left = push(todo, left, (READ_NEAR, at, j - 1, free))
            left = push(todo, left, (FRESH, at + j, length - j, min(free, slots) - 1))
        else:
            if what == NEAR:
                count = access(rows, count, DISCARD, 0, at)
            count = move(rows, count, RECORD, at, at + 1)
            count = move(rows, count, REVERSE, at, at + 1)
    return count


@kernel
def push(todo: Ints, left: int, task: tuple[int, int, int, int]) -> int:
    """Put a task on the stack of `left` tasks; return their number."""
    todo[left, 0], todo[left, 1], todo[left, 2], todo[left, 3] = task
    return left + 1


@kernel
def access(rows: Rows, count: int, op: int, level: int, at: int) -> int:
    """Append a write, read or discard; return the number of rows."""
    rows.op[count], rows.level[count], rows.begin[count], rows.end[count] = op, level, at, 0
    return count + 1


@kernel
def move(rows: Rows, count: int, op: int, begin: int, end: int) -> int:
    """Append an advance, record or reverse; return the number of rows."""
    rows.op[count], rows.level[count], rows.begin[count], rows.end[count] = op, 0, begin, end
    return count + 1


ROWS = 64
"""The most rows of a plan for each of its steps; plans with more are left out."""


@dataclass(frozen=True)
class OverlapMachine:
    """A chain on two levels.

    Attributes
    ----------
    length : int
        The number of steps minus one.
    near, far : int
        Slots of each level.
    costs : Costs
    """

    length: int
    near: int
    far: int
    costs: Costs

    @property
    def written(self) -> float:
        """Seconds of the channel to write a checkpoint and to discard it."""
        return self.costs.far_write + self.costs.far_discard

    @property
    def terms(self) -> "Terms":
        """The costs, and the policy that overlaps as much as the pool has slots for."""
        horizon = 10 * max(self.costs.far_write, self.costs.far_read)
        return Terms(self.costs, Policy(self.near, ALL, ALL, horizon))


class Terms(NamedTuple):
    """Costs of actions, and the policy of overlap, if each checkpoint has one byte."""

    costs: Costs
    policy: Policy


class Grid(NamedTuple):
    """The lengths of segments in steps, and their numbers of far slots."""

    lengths: Ints
    slots: Ints


@dataclass(frozen=True)
class OverlapSegments:
    """The best plan for each segment of the grid.

    Attributes
    ----------
    variants : tuple of Levels
        The tables for each set of rules.
    grid : Grid
    seconds : float64 array (slots, lengths)
        The seconds with at most m slots.
    chosen : int64 array (2, slots, lengths)
        The variant, and the number of slots for which it was planned.
    """

    variants: tuple[Levels, ...]
    grid: Grid
    seconds: Table
    chosen: Ints


class SlotsFree(NamedTuple):
    """Arrays for the rows, the program and the state of a simulation, which are reused."""

    rows: Rows
    program: TransferProgram
    state: State


def _room(count: int, slots: int, steps: int, /) -> SlotsFree:
    """Return arrays for programs of `count` rows and `steps` steps; `slots` are of both levels."""
    op, level, begin, end = (np.zeros(count, np.int64) for _ in range(4))
    rows = Rows(op, level, begin, end, np.zeros((3 * slots + 8, 4), np.int64))
    room = SlotsFree(rows, program(count, 1), state(count, 1, steps + 1))
    room.program.nbytes[:] = 1
    return room


def solve(machine: OverlapMachine, near: Values, grid: Grid) -> OverlapSegments:
    """Plan and simulate all segments of the grid, with all rules; some variants use fewer slots."""
    longest, most, costs = int(grid.lengths[-1]), int(grid.slots[-1]), machine.costs
    place = _room(ROWS * (longest + 1), most + machine.near, longest + 1)
    kept = ceil(machine.near / 20)
    counts = sorted({max(1, machine.near - times * kept) for times in range(3)}, reverse=True)
    variants, found = [], []
    for slots, ahead in product(counts, _AHEAD):
        last = with_last(near, slots, ahead * costs.far_read, costs)
        low = last.seconds[-1, :longest] + costs.near_write + costs.near_discard
        low[0] = last.seconds[-1, 0]
        for price, gap in product(_PRICES, _GAPS):
            rules = Rules(price * machine.written, price * costs.far_read, gap * machine.written)
            variants.append(Levels(last, slots, far_values(low, most, costs.advance, rules)))
            found.append(np.full((len(grid.slots), len(grid.lengths)), inf))
            _simulate(variants[-1], grid, machine.terms, place, found[-1])
    return _best(variants, grid, np.array(found))


def _best(variants: list[Levels], grid: Grid, found: Table) -> OverlapSegments:
    """Return the best variant for each length with each number of slots or fewer."""
    variant = found.argmin(axis=0)
    seconds = found.min(axis=0)
    planned = np.broadcast_to(grid.slots[:, np.newaxis], seconds.shape).copy()
    for row in range(1, len(grid.slots)):
        worse = seconds[row] >= seconds[row - 1]
        for table in (seconds, variant, planned):
            table[row, worse] = table[row - 1, worse]
    return OverlapSegments(tuple(variants), grid, seconds, np.array([variant, planned]))


@kernel
def _simulate(levels: Levels, grid: Grid, terms: Terms, room: SlotsFree, seconds: Table) -> None:
    """Simulate every segment by itself; its seconds stay infinite if it needs too many rows."""
    costs, rows = terms.costs, room.rows
    rate = costs.advance / max(costs.far_write + costs.far_discard, 1e-300)
    for at in range(len(grid.lengths)):
        p = grid.lengths[at]
        useful = min(p, 1.5 * p * rate + terms.policy.room)
        for row in range(len(grid.slots)):
            if row and grid.slots[row - 1] > useful:
                break
            task = (FAR, 1, p - 1, grid.slots[row])
            used = unroll(levels, task, rows, 0)
            if used < len(rows.op):
                used = access(rows, used, READ, 1, 0)
                seconds[row, at] = took(room, used, terms)


@kernel
def took(room: SlotsFree, count: int, terms: Terms) -> float:
    """Return the makespan, in seconds, of the first `count` rows."""
    rows, program = room.rows, room.program
    for row in range(count):
        op, far = rows.op[row], rows.level[row]
        times = rows.end[row] - rows.begin[row] if op < WRITE else 1
        program.way[row] = WAYS[far + (op >= WRITE), op]
        program.own[row] = times * terms.costs[op]
        program.direct[row] = program.beside[row] = times * terms.costs[op + 3 * far]
        program.place[row], program.source[row] = rows.begin[row], NONE
    link(program, count, program.direct, room.state.last)
    return perform(program, count, terms.policy, room.state)


def _cuts(
    machine: OverlapMachine, segments: OverlapSegments, shortest: int
) -> list[tuple[int, ...]]:
    """Return the best divisions of the chain into segments of at least `shortest` steps.

    A division is a tuple of indices into the lengths of the grid, the first segment first.
    """
    length, costs, grid = machine.length, machine.costs, segments.grid
    count = min(machine.far, length // shortest)
    low = segments.variants[0].near.seconds[-1]
    reach = min(length, len(low) - 1)
    table = _Table(
        np.empty((2, length + 1)),
        np.full((count + 1, reach + 1), np.inf),
        np.zeros((count + 1, length + 1), np.int64),
    )
    first = int(np.searchsorted(grid.lengths, shortest))
    _cut(table, grid.lengths, segments.seconds, _free_rows(machine, segments, count), first)
    near = costs.near_write + costs.near_discard + low[reach::-1]
    near[-1] = 0.0
    writing = (np.arange(count + 1) - machine.near) * costs.far_write
    sweep = np.maximum(length * costs.advance, writing)
    total = table.ends + near + sweep[:, np.newaxis]
    found = []
    for i in np.argsort(total.min(axis=1), kind="stable")[:_CUTS].tolist():
        at = int(total[i].argmin())
        if np.isfinite(total[i, at]):
            found.append(_walk(grid.lengths, table.split, i, length - reach + at))
    return found


def _free_rows(machine: OverlapMachine, segments: OverlapSegments, count: int) -> Ints:
    """Return the row of the grid for the free far slots of each of the first segments."""
    free = machine.far - np.arange(count)
    return np.searchsorted(segments.grid.slots, free, side="right") - 1


def _walk(lengths: Ints, split: Ints, i: int, x: int) -> tuple[int, ...]:
    places: list[int] = []
    for number in range(i, 0, -1):
        places.append(int(split[number, x]))
        x -= int(lengths[places[-1]])
    return tuple(reversed(places))


class _Table(NamedTuple):
    """C_i for i and i + 1; C_i for the last values of x, in row i; the last segment, for all x."""

    seconds: Table
    ends: Table
    split: Ints


@kernel
def _cut(table: _Table, lengths: Ints, seconds: Table, row: Ints, first: int) -> None:
    count, length, reach = len(row), table.seconds.shape[1] - 1, table.ends.shape[1] - 1
    for x in range(length + 1):
        table.seconds[0, x] = np.inf
    table.seconds[0, 0] = 0.0
    for i in range(count + 1):
        here, after = i % 2, (i + 1) % 2
        for x in range(reach + 1):
            table.ends[i, x] = table.seconds[here, length - reach + x]
        for x in range(length + 1):
            table.seconds[after, x] = np.inf
        if i == count:
            break
        for x in range(length + 1):
            before = table.seconds[here, x]
            if before < np.inf:
                for place in range(first, len(lengths)):
                    end = x + lengths[place]
                    if end > length:
                        break
                    value = before + seconds[row[i], place]
                    if value < table.seconds[after, end]:
                        table.seconds[after, end], table.split[i + 1, end] = value, place


def _written(
    machine: OverlapMachine, segments: OverlapSegments, cut: tuple[int, ...], place: SlotsFree
) -> int:
    """Write the actions of a whole chain with this division; return their number."""
    out, lengths = place.rows, segments.grid.lengths[list(cut)].tolist()
    count, at, begins = 0, 0, []
    for steps in lengths:
        begins.append(at)
        count = access(out, count, WRITE, 1, at)
        count = move(out, count, ADVANCE, at, at + steps)
        at += steps
    task = (FRESH, at, machine.length - at, machine.near + 1)
    count = unroll(segments.variants[0], task, out, count)
    free = _free_rows(machine, segments, len(cut))
    chosen = segments.chosen[:, free, list(cut)].T.tolist()
    for number in reversed(range(len(begins))):
        variant, slots = chosen[number]
        count = access(out, count, READ, 1, begins[number])
        task = (FAR, begins[number], lengths[number] - 1, slots)
        count = unroll(segments.variants[variant], task, out, count)
    return count


def segmented(machine: OverlapMachine, /) -> Iterator[Rows]:
    """Yield the best plans as columns of actions; none if the chain is too long.

    The near level is 0, the far level is 1.
    """
    scale = _scale(machine)
    if scale is None:
        return
    near = near_values(machine.near, scale.tail, machine.costs)
    solved = solve(machine, near, scale.grid)
    most = ROWS * (machine.length + 2)
    place = _room(most, machine.far + machine.near, machine.length)
    for steps in scale.shortest:
        for cut in _cuts(machine, solved, steps):
            count = _written(machine, solved, cut, place)
            op, level, begin, end = (column[:count].copy() for column in place.rows[:4])
            yield place.rows._replace(op=op, level=level, begin=begin, end=end)


class _Scale(NamedTuple):
    """The grid of segments, the most steps that use memory only, and the least segment lengths."""

    grid: Grid
    tail: int
    shortest: tuple[int, ...]


def _scale(machine: OverlapMachine) -> _Scale | None:
    """Return the scale for a machine; None if the chain is too long for its slots."""
    length, near, far = machine.length, machine.near, machine.far
    steps = machine.written / machine.costs.advance  # the steps advanced during one far write
    count = min(far, near + length / steps if steps else inf)
    longest = min(length, ceil(max(2.5 * length / count, 3 * near, 60)))
    if length / count > _LONGEST:
        return None
    lengths = _grid(min(longest, _LONGEST), 40, 1.04)
    if length * count * len(lengths) > _MOST_WORK:
        return None
    slots = min(far, longest, ceil(1.5 * longest / steps) + near if steps else far)
    tail = min(length, max(longest, (near + 1) * (near + 2) * 11 // 20))
    apart = {1, min(ceil(steps) or 1, longest)}
    return _Scale(Grid(lengths, _grid(slots, 12, 1.08)), tail, tuple(sorted(apart)))


def _grid(last: int, dense: int, ratio: float) -> Ints:
    """Return 1, 2, ... up to `dense`, then values that grow by `ratio`, up to `last`."""
    values = list(range(1, min(last, dense) + 1))
    while values[-1] < last:
        values.append(min(last, max(values[-1] + 1, int(values[-1] * ratio))))
    return np.array(values)
