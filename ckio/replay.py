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
    KINDS,
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
    columns = _Columns.of(schedule)
    broken = columns.first_broken(schedule, platform)
    if broken is None:
        return columns.finish(schedule, platform)
    for action in schedule.actions[: broken + 1]:
        machine.apply(action)
    raise AssertionError(f"replay and Machine disagree about {schedule.actions[broken]}, #{broken}")


@dataclass(frozen=True)
class _Register:
    """A register of the machine: its value before each action, and after the last."""

    before: _Ints
    last: int

    @staticmethod
    def of(start: int, given: _Mask, values: _Ints) -> "_Register":
        """The register that starts at `start` and takes `values` where `given`."""
        row = np.maximum.accumulate(np.where(given, np.arange(len(given)), -1))
        after = np.where(row >= 0, values[row], start)
        return _Register(np.concatenate(([start], after[:-1])), int(after[-1]))


@dataclass(frozen=True)
class _Columns:
    state: _Register
    tape_begin: _Register
    tape_end: _Register
    adjoint: _Register
    turned: _Register
    reversed: _Register
    shelf: "_Shelf"

    @staticmethod
    def of(schedule: Schedule) -> "_Columns":
        actions, steps = schedule.actions, schedule.chain.length
        op, begin, end = actions.op, actions.begin, actions.end
        forward = op <= RECORD
        reads = [(op == READ) & (actions.kind == code) for code in range(len(KINDS))]
        reached = (forward & (end == steps)) | (reads[_ADJOINT] & (begin == steps))
        holds = (op == RECORD) | reads[_TAPE]
        return _Columns(
            state=_Register.of(0, forward | reads[_RESTART], np.where(forward, end, begin)),
            tape_begin=_Register.of(0, holds, begin),
            tape_end=_Register.of(
                0,
                holds | (op == REVERSE),
                np.select([op == RECORD, op == REVERSE], [end, begin], begin + 1),
            ),
            adjoint=_Register.of(steps, (op == REVERSE) | reads[_ADJOINT], begin),
            turned=_Register.of(0, reached, np.ones(len(op), np.int64)),
            reversed=_Register.of(0, op == REVERSE, np.ones(len(op), np.int64)),
            shelf=_Shelf.of(schedule),
        )

    def first_broken(self, schedule: Schedule, platform: Platform) -> int | None:
        """The number of the first action that breaks a rule, or None."""
        actions = schedule.actions
        broken = self._broken_spans(schedule, platform)
        broken |= self._broken_accesses(actions, platform, schedule.chain.tape)
        broken |= self._over_capacity(schedule, platform)
        first = int(np.argmax(broken))
        return first if broken[first] else None

    def _broken_spans(self, schedule: Schedule, platform: Platform) -> _Mask:
        actions, chain = schedule.actions, schedule.chain
        op, begin, end = actions.op, actions.begin, actions.end
        forward, back = op <= RECORD, op == REVERSE
        broken: _Mask = forward & ((self.state.before != begin) | (end > chain.length))
        if platform.working_memory is not None:
            broken |= (op == RECORD) & ((end - begin) * chain.tape > platform.working_memory)
        broken |= back & (self.adjoint.before != end)
        broken |= back & ((self.tape_end.before != end) | (self.tape_begin.before > begin))
        broken |= back & (end == chain.length) & (self.turned.before == 0)
        return broken

    def _broken_accesses(self, actions: Actions, platform: Platform, tape: int) -> _Mask:
        op, kind, step = actions.op, actions.kind, actions.begin
        held = np.select(
            [kind == _RESTART, kind == _TAPE],
            [
                self.state.before == step,
                (self.tape_begin.before == step) & (self.tape_end.before == step + 1),
            ],
            self.adjoint.before == step,
        )
        broken: _Mask = (op >= WRITE) & (actions.level >= len(platform.levels))
        broken |= (op == WRITE) & (~held | self.shelf.present)
        broken |= ((op == READ) | (op == DISCARD)) & ~self.shelf.present
        broken |= (op == READ) & (kind == _ADJOINT) & (self.reversed.before == 1)
        if platform.working_memory is not None and tape > platform.working_memory:
            broken |= (op == READ) & (kind == _TAPE)
        return broken

    def _over_capacity(self, schedule: Schedule, platform: Platform) -> _Mask:
        actions, chain = schedule.actions, schedule.chain
        nbytes = chain.nbytes_of(actions)
        change = (actions.op == WRITE).astype(np.int64) - (actions.op == DISCARD)
        broken = np.zeros(len(actions), np.bool_)
        for number, level in enumerate(platform.levels):
            if level.capacity is None:
                continue
            start = schedule.stored[number] if number < len(schedule.stored) else ()
            taken = nbytes if level.ratio == 1.0 else np.ceil(nbytes * level.ratio).astype(np.int64)
            here = actions.level == number
            used = np.cumsum(np.where(here, change * taken, 0))
            used += sum(level.stored(chain.nbytes(key)) for key in start)
            broken |= here & (actions.op == WRITE) & (used > level.capacity)
        return broken

    def finish(self, schedule: Schedule, platform: Platform) -> Machine:
        """The machine after the last action of a legal schedule."""
        machine = Machine(schedule.chain, platform, self.shelf.left(len(platform.levels)))
        machine.state = self.state.last
        machine.adjoint = self.adjoint.last
        held = self.tape_begin.last, self.tape_end.last
        machine.tape = held if held[0] < held[1] else None
        machine.turned, machine.reversed = bool(self.turned.last), bool(self.reversed.last)
        machine.count = len(schedule.actions)
        return machine


@dataclass(frozen=True)
class _Shelf:
    """What lies on the levels: whether an action finds its key there, and which keys remain."""

    present: _Mask
    remaining: tuple[tuple[int, Key], ...]

    @staticmethod
    def of(schedule: Schedule) -> "_Shelf":
        """Group the accesses by (level, key); within a group the last Write or Discard decides."""
        actions = schedule.actions
        starts = Actions.of(
            Write(key, number) for number, keys in enumerate(schedule.stored) for key in keys
        )
        access = np.flatnonzero(actions.op >= WRITE)
        rows = starts + actions.take(access)
        present = np.zeros(len(actions), np.bool_)
        if not len(rows):
            return _Shelf(present, ())

        group = rows.level.astype(np.int64)
        for column in (rows.kind, rows.name, rows.begin):
            group = group * (int(column.max()) + 1) + column
        order = np.argsort(group, kind="stable")
        group, op, place = group[order], rows.op[order], np.arange(len(rows))
        opens = np.concatenate(([True], group[1:] != group[:-1]))
        first = np.maximum.accumulate(np.where(opens, place, 0))
        changed = np.maximum.accumulate(np.where(op != READ, place, -1))
        after = (changed >= first) & (op[changed] == WRITE)

        before = np.empty(len(rows), np.bool_)
        before[order] = np.concatenate(([False], after[:-1])) & ~opens
        present[access] = before[len(starts) :]
        closes = np.concatenate((opens[1:], [True]))
        left = rows.take(order[closes & after])
        return _Shelf(present, tuple((row[2], left.key(row)) for row in left.rows()))

    def left(self, number_of_levels: int) -> list[set[Key]]:
        """The keys that remain, by level."""
        keys: list[set[Key]] = [set() for _ in range(number_of_levels)]
        for number, key in self.remaining:
            keys[number].add(key)
        return keys
