"""The free space of levels for restart checkpoints and tapes together, as numbers.

A restart checkpoint has a bytes and a tape b. The checkpoints that still fit on a level with f free
bytes depend only on the largest sum i a + j b <= f. Therefore a planner numbers these sums from 0
in ascending order, and plans with the number. Storing moves to the largest sum that fits, and
discarding moves back, so that this is exact for any sizes. If a level has more sums than a planner
can go through, bytes are counted in units: sizes are rounded up and the capacity down, so that no
plan needs more than the level has.

For example, on a level of 7 bytes, restart checkpoints of 3 bytes and tapes of 2 have the sums 0,
2, 3, 4, 5, 6 and 7. With 7 bytes free, number 6, a restart checkpoint leaves 4 bytes, number 3:

    >>> sums(3, 2, 7, most=9).tolist()
    [0, 2, 3, 4, 5, 6, 7]
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import product
from math import gcd, inf, prod
from operator import le
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ckio.actions import Kind
from ckio.planners.base import access_seconds, level_slots, no_schedule, note_ignored
from ckio.planners.dp.costs import INFEASIBLE, IntegerCosts, integer_costs
from ckio.platform import Platform
from ckio.platform.chain import Chain

Numbers = NDArray[np.intp]

_MOST_SUMS: Final = 1 << 11
"""The most sums that are distinguished on a level; with more, bytes are counted in a quarter as
many units. In chains of 1000 to 20,000 steps, eight times as many took 2 to 20 times as long to
plan, for 0.01 % of the makespan at most. In 12 chains of 400 steps, on a level for 60 to 250 states
of some thousand bytes, sixteen times as many saved 3 % at most."""

_MOST_UNITS, _MOST_COUNTED = 6, 1 << 12
"""The most units of a checkpoint that are tried when a level is counted in few units, and the most
restart checkpoints on it. This takes a millisecond."""


@dataclass(frozen=True)
class Space:
    """A level and its free space, for a planner that stores both kinds of checkpoints.

    Costs are in seconds, or in whole units.

    Attributes
    ----------
    name, number : str, int
        The name and the number of the level in the platform.
    write, read : float or int
        The cost to write a restart checkpoint and to discard it later; the cost to read it.
    tape : float or int
        The cost to write, read and discard a tape, because each tape is read once, and to compute
        the state after its step, because the next steps begin there.
    tape_read : float or int
        The cost to read a tape once more, so that the forward restarts from the state that it
        contains; infinite if tapes contain no state.
    after_restart, after_tape : arrays of int
        For the number of each sum, the number after a restart checkpoint or a tape is stored; -1 if
        it does not fit. The last element is for the empty level. A level that never fills has only
        one number, which leads to itself (`endless`).
    exact : bool
        Whether no size was rounded.
    slots : int
        How many checkpoints fit if all that are stored have one size, at most n - 1; 0 if they have
        two sizes. This is never rounded. An endless level may have it, too: the chain needs no
        more slots.
    to_the_last : bool
        Whether j may be n - 1: x_0 is stored here, and the next action is to advance to the last
        step. The printed theorem allows this on the first level only (`hrevolve_2020`).
    """

    name: str
    number: int
    write: float
    read: float
    tape: float
    after_restart: Numbers
    after_tape: Numbers
    exact: bool
    slots: int = 0
    to_the_last: bool = True
    tape_read: float = inf

    @property
    def empty(self) -> int:
        """The number of the empty level, which is the largest."""
        return len(self.after_restart) - 1

    @property
    def costs(self) -> tuple[float, float, float, float]:
        """The costs of a restart checkpoint (write, read), and of a tape (all, one more read)."""
        return self.write, self.read, self.tape, self.tape_read

    @property
    def takes_tapes(self) -> bool:
        """Whether a tape fits."""
        return bool(self.after_tape[-1] >= 0)

    @property
    def endless(self) -> bool:
        """Whether restart checkpoints, or tapes, never fill the level."""
        return bool(self.after_restart[0] == 0 or self.after_tape[0] == 0)

    @property
    def reach(self) -> int:
        """The largest difference between a number and the number after a checkpoint is stored."""
        both = (self.after_restart, self.after_tape)
        return max(int((np.arange(len(it)) - it)[it >= 0].max(initial=0)) for it in both)

    def in_slots(self) -> "Space":
        """Return the level with its free slots as numbers, also if it never fills."""
        after = np.arange(-1, self.slots)
        tapes = after if self.takes_tapes else np.full_like(after, -1)
        return replace(self, after_restart=after, after_tape=tapes)


def slots_of(
    name: str, number: int, slots: int, *, write: float, read: float, endless: bool = False
) -> Space:
    """Return a level with slots for restart checkpoints only; if `endless`, it never fills."""
    after = np.zeros(1, np.intp) if endless else np.arange(-1, slots)
    return Space(name, number, write, read, inf, after, np.full_like(after, -1), True, slots)


def restart_spaces(chain: Chain, platform: Platform, /, *, planner: str) -> list[Space]:
    """Return the space of each level for restart checkpoints only, nearest first.

    A level that cannot store one is left out, with a note in the log. Raises NoSchedule if no level
    can.
    """
    return [
        slots_of(
            platform.levels[each.number].name,
            each.number,
            each.slots,
            write=each.write,
            read=each.read,
            endless=each.slots >= chain.length - 1,
        )
        for each in level_slots(chain, platform, planner=planner)
    ]


def with_integer_costs(
    given: Sequence[Space], move: float, /, *, steps: int, between: float = 0.0
) -> tuple[list[Space], IntegerCosts] | None:
    """Return the levels with whole costs for a chain; None if sums are too large.

    `between` is the cost of each state between steps that are recorded together.

    A schedule with one checkpoint at a time reads it for each step and advances from it. A cost
    that is more than twice that of such a schedule is never paid, and is reduced to this, so that
    it leaves enough bits for the others. Infinite costs stay infinite.
    """
    one = (
        space.write + (steps - 1) * (space.read + move * steps / 2)
        for space in given
        if space.after_restart[-1] >= 0
    )
    most = 2 * min(one, default=inf) or inf
    costs = [[min(cost, most) if cost < inf else cost for cost in space.costs] for space in given]
    least = min(min(write + read, tape) for write, read, tape, _ in costs)
    finite = [cost for each in costs for cost in each if cost < inf]
    units = integer_costs(move, [*finite, between], steps=steps, least=least)
    if units is None:
        return None
    return with_units(given, units), replace(units, between=units.others[-1])


def with_units(given: Sequence[Space], units: IntegerCosts, /) -> list[Space]:
    """Return the levels with their costs in units; infinite costs stay infinite."""
    others = iter(units.others)
    costs = [[next(others) if cost < inf else cost for cost in it.costs] for it in given]
    return [
        replace(space, write=write, read=read, tape=tape, tape_read=tape_read)
        for space, (write, read, tape, tape_read) in zip(given, costs, strict=True)
    ]


def recorded_together(steps: int, held: int, between: int, /) -> NDArray[np.int64]:
    """Return P for up to `steps` steps without any level, in whole units.

    The working memory holds the tapes of `held` steps. All states between them are computed, at a
    cost of `between` each.

    >>> recorded_together(4, 3, 2).tolist() == [0, 0, 2, 4, INFEASIBLE]
    True
    """
    n = np.arange(steps + 1)
    return np.where(n <= held, between * np.maximum(n - 1, 0), INFEASIBLE)


def rows(given: Sequence[Space], /) -> int:
    """Return the rows of a table of levels together: one more than the combinations of space."""
    return 1 + prod(space.empty + 1 for space in given)


def orders(given: Sequence[Space], /) -> Iterator[tuple[Space, ...]]:
    """Yield every order in which a level comes before those that cost more in every respect.

    If two levels have equal costs, only one of their orders is yielded. For example, neither of two
    levels comes before the other if one costs 1 s to write and 5 s to read, and the other 5 and 1:

    >>> levels = slots_of("a", 0, 1, write=1, read=5), slots_of("b", 1, 1, write=5, read=1)
    >>> ["".join(level.name for level in order) for order in orders(levels)]
    ['ab', 'ba']
    """
    # A level that costs less in every respect has the smaller sum, so that it comes first here.
    ascending = sorted(given, key=lambda it: (it.write + it.read + it.tape, it.costs))
    if not ascending:
        yield ()
    for place, first in enumerate(ascending):
        if not any(all(map(le, it.costs, first.costs)) for it in ascending[:place]):
            for others in orders(ascending[:place] + ascending[place + 1 :]):
                yield first, *others


def spaces(
    chain: Chain,
    platform: Platform,
    /,
    *,
    held: int,
    most: int = _MOST_SUMS,
) -> list[Space]:
    """Return the space of each level for restart checkpoints and tapes, nearest first.

    A level that cannot store a checkpoint of either kind is left out, with a note in the log. The
    working memory holds the tapes of `held` steps. A level with more sums than `most` is counted in
    `most` / 4 units, which are rounded so that it has no more space than in bytes. Raises
    NoSchedule if no restart checkpoint, and no tape that restarts, fits on any level, and the
    levels cannot store all tapes either.
    """
    levels = platform.levels
    missing = chain.length - held
    tapes = sum(level.slots(chain.tape, missing) for level in levels)
    restarting = [chain.restart, *[chain.tape] * chain.tape_restarts]
    if tapes < missing and not any(it.slots(n, 1) for it in levels for n in restarting):
        raise no_schedule(
            levels,
            f"mixed needs a level with space for one checkpoint of {chain.restart} bytes, or levels"
            f" with space for {missing} tapes of {chain.tape} bytes",
        )
    usable = [
        level for level in levels if level.slots(chain.restart, 1) or level.slots(chain.tape, 1)
    ]
    for level in levels:
        if level not in usable:
            note_ignored(level, "mixed")
    return [_space(chain, platform, platform.number(it.name), most) for it in usable]


def _space(chain: Chain, platform: Platform, number: int, most: int) -> Space:
    level = platform.levels[number]
    sizes = level.stored(chain.restart), level.stored(chain.tape)
    capacity = level.capacity
    fits = [capacity is None or size <= capacity for size in sizes]
    slots, exact = _slots(*sizes, capacity, chain.length - 1), True
    useful = (chain.length - 1) * max(size for size, it in zip(sizes, fits, strict=True) if it)
    if capacity is None or capacity >= useful:
        after = [np.array([0 if it else -1], np.intp) for it in fits]
    elif slots:
        after = [np.arange(-1, slots) if it else np.full(slots + 1, -1) for it in fits]
    else:
        after, exact = _after(*sizes, capacity, most)
    write, read = access_seconds(chain, platform, number, Kind.RESTART, chain.restart)
    tape = access_seconds(chain, platform, number, Kind.TAPE, chain.tape)
    return Space(
        name=level.name,
        number=number,
        write=write,
        read=read,
        tape=sum(tape) + chain.saved,
        tape_read=tape[1] if chain.tape_restarts else inf,
        after_restart=after[0],
        after_tape=after[1],
        exact=exact,
        slots=slots,
    )


def _slots(restart: int, tape: int, capacity: int | None, most: int) -> int:
    """Return how many checkpoints of either kind fit, at most `most`; 0 if the kind matters.

    It does not matter if as many of the larger kind fit as of the smaller one. For example, in
    200,000 bytes there is space for 48 states of 4104 bytes, and for 48 tapes of 4096 bytes. Tapes
    are ignored if the level cannot store even one.
    """
    if capacity is None:
        return most
    tapes = tape if tape <= capacity else restart
    counts = [min(most, capacity // size) if size else most for size in (restart, tapes)]
    return counts[0] if counts[0] == counts[1] else 0


def _after(restart: int, tape: int, capacity: int, most: int) -> tuple[list[Numbers], bool]:
    """Return for each sum the number after a restart checkpoint, and after a tape.

    Also return whether the same checkpoints fit as in bytes; with more than `most` sums, bytes are
    rounded to units.
    """
    restart, tape, capacity = in_few_units(restart, tape, capacity) or (restart, tape, capacity)
    found = sums(restart, tape, capacity, most=most)
    if found is None:
        restart, tape, capacity = in_units(restart, tape, capacity, most // 4)
        return _after(restart, tape, capacity, capacity + 1)[0], False
    sizes = restart, tape
    return [np.searchsorted(found, found - size, side="right") - 1 for size in sizes], True


def sums(restart: int, tape: int, capacity: int, /, *, most: int) -> Numbers | None:
    """Return all sums of restart checkpoints and tapes within a capacity, in ascending order.

    Return None if they are more than `most`.
    """
    # With i < b / gcd(a, b), adding tapes to the sums i a gives each sum once.
    end = tape // gcd(restart, tape) * restart if tape else capacity + 1
    firsts = range(0, min(end, capacity + 1), restart) if restart else range(1)
    each = tape or capacity + 1
    if len(firsts) > most or sum((capacity - it) // each + 1 for it in firsts) > most:
        return None
    found = [first + each * np.arange((capacity - first) // each + 1) for first in firsts]
    return np.sort(np.concatenate(found))


def in_few_units(restart: int, tape: int, capacity: int, /) -> tuple[int, int, int] | None:
    """Return the sizes and the capacity in few units with which the same checkpoints fit, or None.

    Sizes of checkpoints often have a simple ratio, but for some bytes. They would have many sums
    that are nearly equal, such as 441 for 20 states of two arrays and a number, and tapes of one
    array, instead of 41:

    >>> in_few_units(2 * 1000 + 8, 1000, 20 * 2008)
    (2, 1, 40)
    """
    if not (restart and tape and capacity // restart < _MOST_COUNTED):
        return None
    restarts = np.arange(capacity // restart + 1)
    tapes = (capacity - restarts * restart) // tape  # so many fit beside them
    found = list[tuple[int, int, int]]()
    for r, t in product(range(1, _MOST_UNITS + 1), repeat=2):
        units = int((restarts * r + tapes * t).max())
        if ((units - restarts * r) // t == tapes).all() and units < len(restarts) * r:
            found.append((units, r, t))
    if not found:
        return None
    units, r, t = min(found)
    return r, t, units


def in_units(restart: int, tape: int, capacity: int, most: int) -> tuple[int, int, int]:
    """Return the sizes of a restart checkpoint and of a tape, and the capacity, in units.

    The capacity has at most `most` units. A restart checkpoint takes r units and a tape t, chosen
    so that the unit, max(a / r, b / t) bytes, wastes least of both. For example, 3001 and 2000
    bytes are 3 and 2 units of 1000.3 bytes, of which 300,000 bytes have 299:

    >>> in_units(3001, 2000, 300_000, most=512)
    (3, 2, 299)
    """
    if restart * most < capacity:
        each = -(-capacity // most)
        return -(-restart // each), -(-tape // each), capacity // each
    found = list[tuple[Fraction, int, int, Fraction]]()
    for r in range(1, most * restart // capacity + 1):
        for t in {max(1, tape * r // restart), -(-tape * r // restart)} if tape else {0}:
            units = [Fraction(size, count) for size, count in ((restart, r), (tape, t)) if count]
            unit = max(units)
            if capacity <= most * unit:
                found.append((unit / min(units), r, t, unit))
    _, r, t, unit = min(found)
    return r, t, int(capacity / unit)
