"""Discards: every checkpoint is dropped as soon as nothing more is read from it.

A planner may leave them out while it writes a schedule. No other places for them leave more room at
any time.
"""

import numpy as np
from numpy.typing import NDArray

from ckio.actions import Discard, Key
from ckio.actions.columns import DISCARD, KIND_CODE, READ, WRITE, Actions
from ckio.schedule import Schedule


def with_discards(schedule: Schedule, /) -> Schedule:
    """The schedule with a Discard directly after the last Read of everything that is stored.

    What is stored at the start and not read before it is written again, if ever, goes first of all.
    The schedule has no Discards yet, and reads whatever it writes.
    """
    actions = schedule.actions
    order, begins = _by_key(actions)
    reads = actions.op[order] == READ
    last = np.sort(order[reads & ~np.append(reads[1:] & ~begins[1:], False)[: len(order)]])
    read = actions.take(last)
    drops = Actions(
        op=np.full(len(last), DISCARD, np.uint8),
        begin=read.begin,
        end=read.end,
        kind=read.kind,
        level=read.level,
    )
    places = np.concatenate((np.arange(len(actions)), last))
    merged = (actions + drops).take(np.argsort(places, kind="stable"))
    unread = _unread(schedule, actions.take(order[begins & reads]))
    return Schedule(schedule.chain, unread + merged, schedule.stored, schedule.note)


def _by_key(actions: Actions) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """The numbers of all accesses, those of one key together, and which is the first of its key."""
    access = np.flatnonzero(actions.op >= WRITE)
    here = actions.take(access)
    order = np.lexsort((here.begin, here.kind, here.level))
    begins = np.ones(len(order), np.bool_)
    if len(order):
        columns = [column[order] for column in (here.level, here.kind, here.begin)]
        begins[1:] = np.any([column[1:] != column[:-1] for column in columns], axis=0)
    return access[order], begins


def _unread(schedule: Schedule, first_reads: Actions) -> Actions:
    """Discards of what lies there at the start, without what is read before all else."""
    read = {(kind, level, step) for _, kind, level, step, _, _ in first_reads.rows()}
    return Actions.of(
        Discard(key, level)
        for level, keys in enumerate(schedule.stored)
        for key in sorted(keys, key=_order)
        if (KIND_CODE[key.kind], level, key.step) not in read
    )


def _order(key: Key) -> tuple[str, int]:
    return key.kind.value, key.step
