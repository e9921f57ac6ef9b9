"""Plans of restart checkpoints on memory and one far level, a segment at a time. Needs numba.

Where memory has few slots and a chain is long, segments recompute on the far level again, and what
a segment takes depends on when it writes. So there segments are planned and simulated one by one,
for every length and number of far slots on a grid and by several rules, and the best chain of them
is put together. On two levels, with m far slots and writes that must not come too close,

    near:  S_c(l) = min_{1<=j<=l} j u_f + F_c-1(l-j) + r_1 + S_c(j-1),    F_c(l) = w_1 + S_c(l)
    far:   D_m(l) = min(F(l), min_j rho r_2 + D_m(j-1) + min(j u_f + F(l-j),
                                      max(j u_f, g) + rho w_2 + D_m-1(l-j)))

is what a segment of l + 1 steps takes without its Records and Reverses, if its first state is in
the register and, for S and D, on the level too. Far access overlaps with computing, so it counts
with a part rho of its cost; the number of slots m and the gap g between two writes of a sweep keep
it from being used without end. The last `burst` writes of a sweep need no gap: they are done while
memory is used. For example, with one slot, u_f = 1 and r_1 = 0, S_1(2) = 2 + F_0(0) + S_1(1) = 3:
two steps to the last one, and one to that before. With T(p, m) for what the engine says that a
segment of p steps takes with m far slots,

    C_i(x) = min_p C_i-1(x - p) + T(p, c - i + 1),    C_0(0) = 0

is what i segments of x steps take by themselves, as i - 1 of the c far slots hold the states
before; the steps after x are left to memory. Some of the best chains are simulated as a whole.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil, inf
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ckio.columns import ADVANCE, DISCARD, READ, RECORD, REVERSE, WRITE
from ckio.planners.overlap.engine import (
    ALL,
    COMPUTE,
    FAR_DISCARD,
    FAR_READ,
    FAR_WRITE,
    NEAR_DISCARD,
    NEAR_READ,
    NEAR_WRITE,
    NONE,
    Ints,
    Policy,
    Program,
    Seconds,
    State,
    kernel,
    link,
    perform,
    program,
    state,
)

# mypy: disable-error-code="no-any-return"

Table = NDArray[np.float64]
Splits = NDArray[np.int32]

_FREE: Final = 0.005
"""The part ρ of its cost with which far access counts where it is as good as free: it decides ties.

