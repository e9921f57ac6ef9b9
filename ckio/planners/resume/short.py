"""The rest of a short chain: a search for the keys to keep, and recurrences on ranges of steps.

Let X be the stored restart keys, T the stored tapes, F the free bytes of each level, and h the
bytes of the working memory for tapes. P is the least time to reverse [p, m) when x_p is only in the
register:

    P(p, m, F)     = record_p + .. + record_{m-1}        where these tapes fit into h, or m = p + 1,
                     min over tapes of step p:    u_p + P(p+1, m, F) + r
                         over tapes of step m-1:  r + P(p, m-1, F + b)
                         over levels k:           record_p + w_k + P(p+1, m, F - b_k) + r_k
                                                  w_k + Q0(p, m, F - a_k, k)
    Q0(p, m, F, k) = min_{p<j<m} u_p + .. + u_{j-1} + P(j, m, F) + r_k + Q(p, j, F, k)
    Q(p, m, F, k)  = min(Q0(p, m, F, k), P(p, m, F + a_k))

where u, r and w are the seconds to advance, to read, and to write and later discard, and a and b
are the bytes of a restart key and of a tape, each for its step. This is the recurrence of `varying`
(Herrmann and Pallez 2020, Maddison 2023) with stored tapes. If the adjoint has not started, m is
n + 1, and P(n, n + 1) = 0. Then the last step is like any other, and its tape may be read once x_n
was reached. G is the least time to reverse [0, m) with empty registers; x_e is the last restart
key:

    G(X, T, m) = min over tapes of step m-1:    r + G(X, T - t_{m-1}, m-1)
                     copies D of x_e to drop:   G(X - D, T, m),
                         and over e <= p < m:   r_e + u_e + .. + u_{p-1} + P(p, m, F + a_D)
                                                + G(X - D, T, p)

The last line is needed for this case: read x_e, drop it, reverse only [p, m), and reach the steps
before p later, from an earlier key. For example, take x_1 on a near level of one slot, x_0 on a
full level, 5 steps of one second, and no cost of access. It takes 10 seconds if x_1 is dropped for
x_2, and 11 seconds if x_1 is kept until [1, 5) is reversed.

Before G, keys are moved between levels if this saves time, and the state in the register is written
or used once. Dijkstra's algorithm searches over the registers and the keys on each level.
"""

from collections.abc import Iterable, Iterator
from functools import lru_cache
from heapq import heappop, heappush
from itertools import accumulate, combinations, count
from math import inf, prod
from typing import NamedTuple, TypeAlias

from ckio.actions import Action, Advance, Key, Kind, Read, Record, Reverse, Write
from ckio.planners.resume.remainder import Remainder, Stored

_Moves: TypeAlias = "Action | tuple[_Moves, ...]"
"""A tree of actions; their order is from left to right."""

_Keys: TypeAlias = tuple[Stored, ...]
_Free: TypeAlias = tuple[float, ...]

MOST_COMPARED, _MOST_RANGES = 25_000, 20_000
"""The most ways that are compared (about 0.2 s), and the most ranges.

The number of ranges is steps^3 for each value of the free space. With more ranges, no way would be
found in time.
"""


class ShortPlan(NamedTuple):
    """The best way to finish that the search has found.

    Attributes
    ----------
    actions : list of Action
        The actions, without Discards.
    complete : bool
        Whether the search compared all ways.
    """

    actions: list[Action]
    complete: bool


def is_short(rest: Remainder, /) -> bool:
    """Return whether the search is likely to find a way in time."""
    kinds = (Kind.RESTART, Kind.TAPE)[: 1 + rest.new_tapes]
    least = min(rest.nbytes(kind, step) for kind in kinds for step in range(rest.steps))
    rooms = (1 + level.slots(least, rest.steps) for level in rest.platform.levels)
    return rest.steps <= _MOST_RANGES ** (1 / 3) and rest.steps**3 * prod(rooms) <= _MOST_RANGES


def search(rest: Remainder, /, *, most: int = MOST_COMPARED) -> ShortPlan | None:
    """Return the best way to finish after comparing at most `most` ways.

    Return None if there is no way, or if none was found within this limit.
    """
    ranges = _Ranges(rest, most)
    best, complete = _Priced(inf), True
    try:
        for priced in _judged(ranges):
            best = least((best, priced))
    except _TooMuchWork:
        complete = False
    return ShortPlan(list(_flat(best.moves)), complete) if best.seconds < inf else None


class _TooMuchWork(Exception):
    """The search has reached its limit of ways to compare."""


