"""Which accesses find nothing warm: first writes to a slot, reads of what has left the cache."""

from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ckio.actions.columns import DISCARD, READ, WRITE, Actions

Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]


def first_writes(actions: Actions, nbytes: Ints, level: int, start: Sequence[int] = (), /) -> Bools:
    """Which actions write to a slot of this level that nothing was written to before.

    A level takes the slot of that size that became free last; so a write needs a new one where
    more of its size lie there than ever before.

    Parameters
    ----------
    actions
        Of a legal schedule.
    nbytes
        Bytes of the checkpoint of each action.
    level
        Its number.
    start
        Bytes of each checkpoint that lies there at the start.
    """
    found: Bools = np.zeros(len(actions), np.bool_)
    change = np.where(actions.op == WRITE, 1, np.where(actions.op == DISCARD, -1, 0))
    here = np.flatnonzero((change != 0) & (actions.level == level))
    at_start = Counter(start)
    for size in np.unique(nbytes[here]).tolist():
        rows = here[nbytes[here] == size]
        held = at_start[size] + np.cumsum(change[rows])
        most = np.maximum.accumulate(np.concatenate(([at_start[size]], held)))
        found[rows] = held > most[:-1]
    return found


def cold_reads(actions: Actions, moved: Ints, level: int, cached: int, /) -> Bools:
    """Which actions read from this level what has left the page cache since it was last touched.

    It has where more than `cached` bytes were moved meanwhile, and where nothing has touched it
    before. `moved` are the bytes that go through the page cache in each action.
    """
    found: Bools = np.zeros(len(actions), np.bool_)
    here = np.flatnonzero((actions.op >= WRITE) & (actions.level == level))
    rows = actions.take(here)
    order = np.lexsort((rows.begin, rows.name, rows.kind))
    here, rows = here[order], rows.take(order)
    same: Bools = np.zeros(len(rows), np.bool_)
    same[1:] = True
    for column in (rows.kind, rows.name, rows.begin):
        same[1:] &= column[1:] == column[:-1]
    total = np.cumsum(moved)[here]
    since = np.concatenate(([0], np.diff(total)))
    found[here] = (rows.op == READ) & (~same | (since > cached))
    return found
