"""The rules of `machine.py`, said of whole columns: millions of actions checked in a second or two.

Every register before an action is the last value that an earlier action gave it, so each rule is a
comparison of columns. Only the verdict is taken from here: the `Machine` objects, in its own words.
What the registers hold of single variables is in `held.py`.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ckio.actions import Key, Kind, Write
from ckio.actions.columns import (
    DISCARD,
    KIND_CODE,
    READ,
    RECORD,
    REVERSE,
    WRITE,
    Actions,
)
from ckio.platform import Platform
from ckio.schedule import Schedule
from ckio.schedule.held import Held, Register, last
from ckio.schedule.machine import Machine

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
    replay, first = _Replay(schedule, platform), len(schedule)
    if replay.tells:
        broken = replay.first_broken()
        if broken is None:
            return replay.finish()
        first = broken
    for action in schedule.actions[: first + 1]:
        machine.apply(action)
    if replay.tells:
        raise AssertionError(
            f"replay and Machine disagree about {schedule.actions[first]}, #{first}"
        )
    return machine


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
        self.whole = actions.name == 0
        self.shelf = _Shelf.of(schedule)
        variables = schedule.chain.variables
        self.held = None if variables is None else Held(actions, variables, self.length)
        self.tells = self.held is None or self.held.settled

    def first_broken(self) -> int | None:
        """The number of the first action that breaks a rule, or None."""
        broken = self._shelf()
        broken |= self._capacity()
        broken |= self._working_memory()
        broken |= self._state()
        broken |= self._tape()
        broken |= self._adjoint()
        broken |= self._turn()
        if self.held is not None:
            broken |= self.held.wrong(self._seed_at()) | self.held.unknown()
        first = int(np.argmax(broken))
        return first if broken[first] else None

    def finish(self) -> Machine:
        """The machine after the last action of a legal schedule."""
        machine = Machine(
            self.schedule.chain, self.platform, self.shelf.left(len(self.platform.levels))
        )
        begin, end = (column[-1].item() for column in self._tape_span())
        if machine.versions is not None and self.held is not None:
            self.held.finish(machine.versions)
        machine.state, machine.adjoint = (
            self._state_register().last(),
            self._adjoint_register().last(),
        )
        machine.tape = (begin, end) if begin < end else None
        machine.turned = bool(self._reached().any())
        machine.reversed = bool(self.back.any())
        machine.count = len(self.schedule)
        return machine

    def _state_register(self) -> Register:
        read = self._is(READ, _RESTART) if self.held is None else False
        return Register(0, self.forward | read, np.where(self.forward, self.end, self.begin))

    def _tape_span(self) -> "tuple[_Ints, _Ints]":
        """The tape [begin, end) before each action and at the end; where it is empty none is held.

        A Reverse that finds the variables of its tape, but not the tape, leaves none.
        """
        record, read = self.op == RECORD, self._is(READ, _TAPE)
        end = np.where(record, self.end, self.begin + (read & self.whole))
        gives = record | read
        begins = Register(0, gives, self.begin).history()
        ends = Register(0, gives | self.back, end).history()
        if self.held is not None:
            lost = last(self.back & ~self._spans(begins, ends)) > last(gives)
            ends = np.where(lost, begins, ends)
        return begins, ends

    def _spans(self, begins: _Ints, ends: _Ints) -> _Mask:
        """Whether the tape [begin, end) has all steps of an action, and ends with them."""
        spans: _Mask = (begins[:-1] <= self.begin) & (ends[:-1] == self.end)
        return spans

    def _adjoint_register(self) -> Register:
        return Register(self.length, self.back | self._is(READ, _ADJOINT), self.begin)

    def _state(self) -> _Mask:
        broken: _Mask = self.forward & (self.end > self.length)
        if self.held is None:
            needs = self.forward | self._is(WRITE, _RESTART)
            broken |= needs & (self._state_register().before() != self.begin)
        return broken

    def _tape(self) -> _Mask:
        begins, ends = self._tape_span()
        broken: _Mask = self.back & ~self._spans(begins, ends)
        begin, end = begins[:-1], ends[:-1]
        write = self._is(WRITE, _TAPE) & self.whole
        broken |= write & ((begin != self.begin) | (end != self.begin + 1))
        if self.held is not None:
            broken &= ~self.held.tapes()
            broken |= self.held.lacks(begin, end)
        return broken

    def _adjoint(self) -> _Mask:
        adjoint = self._adjoint_register().before()
        broken: _Mask = self.back & (adjoint != self.end)
        broken |= self._is(WRITE, _ADJOINT) & (adjoint != self.begin)
        broken |= self._is(READ, _ADJOINT) & _after_first(self.back)
        return broken

    def _turn(self) -> _Mask:
        first: _Mask = self.back & (self.end == self.length)
        first &= ~_after_first(self._reached())
        return first

    def _seed_at(self) -> int | None:
        """Where the seed is read of x_n: the forward gets there, and the adjoint has not begun."""
        ends = np.flatnonzero(self.forward & (self.end == self.length))[:1]
        begun = _after_first(self._reached()) | (self._adjoint_register().before() < self.length)
        return next(iter(ends[~begun[ends]].tolist()), None)

    def _reached(self) -> _Mask:
        """Where the adjoint may start at n from here on."""
        reached: _Mask = self.forward & (self.end == self.length)
        reached |= self._is(READ, _ADJOINT) & (self.begin == self.length)
        return reached

    def _working_memory(self) -> _Mask:
        chain, room = self.schedule.chain, self.platform.working_memory
        record, read = self.op == RECORD, self._is(READ, _TAPE)
        broken: _Mask = record | read
        if not chain.varies:
            held = self.platform.tapes(chain)
            return broken & (np.where(record, self.end - self.begin, 1) > held)
        if room is None:
            return np.zeros(len(broken), np.bool_)
        broken &= chain.within(self.schedule.actions)
        end = np.where(record, self.end, self.begin + 1)
        nbytes = chain.tape_bytes_of(self.begin[broken], end[broken])
        broken[broken] = np.where(self.whole[broken], nbytes, chain.largest("tape")) > room
        return broken

    def _shelf(self) -> _Mask:
        access = self.op >= WRITE
        broken: _Mask = access & (self.schedule.actions.level >= len(self.platform.levels))
        broken |= access & (self.shelf.present == (self.op == WRITE))
        return broken

    def _capacity(self) -> _Mask:
        schedule, chain = self.schedule, self.schedule.chain
        nbytes = self._nbytes()
        write = self.op == WRITE
        sign = write.astype(np.int8) - (self.op == DISCARD)
        broken = np.zeros(len(self.op), np.bool_)
        for number, level in enumerate(self.platform.levels):
            if level.capacity is None:
                continue
            start = schedule.stored[number] if number < len(schedule.stored) else ()
            here = schedule.actions.level == number
            used = np.cumsum(np.where(here, sign * level.stored_of(nbytes), 0))
            used += sum(level.stored(chain.nbytes(key)) for key in start)
            broken |= here & write & (used > level.capacity)
        return broken

    def _nbytes(self) -> _Ints:
        """Of each action's key; 0 beyond the end of a chain whose steps differ.

        What is beyond has no size there, nor has a variable that is not known: both are illegal,
        whatever room there is.
        """
        actions, chain = self.schedule.actions, self.schedule.chain
        if not chain.varies and self.held is None:
            return chain.nbytes_of(actions)
        known, nbytes = chain.within(actions), np.zeros(len(actions), np.int64)
        if self.held is not None:
            known &= ~self.held.unknown()
        nbytes[known] = chain.nbytes_of(actions.take(known))
        return nbytes

    def _is(self, op: int, kind: int) -> _Mask:
        mask: _Mask = (self.op == op) & (self.kind == kind)
        return mask


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
