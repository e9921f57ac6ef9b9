"""The traffic between memory and the levels behind it, while a schedule is being performed.

`Traffic` is the rules alone: the simulator moves it in simulated time, the runner with threads. The
program does one action after the other; each channel does one transfer at a time.

The *memory level* is the first level of the platform, if it is plain memory; all others are *far*.
One *pool*, the memory level's capacity, holds that level's checkpoints, the writes that are staged
(from the beginning of the copy to the end of the transfer, and of the copies made from it), and the
reads that are made ahead (from the beginning of the transfer to the end of the copy).

What the program does with

    memory level, write      waits until the pool has room
    far level, write         copies it to the pool, and goes on. As long as the pool has no room, or
                             too many are staged, it waits for one of those that are; if there is
                             none, it waits until the channel has written the checkpoint directly
    far level, read          copies what is still staged, or was read ahead; waits for what is being
                             read ahead; otherwise waits until the channel has read it directly
    far level, discard       cancels a write that has not begun; otherwise leaves it to the channel

What a channel does next, if there is

    1. the read that the program waits for
    2. the next read in the order of the program, unless the program waits for a write here, if what
       it reads lies on the level, not too many have been read ahead, not more than the horizon is
       to be computed between the end of the current action and its use, and the pool has room: now,
       and at each later point up to its use for what the memory level and the reads ahead hold then
    3. the oldest write or discard

Rule 2 is what lets nothing wait for ever: what the memory level is going to need is never given to
a read, and what is staged leaves the pool by itself. Writes and discards keep their order, so a
level never holds more than the schedule says.

At one instant transfers end first; then the program goes on for as long as no time passes; then
idle channels begin, in the order in which the platform names them.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from math import inf
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ckio.actions import Discard, Key, Read, Write
from ckio.columns import DISCARD, READ, REVERSE, WRITE, Actions
from ckio.overlap import Overlap
from ckio.platforms import Platform
from ckio.schedule import Schedule, seconds_of


class Way(Enum):
    """How the program does an action."""

    ITSELF = "by itself: it computes, or uses the memory level"
    STAGE = "copies the state to the pool; the transfer follows"
    STAGED = "copies the state from a write that is staged"
    AHEAD = "copies the state from what was read ahead"
    DIRECT = "waits until the transfer has ended"
    LATER = "does nothing: the channel does, or nothing is to be done any more"


@dataclass(frozen=True, slots=True)
class Transfer:
    """What a channel does.

    Attributes
    ----------
    row : int
        The number of the action in the schedule; at most one transfer has it.
    action : Write or Read or Discard
    direct : bool
        Whether it is from or to the model itself, and the program waits; else the pool is used.
    """

    row: int
    action: Write | Read | Discard
    direct: bool = False


@dataclass(frozen=True, slots=True)
class Step:
    """How the program does its next action, and the transfer that has to do with it, if any."""

    way: Way
    transfer: Transfer | None = None


_ITSELF: Final = Step(Way.ITSELF)
_Place = tuple[int, Key]
"""A level, and what lies or is going to lie there."""


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
    """

    def __init__(self, schedule: Schedule, platform: Platform, overlap: Overlap, /) -> None:
        self._map = _Map(schedule, platform)
        self._most_staged = inf if overlap.write_behind is None else overlap.write_behind
        self._most_ahead = inf if overlap.read_ahead is None else overlap.read_ahead
        self._horizon = overlap.horizon
        self.row = 0
        self.channels = self._map.channels
        self._channels = [_Channel(reads) for reads in self._map.reads]
        self._used = sum(self._map.stored_bytes(key) for key in self._map.in_memory())
        self._behind: set[int] = set()  # rows of writes that are staged
        self._staged: dict[_Place, Transfer] = {}  # those of them that may still be read
        self._copied: Transfer | None = None  # the one that the program copies from just now
        self._ahead: dict[int, bool] = {}  # rows of reads made ahead: whether they have ended
        self._direct: Transfer | None = None  # the one that the program waits for

    @property
    def finished(self) -> bool:
        """Whether the program has ended, and all transfers have."""
        idle = all(channel.now is None and not channel.queue for channel in self._channels)
        return self.over and idle

    @property
    def over(self) -> bool:
        """Whether the program has ended."""
        return self.row == self._map.length

    def channel(self, transfer: Transfer, /) -> int:
        """The number of the channel that does a transfer."""
        return self._map.channel_of[transfer.action.level]

    # The program

    def enter(self) -> Step | None:
        """How to do the next action; None as long as it cannot be begun."""
        match self._map.op[self.row], self._map.far[self.row]:
            case int(op), True if op == WRITE:
                return self._enter_write()
            case int(op), True if op == READ:
                return self._enter_read()
            case _, True:
                return self._enter_discard()
            case int(op), False if op == WRITE:
                return self._enter_memory()
            case _:
                return _ITSELF

    def leave(self) -> None:
        """The current action has been done."""
        row = self.row
        match self._map.op[row], self._map.far[row]:
            case int(op), False if op == DISCARD:
                self._used -= self._map.nbytes[row]
            case int(op), True if op == WRITE and row in self._behind:
                staged = self._staged[self._map.place(row)]
                self._channel(staged).queue.append(staged)
            case int(op), True if op == READ:
                self._leave_read(row)
        self.row += 1

    def ended(self) -> bool:
        """Whether the direct transfer that the program waits for has ended."""
        return self._direct is None

    def _enter_memory(self) -> Step | None:
        nbytes = self._map.nbytes[self.row]
        if self._used + nbytes > self._map.room:
            return None
        self._used += nbytes
        return _ITSELF

    def _enter_write(self) -> Step | None:
        row, nbytes = self.row, self._map.nbytes[self.row]
        if len(self._behind) < self._most_staged and self._used + nbytes <= self._map.room:
            transfer = self._map.transfer(row)
            self._staged[self._map.place(row)] = transfer
            self._behind.add(row)
            self._used += nbytes
            return Step(Way.STAGE, transfer)
        if self._behind:
            return None
        self._direct = self._map.transfer(row, direct=True)
        self._channel(self._direct).queue.append(self._direct)
        return Step(Way.DIRECT, self._direct)

    def _enter_read(self) -> Step | None:
        row = self.row
        if (staged := self._staged.get(self._map.place(row))) is not None:
            self._copied = staged
            return Step(Way.STAGED, staged)
        if row in self._ahead:
            return Step(Way.AHEAD, self._map.transfer(row)) if self._ahead[row] else None
        self._direct = self._map.transfer(row, direct=True)
        self._channel(self._direct).wanted = self._direct
        return Step(Way.DIRECT, self._direct)

    def _enter_discard(self) -> Step:
        transfer = self._map.transfer(self.row)
        channel = self._channel(transfer)
        staged = self._staged.pop(self._map.place(self.row), None)
        if staged is None or channel.now is staged:
            channel.queue.append(transfer)
            return Step(Way.LATER)
        channel.queue.remove(staged)
        self._give_back(staged)
        return Step(Way.LATER, staged)

    def _leave_read(self, row: int) -> None:
        copied, self._copied = self._copied, None
        if copied is not None and copied.row not in self._behind:  # it was written meanwhile
            self._used -= self._map.nbytes[copied.row]
        elif self._ahead.pop(row, False):
            self._used -= self._map.nbytes[row]
        self._channels[self._map.channel_of[self._map.level[row]]].pass_by(row)

    # The channels

    def begin(self, number: int, /) -> Transfer | None:
        """What an idle channel does now; None if nothing."""
        channel = self._channels[number]
        if channel.wanted is not None:
            channel.now, channel.wanted = channel.wanted, None
        elif (row := self._next_ahead(channel)) is not None:
            channel.now = self._map.transfer(row)
            self._ahead[row] = False
            self._used += self._map.nbytes[row]
            channel.pass_by(row)
        elif channel.queue:
            channel.now = channel.queue.popleft()
        return channel.now

    def end(self, number: int, /) -> None:
        """A channel's transfer has ended."""
        channel = self._channels[number]
        transfer, channel.now = channel.now, None
        assert transfer is not None
        if transfer is self._direct:
            self._direct = None
        elif transfer.row in self._ahead:
            self._ahead[transfer.row] = True
        elif transfer.row in self._behind:
            place = self._map.place(transfer.row)
            if self._staged.get(place) is transfer:
                del self._staged[place]
            self._give_back(transfer)

    def _channel(self, transfer: Transfer) -> "_Channel":
        return self._channels[self.channel(transfer)]

    def _give_back(self, staged: Transfer) -> None:
        """A staged write leaves the pool, unless the program copies from it just now."""
        self._behind.remove(staged.row)
        if self._copied is not staged:
            self._used -= self._map.nbytes[staged.row]

    def _next_ahead(self, channel: "_Channel") -> int | None:
        """The row of the read that may begin now, before it is needed."""
        there, row = self._map, channel.next_read
        if row is None or len(self._ahead) >= self._most_ahead:
            return None
        if self._direct is not None and self._direct in channel.queue:
            return None
        if there.source[row] >= self.row or there.place(row) in self._staged:
            return None
        if there.clock[row] - there.clock[self.row + 1] > self._horizon:
            return None
        return row if self._fits(row) else None

    def _fits(self, row: int) -> bool:
        """Whether the pool has room for a read ahead, now and as long as it is going to lie there.

        The program's points are taken together between far reads, where nothing ahead is used.
        """
        there, nbytes = self._map, self._map.nbytes[row]
        if there.room == inf:
            return True
        if self._used + nbytes > there.room:
            return False
        held = sorted((other, there.nbytes[other]) for other in self._ahead if other >= self.row)
        lying = sum(size for _, size in held)
        used, at = 0, self.row
        for use in there.reads_between(self.row, row):
            if there.peak[at] + lying - used + nbytes > there.room:
                return False
            at = use + 1
            while held and held[0][0] <= use:
                used += held.pop(0)[1]
        return True


