"""The rules of transfers between memory and the far levels while a schedule is performed.

`Traffic` has only the rules: the simulator applies them in simulated time, the runner with threads.
The program does one action after the other; each channel does one transfer at a time.

The *memory level* is the first level of the platform, if it is plain memory; all other levels are
*far*. The *pool* is the capacity of the memory level. It contains

* the checkpoints of the memory level;
* staged writes: from the beginning of the copy into the pool to the end of the transfer, or of a
  later copy from it;
* reads ahead: from the beginning of the transfer to the end of the copy from the pool.

A checkpoint of the memory level takes its stored bytes; a staged write or a read ahead takes its
payload. The limits on staged writes and on reads ahead apply to all channels together.

The program's part of an action:

    memory level, write      It waits until the pool has space.
    far level, write         It copies the checkpoint to the pool and continues. If the pool is full
                             or the limit on staged writes is reached, it waits until a staged write
                             ends. If no write is staged, it waits until the channel has written the
                             checkpoint directly from the model.
    far level, read          It copies the checkpoint from a staged write or from a read ahead. If
                             the read ahead has not ended, it waits for its end. Otherwise it waits
                             until the channel has read the checkpoint directly into the model.
    far level, discard       It cancels a staged write that has not begun. Otherwise the channel
                             does the discard.

An idle channel begins the first of these transfers that exists:

    1. The read for which the program waits.
    2. A read ahead: the next read on this channel in the order of the program. Its conditions are:
       the program does not wait for a direct write on this channel; the checkpoint is stored on the
       level; the limit on reads ahead is not reached; the computation between the end of the
       current action and the read is not longer than the horizon; and the pool has space for it,
       now and at each later point up to the read, in addition to the memory level's checkpoints and
       the reads ahead at that point.
    3. The oldest write or discard.

There is no deadlock, because a read ahead never takes space that the memory level will need (rule
2), and staged writes leave the pool without any action of the program. Writes and discards of a
level keep their order, so that a level never stores more than the schedule permits.

At one instant of time, first transfers end; then the program continues until time passes; then idle
channels begin transfers, in the order of the platform.
"""

from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from math import inf
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ckio.actions import Discard, Read, Write
from ckio.actions.columns import DISCARD, READ, REVERSE, WRITE, Actions
from ckio.platform import Platform, memory_level
from ckio.schedule import Schedule, seconds_of
from ckio.schedule.policy import Overlap


class ActionMode(Enum):
    """The program's part of an action."""

    ITSELF = "does it alone: it computes, or uses the memory level"
    STAGE = "copies the checkpoint to the pool; the transfer follows"
    STAGED = "copies the checkpoint from a staged write"
    AHEAD = "copies the checkpoint from a read ahead"
    DIRECT = "waits until the transfer has ended"
    LATER = "does nothing: the channel does it, or it is not needed any more"


class Transfer:
    """A transfer of a channel.

    Attributes
    ----------
    row : int
        The number of the action in the schedule; at most one transfer has it.
    direct : bool
        Whether it is directly from or to the model, so that the program waits; otherwise it uses
        the pool.
    """

    __slots__ = ("_actions", "direct", "row")

    def __init__(self, row: int, actions: Actions, direct: bool = False) -> None:
        self.row, self._actions, self.direct = row, actions, direct

    @property
    def action(self) -> Write | Read | Discard:
        """The action of its row; the object is made on request, because simulations need none."""
        action = self._actions[self.row]
        assert isinstance(action, Write | Read | Discard)
        return action


@dataclass(frozen=True, slots=True)
class Handling:
    """The program's part of its next action, and the transfer of this action, if any."""

    way: ActionMode
    transfer: Transfer | None = None


_Ints = NDArray[np.int64]
_Bools = NDArray[np.bool_]


class TransferEffect(Enum):
    """The effect of an action on pool and transfers."""

    NONE = "it computes, or reads from the memory level"
    TAKE = "it writes to the memory level"
    GIVE = "it discards from the memory level"
    WRITE = "it writes to a far level"
    READ = "it reads from a far level"
    DISCARD = "it discards from a far level"


