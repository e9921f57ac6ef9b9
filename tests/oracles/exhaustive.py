"""The least makespan, by a search through everything that could be done.

Written from the rules of the six actions alone, so that it shares no mistake with a planner:
Dijkstra over (state, tape, adjoint, keys on each level), with no assumption on the form.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from heapq import heappop, heappush

from ckio.actions import Advance, Key, Kind, Record, Reverse
from ckio.platform import Level, Platform
from ckio.platform.chain import Chain

Place = tuple[int, int, int, int, bool, tuple[int, ...]]
"""(state, begin and end of the tape, adjoint, may_start, keys on each level).

The state is -1 and the tape (0, 0) where the register holds nothing of use. The adjoint `may_start`
at the end of the chain once a state has been there in this process. Keys are bits: 2 i is x_i, and
2 i + 1 the tape of step i.
"""

NOTHING = -1


def least_makespan(
    chain: Chain,
    platform: Platform,
    *,
    tapes: bool = False,
    stored: Sequence[frozenset[Key]] = (),
    state: int | None = 0,
    adjoint: int | None = None,
) -> float:
    """Seconds of the best schedule that leaves nothing stored; infinite if there is none.

    Without `tapes` only restart data is ever written, and a step is recorded when it is to be
    reversed. It can start with keys `stored`, with `state` in the register, and with the adjoint
    anywhere (already read; by default at the end, to which the state has still to come).
    """
    search = _Search(chain, platform, tapes)
    keys = [*stored, *([frozenset()] * (len(platform.levels) - len(stored)))]
    start = search.useful(
        (
            NOTHING if state is None else state,
            0,
            0,
            chain.length if adjoint is None else adjoint,
            adjoint is not None,
            tuple(sum(1 << bit_of(key) for key in here) for here in keys),
        )
    )
    # Every key is discarded once; those that lie there at the start pay for it at the start.
    paid = sum(
        level.discard(chain.nbytes(key))
        for level, here in zip(platform.levels, keys, strict=True)
        for key in here
    )
    reached = {start: paid}
    frontier = [(paid, start)]
    while frontier:
        seconds, place = heappop(frontier)
        if seconds > reached[place]:
            continue
        if place[3] == 0:
            return seconds
        for cost, then in search.moves(place):
            if seconds + cost < reached.get(then, float("inf")):
                reached[then] = seconds + cost
                heappush(frontier, (seconds + cost, then))
    return float("inf")


def bit_of(key: Key) -> int:
    return 2 * key.step + (key.kind is Kind.TAPE)


def key_of(bit: int) -> Key:
    return Key(Kind.TAPE if bit % 2 else Kind.RESTART, bit // 2)


def bits_of(keys: int) -> Iterator[int]:
    while keys:
        lowest = keys & -keys
        yield lowest.bit_length() - 1
        keys ^= lowest


class _Search:
    def __init__(self, chain: Chain, platform: Platform, tapes: bool) -> None:
        self.steps, self.tapes, self.restarts = chain.length, tapes, chain.tape_restarts
        bits = range(2 * chain.length)
        sizes = [chain.nbytes(key_of(bit)) for bit in bits]
        spans = [
            (begin, end) for begin in range(self.steps) for end in range(begin + 1, self.steps + 1)
        ]
        room = platform.working_memory
        self.advance = [chain.seconds(Advance(step, step + 1)) for step in range(self.steps)]
        self.saved = chain.saved_of_each().tolist()  # without the state after a recorded step
        self.reverse = [chain.seconds(Reverse(step, step + 1)) for step in range(self.steps)]
        self.record = {
            span: chain.seconds(Record(*span))
            for span in spans
            if room is None or sum(sizes[2 * step + 1] for step in range(*span)) <= room
        }
        levels = platform.levels
        self.read = [[level.read(size) for size in sizes] for level in levels]
        self.write = [
            [level.write(size) + level.discard(size) for size in sizes] for level in levels
        ]
        self.fits = [_fits(level, sizes) for level in levels]

    def useful(self, place: Place) -> Place:
        """Without what is of no more use: whatever belongs to steps that are reversed.

        Every write has paid for its discard, so discarding costs nothing here.
        """
        state, begin, end, adjoint, may_start, stored = place
        left = (1 << 2 * adjoint) - 1
        if begin >= adjoint:
            begin = end = 0
        if state >= adjoint:
            state = NOTHING
        return state, begin, end, adjoint, may_start, tuple(keys & left for keys in stored)

    def moves(self, place: Place) -> Iterator[tuple[float, Place]]:
        """What can be done next, and what it costs."""
        state, begin, end, adjoint, may_start, stored = place
        if begin < end == adjoint and may_start:
            then = self.useful((state, begin, end - 1, end - 1, may_start, stored))
            yield self.reverse[end - 1], then
            if not self.tapes:
                return
        if state != NOTHING:
            yield from self.forward(place)
        for number, keys in enumerate(stored):
            for bit in bits_of(keys):
                step, tape = divmod(bit, 2)
                if tape and (begin, end) != (step, step + 1):
                    then = step + 1 if self.restarts else state
                    read = then, step, step + 1, adjoint, may_start, stored
                    yield self.read[number][bit], self.useful(read)
                elif not tape and step != state:
                    read = step, begin, end, adjoint, may_start, stored
                    yield self.read[number][bit], read
            if state != NOTHING:
                yield from self.writes(place, number, 2 * state)
            if self.tapes and end - begin == 1:
                yield from self.writes(place, number, 2 * begin + 1)

    def forward(self, place: Place) -> Iterator[tuple[float, Place]]:
        state, begin, end, adjoint, may_start, stored = place
        if state + 1 < adjoint:
            then = state + 1, begin, end, adjoint, may_start, stored
            yield self.advance[state], then
        elif not may_start:  # the end is reached, and the adjoint may start from a stored tape
            yield self.advance[state], (NOTHING, begin, end, adjoint, True, stored)
        first = state + 1 if self.tapes else adjoint
        for stop in range(first, adjoint + 1):
            if (state, stop) in self.record and (self.tapes or stop == state + 1):
                cost = self.record[state, stop]
                then = state, stop, adjoint, may_start or stop == self.steps, stored
                if stop < adjoint:
                    yield cost, (stop, *then)
                yield (
                    cost - (self.saved[stop - 1] if stop < self.steps or may_start else 0),
                    (NOTHING, *then),
                )

    def writes(self, place: Place, number: int, bit: int) -> Iterator[tuple[float, Place]]:
        *registers, stored = place
        keys, fits = stored[number], self.fits[number]
        if keys >> bit & 1 or not fits(1 << bit):
            return
        for rest in [keys] if fits(keys | 1 << bit) else _fewer(keys, 1 << bit, fits):
            then = (*stored[:number], rest | 1 << bit, *stored[number + 1 :])
            yield self.write[number][bit], (*registers, then)


def _fits(level: Level, sizes: Sequence[int]) -> Callable[[int], bool]:
    @lru_cache(None)
    def fits(keys: int) -> bool:
        used = sum(level.stored(sizes[bit]) for bit in bits_of(keys))
        return level.capacity is None or used <= level.capacity

    return fits


def _fewer(keys: int, more: int, fits: Callable[[int], bool]) -> set[int]:
    """The largest subsets of `keys` that leave room for `more`."""
    found: set[int] = set()
    for bit in bits_of(keys):
        rest = keys ^ 1 << bit
        found |= {rest} if fits(rest | more) else _fewer(rest, more, fits)
    return found
