"""The room that levels offer to restart checkpoints and tapes together.

What can still be stored on a level with f bytes free, at a bytes for a restart checkpoint and b for
a tape, depends only on the largest sum i a + j b <= f. A planner therefore numbers these sums, in
increasing order and from 0, and plans with the number: storing a checkpoint leads from one sum to
the largest that still fits. As a sum is only ever left for a smaller one, and come back to, this
loses nothing, whatever the sizes. Where a level has more sums than a planner can go through, bytes
are counted in units to which the sizes of checkpoints are rounded up and the capacity down: no plan
needs more room than there is.
"""

from dataclasses import dataclass
from fractions import Fraction
from math import gcd
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ckio.actions import Kind
from ckio.planners.base import no_schedule, note_ignored
from ckio.platform import Platform, copies
from ckio.platform.chain import Chain

Numbers = NDArray[np.intp]

_MOST_SUMS: Final = 1 << 14
"""Sums that are told apart on a level: where there are more, bytes are counted in units."""

_UNITS: Final = 1 << 9, 1 << 12
"""Units of a level, at most: for long chains and for short ones."""

_LENGTHS: Final = 20_000_000
"""Units times steps, as far as the fewest units allow: some seconds of planning."""


@dataclass(frozen=True)
class Space:
    """A level, seen by a planner that stores both kinds of checkpoints.

    Attributes
    ----------
    name, number : str, int
        Of the level, in the platform.
    write, read : float
        Seconds to write a restart checkpoint and to discard it later; to read it.
    tape : float
        Seconds to write, read and discard a tape: each is read once.
    after_restart, after_tape : arrays of int
        For each number of a sum, the one that is left when a restart checkpoint or a tape has been
        stored; -1 where none fits. The last is for the empty level. A level with room for
        everything that a chain can use has one number only, which is never left.
    exact : bool
        Whether sizes were not rounded up.
    slots : int
        How many checkpoints fit, where both kinds take the same room; 0 where they do not. This
        is never rounded.
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

    @property
    def empty(self) -> int:
        """The number of the empty level, the largest."""
        return len(self.after_restart) - 1

    @property
    def costs(self) -> tuple[float, float, float]:
        """All that it costs, in seconds."""
        return self.write, self.read, self.tape


def spaces(
    chain: Chain,
    platform: Platform,
    /,
    *,
    held: int,
    most: int = _MOST_SUMS,
    generous: bool = False,
) -> list[Space]:
    """What each level offers, nearest first.

    A level that cannot hold a checkpoint of either kind is left out, with a note in the log. The
    working memory holds the tapes of `held` steps. A level with more sums than `most` is counted in
    units, which offer no more room than there is, or no less if they are `generous`. Raises
    NoSchedule where no restart checkpoint fits on any level, and not all tapes either.
    """
    levels = platform.levels
    missing = chain.length - held
    tapes = sum(level.slots(chain.tape, missing) for level in levels)
    if tapes < missing and not any(level.slots(chain.restart, 1) for level in levels):
        raise no_schedule(
            levels,
            f"mixed needs a level with room for one checkpoint of {chain.restart} bytes, or levels"
            f" with room for {missing} tapes of {chain.tape} bytes",
        )
    usable = [
        level for level in levels if level.slots(chain.restart, 1) or level.slots(chain.tape, 1)
    ]
    for level in levels:
        if level not in usable:
            note_ignored(level, "mixed")
    numbers = [platform.number(level.name) for level in usable]
    return [_space(platform, number, chain, most, generous=generous) for number in numbers]


def _space(platform: Platform, number: int, chain: Chain, most: int, *, generous: bool) -> Space:
    level = platform.levels[number]
    sizes = level.stored(chain.restart), level.stored(chain.tape)
    useful = (chain.length - 1) * max(
        size for size in sizes if level.capacity is None or size <= level.capacity
    )
    exact = True
    if level.capacity is None:
        after = _unfilled(*sizes, useful)
    elif level.capacity >= useful:
        after = _unfilled(*sizes, level.capacity)
    elif _few_sums(*sizes, level.capacity, most):
        after = _after(*sizes, level.capacity)
    else:
        units = min(most // 4, max(_UNITS[0], _LENGTHS // chain.length))
        after, exact = _after(*_in_units(*sizes, level.capacity, units, generous)), False
    restart = chain.restart * copies(chain, platform, number, Kind.RESTART)
    tape = chain.tape * copies(chain, platform, number, Kind.TAPE)
    return Space(
        name=level.name,
        number=number,
        write=level.write(restart) + level.discard(chain.restart),
        read=level.read(restart),
        tape=level.write(tape) + level.read(tape) + level.discard(chain.tape),
        after_restart=after[0],
        after_tape=after[1],
        exact=exact,
        slots=_slots(*sizes, level.capacity, chain.length - 1),
    )


def _slots(restart: int, tape: int, capacity: int | None, most: int) -> int:
    """How many checkpoints of either kind fit, of `most` that are of use; 0 if they differ."""
    largest = max(restart, tape)
    if capacity is None or largest * most <= capacity:
        return most
    return capacity // restart if restart == tape else 0


def _unfilled(restart: int, tape: int, capacity: int) -> tuple[Numbers, Numbers]:
    """What is left of a level that never fills: all of it, but for what does not fit at all."""
    return np.array([-(restart > capacity)], np.intp), np.array([-(tape > capacity)], np.intp)


def _after(restart: int, tape: int, capacity: int) -> tuple[Numbers, Numbers]:
    """What is left on a level, by the number of the sum, after a restart checkpoint or a tape."""
    found = sums(restart, tape, capacity)
    restarts, tapes = (
        np.searchsorted(found, found - size, side="right") - 1 for size in (restart, tape)
    )
    return restarts, tapes


def sums(restart: int, tape: int, capacity: int, /) -> Numbers:
    """Return all sums of restart checkpoints and tapes within a capacity, from 0 on."""
    each = tape or capacity + 1
    firsts = _restarts(restart, tape, capacity)
    found = [first + each * np.arange((capacity - first) // each + 1) for first in firsts]
    return np.sort(np.concatenate(found))


def _few_sums(restart: int, tape: int, capacity: int, most: int) -> bool:
    """Whether no more than `most` sums are within the capacity."""
    firsts, each = _restarts(restart, tape, capacity), tape or capacity + 1
    if len(firsts) > most:
        return False
    return sum((capacity - first) // each + 1 for first in firsts) <= most


def _restarts(restart: int, tape: int, capacity: int) -> range:
    """The sums i a that fit, as far as adding tapes to them gives each sum once: i < b / (a, b)."""
    if restart == 0:
        return range(1)
    end = tape // gcd(restart, tape) * restart if tape else capacity + 1
    return range(0, min(end, capacity + 1), restart)


def _in_units(
    restart: int, tape: int, capacity: int, most: int, generous: bool
) -> tuple[int, int, int]:
    """The sizes and the capacity in units, `most` of them or a few more.

    A restart checkpoint takes r units and a tape t, such that the unit, max(a / r, b / t) bytes,
    wastes least of either; if `generous`, min(a / r, b / t), which gains least.
    """
    smallest = min(size for size in (restart, tape) if size)
    most = max(most, -(-capacity // smallest)) if generous else most
    if restart * most < capacity:
        each = -(-capacity // most)
        return -(-restart // each), -(-tape // each), capacity // each
    found = list[tuple[Fraction, int, int, Fraction]]()
    for r in range(1, most * restart // capacity + 1):
        for t in {max(1, tape * r // restart), -(-tape * r // restart)} if tape else {0}:
            units = [Fraction(size, count) for size, count in ((restart, r), (tape, t)) if count]
            unit, other = (min(units), max(units)) if generous else (max(units), min(units))
            if capacity <= most * unit:
                found.append((max(unit / other, other / unit), r, t, unit))
    _, r, t, unit = min(found)
    return r, t, int(capacity / unit)