class _Channel:
    """One channel: what it does, what waits for it, and which reads it has still to make."""

    __slots__ = ("_passed", "_reads", "now", "queue", "wanted")

    def __init__(self, reads: list[int]) -> None:
        self.now: Transfer | None = None
        self.wanted: Transfer | None = None
        self.queue: deque[Transfer] = deque()
        self._reads = reads
        self._passed = 0

    @property
    def next_read(self) -> int | None:
        """The row of the first read that has neither been begun nor done."""
        return self._reads[self._passed] if self._passed < len(self._reads) else None

    def pass_by(self, row: int) -> None:
        """The read in this row, if it is the next, needs not to be begun any more."""
        if self.next_read == row:
            self._passed += 1


class _Map:
    """What is known of a schedule before it begins, by the numbers of its actions."""

    def __init__(self, schedule: Schedule, platform: Platform) -> None:
        actions, levels = schedule.actions, platform.levels
        self.schedule, self.platform = schedule, platform
        self.length = len(actions)
        self.memory = memory_level(platform)
        capacity = None if self.memory is None else levels[self.memory].capacity
        self.room = inf if capacity is None else capacity
        access = actions.op >= WRITE
        far = access & (actions.level != (-1 if self.memory is None else self.memory))
        reading = far & (actions.op == READ)
        nbytes = schedule.chain.nbytes_of(actions)
        if self.memory is not None:
            nbytes = np.where(access & ~far, levels[self.memory].stored_of(nbytes), nbytes)

        self.channels = tuple(dict.fromkeys(
            level.channel for number, level in enumerate(levels) if number != self.memory
        ))  # fmt: skip
        self.channel_of = [
            -1 if number == self.memory else self.channels.index(level.channel)
            for number, level in enumerate(levels)
        ]
        of_level = np.array([*self.channel_of, -1])
        self.reads = [
            np.flatnonzero(reading & (of_level[actions.level] == number)).tolist()
            for number in range(len(self.channels))
        ]
        self._all_reads = np.flatnonzero(reading)
        self.op: list[int] = actions.op.tolist()
        self.level: list[int] = np.where(access, actions.level, -1).tolist()
        self.far: list[bool] = far.tolist()
        self.nbytes: list[int] = nbytes.tolist()
        self.clock: list[float] = _clock(schedule, platform).tolist()
        self.source: list[int] = _sources(actions).tolist()
        self.peak: list[int] = self._peaks(actions, nbytes, access & ~far).tolist()

    def in_memory(self) -> Iterator[Key]:
        """What lies on the memory level at the start."""
        if self.memory is not None and self.memory < len(self.schedule.stored):
            yield from self.schedule.stored[self.memory]

    def stored_bytes(self, key: Key) -> int:
        """What a checkpoint takes of the memory level."""
        assert self.memory is not None
        return self.platform.levels[self.memory].stored(self.schedule.chain.nbytes(key))

    def place(self, row: int) -> _Place:
        """The level and the key of an access."""
        action = self.schedule.actions[row]
        assert isinstance(action, Write | Read | Discard)
        return action.level, action.key

    def transfer(self, row: int, *, direct: bool = False) -> Transfer:
        """The transfer of an access."""
        action = self.schedule.actions[row]
        assert isinstance(action, Write | Read | Discard)
        return Transfer(row, action, direct)

    def reads_between(self, first: int, last: int) -> list[int]:
        """The rows of the far reads from `first` to `last`, both included."""
        low, high = np.searchsorted(self._all_reads, (first, last + 1))
        rows: list[int] = self._all_reads[low:high].tolist()
        return rows

    def _peaks(self, actions: Actions, nbytes: NDArray[np.int64], here: NDArray[np.bool_]
    ) -> NDArray[np.int64]:  # fmt: skip
        """The most that the memory level holds from each action to the next far read."""
        sign = (actions.op == WRITE).astype(np.int64) - (actions.op == DISCARD)
        after = np.cumsum(np.where(here, sign * nbytes, 0))
        after += sum(map(self.stored_bytes, self.in_memory()))
        start = np.concatenate((after[:1] - np.where(here, sign * nbytes, 0)[:1], after[:-1]))
        most = np.maximum(start, after)
        # A running maximum from behind, which begins anew at each far read: of ranks, each stretch
        # of actions above the one behind it.
        values, rank = np.unique(most, return_inverse=True)
        stretch = np.searchsorted(self._all_reads, np.arange(len(most)))
        lift = (len(self._all_reads) - stretch) * len(values)
        running = np.maximum.accumulate((rank + lift)[::-1])[::-1] - lift
        peaks: NDArray[np.int64] = values[running] if len(most) else most
        return peaks


