"""The rules of `machine.py`, said of whole columns: millions of actions checked in a second or two.

Every register before an action is the last value that an earlier action gave it, so each rule is a
comparison of columns. Only the verdict is taken from here: the `Machine` objects, in its own words.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ckio.actions import Key, Kind, Write
from ckio.columns import (
    DISCARD,
    KIND_CODE,
    READ,
    RECORD,
    REVERSE,
    WRITE,
    Actions,
)
from ckio.machine import Machine
from ckio.platforms import Platform
from ckio.schedule import Schedule

_Mask = NDArray[np.bool_]
_Ints = NDArray[np.int64]
_RESTART, _TAPE, _ADJOINT = (KIND_CODE[kind] for kind in (Kind.RESTART, Kind.TAPE, Kind.ADJOINT))


def validate(schedule: Schedule, platform: Platform, /) -> Machine:
    """The machine at the end of a legal schedule; a complete one leaves `adjoint` at 0.

    Raises IllegalAction with the first action that breaks a rule, the rule, and what is stored.
    """
    machine = Machine(schedule.chain, platform, schedule.stored)
    if not schedule.actions:
        return machine
    replay = _Replay(schedule, platform)
    broken = replay.first_broken()
    if broken is None:
        return replay.finish()
    for action in schedule.actions[: broken + 1]:
        machine.apply(action)
    raise AssertionError(f"replay and Machine disagree about {schedule.actions[broken]}, #{broken}")


class _Replay:
    """One pass over a schedule, a register at a time: its columns live only while they are used."""

    def __init__(self, schedule: Schedule, platform: Platform) -> None:
        self.schedule = schedule
        self.platform = platform
        actions = schedule.actions
        self.op, self.kind = actions.op, actions.kind
        self.begin, self.end = actions.begin, actions.end
        self.length = schedule.chain.length
        self.forward = self.op <= RECORD
        self.back = self.op == REVERSE
        self.last: dict[str, int] = {}
        self.shelf = _Shelf.of(schedule)

    def first_broken(self) -> int | None:
        """The number of the first action that breaks a rule, or None."""
        broken = self._shelf()
        broken |= self._capacity()
        broken |= self._working_memory()
        broken |= self._state()
        broken |= self._tape()
        broken |= self._adjoint()
        broken |= self._turn()
        first = int(np.argmax(broken))
        return first if broken[first] else None

    def finish(self) -> Machine:
        """The machine after the last action of a legal schedule."""
        machine = Machine(
            self.schedule.chain, self.platform, self.shelf.left(len(self.platform.levels))
        )
        machine.state, machine.adjoint = self.last["state"], self.last["adjoint"]
        held = self.last["tape begin"], self.last["tape end"]
        machine.tape = held if held[0] < held[1] else None
        machine.turned = bool(self._reached().any())
        machine.reversed = bool(self.back.any())
        machine.count = len(self.schedule)
        return machine

    def _state(self) -> _Mask:
        given = np.where(self.forward, self.end, self.begin)
        state = self._register("state", 0, self.forward | self._is(READ, _RESTART), given)
        broken: _Mask = (self.forward | self._is(WRITE, _RESTART)) & (state != self.begin)
        broken |= self.forward & (self.end > self.length)
        return broken

    def _tape(self) -> _Mask:
        """The tape [begin, end) is empty where the two are equal: at the start, and when spent."""
        record, read, write = self.op == RECORD, self._is(READ, _TAPE), self._is(WRITE, _TAPE)
        begin = self._register("tape begin", 0, record | read, self.begin)
        broken: _Mask = self.back & (begin > self.begin)
        broken |= write & (begin != self.begin)
        given = np.where(record, self.end, self.begin + read)
        end = self._register("tape end", 0, record | read | self.back, given)
        broken |= self.back & (end != self.end)
        broken |= write & (end != self.begin + 1)
        return broken

    def _adjoint(self) -> _Mask:
        read = self._is(READ, _ADJOINT)
        adjoint = self._register("adjoint", self.length, self.back | read, self.begin)
        broken: _Mask = self.back & (adjoint != self.end)
        broken |= self._is(WRITE, _ADJOINT) & (adjoint != self.begin)
        broken |= read & _after_first(self.back)
        return broken

    def _turn(self) -> _Mask:
        first: _Mask = self.back & (self.end == self.length)
        first &= ~_after_first(self._reached())
        return first

    def _reached(self) -> _Mask:
        """Where the adjoint may start at n from here on."""
        reached: _Mask = self.forward & (self.end == self.length)
        reached |= self._is(READ, _ADJOINT) & (self.begin == self.length)
        return reached

    def _working_memory(self) -> _Mask:
        room, each = self.platform.working_memory, self.schedule.chain.tape
        broken = np.zeros(len(self.op), np.bool_)
        if room is not None:
            broken |= (self.op == RECORD) & ((self.end - self.begin) * each > room)
            broken |= self._is(READ, _TAPE) & (each > room)
        return broken

    def _shelf(self) -> _Mask:
        access = self.op >= WRITE
        broken: _Mask = access & (self.schedule.actions.level >= len(self.platform.levels))
        broken |= access & (self.shelf.present == (self.op == WRITE))
        return broken

    def _capacity(self) -> _Mask:
        schedule, chain = self.schedule, self.schedule.chain
        nbytes = chain.nbytes_of(schedule.actions)
        write = self.op == WRITE
        sign = write.astype(np.int8) - (self.op == DISCARD)
        broken = np.zeros(len(self.op), np.bool_)
        for number, level in enumerate(self.platform.levels):
            if level.capacity is None:
                continue
            start = schedule.stored[number] if number < len(schedule.stored) else ()
            taken = nbytes if level.ratio == 1.0 else np.ceil(nbytes * level.ratio).astype(np.int64)
            here = schedule.actions.level == number
            used = np.cumsum(np.where(here, sign * taken, 0))
            used += sum(level.stored(chain.nbytes(key)) for key in start)
            broken |= here & write & (used > level.capacity)
        return broken

    def _is(self, op: int, kind: int) -> _Mask:
        mask: _Mask = (self.op == op) & (self.kind == kind)
        return mask

    def _register(self, name: str, start: int, given: _Mask, values: _Ints) -> _Ints:
        """A register before each action: `values` of the last row `given`, else `start`."""
        before = np.empty(len(given), np.int64)
        before[0] = -1
        rows = np.flatnonzero(given)
        self.last[name] = int(values[rows[-1]]) if len(rows) else start
        before[1:] = np.where(given, np.arange(len(given)), -1)[:-1]
        np.maximum.accumulate(before, out=before)
        return np.where(before >= 0, values[before], start)


def _after_first(mask: _Mask) -> _Mask:
    """Whether `mask` held at an earlier row."""
    first = int(np.argmax(mask)) if mask.any() else len(mask)
    return np.arange(len(mask)) > first


@dataclass(frozen=True)
class _Shelf:
    """What lies on the levels: whether an action finds its key there, and which keys remain."""

    present: _Mask
    remaining: Actions

    @staticmethod
    def of(schedule: Schedule) -> "_Shelf":
        """Group the accesses by (level, key); within a group the last Write or Discard decides.

        A group that a Write does not open is broken there; what follows in it decides nothing.
        """
        actions = schedule.actions
        starts = Actions.of(
            Write(key, number) for number, keys in enumerate(schedule.stored) for key in keys
        )
        access = np.flatnonzero(actions.op >= WRITE)
        rows = starts + actions.take(access)
        present = np.zeros(len(actions), np.bool_)
        if not len(rows):
            return _Shelf(present, rows)

        names = (rows.begin, rows.name, rows.kind, rows.level)
        order = np.lexsort(names)
        opens = np.ones(len(rows), np.bool_)
        opens[1:] = False
        for column in names:
            there = column[order]
            opens[1:] |= there[1:] != there[:-1]
        op = rows.op[order]
        changed = np.maximum.accumulate(np.where(op != READ, np.arange(len(rows)), 0))
        after = op[changed] == WRITE

        before = np.empty(len(rows), np.bool_)
        before[order] = np.concatenate(([False], after[:-1])) & ~opens
        present[access] = before[len(starts) :]
        closes = np.concatenate((opens[1:], [True]))
        return _Shelf(present, rows.take(order[closes & after]))

    def left(self, number_of_levels: int) -> list[set[Key]]:
        """The keys that remain, by level."""
        keys: list[set[Key]] = [set() for _ in range(number_of_levels)]
        for row in self.remaining.rows():
            keys[row[2]].add(self.remaining.key(row))
        return keys
