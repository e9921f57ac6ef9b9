"""A second look at a timeline with overlap: what must have happened, from its events alone.

Nothing here asks `ckio.overlap`. Transfers to and from far levels must take some time, so that the
order of events is clear, and costs be multiples of a small power of two, so that sums are exact.
"""

from collections import defaultdict
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from math import inf

from ckio.actions import Action, Discard, Key, Read, Write
from ckio.platform import Platform
from ckio.schedule import Schedule, seconds
from ckio.schedule.policy import Overlap
from ckio.schedule.timeline import Event, Timeline

ENDS, PROGRAM, BEGINS = range(3)
"""What comes first at one instant."""

Moment = tuple[float, int, int, int]
"""Seconds; ENDS, PROGRAM or BEGINS; the row of an action; before or after it at one instant."""


@dataclass
class Access:
    """An access of a far level, and its transfer if it has one."""

    row: int
    event: Event
    transfer: Event | None = None


@dataclass
class Stay:
    """One checkpoint on a far level: its write, what reads it, its discard."""

    write: Access | None
    reads: list[Access] = field(default_factory=list)
    discard: Access | None = None

    @property
    def staged(self) -> bool:
        """Whether the program copied it and went on."""
        if self.write is None:
            return False
        moved = self.write.transfer
        return moved is None or moved.start >= self.write.event.stop

    @property
    def written(self) -> float:
        """When it lies on the level; never, if its discard cancelled it."""
        if self.write is None:
            return -inf
        return inf if self.write.transfer is None else self.write.transfer.stop


