"""The part of a schedule that has an effect: without useless reads and writes, on fewer levels."""

from collections.abc import Mapping

from ckio.actions import Action, Advance, Discard, Key, Kind, Read, Record, Reverse, Write
from ckio.schedule import Schedule

Numbered = list[tuple[int, Action]]
"""Actions, each with the number of the action of the original schedule that it comes from."""


def simplify(schedule: Schedule, levels: Mapping[int, int], /) -> Numbered:
    """Return the actions of a legal schedule that are needed, on other levels.

    Reads and writes are left out if no step is computed or reversed from the checkpoint. A
    checkpoint on two levels that become one is written once. It is discarded after its last read. A
    Record is an Advance if its tape is neither reversed nor stored.

    Parameters
    ----------
    schedule : Schedule
    levels : mapping of int to int
        The new number of each level.
    """
    needed = _needed(schedule)
    actions: Numbered = []
    ends: set[int] = set()  # indices in `actions` of the last Reads of discarded checkpoints
    reads: dict[tuple[Key, int], int] = {}  # the index of the last Read of each stored checkpoint
    stored: dict[tuple[Key, int], set[int]] = {}  # the original levels of each checkpoint
    for number, action in enumerate(schedule.actions):
        match action:
            case Record(begin, end) if number not in needed:
                actions.append((number, Advance(begin, end)))
            case Write(key, level) if number in needed:
                if (key, levels[level]) not in stored:
                    stored[key, levels[level]] = set()
                    actions.append((number, Write(key, levels[level])))
                stored[key, levels[level]].add(level)
            case Read(key, level) if number in needed:
                reads[key, levels[level]] = len(actions)
                actions.append((number, Read(key, levels[level])))
            case Discard(key, level) if level in stored.get((key, levels[level]), ()):
                stored[key, levels[level]].remove(level)
                if not stored[key, levels[level]]:
                    del stored[key, levels[level]]
                    ends.add(reads.pop((key, levels[level])))
            case Write() | Read() | Discard():
                pass
            case _:
                actions.append((number, action))
    ends.update(reads.values())
    result: Numbered = []
    for index, (number, action) in enumerate(actions):
        result.append((number, action))
        if index in ends and isinstance(action, Read):
            result.append((number, Discard(action.key, action.level)))
    return result


def _needed(schedule: Schedule) -> set[int]:
    """Return the numbers of the needed Reads and Writes, and of the Records whose tape is used.

    The schedule is searched from its end, because later actions decide whether a Read is used.
    """
    needed: set[int] = set()
    wanted: set[tuple[Key, int]] = set()
    used = {Kind.RESTART: False, Kind.TAPE: False}  # whether a later action uses the register
    for number in reversed(range(len(schedule.actions))):
        match schedule.actions[number]:
            case Advance():
                used[Kind.RESTART] = True
            case Record():
                if used[Kind.TAPE]:
                    needed.add(number)
                used[Kind.RESTART], used[Kind.TAPE] = True, False
            case Reverse():
                used[Kind.TAPE] = True
            case Write(key, level) if (key, level) in wanted:
                wanted.remove((key, level))
                needed.add(number)
                used[key.kind] = True
            case Read(key, level):
                if used[key.kind]:
                    needed.add(number)
                    wanted.add((key, level))
                used[key.kind] = False
            case Write() | Discard():
                pass
    return needed
