"""The rules of `machine.py` on whole columns: millions of actions are checked in seconds.

The contents of a register before an action are the last value that an earlier action gave to the
register. Therefore each rule is a comparison of columns. This module only decides which action is
the first that breaks a rule. The Machine then raises the error, with its message. If single
variables are stored, the Machine performs all actions, which takes about 10 us for each.
"""

from dataclasses import dataclass

import numpy as np

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
from ckio.actions.variables import Bools, Ints
from ckio.platform import Platform
from ckio.schedule import Schedule
from ckio.schedule.machine import Machine

_RESTART, _TAPE, _ADJOINT = (KIND_CODE[kind] for kind in (Kind.RESTART, Kind.TAPE, Kind.ADJOINT))


@dataclass(frozen=True)
class Register:
    """The contents of a register: first `start`, then `values` of the last row that `gives` one.

    >>> register = Register(0, np.array([False, True, False]), np.array([9, 4, 9]))
    >>> register.history(), register.before(), register.last()
    (array([0, 0, 4, 4]), array([0, 0, 4]), 4)
    """

    start: int
    gives: Bools
    values: Ints

    def history(self) -> Ints:
        """Return the contents before each row, and after the last."""
        row = last(self.gives)
        values = self.values[row] if len(self.values) else row
        return np.where(row >= 0, values, self.start)

    def before(self) -> Ints:
        """Return the contents before each row."""
        return self.history()[:-1]

    def last(self) -> int:
        """Return the contents after the last row."""
        rows = np.flatnonzero(self.gives)
        return int(self.values[rows[-1]]) if len(rows) else self.start


def last(happens: Bools, /) -> Ints:
    """Return, for each row and for the end, the last row before it where `happens` is true, or -1.

    >>> last(np.array([False, True, False]))
    array([-1, -1,  1,  1])
    """
    row = np.full(len(happens) + 1, -1)
    row[1:][happens] = np.flatnonzero(happens)
    return np.maximum.accumulate(row)


def validate(schedule: Schedule, platform: Platform, /) -> Machine:
    """Check that a schedule is legal, and return the machine after its last action.

    After a complete schedule, `adjoint` of the machine is 0. Raises IllegalAction for the first
    action that breaks a rule; the error names the action, the rule and the stored keys.
    """
    machine = Machine(schedule.chain, platform, schedule.stored)
    if not schedule.actions:
        return machine
    first = None
    if schedule.chain.variables is None:
        replay = _Replay(schedule, platform)
        first = replay.first_broken()
        if first is None:
            return replay.finish()
    for action in schedule.actions[: None if first is None else first + 1]:
        machine.apply(action)
    if first is not None:
        raise AssertionError(
            f"replay and Machine disagree on the action {schedule.actions[first]}, #{first}"
        )
    return machine


