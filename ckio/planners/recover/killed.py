"""The schedule that was killed, taken up again, and a bound on what any kill of it costs.

A kill after k actions leaves the keys on durable levels. Let m be the step of the furthest adjoint
among them, or n, and let b <= k be an instant with the adjoint at m. Then this is a way to resume,
which `taken_up` writes down, in no more space than the schedule itself takes:

    read a_m; discard what was written to durable levels since b; restore what the machine held
    at b, in one forward sweep from the nearest durable restart key (or from x_0, which a fresh
    model holds) that writes every key which is missing on its way; continue from b as scheduled.

The makespan of that, added to what was done until k, is the makespan of the schedule and

    (done until k) - (done until b)     lost: redone from b on
    + read(a_m)
    + discards of what was written since b
    + the sweep: read(x_d), advances from d to the highest step that is needed, and where the tape
      of a step is missing or held, what recording takes longer than advancing
    + writes of what is missing: on levels that are not durable, or discarded since b

As b, the last instant before the next Reverse is taken from which one sweep is enough: the
registers hold nothing that is still used, or what they hold is at or above all keys to be written.
`_KillCosts` finds b and this sum for every k in one walk over the schedule.

A recovery stores its adjoint every so many seconds of its own. That may be more often than what is
left of the schedule does; at most, it is once for every `every` seconds of it and once for every
step. Last, it discards what the schedule would have left on the levels.

A plan from what is stored (`recover`) is mostly better than the killed schedule. Not always: with
several tapes in the working memory, the planners that start from stored keys know fewer ways.
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
"""A key and the number of the level on which it lies."""


def redone_at_most(
    schedule: Schedule,
    platform: Platform,
    durable: Collection[int],
    /,
    *,
    level: int,
    every: float,
) -> float:
    """Bound the seconds that a kill before the last action is done costs.

    That is: what was done until the last action that was complete, and the makespan of the recovery
    together exceed the makespan of the schedule by no more. So all counts that the recovery does,
    spans, writes, reads and discards, also of adjoint checkpoints that it stores more often than
    the schedule would have; planning, opening and verifying, which nobody has priced, do not, nor
    does the part of an action that was under way. Each kill is one: of the recovery, which is again
    a schedule, this says anew what a kill of it costs.

    `durable` are the numbers of the levels whose keys survive; the recovery stores its adjoint on
    `level` every so many seconds. It holds for `recover` that is told what was `killed`, on this
    platform, with all that was durable still there, of any planner's schedule. A recovery that is
    not told plans from what is stored alone, which is mostly as good, and may cost more: it does
    not record several steps at once from stored keys, and for long chains it does not find the best
    of all ways.

    Infinite where one sweep is not enough to restore what a kill takes: where a state waits below
    the stored tapes from which steps are reversed. Raises IllegalAction for an illegal schedule.
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
        Its plan, as it was begun.
    durable : collection of int
        The numbers of the levels whose keys survive.
    """

    schedule: Schedule
    durable: Collection[int]


def taken_up(
    killed: Killed, platform: Platform, stored: Stored, adjoint: Place | None, /
) -> Schedule | None:
    """Return the rest of what was killed, for a fresh process, from what is stored on each level.

    It reads the adjoint at this place, stores none, and leaves nothing but adjoints. None where the
    schedule is never in a state of which just this survives, as when a checkpoint is corrupt; where
    one sweep is not enough; and where the platform is not what it was and the rest does not fit.
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
        note = "what was killed, taken up again"
        whole = Schedule(plan.chain, back + rest.take(~on_adjoint), stored, note)
        left = Actions.of(_discards(validate(whole, platform).stored, ()))
    except IllegalAction:
        return None
    return replace(whole, actions=whole.actions + left)


def _last_with(schedule: Schedule, stored: Stored, durable: frozenset[int]) -> int | None:
    """Return the last instant before an action at which just this lies on the durable levels.

    The last one is where a kill loses most of all that leave the same.
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
    """Lead a fresh process, with what survives, to what the machine held at an instant.

    `fresh` says that no adjoint is read: then the end has to be reached again, if it had been.
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
    """Return what the registers hold that is used before they are given something else."""
    states, tapes = _dead(schedule.actions)
    state = None if states[base] else machine.state
    tape = None if tapes[base] or machine.tape is None else machine.tape
    return state, None if tape is None or tape[0] == tape[1] else (tape[0], tape[1])


def _missing(machine: Machine, stored: Stored) -> list[Place]:
    """Return what lay on the levels, but for adjoints, and is gone, in the order of a sweep."""
    there = [
        (key, number)
        for number, keys in enumerate(machine.stored)
        for key in keys
        if key.kind is not Kind.ADJOINT and (number >= len(stored) or key not in stored[number])
    ]
    return sorted(there, key=lambda it: (it[0].step, it[0].kind is Kind.TAPE, it[1]))


def _discards(stored: Sequence[Collection[Key]], kept: Sequence[Collection[Key]]) -> list[Discard]:
    """Return the Discards of all that is stored and not kept, but for adjoints."""
    return [
        Discard(key, number)
        for number, keys in enumerate(stored)
        for key in sorted(keys, key=lambda key: (key.kind.value, key.step))
        if key.kind is not Kind.ADJOINT and (number >= len(kept) or key not in kept[number])
    ]


def _nearest(
    schedule: Schedule, platform: Platform, stored: Stored, low: int, high: int
) -> Iterator[Read]:
    """Return the Read that a sweep over these steps begins with, unless x_0 is nearer in time.

    `high` is where it ends: to that step it has to advance in any case.
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
    """Sweep forward from x_at, writing what is missing, to the target where there is one."""
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
        """Return the step to which a sweep comes that writes it."""
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
        """Return the seconds to write it while a sweep passes, which records where it is a tape."""
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


class _KillCosts:
    """The machine as far as a kill is concerned: the registers, what lies where, what survives.

    `instants` walks over the schedule once.
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
        """Return what a kill costs now."""
        if self._base is None:
            return inf
        if self._back is None:
            self._back = self._way_back(self._base)
        return until - self._base.until + self._back

    def _way_back(self, base: _Base) -> float:
        """Return the seconds to the base, with all that the machine held there."""
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


def _dead(actions: Actions) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Tell before each action whether what state and tape hold is not used any more."""
    op, kind = actions.op, actions.kind
    restart, tape = (op >= WRITE) & (kind == _RESTART), (op >= WRITE) & (kind == _TAPE)
    state = _gives_first((restart & (op == READ)), (op <= RECORD) | (restart & (op == WRITE)))
    gives = (op == RECORD) | (tape & (op == READ))
    return state, _gives_first(gives, (op == REVERSE) | (tape & (op == WRITE)))


def _gives_first(gives: NDArray[np.bool_], uses: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Tell from each row on whether the register is given something before it is used, if ever."""
    size = len(gives)
    following = np.where(gives | uses, np.arange(size), size)
    following = np.minimum.accumulate(following[::-1])[::-1]
    return np.append(gives, True)[following]


def _from_here(values: NDArray[Any]) -> NDArray[Any]:
    """Return the sum of each value and all that follow."""
    return np.cumsum(values[::-1], dtype=values.dtype)[::-1]
