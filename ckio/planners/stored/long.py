"""Finish a long chain from stored keys: by the recurrence over a stack of restart keys.

Of stored tapes, those directly below the adjoint are reversed at once, and of the others at most
those directly below a restart key are kept. A chain that is too long for that is finished in
segments, one for each key that is kept.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from math import inf, prod

import numpy as np
from numpy.typing import NDArray

from ckio.actions import Action, Advance, Key, Kind, Read, Reverse, Write
from ckio.actions.columns import ADVANCE, RECORD, Actions
from ckio.planners.mixed.full import table
from ckio.planners.mixed.space import Space
from ckio.planners.stored.discards import with_discards
from ckio.planners.stored.rooms import Rooms, spaces
from ckio.planners.stored.segments import Segments
from ckio.planners.stored.sketch import sketched
from ckio.planners.stored.stack import Item, Stack, Use
from ckio.planners.stored.standing import Place, Standing
from ckio.platform import Platform, copies
from ckio.platform.chain import Chain
from ckio.schedule import Schedule, counts

MOST_WORK = 10**9
"""Numbers that a plan may add and compare: about two seconds."""

_FEW_ROOMS = 128
"""Beyond so many rooms it is tried how far levels that never fill lead."""

_UNITS, _MANY_UNITS = 64, 256
"""Units in which the room of a level for tapes too is counted, exactly and in a sketch."""


@dataclass(frozen=True)
class Plan:
    """Actions without Discards, and whether they are from the recurrence over all steps."""

    actions: Actions
    exact: bool


def plans(rest: Standing, /, *, most_work: int = MOST_WORK) -> Iterator[Plan]:
    """Several ways to finish, each the best of its kind, if there is one."""
    begun, left = reversed_at_once(rest)
    if left.adjoint == 0:
        yield Plan(Actions.of(begun), exact=True)
        return
    without = replace(left, tapes=())
    for tapes in dict.fromkeys([(), _below_a_key(left), left.tapes]):
        for moving in _ways(left):
            planner = _Planner(replace(without, tapes=tapes), moving=moving)
            if plan := planner.plan(most_work):
                yield Plan(Actions.of(begun) + plan.actions, plan.exact)


def _ways(rest: Standing) -> tuple[bool, ...]:
    """Whether to move keys first: with nothing in the register to be lost, that is all there is."""
    if rest.state is None:
        return (True,)
    return (False, True) if rest.restarts and len(rest.platform.levels) > 1 else (False,)


def reversed_at_once(rest: Standing, /) -> tuple[list[Action], Standing]:
    """The tapes directly below the adjoint, read and reversed, and what is left then."""
    tapes, actions, m = _nearest(rest), list[Action](), rest.adjoint
    while rest.turned and m - 1 in tapes:
        m -= 1
        actions += (Read(Key(Kind.TAPE, m), tapes[m]), Reverse(m, m + 1))
    state = rest.state if rest.state is not None and rest.state < m else None
    restarts, others = (
        tuple(place for place in places if place[0] < m) for places in (rest.restarts, rest.tapes)
    )
    return actions, replace(rest, adjoint=m, state=state, restarts=restarts, tapes=others)


def _nearest(rest: Standing) -> dict[int, int]:
    """By step, the level from which its tape is read the quickest."""
    by_read = sorted(
        rest.tapes, key=lambda place: _read_tape(rest.chain, rest.platform, place[1]), reverse=True
    )
    return dict(by_read)


def _read_tape(chain: Chain, platform: Platform, number: int) -> float:
    nbytes = chain.tape * copies(chain, platform, number, Kind.TAPE)
    return platform.levels[number].read(nbytes)


def _below_a_key(rest: Standing) -> tuple[Place, ...]:
    """Those tapes from which an unbroken row of tapes leads up to a restart key."""
    tapes, kept = _nearest(rest), set[Place]()
    for step, _ in rest.restarts:
        while (step := step - 1) in tapes:
            kept.add((step, tapes[step]))
    return tuple(sorted(kept))


class _Planner:
    """From what is stored to the recurrence, and back to actions.

    Where keys are moved between levels first, the state in the register is lost with that.
    """

    def __init__(self, rest: Standing, *, moving: bool) -> None:
        self.rest, self.moving = rest, moving
        self.chain = rest.chain.with_steps(rest.adjoint)
        self.platform = _with_less_room(rest)
        self.tapes = _nearest(rest)
        self.advance = (
            min(rest.chain.advance, rest.chain.record) if rest.new_tapes else rest.chain.advance
        )
        self.held = rest.platform.tapes(self.chain) if rest.new_tapes else 1

    def plan(self, most_work: int) -> Plan | None:
        """The best plan, over all steps if there is time for that.

        Where there is only if some levels never fill, and a plan leaves slots of those, it is seen
        how far that leads: what fits then is better.
        """
        plan, roomy = self._plan(most_work, frozenset()), frozenset(self._roomy(most_work))
        if plan is None or plan.exact or not roomy or not self._fits(plan, roomy, spare=1):
            return plan
        if not self._solvable(most_work, self._spaces(roomy)):
            return plan
        ideal = self._plan(most_work, roomy)
        return ideal if ideal is not None and self._fits(ideal, roomy) else plan

    def _solvable(self, most_work: int, given: list[Space]) -> bool:
        return self.chain.length**2 * _work(given, self._items(given)) <= most_work

    def _roomy(self, most_work: int) -> Iterator[int]:
        """The levels of many slots that are planned as if they never filled, to plan in time."""
        given = self._spaces()
        given.sort(key=lambda space: space.empty)
        if self.rest.new_tapes:
            return
        most = max(most_work / self.chain.length**2, _FEW_ROOMS)
        while given and _columns(given) * len(given) > most:
            yield given.pop().number

    def _spaces(self, endless: Collection[int] = (), units: int = _UNITS) -> list[Space]:
        return spaces(
            self.chain,
            self.platform,
            new_tapes=self.rest.new_tapes,
            endless=endless,
            most_units=units,
        )

    def _fits(self, plan: Plan, levels: Collection[int], spare: int = 0) -> bool:
        """Whether these levels hold what is stored at a time, and have so many slots to spare."""
        kept = [
            [Key(Kind.RESTART, step) for step, level in self.rest.restarts if level == number]
            for number in range(len(self.platform.levels))
        ]
        used = counts(with_discards(Schedule(self.chain, plan.actions, kept))).levels
        size, most = self.chain.restart, self.chain.length
        return all(
            level.slots(size, most) >= there.peak + spare
            for number, (level, there) in enumerate(zip(self.platform.levels, used, strict=False))
            if number in levels
        )

    def _plan(self, most_work: int, endless: frozenset[int]) -> Plan | None:
        given = self._spaces(endless)
        items, steps = self._items(given), self.chain.length
        if self.moving and self.rest.state is not None and not any(map(_moved, items)):
            return None
        state = None if self.moving else self.rest.state
        exact = self._solvable(most_work, given)
        if exact:
            known = np.where(np.arange(steps + 1) <= self.held, 0.0, inf)
            solved = table(given, known, move=self.advance)
            rooms = Rooms(solved, self.held)
            stack = Stack(items, rooms, solved.seconds, self._jumps(), self.advance)
            uses = stack.best(state)
        else:
            given = self._spaces(endless, units=_MANY_UNITS)
            kept = Counter(item.place for item in items)
            sketch, excess = sketched(given, steps, kept, move=self.advance, held=self.held)
            rooms = Rooms(sketch, self.held, excess, sketch.left)
            uses = Segments(items, rooms, sketch, steps).best(state)
        if not uses:
            return None
        return Plan(self._recorded(Actions.of(self._actions(uses, rooms))), exact)

    def _jumps(self) -> NDArray[np.float64]:
        """What it takes to go from each step to the one before by its tape, and no Record."""
        jumps = np.full(self.chain.length + 1, inf)
        for step, level in self.tapes.items():
            read = _read_tape(self.chain, self.platform, level)
            jumps[step + 1] = read - self.chain.record
        return jumps

    def _items(self, given: list[Space]) -> list[Item]:
        """Everything that may be kept, in the order of steps."""
        places = {space.number: place for place, space in enumerate(given)}
        holding = [space.number for space in given if space.after_restart[-1] >= 0]
        slower = sorted(holding, key=self._slowness)
        items = [
            Item(step, places[level], level, given[places[level]].read, level)
            for step, level in self.rest.restarts
        ]
        if self.moving:
            for step, level in self.rest.restarts:
                targets = slower[slower.index(level) + 1 :] if given[places[level]].empty else []
                for to in (to for to in targets if (step, to) not in self.rest.restarts):
                    extra = given[places[level]].read + given[places[to]].write
                    items.append(Item(step, places[to], to, given[places[to]].read, level, extra))
        state = self.rest.state
        # Where others are moved too, they never leave the slowest level: it is as free before.
        for to in slower[-1:] if self.moving else slower:
            if state is not None and (state, to) not in self.rest.restarts:
                space = given[places[to]]
                items.append(Item(state, places[to], to, space.read, None, space.write))
        return sorted(items, key=lambda item: item[:3])

    def _slowness(self, number: int) -> tuple[float, int]:
        """What levels are ordered by: the seconds to write, discard and read a restart key."""
        level, nbytes = self.platform.levels[number], self.chain.restart
        moved = nbytes * copies(self.chain, self.platform, number, Kind.RESTART)
        return level.write(moved) + level.discard(nbytes) + level.read(moved), number

    # Back to actions

    def _actions(self, uses: list[Use], rooms: Rooms) -> Iterator[Action]:
        yield from self._brought({use.item for use in uses if use.item is not None})
        state = self.rest.state
        for item, begin, end, room, place in uses:
            if room is None:
                yield Read(Key(Kind.TAPE, begin), self.tapes[begin])
                yield Reverse(begin, end)
                continue
            if item is not None:
                state = item.step
                yield Read(Key(Kind.RESTART, state), item.level)
            elif place is not None and state is not None:
                yield from self._stored(state, rooms.solved.spaces[place].number)
            if state is not None and state < begin:
                yield Advance(state, begin)
            yield from rooms.finish(begin, end, room, place)

    def _stored(self, state: int, level: int) -> Iterator[Action]:
        """The state in the register is to be on this level too: written, if it is not there."""
        if (state, level) not in self.rest.restarts:
            yield Write(Key(Kind.RESTART, state), level)

    def _brought(self, items: set[Item]) -> Iterator[Action]:
        """The state in the register is written first, and then keys are moved.

        They are only moved to slower levels; those from the slowest go first, and leave their room.
        """
        moved = list[tuple[tuple[float, int], Item]]()
        for item in items:
            if item.source is None:
                yield Write(Key(Kind.RESTART, item.step), item.level)
            elif item.source != item.level:
                moved.append((self._slowness(item.source), item))
        for (_, source), item in sorted(moved, reverse=True):
            yield Read(Key(Kind.RESTART, item.step), source)
            yield Write(Key(Kind.RESTART, item.step), item.level)

    def _recorded(self, actions: Actions) -> Actions:
        """Ways are recorded where that is quicker, as many steps at a time as can be held."""
        if not (self.rest.new_tapes and self.chain.record < self.chain.advance):
            return actions
        ways = actions.op == ADVANCE
        pieces = np.where(ways, -(-(actions.end - actions.begin) // self.held), 1)
        rows = np.repeat(np.arange(len(actions)), pieces)
        number = np.arange(len(rows)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
        made, split = actions.take(rows), ways[rows]
        begin = made.begin + split * number * self.held
        return Actions(
            op=np.where(split, RECORD, made.op).astype(np.uint8),
            begin=begin,
            end=np.where(split, np.minimum(begin + self.held, made.end), made.end),
            kind=made.kind,
            level=made.level,
        )


def _moved(item: Item) -> bool:
    """Whether it is brought from another level."""
    return item.source not in (None, item.level)


def _work(given: list[Space], items: list[Item]) -> int:
    """Additions and comparisons of the recurrences, for each pair of steps."""
    numbers = {space.number: space.empty for space in given}
    vectors = prod(
        min(slots, sum(item.level == number for item in items)) + 1
        for number, slots in numbers.items()
    )
    # Tables of few columns take as long as if they had more.
    return 2 * len(given) * max(_columns(given), 8) + vectors * len(items)


def _columns(given: Iterable[Space]) -> int:
    """The different amounts of free room on all levels together."""
    return prod(space.empty + 1 for space in given)


def _with_less_room(rest: Standing) -> Platform:
    """The platform without the room that the stored tapes take."""
    used = Counter[int]()
    for _, level in rest.tapes:
        used[level] += rest.platform.levels[level].stored(rest.chain.tape)
    levels = (
        level if level.capacity is None else replace(level, capacity=level.capacity - used[number])
        for number, level in enumerate(rest.platform.levels)
    )
    return replace(rest.platform, levels=tuple(levels))
