"""Transfers between memory and the far levels while a schedule is performed.

`Traffic` is the rules alone: the simulator moves it in simulated time, the runner with threads. The
program does one action after the other; each channel does one transfer at a time.

The *memory level* is the first level of the platform, if it is plain memory; all others are *far*.
One *pool*, the memory level's capacity, holds that level's checkpoints, the writes that are staged
(from the beginning of the copy to the end of the transfer, and of the copies made from it), and the
reads that are made ahead (from the beginning of the transfer to the end of the copy). A checkpoint
takes its stored bytes on the memory level, and its payload where it is on its way. How many may be
staged, and how many read ahead, is counted over all channels together.

What the program does with

    memory level, write      waits until the pool has space
    far level, write         copies it to the pool, and goes on. As long as the pool is full, or
                             too many are staged, it waits for one of those that are; if there is
                             none, it waits until the channel has written the checkpoint directly
    far level, read          copies what is still staged, or was read ahead; waits for what is being
                             read ahead; otherwise waits until the channel has read it directly
    far level, discard       cancels a write that has not begun; otherwise leaves it to the channel

What a channel does next, if there is

    1. the read that the program waits for
    2. the next read in the order of the program, unless the program waits for a write here, if what
       it reads lies on the level, not too many have been read ahead, not more than the horizon is
       to be computed between the end of the current action and its use, and the pool has space:
       now, and at each later point up to its use for what the memory level and the reads ahead hold
       then
    3. the oldest write or discard

Rule 2 is what lets nothing wait for ever: what the memory level is going to need is never given to
a read, and what is staged leaves the pool by itself. Writes and discards keep their order, so a
level never holds more than the schedule says.

At one instant transfers end first; then the program goes on for as long as no time passes; then
idle channels begin, in the order in which the platform names them.
"""

from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from math import inf
from operator import neg
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ckio.actions import Discard, Key, Read, Write
from ckio.actions.columns import DISCARD, READ, REVERSE, WRITE, Actions
from ckio.platform import Platform, memory_level
from ckio.schedule import Schedule, seconds_of
from ckio.schedule.policy import Overlap


class ActionMode(Enum):
    """How the program does an action."""

    ITSELF = "by itself: it computes, or uses the memory level"
    STAGE = "copies the state to the pool; the transfer follows"
    STAGED = "copies the state from a write that is staged"
    AHEAD = "copies the state from what was read ahead"
    DIRECT = "waits until the transfer has ended"
    LATER = "does nothing: the channel does, or nothing is to be done any more"


class Transfer:
    """A transfer of a channel.

    Attributes
    ----------
    row : int
        The number of the action in the schedule; at most one transfer has it.
    direct : bool
        Whether it is from or to the model itself, and the program waits; else the pool is used.
    """

    __slots__ = ("_actions", "direct", "row")

    def __init__(self, row: int, actions: Actions, direct: bool = False) -> None:
        self.row, self._actions, self.direct = row, actions, direct

    @property
    def action(self) -> Write | Read | Discard:
        """The action of its row, which is made when it is asked for: a simulation never asks."""
        action = self._actions[self.row]
        assert isinstance(action, Write | Read | Discard)
        return action


@dataclass(frozen=True, slots=True)
class Handling:
    """How the program does its next action, and the transfer that has to do with it, if any."""

    way: ActionMode
    transfer: Transfer | None = None


_Ints = NDArray[np.int64]
_Bools = NDArray[np.bool_]


class TransferEffect(Enum):
    """The effect of an action on the transfers."""

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
    """The columns of a schedule that the rules ask for.

    Attributes
    ----------
    room : float
        The pool's capacity in bytes.
    channels : tuple of str
        The channels of the far levels, and in
    channel_of : list of int
        the number of each level's; -1 for the memory level.
    reads : list of list of int
        The rows of the far reads, by channel.
    level : integers
    sort : list of TransferEffect
    nbytes : int64
        What a checkpoint takes of the pool.
    place : int64
        A number for each key on each level.
    clock : float64
        Seconds computed before each action, and in all.
    source : int64
        Of each read, the row of the write that it reads; -1 for what was there at the start.
    far : list of int
        The rows of the far accesses.
    before, inside : int64
        Bytes on the memory level before each action and in the end, and while it is performed.
    most, peak, highest : int64
        The most bytes on the memory level from each action to the next far access, to the next far
        read, and to the end.
    """

    def __init__(self, schedule: Schedule, platform: Platform) -> None:
        actions, levels, memory = schedule.actions, platform.levels, memory_level(platform)
        access = actions.op >= WRITE
        near = access & (actions.level == (-1 if memory is None else memory))
        nbytes = schedule.chain.nbytes_of(actions)
        self.start = 0
        self.room: float = inf
        if memory is not None:
            level = levels[memory]
            nbytes = np.where(near, level.stored_of(nbytes), nbytes)
            self.start = sum(level.stored(schedule.chain.nbytes(key)) for key in _there(schedule))
            self.room = inf if level.capacity is None else level.capacity

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
        # Memory views: an item of one is a plain number, and takes eight bytes.
        self.nbytes = nbytes.data
        self.clock = _clock(schedule, platform).data
        place, source = _places(actions)
        self.place, self.source = place.data, source.data
        far = np.flatnonzero(access & ~near)
        self.far: list[int] = far.tolist()
        change = np.where(near, np.where(actions.op == WRITE, nbytes, 0), 0)
        change -= np.where(near & (actions.op == DISCARD), nbytes, 0)
        before = self.start + np.concatenate(([0], np.cumsum(change)))
        inside = np.maximum(before[:-1], before[1:])
        self.before, self.inside = before.data, inside.data
        self.most = _highest_up_to(far, inside).data
        self.peak = _highest_up_to(far_reads, inside).data
        self.highest = np.ascontiguousarray(np.maximum.accumulate(inside[::-1])[::-1]).data

    def reads_between(self, first: int, last: int) -> Iterator[int]:
        """The rows of the far reads from `first` to `last`, both included."""
        low = bisect_left(self._far_reads, first)
        return iter(self._far_reads[low : bisect_right(self._far_reads, last, low)])


