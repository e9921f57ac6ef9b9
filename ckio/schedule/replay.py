"""The rules of `machine.py` on whole columns: millions of actions are checked in seconds.

Every register before an action is the last value that an earlier action gave it, so each rule is a
comparison of columns. Only the verdict is taken from here: the `Machine` objects, in its own words.
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
"""Among needed versions: none is needed. Among contents: no value of the forward."""

_RESTART, _TAPE, _ADJOINT = (KIND_CODE[kind] for kind in (Kind.RESTART, Kind.TAPE, Kind.ADJOINT))
_ROUNDS, _AGAIN = 9, 9
"""How often is asked which steps are full, and how often each step may be recorded in the mean."""


@dataclass(frozen=True)
class Register:
    """The contents of a register: `start`, then `values` of the last row that `gives` it one."""

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
    """For each row, and the end, the last one before at which it happens; -1 if there is none."""
    row = np.full(len(happens) + 1, -1)
    row[1:][happens] = np.flatnonzero(happens)
    return np.maximum.accumulate(row)


@dataclass(frozen=True)
class StepRows:
    """The rows of a schedule: the action of each, and its steps [begin, end); which are of one op.

    Those of spans beyond the end of the chain are nothing: these are not legal anyway.
    """

    action: Ints
    begin: Ints
    end: Ints
    advance: Ints
    record: Ints
    reverse: Ints

    @staticmethod
    def of(actions: Actions, length: int, /) -> "StepRows":
        """The rows of a schedule for a chain of this length."""
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

    @staticmethod
    def are_few(actions: Actions, length: int, /) -> bool:
        """Whether steps are not recorded again and again, so that rows are not too many."""
        within = (actions.op < WRITE) & (actions.end <= length) & (actions.op != ADVANCE)
        count = np.where(within, actions.end - actions.begin, 1)
        return bool(count.sum(dtype=float) <= _AGAIN * (len(count) + length))

    def flow(self, steps: ChainFlows, name: str, full: Bools, /) -> "VariableFlow":
        """The flow of a variable through steps, of which these recorded ones are full."""
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
    """One variable by rows: the version needed, or NONE, and the `value` left where it `gives` one.

    It goes `through` a row that overwrites it in part.
    """

    need: Ints
    gives: Bools
    value: Ints
    through: Bools


@dataclass(frozen=True)
class VariableColumn:
    """One variable: what every row needs, or NONE; and the register, by rows."""

    need: Ints
    register: Register
    before: Ints

    @property
    def wrong(self) -> Bools:
        """Where it is not what is needed."""
        wrong: Bools = (self.need != NONE) & (self.before != self.need)
        return wrong

    @property
    def after(self) -> Ints:
        """Return the contents after each row."""
        return np.where(self.register.gives, self.register.values, self.before)


class VariableColumns:
    """The versions of all variables in the registers, over a schedule.

    Attributes
    ----------
    settled : bool
        Whether the columns say it: not where steps are recorded again and again, or where each
        finds something missing only because the one before it did. Those are seldom.
    """

    def __init__(self, actions: Actions, variables: Variables, length: int) -> None:
        self.actions, self.variables = actions, variables
        self.steps = variables.over(length)
        self._columns: dict[str, VariableColumn] = {}
        few = StepRows.are_few(actions, length)
        if few:
            self._rows = StepRows.of(actions, length)
            self._columns = self._settle(self._rows)
        self.settled = few and self._columns.keys() == variables.nbytes.keys()

    def __getitem__(self, name: str) -> VariableColumn:
        return self._columns[name]

    def wrong(self, seed_at: int | None) -> Bools:
        """The actions that need what is not there; where the seed is read of x_n, if anywhere."""
        wrong = np.zeros(len(self.actions), np.bool_)
        for name, column in self._columns.items():
            wrong[self._rows.action[column.wrong]] = True
            if seed_at is not None and name in self.variables.seed:
                row = int(np.searchsorted(self._rows.action, seed_at, "right")) - 1
                wrong[seed_at] |= column.after[row] != self.steps.versions(name)[-1]
        return wrong

    def unknown(self) -> Bools:
        """Accesses of what is not stored so: whole restart data, and variables of nothing."""
        actions = self.actions
        known = np.array([name in self.variables.nbytes for name in actions.names])
        named = actions.name > 0
        moved = (actions.op == WRITE) | (actions.op == READ)
        unknown: Bools = named & (~known[actions.name] | (actions.kind == _ADJOINT))
        unknown |= moved & ~named & (actions.kind == _RESTART)
        return unknown

    def tapes(self) -> Bools:
        """The Reverses of one step that find all variables of its tape, each read by itself."""
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
        """The Writes of a variable of a tape that is not held; [begin, end) is what is recorded."""
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
        """Put into registers what they hold after the last action."""
        after = {name: column.after[-1].item() for name, column in self._columns.items()}
        versions.held = {name: None if has == NONE else has for name, has in after.items()}
        taped = {name: register.last() for name, register in self._taped.items()}
        versions.taped = {name: has for name, has in taped.items() if has != NONE}
        versions.stands = self._stands()

    @cached_property
    def _taped(self) -> dict[str, Register]:
        """The variables of tapes that were read one by one."""
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
        """Where the forward came to, if nothing has changed since."""
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
        """All columns; none of some where it is not settled which steps are full."""
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
        """The rows of its Writes, and of its Reads, of restart data."""
        actions = self.actions
        if name not in actions.names:
            return
        named = (actions.name == actions.names.index(name)) & (actions.kind == _RESTART)
        for op in (WRITE, READ):
            yield op, np.searchsorted(rows.action, np.flatnonzero(named & (actions.op == op)))


def _spoilt(register: Register, through: Bools, starts: Ints) -> Register:
    """The register with NONE where what is overwritten in part was not as it `starts`."""
    at = np.flatnonzero(through)
    if not len(at):
        return register
    odd = np.zeros(len(through), np.bool_)
    odd[at] = register.before()[at] != starts[at]
    # Before the row after it, so that the row itself counts.
    spoilt = last(odd)[1:] > last(register.gives & ~through)[1:]
    values = np.where(through & spoilt, NONE, register.values)
    return Register(register.start, register.gives, values)


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
        self.keys = _StoredKeys.of(schedule)
        variables = schedule.chain.variables
        self.held = None if variables is None else VariableColumns(actions, variables, self.length)
        self.tells = self.held is None or self.held.settled

    def first_broken(self) -> int | None:
        """The number of the first action that breaks a rule, or None."""
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
        """The machine after the last action of a legal schedule."""
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
        """The tape [begin, end) before each action and at the end; where it is empty none is held.

        A Reverse that finds the variables of its tape, but not the tape, leaves none.
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
        """Whether the tape [begin, end) has all steps of an action, and ends with them."""
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
        first: Bools = self.back & (self.end == self.length)
        first &= ~_after_first(self._reached())
        return first

    def _seed_at(self) -> int | None:
        """Where the seed is read of x_n: the forward gets there, and the adjoint has not begun."""
        ends = np.flatnonzero(self.forward & (self.end == self.length))[:1]
        begun = _after_first(self._reached()) | (self._adjoint_register().before() < self.length)
        return next(iter(ends[~begun[ends]].tolist()), None)

    def _reached(self) -> Bools:
        """Where the adjoint may start at n from here on."""
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
            start = schedule.stored[number] if number < len(schedule.stored) else ()
            rows = schedule.actions.level == number
            used = np.cumsum(np.where(rows, sign * level.stored_of(nbytes), 0))
            used += sum(level.stored(chain.nbytes(key)) for key in start)
            broken |= rows & write & (used > level.capacity)
        return broken

    def _nbytes(self) -> Ints:
        """Of each action's key; 0 beyond the end of a chain whose steps differ.

        What is beyond has no size there, nor has a variable that is not known: both are illegal,
        whatever is free.
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
    """Whether `mask` held at an earlier row."""
    first = int(np.argmax(mask)) if mask.any() else len(mask)
    return np.arange(len(mask)) > first


@dataclass(frozen=True)
class _StoredKeys:
    """Keys on the levels: whether an action finds its key there, and which keys remain."""

    present: Bools
    remaining: Actions

    @staticmethod
    def of(schedule: Schedule) -> "_StoredKeys":
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
        """The keys that remain, by level."""
        keys: list[set[Key]] = [set() for _ in range(number_of_levels)]
        for row in self.remaining.rows():
            keys[row[2]].add(self.remaining.key(row))
        return keys
