"""Segments woven into one another: the next one's first writes, while this one is taken back.

A segment's sweep writes states as fast as the channel takes them, and while the segment is taken
back the channel has little to do. So the sweep of the segment that comes next is begun there: after
some of the Reverses, where the register is of no use any more, its frontier is read, advanced, and
written. It costs a visit's reads; the sweep itself has fewer states to write in its time. Between
two visits the frontier lies in a near slot, or is read from the far level. Needs numba.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ckio.columns import ADVANCE, DISCARD, READ, REVERSE, WRITE
from ckio.planners.compiled import kernel
from ckio.planners.overlapped import tables
from ckio.planners.overlapped.programs import Ints
from ckio.planners.overlapped.segments import ROWS, Grid, Machine, Room, Segments, Terms, room, took
from ckio.planners.overlapped.tables import Levels, Rows, Table

# mypy: disable-error-code="no-any-return"

_VARIANTS = 20
"""So many of them are tried."""

CYCLES = 5, 3
"""Segments in succession: what two more of them take is what one takes twice."""


class How(NamedTuple):
    """Writes that are moved ahead, and in which way.

    `kind` is odd for a near frontier. From 2 on, the first visits are left out: there the channel
    still writes what the sweep has left.
    """

    pairs: int
    kind: int


class Loom(NamedTuple):
    """Where segments are written down one after the other, and where they are woven; rows used."""

    draft: Rows
    room: Room
    used: Ints


@kernel
def pairs_of(draft: Rows, begin: int, end: int) -> int:
    """How many times a segment that begins with a read goes on with an advance and a far write."""
    row = begin + 1
    while row + 1 < end and draft.op[row] == ADVANCE:
        if draft.op[row + 1] != WRITE or draft.level[row + 1] == 0:
            break
        row += 2
    return (row - begin) // 2


@kernel
def copied(draft: Rows, begin: int, end: int, out: Rows, count: int) -> int:
    """Append rows as they are."""
    for row in range(begin, end):
        out.op[count], out.level[count] = draft.op[row], draft.level[row]
        out.begin[count], out.end[count] = draft.begin[row], draft.end[row]
        count += 1
    return count


@kernel
def _is_point(draft: Rows, begin: int, row: int) -> bool:
    """Whether the register is of no use before this row."""
    return row > begin and draft.op[row] == READ and draft.op[row - 1] == REVERSE


@kernel
def weave(draft: Rows, ends: tuple[int, int, int], how: How, out: Rows, count: int) -> int:
    """Append one segment, and into it the first pairs of another; how many rows are full.

    `ends` are the begin and end of the one and the begin of the other, whose rows before `resumed`
    are then done; as many as `how` says are there.
    """
    begin, end, other = ends
    points = 0
    for row in range(begin, end):
        points += _is_point(draft, begin, row)
    skipped, done, point = points * (how.kind >> 1) * 3 // 10, 0, 0
    for row in range(begin, end):
        if _is_point(draft, begin, row):
            point += 1
            due = max(0, point - skipped) * how.pairs // max(1, points - skipped)
            if due > done:
                count = _visit(draft, (other, done, due), how, out, count)
                done = due
        count = copied(draft, row, row + 1, out, count)
    if done < how.pairs:
        count = _visit(draft, (other, done, how.pairs), how, out, count)
    return count


@kernel
def resumed(other: int, how: How) -> int:
    """The row with which the other segment goes on after `weave`."""
    return other + 2 * how.pairs - (how.kind & 1) if how.pairs else other


@kernel
def resume(draft: Rows, other: int, how: How) -> None:
    """Let the other segment go on from its frontier after `weave`."""
    if how.pairs:
        row = resumed(other, how)
        at = draft.begin[other + 2 * how.pairs]
        tables.access(draft, row, READ, 1 - (how.kind & 1), at)
        if how.kind & 1:
            tables.access(draft, row + 1, DISCARD, 0, at)


@kernel
def _visit(draft: Rows, which: tuple[int, int, int], how: How, out: Rows, count: int) -> int:
    other, done, due = which
    near = how.kind & 1
    at = draft.begin[other + 2 * done]
    count = tables.access(out, count, READ, 0 if near and done else 1, at)
    if near and done:
        count = tables.access(out, count, DISCARD, 0, at)
    count = copied(draft, other + 1 + 2 * done, other + 1 + 2 * due, out, count)
    if near:
        count = tables.access(out, count, WRITE, 0, draft.begin[other + 2 * due])
    return count


@kernel
def cycles(levels: Levels, task: tuple[int, int], how: How, loom: Loom, count: int) -> int:
    """Write down so many segments of (steps, far slots), woven into one another; the rows used.

    More than there are where they do not fit; 0 where a segment has not as many pairs.
    """
    steps, slots = task
    draft, out = loom.draft, loom.room.rows
    size = tables.access(draft, 0, READ, 1, 0)
    size = tables.unroll(levels, (tables.FAR, 0, steps - 1, slots), draft, size)
    if count * size + 8 > len(draft.op):
        return len(draft.op) + 1
    if pairs_of(draft, 0, size) < how.pairs:
        return 0
    for number in range(1, count):
        shift = (count - 1 - number) * steps
        for row in range(size):
            at = number * size + row
            draft.op[at], draft.level[at] = draft.op[row], draft.level[row]
            draft.begin[at], draft.end[at] = draft.begin[row] + shift, draft.end[row]
            if draft.op[row] < WRITE:
                draft.end[at] += shift
    for row in range(size):
        draft.begin[row] += (count - 1) * steps
        if draft.op[row] < WRITE:
            draft.end[row] += (count - 1) * steps
    used, begin = 0, 0
    for number in range(count - 1):
        other = (number + 1) * size
        used = weave(draft, (begin, other, other), how, out, used)
        resume(draft, other, how)
        begin = resumed(other, how)
    used = copied(draft, begin, count * size, out, used)
    return tables.access(out, used, READ, 1, count * steps)


@kernel
def cycle(levels: Levels, task: tuple[int, int], how: How, loom: Loom, terms: Terms) -> float:
    """What a segment of (steps, far slots) takes among others like it, woven into one another."""
    taken = 0.0
    for sign in (-1, 1):
        count = CYCLES[1] if sign < 0 else CYCLES[0]
        used = cycles(levels, task, how, loom, count)
        if used == 0 or used > len(loom.room.rows.op):
            return np.inf
        loom.used[0] = used
        taken += sign * took(loom.room, used, terms)
    return taken / (CYCLES[0] - CYCLES[1])


@kernel
def far_slots(rows: Rows, count: int, steps: int) -> int:
    """The far slots that one segment of some has to have: all but the first states of others."""
    held, most = 1, 1
    for row in range(count):
        if rows.level[row] and rows.begin[row] % steps:
            held += (rows.op[row] == WRITE) - (rows.op[row] == DISCARD)
            most = max(most, held)
    return most


class Best(NamedTuple):
    """Like the tables of `Segments`."""

    seconds: Table
    chosen: Ints


class Trial(NamedTuple):
    """What segments are tried, where, and what is the best so far."""

    grid: Grid
    loom: Loom
    terms: Terms
    best: Best


@kernel
def _compare(levels: Levels, number: int, trial: Trial) -> None:
    """See whether segments of one variant take less when they are woven, and in which way."""
    grid, loom, terms, _ = trial
    costs, near = terms.costs, terms.policy.room
    rate = costs.advance / max(costs.far_write + costs.far_discard, 1e-300)
    for at in range(len(grid.lengths)):
        p = grid.lengths[at]
        for row in range(len(grid.slots)):
            m = grid.slots[row]
            if 0.4 * p * rate <= m <= min(p, 1.5 * p * rate + near):
                for part in range(1, 4):
                    for kind in range(4):
                        how = How(m >> part, kind)
                        if how.pairs and (levels.slots < near or not kind & 1):
                            seconds = cycle(levels, (p, m), how, loom, terms)
                            _keep((number, m, how.pairs, kind), at, seconds, trial)


@kernel
def _keep(plan: tuple[int, int, int, int], at: int, seconds: float, trial: Trial) -> None:
    """Note a plan wherever there are the far slots for it and it takes less than others."""
    grid, loom, _, best = trial
    if seconds < best.seconds[len(grid.slots) - 1, at]:
        need = far_slots(loom.room.rows, loom.used[0], grid.lengths[at])
        for row in range(len(grid.slots)):
            if grid.slots[row] >= need and seconds < best.seconds[row, at]:
                best.seconds[row, at] = seconds
                for item in range(4):
                    best.chosen[item, row, at] = plan[item]


def improved(machine: Machine, segments: Segments) -> Segments:
    """With those that take less when they are woven into others like them."""
    longest = int(segments.grid.lengths[-1])
    slots = int(segments.grid.slots[-1]) + machine.near
    most = (ROWS // 4) * CYCLES[0] * (longest + 1)
    loom = Loom(
        tables.rows(most, slots), room(most, slots, CYCLES[0] * longest + 1), np.zeros(1, np.int64)
    )
    terms = Terms(machine.costs, machine.policy(10 * machine.slowest))
    best = Best(segments.seconds.copy(), segments.chosen.copy())
    grid = Grid(segments.grid.lengths[3::2], segments.grid.slots)
    part = Best(best.seconds[:, 3::2].copy(), best.chosen[:, :, 3::2].copy())
    for number in _promising(segments):
        _compare(segments.variants[number], number, Trial(grid, loom, terms, part))
    best.seconds[:, 3::2], best.chosen[:, :, 3::2] = part
    return replace(segments, seconds=best.seconds, chosen=best.chosen)


def _promising(segments: Segments) -> list[int]:
    """The variants that are the best for most of the longer segments."""
    chosen = segments.chosen[0][:, 3:]
    numbers, times = np.unique(chosen, return_counts=True)
    most: list[int] = numbers[np.argsort(-times, kind="stable")][:_VARIANTS].tolist()
    return most