_NEAR: Final = {WRITE: TransferEffect.TAKE, READ: TransferEffect.NONE, DISCARD: TransferEffect.GIVE}
_FAR: Final = {
    WRITE: TransferEffect.WRITE,
    READ: TransferEffect.READ,
    DISCARD: TransferEffect.DISCARD,
}


class TransferColumns:
    """The columns of a schedule that the rules need; most have one item for each action.

    Attributes
    ----------
    capacity : float
        The capacity of the pool in bytes.
    channels : tuple of str
        The channels of the far levels.
    channel_of : list of int
        For each level, the number of its channel; -1 for the memory level.
    reads : list of list of int
        For each channel, the rows of its far reads.
    level : integers
        The level of each action.
    sort : list of TransferEffect
        The effect of each action.
    nbytes : int64
        The bytes of the pool that the checkpoint of an action takes.
    place : int64
        A number for each key on each level.
    clock : float64
        Seconds of computation before each action; at the end, of all actions.
    source : int64
        For each read, the row of the write of its checkpoint; -1 if it was stored at the start.
    far : list of int
        The rows of the far accesses.
    inside : int64
        Bytes on the memory level during each action.
    peak, highest : int64
        Maximum bytes on the memory level from each action to the next far read, and to the end.
    """

    def __init__(self, schedule: Schedule, platform: Platform) -> None:
        actions, levels, memory = schedule.actions, platform.levels, memory_level(platform)
        access = actions.op >= WRITE
        near = access & (actions.level == (-1 if memory is None else memory))
        nbytes = schedule.chain.nbytes_of(actions)
        self.start = 0
        self.capacity: float = inf
        if memory is not None:
            level = levels[memory]
            nbytes = np.where(near, level.stored_of(nbytes), nbytes)
            start = map(schedule.chain.nbytes, schedule.stored_on(memory))
            self.start = sum(map(level.stored, start))
            self.capacity = inf if level.capacity is None else level.capacity

        names = [level.channel for number, level in enumerate(levels) if number != memory]
        self.channels = tuple(dict.fromkeys(names))
        self.channel_of = [
            -1 if number == memory else self.channels.index(level.channel)
            for number, level in enumerate(levels)
        ]
        far_reads = np.flatnonzero(access & ~near & (actions.op == READ))
        channel = np.array([*self.channel_of, -1])[actions.level[far_reads]]
        self.reads = [far_reads[channel == number].tolist() for number in range(len(self.channels))]
        self._far_reads = far_reads.data
        self.level = actions.level.data
        self.sort = _sorts(actions, near)
        # Memory views, because their items are Python numbers and need only eight bytes each.
        self.nbytes = nbytes.data
        self.clock = _clock(schedule, platform).data
        place, source = _places(actions)
        self.place, self.source = place.data, source.data
        self.far: list[int] = np.flatnonzero(access & ~near).tolist()
        change = np.where(near, np.where(actions.op == WRITE, nbytes, 0), 0)
        change -= np.where(near & (actions.op == DISCARD), nbytes, 0)
        before = self.start + np.concatenate(([0], np.cumsum(change)))
        inside = np.maximum(before[:-1], before[1:])
        self.inside = inside.data
        self.peak = _highest_up_to(far_reads, inside).data
        self.highest = np.ascontiguousarray(np.maximum.accumulate(inside[::-1])[::-1]).data

    def reads_between(self, first: int, last: int) -> Iterator[int]:
        """Yield the rows of the far reads from `first` to `last`, both included."""
        low = bisect_left(self._far_reads, first)
        return iter(self._far_reads[low : bisect_right(self._far_reads, last, low)])


