"""The free space of levels for restart checkpoints and tapes together, as numbers.

A restart checkpoint has a bytes and a tape b. A sweep stores its restart checkpoints first
(`ckio.planners.dp`). Therefore the free space of a level is the number of restart checkpoints that
still fit, and for each number it is known how many tapes fit instead. For example, on a level of
7 bytes, with restart checkpoints of 3 bytes and tapes of 2, there is space for 3 tapes, or for one
restart checkpoint and 2 tapes, or for two and none:

>>> after_restart, tapes = restarts_first(3, 2, 7, most=9)
>>> after_restart.tolist(), tapes.tolist()
([-1, 0, 1], [0, 2, 3])

If the forward restarts from tapes, any order of the two may be the best. What still fits on a level
with f free bytes then depends only on the largest sum i a + j b <= f, so that such a level has a
number for each largest sum that occurs. In the example these are all but 6, because checkpoints
leave 7, 5, 4, 3, 2, 1, or no bytes free:

    >>> sums(3, 2, 7).tolist()
    [0, 2, 3, 4, 5, 6, 7]
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
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

_MOST_SUMS: Final = 1 << 14
"""The most sums on a level, which take a millisecond; with more, tapes do not restart."""


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
    after_restart : array of int
        For each number, the number after a restart checkpoint is stored; -1 if it does not fit. The
        last element is for the empty level. A level that never fills has only one number, which
        leads to itself (`endless`).
    tapes : array of int
        For each number, how many tapes that do not restart fit, at most n - 1.
    slots : int
        How many restart checkpoints fit, at most n - 1, also on an endless level.
    to_the_last : bool
        Whether j may be n - 1: x_0 is stored here, and the next action is to advance to the last
        step. The printed theorem allows this on the first level only (`hrevolve_2020`).
    after_restarting_tape : array of int
        For each number, the number after a tape that restarts is stored; -1 if it does not fit.
    """

    name: str
    number: int
    write: float
    read: float
    tape: float
    after_restart: Numbers
    tapes: Numbers
    slots: int
    to_the_last: bool = True
    tape_read: float = inf
    after_restarting_tape: Numbers = field(default_factory=lambda: np.empty(0, np.intp))

    @property
    def empty(self) -> int:
        """The number of the empty level, which is the largest."""
        return len(self.after_restart) - 1

    @property
    def costs(self) -> tuple[float, float, float, float]:
        """The costs of a restart checkpoint (write, read), and of a tape (all, one more read)."""
        return self.write, self.read, self.tape, self.tape_read

    @property
    def restarting(self) -> bool:
        """Whether the forward restarts from tapes."""
        return self.tape_read < inf

    @property
    def takes_tapes(self) -> bool:
        """Whether a tape fits that does not restart."""
        return bool(self.tapes[-1] > 0)

    @property
    def after_tape(self) -> Numbers:
        """For each number, the number after a tape is stored; -1 if it has none or does not fit."""
        if self.restarting:
            return self.after_restarting_tape
        alike = self.one_size and self.takes_tapes
        return self.after_restart if alike else np.full_like(self.after_restart, -1)

    @property
    def endless(self) -> bool:
        """Whether restart checkpoints never fill the level."""
        return bool(self.after_restart[0] == 0)

    @property
    def one_size(self) -> bool:
        """Whether a tape takes the place of a restart checkpoint, or no tape fits.

        For example, 200,000 bytes are 48 states of 4104 bytes or 48 tapes of 4096.
        """
        alike = np.arange(self.slots - self.empty, self.slots + 1)
        one = not self.takes_tapes or np.array_equal(self.tapes, alike)
        return self.slots > 0 and one and not self.restarting

    def in_slots(self) -> "Space":
        """Return a level of one size with its free slots as numbers, also if it never fills."""
        after = np.arange(-1, self.slots)
        return replace(self, after_restart=after, tapes=(after + 1) * self.takes_tapes)

    def without_tapes(self) -> "Space":
        """Return the level for restart checkpoints only."""
        return replace(self, tape=inf, tapes=np.zeros_like(self.tapes))


def slots_of(
    name: str, number: int, slots: int, *, write: float, read: float, endless: bool = False
) -> Space:
    """Return a level with slots for restart checkpoints only; if `endless`, it never fills."""
    after = np.zeros(1, np.intp) if endless else np.arange(-1, slots)
    return Space(name, number, write, read, inf, after, np.zeros_like(after), slots)


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
    chain: Chain, platform: Platform, /, *, held: int, restarting: bool = False
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
    in_sums = [_in_sums(space, chain, platform) for space in given if restarting]
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
        tapes=tapes,
        slots=level.slots(chain.restart, most),
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
    sizes, capacity = (level.stored(chain.restart), level.stored(chain.tape)), level.capacity
    after_restart, after_tape = space.after_restart, np.zeros(1, np.intp)
    if capacity is not None and (space.empty or space.tapes[0] < chain.length - 1):
        found = sums(*sizes, capacity)
        if found is None:
            return None
        # Sums of sizes in a simple ratio, but for some bytes, are nearly equal; few of them occur.
        largest = np.searchsorted(found, capacity - found, side="right") - 1
        occurring = found[np.unique(largest)]
        after_restart, after_tape = (
            np.searchsorted(occurring, occurring - size, side="right") - 1 for size in sizes
        )
    _, read = access_seconds(chain, platform, space.number, Kind.TAPE, chain.tape)
    return replace(
        space,
        after_restart=after_restart,
        tapes=np.zeros_like(after_tape),
        tape_read=read,
        after_restarting_tape=after_tape,
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


def sums(restart: int, tape: int, capacity: int, /) -> Numbers | None:
    """Return all sums of restart checkpoints and tapes within a capacity, in ascending order.

    Return None if they are too many.
    """
    # With i < b / gcd(a, b), adding tapes to the sums i a gives each sum once.
    end = tape // gcd(restart, tape) * restart if tape else capacity + 1
    firsts = range(0, min(end, capacity + 1), restart) if restart else range(1)
    each = tape or capacity + 1
    if len(firsts) > _MOST_SUMS or sum((capacity - it) // each + 1 for it in firsts) > _MOST_SUMS:
        return None
    found = [first + each * np.arange((capacity - first) // each + 1) for first in firsts]
    return np.sort(np.concatenate(found))
