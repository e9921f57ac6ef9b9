"""What is left to do once it is settled which stored keys to keep: the recurrences, exact.

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
the steps before p later, from a key further left.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import accumulate, combinations
from math import inf
from typing import NamedTuple, TypeAlias

from ckio.actions import Action, Advance, Key, Kind, Read, Record, Reverse, Write
from ckio.planners.stored.standing import Place, Standing
from ckio.platform import copies

Moves: TypeAlias = "Action | tuple[Moves, ...]"
"""Actions in a tree, to be walked from left to right."""

Places: TypeAlias = tuple[Place, ...]
Free: TypeAlias = tuple[float, ...]


class Way(NamedTuple):
    """Something to be done: the seconds that it takes, and how."""

    seconds: float
    moves: Moves = ()


def least(ways: Iterable[Way]) -> Way:
    """The quickest; of none, one that takes for ever."""
    return min(ways, key=lambda way: way.seconds, default=Way(inf))


def in_turn(*ways: Way) -> Way:
    """One after the other."""
    return Way(sum(way.seconds for way in ways), tuple(way.moves for way in ways))


def within(keys: Places, begin: int, end: int) -> Places:
    """Those of steps [begin, end)."""
    return tuple(key for key in keys if begin <= key[0] < end)


def without(keys: Places, key: Place) -> Places:
    """All but one."""
    return tuple(other for other in keys if other != key)


class Keeping:
    """G, and what it is made of, for what stands; each value with the actions that reach it."""

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
        self.fresh = lru_cache(None)(self._fresh)
        self.apart = lru_cache(None)(self._apart)
        self.again = lru_cache(None)(self._again)
        self.stack = lru_cache(None)(self._stack)

    # What single moves cost

    def read(self, kind: Kind, place: Place) -> Way:
        key, level = Key(kind, place[0]), place[1]
        return Way(self.levels[level].read(self._moved(kind, place)), Read(key, level))

    def write(self, kind: Kind, place: Place) -> Way:
        key, level = Key(kind, place[0]), self.levels[place[1]]
        nbytes = self._sizes(kind)[key.step]
        seconds = level.write(self._moved(kind, place)) + level.discard(nbytes)
        return Way(seconds, Write(key, place[1]))

    def _moved(self, kind: Kind, place: Place) -> int:
        chain, platform = self.standing.chain, self.standing.platform
        return self._sizes(kind)[place[0]] * copies(chain, platform, place[1], kind)

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
        return least(self._last(p, tapes) if m == p + 1 else self._first(p, m, free, tapes))

    def _last(self, p: int, tapes: Places) -> Iterator[Way]:
        reverse = Way(0.0, Reverse(p, p + 1))
        yield in_turn(Way(self.record[p], Record(p, p + 1)), reverse)
        for tape in tapes:
            yield in_turn(self.read(Kind.TAPE, tape), reverse)

    def _first(self, p: int, m: int, free: Free, tapes: Places) -> Iterator[Way]:
        for tape in tapes:
            back = in_turn(self.read(Kind.TAPE, tape), Way(0.0, Reverse(tape[0], tape[0] + 1)))
            if tape[0] == p:
                rest = within(tapes, p + 1, m)
                yield in_turn(self.go(p, p + 1), self.fresh(p + 1, m, free, rest), back)
            if tape[0] == m - 1:
                room = self.drop(free, Kind.TAPE, *within(tapes, m - 1, m))
                yield in_turn(back, self.fresh(p, m - 1, room, within(tapes, p, m - 1)))
        for level in range(len(free)):
            here = p, level
            if self.standing.new_tapes and min(then := self.put(free, Kind.TAPE, here)) >= 0:
                yield in_turn(
                    Way(self.record[p], Record(p, p + 1)),
                    self.write(Kind.TAPE, here),
                    self.fresh(p + 1, m, then, within(tapes, p + 1, m)),
                    self.read(Kind.TAPE, here),
                    Way(0.0, Reverse(p, p + 1)),
                )
            if min(then := self.put(free, Kind.RESTART, here)) >= 0:
                yield in_turn(self.write(Kind.RESTART, here), self.apart(p, m, then, level, tapes))

    def _apart(self, p: int, m: int, free: Free, level: int, tapes: Places) -> Way:
        """Q0: x_p is in the register and on a level, and what comes next is to advance."""
        return least(
            in_turn(
                self.go(p, j),
                self.fresh(j, m, free, within(tapes, j, m)),
                self.read(Kind.RESTART, (p, level)),
                self.again(
                    p,
                    j,
                    self.drop(free, Kind.TAPE, *within(tapes, j, m)),
                    level,
                    within(tapes, p, j),
                ),
            )
            for j in range(p + 1, m)
        )

    def _again(self, p: int, m: int, free: Free, level: int, tapes: Places) -> Way:
        """Q: x_p is in the register and on a level, and may be dropped there."""
        dropped = self.fresh(p, m, self.drop(free, Kind.RESTART, (p, level)), tapes)
        if m == p + 1:
            return dropped
        return least((self.apart(p, m, free, level, tapes), dropped))

    # G of the equations

    def _stack(self, restarts: Places, tapes: Places, m: int) -> Way:
        if m == 0:
            return Way(0.0)
        return least(self._next(within(restarts, 0, m), within(tapes, 0, m), m))

    def _next(self, restarts: Places, tapes: Places, m: int) -> Iterator[Way]:
        if self.standing.turned or m < self.standing.chain.length:
            for tape in within(tapes, m - 1, m):
                yield in_turn(
                    self.read(Kind.TAPE, tape),
                    Way(0.0, Reverse(m - 1, m)),
                    self.stack(restarts, without(tapes, tape), m - 1),
                )
        if not restarts:
            return
        last = restarts[-1][0]
        copies = within(restarts, last, last + 1)
        quickest = least(self.read(Kind.RESTART, copy) for copy in copies)
        for dropped in range(len(copies) + 1):
            for kept in combinations(copies, len(copies) - dropped):
                rest = restarts[: len(restarts) - len(copies)] + kept
                if dropped:
                    yield self.stack(rest, tapes, m)
                yield in_turn(quickest, self.use(last, rest, tapes, m))

    def use(self, at: int, restarts: Places, tapes: Places, m: int) -> Way:
        """With x_at in the register: go to the best p, finish [p, m) and then what is left of p."""
        return least(
            in_turn(
                self.go(at, p),
                self.fresh(
                    p,
                    m,
                    self.room(within(restarts, 0, p), within(tapes, 0, m)),
                    within(tapes, p, m),
                ),
                self.stack(within(restarts, 0, p), within(tapes, 0, p), p),
            )
            for p in range(at, m)
        )
