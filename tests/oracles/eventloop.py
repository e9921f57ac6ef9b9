"""One rank with overlap, simulated in the plainest way, from what `ckio.overlap` says in words.

Nothing of `ckio.overlap` or `ckio.sim` is used. What there is counted as it changes is here found
anew whenever it is asked for, from the whole history: which transfers began and ended when, and how
far the program is. So it is slow, and there is nothing to forget.
"""

from math import inf

from ckio.actions import Action, Discard, Read, Write
from ckio.platform import Level, Platform
from ckio.schedule import Schedule, seconds_of
from ckio.schedule.policy import Overlap

Span = tuple[float, float]


class EventLoop:
    """A schedule, performed from one instant to the next.

    Attributes
    ----------
    program : list of Span
        When each action of the program began and ended.
    transfers : dict of int to Span
        When each transfer began and ended, by the number of its action.
    """

    def __init__(self, schedule: Schedule, platform: Platform, overlap: Overlap) -> None:
        self.actions: list[Action] = list(schedule.actions)
        self.chain, self.platform, self.overlap = schedule.chain, platform, overlap
        self.costs: list[float] = seconds_of(schedule, platform).tolist()
        first = platform.levels[0]
        self.memory = first if first.backend == "ram" and "codec" not in first.options else None
        self.channels = [self._channel(row) for row in range(len(self.actions))]
        self.lying = self._lying_on_memory(schedule)
        self.sources = [self._source(row) for row in range(len(self.actions))]

        self.now = 0.0
        self.row = 0  # of the program's action, and what it does for it:
        self.since = 0.0  # it came to this action
        self.until: float | None = None  # it works on it until then; None: it waits
        self.waited = False  # whether it had to wait for this action
        self.direct: int | None = None  # it waits for the transfer of this action
        self.copied: int | None = None  # it copies from this write

        self.staged: set[int] = set()  # writes that were given to the pool
        self.cancelled: set[int] = set()
        self.asked: list[int] = []  # writes and discards that channels have to do, or did
        self.ahead: set[int] = set()  # reads that were begun before the program came to them
        self.begun: dict[int, float] = {}
        self.ends: dict[int, float] = {}
        self.ended: set[int] = set()
        self.program: list[Span] = []

    @property
    def transfers(self) -> dict[int, Span]:
        return {row: (self.begun[row], self.ends[row]) for row in self.ended}

    def under_way(self) -> set[int]:
        return self.ends.keys() - self.ended

    def run(self) -> "EventLoop":
        """To the end of the program, and of the last transfer."""
        channels = [level.channel for level in self.platform.levels if level is not self.memory]
        while True:
            self.ended |= {row for row, end in self.ends.items() if end == self.now}
            self.go_on()
            for channel in dict.fromkeys(channels):
                if not any(self.channels[row] == channel for row in self.under_way()):
                    self.begin_on(channel)
            coming = [self.ends[row] for row in self.under_way()]
            coming += [] if self.until is None else [self.until]
            if not coming:
                break
            self.now = min(coming)
        assert self.row == len(self.actions), f"action #{self.row} waits for ever"
        assert set(self.asked) - self.ended == self.cancelled, "what was asked for is not done"
        return self

    # The program

    def go_on(self) -> None:
        """The program goes on for as long as no time passes."""
        while self.row < len(self.actions):
            if self.until is None:
                self.until = self.enter()
                if self.until is None:
                    self.waited = True
                elif self.waited:
                    self.until += self.handoff(self.row)
            if self.until is None or self.until > self.now:
                return
            self.leave()

    def enter(self) -> float | None:
        """Until when the program works on its action, from now; None as long as it waits."""
        row, action = self.row, self.actions[self.row]
        match action:
            case Write() if self.level(row) is self.memory:
                seconds = self.platform.overhead + self.costs[row] + self.waits_longer(row)
                return self.now + seconds if self.fits(self.stored(row)) else None
            case Write() if self.is_far(row):
                return self.enter_write()
            case Read() if self.is_far(row):
                return self.enter_read()
            case Discard() if self.is_far(row):
                source = self.sources[row]
                if source is not None and self.is_staged(source) and source not in self.begun:
                    self.cancelled.add(source)
                else:
                    self.asked.append(row)
                return self.now
            case _:
                return self.now + (self.platform.overhead + self.costs[row])

    def enter_write(self) -> float | None:
        """It is copied to the pool; if nothing is staged and it cannot be, it is direct."""
        row = self.row
        if row == self.direct:
            return self.now if row in self.ended else None
        behind = [other for other in self.staged if self.is_staged(other)]
        most = inf if self.overlap.write_behind is None else self.overlap.write_behind
        if len(behind) < most and self.fits(self.nbytes(row)):
            self.staged.add(row)
            return self.now + self.own(row)
        if not behind:
            self.direct = row
            self.asked.append(row)
        return None

    def enter_read(self) -> float | None:
        """It is copied from where it is read ahead, or still staged; otherwise it is direct."""
        row, source = self.row, self.sources[self.row]
        if row == self.direct or (row in self.ahead and row not in self.ended):
            return self.now if row == self.direct and row in self.ended else None
        if row not in self.ahead:
            if source is None or not self.is_staged(source):
                self.direct = row
                return None
            self.copied = source
        return self.now + self.own(row)

    def leave(self) -> None:
        """The program's action has ended."""
        self.program.append((self.since, self.now))
        if self.row in self.staged:
            self.asked.append(self.row)
        self.row, self.since = self.row + 1, self.now
        self.until = self.direct = self.copied = None
        self.waited = False

    def own(self, row: int) -> float:
        """Seconds of the program for a write or a read that a channel does."""
        level, memory, is_write = self.level(row), self.memory, isinstance(self.actions[row], Write)
        price = None if memory is None else memory.write if is_write else memory.read
        if level is not None and level.profile is not None:
            measured = level.profile.write_own if is_write else level.profile.read_own
            price = price if measured is None else measured
        return 0.0 if price is None else price(self.nbytes(row))

    def handoff(self, row: int) -> float:
        """Seconds more of a far write or read for which the program had to wait."""
        level = self.level(row)
        if level is None or level.profile is None or not self.is_far(row):
            return 0.0
        return level.profile.handoff(self.nbytes(row))

    # The channels

    def begin_on(self, channel: str) -> None:
        """An idle channel begins what is first, if there is anything."""
        mine = [row for row, here in enumerate(self.channels) if here == channel]
        waits = self.direct in mine and self.direct not in self.begun
        if waits and self.direct is not None and isinstance(self.actions[self.direct], Read):
            self.begin(self.direct)
            return
        reads = (r for r in mine if isinstance(self.actions[r], Read) and r > self.row)
        following = next((row for row in reads if row not in self.begun), None)
        if not waits and following is not None and self.may_be_read_ahead(following):
            self.ahead.add(following)
            self.begin(following)
            return
        oldest = [row for row in sorted(self.asked) if row in mine]
        oldest = [row for row in oldest if row not in self.begun and row not in self.cancelled]
        if oldest:
            self.begin(oldest[0])

    def begin(self, row: int) -> None:
        """A transfer begins; one for which the program does not wait may hinder it."""
        seconds, action, level = self.costs[row], self.actions[row], self.level(row)
        profile = None if level is None else level.profile
        if profile is not None and isinstance(action, Discard) and self.until is not None:
            self.until += profile.discard_hinders(self.nbytes(row))
        if row != self.direct and profile is not None and not isinstance(action, Discard):
            is_write, nbytes = isinstance(action, Write), self.nbytes(row)
            beside = profile.write_beside if is_write else profile.read_beside
            seconds = seconds if beside is None else beside(nbytes)
            if self.until is not None:
                loss = profile.write_hinders if is_write else profile.read_hinders
                self.until += loss(nbytes)
        seconds += self.waits_longer(row)
        self.begun[row], self.ends[row] = self.now, self.now + seconds

    def waits_longer(self, row: int) -> float:
        """Seconds more of a write that begins now, where the operating system takes no more."""
        level = self.level(row)
        profile = None if level is None else level.profile
        if not isinstance(self.actions[row], Write) or profile is None or profile.dirty is None:
            return 0.0
        assert profile.drained is not None
        waiting = time = 0.0
        for end, nbytes in sorted(self._written_to(level)):
            waiting = max(0.0, waiting - profile.drained * (end - time)) + nbytes
            time = end
        waiting = max(0.0, waiting - profile.drained * (self.now - time))
        return max(0.0, (waiting + self.stored(row) - profile.dirty) / profile.drained)

    def _written_to(self, level: Level | None) -> list[Span]:
        """When each write to a level ended, and its bytes."""
        if level is self.memory:
            ends = {row: end for row, (_, end) in enumerate(self.program)}
        else:
            ends = {row: self.ends[row] for row in self.ended}
        here = (row for row in ends if self.level(row) is level)
        return [(ends[r], self.stored(r)) for r in here if isinstance(self.actions[r], Write)]

    def may_be_read_ahead(self, row: int) -> bool:
        """Whether this read may begin now, and its bytes lie in the pool up to its use."""
        source = self.sources[row]
        ahead = [other for other in self.ahead if other >= self.row]
        most = inf if self.overlap.read_ahead is None else self.overlap.read_ahead
        computing = (
            self.costs[at]
            for at in range(self.row + 1, row)
            if not isinstance(self.actions[at], Write | Read | Discard)
        )
        return (
            (source is None or (source in self.ended and source < self.row))
            and len(ahead) < most
            and sum(computing) <= self.overlap.horizon
            and self.fits(self.nbytes(row))
            and all(self.fits_at(at, row, ahead) for at in range(self.row, row + 1))
        )

    def fits_at(self, at: int, row: int, ahead: list[int]) -> bool:
        """Whether a read fits beside the memory level, and the reads ahead, during an action."""
        there = sum(self.nbytes(other) for other in ahead if other >= at)
        during = max(self.lying[at], self.lying[at + 1])
        return there + during + self.nbytes(row) <= self.room

    # The pool

    @property
    def room(self) -> float:
        capacity = None if self.memory is None else self.memory.capacity
        return inf if capacity is None else capacity

    def fits(self, nbytes: int) -> bool:
        return self.used() + nbytes <= self.room

    def used(self) -> int:
        """The bytes in the pool: of the memory level, of what is staged, of what is read ahead."""
        before, after = self.lying[self.row], self.lying[min(self.row + 1, len(self.actions))]
        found = before if self.until is None else max(before, after)
        staged = {row for row in self.staged if self.is_staged(row)} | {self.copied} - {None}
        ahead = {row for row in self.ahead if row >= self.row}
        return found + sum(self.nbytes(row) for row in staged | ahead if row is not None)

    def is_staged(self, row: int) -> bool:
        """Whether this write was given to the pool, and is neither written nor cancelled."""
        return row in self.staged and row not in self.ended and row not in self.cancelled

    # What is said in the schedule

    def level(self, row: int) -> Level | None:
        action = self.actions[row]
        if not isinstance(action, Write | Read | Discard):
            return None
        return self.platform.levels[action.level]

    def is_far(self, row: int) -> bool:
        return self.channels[row] is not None

    def _channel(self, row: int) -> str | None:
        """The channel that a transfer for this action would use."""
        level = self.level(row)
        return None if level is None or level is self.memory else level.channel

    def nbytes(self, row: int) -> int:
        """Of a checkpoint as it is staged, or read ahead."""
        action = self.actions[row]
        assert isinstance(action, Write | Read | Discard)
        return self.chain.nbytes(action.key)

    def stored(self, row: int) -> int:
        """Of a checkpoint as it lies on its level."""
        level = self.level(row)
        assert level is not None
        return level.stored(self.nbytes(row))

    def _lying_on_memory(self, schedule: Schedule) -> list[int]:
        """The bytes on the memory level before each action, and in the end."""
        memory = self.memory
        signs: dict[type[Action], int] = {Write: 1, Discard: -1}
        if memory is None:
            return [0] * (len(self.actions) + 1)
        there = schedule.stored[0] if schedule.stored else frozenset()
        found = [sum(memory.stored(self.chain.nbytes(key)) for key in there)]
        for row, action in enumerate(self.actions):
            sign = signs.get(type(action), 0) if self.level(row) is memory else 0
            found.append(found[-1] + (sign * self.stored(row) if sign else 0))
        return found

    def _source(self, row: int) -> int | None:
        """The write whose checkpoint this far access reads or discards; None if it was there."""
        if not self.is_far(row):
            return None
        here = self.actions[row]
        assert isinstance(here, Write | Read | Discard)
        written = Write(here.key, here.level)
        return next((at for at in reversed(range(row)) if self.actions[at] == written), None)


def synchronous(schedule: Schedule, platform: Platform) -> list[Span]:
    """When each action begins and ends where nothing overlaps: the program does all by itself."""
    loop = EventLoop(schedule, platform, Overlap())
    for row, seconds in enumerate(loop.costs):
        begin = loop.now
        loop.now += seconds + loop.waits_longer(row)
        loop.program.append((begin, loop.now))
        loop.ends[row] = loop.now
        loop.ended.add(row)
    return loop.program