def memory_level(platform: Platform, /) -> int | None:
    """The level whose room is shared with what is on its way: the first, if it is plain memory."""
    first = platform.levels[0] if platform.levels else None
    plain = first is not None and first.backend == "ram" and "codec" not in first.options
    return 0 if plain else None


_COMPUTING: Final = REVERSE


def _clock(schedule: Schedule, platform: Platform) -> NDArray[np.float64]:
    """Seconds computed before each action, and in all."""
    seconds = np.where(schedule.actions.op <= _COMPUTING, seconds_of(schedule, platform), 0.0)
    return np.concatenate(([0.0], np.cumsum(seconds)))


def _sources(actions: Actions) -> NDArray[np.int64]:
    """Of each read, the row of the write that it reads; -1 for what was there at the start."""
    sources = np.full(len(actions), -1, np.int64)
    rows = np.flatnonzero(actions.op >= WRITE)
    here = actions.take(rows)
    names = (here.begin, here.name, here.kind, here.level)
    order = np.lexsort(names)
    if not len(order):
        return sources
    opens = np.zeros(len(order), np.bool_)
    opens[0] = True
    for column in names:
        opens[1:] |= column[order][1:] != column[order][:-1]
    group = np.cumsum(opens) - 1
    # A running maximum of the rows of writes, which begins anew with each key.
    lift = group * (len(actions) + 1)
    written = np.where(here.op[order] == WRITE, rows[order], -1)
    sources[rows[order]] = np.maximum.accumulate(written + lift) - lift
    return sources
