"""The rest of a long chain: which restart keys are kept, and each of them finishes some steps.

Of stored tapes, those directly below the adjoint are reversed at once, and of the others at most
those directly below a restart key are kept. Where steps differ, what to keep is chosen on a chain
of steps that are all alike, on which every x_i lies where the seconds up to it are the same part of
the whole; what is then to be reversed at a time is planned by `varying` in the room that is left.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import groupby
from math import inf
from typing import Any, NamedTuple

import numpy as np

from ckio.actions import Action, Advance, Key, Kind, Read, Reverse, Write
from ckio.actions.columns import ADVANCE, DISCARD, RECORD, Actions
from ckio.errors import BadInput, NoSchedule
from ckio.planners.base import without_notes
from ckio.planners.binomial import revolve
from ckio.planners.blocks import Piece, joined
from ckio.planners.dp import hrevolve, mixed
from ckio.planners.resume.remainder import Remainder, Stored
from ckio.planners.resume.stack import Candidate, Leg, Stack
from ckio.planners.resume.tables import MOST_COMPARED, Seconds, Tables, spaces
from ckio.platform import Level, Platform
from ckio.platform.chain import COSTS, Chain

_ALIKE = 512
"""Steps, all alike, on which it is chosen what to keep where steps differ."""

_MIXED = 2000
"""Steps up to which a segment is planned by `mixed`, which takes long for more."""

_RECURRENCE = "by a recurrence over which restart keys to keep"
_CUT = "in segments between the restart keys that are kept"

_FIRST = Key(Kind.RESTART, 0)

_OF_STATES = ("restart", "adjoint")
"""Of these there is one more than there are steps."""

_MOST_LEGS = 256
"""Beyond so many legs it is not tried what they take that the recurrence did not choose."""


class LongPlan(NamedTuple):
    """Actions without Discards, how they were found, and whether it is the best of its kind."""

    actions: Actions
    how: str
    complete: bool


def plans(rest: Remainder, /, *, most: float = MOST_COMPARED) -> Iterator[LongPlan]:
    """Several ways to finish, each the best of its kind, if there is one."""
    for begun, left in _begun(rest):
        if left.end == 0:
            yield LongPlan(Actions.of(begun), "from stored tapes alone", complete=True)
            continue
        for tapes in dict.fromkeys([(), _below_a_key(left), left.tapes]):
            some = replace(left, tapes=tapes)
            for plan in _Segments(some).plans(most):
                yield plan._replace(actions=Actions.of(begun) + plan.actions)


def _begun(rest: Remainder) -> Iterator[tuple[list[Action], Remainder]]:
    """The tapes directly below the adjoint, read and reversed, and what is left then.

    If the adjoint has yet to begin, they are only of use once x_n was reached; also without.
    """
    steps, tapes = rest.steps, _quickest(rest)
    if rest.end > steps:
        others = tuple(tape for tape in rest.tapes if tape[0] < steps - 1)
        yield [], replace(rest, end=steps, tapes=others)
        begin = max(
            [step for step, _ in rest.restarts] + [-1 if rest.state is None else rest.state]
        )
        if steps - 1 not in tapes or begin < 0:
            return
        actions = list[Action]()
        if begin != rest.state:
            level = min(
                (level for step, level in rest.restarts if step == begin),
                key=lambda level: rest.seconds_to_read(Kind.RESTART, begin, level),
            )
            actions.append(Read(Key(Kind.RESTART, begin), level))
        actions.append(Advance(begin, steps))
        rest = replace(rest, end=steps, state=None)
    else:
        actions = []
    m = rest.end
    while m - 1 in tapes:
        m -= 1
        actions += (Read(Key(Kind.TAPE, m), tapes[m]), Reverse(m, m + 1))
    state = rest.state if rest.state is not None and rest.state < m else None
    restarts, others = (
        tuple(key for key in keys if key[0] < m) for keys in (rest.restarts, rest.tapes)
    )
    yield actions, replace(rest, end=m, state=state, restarts=restarts, tapes=others)


def _quickest(rest: Remainder) -> dict[int, int]:
    """By step, the level from which its tape is read the quickest."""
    seconds = [rest.seconds_to_read(Kind.TAPE, *tape) for tape in rest.tapes]
    order = sorted(range(len(seconds)), key=lambda number: seconds[number], reverse=True)
    return dict(rest.tapes[number] for number in order)


def _below_a_key(rest: Remainder) -> tuple[Stored, ...]:
    """Those tapes from which an unbroken row of tapes leads up to a restart key."""
    tapes, kept = _quickest(rest), set[Stored]()
    for step, _ in rest.restarts:
        while (step := step - 1) in tapes:
            kept.add((step, tapes[step]))
    return tuple(sorted(kept))


class _Segments:
    """From what is stored to the recurrence, and back to actions. No adjoint has yet to begin."""

    def __init__(self, rest: Remainder) -> None:
        self.rest, self.platform = rest, _without(rest, Kind.TAPE, rest.tapes, rest.platform)
        self.tapes = _quickest(rest)
        self.known = dict[tuple[int, tuple[Level, ...]], Actions]()
        each = {name: rest.chain.each(name)[: rest.end] for name in COSTS}
        forward = np.minimum(each["advance"], each["record"]) if rest.new_tapes else each["advance"]
        self.records = rest.new_tapes & (each["record"] < each["advance"])
        self.place = np.arange(rest.end + 1)
        self.chain = replace(rest.chain, variables=None).with_steps(rest.end)
        if self.chain.varies:
            before = np.append(0.0, np.cumsum(forward))
            steps = min(rest.end, _ALIKE)
            part = before / before[-1] if before[-1] else self.place / rest.end
            self.place = np.rint(part * steps).astype(np.intp)
            self.alike = Chain(
                steps=steps,
                advance=float(before[-1]) / steps,
                record=float(each["record"].sum()) / steps,
                reverse=0,
                restart=int(np.rint(each["restart"].mean())),
                tape=int(np.rint(each["tape"].sum() / steps)),
                adjoint=0,
            )
        else:
            self.alike = self.chain
        self.move = (
            min(self.alike.advance, self.alike.record) if rest.new_tapes else self.alike.advance
        )
        self.held = self.platform.tapes(self.alike) if rest.new_tapes else 1

    def plans(self, most: float) -> Iterator[LongPlan]:
        """What is chosen by the recurrence, and other choices where it does not know the best."""
        given = spaces(self.alike, self.platform, new_tapes=self.rest.new_tapes)
        chosen = list[Leg]()
        if given:
            tables = Tables(
                given, self.alike.length, move=self.move, held=max(1, self.held), most=most
            )
            stack = Stack(*self._keys(tables), self._jumps())
            state = self.rest.state
            chosen = stack.best(None if state is None else int(self.place[state]))
            if chosen and stack.complete and not self.chain.varies:
                actions = Actions.of(self._by_tables(chosen, tables))
                yield LongPlan(self._recorded(actions), _RECURRENCE, complete=True)
                return
        others = [
            legs for legs in (self._every_key(), self._first_key()) if len(legs) <= _MOST_LEGS
        ]
        for legs in filter(None, [self._steps(chosen), *others]):
            with suppress(NoSchedule, BadInput):
                yield LongPlan(self._by_planner(legs), _CUT, complete=False)

    def _keys(self, tables: Tables) -> tuple[list[Candidate], Tables, list[int]]:
        """Everything that may be kept, in the order of steps, and the slots of the levels."""
        places = {space.number: place for place, space in enumerate(tables.spaces)}
        keys = [
            Candidate(int(self.place[step]), step, level, places[level], self._read(step, level))
            for step, level in self.rest.restarts
            if level in places
        ]
        step = self.rest.state
        for level, place in places.items() if step is not None else ():
            if step is not None and (step, level) not in self.rest.restarts:
                write = self.rest.seconds_to_keep(Kind.RESTART, step, level)
                read = self._read(step, level)
                keys.append(Candidate(int(self.place[step]), step, level, place, read, write))
        slots = [
            self.platform.levels[space.number].slots(self.alike.restart, 2 * self.rest.end)
            for space in tables.spaces
        ]
        return sorted(keys, key=lambda key: key[:3]), tables, slots

    def _read(self, step: int, level: int) -> float:
        return self.rest.seconds_to_read(Kind.RESTART, step, level)

    def _jumps(self) -> Seconds:
        """What it takes to go from each step to the one before by its tape, and no Record."""
        jumps = np.full(self.alike.length + 1, inf)
        for step, level in self.tapes.items() if not self.chain.varies else ():
            read = self.rest.seconds_to_read(Kind.TAPE, step, level)
            jumps[step + 1] = read - self.rest.chain.record
        return jumps

    # Actions of the tables

    def _by_tables(self, legs: Sequence[Leg], tables: Tables) -> Iterator[Action]:
        state = self.rest.state
        yield from _written(legs)
        for key, begin, end, room, place in legs:
            if room is None:
                yield Read(Key(Kind.TAPE, begin), self.tapes[begin])
                yield Reverse(begin, end)
                continue
            if key is not None:
                state = key.step
                yield Read(Key(Kind.RESTART, state), key.level)
            if state is not None and state < begin:
                yield Advance(state, begin)
            yield from tables.actions(begin, end, room, place)

    def _recorded(self, actions: Actions) -> Actions:
        """Moves are recorded where that is quicker, as many steps at a time as can be held."""
        if not self.records.any():
            return actions
        most = 1 if self.chain.varies else self.held
        moves = actions.op == ADVANCE
        pieces = np.where(moves, -(-(actions.end - actions.begin) // most), 1)
        rows = np.repeat(np.arange(len(actions)), pieces)
        number = np.arange(len(rows)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
        longer, split = actions.take(rows), moves[rows]
        begin = longer.begin + split * number * most
        quicker = split & self.records[np.where(split, begin, 0)]
        return Actions(
            op=np.where(quicker, RECORD, longer.op).astype(np.uint8),
            begin=begin,
            end=np.where(split, np.minimum(begin + most, longer.end), longer.end),
            kind=longer.kind,
            level=longer.level,
        )

    # Choices whose segments are planned one by one

    def _steps(self, legs: Sequence[Leg]) -> list[Leg]:
        """Legs in the steps of the chain itself, without those that read a tape."""
        if not self.chain.varies:
            return [leg for leg in legs if leg.room is not None]
        there, end = list[Leg](), self.rest.end
        for leg in legs:
            first = self.rest.state if leg.key is None else leg.key.step
            begin = max(first or 0, min(int(np.searchsorted(self.place, leg.begin)), end - 1))
            if begin < end:
                there.append(leg._replace(begin=begin, end=end))
                end = begin
        return there

    def _every_key(self) -> list[Leg]:
        """All keys are kept, and each finishes what is right of it."""
        end, legs, state = self.rest.end, list[Leg](), self.rest.state
        if state is not None and all(step <= state for step, _ in self.rest.restarts):
            legs.append(Leg(None, state, end, 0))
            end = state
        for step, same in groupby(reversed(self.rest.restarts), key=lambda key: key[0]):
            read, level = min((self._read(*key), key[1]) for key in same)
            legs.append(Leg(Candidate(step, step, level, 0, read), step, end, 0))
            end = step
        return legs

    def _first_key(self) -> list[Leg]:
        """Nothing is kept: all is planned from x_0."""
        if self.rest.state == 0:
            return [Leg(None, 0, self.rest.end, 0)]
        return [leg._replace(end=self.rest.end) for leg in self._every_key()[-1:]]

    def _by_planner(self, legs: Sequence[Leg]) -> Actions:
        """Each leg in the room that later ones leave; on the way, stored tapes are made use of.

        Raises NoSchedule where steps are left, or what is kept does not fit.
        """
        self._beside(legs, self.rest.end)
        pieces, end = [(Actions.of(_written(legs)), 0)], self.rest.end
        for number, leg in enumerate(legs):
            if end > leg.begin:
                pieces += self._leg(leg._replace(end=end), legs[number + 1 :])
                end = leg.begin
            spent = list[Action]()
            while end - 1 in self.tapes:
                end -= 1
                spent += (Read(Key(Kind.TAPE, end), self.tapes[end]), Reverse(end, end + 1))
            pieces.append((Actions.of(spent), 0))
        if end:
            raise NoSchedule(f"the steps before {end} are not reached")
        return self._recorded(joined(pieces))

    def _beside(self, legs: Sequence[Leg], end: int) -> Platform:
        """The platform without the room of what these legs keep, and of tapes that are left."""
        kept = {(leg.key.step, leg.key.level) for leg in legs if leg.key is not None}
        tapes = [tape for tape in self.tapes.items() if tape[0] < end]
        platform = _without(self.rest, Kind.TAPE, tapes, self.rest.platform)
        return _without(self.rest, Kind.RESTART, kept, platform)

    def _leg(self, leg: Leg, later: Sequence[Leg]) -> list[Piece]:
        """Read a key, go on, and reverse the steps of a leg, while those of later ones are kept."""
        begin, end, key = leg.begin, leg.end, leg.key
        platform = self._beside(later, begin)
        start = list[Action]()
        if key is not None:
            start.append(Read(Key(Kind.RESTART, key.step), key.level))
        state = self.rest.state if key is None else key.step
        if state is not None and state < begin:
            start.append(Advance(state, begin))
        actions = self._planned(begin, end, platform)
        if key is not None and begin == key.step and actions[0] == Write(_FIRST, key.level):
            actions = actions[1:]  # it is there
        return [(Actions.of(start), 0), (actions, begin)]

    def _planned(self, begin: int, end: int, platform: Platform) -> Actions:
        """The actions of a planner that reverse [begin, end), without Discards."""
        if not (varies := self.chain.varies):  # legs as long come again, and with as much room
            most = (end - begin) * sum(map(self.chain.largest, ("restart", "tape")))
            levels = [replace(level, capacity=_at_most(level, most)) for level in platform.levels]
            platform, chain = (
                replace(platform, levels=tuple(levels)),
                self.chain.with_steps(end - begin),
            )
            if known := self.known.get((end - begin, platform.levels)):
                return known
        else:
            costs: dict[str, Any] = {
                name: self.chain.each(name)[begin : end + (name in _OF_STATES)] for name in COSTS
            }
            chain = Chain(steps=end - begin, handed=self.chain.handed, **costs)
        with without_notes():
            try:
                tapes = self.rest.new_tapes and (varies or end - begin <= _MIXED)
                actions = (mixed if tapes else hrevolve)(chain, platform).actions
            except BadInput:  # compiled code is needed, and missing
                actions = revolve(chain, platform).actions
        actions = actions.take(actions.op != DISCARD)
        self.known[end - begin, platform.levels] = actions
        return actions


def _at_most(level: Level, nbytes: int) -> int | None:
    """The capacity of a level; none where so many bytes are nothing to it."""
    enough = level.capacity is None or level.capacity >= level.stored(nbytes)
    return None if enough else level.capacity


def _written(legs: Sequence[Leg]) -> Iterator[Action]:
    """The state in the register is written first, to every level where a leg reads it."""
    for key in {leg.key for leg in legs if leg.key is not None and leg.key.write is not None}:
        yield Write(Key(Kind.RESTART, key.step), key.level)


def _without(rest: Remainder, kind: Kind, keys: Iterable[Stored], platform: Platform) -> Platform:
    """The platform without the room that these keys take; raises NoSchedule for too many."""
    free = {number: level.capacity for number, level in enumerate(platform.levels)}
    for step, number in keys:
        if (left := free[number]) is not None:
            free[number] = left - platform.levels[number].stored(rest.nbytes(kind, step))
    if min((left for left in free.values() if left is not None), default=0) < 0:
        raise NoSchedule("what is to be kept does not fit")
    levels = (replace(level, capacity=free[k]) for k, level in enumerate(platform.levels))
    return replace(platform, levels=tuple(levels))
