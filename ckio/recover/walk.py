"""A walk over a schedule that knows at each instant what it takes to go on after a kill there.

Which way of going on is meant is in `redone.py`.
"""

from bisect import bisect_left, bisect_right, insort
from dataclasses import dataclass
from math import inf
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from ckio.actions import Key, Kind
from ckio.actions.columns import DISCARD, KIND_CODE, READ, RECORD, REVERSE, WRITE, Actions, Row
from ckio.platform import Platform, copies
from ckio.platform.chain import Chain
from ckio.schedule import Schedule, seconds_of

_RESTART, _TAPE, _ADJOINT = (KIND_CODE[kind] for kind in (Kind.RESTART, Kind.TAPE, Kind.ADJOINT))


_Number = TypeVar("_Number", np.float64, np.int64)


@dataclass(frozen=True, slots=True)
class Instants:
    """One value for each instant, that before the first action the first.

    Attributes
    ----------
    redone : float64 array
        Seconds that a kill costs there, as far as the schedule has as many adjoint checkpoints as
        its recovery.
    left : float64 array
        Seconds of what is left of the schedule, without its adjoint checkpoints.
    stored : int64 array
        Adjoint checkpoints that are still to be written.
    adjoint : int64 array
        The step of the adjoint that survives; n where none does.
    base : int64 array
        The number of the action before which all is redone; -1 where there is no such instant.
    """

    redone: NDArray[np.float64]
    left: NDArray[np.float64]
    stored: NDArray[np.int64]
    adjoint: NDArray[np.int64]
    base: NDArray[np.int64]


class _Lying(NamedTuple):
    """A restart key (sort 0) or a tape (sort 1) on a level: in order of what a sweep reaches."""

    step: int
    sort: int
    level: int

    @property
    def end(self) -> int:
        """The step to which a sweep comes that writes it."""
        return self.step + self.sort


class _Prices:
    """Seconds of accesses, and of the forward in sums from the left."""

    def __init__(self, chain: Chain, platform: Platform) -> None:
        self.levels, self._platform, self._chain = platform.levels, platform, chain
        self.sizes = chain.each("restart").tolist(), chain.each("tape").tolist()
        advance, record = chain.each("advance"), chain.each("record")
        self.advance: list[float] = np.concatenate(([0.0], np.cumsum(advance))).tolist()
        self.record: list[float] = np.concatenate(([0.0], np.cumsum(record))).tolist()
        self.instead: list[float] = np.maximum(record - advance, 0.0).tolist()

    def read(self, here: _Lying) -> float:
        return self.levels[here.level].read(self._moved(here))

    def discard(self, here: _Lying) -> float:
        return self.levels[here.level].discard(self.sizes[here.sort][here.step])

    def again(self, here: _Lying) -> float:
        """To write it while a sweep passes, which for a tape has to record there."""
        write = self.levels[here.level].write(self._moved(here))
        return write + (self.instead[here.step] if here.sort else 0.0)

    def _moved(self, here: _Lying) -> int:
        kind = Kind.TAPE if here.sort else Kind.RESTART
        nbytes: int = self.sizes[here.sort][here.step]
        return nbytes * copies(self._chain, self._platform, here.level, kind)


class _Base:
    """An instant from which all is redone, and what is missing there since it has passed.

    Attributes
    ----------
    number : int
        Of the action before which it is.
    until : float
        Seconds of the schedule until then.
    target : int or None
        The step at which the sweep has to end, for what the registers hold.
    low, high : float
        From which step, and to which, the sweep writes; low > high where nothing is missing.
    seconds : float
        Of what is written again, recorded again, and discarded.
    written : set of _Lying
        What was written to durable levels since, and lies there.
    """

    def __init__(self, number: int, until: float, target: int | None, seconds: float) -> None:
        self.number, self.until, self.target, self.seconds = number, until, target, seconds
        self.low, self.high = inf, -inf
        self.written = set[_Lying]()

    def misses(self, here: _Lying, seconds: float) -> None:
        self.low, self.high = min(self.low, here.step), max(self.high, here.end)
        self.seconds += seconds


