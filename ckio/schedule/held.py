"""What the registers hold of each variable before each action: `versions.py`, in columns.

For one variable a row is an Advance, or one step of a Record or Reverse, or an access. It *needs* a
version to be there, and *gives* another one. What it gives may hang on what it finds:

* Overwritten in part, a variable is right after it if it was right before. Of such rows in a row
  the first that finds another version than it starts from spoils it for those after it.
* A recorded step leaves what the forward step does if it is *full*: if all that the forward uses is
  there, also what its tape can do without. That takes all variables, each of which may take it from
  steps recorded before: so all are taken for full, and asked again until nothing changes. What is
  found then is right, as each row hangs on earlier ones only.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from ckio.actions import Kind
from ckio.actions.columns import ADVANCE, KIND_CODE, READ, RECORD, REVERSE, WRITE, Actions
from ckio.actions.variables import Bools, Ints, Variables, following
from ckio.schedule.versions import Versions

NONE: Final = -1
"""As what is needed: nothing. As what is there: no value of the forward."""

_RESTART, _TAPE, _ADJOINT = (KIND_CODE[kind] for kind in (Kind.RESTART, Kind.TAPE, Kind.ADJOINT))
_ROUNDS, _AGAIN = 9, 9
"""How often is asked which steps are full, and how often each step may be recorded in the mean."""


@dataclass(frozen=True)
class Register:
    """What a register holds: `start`, then `values` of the last row that `gives` it one."""

    start: int
    gives: Bools
    values: Ints

    def history(self) -> Ints:
        """What it holds before each row, and after the last."""
        row = last(self.gives)
        held = self.values[row] if len(self.values) else row
        return np.where(row >= 0, held, self.start)

    def before(self) -> Ints:
        """What it holds before each row."""
        return self.history()[:-1]

    def last(self) -> int:
        """What it holds after the last row."""
        rows = np.flatnonzero(self.gives)
        return int(self.values[rows[-1]]) if len(rows) else self.start


def last(happens: Bools, /) -> Ints:
    """For each row, and the end, the last one before at which it happens; -1 if there is none."""
    row = np.full(len(happens) + 1, -1)
    row[1:][happens] = np.flatnonzero(happens)
    return np.maximum.accumulate(row)


@dataclass(frozen=True)
class _Rows:
    """The rows of a schedule: the action of each, and what it is on; a step is [begin, end).

    Those of spans beyond the end of the chain are nothing: these are not legal anyway.
    """

    action: Ints
    begin: Ints
    end: Ints
    advance: Ints
    record: Ints
    reverse: Ints

    @staticmethod
    def of(actions: Actions, length: int) -> "_Rows | None":
        """None where steps are recorded so often that their rows are too many."""
        op, begin, end = actions.op, actions.begin, actions.end
        within = (op < WRITE) & (end <= length)
        each = within & (op != ADVANCE)
        count = np.where(each, end - begin, 1)
        if count.sum(dtype=float) > _AGAIN * (len(op) + length):
            return None
        action = np.repeat(np.arange(len(op)), count)
        nth = np.arange(len(action)) - np.repeat(np.cumsum(count) - count, count)
        back = each & (op == REVERSE)
        begin = np.where(back, end - 1, begin)[action] + np.where(back, -1, 1)[action] * nth
        at = (np.flatnonzero((within & (op == it))[action]) for it in (ADVANCE, RECORD, REVERSE))
        return _Rows(action, begin, np.where(each[action], begin + 1, end[action]), *at)


@dataclass(frozen=True)
class Column:
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
        """What it holds after each row."""
        return np.where(self.register.gives, self.register.values, self.before)


class Held:
    """All variables over a schedule.

    Attributes
    ----------
    settled : bool
        Whether the columns say it: not where steps are recorded again and again, or where each
        finds something missing only because the one before it did. Those are seldom.
    """

    def __init__(self, actions: Actions, variables: Variables, length: int) -> None:
        self.actions, self.variables = actions, variables
        self.steps = variables.over(length)
        rows = _Rows.of(actions, length)
        self._columns = {} if rows is None else self._settle(rows)
        self.settled = rows is not None and self._columns.keys() == variables.nbytes.keys()
        if rows is not None:
            self._rows = rows

    def __getitem__(self, name: str) -> Column:
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
        found: Bools = (actions.op == REVERSE) & (actions.end - actions.begin == 1)
        found &= bool(taped) & (actions.end <= self.steps.length)
        at = np.flatnonzero(found)
        step = actions.begin[at]
        for name in taped:
            right = self._taped[name].before()[at] == self.steps.versions(name)[step]
            found[at] &= right | ~self.steps.has(name, "record", "use")[step]
        return found

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
            made = self.steps.has(name, "record", "use")[step] & (name in self.variables.tape)
            has[alone] = np.where(made, self.steps.versions(name)[step], NONE)
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

    def _settle(self, rows: _Rows) -> dict[str, Column]:
        """All columns; none of some where it is not settled which steps are full."""
        names, step = self.variables.nbytes.keys(), rows.begin[rows.record]
        uses, tapes = (
            {name: self.steps.has(name, flow, "use")[step] for name in names}
            for flow in ("forward", "record")
        )
        asked = {name for name in names if (uses[name] & ~tapes[name]).any()}
        full = np.ones(len(step), np.bool_)
        for _ in range(_ROUNDS):
            found = {name: self._column(name, rows, full) for name in asked}
            now = np.ones(len(step), np.bool_)
            for name in asked:
                there = found[name].before[rows.record] == self.steps.versions(name)[step]
                now &= there | ~uses[name] | tapes[name]
            if (now == full).all():
                return found | {name: self._column(name, rows, full) for name in names - asked}
            full = now
        return {}

    def _column(self, name: str, rows: _Rows, full: Bools) -> Column:
        size, version = len(rows.action), self.steps.versions(name)
        need, value = np.full(size, NONE), np.full(size, NONE)
        gives, through = np.zeros(size, np.bool_), np.zeros(size, np.bool_)
        at, begin, end = rows.advance, rows.begin[rows.advance], rows.end[rows.advance]
        used, over, whole = (
            following(self.steps.has(name, "forward", it))[begin] for it in ("use", "out", "kill")
        )
        use = (used < end) & (used <= whole)
        need[at] = np.where(use, version[begin], NONE)
        gives[at], value[at] = over < end, version[end]
        through[at] = (over < end) & ~use & (whole >= end)

        at, step = rows.record, rows.begin[rows.record]
        use, out, kill = (self.steps.has(name, "record", it)[step] for it in ("use", "out", "kill"))
        uses, made = (self.steps.has(name, "forward", it)[step] for it in ("use", "out"))
        made &= full
        need[at] = np.where(use, version[step], NONE)
        gives[at], value[at] = out, np.where(made, version[step + 1], NONE)
        through[at] = made & ~use & ~uses & ~kill

        at, step = rows.reverse, rows.begin[rows.reverse]
        restored = self.steps.restores(name)[step]
        need[at] = np.where(self.steps.has(name, "reverse", "use")[step], version[step + 1], NONE)
        gives[at] = restored | self.steps.has(name, "reverse", "out")[step]
        value[at] = np.where(restored, version[step], NONE)

        for op, at in self._accesses(name, rows):
            if op == WRITE:
                need[at] = rows.begin[at]
            else:
                gives[at], value[at] = True, rows.begin[at]
        register = _spoilt(Register(0, gives, value), through, version[rows.begin * through])
        return Column(need, register, register.before())

    def _accesses(self, name: str, rows: _Rows) -> Iterator[tuple[int, Ints]]:
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
