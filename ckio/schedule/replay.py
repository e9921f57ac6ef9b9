"""The rules of `machine.py` on whole columns: millions of actions are checked in seconds.

The contents of a register before an action are the last value that an earlier action gave to the
register. Therefore each rule is a comparison of columns. This module only decides which action is
the first that breaks a rule. The Machine then raises the error, with its message.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np

from ckio.actions import Key, Kind, Write
from ckio.actions.columns import (
    ADVANCE,
    DISCARD,
    KIND_CODE,
    READ,
    RECORD,
    REVERSE,
    WRITE,
    Actions,
)
from ckio.actions.variables import Bools, ChainFlows, Ints, Variables, following
from ckio.platform import Platform
from ckio.schedule import Schedule
from ckio.schedule.machine import Machine, Versions

NONE: Final = -1
"""Among needed versions, no version is needed. Among contents, there is no value of the forward
sweep.
"""

_RESTART, _TAPE, _ADJOINT = (KIND_CODE[kind] for kind in (Kind.RESTART, Kind.TAPE, Kind.ADJOINT))
_ROUNDS = 9
"""The most iterations to find the full steps."""


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


@dataclass(frozen=True)
class StepRows:
    """The rows of a schedule: one for each step of a Record or Reverse, one for any other action.

    `action` is the number of the action of each row, and [begin, end) are the steps of the row.
    `advance`, `record` and `reverse` are the rows of these actions. Spans beyond the end of the
    chain are in none of the three, because they are illegal in any case.
    """

    action: Ints
    begin: Ints
    end: Ints
    advance: Ints
    record: Ints
    reverse: Ints

    @staticmethod
    def of(actions: Actions, length: int, /) -> "StepRows":
        """Return the rows of a schedule for a chain of this length."""
        op, begin, end = actions.op, actions.begin, actions.end
        within = (op < WRITE) & (end <= length)
        each = within & (op != ADVANCE)
        count = np.where(each, end - begin, 1)
        action = np.repeat(np.arange(len(op)), count)
        nth = np.arange(len(action)) - np.repeat(np.cumsum(count) - count, count)
        back = each & (op == REVERSE)
        begin = np.where(back, end - 1, begin)[action] + np.where(back, -1, 1)[action] * nth
        at = (np.flatnonzero((within & (op == it))[action]) for it in (ADVANCE, RECORD, REVERSE))
        return StepRows(action, begin, np.where(each[action], begin + 1, end[action]), *at)

    def flow(self, steps: ChainFlows, name: str, full: Bools, /) -> "VariableFlow":
        """Return the flow of a variable through the steps; `full` has the recorded steps that are
        full.

        A recorded step is full if all data that its forward step uses are right.
        """
        size, version = len(self.action), steps.versions(name)
        need, value = np.full(size, NONE), np.full(size, NONE)
        gives, through = np.zeros(size, np.bool_), np.zeros(size, np.bool_)
        at, begin, end = self.advance, self.begin[self.advance], self.end[self.advance]
        used, over, whole = (
            np.append(following(steps.has(name, "forward", it)), steps.length)[begin]
            for it in ("use", "out", "kill")
        )
        use = (used < end) & (used <= whole)
        need[at] = np.where(use, version[begin], NONE)
        gives[at], value[at] = over < end, version[end]
        through[at] = (over < end) & ~use & (whole >= end)

        at, step = self.record, self.begin[self.record]
        use, out, kill = (steps.has(name, "record", it)[step] for it in ("use", "out", "kill"))
        uses, gets = (steps.has(name, "forward", it)[step] for it in ("use", "out"))
        gets &= full
        need[at] = np.where(use, version[step], NONE)
        gives[at], value[at] = out, np.where(gets, version[step + 1], NONE)
        through[at] = gets & ~use & ~uses & ~kill

        at, step = self.reverse, self.begin[self.reverse]
        restored = steps.restores(name)[step]
        need[at] = np.where(steps.has(name, "reverse", "use")[step], version[step + 1], NONE)
        gives[at] = restored | steps.has(name, "reverse", "out")[step]
        value[at] = np.where(restored, version[step], NONE)
        return VariableFlow(need, gives, value, through)


class VariableFlow(NamedTuple):
    """The flow of one variable, by rows.

    `need` is the version that a row needs, or NONE. `value` is the version after a row that `gives`
    the variable a value. `through` is true for a row that overwrites a part of the variable.
    """

    need: Ints
    gives: Bools
    value: Ints
    through: Bools


@dataclass(frozen=True)
class VariableColumn:
    """One variable, by rows: the version that each row needs, or NONE, and the register."""

    need: Ints
    register: Register
    before: Ints

    @property
    def wrong(self) -> Bools:
        """Whether the version is not the one that is needed."""
        wrong: Bools = (self.need != NONE) & (self.before != self.need)
        return wrong

    @property
    def after(self) -> Ints:
        """The contents after each row."""
        return np.where(self.register.gives, self.register.values, self.before)


class VariableColumns:
    """The versions of all variables in the registers, during a schedule.

    Attributes
    ----------
    settled : bool
        Whether the columns decide which actions are legal. They do not if many steps are wrong only
        because the step before is wrong, which is rare.
    """

    def __init__(self, actions: Actions, variables: Variables, length: int) -> None:
        self.actions, self.variables = actions, variables
        self.steps = variables.over(length)
        self._rows = StepRows.of(actions, length)
        self._columns = self._settle(self._rows)
        self.settled = self._columns.keys() == variables.nbytes.keys()

    def __getitem__(self, name: str) -> VariableColumn:
        return self._columns[name]

    def wrong(self, seed_at: int | None) -> Bools:
        """Return the actions that need a version that the register does not contain.

        `seed_at` is the action at which the seed is read from x_n, if there is one.
        """
        wrong = np.zeros(len(self.actions), np.bool_)
        for name, column in self._columns.items():
            wrong[self._rows.action[column.wrong]] = True
            if seed_at is not None and name in self.variables.seed:
                row = int(np.searchsorted(self._rows.action, seed_at, "right")) - 1
                wrong[seed_at] |= column.after[row] != self.steps.versions(name)[-1]
        return wrong

    def unknown(self) -> Bools:
        """Return the accesses of whole restart data, and of variables that do not exist."""
        actions = self.actions
        known = np.array([name in self.variables.nbytes for name in actions.names])
        named = actions.name > 0
        moved = (actions.op == WRITE) | (actions.op == READ)
        unknown: Bools = named & (~known[actions.name] | (actions.kind == _ADJOINT))
        unknown |= moved & ~named & (actions.kind == _RESTART)
        return unknown

    def tapes(self) -> Bools:
        """Return the Reverses of one step for which all variables of the tape were read."""
        actions, taped = self.actions, self.variables.taped
        complete: Bools = (actions.op == REVERSE) & (actions.end - actions.begin == 1)
        complete &= bool(taped) & (actions.end <= self.steps.length)
        at = np.flatnonzero(complete)
        step = actions.begin[at]
        for name in taped:
            right = self._taped[name].before()[at] == self.steps.versions(name)[step]
            complete[at] &= right | ~self.steps.has(name, "record", "use")[step]
        return complete

    def lacks(self, begin: Ints, end: Ints, /) -> Bools:
        """Return the Writes of a tape variable without this tape; the tape is [begin, end)."""
        actions = self.actions
        lacks: Bools = (actions.op == WRITE) & (actions.kind == _TAPE) & (actions.name > 0)
        for code, name in enumerate(actions.names):
            if name not in self._taped:
                continue
            at = np.flatnonzero(lacks & (actions.name == code))
            has, alone = (
                self._taped[name].before()[at],
                (end - begin == 1)[at] & (end[at] <= self.steps.length),
            )
            step = begin[at[alone]]
            on_tape = self.steps.has(name, "record", "use")[step] & (name in self.variables.tape)
            has[alone] = np.where(on_tape, self.steps.versions(name)[step], NONE)
            lacks[at] = has != actions.begin[at]
        return lacks

    def finish(self, versions: Versions, /) -> None:
        """Put the contents after the last action into `versions`."""
        after = {name: column.after[-1].item() for name, column in self._columns.items()}
        versions.held = {name: None if has == NONE else has for name, has in after.items()}
        taped = {name: register.last() for name, register in self._taped.items()}
        versions.taped = {name: has for name, has in taped.items() if has != NONE}
        versions.stands = self._stands()

    @cached_property
    def _taped(self) -> dict[str, Register]:
        """The registers of the variables of tapes that were read one by one."""
        actions = self.actions
        read = (actions.op == READ) & (actions.kind == _TAPE)
        clears = (actions.op == RECORD) | (read & (actions.name == 0))
        named = {name: read & (actions.name == code) for code, name in enumerate(actions.names)}
        nothing = np.zeros(len(actions), np.bool_)
        return {
            name: Register(NONE, clears | reads, np.where(reads, actions.begin, NONE))
            for name in self.variables.nbytes
            for reads in [named.get(name, nothing)]
        }

    def _stands(self) -> int | None:
        """Return the step that the forward sweep reached; None if a variable has changed since."""
        forward = np.flatnonzero(self.actions.op <= RECORD)
        since = int(forward[-1]) if len(forward) else -1
        for column in self._columns.values():
            at = np.flatnonzero(column.register.gives & (self._rows.action > since))
            action = self._rows.action[at]
            changes = action[1:] != action[:-1]
            first, end = np.append(True, changes)[: len(at)], np.append(changes, True)[: len(at)]
            if (column.before[at[first]] != column.register.values[at[end]]).any():
                return None
        return int(self.actions.end[since]) if len(forward) else 0

    def _settle(self, rows: StepRows) -> dict[str, VariableColumn]:
        """Return all columns, or an empty dictionary if the full steps cannot be determined."""
        names, step = self.variables.nbytes.keys(), rows.begin[rows.record]
        uses, tapes = (
            {name: self.steps.has(name, flow, "use")[step] for name in names}
            for flow in ("forward", "record")
        )
        used = {name for name in names if (uses[name] & ~tapes[name]).any()}
        full = np.ones(len(step), np.bool_)
        for _ in range(_ROUNDS):
            columns = {name: self._column(name, rows, full) for name in used}
            now = np.ones(len(step), np.bool_)
            for name in used:
                right = columns[name].before[rows.record] == self.steps.versions(name)[step]
                now &= right | ~uses[name] | tapes[name]
            if (now == full).all():
                return columns | {name: self._column(name, rows, full) for name in names - used}
            full = now
        return {}

    def _column(self, name: str, rows: StepRows, full: Bools) -> VariableColumn:
        version = self.steps.versions(name)
        need, gives, value, through = rows.flow(self.steps, name, full)
        for op, at in self._accesses(name, rows):
            if op == WRITE:
                need[at] = rows.begin[at]
            else:
                gives[at], value[at] = True, rows.begin[at]
        register = _spoilt(Register(0, gives, value), through, version[rows.begin * through])
        return VariableColumn(need, register, register.before())

    def _accesses(self, name: str, rows: StepRows) -> Iterator[tuple[int, Ints]]:
        """Yield WRITE, then READ, with the rows of these accesses to a variable's restart data."""
        actions = self.actions
        if name not in actions.names:
            return
        named = (actions.name == actions.names.index(name)) & (actions.kind == _RESTART)
        for op in (WRITE, READ):
            yield op, np.searchsorted(rows.action, np.flatnonzero(named & (actions.op == op)))


