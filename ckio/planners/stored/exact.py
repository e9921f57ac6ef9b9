"""The best way to finish from stored keys, by a search through what to keep: for short chains.

X are the stored restart keys, T the stored tapes, F the free bytes of each level. Within [p, m),
with x_p in the register only, P(p, m, F) is the recurrence of `mixed`, and it uses what is kept:

    P(p, m, F)     = record_p, or r of a tape of step p                          if m = p + 1,
                     min over tapes of step p:    u_p + P(p+1, m, F) + r
                         over tapes of step m-1:  r + P(p, m-1, F + b)
                         over levels k:           record_p + w_k + P(p+1, m, F - b_k) + r_k
                                                  w_k + Q0(p, m, F - a_k, k)
    Q0(p, m, F, k) = min_{p<j<m} u_p + .. + u_{j-1} + P(j, m, F) + r_k + Q(p, j, F, k)
    Q(p, m, F, k)  = min(Q0(p, m, F, k), P(p, m, F + a_k)), and P(p, m, F) if m = p + 1

where u, r, w are the seconds to advance, to read, and to write and later discard; a and b the bytes
of a restart key and of a tape. G finishes [0, m) with empty registers, x_e the last restart key:

    G(X, T, m) = min over tapes of step m-1:    r + G(X, T - t_{m-1}, m-1)
                     copies D of x_e to drop:   G(X - D, T, m),
                         and over e <= p < m:   r_e + u_e + .. + u_{p-1} + P(p, m, F + a_D)
                                                + G(X - D, T, p)

The last line is the one that is easily forgotten: read x_e, drop it, finish [p, m) only, and reach
the steps before p later, from a key further left. Before G, keys are moved from level to level
where that pays, and the state in the register is written, or used once: a search in itself.

Exhaustive search over all legal actions has found something better in one of several thousand small
cases (there a tape waits in its register while keys are moved about). It is evidence, not a proof;
where sizes differ from step to step, better ways are known to be less rare.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from heapq import heappop, heappush
from itertools import accumulate, combinations, count
from math import inf, prod
from typing import NamedTuple, TypeAlias

from ckio.actions import Action, Advance, Key, Kind, Read, Record, Reverse, Write
from ckio.planners.stored.standing import Place, Standing

Moves: TypeAlias = "Action | tuple[Moves, ...]"
"""Actions in a tree, to be walked from left to right."""

Places: TypeAlias = tuple[Place, ...]
Free: TypeAlias = tuple[float, ...]
Held: TypeAlias = tuple[int, int | None, Places, Places]
"""The adjoint, the state in the register, restart keys and tapes."""


class Way(NamedTuple):
    """Something to be done: the seconds that it takes, and how."""

    seconds: float
    moves: Moves = ()


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


def _least(ways: Iterable[Way]) -> Way:
    return min(ways, key=lambda way: way.seconds, default=Way(inf))


def _all(*ways: Way) -> Way:
    """One after the other."""
    return Way(sum(way.seconds for way in ways), tuple(way.moves for way in ways))


def _within(keys: Places, begin: int, end: int) -> Places:
    """Those of steps [begin, end)."""
    return tuple(key for key in keys if begin <= key[0] < end)


def _without(keys: Places, key: Place) -> Places:
    return tuple(other for other in keys if other != key)


class _Search:
    def __init__(self, standing: Standing) -> None:
        self.standing = standing
        self.levels = standing.platform.levels
        chain, steps = standing.chain, range(standing.adjoint)
        in_play = standing.new_tapes or bool(standing.tapes)
        self.restart = [chain.nbytes(Key(Kind.RESTART, step)) for step in steps]
        self.tape = [chain.nbytes(Key(Kind.TAPE, step)) for step in steps]
        record = [chain.seconds(Record(step, step + 1)) for step in steps]
        advance = [chain.seconds(Advance(step, step + 1)) for step in steps]
        self.record = record if in_play else [0.0 for _ in steps]
        self.recording = [standing.new_tapes and record[i] < advance[i] for i in steps]
        quickest = (record[i] if self.recording[i] else advance[i] for i in steps)
        self.before = list(accumulate(quickest, initial=0.0))
        self.complete = False
        self.fresh = lru_cache(None)(self._fresh)
        self.apart = lru_cache(None)(self._apart)
        self.again = lru_cache(None)(self._again)
        self.stack = lru_cache(None)(self._stack)

    # What single moves cost

    def read(self, kind: Kind, place: Place) -> Way:
        key, level = Key(kind, place[0]), place[1]
        return Way(self.levels[level].read(self._sizes(kind)[key.step]), Read(key, level))

    def write(self, kind: Kind, place: Place) -> Way:
        key, level = Key(kind, place[0]), self.levels[place[1]]
        nbytes = self._sizes(kind)[key.step]
        return Way(level.write(nbytes) + level.discard(nbytes), Write(key, place[1]))

    def _sizes(self, kind: Kind) -> Sequence[int]:
        return self.tape if kind is Kind.TAPE else self.restart

    def go(self, begin: int, end: int) -> Way:
        """From x_begin to x_end; by Record where that is quicker and tapes may be planned."""
        if begin == end:
            return Way(0.0)
        moves: Moves = Advance(begin, end)
        if any(self.recording[begin:end]):
            moves = tuple(
                Record(step, step + 1) if self.recording[step] else Advance(step, step + 1)
                for step in range(begin, end)
            )
        return Way(self.before[end] - self.before[begin], moves)

    # What room there is

    def room(self, restarts: Places, tapes: Places) -> Free:
        free = tuple(inf if level.capacity is None else level.capacity for level in self.levels)
        for kind, places in ((Kind.RESTART, restarts), (Kind.TAPE, tapes)):
            free = self.put(free, kind, *places)
        return free

    def put(self, free: Free, kind: Kind, *places: Place) -> Free:
        """The room that is left once these keys are stored."""
        return self._shift(free, kind, places, -1)

    def drop(self, free: Free, kind: Kind, *places: Place) -> Free:
        """The room that there is once these keys are dropped."""
        return self._shift(free, kind, places, 1)

    def _shift(self, free: Free, kind: Kind, places: Places, sign: int) -> Free:
        room = list(free)
        for step, level in places:
            room[level] += sign * self.levels[level].stored(self._sizes(kind)[step])
        return tuple(room)

    # P, Q0 and Q of the equations; `tapes` are the stored ones within [p, m)

    def _fresh(self, p: int, m: int, free: Free, tapes: Places) -> Way:
        return _least(self._last(p, tapes) if m == p + 1 else self._first(p, m, free, tapes))

    def _last(self, p: int, tapes: Places) -> Iterator[Way]:
        reverse = Way(0.0, Reverse(p, p + 1))
        yield _all(Way(self.record[p], Record(p, p + 1)), reverse)
        for tape in tapes:
            yield _all(self.read(Kind.TAPE, tape), reverse)

    def _first(self, p: int, m: int, free: Free, tapes: Places) -> Iterator[Way]:
        for tape in tapes:
            back = _all(self.read(Kind.TAPE, tape), Way(0.0, Reverse(tape[0], tape[0] + 1)))
            if tape[0] == p:
                rest = _within(tapes, p + 1, m)
                yield _all(self.go(p, p + 1), self.fresh(p + 1, m, free, rest), back)
            if tape[0] == m - 1:
                room = self.drop(free, Kind.TAPE, *_within(tapes, m - 1, m))
                yield _all(back, self.fresh(p, m - 1, room, _within(tapes, p, m - 1)))
        for level in range(len(free)):
            here = p, level
            if self.standing.new_tapes and min(then := self.put(free, Kind.TAPE, here)) >= 0:
                yield _all(
                    Way(self.record[p], Record(p, p + 1)),
                    self.write(Kind.TAPE, here),
                    self.fresh(p + 1, m, then, _within(tapes, p + 1, m)),
                    self.read(Kind.TAPE, here),
                    Way(0.0, Reverse(p, p + 1)),
                )
            if min(then := self.put(free, Kind.RESTART, here)) >= 0:
                yield _all(self.write(Kind.RESTART, here), self.apart(p, m, then, level, tapes))

    def _apart(self, p: int, m: int, free: Free, level: int, tapes: Places) -> Way:
        """Q0: x_p is in the register and on a level, and what comes next is to advance."""
        return _least(
            _all(
                self.go(p, j),
                self.fresh(j, m, free, _within(tapes, j, m)),
                self.read(Kind.RESTART, (p, level)),
                self.again(
                    p,
                    j,
                    self.drop(free, Kind.TAPE, *_within(tapes, j, m)),
                    level,
                    _within(tapes, p, j),
                ),
            )
            for j in range(p + 1, m)
        )

    def _again(self, p: int, m: int, free: Free, level: int, tapes: Places) -> Way:
        """Q: x_p is in the register and on a level, and may be dropped there."""
        dropped = self.fresh(p, m, self.drop(free, Kind.RESTART, (p, level)), tapes)
        if m == p + 1:
            return dropped
        return _least((self.apart(p, m, free, level, tapes), dropped))

    # G of the equations

    def _stack(self, restarts: Places, tapes: Places, m: int) -> Way:
        if m == 0:
            return Way(0.0)
        return _least(self._next(_within(restarts, 0, m), _within(tapes, 0, m), m))

    def _next(self, restarts: Places, tapes: Places, m: int) -> Iterator[Way]:
        if self.standing.turned or m < self.standing.chain.length:
            for tape in _within(tapes, m - 1, m):
                yield _all(
                    self.read(Kind.TAPE, tape),
                    Way(0.0, Reverse(m - 1, m)),
                    self.stack(restarts, _without(tapes, tape), m - 1),
                )
        if not restarts:
            return
        last = restarts[-1][0]
        copies = _within(restarts, last, last + 1)
        quickest = _least(self.read(Kind.RESTART, copy) for copy in copies)
        for dropped in range(len(copies) + 1):
            for kept in combinations(copies, len(copies) - dropped):
                rest = restarts[: len(restarts) - len(copies)] + kept
                if dropped:
                    yield self.stack(rest, tapes, m)
                yield _all(quickest, self.use(last, rest, tapes, m))

    def use(self, at: int, restarts: Places, tapes: Places, m: int) -> Way:
        """With x_at in the register: go to the best p, finish [p, m) and then what is left of p."""
        return _least(
            _all(
                self.go(at, p),
                self.fresh(
                    p,
                    m,
                    self.room(_within(restarts, 0, p), _within(tapes, 0, m)),
                    _within(tapes, p, m),
                ),
                self.stack(_within(restarts, 0, p), _within(tapes, 0, p), p),
            )
            for p in range(at, m)
        )

    # What is done before: dropping, moving, and writing the state that the register holds

    def best(self) -> Way:
        """Dijkstra over what is held and where, each place judged by how it can be finished."""
        at, order = self.standing, count()
        start: Held = (at.adjoint, at.state, at.restarts, at.tapes)
        frontier = [(0.0, next(order), Way(0.0), start)]
        best, seen = Way(inf), set[Held]()
        while frontier and frontier[0][0] < best.seconds and len(seen) < _MOST_SEEN:
            seconds, _, way, held = heappop(frontier)
            if held in seen:
                continue
            seen.add(held)
            m, state, restarts, tapes = held
            best = _least((best, _all(way, self.stack(restarts, tapes, m))))
            if state is not None:
                best = _least((best, _all(way, self.use(state, restarts, tapes, m))))
            for more, then in self.changes(held):
                if then not in seen:
                    heappush(frontier, (seconds + more.seconds, next(order), _all(way, more), then))
        self.complete = not frontier or frontier[0][0] >= best.seconds
        return best

    def changes(self, held: Held) -> Iterator[tuple[Way, Held]]:
        m, state, restarts, tapes = held
        for key in filter(self.in_the_way, restarts):
            yield Way(0.0), (m, state, _without(restarts, key), tapes)
        for tape in filter(self.in_the_way, tapes):
            yield Way(0.0), (m, state, restarts, _without(tapes, tape))
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
        if self.standing.turned and m:
            for tape in _within(tapes, m - 1, m):
                way = _all(self.read(Kind.TAPE, tape), Way(0.0, Reverse(m - 1, m)))
                left = None if state == m - 1 else state
                yield way, (m - 1, left, _within(restarts, 0, m - 1), _within(tapes, 0, m - 1))

    def in_the_way(self, place: Place) -> bool:
        """Whether it takes room that something else could need."""
        return self.levels[place[1]].capacity is not None

    def written(self, held: Held, state: int) -> Iterator[tuple[Way, Held]]:
        """The state in the register to a level."""
        m, _, restarts, tapes = held
        for level in range(len(self.levels)):
            here = state, level
            more = tuple(sorted({*restarts, here}))
            if here not in restarts and min(self.room(more, tapes)) >= 0:
                yield self.write(Kind.RESTART, here), (m, state, more, tapes)

    def onward(self, held: Held, state: int) -> Iterator[tuple[Way, Held]]:
        """One step on, below a key that is kept: P has no more to say of that."""
        m, _, restarts, tapes = held
        yield self.go(state, state + 1), (m, state + 1, restarts, tapes)
        for level in range(len(self.levels) if self.standing.new_tapes else 0):
            here = state, level
            more = tuple(sorted({*tapes, here}))
            if here not in tapes and min(self.room(restarts, more)) >= 0:
                record = Way(self.record[state], Record(state, state + 1))
                way = _all(record, self.write(Kind.TAPE, here))
                yield way, (m, state + 1, restarts, more)

    def carried(self, held: Held) -> Iterator[tuple[Way, Held]]:
        """A restart key into the register, from where it may be written; a tape to a level."""
        m, state, restarts, tapes = held
        for key in restarts:
            if key[0] != state:
                yield self.read(Kind.RESTART, key), (m, key[0], restarts, tapes)
        for tape in tapes:
            for level in range(len(self.levels)):
                there = tape[0], level
                moved = tuple(sorted((*_without(tapes, tape), there)))
                if there not in tapes and min(self.room(restarts, (*tapes, there))) >= 0:
                    way = _all(self.read(Kind.TAPE, tape), self.write(Kind.TAPE, there))
                    yield way, (m, state, restarts, moved)