class Walk:
    """The machine as far as a kill is concerned: the registers, what lies where, what survives.

    It goes over the schedule once, in `instants`.
    """

    def __init__(self, schedule: Schedule, platform: Platform, durable: frozenset[int], /) -> None:
        self._schedule, self._chain, self._platform = schedule, schedule.chain, platform
        self._durable = durable
        self._prices = _Prices(schedule.chain, platform)
        self._state, self._tape, self._turned = 0, (0, 0), False
        # The adjoint that survives, if any, and seconds to read it.
        self._adjoint, self._fresh, self._to_read = self._chain.length, True, 0.0
        # From where all is redone; fixed once something was reversed since that adjoint.
        self._base: _Base | None = None
        self._fixed = False
        # The way back to there, until what survives is another.
        self._back: float | None = None
        # What lies on levels that are not durable, in order, and seconds to write all of it again.
        self._volatile, self._again = list[_Lying](), 0.0
        # The restart keys on durable levels, in order.
        self._kept = list[_Lying]()
        self._start()

    def _start(self) -> None:
        for level, keys in enumerate(self._schedule.stored):
            for key in keys:
                if key.kind is not Kind.ADJOINT:
                    self._write(_Lying(key.step, KIND_CODE[key.kind], level))
                elif level in self._durable and key.step <= self._adjoint:
                    seconds = self._platform.levels[level].read(self._chain.nbytes(key))
                    # Which of several copies is read is for the recovery to choose.
                    dearer = max(seconds, self._to_read) if key.step == self._adjoint else seconds
                    self._survives(key.step, dearer)

    def instants(self) -> Instants:
        """What there is to know of every instant before an action."""
        actions = self._schedule.actions
        costs = seconds_of(self._schedule, self._platform)
        done = np.concatenate(([0.0], np.cumsum(costs)))[:-1]
        redone, (adjoint, bases) = np.empty(len(actions)), np.empty((2, len(actions)), np.int64)
        columns = (done, *dead(actions))
        rows = zip(actions.rows(), *(column.tolist() for column in columns), strict=True)
        for number, (row, until, state_dead, tape_dead) in enumerate(rows):
            if not self._fixed:
                self._rebase(number, until, state_dead=state_dead, tape_dead=tape_dead)
            redone[number], adjoint[number] = self._redone(until), self._adjoint
            bases[number] = (
                -1 if self._base is None or np.isinf(redone[number]) else self._base.number
            )
            self._apply(row)

        on_adjoint = (actions.op >= WRITE) & (actions.kind == _ADJOINT)
        writes = on_adjoint & (actions.op == WRITE)
        left = _from_here(np.where(on_adjoint, 0.0, costs))
        return Instants(redone, left, _from_here(writes.astype(np.int64)), adjoint, bases)

    def _rebase(self, number: int, until: float, *, state_dead: bool, tape_dead: bool) -> None:
        """Redo from this instant on, if one sweep is enough to restore what is held now."""
        state = None if state_dead else self._state
        if self._turned and self._fresh:  # another process has to reach x_n again
            if state not in (None, self._chain.length):
                return
            state = self._chain.length
        target, seconds = state, self._again
        begin, end = self._tape
        if begin < end and not tape_dead:
            if state not in (None, end):
                return
            target = begin
            seconds += self._prices.record[end] - self._prices.record[begin]
        if target is not None and self._volatile and self._volatile[-1].end > target:
            return
        base, self._back = _Base(number, until, target, seconds), None
        self._base = base
        if self._volatile:
            base.low, base.high = self._volatile[0].step, self._volatile[-1].end

    def _redone(self, until: float) -> float:
        """What a kill costs now."""
        if self._base is None:
            return inf
        if self._back is None:
            self._back = self._way_back(self._base)
        return until - self._base.until + self._back

    def _way_back(self, base: _Base) -> float:
        """Seconds from a fresh process to the base, with all that the machine held there."""
        low, high = base.low, base.high
        if base.target is not None:
            if high > base.target:
                return inf
            low, high = min(low, base.target), base.target
        swept = self._swept(int(low), int(high)) if low <= high else 0.0
        return self._to_read + swept + base.seconds

    def _swept(self, low: int, high: int) -> float:
        """Seconds up to a step, from x_0 or the nearest durable restart key at or below `low`."""
        advance = self._prices.advance
        below = bisect_right(self._kept, (low, _TAPE)) - 1
        if below < 0:
            return advance[high]
        nearest = self._kept[below]
        read = self._prices.read(nearest)
        return min(advance[high], read + advance[high] - advance[nearest.step])

    def _apply(self, row: Row) -> None:
        op, kind, level, begin, end, _ = row
        if op == REVERSE:
            self._fixed = True
            self._tape = self._tape[0], begin
        elif op <= RECORD:
            self._state = end
            self._turned = self._turned or end == self._chain.length
            if op == RECORD:
                self._tape = begin, end
        elif kind == _ADJOINT:
            self._apply_adjoint(op, begin, level)
        elif op == WRITE:
            self._write(_Lying(begin, kind, level))
        elif op == DISCARD:
            self._discard(_Lying(begin, kind, level))
        elif kind == _TAPE:
            self._tape = begin, begin + 1
        else:
            self._state = begin

    def _apply_adjoint(self, op: int, step: int, level: int) -> None:
        size = self._chain.nbytes(Key(Kind.ADJOINT, step))
        if level in self._durable and op == WRITE:
            self._survives(step, self._platform.levels[level].read(size))
        elif level not in self._durable and op == READ:
            # What it begins with does not survive: nothing is known until it is stored.
            self._base, self._fixed = None, True

    def _survives(self, step: int, to_read: float) -> None:
        self._adjoint, self._to_read, self._fresh = step, to_read, False
        self._base, self._fixed = None, False

    def _write(self, here: _Lying) -> None:
        if here.level not in self._durable:
            insort(self._volatile, here)
            self._again += self._prices.again(here)
            return
        self._back = None
        if here.sort == _RESTART:
            insort(self._kept, here)
        if self._base is not None:
            self._base.written.add(here)
            self._base.seconds += self._prices.discard(here)

    def _discard(self, here: _Lying) -> None:
        if here.level not in self._durable:
            del self._volatile[bisect_left(self._volatile, here)]
            self._again -= self._prices.again(here)
            self._again *= bool(self._volatile)  # nothing is exactly nothing, whatever was rounded
            return
        self._back = None
        if here.sort == _RESTART:
            del self._kept[bisect_left(self._kept, here)]
        if self._base is None:
            return
        if here in self._base.written:
            self._base.written.discard(here)
            self._base.seconds -= self._prices.discard(here)
        else:
            self._base.misses(here, self._prices.again(here))


def dead(actions: Actions) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Before each action, whether what state and tape hold is not used any more."""
    op, kind = actions.op, actions.kind
    restart, tape = (op >= WRITE) & (kind == _RESTART), (op >= WRITE) & (kind == _TAPE)
    state = _gives_first((restart & (op == READ)), (op <= RECORD) | (restart & (op == WRITE)))
    gives = (op == RECORD) | (tape & (op == READ))
    return state, _gives_first(gives, (op == REVERSE) | (tape & (op == WRITE)))


def _gives_first(gives: NDArray[np.bool_], uses: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """From each row on, whether the register is given something before it is used, if ever."""
    size = len(gives)
    following = np.where(gives | uses, np.arange(size), size)
    following = np.minimum.accumulate(following[::-1])[::-1]
    return np.append(gives, True)[following]


def _from_here(values: NDArray[_Number]) -> NDArray[_Number]:
    """The sum of each value and all that follow."""
    return np.cumsum(values[::-1], dtype=values.dtype)[::-1]
