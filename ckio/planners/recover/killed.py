"""Resume a killed schedule, and bound the cost of any kill of it.

A kill after k actions leaves only the keys on durable levels. Let m be the smallest step of an
adjoint among them (n if there is none), and let b <= k be an instant at which the adjoint was at m.
Then the schedule can be resumed as follows. `taken_up` returns these actions; they need no more
space than the schedule itself:

1. Read a_m.
2. Discard the keys that were written to durable levels since b.
3. Restore the registers and the keys of instant b, in one forward sweep that writes every missing
   key when it reaches its step. The sweep starts from the nearest durable restart key, or from x_0
   of a fresh model.
4. Continue from b as scheduled.

The makespan of these actions, added to the seconds until k, is the makespan of the schedule plus

    (seconds until k) - (seconds until b)     work that is done again
    + read(a_m)
    + discards of the keys written since b
    + the sweep: read(x_d), the advances from d to the highest step that is needed, and, for steps
      whose tape is missing or in the register, the time by which recording exceeds advancing
    + writes of the missing keys: those on levels that are not durable, or discarded since b

For example, take two steps whose actions take 1 s each, x_0 in memory, which is not durable, and no
cost of access. A kill directly before the first Reverse costs 2 s: b is this instant, and the sweep
from x_0 of a fresh model writes x_0, advances one step and records the second one.

b is the last instant before the next Reverse from which one sweep suffices. This means that the
registers have no content that is still used, or that their step is at or after all keys to be
written. `_KillCosts` finds b and the sum for every k in one pass over the schedule.

A recovery also stores its adjoint in intervals of its own seconds. This may be more often than in
the rest of the schedule: at most once for each interval `every` of it, and at most once for each
step. At the end, the recovery discards the keys that the schedule would have left on the levels.

A plan from the stored keys (`recover`) is usually better than the killed schedule, but not always.
With several tapes in the working memory, planners that start from stored keys try fewer ways.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ckio.actions import Action, Advance, Discard, Key, Kind, Read, Record, Write
from ckio.actions.columns import DISCARD, KIND_CODE, READ, RECORD, REVERSE, WRITE, Actions, Row
from ckio.errors import IllegalAction
from ckio.planners.recover.adjoints import adjoint_seconds
from ckio.platform import Platform, copies
from ckio.platform.chain import Chain
from ckio.schedule import Schedule, seconds_of
from ckio.schedule import seconds as price
from ckio.schedule.machine import Machine
from ckio.schedule.replay import validate

_RESTART, _TAPE, _ADJOINT = (KIND_CODE[kind] for kind in (Kind.RESTART, Kind.TAPE, Kind.ADJOINT))

Stored: TypeAlias = tuple[frozenset[Key], ...]
"""The keys on each level."""

Place: TypeAlias = tuple[Key, int]
"""A key and the number of the level on which it is stored."""


def redone_at_most(
    schedule: Schedule,
    platform: Platform,
    durable: Collection[int],
    /,
    *,
    level: int,
    every: float,
) -> float:
    """Return an upper bound, in seconds, of the cost of one kill during a schedule.

    The cost is the time until the last complete action, plus the makespan of the recovery, minus
    the makespan of the schedule. It includes all actions of the recovery: steps, writes, reads and
    discards, also those of additional adjoint checkpoints. It does not include planning, opening
    and verifying, which have no price in the platform, nor the part of an action that was
    interrupted. The bound is for a single kill. A recovery is a schedule, too; call the function
    again for a kill of the recovery.

    `durable` are the numbers of the levels whose keys survive. The recovery stores its adjoint on
    `level` about `every` seconds apart. The bound is true for `recover` with the argument `killed`,
    for a schedule of any planner, on the same platform, if all durable keys are still stored.
    Without `killed`, `recover` plans from the stored keys only. This is usually as good, but may
    cost more: such a plan does not record several steps together from stored keys, and for long
    chains it is not always the best one.

    Return infinity if one sweep is not enough to restore what a kill destroys, because the state in
    the register is at a smaller step than stored tapes from which steps are reversed. Raises
    IllegalAction for an illegal schedule.
    """
    end = validate(schedule, platform)
    left_over = sum(
        platform.levels[number].discard(schedule.chain.nbytes(key))
        for number, keys in enumerate(end.stored)
        for key in keys
    )
    instants = _KillCosts(schedule, platform, frozenset(durable)).instants()
    if not len(instants.redone):
        return 0.0
    if not np.isfinite(instants.redone).all():
        return inf
    redone = instants.redone + left_over
    most = np.maximum(instants.adjoint - 1, 0).astype(np.float64)
    if every > 0:
        with np.errstate(over="ignore"):
            most = np.minimum(most, np.floor((instants.left + redone) / every))
    more = np.maximum(most - instants.stored, 0)
    return float((redone + more * adjoint_seconds(schedule.chain, platform, level)).max())


class Killed(NamedTuple):
    """The work of a process that was killed.

    Attributes
    ----------
    schedule : Schedule
        The schedule that it was performing.
    durable : collection of int
        The numbers of the levels whose keys survive.
    """

    schedule: Schedule
    durable: Collection[int]


def taken_up(
    killed: Killed, platform: Platform, stored: Stored, adjoint: Place | None, /
) -> Schedule | None:
    """Return the rest of a killed schedule for a fresh process, from the keys stored on each level.

    It reads `adjoint`, a key and its level, writes no adjoints, and leaves only adjoints stored.
    Return None in three cases: at no instant of the schedule would exactly these keys survive (for
    example, because a checkpoint is corrupt); one sweep is not enough; or the platform has changed
    and the rest does not fit.
    """
    plan = killed.schedule
    try:
        validate(plan, platform)
        last = _last_with(plan, stored, frozenset(killed.durable))
        if last is None:
            return None
        instants = _KillCosts(plan, platform, frozenset(killed.durable)).instants()
        if np.isinf(instants.redone[last]):
            return None
        base = int(instants.base[last])
        held = () if adjoint is None else (Read(*adjoint),)
        back = Actions.of((*held, *_way_back(plan, platform, base, stored, fresh=not held)))
        rest = plan.actions[base:]
        on_adjoint = (rest.op >= WRITE) & (rest.kind == _ADJOINT)
        note = "the killed schedule, resumed"
        whole = Schedule(plan.chain, back + rest.take(~on_adjoint), stored, note)
        left = Actions.of(_discards(validate(whole, platform).stored, ()))
    except IllegalAction:
        return None
    return replace(whole, actions=whole.actions + left)


def _last_with(schedule: Schedule, stored: Stored, durable: frozenset[int]) -> int | None:
    """Return the last instant before an action at which exactly these keys are on durable levels.

    Of all instants with the same keys, a kill at the last one loses most.
    """
    there = {
        (key, number)
        for number, keys in enumerate(schedule.stored)
        for key in keys
        if number in durable
    }
    wanted = {(key, number) for number, keys in enumerate(stored) for key in keys}
    differ, last = there ^ wanted, None
    actions = schedule.actions
    changes = ((actions.op == WRITE) | (actions.op == DISCARD)) & np.isin(
        actions.level, sorted(durable)
    )
    rows = np.flatnonzero(changes).tolist()
    for row in rows:
        if not differ:
            last = row
        action = actions[row]
        assert isinstance(action, Write | Discard)
        differ ^= {(action.key, action.level)}
    end = len(actions) - 1
    return end if not differ and max(rows, default=-1) < end else last


def _way_back(
    schedule: Schedule, platform: Platform, base: int, stored: Stored, *, fresh: bool
) -> Iterator[Action]:
    """Yield actions that lead a fresh process with the surviving keys to the instant `base`.

    `fresh` means that no adjoint is read. Then x_n must be reached again if it had been reached.
    """
    machine = validate(replace(schedule, actions=schedule.actions[:base]), platform)
    state, tape = _held(schedule, machine, base)
    if fresh and machine.turned:
        state = schedule.chain.length
    missing = _missing(machine, stored)
    surplus = _discards(stored, machine.stored)
    target = tape[0] if tape is not None else state
    if not missing and target is None:
        yield from surplus
        return
    steps = [key.step for key, _ in missing] + ([] if target is None else [target])
    ends = [key.step + (key.kind is Kind.TAPE) for key, _ in missing]
    at = 0
    for read in _nearest(schedule, platform, stored, min(steps), max([*ends, *steps])):
        yield read
        at = read.key.step
    yield from surplus
    yield from _sweep(missing, at, target)
    if tape is not None:
        yield Record(*tape)


def _held(
    schedule: Schedule, machine: Machine, base: int
) -> tuple[int | None, tuple[int, int] | None]:
    """Return the state and the tape in the registers that are used before they are overwritten."""
    states, tapes = _dead(schedule.actions)
    state = None if states[base] else machine.state
    tape = None if tapes[base] or machine.tape is None else machine.tape
    return state, None if tape is None or tape[0] == tape[1] else (tape[0], tape[1])


def _missing(machine: Machine, stored: Stored) -> list[Place]:
    """Return the keys, except adjoints, that were stored and are lost, in the order of a sweep."""
    there = [
        (key, number)
        for number, keys in enumerate(machine.stored)
        for key in keys
        if key.kind is not Kind.ADJOINT and (number >= len(stored) or key not in stored[number])
    ]
    return sorted(there, key=lambda it: (it[0].step, it[0].kind is Kind.TAPE, it[1]))


def _discards(stored: Sequence[Collection[Key]], kept: Sequence[Collection[Key]]) -> list[Discard]:
    """Return Discards of all stored keys, except adjoints, that are not in `kept`."""
    return [
        Discard(key, number)
        for number, keys in enumerate(stored)
        for key in sorted(keys, key=lambda key: (key.kind.value, key.step))
        if key.kind is not Kind.ADJOINT and (number >= len(kept) or key not in kept[number])
    ]


def _nearest(
    schedule: Schedule, platform: Platform, stored: Stored, low: int, high: int
) -> Iterator[Read]:
    """Return the Read with which a sweep over these steps begins; none if x_0 is faster.

    The sweep writes from step `low` and advances to step `high`.
    """
    chain = schedule.chain
    restarts = sorted(
        (key.step, -price(Read(key, number), chain, platform), -number)
        for number, keys in enumerate(stored)
        for key in keys
        if key.kind is Kind.RESTART
    )
    if not (below := bisect_left(restarts, (low + 1,))):
        return
    step, seconds, number = restarts[below - 1]
    if 0 < step <= high and -seconds < chain.seconds(Advance(0, step)):
        yield Read(Key(Kind.RESTART, step), -number)


def _sweep(missing: Sequence[Place], at: int, target: int | None) -> Iterator[Action]:
    """Yield a forward sweep from x_at that writes the missing keys and ends at `target`, if any."""
    for key, level in missing:
        if at < key.step:
            yield Advance(at, key.step)
            at = key.step
        if key.kind is Kind.TAPE and at == key.step:
            yield Record(at, at + 1)
            at += 1
        yield Write(key, level)
    if target is not None and at < target:
        yield Advance(at, target)


@dataclass(frozen=True, slots=True)
class _Instants:
    """One value for each instant; the first instant is before the first action.

    Attributes
    ----------
    redone : float64 array
        Seconds that a kill costs there, if the recovery has no more adjoint checkpoints than the
        schedule.
    left : float64 array
        Seconds of the rest of the schedule, without its adjoint checkpoints.
    stored : int64 array
        Number of adjoint checkpoints that are still to be written.
    adjoint : int64 array
        The step of the adjoint that survives; n if none does.
    base : int64 array
        The number of the action from which the schedule is repeated; -1 if there is none.
    """

    redone: NDArray[np.float64]
    left: NDArray[np.float64]
    stored: NDArray[np.int64]
    adjoint: NDArray[np.int64]
    base: NDArray[np.int64]


class _Lying(NamedTuple):
    """A restart key (sort 0) or a tape (sort 1) on a level, in the order of a sweep."""

    step: int
    sort: int
    level: int

    @property
    def end(self) -> int:
        """Return the step that a sweep has reached after writing it."""
        return self.step + self.sort


class _Prices:
    """Seconds of accesses, and cumulative seconds of advancing and recording."""

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
        """Return the seconds to write it in a sweep; for a tape, also the extra time to record."""
        write = self.levels[here.level].write(self._moved(here))
        return write + (self.instead[here.step] if here.sort else 0.0)

    def _moved(self, here: _Lying) -> int:
        kind = Kind.TAPE if here.sort else Kind.RESTART
        nbytes: int = self.sizes[here.sort][here.step]
        return nbytes * copies(self._chain, self._platform, here.level, kind)


class _Base:
    """An instant from which the schedule is repeated, and the keys that are missing for it.

    Attributes
    ----------
    number : int
        The number of the action after this instant.
    until : float
        Seconds of the schedule before this instant.
    target : int or None
        The step at which the sweep must end, because of the content of the registers.
    low, high : float
        The first and the last step at which the sweep writes; low > high if nothing is missing.
    seconds : float
        Seconds to write, record and discard again.
    written : set of _Lying
        The keys that were written to durable levels since this instant and are still stored.
    """

    def __init__(self, number: int, until: float, target: int | None, seconds: float) -> None:
        self.number, self.until, self.target, self.seconds = number, until, target, seconds
        self.low, self.high = inf, -inf
        self.written = set[_Lying]()

    def misses(self, here: _Lying, seconds: float) -> None:
        self.low, self.high = min(self.low, here.step), max(self.high, here.end)
        self.seconds += seconds


class _KillCosts:
    """The part of the machine's state that matters for a kill: registers, keys, surviving adjoint.

    `instants` goes through the schedule once.
    """

    def __init__(self, schedule: Schedule, platform: Platform, durable: frozenset[int], /) -> None:
        self._schedule, self._chain, self._platform = schedule, schedule.chain, platform
        self._durable = durable
        self._prices = _Prices(schedule.chain, platform)
        self._state, self._tape, self._turned = 0, (0, 0), False
        # The adjoint that survives, if any, and the seconds to read it.
        self._adjoint, self._fresh, self._to_read = self._chain.length, True, 0.0
        # The instant from which the schedule is repeated; fixed after the next Reverse.
        self._base: _Base | None = None
        self._fixed = False
        # The seconds to return to that instant; None if the surviving keys have changed.
        self._back: float | None = None
        # The keys on levels that are not durable, in order, and the seconds to write all of them.
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
                    # The recovery chooses the copy to read; the slowest one gives a bound.
                    dearer = max(seconds, self._to_read) if key.step == self._adjoint else seconds
                    self._survives(key.step, dearer)

    def instants(self) -> _Instants:
        """Return the values of every instant before an action."""
        actions = self._schedule.actions
        costs = seconds_of(self._schedule, self._platform)
        done = np.concatenate(([0.0], np.cumsum(costs)))[:-1]
        redone, (adjoint, bases) = np.empty(len(actions)), np.empty((2, len(actions)), np.int64)
        columns = (done, *_dead(actions))
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
        return _Instants(redone, left, _from_here(writes.astype(np.int64)), adjoint, bases)

    def _rebase(self, number: int, until: float, *, state_dead: bool, tape_dead: bool) -> None:
        """Make this instant the base if one sweep suffices to restore the registers and keys."""
        state = None if state_dead else self._state
        if self._turned and self._fresh:  # a fresh process must reach x_n again
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
        """Return the seconds that a kill costs now."""
        if self._base is None:
            return inf
        if self._back is None:
            self._back = self._way_back(self._base)
        return until - self._base.until + self._back

    def _way_back(self, base: _Base) -> float:
        """Return the seconds to restore the registers and keys of the base."""
        low, high = base.low, base.high
        if base.target is not None:
            if high > base.target:
                return inf
            low, high = min(low, base.target), base.target
        swept = self._swept(int(low), int(high)) if low <= high else 0.0
        return self._to_read + swept + base.seconds

    def _swept(self, low: int, high: int) -> float:
        """Return the seconds up to `high`, from x_0 or the nearest durable key up to `low`."""
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
            # The adjoint that is read does not survive: there is no base until one is stored.
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
            self._again *= bool(self._volatile)  # exactly 0 without keys, in spite of rounding
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


def _dead(actions: Actions) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return for each action whether the state, and the tape, before it are not used any more."""
    op, kind = actions.op, actions.kind
    restart, tape = (op >= WRITE) & (kind == _RESTART), (op >= WRITE) & (kind == _TAPE)
    state = _gives_first((restart & (op == READ)), (op <= RECORD) | (restart & (op == WRITE)))
    gives = (op == RECORD) | (tape & (op == READ))
    return state, _gives_first(gives, (op == REVERSE) | (tape & (op == WRITE)))


def _gives_first(gives: NDArray[np.bool_], uses: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return for each row whether the register is overwritten before its next use, if any."""
    size = len(gives)
    following = np.where(gives | uses, np.arange(size), size)
    following = np.minimum.accumulate(following[::-1])[::-1]
    return np.append(gives, True)[following]


def _from_here(values: NDArray[Any]) -> NDArray[Any]:
    """Return the sum of each value and all that follow."""
    return np.cumsum(values[::-1], dtype=values.dtype)[::-1]
