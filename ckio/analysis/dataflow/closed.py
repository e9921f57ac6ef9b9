"""`Within` in columns, where there is nothing to choose between: so it is for most arrays."""

import numpy as np

from ckio.actions.variables import Bools, Ints
from ckio.analysis.dataflow.needed import Chances, Copies, Needed
from ckio.analysis.dataflow.placing import BEFORE, Array, Chance, Placing, Within


def placed(needed: Needed, placing: Placing, /) -> Copies:
    """The copies that a placing chooses for all arrays of a variable."""
    left, found = np.ones(len(needed.first), np.bool_), Copies.made(())
    if isinstance(placing, Within) and len(needed.read):
        found, left = _without_choice(needed, placing)
    arrays = needed.arrays(left)
    return found + Copies.made((it.version, copy) for it in arrays for copy in placing(it))


def _without_choice(needed: Needed, within: Within) -> tuple[Copies, Bools]:
    """Copies of arrays of which one read has one place to come from; which arrays are left.

    For each read that is one level, or the array is read once and comes from the best of them. On
    one level the times for which there is room follow one another (`Stays.until`): so there only
    the last chance before a read may serve it.
    """
    slots = _Slots.of(needed.chances)
    rows, many = slots.chances, len(needed.read)
    least, chosen, choices = np.full(many, np.inf), np.full(many, -1), np.zeros(many, np.int64)
    array = Array(needed.name, 0, (), ())
    for level in np.unique(rows.level).tolist():
        at, there = slots.last(level, needed)
        there_from_the_start, new = (
            within.once(Chance(place, level), array) + within.read(level, array)
            for place in (BEFORE, 0)
        )
        seconds = np.where(rows.place[at] == BEFORE, there_from_the_start, new)
        better = there & (seconds < least)
        least[better], chosen[better] = seconds[better], at[better]
        choices += there
    first = needed.first
    reads = np.diff(np.append(first, many))
    plain = (choices == 1) | ((choices > 1) & np.repeat(reads == 1, reads))
    done = np.logical_and.reduceat(plain, first)
    taken = np.flatnonzero(np.repeat(done, reads))
    _, begins, of = np.unique(slots.number[chosen[taken]], return_index=True, return_inverse=True)
    copy = rows.take(chosen[taken[begins]])
    return Copies(copy.version, copy.place, copy.level, needed.read[taken], of), ~done


class _Slots:
    """The chances by level, version and place, and the room that each is in, by number."""

    def __init__(self, chances: Chances) -> None:
        self.chances = chances
        opens = np.ones(len(chances.place), np.bool_)
        opens[1:] = False
        for column in (chances.level, chances.version, chances.until):
            opens[1:] |= column[1:] != column[:-1]
        self.number = np.cumsum(opens) - 1
        # What lies there from the start needs no writing: then that is the chance.
        first = np.flatnonzero(opens)[self.number]
        self._chance = np.where(chances.place[first] == BEFORE, first, np.arange(len(first)))

    @staticmethod
    def of(chances: Chances) -> "_Slots":
        """Of those in which there is room."""
        order = np.lexsort((chances.place, chances.version, chances.level))
        return _Slots(chances.take(order[(chances.until > chances.place)[order]]))

    def last(self, level: int, needed: Needed) -> tuple[Ints, Bools]:
        """For each read, the chance on a level that serves it; and whether there is one."""
        rows = self.chances
        begin, end = np.searchsorted(rows.level, (level, level + 1))
        size = 2 + max(needed.read.max(initial=0), rows.place.max(initial=0))
        places = rows.version[begin:end] * size + rows.place[begin:end]
        at = begin + np.searchsorted(places, needed.version * size + needed.read) - 1
        there = (at >= begin) & (rows.version[at] == needed.version)
        there &= rows.until[at] >= needed.read
        return self._chance[at], there