@dataclass
class Replay:
    """A timeline with its transfers put to the accesses that they belong to."""

    schedule: Schedule
    platform: Platform
    overlap: Overlap
    timeline: Timeline

    def check(self) -> None:
        """Everything that is true of any timeline with overlap."""
        self.check_the_program()
        self.check_the_channels()
        for stays in self.stays.values():
            for stay in stays:
                self.check_stay(stay)
        self.check_levels()
        self.check_the_pool()
        self.check_counts()

    @cached_property
    def memory(self) -> int | None:
        first = self.platform.levels[0]
        return 0 if first.backend == "ram" and "codec" not in first.options else None

    @cached_property
    def stays(self) -> dict[tuple[int, Key], list[Stay]]:
        """What lay on far levels, by place and in order, with all transfers."""
        found: dict[tuple[int, Key], list[Stay]] = defaultdict(list)
        for level, keys in enumerate(self.schedule.stored):
            for key in keys:
                if level != self.memory:
                    found[level, key].append(Stay(None))
        for row, event in enumerate(self.timeline):
            match event.action:
                case Write(key, level) if level != self.memory:
                    found[level, key].append(Stay(Access(row, event)))
                case Read(key, level) if level != self.memory:
                    found[level, key][-1].reads.append(Access(row, event))
                case Discard(key, level) if level != self.memory:
                    found[level, key][-1].discard = Access(row, event)
                case _:
                    pass
        for (level, key), stays in found.items():
            self._give_transfers(stays, Write(key, level), Read(key, level), Discard(key, level))
        given = [t for stays in found.values() for stay in stays for t in _transfers(stay)]
        assert len(given) == len(self.timeline.transfers), "a transfer belongs to no access"
        return found

    def _give_transfers(
        self, stays: list[Stay], write: Write, read: Read, discard: Discard
    ) -> None:
        """Put the transfers of one place to its accesses, by their times."""
        moved = [event for event in self.timeline.transfers if event.action == write]
        for stay, following in pairwise([*stays, None]):
            assert stay is not None
            until = inf if following is None else following.write.event.start  # type: ignore[union-attr]
            gone = inf if stay.discard is None else stay.discard.event.start
            if stay.write is not None and moved and moved[0].start < min(until, gone):
                stay.write.transfer = moved.pop(0)
        made = [event for event in self.timeline.transfers if event.action == read]
        dropped = [event for event in self.timeline.transfers if event.action == discard]
        for stay in stays:
            for access in stay.reads:
                if not (stay.staged and access.event.start < stay.written):
                    access.transfer = made.pop(0)
            if stay.discard is not None and stay.written < inf:
                stay.discard.transfer = dropped.pop(0)
        assert not [*moved, *made, *dropped]

    @cached_property
    def accesses(self) -> dict[int, Access]:
        """Those that have a transfer, by row."""
        found = (access for stays in self.stays.values() for s in stays for access in _accesses(s))
        return {access.row: access for access in found if access.transfer is not None}

    def check_the_program(self) -> None:
        """One action after the other; computing and the memory level take what they cost."""
        assert self.timeline.actions == self.schedule.actions
        assert [e.start for e in self.timeline] == [0.0, *(e.stop for e in self.timeline)][
            : len(self.timeline)
        ]
        for event in self.timeline:
            took = event.stop - event.start
            match event.action:
                case Write(_, 0) if self.memory == 0:
                    assert took >= self._cost(event.action)
                case Write(_, _) | Read(_, _) | Discard(_, _) if event.action.level != self.memory:
                    pass
                case _:
                    assert took == self._cost(event.action)

    def check_the_channels(self) -> None:
        """One transfer at a time; none is late when it has nothing to wait for but its channel."""
        by_channel: dict[str, list[tuple[Event, Access]]] = defaultdict(list)
        for access in self.accesses.values():
            assert access.transfer is not None
            moved = access.transfer
            assert moved.stop - moved.start == self._cost(moved.action)
            by_channel[self._channel(moved.action)].append((moved, access))
        for served in by_channel.values():
            served.sort(key=lambda pair: (pair[0].start, pair[0].stop))
            ends = [0.0, *(moved.stop for moved, _ in served)]
            for (moved, access), free in zip(served, ends, strict=False):
                assert moved.start >= free
                match moved.action:
                    case Read() if moved.start >= access.event.start:
                        assert moved.start == max(free, access.event.start), "a direct read waits"
                        assert access.event.stop == moved.stop
                    case Write() if moved.start < access.event.stop:
                        assert access.event.stop == moved.stop, "a direct write is waited for"
                    case Write() | Discard():
                        assert moved.start == max(free, access.event.stop), "the channel is idle"
                    case _:
                        pass

    def check_stay(self, stay: Stay) -> None:
        """What is read was written, or is staged; what was written or cancelled is discarded."""
        gone = None if stay.discard is None else stay.discard.transfer
        for access in stay.reads:
            if access.transfer is not None:
                assert access.transfer.start >= stay.written
                assert gone is None or access.transfer.stop <= gone.start
                assert access.event.stop >= access.transfer.stop
            else:
                took = access.event.stop - access.event.start
                assert took == self._copy(access.event.action)
        if stay.written == inf:
            assert stay.discard is not None, "a write never reaches its level"
        elif stay.discard is not None:
            assert gone is not None
            assert gone.start >= max(stay.written, stay.discard.event.start)

    def check_levels(self) -> None:
        """Of each far level: writes and discards in the program's order, never above capacity."""
        for number, level in enumerate(self.platform.levels):
            if number == self.memory:
                continue
            here = [
                (access.transfer, row)
                for row, access in sorted(self.accesses.items())
                if access.transfer is not None
                and not isinstance(access.event.action, Read)
                and access.event.action.level == number  # type: ignore[union-attr]
            ]
            assert all(a.stop <= b.start for (a, _), (b, _) in pairwise(here))
            used = sum(level.stored(self._nbytes(key)) for key in self._stored(number))
            for moved, _ in here:
                nbytes = level.stored(self._nbytes(moved.action.key))  # type: ignore[union-attr]
                used += nbytes if isinstance(moved.action, Write) else -nbytes
                assert level.capacity is None or used <= level.capacity

    def check_the_pool(self) -> None:
        """Checkpoints on the memory level, staged writes and reads ahead fit in its capacity."""
        if self.memory is None:
            return
        level = self.platform.levels[self.memory]
        changes: list[tuple[Moment, int]] = []
        for row, event in enumerate(self.timeline):
            match event.action:
                case Write(key, self.memory):
                    begin = event.stop - self._cost(event.action)
                    changes.append(((begin, PROGRAM, row, 0), level.stored(self._nbytes(key))))
                case Discard(key, self.memory):
                    changes.append(
                        ((event.stop, PROGRAM, row, 1), -level.stored(self._nbytes(key)))
                    )
                case _:
                    pass
        for stays in self.stays.values():
            for stay in stays:
                changes += self._staged(stay)
                changes += [change for access in stay.reads for change in self._ahead(access)]
        used = sum(level.stored(self._nbytes(key)) for key in self._stored(self.memory))
        for _, change in sorted(changes):
            used += change
            assert level.capacity is None or used <= level.capacity

    def check_counts(self) -> None:
        """No more is staged, or read ahead, than the policy allows; and no sooner."""
        behind, ahead = [], []
        for stays in self.stays.values():
            for stay in stays:
                if (span := self._staging(stay)) is not None:
                    behind += [(span[0], 1), (span[1], -1)]
                for access in stay.reads:
                    change = self._ahead(access)
                    ahead += [(moment, 1 if nbytes > 0 else -1) for moment, nbytes in change]
                    if change:
                        self._check_horizon(access)
        for changes, most in (
            (behind, self.overlap.write_behind),
            (ahead, self.overlap.read_ahead),
        ):
            count = 0
            for _, change in sorted(changes):
                count += change
                assert most is None or count <= most

    def _check_horizon(self, access: Access) -> None:
        assert access.transfer is not None
        begun = access.transfer.start
        now = max(row for row, event in enumerate(self.timeline) if event.start <= begun)
        between = self.schedule.actions[now + 1 : access.row]
        computed = sum(self._cost(a) for a in between if not isinstance(a, Write | Read | Discard))
        assert computed <= self.overlap.horizon

    def _staging(self, stay: Stay) -> tuple[Moment, Moment] | None:
        """From when to when a write is staged, copies of it aside."""
        if not stay.staged:
            return None
        assert stay.write is not None
        event, row = stay.write.event, stay.write.row
        begin = event.stop - self._copy(event.action), PROGRAM, row, 0
        if stay.write.transfer is not None:
            return begin, (stay.written, ENDS, row, 0)
        assert stay.discard is not None
        return begin, (stay.discard.event.stop, PROGRAM, stay.discard.row, 1)

    def _staged(self, stay: Stay) -> list[tuple[Moment, int]]:
        """What a staged write takes of the pool, to the end of the last copy made from it."""
        if (span := self._staging(stay)) is None:
            return []
        assert stay.write is not None
        copied = [access for access in stay.reads if access.transfer is None]
        ends = [(access.event.stop, PROGRAM, access.row, 1) for access in copied]
        nbytes = self._nbytes(stay.write.event.action.key)  # type: ignore[union-attr]
        return [(span[0], nbytes), (max([span[1], *ends]), -nbytes)]

    def _ahead(self, access: Access) -> list[tuple[Moment, int]]:
        """What a read takes of the pool, if it was made ahead."""
        moved, used = access.transfer, access.event
        if moved is None or moved.start >= used.start:
            return []
        assert used.stop == max(used.start, moved.stop) + self._copy(used.action)
        nbytes = self._nbytes(used.action.key)  # type: ignore[union-attr]
        return [
            ((moved.start, BEGINS, access.row, 0), nbytes),
            ((used.stop, PROGRAM, access.row, 1), -nbytes),
        ]

    def _cost(self, action: Action) -> float:
        return seconds(action, self.schedule.chain, self.platform)

    def _copy(self, action: Action) -> float:
        """Seconds of a copy to or from the pool."""
        match action:
            case Write(key, _) if self.memory is not None:
                return self.platform.levels[self.memory].write(self._nbytes(key))
            case Read(key, _) if self.memory is not None:
                return self.platform.levels[self.memory].read(self._nbytes(key))
            case _:
                return 0.0

    def _nbytes(self, key: Key) -> int:
        return self.schedule.chain.nbytes(key)

    def _stored(self, number: int) -> frozenset[Key]:
        return self.schedule.stored[number] if number < len(self.schedule.stored) else frozenset()

    def _channel(self, action: Action) -> str:
        assert isinstance(action, Write | Read | Discard)
        return self.platform.levels[action.level].channel


def _accesses(stay: Stay) -> list[Access]:
    ends = [access for access in (stay.write, stay.discard) if access is not None]
    return [*ends, *stay.reads]


def _transfers(stay: Stay) -> list[Event]:
    return [access.transfer for access in _accesses(stay) if access.transfer is not None]