def _highest_up_to(ends: _Ints, values: _Ints) -> _Ints:
    """Return for each row the largest value from it to the next of `ends`, both included.

    Of the values 3, 9, 4, 5 with the ends 1 and 3 that is 9, 9, 5, 5.
    """
    # A running maximum from behind, which begins anew at each end: of ranks, each stretch of rows
    # above the one behind it.
    levels, rank = np.unique(values, return_inverse=True)
    stretch = np.searchsorted(ends, np.arange(len(values)))
    lift = (len(ends) - stretch) * len(levels)
    running = np.maximum.accumulate((rank + lift)[::-1])[::-1] - lift
    return levels[running] if len(values) else values


def _there(schedule: Schedule) -> frozenset[Key]:
    """Return the keys on the memory level, the first, at the start."""
    return schedule.stored[0] if schedule.stored else frozenset()


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
    """The place of each access, and of each read its source."""
    place, source = np.full((2, len(actions)), -1, np.int64)
    rows = np.flatnonzero(actions.op >= WRITE)
    accesses = actions.take(rows)
    names = (accesses.begin, accesses.name, accesses.kind, accesses.level)
    order = np.lexsort(names)
    opens = np.zeros(len(order), np.int64)
    for column in names:
        opens[1:] |= column[order][1:] != column[order][:-1]
    group = np.cumsum(opens)
    place[rows[order]] = group
    # A running maximum of the rows of writes, which begins anew with each place.
    lift = group * (len(actions) + 1)
    written = np.where(accesses.op[order] == WRITE, rows[order], -1)
    source[rows[order]] = np.maximum.accumulate(written + lift) - lift
    return place, source


_ITSELF: Final = Handling(ActionMode.ITSELF)


