"""The best way to finish from stored keys, by a search through what to keep: for short chains.

Before G (see `keeping`), keys are moved from level to level where that pays, and the state in the
register is written, or used once: a search in itself.

Exhaustive search over all legal actions has found something better in one of several thousand small
cases (there a tape waits in its register while keys are moved about). It is evidence, not a proof;
where sizes differ from step to step, better ways are known to be less rare.
"""

from collections.abc import Iterator
from heapq import heappop, heappush
from itertools import count
from math import inf, prod
from typing import NamedTuple, TypeAlias

from ckio.actions import Action, Kind, Record, Reverse
from ckio.planners.stored.keeping import (
    Keeping,
    Moves,
    Places,
    Way,
    in_turn,
    least,
    within,
    without,
)
from ckio.planners.stored.standing import Place, Standing

Held: TypeAlias = tuple[int, int | None, Places, Places]
"""The adjoint, the state in the register, restart keys and tapes."""

_MOST_PLACES, _MOST_RANGES = 256, 20_000
"""What the search may go through: ways to keep the keys; steps^3 for each room on the levels."""

_MOST_SEEN = 400
"""Of what may be held and where, this much is looked at; what costs less to bring about first.

That is about a tenth of a second."""


def small(rest: Standing, /) -> bool:
    """Whether a search takes no more than about a tenth of a second."""
    levels, steps = len(rest.platform.levels), rest.adjoint
    keys = {step for step, _ in rest.restarts}
    places = 2 ** (levels * len(keys)) * (levels + 1) ** len(rest.tapes)
    restart, tape = (max(1, rest.chain.largest(size)) for size in ("restart", "tape"))
    rooms = prod(
        steps if level.capacity is None else 1 + min(steps, level.capacity // min(restart, tape))
        for level in rest.platform.levels
    )
    return places <= _MOST_PLACES and steps**3 * rooms <= _MOST_RANGES


class Found(NamedTuple):
    """The best way to finish that a search has found.

    Attributes
    ----------
    seconds : float
        What it takes, without what every way pays (Reverses, and Records where no tape is in play);
        infinite if there is no way.
    actions : list of Action
        Without Discards.
    complete : bool
        Whether the search came to its end.
    """

    seconds: float
    actions: list[Action]
    complete: bool


def solve(standing: Standing, /) -> Found:
    """Search for the best way to finish."""
    search = _Search(standing)
    best = search.best()
    return Found(best.seconds, list(_flat(best.moves)), search.complete)


def _flat(moves: Moves) -> Iterator[Action]:
    todo = [moves]
    while todo:
        first = todo.pop()
        if isinstance(first, tuple):
            todo.extend(reversed(first))
        else:
            yield first


class _Search:
    """What is done before: dropping, moving, and writing the state that the register holds."""

    def __init__(self, standing: Standing) -> None:
        self.rest = Keeping(standing)
        self.complete = False

    def best(self) -> Way:
        """Dijkstra over what is held and where, each place judged by how it can be finished."""
        at, order = self.rest.standing, count()
        start: Held = (at.adjoint, at.state, at.restarts, at.tapes)
        frontier = [(0.0, next(order), Way(0.0), start)]
        best, seen = Way(inf), set[Held]()
        while frontier and frontier[0][0] < best.seconds and len(seen) < _MOST_SEEN:
            seconds, _, way, held = heappop(frontier)
            if held in seen:
                continue
            seen.add(held)
            m, state, restarts, tapes = held
            best = least((best, in_turn(way, self.rest.stack(restarts, tapes, m))))
            if state is not None:
                best = least((best, in_turn(way, self.rest.use(state, restarts, tapes, m))))
            for more, then in self.changes(held):
                if then not in seen:
                    heappush(
                        frontier, (seconds + more.seconds, next(order), in_turn(way, more), then)
                    )
        self.complete = not frontier or frontier[0][0] >= best.seconds
        return best

    def changes(self, held: Held) -> Iterator[tuple[Way, Held]]:
        m, state, restarts, tapes = held
        for key in filter(self.in_the_way, restarts):
            yield Way(0.0), (m, state, without(restarts, key), tapes)
        for tape in filter(self.in_the_way, tapes):
            yield Way(0.0), (m, state, restarts, without(tapes, tape))
        yield from self.back(held)
        # Above all that is kept, P knows what to write.
        if state is not None and restarts and restarts[-1][0] >= state:
            yield from self.written(held, state)
        if state is not None and restarts and restarts[-1][0] > state:
            yield from self.onward(held, state)
        yield from self.carried(held)

    def back(self, held: Held) -> Iterator[tuple[Way, Held]]:
        """The last step that is left, from its tape: it leaves the state where it is."""
        m, state, restarts, tapes = held
        if self.rest.standing.turned and m:
            for tape in within(tapes, m - 1, m):
                way = in_turn(self.rest.read(Kind.TAPE, tape), Way(0.0, Reverse(m - 1, m)))
                left = None if state == m - 1 else state
                yield way, (m - 1, left, within(restarts, 0, m - 1), within(tapes, 0, m - 1))

    def in_the_way(self, place: Place) -> bool:
        """Whether it takes room that something else could need."""
        return self.rest.levels[place[1]].capacity is not None

    def written(self, held: Held, state: int) -> Iterator[tuple[Way, Held]]:
        """The state in the register to a level."""
        m, _, restarts, tapes = held
        for level in range(len(self.rest.levels)):
            here = state, level
            more = tuple(sorted({*restarts, here}))
            if here not in restarts and min(self.rest.room(more, tapes)) >= 0:
                yield self.rest.write(Kind.RESTART, here), (m, state, more, tapes)

    def onward(self, held: Held, state: int) -> Iterator[tuple[Way, Held]]:
        """One step on, below a key that is kept: P has no more to say of that."""
        m, _, restarts, tapes = held
        yield self.rest.go(state, state + 1), (m, state + 1, restarts, tapes)
        for level in range(len(self.rest.levels) if self.rest.standing.new_tapes else 0):
            here = state, level
            more = tuple(sorted({*tapes, here}))
            if here not in tapes and min(self.rest.room(restarts, more)) >= 0:
                record = Way(self.rest.record[state], Record(state, state + 1))
                way = in_turn(record, self.rest.write(Kind.TAPE, here))
                yield way, (m, state + 1, restarts, more)

    def carried(self, held: Held) -> Iterator[tuple[Way, Held]]:
        """A restart key into the register, from where it may be written; a tape to a level."""
        m, state, restarts, tapes = held
        for key in restarts:
            if key[0] != state:
                yield self.rest.read(Kind.RESTART, key), (m, key[0], restarts, tapes)
        for tape in tapes:
            for level in range(len(self.rest.levels)):
                there = tape[0], level
                moved = tuple(sorted((*without(tapes, tape), there)))
                if there not in tapes and min(self.rest.room(restarts, (*tapes, there))) >= 0:
                    way = in_turn(
                        self.rest.read(Kind.TAPE, tape), self.rest.write(Kind.TAPE, there)
                    )
                    yield way, (m, state, restarts, moved)