def _highest_up_to(ends: _Ints, values: _Ints) -> _Ints:
    """Return, for each row, the largest value from it to the next of `ends`, both included.

    >>> _highest_up_to(np.array([1, 3]), np.array([3, 9, 4, 5])).tolist()
    [9, 9, 5, 5]
    """
    # This is a running maximum from the last row to the first, which restarts at each end. The
    # values are replaced by ranks, and the ranks of each stretch of rows are lifted above those of
    # the next stretch, so that one running maximum does it.
    levels, rank = np.unique(values, return_inverse=True)
    stretch = np.searchsorted(ends, np.arange(len(values)))
    lift = (len(ends) - stretch) * len(levels)
    running = np.maximum.accumulate((rank + lift)[::-1])[::-1] - lift
    return levels[running] if len(values) else values


def _sorts(actions: Actions, near: _Bools) -> list[TransferEffect]:
    near_effects = [_NEAR.get(op, TransferEffect.NONE) for op in range(DISCARD + 1)]
    far_effects = [_FAR.get(op, TransferEffect.NONE) for op in range(DISCARD + 1)]
    sorts = np.array([*far_effects, *near_effects], object)
    effects: list[TransferEffect] = sorts[actions.op + near * np.uint8(len(far_effects))].tolist()
    return effects


def _clock(schedule: Schedule, platform: Platform) -> NDArray[np.float64]:
    seconds = np.where(schedule.actions.op <= REVERSE, seconds_of(schedule, platform), 0.0)
    return np.concatenate(([0.0], np.cumsum(seconds)))


def _places(actions: Actions) -> tuple[_Ints, _Ints]:
    """Return the columns `place` and `source` of `TransferColumns`."""
    place, source = np.full((2, len(actions)), -1, np.int64)
    rows = np.flatnonzero(actions.op >= WRITE)
    accesses = actions.take(rows)
    order, opens = accesses.by_key()
    group = np.cumsum(opens) - 1
    place[rows[order]] = group
    # A running maximum of the rows of writes, which restarts at each place.
    lift = group * (len(actions) + 1)
    written = np.where(accesses.op[order] == WRITE, rows[order], -1)
    source[rows[order]] = np.maximum.accumulate(written + lift) - lift
    return place, source


_ITSELF: Final = Handling(ActionMode.ITSELF)


