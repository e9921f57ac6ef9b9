"""The free space of levels for restart checkpoints and tapes together, as numbers.

A restart checkpoint has a bytes and a tape b. A sweep stores its restart checkpoints first
(`ckio.planners.dp`). Therefore the free space of a level is the number of restart checkpoints that
still fit, and for each number it is known how many tapes fit instead. For example, on a level of
7 bytes, with restart checkpoints of 3 bytes and tapes of 2, there is space for 3 tapes, or for one
restart checkpoint and 2 tapes, or for two and none:

>>> after_restart, tapes = restarts_first(3, 2, 7, most=9)
>>> after_restart.tolist(), tapes.tolist()
([-1, 0, 1], [0, 2, 3])

If the forward restarts from tapes, any order of the two may be the best. The checkpoints that still
fit on a level with f free bytes then depend only on the largest sum i a + j b <= f. These sums are
numbered from 0 in ascending order. Storing moves to the largest sum that fits, and discarding moves
back, so that this is exact for any sizes. The level of the example has the sums 0, 2, 3, 4, 5, 6
and 7. With 7 bytes free, number 6, a restart checkpoint leaves 4 bytes, number 3:

    >>> sums(3, 2, 7, most=9).tolist()
    [0, 2, 3, 4, 5, 6, 7]
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import gcd, inf, prod
from operator import le
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ckio.actions import Kind
from ckio.planners.base import access_seconds, level_slots, no_schedule, note_ignored
from ckio.planners.dp.costs import INFEASIBLE, IntegerCosts, integer_costs
from ckio.platform import Platform
from ckio.platform.chain import Chain

Numbers = NDArray[np.intp]

_MOST_SUMS: Final = 1 << 11
"""The most sums that are distinguished on a level; with more, tapes do not restart."""

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
        For each number, the number after a restart checkpoint, or a tape that restarts, is stored;
        -1 if it does not fit. The last element is for the empty level. A level that never fills has
        only one number, which leads to itself (`endless`).
    tapes : array of int
        For each number, how many tapes that do not restart fit, at most n - 1.
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
    tapes: Numbers
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
        """Whether a tape fits that does not restart."""
        return bool(self.tapes[-1] > 0)

    @property
    def endless(self) -> bool:
        """Whether restart checkpoints never fill the level."""
        return bool(self.after_restart[0] == 0)

    def in_slots(self) -> "Space":
        """Return the level with its free slots as numbers, also if it never fills."""
        after = np.arange(-1, self.slots)
        tapes = (after + 1) * self.takes_tapes
        return replace(self, after_restart=after, after_tape=np.full_like(after, -1), tapes=tapes)

    def without_tapes(self) -> "Space":
        """Return the level for restart checkpoints only."""
        none = np.full_like(self.after_tape, -1)
        return replace(self, tape=inf, after_tape=none, tapes=np.zeros_like(none))


def slots_of(
    name: str, number: int, slots: int, *, write: float, read: float, endless: bool = False
) -> Space:
    """Return a level with slots for restart checkpoints only; if `endless`, it never fills."""
    after = np.zeros(1, np.intp) if endless else np.arange(-1, slots)
    none = np.full_like(after, -1)
    return Space(name, number, write, read, inf, after, none, np.zeros_like(after), slots)


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
    restarting: bool = False,
) -> list[Space]:
    """Return the space of each level for restart checkpoints and tapes, nearest first.

    A level that cannot store a checkpoint of either kind is left out, with a note in the log. The
    working memory holds the tapes of `held` steps. If `restarting`, the forward restarts from
    tapes, unless a level has too many sums. Raises NoSchedule if no restart checkpoint, and no tape
    that restarts, fits on any level, and the levels cannot store all tapes either.
    """
    levels = platform.levels
    missing = chain.length - held
    tapes = sum(level.slots(chain.tape, missing) for level in levels)
    sizes = [chain.restart, *[chain.tape] * chain.tape_restarts]  # from which the forward restarts
    if tapes < missing and not any(it.slots(n, 1) for it in levels for n in sizes):
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
    given = [_space(chain, platform, platform.number(it.name)) for it in usable]
    in_sums = [_in_sums(space, chain, platform) for space in given] if restarting else []
    return [space for space in in_sums if space] if in_sums and all(in_sums) else given


def _space(chain: Chain, platform: Platform, number: int) -> Space:
    level, most = platform.levels[number], chain.length - 1
    sizes = level.stored(chain.restart), level.stored(chain.tape)
    write, read = access_seconds(chain, platform, number, Kind.RESTART, chain.restart)
    after, tapes = restarts_first(*sizes, level.capacity, most=most)
    return Space(
        name=level.name,
        number=number,
        write=write,
        read=read,
        tape=sum(access_seconds(chain, platform, number, Kind.TAPE, chain.tape)) + chain.saved,
        after_restart=after,
        after_tape=np.full_like(after, -1),
        tapes=tapes,
        slots=_slots(*sizes, level.capacity, most),
    )


def restarts_first(
    restart: int, tape: int, capacity: int | None, /, *, most: int
) -> tuple[Numbers, Numbers]:
    """Return the number after a restart checkpoint is stored, and how many tapes fit instead.

    Both are arrays by the number of restart checkpoints that fit. No more than `most` checkpoints
    are needed.
    """
    fitting = [size for size in (restart, tape) if capacity is None or size <= capacity]
    if capacity is None or capacity >= most * max(fitting, default=0):
        fit = [0 if size in fitting else -1 for size in (restart, tape)]
        return np.array(fit[:1]), np.array([most * (fit[1] + 1)])
    slots = min(most, capacity // restart) if restart else 0
    left = capacity - restart * np.arange(slots, -1, -1)
    tapes = np.minimum(most, left // tape) if tape else np.full_like(left, most)
    return (np.arange(-1, slots) if restart else np.zeros(1, np.intp)), tapes


def _in_sums(space: Space, chain: Chain, platform: Platform) -> Space | None:
    """Return the level with numbers of sums, for tapes that restart; None if there are too many."""
    level = platform.levels[space.number]
    restart, tape, capacity = level.stored(chain.restart), level.stored(chain.tape), level.capacity
    if capacity is None or (space.empty == 0 and space.tapes[0] >= chain.length - 1):
        after_restart, after_tape = space.after_restart, np.zeros(1, np.intp)
    else:
        restart, tape, capacity = in_few_units(restart, tape, capacity) or (restart, tape, capacity)
        found = sums(restart, tape, capacity, most=_MOST_SUMS)
        if found is None:
            return None
        after_restart, after_tape = (
            np.searchsorted(found, found - size, side="right") - 1 for size in (restart, tape)
        )
    _, read = access_seconds(chain, platform, space.number, Kind.TAPE, chain.tape)
    return replace(
        space,
        after_restart=after_restart,
        after_tape=after_tape,
        tapes=np.zeros_like(after_tape),
        tape_read=read,
    )


def with_tapes(nearer: NDArray[Any], tape: float, most: int, /) -> NDArray[Any]:
    """Return the least cost of n steps if the tapes of up to `most` first ones are stored.

    `nearer` is the cost without, for each n in the last axis; a tape costs `tape`. The result is
    the least m `tape` + nearer(n - m) for 0 <= m <= `most`.

    >>> with_tapes(np.array([0, 0, 9, 9]), 2, 1).tolist()
    [0, 0, 2, 9]
    """
    best, counted, most = nearer, 0, min(most, nearer.shape[-1] - 1)
    while counted < most and tape < INFEASIBLE:
        more = min(counted + 1, most - counted)  # m up to twice as many
        longer = np.minimum(best[..., more:], more * tape + best[..., :-more])
        best = np.concatenate((best[..., :more], longer), axis=-1)
        counted += more
    return best


def count_tapes(nearer: NDArray[Any], tape: float, most: int, length: int, /) -> int:
    """Return the smallest m of `with_tapes` for `length` steps."""
    if not tape < INFEASIBLE:
        return 0
    count = np.arange(min(most, length - 1) + 1)
    return int((count * tape + nearer[length - count]).argmin())


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
