"""Staging memory: where checkpoints lie on their way between the model and the far levels.

The memory level lends it, with whose checkpoints it shares the capacity; where that is no plain
memory, it is memory of the runner's own. What a run is likely to use is there, and touched, before.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from math import inf
from typing import Final

import numpy as np

from ckio.actions import Buffers
from ckio.actions.columns import READ, RECORD, WRITE
from ckio.backends.base import Backend
from ckio.backends.forms import Form
from ckio.backends.ram import Loan, Ram
from ckio.overlap.rules import Transfer
from ckio.platform import Platform, memory_level
from ckio.platform.memory import available
from ckio.schedule import Schedule, reservations
from ckio.schedule.policy import Overlap

SHARE: Final = 0.5
"""Of the memory that is available, the most that staging takes."""

Sizes = Mapping[int, int]
"""Bytes of a checkpoint: how many there are."""


@dataclass(slots=True)
class Staged:
    """A checkpoint in staging memory.

    Attributes
    ----------
    transfer : Transfer
        What moves it between here and its level.
    form : Form
    loan : Loan
    ended : bool
        Whether the transfer has ended.
    given : buffers or None
        Where the model has it that handed it over; the loan is of no memory then.
    """

    transfer: Transfer
    form: Form
    loan: Loan
    ended: bool = False
    given: Buffers | None = None

    @property
    def buffers(self) -> Buffers:
        """The fields; in staging memory, one behind the other."""
        return cut(self.loan.memory, self.form) if self.given is None else self.given


def cut(memory: memoryview, form: Form, /) -> Buffers:
    """The fields of a checkpoint in one piece of memory."""
    cuts = accumulate(form.sizes, initial=0)
    return [memory[begin:end] for begin, end in pairwise(cuts)]


@dataclass(frozen=True, slots=True)
class Staging:
    """Who lends the memory, and what may be staged in what there is.

    Attributes
    ----------
    lender : Ram
    platform : Platform
        Its memory level has the capacity of what is really open there.
    overlap : Overlap
        With no more checkpoints, written behind or read ahead, than there is memory for.
    """

    lender: Ram
    platform: Platform
    overlap: Overlap


def make_staging(
    schedule: Schedule, platform: Platform, backends: Sequence[Backend], overlap: Overlap, /
) -> Staging:
    """Staging memory for a run that is otherwise ready; raises LevelFull where there is none."""
    writes, reads = (_far(schedule, platform, op) for op in (WRITE, READ))
    behind, ahead = _counts(schedule, overlap, writes, reads)
    overlap = replace(overlap, write_behind=behind, read_ahead=ahead)
    wanted = {
        nbytes: min(behind, writes.get(nbytes, 0)) + min(ahead, reads.get(nbytes, 0))
        for nbytes in writes.keys() | reads.keys()
    }
    memory = memory_level(platform)
    lender = None if memory is None else backends[memory]
    if memory is None or not isinstance(lender, Ram):
        own = Ram()
        own.reserve(wanted)
        return Staging(own, platform, overlap)
    platform = _as_open(platform, memory, lender)
    kept = dict(enumerate(reservations(schedule))).get(memory, {})
    lender.reserve(_together(kept, wanted, platform.levels[memory].capacity))
    return Staging(lender, platform, overlap)


def _far(schedule: Schedule, platform: Platform, op: int) -> Sizes:
    """The accesses of far levels, by size."""
    actions, memory = schedule.actions, memory_level(platform)
    there = (actions.op == op) & (actions.level != (-1 if memory is None else memory))
    nbytes = schedule.chain.nbytes_of(actions)[there]
    sizes, most = np.unique(nbytes, return_counts=True)
    return dict(zip(sizes.tolist(), most.tolist(), strict=True))


def _counts(schedule: Schedule, overlap: Overlap, writes: Sizes, reads: Sizes) -> tuple[int, int]:
    """How many may be written behind and read ahead, for what is needed and what memory there is.

    Each has half of it, and what the other leaves.
    """
    behind, ahead = sum(writes.values()), sum(reads.values())
    behind = behind if overlap.write_behind is None else min(behind, overlap.write_behind)
    ahead = ahead if overlap.read_ahead is None else min(ahead, overlap.read_ahead)
    if (room := available()) is not None:
        largest = max((1, *writes, *reads))
        slots = max(0, int(SHARE * (room - _tape(schedule)))) // largest
        ahead = min(ahead, max(slots // 2, slots - behind))
        behind = min(behind, slots - ahead)
    return behind, ahead


def _tape(schedule: Schedule) -> int:
    """Bytes of the longest tape, which is perhaps not there yet."""
    actions = schedule.actions
    record = actions.op == RECORD
    nbytes = schedule.chain.tape_bytes_of(actions.begin[record], actions.end[record])
    return int(nbytes.max(initial=0))


def _as_open(platform: Platform, memory: int, lender: Ram) -> Platform:
    level = platform.levels[memory]
    rooms = [room for room in (level.capacity, lender.capacity) if room is not None]
    levels = list(platform.levels)
    levels[memory] = replace(level, capacity=min(rooms, default=None))
    return replace(platform, levels=tuple(levels))


def _together(kept: Sizes, wanted: Sizes, capacity: int | None) -> Sizes:
    """Slots for the level's own checkpoints and, as far as they fit, for those on their way."""
    room: float = inf if capacity is None else capacity
    slots: dict[int, int] = {}
    for sizes in (kept, wanted):
        for nbytes, most in sorted(sizes.items(), reverse=True):
            count = most if most * nbytes <= room else int(room) // nbytes
            slots[nbytes] = slots.get(nbytes, 0) + count
            room -= count * nbytes
    return slots