def _spoilt(register: Register, through: Bools, starts: Ints) -> Register:
    """Return the register, with NONE after a partial overwrite of a wrong version.

    `starts` are the versions that rows which overwrite a part of the variable need before.
    """
    at = np.flatnonzero(through)
    if not len(at):
        return register
    odd = np.zeros(len(through), np.bool_)
    odd[at] = register.before()[at] != starts[at]
    # [1:] looks from the next row, so that the row itself is included.
    spoilt = last(odd)[1:] > last(register.gives & ~through)[1:]
    values = np.where(through & spoilt, NONE, register.values)
    return Register(register.start, register.gives, values)


def validate(schedule: Schedule, platform: Platform, /) -> Machine:
    """Check that a schedule is legal, and return the machine after its last action.

    After a complete schedule, `adjoint` of the machine is 0. Raises IllegalAction for the first
    action that breaks a rule; the error names the action, the rule and the stored keys.
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
        self.whole = actions.name == 0
        self.keys = _StoredKeys.of(schedule)
        variables = schedule.chain.variables
        self.held = None if variables is None else VariableColumns(actions, variables, self.length)
        self.tells = self.held is None or self.held.settled

    def first_broken(self) -> int | None:
        """Return the number of the first action that breaks a rule, or None."""
        broken = self._stored()
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
        """Return the machine after the last action of a legal schedule."""
        machine = Machine(
            self.schedule.chain, self.platform, self.keys.left(len(self.platform.levels))
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

    def _tape_span(self) -> tuple[Ints, Ints]:
        """Return the tape [begin, end) before each action and at the end; it may be empty.

        After a Reverse that uses the variables of its tape, but not the tape register, there is no
        tape.
        """
        record, read = self.op == RECORD, self._is(READ, _TAPE)
        end = np.where(record, self.end, self.begin + (read & self.whole))
        gives = record | read
        begins = Register(0, gives, self.begin).history()
        ends = Register(0, gives | self.back, end).history()
        if self.held is not None:
            overwritten = last(self.back & ~self._spans(begins, ends)) > last(gives)
            ends = np.where(overwritten, begins, ends)
        return begins, ends

    def _spans(self, begins: Ints, ends: Ints) -> Bools:
        """Return whether the tape [begin, end) has all steps of an action, and ends with them."""
        spans: Bools = (begins[:-1] <= self.begin) & (ends[:-1] == self.end)
        return spans

    def _adjoint_register(self) -> Register:
        return Register(self.length, self.back | self._is(READ, _ADJOINT), self.begin)

    def _state(self) -> Bools:
        broken: Bools = self.forward & (self.end > self.length)
        if self.held is None:
            needs = self.forward | self._is(WRITE, _RESTART)
            broken |= needs & (self._state_register().before() != self.begin)
        return broken

    def _tape(self) -> Bools:
        begins, ends = self._tape_span()
        broken: Bools = self.back & ~self._spans(begins, ends)
        begin, end = begins[:-1], ends[:-1]
        write = self._is(WRITE, _TAPE) & self.whole
        broken |= write & ((begin != self.begin) | (end != self.begin + 1))
        if self.held is not None:
            broken &= ~self.held.tapes()
            broken |= self.held.lacks(begin, end)
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

    def _seed_at(self) -> int | None:
        """Return the action at which the seed is read from x_n, or None.

        At this action the forward sweep reaches n, and the adjoint has not begun.
        """
        ends = np.flatnonzero(self.forward & (self.end == self.length))[:1]
        begun = _after_first(self._reached()) | (self._adjoint_register().before() < self.length)
        return next(iter(ends[~begun[ends]].tolist()), None)

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
        nbytes = chain.tape_bytes_of(self.begin[broken], end[broken])
        broken[broken] = np.where(self.whole[broken], nbytes, chain.largest("tape")) > capacity
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
        size. Unknown variables have 0 bytes, too. Both are illegal, whatever space is free.
        """
        actions, chain = self.schedule.actions, self.schedule.chain
        if not chain.varies and self.held is None:
            return chain.nbytes_of(actions)
        known, nbytes = chain.within(actions), np.zeros(len(actions), np.int64)
        if self.held is not None:
            known &= ~self.held.unknown()
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