class _Replay:
    """One check of a schedule, a register at a time, so that few columns are in memory together."""

    def __init__(self, schedule: Schedule, platform: Platform) -> None:
        self.schedule = schedule
        self.platform = platform
        actions = schedule.actions
        self.op, self.kind = actions.op, actions.kind
        self.begin, self.end = actions.begin, actions.end
        self.length = schedule.chain.length
        self.forward = self.op <= RECORD
        self.back = self.op == REVERSE
        self.keys = _StoredKeys.of(schedule)

    def first_broken(self) -> int | None:
        """Return the number of the first action that breaks a rule, or None."""
        broken = self._stored()
        broken |= self._capacity()
        broken |= self._working_memory()
        broken |= self._state()
        broken |= self._tape()
        broken |= self._adjoint()
        broken |= self._turn()
        first = int(np.argmax(broken))
        return first if broken[first] else None

    def finish(self) -> Machine:
        """Return the machine after the last action of a legal schedule."""
        machine = Machine(
            self.schedule.chain, self.platform, self.keys.left(len(self.platform.levels))
        )
        begin, end = (column[-1].item() for column in self._tape_span())
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
        gives, values = self.forward | self._is(READ, _RESTART), self.begin
        if self.schedule.chain.tape_restarts:
            gives, values = gives | (tape := self._is(READ, _TAPE)), values + tape
        return Register(0, gives, np.where(self.forward, self.end, values))

    def _tape_span(self) -> tuple[Ints, Ints]:
        """Return the tape [begin, end) before each action and at the end; it may be empty."""
        record, read = self.op == RECORD, self._is(READ, _TAPE)
        end = np.where(record, self.end, self.begin + read)
        gives = record | read
        begins = Register(0, gives, self.begin).history()
        ends = Register(0, gives | self.back, end).history()
        return begins, ends

    def _adjoint_register(self) -> Register:
        return Register(self.length, self.back | self._is(READ, _ADJOINT), self.begin)

    def _state(self) -> Bools:
        broken: Bools = self.forward & (self.end > self.length)
        needs = self.forward | self._is(WRITE, _RESTART)
        broken |= needs & (self._state_register().before() != self.begin)
        return broken

    def _tape(self) -> Bools:
        begin, end = (column[:-1] for column in self._tape_span())
        broken: Bools = self.back & ((begin > self.begin) | (end != self.end))
        write = self._is(WRITE, _TAPE)
        broken |= write & ((begin != self.begin) | (end != self.begin + 1))
        return broken

    def _adjoint(self) -> Bools:
        adjoint = self._adjoint_register().before()
        broken: Bools = self.back & (adjoint != self.end)
        broken |= self._is(WRITE, _ADJOINT) & (adjoint != self.begin)
        broken |= self._is(READ, _ADJOINT) & _after_first(self.back)
        return broken

    def _turn(self) -> Bools:
        starts: Bools = self.back & (self.end == self.length)
        starts |= self._is(WRITE, _ADJOINT) & (self.begin == self.length)
        return starts & ~_after_first(self._reached())

    def _reached(self) -> Bools:
        """Return the actions after which the adjoint may start at n."""
        reached: Bools = self.forward & (self.end == self.length)
        reached |= self._is(READ, _ADJOINT) & (self.begin == self.length)
        return reached

    def _working_memory(self) -> Bools:
        chain, capacity = self.schedule.chain, self.platform.working_memory
        record, read = self.op == RECORD, self._is(READ, _TAPE)
        broken: Bools = record | read
        if not chain.varies:
            most = self.platform.tapes(chain)
            return broken & (np.where(record, self.end - self.begin, 1) > most)
        if capacity is None:
            return np.zeros(len(broken), np.bool_)
        broken &= chain.within(self.schedule.actions)
        end = np.where(record, self.end, self.begin + 1)
        broken[broken] = chain.tape_bytes_of(self.begin[broken], end[broken]) > capacity
        return broken

    def _stored(self) -> Bools:
        access = self.op >= WRITE
        broken: Bools = access & (self.schedule.actions.level >= len(self.platform.levels))
        broken |= access & (self.keys.present == (self.op == WRITE))
        return broken

    def _capacity(self) -> Bools:
        schedule, chain = self.schedule, self.schedule.chain
        nbytes = self._nbytes()
        write = self.op == WRITE
        sign = write.astype(np.int8) - (self.op == DISCARD)
        broken = np.zeros(len(self.op), np.bool_)
        for number, level in enumerate(self.platform.levels):
            if level.read_only:
                broken |= (schedule.actions.level == number) & write
            if level.capacity is None:
                continue
            rows = schedule.actions.level == number
            used = np.cumsum(np.where(rows, sign * level.stored_of(nbytes), 0))
            used += sum(level.stored(chain.nbytes(key)) for key in schedule.stored_on(number))
            broken |= rows & write & (used > level.capacity)
        return broken

    def _nbytes(self) -> Ints:
        """Return the bytes of each action's key.

        If the steps differ, keys beyond the end of the chain have 0 bytes, because they have no
        size. They are illegal, whatever space is free.
        """
        actions, chain = self.schedule.actions, self.schedule.chain
        if not chain.varies:
            return chain.nbytes_of(actions)
        known, nbytes = chain.within(actions), np.zeros(len(actions), np.int64)
        nbytes[known] = chain.nbytes_of(actions.take(known))
        return nbytes

    def _is(self, op: int, kind: int) -> Bools:
        mask: Bools = (self.op == op) & (self.kind == kind)
        return mask


def _after_first(mask: Bools) -> Bools:
    """Return whether `mask` was true at an earlier row."""
    first = int(np.argmax(mask)) if mask.any() else len(mask)
    return np.arange(len(mask)) > first


@dataclass(frozen=True)
class _StoredKeys:
    """The keys on the levels: whether an action finds its key stored, and which keys remain."""

    present: Bools
    remaining: Actions

    @staticmethod
    def of(schedule: Schedule) -> "_StoredKeys":
        """Group the accesses by (level, key). In a group, the last Write or Discard decides.

        A group that does not begin with a Write is illegal there; its later accesses do not matter.
        """
        actions = schedule.actions
        starts = Actions.of(
            Write(key, number) for number, keys in enumerate(schedule.stored) for key in keys
        )
        access = np.flatnonzero(actions.op >= WRITE)
        rows = starts + actions.take(access)
        present = np.zeros(len(actions), np.bool_)
        if not len(rows):
            return _StoredKeys(present, rows)

        order, opens = rows.by_key()
        op = rows.op[order]
        changed = np.maximum.accumulate(np.where(op != READ, np.arange(len(rows)), 0))
        after = op[changed] == WRITE

        before = np.empty(len(rows), np.bool_)
        before[order] = np.concatenate(([False], after[:-1])) & ~opens
        present[access] = before[len(starts) :]
        closes = np.concatenate((opens[1:], [True]))
        return _StoredKeys(present, rows.take(order[closes & after]))

    def left(self, number_of_levels: int) -> list[set[Key]]:
        """Return the keys that remain, by level."""
        keys: list[set[Key]] = [set() for _ in range(number_of_levels)]
        for row in self.remaining.rows():
            keys[row[2]].add(self.remaining.key(row))
        return keys
