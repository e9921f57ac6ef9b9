"""A schedule: the actions of an adjoint computation, their seconds, and their counts."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product

import numpy as np
from numpy.typing import NDArray

from ckio.actions import Action, Key
from ckio.actions.columns import (
    ADVANCE,
    DISCARD,
    KIND_CODE,
    KINDS,
    READ,
    RECORD,
    REVERSE,
    WRITE,
    Actions,
)
from ckio.errors import BadInput
from ckio.platform import Affine, Level, Platform, copies
from ckio.platform.chain import Chain
from ckio.platform.readable import bytes_text, counted, sheet_text
from ckio.schedule.policy import SYNCHRONOUS, Overlap

Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]


def first_writes(actions: Actions, nbytes: Ints, level: int, start: Sequence[int] = (), /) -> Bools:
    """Return which actions write to a slot of this level that was never written before.

    A level reuses the slot of the same size that became free last. Therefore a write needs a new
    slot if the level then stores more checkpoints of this size than ever before.

    Parameters
    ----------
    actions
        The actions of a legal schedule.
    nbytes
        The bytes of the checkpoint of each action.
    level
        The number of the level.
    start
        The bytes of each checkpoint that the level stores at the start.
    """
    first: Bools = np.zeros(len(actions), np.bool_)
    change = np.where(actions.op == WRITE, 1, np.where(actions.op == DISCARD, -1, 0))
    accesses = np.flatnonzero((change != 0) & (actions.level == level))
    at_start = Counter(start)
    for size in np.unique(nbytes[accesses]).tolist():
        rows = accesses[nbytes[accesses] == size]
        count = at_start[size] + np.cumsum(change[rows])
        most = np.maximum.accumulate(np.concatenate(([at_start[size]], count)))
        first[rows] = count > most[:-1]
    return first


def cold_reads(actions: Actions, moved: Ints, level: int, cached: int, /) -> Bools:
    """Return which actions read from this level a checkpoint that is no longer in the page cache.

    A checkpoint is no longer in the page cache if more than `cached` bytes were moved since its
    last access, or if it was not accessed before. `moved` are the bytes that each action moves
    through the page cache.
    """
    cold: Bools = np.zeros(len(actions), np.bool_)
    accesses = np.flatnonzero((actions.op >= WRITE) & (actions.level == level))
    order, opens = actions.take(accesses).by_key()
    accesses = accesses[order]
    since = np.diff(np.cumsum(moved)[accesses], prepend=0)
    cold[accesses] = (actions.op[accesses] == READ) & (opens | (since > cached))
    return cold


@dataclass(frozen=True)
class Schedule:
    """The actions for a chain. A schedule is a value: it can be compared, and iterated many times.

    Attributes
    ----------
    chain : Chain
        The chain of time steps.
    actions : Actions
        The actions. The constructor takes any iterable of actions and stores them in columns.
    stored : tuple of frozenset of Key
        The keys that each level stores at the start. Normally there are none; after a failure,
        these are the checkpoints that survived.
    note : str
        A sentence of the planner, for people: in which sense the schedule is the best, or how large
        the gap to a lower bound is. Schedules that differ in their notes only are equal.
    overlap : Overlap
        The policy of overlap for which the schedule was planned. `simulate` and `run` use it,
        unless another one is given.
    """

    chain: Chain
    actions: Actions
    stored: tuple[frozenset[Key], ...] = ()
    note: str = field(default="", compare=False)
    overlap: Overlap = SYNCHRONOUS

    def __init__(
        self,
        chain: Chain,
        actions: Iterable[Action],
        stored: Iterable[Iterable[Key]] = (),
        note: str = "",
        overlap: Overlap = SYNCHRONOUS,
    ) -> None:
        keys_by_level = [frozenset(keys) for keys in stored]
        while keys_by_level and not keys_by_level[-1]:
            keys_by_level.pop()
        object.__setattr__(self, "chain", chain)
        object.__setattr__(self, "actions", Actions.of(actions))
        object.__setattr__(self, "stored", tuple(keys_by_level))
        object.__setattr__(self, "note", note)
        object.__setattr__(self, "overlap", overlap)

    def __eq__(self, other: object) -> bool:
        """Return whether a schedule, or a plan, has the same chain, actions, keys and policy."""
        if not isinstance(other, Schedule):
            return NotImplemented
        return (self.chain, self.stored, self.overlap, self.actions) == (
            other.chain, other.stored, other.overlap, other.actions
        )  # fmt: skip

    def __hash__(self) -> int:
        return hash((self.chain, self.stored, self.overlap, self.actions))

    def __len__(self) -> int:
        return len(self.actions)

    def stored_on(self, number: int, /) -> frozenset[Key]:
        """Return the keys that a level stores at the start."""
        return self.stored[number] if number < len(self.stored) else frozenset()

    def __str__(self) -> str:
        total = counts(self)
        rows = [
            [
                f"level {number}",
                *map(str, (level.writes, level.reads, level.discards, level.peak)),
                bytes_text(level.peak_bytes),
            ]
            for number, level in enumerate(total.levels)
        ]
        length = counted(self.chain.length, "step")
        title = f"schedule of {length}: {counted(len(self), 'action')}"
        steps = (
            f"{counted(total.forward, 'forward step')} ({total.recorded} of them recorded),"
            f" {counted(total.reversed, 'adjoint step')}"
        )
        header = ["stored on", "writes", "reads", "discards", "at most", "bytes at most"]
        return sheet_text(title, header, rows, [steps, *([self.note] if self.note else [])])


@dataclass(frozen=True, slots=True)
class LevelCounts:
    """The accesses to one level; `peak` is in checkpoints, `peak_bytes` in bytes."""

    writes: int = 0
    reads: int = 0
    discards: int = 0
    peak: int = 0
    peak_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Counts:
    """The steps of a schedule by action, and its accesses by level, up to the last level in use."""

    advanced: int
    recorded: int
    reversed: int
    levels: tuple[LevelCounts, ...]

    @property
    def forward(self) -> int:
        """The forward steps, advanced and recorded."""
        return self.advanced + self.recorded


def _level(platform: Platform, number: int) -> Level:
    if number >= len(platform.levels):
        raise BadInput(
            f"the schedule uses level {number}; the platform has {len(platform.levels)} levels,"
            " numbered from 0"
        )
    return platform.levels[number]


def seconds_of(schedule: Schedule, platform: Platform, /) -> NDArray[np.float64]:
    """Return the seconds that each action takes on this platform.

    If the profile of a level knows the cost of first writes or of cold reads, the seconds of an
    access depend on earlier actions.

    Raises BadInput for a level that the platform does not have.
    """
    actions = schedule.actions
    last = int(actions.level[actions.op >= WRITE].max(initial=-1))
    if last >= 0:
        _level(platform, last)
    costs = schedule.chain.seconds_of(actions)
    nbytes = schedule.chain.nbytes_of(actions)
    moved = moved_of(schedule, platform)
    for number, level in enumerate(platform.levels):
        for op, cost, size in (
            (WRITE, level.write, moved),
            (READ, level.read, moved),
            (DISCARD, level.discard, nbytes),
        ):
            rows = (actions.op == op) & (actions.level == number)
            costs[rows] = cost.latency + cost.per_byte * size[rows]
        for rows, cost in _not_warm(schedule, platform, nbytes, number):
            costs[rows] = cost.latency + cost.per_byte * moved[rows]
    return costs


def moved_of(schedule: Schedule, platform: Platform, /) -> NDArray[np.int64]:
    """Return the bytes for which each access takes time.

    They are 0 if the model transfers the ownership of its buffers to memory, without a copy.
    """
    chain, actions = schedule.chain, schedule.actions
    nbytes = chain.nbytes_of(actions)
    for kind in chain.handed:
        for number in range(len(platform.levels)):
            if not copies(chain, platform, number, kind):
                rows = (actions.kind == KIND_CODE[kind]) & (actions.level == number)
                nbytes[rows & (actions.name == 0)] = 0
    return nbytes


def _not_warm(
    schedule: Schedule, platform: Platform, nbytes: NDArray[np.int64], number: int
) -> Iterator[tuple[NDArray[np.bool_], Affine]]:
    """Yield the accesses of a level that are first writes or cold reads, and the cost of each kind.

    Only the costs that the profile of the level knows are used.
    """
    actions, level = schedule.actions, platform.levels[number]
    if level.profile is None:
        return
    if level.profile.first is not None:
        sizes = [schedule.chain.nbytes(key) for key in schedule.stored_on(number)]
        yield first_writes(actions, nbytes, number, sizes), level.profile.first
    if level.read_cold is not None:
        yield read_cold(schedule, platform, number), level.read_cold


def read_cold(schedule: Schedule, platform: Platform, number: int, /) -> NDArray[np.bool_]:
    """Return which actions read from this level a checkpoint that is no longer in the page cache.

    Without a page cache in the profile of the level, there are none.
    """
    actions, profile = schedule.actions, platform.levels[number].profile
    if profile is None or profile.cached is None:
        return np.zeros(len(actions), np.bool_)
    paged = [it.profile is not None and it.profile.cached is not None for it in platform.levels]
    moved = bytes_moved(schedule, platform)
    moved[(actions.op >= WRITE) & ~np.array(paged)[actions.level]] = 0
    return cold_reads(actions, moved, number, profile.cached)


def bytes_moved(schedule: Schedule, platform: Platform, /) -> NDArray[np.int64]:
    """Return the bytes that each action moves to or from a level; 0 for all but Write and Read."""
    actions = schedule.actions
    nbytes = schedule.chain.nbytes_of(actions)
    moved = np.zeros(len(actions), np.int64)
    for number, level in enumerate(platform.levels):
        rows = ((actions.op == WRITE) | (actions.op == READ)) & (actions.level == number)
        moved[rows] = level.stored_of(nbytes[rows])
    return moved


def makespan(schedule: Schedule, platform: Platform, /) -> float:
    """Return the total seconds of a schedule, one action after the other.

    The policy of overlap of the schedule is ignored; `ckio.makespan` takes it into account. The
    seconds are added from left to right. Therefore the sum is equal, to the last bit, to a
    clock that advances with each action. Raises BadInput for a level that the platform does not
    have.

    For example, four steps that are all recorded and then reversed take 4 (1 + 2) s = 12 s:

    >>> from ckio.actions import Record, Reverse
    >>> chain = Chain(steps=4, advance=1, record=1, reverse=2, restart=8, tape=8, adjoint=8)
    >>> makespan(Schedule(chain, [Record(0, 4), Reverse(0, 4)]), Platform(()))
    12.0
    """
    costs = seconds_of(schedule, platform)
    with np.errstate(over="ignore"):
        return float(np.cumsum(costs)[-1]) if len(costs) else 0.0


def counts(schedule: Schedule, /) -> Counts:
    """Return the steps by action, and the writes, reads, discards and peaks by level."""
    actions = schedule.actions
    length = actions.end - actions.begin
    access = actions.op >= WRITE
    used = int(actions.level[access].max(initial=-1)) + 1
    number_of_levels = max(len(schedule.stored), used)
    return Counts(
        advanced=int(length[actions.op == ADVANCE].sum()),
        recorded=int(length[actions.op == RECORD].sum()),
        reversed=int(length[actions.op == REVERSE].sum()),
        levels=tuple(_level_counts(schedule, number) for number in range(number_of_levels)),
    )


def _level_counts(schedule: Schedule, number: int) -> LevelCounts:
    stored = _LevelAccesses.of(schedule, number)
    return LevelCounts(
        writes=int((stored.op == WRITE).sum()),
        reads=int((stored.op == READ).sum()),
        discards=int((stored.op == DISCARD).sum()),
        peak=stored.peak(np.ones(len(stored.op), np.int64), len(stored.start)),
        peak_bytes=stored.peak(stored.nbytes, sum(stored.start)),
    )


def reservations(schedule: Schedule, /) -> tuple[dict[int, int], ...]:
    """Return, for each level, the largest number of checkpoints of each size at one time.

    Each level has a dictionary {bytes of a checkpoint: number of checkpoints}.
    """
    levels = len(counts(schedule).levels)
    return tuple(
        {
            nbytes: stored.peak(
                (stored.nbytes == nbytes).astype(np.int64), stored.start.count(nbytes)
            )
            for nbytes in sorted({*stored.nbytes[stored.op == WRITE].tolist(), *stored.start})
        }
        for stored in (_LevelAccesses.of(schedule, number) for number in range(levels))
    )


def preparations(schedule: Schedule, /) -> tuple[dict[Key, int], ...]:
    """Return, for each level, one key of each kind or variable, and the most of these at one time.

    Only keys that are written to the level count. The result is empty for a chain whose steps
    differ, because there one key does not have the size of all keys of its kind.
    """
    if schedule.chain.varies:
        return ()
    return tuple(
        dict(_kinds_written(schedule, number)) for number in range(len(counts(schedule).levels))
    )


def _kinds_written(schedule: Schedule, number: int) -> Iterator[tuple[Key, int]]:
    stored, actions = _LevelAccesses.of(schedule, number), schedule.actions
    accesses = actions.take((actions.op >= WRITE) & (actions.level == number))
    start = schedule.stored_on(number)
    for (code, kind), (name, words) in product(enumerate(KINDS), enumerate(accesses.names)):
        one = (accesses.kind == code) & (accesses.name == name)
        writes = accesses.take((accesses.op == WRITE) & one)
        if len(writes):
            at_start = sum((key.kind, key.name) == (kind, words) for key in start)
            most = stored.peak(one.astype(np.int64), at_start)
            yield writes.key(next(iter(writes.rows()))), most


@dataclass(frozen=True)
class _LevelAccesses:
    """The accesses of one level in order, their bytes, and the bytes stored at the start."""

    op: NDArray[np.uint8]
    nbytes: NDArray[np.int64]
    start: tuple[int, ...]

    @staticmethod
    def of(schedule: Schedule, number: int) -> "_LevelAccesses":
        actions, chain = schedule.actions, schedule.chain
        accesses = actions.take((actions.op >= WRITE) & (actions.level == number))
        start = tuple(map(chain.nbytes, schedule.stored_on(number)))
        return _LevelAccesses(accesses.op, chain.nbytes_of(accesses), start)

    def peak(self, weight: NDArray[np.int64], at_start: int) -> int:
        """Return the largest weighted number of checkpoints that are stored at one time."""
        change = (self.op == WRITE).astype(np.int64) - (self.op == DISCARD)
        return max(at_start, at_start + int(np.cumsum(change * weight).max(initial=0)))
