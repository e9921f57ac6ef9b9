"""What of a schedule matters later: which checkpoints are read again, and which tapes are used."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from ckio.actions import Advance, Discard, Key, Kind, Read, Record, Reverse, Write
from ckio.schedule import Schedule

Place = TypeVar("Place")


@dataclass(frozen=True, slots=True)
class Later:
    """Numbers of actions, by what comes of them.

    Attributes
    ----------
    read : set of int
        The Reads with which something is done: a step is computed or reversed, or what was read is
        written to where it is read again.
    written : set of int
        The Writes of what is read again. A checkpoint on two levels of one place is written once.
    last : set of int
        The Reads after which their checkpoint is not needed, and is discarded at some time.
    left : set of int
        The last Reads of checkpoints that are never discarded.
    taped : set of int
        The Records whose tape is reversed or stored.
    cleared : set of int
        The Reverses after which nothing is used of their tape.
    """

    read: set[int] = field(default_factory=set)
    written: set[int] = field(default_factory=set)
    last: set[int] = field(default_factory=set)
    left: set[int] = field(default_factory=set)
    taped: set[int] = field(default_factory=set)
    cleared: set[int] = field(default_factory=set)

    @staticmethod
    def of(schedule: Schedule, places: Mapping[int, Place], /) -> "Later":
        """Look through a legal schedule whose levels are in these places."""
        read, useful = _used(schedule)
        later = Later(read)
        _stays(schedule, places, useful, later)
        _tapes(schedule, later)
        return later


@dataclass(slots=True)
class _Stay(Generic[Place]):
    """A checkpoint in a place: who wrote it, who read it last, and on which levels it is."""

    written: int
    read: int = -1
    levels: set[int] = field(default_factory=set)


def _used(schedule: Schedule) -> tuple[set[int], set[int]]:
    """The Reads that are used, and the Writes of what they read; found from the end backwards."""
    read, written = set[int](), set[int]()
    wanted = set[tuple[Key, int]]()
    held = {Kind.RESTART: False, Kind.TAPE: False}  # whether what is in a register is used
    for number in reversed(range(len(schedule.actions))):
        match schedule.actions[number]:
            case Advance():
                held[Kind.RESTART] = True
            case Record():
                held[Kind.RESTART], held[Kind.TAPE] = True, False
            case Reverse():
                held[Kind.TAPE] = True
            case Write(key, level) if (key, level) in wanted:
                wanted.remove((key, level))
                written.add(number)
                held[key.kind] = True
            case Read(key, level):
                if held[key.kind]:
                    read.add(number)
                    wanted.add((key, level))
                held[key.kind] = False
            case Write() | Discard():
                pass
    return read, written


def _stays(schedule: Schedule, places: Mapping[int, Place], useful: set[int], later: Later) -> None:
    there: dict[tuple[Place, Key], _Stay[Place]] = {}
    for number, action in enumerate(schedule.actions):
        match action:
            case Write(key, level) if number in useful:
                there.setdefault((places[level], key), _Stay(number)).levels.add(level)
            case Read(key, level) if number in later.read:
                stay = there[places[level], key]
                stay.read = number
                later.written.add(stay.written)
            case Discard(key, level) if (places[level], key) in there:
                stay = there[places[level], key]
                stay.levels.discard(level)
                if not stay.levels:
                    later.last.add(there.pop((places[level], key)).read)
            case _:
                pass
    later.left.update(stay.read for stay in there.values() if stay.read >= 0)


def _tapes(schedule: Schedule, later: Later) -> None:
    record = reverse = -1
    for number, action in enumerate(schedule.actions):
        match action:
            case Record() | Read(Key(kind=Kind.TAPE)):
                later.cleared.add(reverse)
                record = number
            case Write(Key(kind=Kind.TAPE)) if number in later.written:
                later.taped.add(record)
            case Reverse():
                later.taped.add(record)
                reverse = number
            case _:
                pass
    later.cleared.add(reverse)
