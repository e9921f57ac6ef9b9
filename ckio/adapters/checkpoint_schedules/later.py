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

    written: set[int] = field(default_factory=set)
    last: set[int] = field(default_factory=set)
    left: set[int] = field(default_factory=set)
    taped: set[int] = field(default_factory=set)
    cleared: set[int] = field(default_factory=set)

    @staticmethod
    def of(schedule: Schedule, places: Mapping[int, Place], /) -> "Later":
        """Look through a legal schedule whose levels are in these places."""
        later = Later()
        _stays(schedule, places, later)
        _tapes(schedule, later)
        return later


@dataclass(slots=True)
class _Stay(Generic[Place]):
    """A checkpoint in a place: who wrote it, who read it last, and on which levels it is."""

    written: int
    read: int = -1
    levels: set[int] = field(default_factory=set)


def _stays(schedule: Schedule, places: Mapping[int, Place], later: Later) -> None:
    there: dict[tuple[Place, Key], _Stay[Place]] = {}
    for number, action in enumerate(schedule.actions):
        match action:
            case Write(key, level):
                there.setdefault((places[level], key), _Stay(number)).levels.add(level)
            case Read(key, level):
                stay = there[places[level], key]
                stay.read = number
                later.written.add(stay.written)
            case Discard(key, level):
                stay = there[places[level], key]
                stay.levels.remove(level)
                if not stay.levels:
                    later.last.add(there.pop((places[level], key)).read)
            case Advance() | Record() | Reverse():
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
