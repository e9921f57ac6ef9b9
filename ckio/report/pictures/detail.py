"""Level of detail: where slices of a track are many and short, few that say how many they were.

Time is cut into cells. What lasts longer than a cell stays as it is, and so does the last slice of
each track. The others of one track and cell become one for each kind of action, one after the other
from where the first of them began: each lasts as long as all that it stands for, so that busy
seconds stay what they are, and what is left of the cell is idle.
"""

from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from ckio.actions.columns import WRITE
from ckio.schedule.occupancy import Occupancy
from ckio.schedule.timeline import Timeline

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Slices:
    """Slices of tracks, in whole nanoseconds: what touches in seconds does not overlap here.

    Attributes
    ----------
    track : int64 array
        On which each is; on one track none overlaps another.
    start, lasts : int64 arrays
        Nanoseconds; of several actions together, of all of them.
    until : int64 array
        Nanoseconds: when the last of its actions ended.
    row : int64 array
        The place of its first action.
    op : uint8 array
        Which action.
    count : int64 array
        Of so many actions.
    amount : int64 array
        The steps of all of them, or the bytes.
    """

    track: Ints
    start: Ints
    lasts: Ints
    until: Ints
    row: Ints
    op: NDArray[np.uint8]
    count: Ints
    amount: Ints

    @staticmethod
    def of(timeline: Timeline, track: Ints, /, *, tick: int = 1) -> "Slices":
        """One for each action; times are multiples of so many nanoseconds."""
        actions = timeline.actions
        start, until = nanoseconds(timeline.start, tick), nanoseconds(timeline.stop, tick)
        return Slices(
            track=track.astype(np.int64),
            start=start,
            lasts=until - start,
            until=until,
            row=np.arange(len(actions)),
            op=actions.op,
            count=np.ones(len(actions), np.int64),
            amount=np.where(actions.op < WRITE, actions.end - actions.begin, timeline.nbytes),
        )

    def __len__(self) -> int:
        return len(self.track)

    def take(self, index: Ints, /) -> "Slices":
        """Those at these places."""
        return Slices(*(getattr(self, field.name)[index] for field in fields(self)))

    def merged(self, cell: int, /) -> "Slices":
        """Those that are shorter than a cell of so many nanoseconds together; by track and time."""
        if not len(self):
            return self
        these = self.take(np.lexsort((self.row, self.track)))
        ends = np.append(_changes(these.track)[1:], True)
        alone = (these.lasts >= cell) | ends
        opens = (
            _changes(these.track, these.start // cell) | alone
        )  # what follows is in another cell
        run = np.cumsum(opens) - 1
        by_kind = np.lexsort((these.op, run))
        kinds = np.flatnonzero(_changes(run[by_kind], these.op[by_kind]))
        run = run[by_kind[kinds]]  # from here on, of each kind
        found = _together(these.take(by_kind), kinds)
        first = np.flatnonzero(_changes(run))
        several = np.logical_or.reduceat(found.count > 1, first)
        of = np.repeat(np.arange(len(first)), np.diff(np.append(first, len(run))))
        before = np.cumsum(found.lasts) - found.lasts
        begin = np.minimum.reduceat(found.start, first)
        laid = begin[of] + before - before[first][of]
        start = np.where(several[of], laid, found.start)
        return replace(found, start=start).take(
            np.lexsort((np.where(several[of], 0, found.row), run))
        )


def _together(slices: Slices, first: Ints) -> Slices:
    """One for those from each of these places up to the next."""
    sums = {
        name: np.add.reduceat(getattr(slices, name), first) for name in ("lasts", "count", "amount")
    }
    until = slices.until[np.append(first[1:], len(slices)) - 1]
    return replace(slices.take(first), **sums, until=until)


def _changes(*columns: NDArray[np.generic]) -> NDArray[np.bool_]:
    """Where a row differs from the one before; the first one does."""
    changed = np.ones(len(columns[0]), np.bool_)
    changed[1:] = False
    for column in columns:
        changed[1:] |= column[1:] != column[:-1]
    return changed


def nanoseconds(seconds: NDArray[np.float64], tick: int = 1, /) -> Ints:
    """Whole ones: the nearest multiples of a tick."""
    return np.rint(seconds * (1e9 / tick)).astype(np.int64) * tick


def steps(occupancy: Occupancy, cell: int = 0, /, *, tick: int = 1) -> tuple[Ints, Ints]:
    """When a level holds how many bytes: one value for each time, a multiple of a tick.

    With a cell of so many nanoseconds, of all in one cell the largest value and the last.
    """
    times, nbytes = nanoseconds(occupancy.times, tick), occupancy.nbytes
    last = np.append(_changes(times)[1:], True)
    times, nbytes = times[last], nbytes[last]
    if not cell:
        return times, nbytes
    cells = times // cell
    last = np.append(_changes(cells)[1:], True)
    order = np.lexsort((-np.arange(len(cells)), nbytes, cells))  # the first of equal ones, last
    largest = order[np.append(_changes(cells[order])[1:], True)]
    kept = np.union1d(largest, np.flatnonzero(last))
    return times[kept], nbytes[kept]
