"""What segments take with overlap: plans are made, and each is simulated. Needs numba.

A segment of p steps begins with its first state in the register and on the far level, and ends when
the first state of the next one has been read. It is planned for every number m of far slots on a
grid, and by some variants of the recurrence; the engine says what each plan takes by itself.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ckio.columns import DISCARD, READ, WRITE
from ckio.planners.compiled import kernel
from ckio.planners.overlapped import tables
from ckio.planners.overlapped.channels import ALL, Policy, State, state
from ckio.planners.overlapped.engine import perform
from ckio.planners.overlapped.programs import (
    COMPUTE,
    FAR_DISCARD,
    FAR_READ,
    FAR_WRITE,
    NEAR_DISCARD,
    NEAR_READ,
    NEAR_WRITE,
    NONE,
    Ints,
    Program,
    link,
    program,
)
from ckio.planners.overlapped.tables import Levels, Near, Rows, Rules, Table

# mypy: disable-error-code="no-any-return"


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
        """As much overlap as the pool has room for; checkpoints are of one byte."""
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
    chosen : int64 array (4, slots, lengths)
        The variant, how many slots it is planned for, and how it is woven (`woven.How`).
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


def room(rows: int, slots: int, steps: int, /) -> Room:
    """For programs of so many rows and steps, from tables with so many slots on both levels."""
    return Room(tables.rows(rows, slots), program(rows, 1), state(rows, 1, steps + 1))


def solve(machine: Machine, near: Near, grid: Grid, ways: list[tuple[int, Rules]]) -> Segments:
    """Plan and simulate all segments of the grid in all ways: near slots, and rules."""
    longest, most, costs = int(grid.lengths[-1]), int(grid.slots[-1]), machine.costs
    place = room(ROWS * (longest + 1), most + machine.near, longest + 1)
    variants, found = [], []
    for count, rules in ways:
        low = costs.near_write + costs.near_discard + near.seconds[count, :longest]
        low[0] = 0.0
        variants.append(Levels(near, count, tables.far_table(low, most, costs.advance, rules)))
        found.append(np.full((len(grid.slots), len(grid.lengths)), np.inf))
        terms = Terms(costs, machine.policy(10 * machine.slowest))
        _simulate(variants[-1], grid, terms, place, found[-1])
    return _best(variants, grid, np.array(found))


def _best(variants: list[Levels], grid: Grid, found: Table) -> Segments:
    """The best variant for each length, with a number of slots or any less."""
    variant = found.argmin(axis=0)
    seconds = found.min(axis=0)
    none = np.zeros_like(variant)
    planned = np.broadcast_to(grid.slots[:, np.newaxis], seconds.shape).copy()
    for row in range(1, len(grid.slots)):
        worse = seconds[row] >= seconds[row - 1]
        for table in (seconds, variant, planned):
            table[row, worse] = table[row - 1, worse]
    return Segments(tuple(variants), grid, seconds, np.array([variant, planned, none, none]))


class Terms(NamedTuple):
    """What actions cost, and how they overlap."""

    costs: Costs
    policy: Policy


@kernel
def _simulate(levels: Levels, grid: Grid, terms: Terms, room: Room, seconds: Table) -> None:
    """What every segment takes by itself; infinite where its plan needs too many rows."""
    costs, rows = terms.costs, room.rows
    rate = costs.advance / max(costs.far_write + costs.far_discard, 1e-300)
    for at in range(len(grid.lengths)):
        p = grid.lengths[at]
        useful = min(p, 1.5 * p * rate + terms.policy.room)
        for row in range(len(grid.slots)):
            if row and grid.slots[row - 1] > useful:
                break
            task = (tables.FAR, 1, p - 1, grid.slots[row])
            used = tables.unroll(levels, task, rows, 0)
            if used < len(rows.op):
                used = tables.access(rows, used, READ, 1, 0)
                seconds[row, at] = took(room, used, terms)


@kernel
def took(room: Room, count: int, terms: Terms) -> float:
    """The seconds of so many rows."""
    for row in range(count):
        _price(room.rows, row, terms.costs, room.program)
    link(room.program, count, room.state.last)
    return perform(room.program, count, terms.policy, room.state)


@kernel
def _price(rows: Rows, row: int, costs: Costs, program: Program) -> None:
    op, far, begin, end = rows.op[row], rows.level[row], rows.begin[row], rows.end[row]
    program.nbytes[row], program.channel[row], program.place[row] = 1, 0, begin
    program.source[row], program.copy[row] = NONE, 0.0
    if op == WRITE:
        program.way[row] = FAR_WRITE if far else NEAR_WRITE
        program.seconds[row] = costs.far_write if far else costs.near_write
        program.copy[row] = costs.near_write
    elif op == READ:
        program.way[row] = FAR_READ if far else NEAR_READ
        program.seconds[row] = costs.far_read if far else costs.near_read
        program.copy[row] = costs.near_read
    elif op == DISCARD:
        program.way[row] = FAR_DISCARD if far else NEAR_DISCARD
        program.seconds[row] = costs.far_discard if far else costs.near_discard
    else:
        each = costs.advance if op == 0 else costs.record if op == 1 else costs.reverse
        program.way[row], program.seconds[row] = COMPUTE, (end - begin) * each