In steps for a write, so that it does not outweigh an advance.
"""

_PRICES: Final = (0.05, 0.15, 0.3, 0.6, 1.0)
"""Other parts: where few near slots are left for what is on its way, access is not free."""

_GAPS: Final = ((0, 0), (0.5, 0), (0.75, 0), (0.75, 0.2), (0.75, 0.4), (0.9, 0), (1, 0))
"""Gaps in writes, and bursts in near slots."""

_CUTS: Final = 12
"""Chains that are simulated, for each least length: what the sum of segments says is not exact."""

_LONGEST: Final = 1200
"""Steps of a segment that are planned for at the most."""

_MOST_WORK: Final = 6 * 10**9
"""Sums that are compared to cut a chain: some ten seconds."""


LOW = 0
"""In place of a split: the segment is left to the near level."""


class Near(NamedTuple):
    """S_c(l) in row c, for c = 0 (none) to the slots, and the j that gives it."""

    seconds: Table
    split: Splits


class Far(NamedTuple):
    """D_m(l) in row m, and its j: LOW, j where the near level goes on, -j where a write does."""

    seconds: Table
    split: Splits


class Rules(NamedTuple):
    """Costs of far access in the recurrence, and the least gap between writes."""

    write: float
    read: float
    gap: float
    burst: int


def near_table(slots: int, length: int, advance: float, write: float, read: float) -> Near:
    """The near level, for all lengths up to `length`."""
    found = Near(
        np.full((slots + 1, length + 1), np.inf), np.zeros((slots + 1, length + 1), np.int32)
    )
    _near(found, advance, write, read)
    return found


@kernel
def _near(near: Near, advance: float, write: float, read: float) -> None:
    slots, lengths = near.seconds.shape
    for c in range(1, slots):
        near.seconds[c, 0] = 0.0
        for length in range(1, lengths):
            for j in range(1, length + 1):
                value = near.seconds[c, j - 1] + j * advance + read
                value += fresh(near, c - 1, length - j, write)
                if value < near.seconds[c, length]:
                    near.seconds[c, length], near.split[c, length] = value, j


@kernel
def fresh(near: Near, slots: int, length: int, write: float) -> float:
    """F: the first state is in the register only."""
    return 0.0 if length == 0 else write + near.seconds[slots, length]


def far_table(low: Seconds, slots: int, advance: float, rules: Rules) -> Far:
    """The far level, for all lengths that `low`, which is F, is for."""
    shape = slots + 1, len(low)
    found = Far(np.full(shape, np.inf), np.zeros(shape, np.int32))
    _far(found, low, advance, rules)
    return found


@kernel
def _far(far: Far, low: Seconds, advance: float, rules: Rules) -> None:
    slots, lengths = far.seconds.shape
    for m in range(1, slots):
        gap = rules.gap if m - 1 > rules.burst else 0.0
        far.seconds[m, 0] = 0.0
        for length in range(1, lengths):
            best, split = low[length], LOW
            for j in range(1, length + 1):
                back = rules.read + far.seconds[m, j - 1]
                value = j * advance + low[length - j] + back
                if value < best:
                    best, split = value, j
                if m > 1 and j < length:
                    value = max(j * advance, gap) + rules.write + far.seconds[m - 1, length - j]
                    if value + back < best:
                        best, split = value + back, -j
            far.seconds[m, length], far.split[m, length] = best, split


class Levels(NamedTuple):
    """The near level, how many of its slots are counted on, and the far level."""

    near: Near
    slots: int
    far: Far


class Rows(NamedTuple):
    """Columns of `ckio.columns.Actions` for restart checkpoints: near is level 0, far level 1.

    `todo` are tasks that are left to do.
    """

    op: Ints
    level: Ints
    begin: Ints
    end: Ints
    todo: Ints


FRESH, NEAR, FAR, READ_NEAR, READ_FAR = range(5)
"""A task: reverse from a state in the register, also near, also far; or read it first."""

_MARGIN = 8


def _new_rows(count: int, slots: int, /) -> Rows:
    """Room for so many rows, and for the tasks of tables with so many slots on both levels."""
    op, level, begin, end = (np.zeros(count, np.int64) for _ in range(4))
    return Rows(op, level, begin, end, np.zeros((3 * slots + 8, 4), np.int64))


@kernel
def unroll(levels: Levels, task: tuple[int, int, int, int], rows: Rows, count: int) -> int:
    """Append the actions of a task (which, first step, length, free slots); how many rows are full.

    More than there are where they do not fit.
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
            left = push(todo, left, (FRESH, at, length, slots))
        elif what == FAR:
            j = far.split[free, length]
            count = move(rows, count, ADVANCE, at, at + abs(j))
            left = push(todo, left, (READ_FAR, at, abs(j) - 1, free))
            if j < 0:
                count = access(rows, count, WRITE, 1, at - j)
                left = push(todo, left, (FAR, at - j, length + j, free - 1))
            else:
                left = push(todo, left, (FRESH, at + j, length - j, slots))
        elif length:
            j = near.split[free, length]
            count = move(rows, count, ADVANCE, at, at + j)
            left = push(todo, left, (READ_NEAR, at, j - 1, free))
            left = push(todo, left, (FRESH, at + j, length - j, free - 1))
        else:
            if what == NEAR:
                count = access(rows, count, DISCARD, 0, at)
            count = move(rows, count, RECORD, at, at + 1)
            count = move(rows, count, REVERSE, at, at + 1)
    return count


@kernel
def push(todo: Ints, left: int, task: tuple[int, int, int, int]) -> int:
    """Put a task on the pile."""
    todo[left, 0], todo[left, 1], todo[left, 2], todo[left, 3] = task
    return left + 1


@kernel
def access(rows: Rows, count: int, op: int, level: int, at: int) -> int:
    """Append a write, read or discard."""
    rows.op[count], rows.level[count], rows.begin[count], rows.end[count] = op, level, at, 0
    return count + 1


@kernel
def move(rows: Rows, count: int, op: int, begin: int, end: int) -> int:
    """Append an advance, record or reverse."""
    rows.op[count], rows.level[count], rows.begin[count], rows.end[count] = op, 0, begin, end
    return count + 1


ROWS = 64
"""Of a plan for each of its steps, at the most: those that need more are left out."""


class Costs(NamedTuple):
    """Seconds of each action, one step or one checkpoint of it."""

    advance: float
    record: float
    reverse: float
    near_write: float
    near_read: float
    near_discard: float
    far_write: float
    far_read: float
    far_discard: float


@dataclass(frozen=True)
class Machine:
    """A chain on two levels.

    Attributes
    ----------
    length : int
        Steps, but one.
    near, far : int
        Slots.
    costs : Costs
    """

    length: int
    near: int
    far: int
    costs: Costs

    @property
    def written(self) -> float:
        """Seconds that the channel needs for a checkpoint, until it is gone."""
        return self.costs.far_write + self.costs.far_discard

    @property
    def slowest(self) -> float:
        """The longest transfer."""
        return max(self.costs.far_write, self.costs.far_read)

    def policy(self, horizon: float) -> Policy:
        """Return the policy that overlaps all that the pool has room for, by checkpoints."""
        return Policy(self.near, ALL, ALL, horizon)