class Traffic:
    """Where all checkpoints are that the program, or a channel, is moving.

    The program calls `enter`, does what that says, and calls `leave`. An idle channel asks `begin`,
    and says `end`. Whenever one of the others was called, the answer may be another one.

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
        """Begin with a schedule; its `columns`, if given, are those of another traffic with it."""
        self._actions = schedule.actions
        self.columns = columns or TransferColumns(schedule, platform)
        self._most_staged = inf if overlap.write_behind is None else overlap.write_behind
        self._most_ahead = inf if overlap.read_ahead is None else overlap.read_ahead
        self._horizon = overlap.horizon
        self.row = 0
        self.channels = self.columns.channels
        self._lying = self.columns.start  # the memory level's own bytes
        self._transit = 0  # bytes in the pool that are staged or read ahead
        self._channels = [ChannelQueue(reads) for reads in self.columns.reads]
        self._behind: set[int] = set()  # rows of writes that are staged
        self._staged: dict[int, Transfer] = {}  # by place, those of them that may still be read
        self._copied: Transfer | None = None  # the one that the program copies from just now
        self._ahead: dict[int, Transfer] = {}  # by row, reads made ahead
        self._here: set[int] = set()  # rows of those of them that have ended
        self._direct: Transfer | None = None  # the one that the program waits for

    @property
    def used(self) -> int:
        """The bytes of the pool that are taken."""
        return self._lying + self._transit

    @property
    def finished(self) -> bool:
        """Whether the program has ended, and all transfers have."""
        idle = all(channel.now is None and not channel.queue for channel in self._channels)
        return self.over and idle

    @property
    def over(self) -> bool:
        """Whether the program has ended."""
        return self.row == len(self._actions)

    def channel(self, transfer: Transfer, /) -> int:
        """The number of the channel that does a transfer."""
        return self.columns.channel_of[self.columns.level[transfer.row]]

    # The program

    def enter(self) -> Handling | None:
        """How to do the next action; None as long as it cannot be begun."""
        match self.columns.sort[self.row]:
            case TransferEffect.NONE | TransferEffect.GIVE:
                return _ITSELF
            case TransferEffect.TAKE:
                if not self._fits(self.columns.nbytes[self.row]):
                    return None
                self._lying += self.columns.nbytes[self.row]
                return _ITSELF
            case TransferEffect.WRITE:
                return self._enter_write()
            case TransferEffect.READ:
                return self._enter_read()
            case TransferEffect.DISCARD:
                return self._enter_discard()

    def leave(self) -> None:
        """The current action has been done."""
        row = self.row
        match self.columns.sort[row]:
            case TransferEffect.GIVE:
                self._lying -= self.columns.nbytes[row]
            case TransferEffect.WRITE if row in self._behind:
                staged = self._staged[self.columns.place[row]]
                self._channel(staged).queue[row] = staged
            case TransferEffect.READ:
                self._leave_read()
            case _:
                pass
        self.row = row + 1

    def ended(self) -> bool:
        """Whether the direct transfer that the program waits for has ended."""
        return self._direct is None

    def stop(self) -> None:
        """The program goes no further: what is staged is written, and nothing read any more."""
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
        if copied is not None and copied.row not in self._behind:  # it was written meanwhile
            self._transit -= self.columns.nbytes[copied.row]
        elif self._ahead.pop(self.row, None) is not None:
            self._here.remove(self.row)
            self._transit -= self.columns.nbytes[self.row]

    # Many near actions in one go. Between two far accesses a program computes, and uses the memory
    # level. For the channels only its row matters, and the free space in the pool.

    def be_at(self, row: int, /, *, begun: bool) -> None:
        """Let the program be at this action, which it has begun or is about to begin."""
        self.row = row
        self._lying = self.columns.inside[row] if begun else self.columns.before[row]

    def undisturbed(self, stop: int, idle: Iterable[int], /) -> int:
        """Return up to which action, `stop` at most, the near actions need no other call.

        Up to there the pool has space for all that they write, and no channel of those that are
        idle could begin something that it cannot begin now.
        """
        columns, row = self.columns, self.row
        free = columns.room - self._transit
        if row < stop and columns.most[row] > free:
            stop = next((at for at in range(row, stop) if columns.inside[at] > free), stop)
        for number in idle:
            channel = self._channels[number]
            if row + 1 < stop and (read := self._next_read(channel)) is not None:
                stop = self._first_that_allows(read, channel, stop)
        return stop

    def _first_that_allows(self, read: int, channel: "ChannelQueue", stop: int) -> int:
        """Return the first action after this one where a read may begin; `stop` if none before."""
        columns, first = self.columns, max(self.row, channel.full) + 1
        if self._horizon < inf:
            return self.row + 1
        room = columns.room - columns.nbytes[read]
        if first >= stop or room == inf:
            return min(first, stop)
        # Up to the next far read the peak falls, so the place where the read fits is bisected.
        lying = sum(columns.nbytes[row] for row in self._ahead)
        first = bisect_left(columns.peak, lying - room, first, stop, key=neg)
        while first < stop and columns.inside[first] + self._transit > room:
            first += 1
        return first

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
        """A channel's transfer has ended."""
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
        """Return the row of a channel's next read, if all but time and the pool allows it."""
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
        """Return whether time and the pool allow this read now, and if so, take its space."""
        columns = self.columns
        return (
            columns.clock[row] - columns.clock[self.row + 1] <= self._horizon
            and self._fits(columns.nbytes[row])
            and self._fits_up_to(row, channel)
            and self._take(columns.nbytes[row])
        )

    def _fits_up_to(self, row: int, channel: "ChannelQueue") -> bool:
        """Whether a read fits beside what the memory level and the reads ahead will hold.

        The program's points are taken together between far reads, where nothing ahead is used.
        """
        columns = self.columns
        if self.row <= channel.full:
            return False
        room = columns.room - columns.nbytes[row]
        lying = sum(columns.nbytes[other] for other in self._ahead)
        if columns.highest[self.row] + lying <= room:
            return True
        at = self.row
        for use in columns.reads_between(at, row):
            if columns.peak[at] + lying > room:
                channel.full = at  # what lies ahead there now will still lie there then
                return False
            if use in self._ahead:
                lying -= columns.nbytes[use]
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
        return self.used + nbytes <= self.columns.room

    def _unstage(self, staged: Transfer) -> None:
        """A staged write leaves the pool, unless the program copies from it just now."""
        self._behind.remove(staged.row)
        if self._copied is not staged:
            self._transit -= self.columns.nbytes[staged.row]

    def _channel(self, transfer: Transfer) -> "ChannelQueue":
        return self._channels[self.channel(transfer)]

    def _transfer(self, row: int, *, direct: bool = False) -> Transfer:
        return Transfer(row, self._actions, direct)


class ChannelQueue:
    """One channel: what it does, what waits for it, and which reads it has still to make.

    `next_read` is the row of the first read that has neither been begun nor been reached; up to
    the row `full` of the program it does not fit.
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
        """The read in this row, if it is the next, needs not to be begun ahead any more."""
        if self.next_read == row:
            self.next_read, self.full = next(self._reads, None), -1