class _Priced(NamedTuple):
    """Actions and the seconds that they take."""

    seconds: float
    moves: _Moves = ()


def least(ways: Iterable[_Priced]) -> _Priced:
    """Return the fastest way; if there are none, a way of infinite seconds."""
    return min(ways, key=lambda way: way.seconds, default=_Priced(inf))


def _in_turn(*ways: _Priced) -> _Priced:
    return _Priced(sum(way.seconds for way in ways), tuple(way.moves for way in ways))


def _flat(moves: _Moves) -> Iterator[Action]:
    todo = [moves]
    while todo:
        first = todo.pop()
        if isinstance(first, tuple):
            todo.extend(reversed(first))
        else:
            yield first


def _within(keys: _Keys, begin: int, end: int) -> _Keys:
    """Return the keys of steps [begin, end)."""
    return tuple(key for key in keys if begin <= key[0] < end)


def _without(keys: _Keys, key: Stored) -> _Keys:
    return tuple(other for other in keys if other != key)


class _Ranges:
    """P, Q and G, each value with its actions.

    The seconds leave out what every way needs: Reverses, and also Records if no tapes are used.
    """

    def __init__(self, rest: Remainder, most: int) -> None:
        self.rest, self.left = rest, most
        chain, steps = rest.chain, range(rest.steps)
        levels = rest.platform.levels
        self.levels = [k for k, level in enumerate(levels) if not level.read_only]
        self.sizes = {
            kind: [rest.nbytes(kind, step) for step in steps] for kind in (Kind.RESTART, Kind.TAPE)
        }
        record = [chain.seconds(Record(step, step + 1)) for step in steps]
        advance = [chain.seconds(Advance(step, step + 1)) for step in steps]
        self.recording = [rest.new_tapes and record[i] < advance[i] for i in steps]
        quickest = (record[i] if self.recording[i] else advance[i] for i in steps)
        self.before = list(accumulate(quickest, initial=0.0))
        in_play = rest.new_tapes or bool(rest.tapes)
        self.recorded = list(accumulate((cost * in_play for cost in record), initial=0.0))
        self.least = [
            min(
                [record[i] * in_play]
                + [self._read(Kind.TAPE, (i, k)).seconds for k in range(len(levels))]
            )
            for i in steps
        ]
        self.at_least = list(accumulate(self.least, initial=0.0))
        self.taped = list(accumulate(self.sizes[Kind.TAPE], initial=0))
        self.fresh = lru_cache(None)(self._fresh)
        self.apart = lru_cache(None)(self._apart)
        self.again = lru_cache(None)(self._again)
        self.stack = lru_cache(None)(self._stack)
        self.read = lru_cache(None)(self._read)

    # Single actions, and the free space after them

    def _read(self, kind: Kind, key: Stored) -> _Priced:
        step, level = key
        return _Priced(self.rest.seconds_to_read(kind, step, level), Read(Key(kind, step), level))

    def write(self, kind: Kind, step: int, level: int) -> _Priced:
        seconds = self.rest.seconds_to_keep(kind, step, level)
        return _Priced(seconds, Write(Key(kind, step), level))

    def spend(self, tape: Stored) -> _Priced:
        """Return the way that reverses a step from its stored tape."""
        return _in_turn(self.read(Kind.TAPE, tape), _Priced(0.0, Reverse(tape[0], tape[0] + 1)))

    def record(self, begin: int, end: int) -> _Priced:
        return _Priced(self.recorded[end] - self.recorded[begin], Record(begin, end))

    def advance(self, step: int) -> _Priced:
        action = Advance(step, step + 1)
        return _Priced(self.rest.chain.seconds(action), action)

    def go(self, begin: int, end: int) -> _Priced:
        """Return the way from x_begin to x_end; it records if that is faster and tapes are used."""
        if begin == end:
            return _Priced(0.0)
        moves: _Moves = Advance(begin, end)
        if any(self.recording[begin:end]):
            moves = tuple(
                Record(step, step + 1) if self.recording[step] else Advance(step, step + 1)
                for step in range(begin, end)
            )
        return _Priced(self.before[end] - self.before[begin], moves)

    def room(self, restarts: _Keys, tapes: _Keys) -> _Free:
        """Return the free bytes of each level if only these keys are stored."""
        capacities = (level.capacity for level in self.rest.platform.levels)
        free = tuple(inf if capacity is None else capacity for capacity in capacities)
        return self.put(self.put(free, Kind.RESTART, *restarts), Kind.TAPE, *tapes)

    def put(self, free: _Free, kind: Kind, *keys: Stored, sign: int = -1) -> _Free:
        """Return the free bytes after these keys are stored."""
        room = list(free)
        for step, level in keys:
            stored = self.rest.platform.levels[level].stored(self.sizes[kind][step])
            room[level] += sign * stored
        return tuple(room)

    def drop(self, free: _Free, kind: Kind, *keys: Stored) -> _Free:
        """Return the free bytes after these keys are dropped."""
        return self.put(free, kind, *keys, sign=1)

    def bound(self, position: "_Position") -> float:
        """Return a lower bound of the seconds left: each step is recorded, or its tape is read."""
        steps = min(position.adjoint, self.rest.steps)
        paid = self.least[position.tape] if position.tape is not None else 0.0
        return self.at_least[steps] - paid

    def counted(self, ways: Iterable[_Priced]) -> _Priced:
        """Return the fastest way; each way counts towards the limit."""
        some = list(ways)
        self.count(len(some))
        return least(some)

    def count(self, ways: int) -> None:
        self.left -= ways
        if self.left < 0:
            raise _TooMuchWork

    # P, Q0 and Q of the equations; `tapes` are the stored ones within [p, m)

    def _fresh(self, p: int, m: int, free: _Free, tapes: _Keys) -> _Priced:
        if p in (m, self.rest.chain.length):
            return _Priced(0.0)
        return self.counted(self._first(p, m, free, tapes))

    def _first(self, p: int, m: int, free: _Free, tapes: _Keys) -> Iterator[_Priced]:
        """Yield the choices for x_p, which is in the register only."""
        end, held = min(m, self.rest.steps), self.rest.platform.working_memory
        fit = held is None or self.taped[end] - self.taped[p] <= held
        if end == p + 1 or (self.rest.new_tapes and fit):
            yield _in_turn(self.record(p, end), _Priced(0.0, Reverse(p, end)))
        for tape in tapes:
            if tape[0] == m - 1:
                room = self.drop(free, Kind.TAPE, *_within(tapes, m - 1, m))
                left = self.fresh(p, m - 1, room, _within(tapes, p, m - 1))
                yield _in_turn(self.spend(tape), left)
            elif tape[0] == p:
                right = self.fresh(p + 1, m, free, _within(tapes, p + 1, m))
                yield _in_turn(self.go(p, p + 1), right, self.spend(tape))
        if m == p + 1:
            return
        for level in self.levels:
            here = p, level
            if self.rest.new_tapes and min(then := self.put(free, Kind.TAPE, here)) >= 0:
                yield _in_turn(
                    self.record(p, p + 1),
                    self.write(Kind.TAPE, p, level),
                    self.fresh(p + 1, m, then, _within(tapes, p + 1, m)),
                    self.spend(here),
                )
            if min(then := self.put(free, Kind.RESTART, here)) >= 0:
                written = self.write(Kind.RESTART, p, level)
                yield _in_turn(written, self.apart(p, m, then, level, tapes))

    def _apart(self, p: int, m: int, free: _Free, level: int, tapes: _Keys) -> _Priced:
        """Return Q0: x_p is in the register and on a level, and the next action is to advance."""
        return self.counted(
            _in_turn(
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

    def _again(self, p: int, m: int, free: _Free, level: int, tapes: _Keys) -> _Priced:
        """Return Q: x_p is in the register and on a level, and may be dropped there."""
        dropped = self.fresh(p, m, self.drop(free, Kind.RESTART, (p, level)), tapes)
        return least((self.apart(p, m, free, level, tapes), dropped))

    # G of the equations

    def _stack(self, restarts: _Keys, tapes: _Keys, m: int) -> _Priced:
        if m == 0:
            return _Priced(0.0)
        return self.counted(self._next(_within(restarts, 0, m), _within(tapes, 0, m), m))

    def _next(self, restarts: _Keys, tapes: _Keys, m: int) -> Iterator[_Priced]:
        for tape in _within(tapes, m - 1, m):
            yield _in_turn(self.spend(tape), self.stack(restarts, _without(tapes, tape), m - 1))
        if not restarts:
            return
        last = restarts[-1][0]
        same = _within(restarts, last, last + 1)
        quickest = least(self.read(Kind.RESTART, key) for key in same)
        for dropped in range(len(same) + 1):
            for kept in combinations(same, len(same) - dropped):
                rest = restarts[: len(restarts) - len(same)] + kept
                if dropped:
                    yield self.stack(rest, tapes, m)
                yield _in_turn(quickest, self.use(last, rest, tapes, m))

    def use(self, at: int, restarts: _Keys, tapes: _Keys, m: int) -> _Priced:
        """Return the way from x_at: advance to the best p, reverse [p, m), then [0, p)."""
        return self.counted(
            _in_turn(
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


class _Position(NamedTuple):
    """A state of the search: the adjoint, the registers of state and tape, and stored keys."""

    adjoint: int
    state: int | None
    tape: int | None
    restarts: _Keys
    tapes: _Keys


def _judged(ranges: _Ranges) -> Iterator[_Priced]:
    """Yield ways to finish from each position of the search, until none can be faster."""
    rest, order = ranges.rest, count()
    start = _Position(rest.end, rest.state, None, rest.restarts, rest.tapes)
    frontier = [(0.0, next(order), _Priced(0.0), start)]
    best, seen = inf, set[_Position]()
    while frontier and frontier[0][0] < best:
        _, _, way, position = heappop(frontier)
        if position in seen:
            continue
        seen.add(position)
        m, state, tape, restarts, tapes = position
        finishes = [] if tape is not None else [ranges.stack(restarts, tapes, m)]
        if tape is None and state is not None:
            finishes.append(ranges.use(state, restarts, tapes, m))
        for finish in finishes:
            best = min(best, way.seconds + finish.seconds)
            yield _in_turn(way, finish)
        for more, then in (*_kept(ranges, position), *_moved(ranges, position)):
            ranges.count(1)
            longer = _in_turn(way, more)
            at_least = longer.seconds + ranges.bound(then)
            if then not in seen and at_least < best:
                heappush(frontier, (at_least, next(order), longer, then))


def _kept(ranges: _Ranges, position: _Position) -> Iterator[tuple[_Priced, _Position]]:
    """Yield the ways to drop or to read one key."""
    levels = ranges.rest.platform.levels
    for key in position.restarts:
        fewer = position._replace(restarts=_without(position.restarts, key))
        if levels[key[1]].capacity is not None:
            yield _Priced(0.0), fewer
        if key[0] != position.state:
            yield ranges.read(Kind.RESTART, key), position._replace(state=key[0])
    for tape in position.tapes:
        if levels[tape[1]].capacity is not None:
            yield _Priced(0.0), position._replace(tapes=_without(position.tapes, tape))
        if tape[0] != position.tape:
            yield ranges.read(Kind.TAPE, tape), position._replace(tape=tape[0])


def _below(position: _Position) -> _Position:
    """Return the position after the last remaining step has been reversed."""
    m, state, _, restarts, tapes = position
    above = None if state == m - 1 else state
    return _Position(m - 1, above, None, _within(restarts, 0, m - 1), _within(tapes, 0, m - 1))


def _moved(ranges: _Ranges, position: _Position) -> Iterator[tuple[_Priced, _Position]]:
    """Yield the ways to reverse a step, to write a register, or to go forward one step."""
    m, state, tape, restarts, tapes = position
    if tape is not None and tape == m - 1:
        yield _Priced(0.0, Reverse(tape, m)), _below(position)
    for level in ranges.levels if ranges.rest.new_tapes else ():
        more = tapes if tape is None else _with(tapes, (tape, level))
        if tape is not None and more != tapes and min(ranges.room(restarts, more)) >= 0:
            yield ranges.write(Kind.TAPE, tape, level), position._replace(tape=None, tapes=more)
    # After the last restart key P decides what to write, unless a tape is in the register.
    last = restarts[-1][0] if restarts else -1
    if state is None or (tape is None and last < state):
        return
    for level in ranges.levels:
        more = _with(restarts, (state, level))
        if len(more) > len(restarts) and min(ranges.room(more, tapes)) >= 0:
            yield ranges.write(Kind.RESTART, state, level), position._replace(restarts=more)
    if tape is None and last == state:
        return
    # A Record would replace the tape in the register.
    forward = ranges.go(state, state + 1) if tape is None else ranges.advance(state)
    yield forward, _onward(position, ranges.rest.chain.length, tape)
    if ranges.rest.new_tapes:
        yield ranges.record(state, state + 1), _onward(position, ranges.rest.chain.length, state)


def _onward(position: _Position, end: int, tape: int | None) -> _Position:
    """Return the position after one step forward; a state after the last step is dropped."""
    m = min(position.adjoint, end)
    state = None if position.state is None or position.state + 1 >= m else position.state + 1
    return position._replace(
        adjoint=m if state is None else position.adjoint, state=state, tape=tape
    )


def _with(keys: _Keys, key: Stored) -> _Keys:
    return tuple(sorted({*keys, key}))