class Grid(NamedTuple):
    """Steps of segments, and their far slots."""

    lengths: Ints
    slots: Ints


@dataclass(frozen=True)
class Segments:
    """The best plans found.

    Attributes
    ----------
    variants : tuple of Levels
        The tables of each way to plan.
    grid : Grid
    seconds : float64 array (slots, lengths)
        For at most m slots.
    chosen : int64 array (2, slots, lengths)
        The variant, and how many slots it is planned for.
    """

    variants: tuple[Levels, ...]
    grid: Grid
    seconds: Table
    chosen: Ints


class Room(NamedTuple):
    """Where programs are written down and simulated; used again and again."""

    rows: Rows
    program: Program
    state: State


def _room(rows: int, slots: int, steps: int, /) -> Room:
    """For programs of so many rows and steps, from tables with so many slots on both levels."""
    return Room(_new_rows(rows, slots), program(rows, 1), state(rows, 1, steps + 1))


def solve(machine: Machine, near: Near, grid: Grid, ways: list[tuple[int, Rules]]) -> Segments:
    """Plan and simulate all segments of the grid in all ways: near slots, and rules."""
    longest, most, costs = int(grid.lengths[-1]), int(grid.slots[-1]), machine.costs
    place = _room(ROWS * (longest + 1), most + machine.near, longest + 1)
    variants, found = [], []
    for count, rules in ways:
        low = costs.near_write + costs.near_discard + near.seconds[count, :longest]
        low[0] = 0.0
        variants.append(Levels(near, count, far_table(low, most, costs.advance, rules)))
        found.append(np.full((len(grid.slots), len(grid.lengths)), np.inf))
        terms = Terms(costs, machine.policy(10 * machine.slowest))
        _simulate(variants[-1], grid, terms, place, found[-1])
    return _best(variants, grid, np.array(found))


def _best(variants: list[Levels], grid: Grid, found: Table) -> Segments:
    """The best variant for each length, with a number of slots or any less."""
    variant = found.argmin(axis=0)
    seconds = found.min(axis=0)
    planned = np.broadcast_to(grid.slots[:, np.newaxis], seconds.shape).copy()
    for row in range(1, len(grid.slots)):
        worse = seconds[row] >= seconds[row - 1]
        for table in (seconds, variant, planned):
            table[row, worse] = table[row - 1, worse]
    return Segments(tuple(variants), grid, seconds, np.array([variant, planned]))


class Terms(NamedTuple):
    """Costs of actions, and the policy of overlap."""

    costs: Costs
    policy: Policy


@kernel
def _simulate(levels: Levels, grid: Grid, terms: Terms, room: Room, seconds: Table) -> None:
    """Simulate every segment by itself; infinite where its plan needs too many rows."""
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
def took(room: Room, count: int, terms: Terms) -> float:
    """The seconds of so many rows."""
    for row in range(count):
        _price(room.rows, row, terms.costs, room.program)
    link(room.program, count, room.program.direct, room.state.last)
    return perform(room.program, count, terms.policy, room.state)


@kernel
def _price(rows: Rows, row: int, costs: Costs, program: Program) -> None:
    op, far, begin, end = rows.op[row], rows.level[row], rows.begin[row], rows.end[row]
    program.nbytes[row], program.channel[row], program.place[row] = 1, 0, begin
    program.source[row], program.own[row] = NONE, 0.0
    if op == WRITE:
        program.way[row] = FAR_WRITE if far else NEAR_WRITE
        program.direct[row] = costs.far_write if far else costs.near_write
        program.own[row] = costs.near_write
    elif op == READ:
        program.way[row] = FAR_READ if far else NEAR_READ
        program.direct[row] = costs.far_read if far else costs.near_read
        program.own[row] = costs.near_read
    elif op == DISCARD:
        program.way[row] = FAR_DISCARD if far else NEAR_DISCARD
        program.direct[row] = costs.far_discard if far else costs.near_discard
        program.own[row] = program.direct[row]
    else:
        each = costs.advance if op == 0 else costs.record if op == 1 else costs.reverse
        program.way[row], program.direct[row] = COMPUTE, (end - begin) * each
        program.own[row] = program.direct[row]
    program.beside[row] = program.direct[row]


class Cut(NamedTuple):
    """Where a chain is cut: the segments' places in the grid, first to last; what it may take."""

    places: tuple[int, ...]
    seconds: float