class Traffic:
    """The state of all transfers, by the rules of this module.

    For each action the program calls `enter`, does its part as the result says, and calls `leave`.
    For an idle channel, `begin` returns its next transfer, and `end` ends it. A result of `enter`
    or `begin` may change after each call of another method.

    Attributes
    ----------
    row : int
        The number of the program's current action.
    channels : tuple of str
        The channels of the far levels.
    columns : TransferColumns
    """

    def __init__(
        self,
        schedule: Schedule,
        platform: Platform,
        overlap: Overlap,
        /,
        *,
        columns: TransferColumns | None = None,
    ) -> None:
        """Begin a schedule; `columns` may be those of another Traffic with the same schedule."""
        self._actions = schedule.actions
        self.columns = columns or TransferColumns(schedule, platform)
        self._most_staged = inf if overlap.write_behind is None else overlap.write_behind
        self._most_ahead = inf if overlap.read_ahead is None else overlap.read_ahead
        self._horizon = overlap.horizon
        self.row = 0
        self.channels = self.columns.channels
        self._near_bytes = self.columns.start  # bytes of the memory level's checkpoints
        self._transit = 0  # bytes of staged writes and reads ahead in the pool
        self._channels = [ChannelQueue(reads) for reads in self.columns.reads]
        self._behind: set[int] = set()  # rows of staged writes
        self._staged: dict[int, Transfer] = {}  # staged writes that may still be read, by place
        self._copied: Transfer | None = None  # the program copies from this staged write now
        self._ahead: dict[int, Transfer] = {}  # reads ahead, by row
        self._here: set[int] = set()  # rows of reads ahead that have ended
        self._direct: Transfer | None = None  # the program waits for this transfer

    @property
    def used(self) -> int:
        """The bytes of the pool that are in use."""
        return self._near_bytes + self._transit

    @property
    def finished(self) -> bool:
        """Whether the program and all transfers have ended."""
        idle = all(channel.now is None and not channel.queue for channel in self._channels)
        return self.over and idle

    @property
    def over(self) -> bool:
        """Whether the program has ended."""
        return self.row == len(self._actions)

    def channel(self, transfer: Transfer, /) -> int:
        """Return the number of the channel of a transfer."""
        return self.columns.channel_of[self.columns.level[transfer.row]]

    # The program

    def enter(self) -> Handling | None:
        """Return the program's part of the next action; None if it cannot begin now."""
        match self.columns.sort[self.row]:
            case TransferEffect.NONE | TransferEffect.GIVE:
                return _ITSELF
            case TransferEffect.TAKE:
                if not self._fits(self.columns.nbytes[self.row]):
                    return None
                self._near_bytes += self.columns.nbytes[self.row]
                return _ITSELF
            case TransferEffect.WRITE:
                return self._enter_write()
            case TransferEffect.READ:
                return self._enter_read()
            case TransferEffect.DISCARD:
                return self._enter_discard()

    def leave(self) -> None:
        """Finish the current action, which has been done."""
        row = self.row
        match self.columns.sort[row]:
            case TransferEffect.GIVE:
                self._near_bytes -= self.columns.nbytes[row]
            case TransferEffect.WRITE if row in self._behind:
                staged = self._staged[self.columns.place[row]]
                self._channel(staged).queue[row] = staged
            case TransferEffect.READ:
                self._leave_read()
            case _:
                pass
        self.row = row + 1

    def ended(self) -> bool:
        """Return whether the direct transfer for which the program waits has ended."""
        return self._direct is None

    def stop(self) -> None:
        """End the program here: staged writes continue, but no more reads ahead begin."""
        self._most_ahead = 0

    def _enter_write(self) -> Handling | None:
        row = self.row
        if len(self._behind) < self._most_staged and self._take(self.columns.nbytes[row]):
            transfer = self._transfer(row)
            self._staged[self.columns.place[row]] = transfer
            self._behind.add(row)
            return Handling(ActionMode.STAGE, transfer)
        if self._behind:
            return None
        self._direct = self._transfer(row, direct=True)
        self._channel(self._direct).queue[row] = self._direct
        return Handling(ActionMode.DIRECT, self._direct)

    def _enter_read(self) -> Handling | None:
        row = self.row
        if (ahead := self._ahead.get(row)) is not None:
            return Handling(ActionMode.AHEAD, ahead) if row in self._here else None
        channel = self._channels[self.columns.channel_of[self.columns.level[row]]]
        channel.pass_by(row)
        if (staged := self._staged.get(self.columns.place[row])) is not None:
            self._copied = staged
            return Handling(ActionMode.STAGED, staged)
        self._direct = channel.wanted = self._transfer(row, direct=True)
        return Handling(ActionMode.DIRECT, self._direct)

    def _enter_discard(self) -> Handling:
        transfer = self._transfer(self.row)
        channel = self._channel(transfer)
        staged = self._staged.pop(self.columns.place[self.row], None)
        if staged is None or channel.now is staged:
            channel.queue[self.row] = transfer
            return Handling(ActionMode.LATER)
        del channel.queue[staged.row]
        self._unstage(staged)
        return Handling(ActionMode.LATER, staged)

    def _leave_read(self) -> None:
        copied, self._copied = self._copied, None
        if copied is not None and copied.row not in self._behind:  # its write has ended meanwhile
            self._transit -= self.columns.nbytes[copied.row]
        elif self._ahead.pop(self.row, None) is not None:
            self._here.remove(self.row)
            self._transit -= self.columns.nbytes[self.row]

    # The channels

    def begin(self, number: int, /) -> Transfer | None:
        """Return the transfer that an idle channel begins now, if any."""
        channel = self._channels[number]
        if channel.wanted is not None:
            channel.now, channel.wanted = channel.wanted, None
        elif (row := self._next_read(channel)) is not None and self._may_read_ahead(row, channel):
            channel.pass_by(row)
            channel.now = self._ahead[row] = self._transfer(row)
        elif channel.queue:
            _, channel.now = channel.queue.popitem(last=False)
        return channel.now

    def end(self, number: int, /) -> None:
        """End a channel's current transfer."""
        channel = self._channels[number]
        transfer, channel.now = channel.now, None
        assert transfer is not None
        if transfer is self._direct:
            self._direct = None
        elif transfer.row in self._ahead:
            self._here.add(transfer.row)
        elif transfer.row in self._behind:
            place = self.columns.place[transfer.row]
            if self._staged.get(place) is transfer:
                del self._staged[place]
            self._unstage(transfer)

    def _next_read(self, channel: "ChannelQueue") -> int | None:
        """Return the row of a channel's next read ahead, without checking horizon and pool.

        Return None if another condition of rule 2 is not met.
        """
        row, columns = channel.next_read, self.columns
        allowed = (
            row is not None
            and columns.source[row] < self.row
            and columns.place[row] not in self._staged
            and len(self._ahead) < self._most_ahead
            and not (self._direct is not None and self._direct.row in channel.queue)
        )
        return row if allowed else None

    def _may_read_ahead(self, row: int, channel: "ChannelQueue") -> bool:
        """Return whether horizon and pool permit this read ahead; if so, take its space."""
        columns = self.columns
        return (
            columns.clock[row] - columns.clock[self.row + 1] <= self._horizon
            and self._fits(columns.nbytes[row])
            and self._fits_up_to(row, channel)
            and self._take(columns.nbytes[row])
        )

    def _fits_up_to(self, row: int, channel: "ChannelQueue") -> bool:
        """Return whether a read fits the pool at each point up to its use.

        The pool then also contains the memory level's checkpoints and the other reads ahead. All
        actions between two far reads are checked together, because no read ahead leaves the pool
        between them.
        """
        columns = self.columns
        if self.row <= channel.full:
            return False
        most = columns.capacity - columns.nbytes[row]
        ahead = sum(columns.nbytes[other] for other in self._ahead)
        if columns.highest[self.row] + ahead <= most:
            return True
        at = self.row
        for use in columns.reads_between(at, row):
            if columns.peak[at] + ahead > most:
                channel.full = at  # the reads ahead that count here stay in the pool until then
                return False
            if use in self._ahead:
                ahead -= columns.nbytes[use]
            at = use + 1
        return True

    # The pool

    def _take(self, nbytes: int) -> bool:
        """Take space in the pool for a transfer, if there is enough."""
        fits = self._fits(nbytes)
        if fits:
            self._transit += nbytes
        return fits

    def _fits(self, nbytes: int) -> bool:
        """Return whether the pool has enough free space now."""
        return self.used + nbytes <= self.columns.capacity

    def _unstage(self, staged: Transfer) -> None:
        """End a staged write; it leaves the pool unless the program copies from it now."""
        self._behind.remove(staged.row)
        if self._copied is not staged:
            self._transit -= self.columns.nbytes[staged.row]

    def _channel(self, transfer: Transfer) -> "ChannelQueue":
        return self._channels[self.channel(transfer)]

    def _transfer(self, row: int, *, direct: bool = False) -> Transfer:
        return Transfer(row, self._actions, direct)


class ChannelQueue:
    """One channel: its current transfer, the waiting transfers, and its later reads.

    `now` is the current transfer, `wanted` the read for which the program waits, and `queue` has
    the waiting writes and discards by row. `next_read` is the row of the first read that has
    neither begun nor been reached by the program; this read does not fit the pool as long as the
    program's row is not larger than `full`.
    """

    __slots__ = ("_reads", "full", "next_read", "now", "queue", "wanted")

    def __init__(self, reads: list[int]) -> None:
        self.now: Transfer | None = None
        self.wanted: Transfer | None = None
        self.queue: OrderedDict[int, Transfer] = OrderedDict()  # by row
        self._reads = iter(reads)
        self.next_read = next(self._reads, None)
        self.full = -1

    def pass_by(self, row: int) -> None:
        """Skip the read in this row, if it is the next one: it needs no read ahead any more."""
        if self.next_read == row:
            self.next_read, self.full = next(self._reads, None), -1