def _cuts(machine: Machine, segments: Segments, shortest: int, most: int) -> list[Cut]:
    """The most promising cuts into segments of at least `shortest` steps, by what they take."""
    length, costs, grid = machine.length, machine.costs, segments.grid
    count = min(machine.far, length // shortest)
    low = segments.variants[0].near.seconds[machine.near]
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
    for i in np.argsort(total.min(axis=1), kind="stable")[:most].tolist():
        at = int(total[i].argmin())
        if np.isfinite(total[i, at]):
            places = _walk(grid.lengths, table.split, i, length - reach + at)
            found.append(Cut(places, float(total[i, at])))
    return found


def _free_rows(machine: Machine, segments: Segments, count: int) -> Ints:
    """The row of the grid for the slots that are left to each of the first segments."""
    free = machine.far - np.arange(count)
    return np.searchsorted(segments.grid.slots, free, side="right") - 1


def _walk(lengths: Ints, split: Ints, i: int, x: int) -> tuple[int, ...]:
    places: list[int] = []
    for number in range(i, 0, -1):
        places.append(int(split[number, x]))
        x -= int(lengths[places[-1]])
    return tuple(reversed(places))


class _Table(NamedTuple):
    """C_i for i and i + 1; C_i for the last x, in row i; the segment that gives it, for all x."""

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


def _written(machine: Machine, segments: Segments, cut: Cut, place: Room) -> int:
    """Write down the actions of a whole chain that is cut so; return how many there are."""
    out, lengths = place.rows, segments.grid.lengths[list(cut.places)].tolist()
    count, at, begins = 0, 0, []
    for steps in lengths:
        begins.append(at)
        count = access(out, count, WRITE, 1, at)
        count = move(out, count, ADVANCE, at, at + steps)
        at += steps
    task = (FRESH, at, machine.length - at, machine.near)
    tail = segments.variants[0]._replace(slots=machine.near)
    count = unroll(tail, task, out, count)
    free = _free_rows(machine, segments, len(cut.places))
    chosen = segments.chosen[:, free, list(cut.places)].T.tolist()
    for number in reversed(range(len(begins))):
        variant, slots = chosen[number]
        count = access(out, count, READ, 1, begins[number])
        task = (FAR, begins[number], lengths[number] - 1, slots)
        count = unroll(segments.variants[variant], task, out, count)
    return count


def segmented(machine: Machine, /) -> Iterator[Rows]:
    """Yield the most promising plans, as columns of actions; none if the chain is too long.

    The first level is 0, the far one 1.
    """
    scale = _Scale.of(machine)
    if scale is None:
        return
    costs = machine.costs
    write = costs.near_write + costs.near_discard
    near = near_table(machine.near, scale.tail, costs.advance, write, costs.near_read)
    solved = solve(machine, near, scale.grid, _ways(machine))
    most = ROWS * (machine.length + 2)
    place = _room(most, machine.far + machine.near, machine.length)
    for steps in scale.shortest:
        for cut in _cuts(machine, solved, steps, _CUTS):
            count = _written(machine, solved, cut, place)
            op, level, begin, end = (column[:count].copy() for column in place.rows[:4])
            yield place.rows._replace(op=op, level=level, begin=begin, end=end)


@dataclass(frozen=True)
class _Scale:
    """The grid of segments, how many steps the near level may be left with, and least lengths."""

    grid: Grid
    tail: int
    shortest: tuple[int, ...]

    @staticmethod
    def of(machine: Machine) -> "_Scale | None":
        length, near, far = machine.length, machine.near, machine.far
        steps = machine.written / machine.costs.advance  # that are advanced while one is written
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
    """1, 2, ... up to `dense`, and on by a ratio to `last`."""
    values = list(range(1, min(last, dense) + 1))
    while values[-1] < last:
        values.append(min(last, max(values[-1] + 1, int(values[-1] * ratio))))
    return np.array(values)


def _ways(machine: Machine) -> list[tuple[int, Rules]]:
    """How segments are planned: near slots that they may count on, and rules of far access."""
    write, read, near = machine.written, machine.costs.far_read, machine.near
    held_back = ceil(near / 20)
    free = _FREE * machine.costs.advance / machine.slowest if machine.slowest else 0.0
    rules = [
        Rules(free * write, free * read, gap * write, int(burst * near)) for gap, burst in _GAPS
    ]
    rules += [
        Rules(price * write, price * read, gap * write, 0)
        for price in _PRICES
        for gap in (0.0, 0.5, 1.0)
    ]
    counts = sorted({max(1, near - times * held_back) for times in range(3)}, reverse=True)
    return [(slots, rule) for slots in counts for rule in rules]
