"""The least makespan of any overlapped schedule of states and tapes, by exhaustive search.

For chains of at most five steps, on memory and one or two far levels with a few bytes, and whole
costs. `least_free` is the least over all legal schedules and over all policies, also those that
ckio does not have: an idle channel may begin any transfer that fits, in any order, or stay idle;
the program may wait, and may choose whether a far write is staged. A transfer begins when another
ends or the program has done something, for sooner would not have fitted and later is no use.
All that is stored is discarded in the end, as in all schedules of ckio's planners.

States are searched by A*. What is left for the program if all transfers took no time and all
levels were unlimited is a lower bound on what remains of a run (`_program_left`), and the larger it
is, the fewer states are looked at. States are packed in two words of 64 bits.
"""

from collections.abc import Iterable, Iterator
from math import ceil
from random import Random
from typing import Final, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from ckio.actions import Action, Advance, Discard, Key, Kind, Read, Record, Reverse, Write
from ckio.errors import BadInput
from ckio.platform import Affine, Level, Platform
from ckio.platform.chain import Chain
from ckio.schedule import Schedule
from ckio.schedule.policy import Overlap
from ckio.sim.engine import simulate

# ruff: noqa: PLR0912, PLR0915, PLR0917 (a kernel is faster in one piece, and takes no keywords)

_Ints = NDArray[np.int64]

MOST_STEPS: Final = 5
MOST_STATES: Final = 1 << 22

# The fields of a state, with the bits that each takes.
(ADJOINT, STATE, TAPE, SPAN, BUSY, PENDING, KEY, LEVEL) = range(8)
NEAR, AHEAD, LYING, STAGED, DOES, MOVES, OF, LEFT, DISCARDS = 8, 9, 10, 12, 14, 16, 18, 20, 22
MORE_AHEAD: Final = 26
"""Of states that were read ahead more than once: two copies more."""
_FIELDS: Final = 27
_BITS: Final = np.array(
    [3, 3, 3, 2, 5, 3, 4, 1, 10, 10, 10, 10, 10, 10, 3, 3, 4, 4, 1, 1, 5, 5, 3, 3, 3, 3, 5]
)
_FIRST_WORD: Final = 12
"""Fields up to this one lie in the first word: 64 bits; the others take 63."""

NOTHING: Final = 7
"""No state is held."""

# What becomes of a key when the program has done what it does.
(NO, DISCARDED, STAGING, USED, COPIED, RELEASED) = range(6)

# What a channel does.
(IDLE, WRITING, READING, OTHER, CANCELLED) = range(5)

# The program's actions in a path.
(_ADVANCE, _RECORD, _RECORD_TWO, _REVERSE, _NEAR_WRITE, _NEAR_READ, _NEAR_DISCARD) = range(1, 8)
(_FAR_WRITE, _FAR_READ, _FAR_DISCARD, _READ_AHEAD) = range(8, 12)

# The numbers of a case.
(_STEPS, _HELD, _FAR, _CHANNELS, _ADV, _REC, _REV, _ROOM) = range(8)
_SIZE, _NEAR_W, _NEAR_R, _NEAR_D = 8, 10, 12, 14
_CAPACITY, _CHANNEL = 16, 18
_FAR_W, _FAR_R, _FAR_D = 20, 24, 28  # by level and kind
_NUMBERS: Final = 32
_UNLIMITED: Final = 1 << 40

_FINE: Final = 1024
"""Of schedules that take equally long, that of the least weight is taken: its actions have small
weights, and so many of them are a second."""


@njit(cache=True)
def _pack(s: _Ints, bits: _Ints) -> tuple[int, int]:
    first, second = np.uint64(0), np.uint64(0)
    for field in range(_FIRST_WORD):
        first = (first << np.uint64(bits[field])) | np.uint64(s[field])
    for field in range(_FIRST_WORD, _FIELDS):
        second = (second << np.uint64(bits[field])) | np.uint64(s[field])
    return first, second


@njit(cache=True)
def _unpack(first: int, second: int, bits: _Ints, s: _Ints) -> None:
    for field in range(_FIRST_WORD - 1, -1, -1):
        s[field] = np.int64(first & np.uint64((1 << bits[field]) - 1))
        first >>= np.uint64(bits[field])
    for field in range(_FIELDS - 1, _FIRST_WORD - 1, -1):
        s[field] = np.int64(second & np.uint64((1 << bits[field]) - 1))
        second >>= np.uint64(bits[field])


@njit(cache=True)
def _bytes(keys: int, c: _Ints) -> int:
    """Of a set of keys: x_i is bit i, and the tape of step i is bit n + i."""
    total = 0
    for key in range(2 * c[_STEPS]):
        if keys >> key & 1:
            total += c[_SIZE + (key >= c[_STEPS])]
    return total


@njit(cache=True)
def _useful(adjoint: int, c: _Ints) -> int:
    """The keys of the steps that are still to be reversed."""
    below = (1 << adjoint) - 1
    return below | below << c[_STEPS]


@njit(cache=True)
def _free(s: _Ints, c: _Ints) -> int:
    """Bytes of memory that nothing takes."""
    n = c[_STEPS]
    used = _bytes(s[NEAR], c) + _bytes(s[AHEAD], c) + 2 * _bytes(s[MORE_AHEAD], c)
    for level in range(c[_FAR]):
        used += _bytes(s[STAGED + level], c)
    for channel in range(c[_CHANNELS]):
        if s[DOES + channel] != IDLE and s[DOES + channel] != OTHER:
            used += c[_SIZE + (s[MOVES + channel] >= n)]
    if s[PENDING] == DISCARDED or s[PENDING] == USED or s[PENDING] == RELEASED:
        used += c[_SIZE + (s[KEY] >= n)]
    return c[_ROOM] - used


@njit(cache=True)
def _promised(s: _Ints, level: int, c: _Ints) -> int:
    """Bytes of a far level that the schedule has free."""
    used = _bytes(s[LYING + level] | s[STAGED + level], c)
    useful = _useful(s[ADJOINT], c)
    for channel in range(c[_CHANNELS]):
        if s[DOES + channel] == WRITING and s[OF + channel] == level:
            used += _bytes(1 << s[MOVES + channel] & useful, c)
    return c[_CAPACITY + level] - used


@njit(cache=True)
def _real(s: _Ints, level: int, c: _Ints) -> int:
    """Bytes of a far level that are free while discards wait for their channel."""
    used = _bytes(s[LYING + level], c)
    for kind in range(2):
        used += s[DISCARDS + 2 * level + kind] * c[_SIZE + kind]
    return c[_CAPACITY + level] - used


@njit(cache=True)
def _on(s: _Ints, level: int, c: _Ints) -> int:
    """The keys that lie on a far level, or are on their way there."""
    keys = s[LYING + level] | s[STAGED + level]
    for channel in range(c[_CHANNELS]):
        if s[DOES + channel] == WRITING and s[OF + channel] == level:
            keys |= 1 << s[MOVES + channel]
    return keys


@njit(cache=True)
def _dropped(s: _Ints, level: int, keys: int, c: _Ints) -> None:
    """Discard keys that lie on a far level; the channel does it later, if that takes time."""
    s[LYING + level] &= ~keys
    for key in range(2 * c[_STEPS]):
        kind = key >= c[_STEPS]
        if keys >> key & 1 and c[_FAR_D + 2 * level + kind]:
            s[DISCARDS + 2 * level + kind] += 1


@njit(cache=True)
def _forget(s: _Ints, c: _Ints) -> None:
    """Discard all that the adjoint has passed by, as far as that takes the program no time."""
    n, useful = c[_STEPS], _useful(s[ADJOINT], c)
    for kind in range(2):
        if c[_NEAR_D + kind] == 0:
            s[NEAR] &= useful | ((1 << n) - 1) << (n - n * kind)
    s[AHEAD] &= useful
    s[MORE_AHEAD] &= useful
    for level in range(c[_FAR]):
        s[STAGED + level] &= useful
        gone = s[LYING + level] & ~useful
        if gone:
            _dropped(s, level, gone, c)
    if s[STATE] >= s[ADJOINT]:
        s[STATE] = NOTHING
    if s[SPAN] and s[TAPE] + s[SPAN] > s[ADJOINT]:
        s[SPAN] = 0
    if s[SPAN] == 2 and s[TAPE] + 2 < s[ADJOINT]:
        s[SPAN] = 0
    if s[SPAN] == 0:
        s[TAPE] = 0


@njit(cache=True)
def _copies(s: _Ints, key: int, more: int) -> int:
    """How many copies of a key were read ahead, once there are so many more of them."""
    count = (s[AHEAD] >> key & 1) + 2 * (s[MORE_AHEAD] >> key & 1) + more
    s[AHEAD] = s[AHEAD] & ~(1 << key) | (count & 1) << key
    s[MORE_AHEAD] = s[MORE_AHEAD] & ~(1 << key) | (count >> 1) << key
    return count


@njit(cache=True)
def _ended(s: _Ints, channel: int, c: _Ints) -> None:
    """What a channel does has ended."""
    does, key, level = s[DOES + channel], s[MOVES + channel], s[OF + channel]
    s[DOES + channel] = s[MOVES + channel] = s[OF + channel] = s[LEFT + channel] = 0
    if does == WRITING:
        s[LYING + level] |= 1 << key
        if s[PENDING] == COPIED and s[KEY] == key and s[LEVEL] == level:
            s[PENDING] = RELEASED
        if not _useful(s[ADJOINT], c) >> key & 1:
            _dropped(s, level, 1 << key, c)
    elif does == CANCELLED:
        _dropped(s, level, 1 << key, c)
    elif does == READING and _useful(s[ADJOINT], c) >> key & 1:
        _copies(s, key, 1)


@njit(cache=True)
def _passed(s: _Ints, c: _Ints) -> int:
    """Let time pass until something ends; 0 if nothing is going on."""
    seconds = _UNLIMITED
    if s[BUSY]:
        seconds = s[BUSY]
    for channel in range(c[_CHANNELS]):
        if s[DOES + channel] != IDLE:
            seconds = min(seconds, s[LEFT + channel])
    if seconds == _UNLIMITED:
        return 0
    for channel in range(c[_CHANNELS]):
        if s[DOES + channel] != IDLE:
            s[LEFT + channel] -= seconds
            if s[LEFT + channel] == 0:
                _ended(s, channel, c)
    if s[BUSY]:
        s[BUSY] -= seconds
        if s[BUSY] == 0:
            s[PENDING] = s[KEY] = s[LEVEL] = 0
    return seconds


@njit(cache=True)
def _begin(s: _Ints, channel: int, does: int, key: int, level: int, left: int, c: _Ints) -> None:
    """A channel begins something; what takes no time has ended."""
    s[DOES + channel], s[MOVES + channel], s[OF + channel] = does, key, level
    s[LEFT + channel] = left
    if left == 0:
        _ended(s, channel, c)


@njit(cache=True)
def _work(s: _Ints, seconds: int, pending: int, key: int, level: int) -> None:
    """The program does something; what takes no time has been done."""
    s[BUSY] = seconds
    if seconds and pending:
        s[PENDING], s[KEY], s[LEVEL] = pending, key, level


@njit(cache=True)
def _hold(s: _Ints, key: int, c: _Ints) -> None:
    """The register holds what a key names."""
    if key < c[_STEPS]:
        s[STATE] = key
    else:
        s[TAPE], s[SPAN] = key - c[_STEPS], 1


@njit(cache=True)
def _program_left(c: _Ints) -> NDArray[np.int16]:
    """Seconds of the program if all transfers took no time and no level ever filled.

    By the adjoint's position, the keys that are stored anywhere, the state and the tape that are
    held (0: none; 1 + i: of step i; n + 1: of the two steps below the adjoint).
    """
    n = c[_STEPS]
    stored = 1 << 2 * n
    write, read = np.empty(2, np.int64), np.empty(2, np.int64)
    for kind in range(2):
        write[kind], read[kind] = c[_NEAR_W + kind], c[_NEAR_R + kind]
        for level in range(c[_FAR]):
            write[kind] = min(write[kind], c[_FAR_W + 2 * level + kind])
            read[kind] = min(read[kind], c[_FAR_R + 2 * level + kind])
    left = np.full((n + 1, stored, n + 1, n + 2), 30000, np.int16)
    left[0] = 0
    for adjoint in range(1, n + 1):
        useful, last = _useful(adjoint, c), adjoint - 1
        lower = _useful(last, c)
        for keys in range(stored - 1, -1, -1):
            if keys & ~useful:
                continue
            here = left[adjoint, keys]
            changed = True
            while changed:
                changed = False
                for state in range(n, -1, -1):
                    if state >= adjoint and state != n:
                        continue
                    for tape in range(n + 2):
                        if 0 < tape <= n and tape > adjoint:
                            continue
                        best = int(here[state, tape])
                        if tape == adjoint or tape == n + 1:
                            to = 0 if tape == adjoint or last == 0 else last
                            held = state if state < last else n
                            best = min(best, c[_REV] + left[last, keys & lower, held, to])
                        if state < adjoint:
                            more = state + 1 if state + 1 < adjoint else n
                            if more < n:
                                best = min(best, c[_ADV] + here[more, tape])
                            best = min(best, c[_REC] + here[more, 1 + state])
                            if c[_HELD] > 1 and state + 2 == adjoint:
                                best = min(best, 2 * c[_REC] + here[n, n + 1])
                            if not keys >> state & 1:
                                to = keys | 1 << state
                                best = min(best, write[0] + left[adjoint, to, state, tape])
                        if 0 < tape <= n and not keys >> (n + tape - 1) & 1:
                            to = keys | 1 << (n + tape - 1)
                            best = min(best, write[1] + left[adjoint, to, state, tape])
                        for step in range(adjoint):
                            if keys >> step & 1:
                                best = min(best, read[0] + here[step, tape])
                            if keys >> (n + step) & 1:
                                best = min(best, read[1] + here[state, 1 + step])
                        if best < here[state, tape]:
                            here[state, tape] = best
                            changed = True
    return left


@njit(cache=True)
def _at_least(s: _Ints, left: NDArray[np.int16], c: _Ints) -> int:
    """Seconds that a run takes from here, at the least."""
    n, adjoint = c[_STEPS], s[ADJOINT]
    keys = s[NEAR] | s[AHEAD] | s[MORE_AHEAD]
    most = 0
    for level in range(c[_FAR]):
        keys |= s[LYING + level] | s[STAGED + level]
    for channel in range(c[_CHANNELS]):
        busy = 0
        if s[DOES + channel] != IDLE:
            busy = s[LEFT + channel]
            if s[DOES + channel] == WRITING or s[DOES + channel] == READING:
                keys |= 1 << s[MOVES + channel]
        for level in range(c[_FAR]):
            if c[_CHANNEL + level] == channel:
                for kind in range(2):
                    busy += s[DISCARDS + 2 * level + kind] * c[_FAR_D + 2 * level + kind]
                    lying = s[LYING + level] >> (n * kind) & ((1 << n) - 1)
                    while lying:
                        busy += c[_FAR_D + 2 * level + kind]
                        lying &= lying - 1
        most = max(most, busy)
    held = s[STATE] if s[STATE] < adjoint else n
    tape = 0 if s[SPAN] == 0 else (1 + s[TAPE] if s[SPAN] == 1 else n + 1)
    mine = s[BUSY] + left[adjoint, keys & _useful(adjoint, c), held, tape]
    for kind in range(2):
        near = s[NEAR] >> (n * kind) & ((1 << n) - 1)
        while near:
            mine += c[_NEAR_D + kind]
            near &= near - 1
    return max(most, mine)


@njit(cache=True)
def _is_slack(s: _Ints, c: _Ints) -> bool:
    """Whether an idle channel leaves undone what it could do of writes and discards."""
    for level in range(c[_FAR]):
        if s[DOES + c[_CHANNEL + level]] == IDLE:
            writes = s[STAGED + level]
            if s[PENDING] == STAGING and s[LEVEL] == level:
                writes &= ~(1 << s[KEY])
            if writes or s[DISCARDS + 2 * level] or s[DISCARDS + 2 * level + 1]:
                return True
    return False


@njit(cache=True)
def _successors(s: _Ints, c: _Ints, prompt: bool, out: _Ints, moves: _Ints, cost: _Ints) -> int:
    """All that may follow a state: those states, the program's actions and the seconds."""
    n, count = c[_STEPS], 0
    largest = max(c[_SIZE], c[_SIZE + 1])
    free, useful = _free(s, c), _useful(s[ADJOINT], c)

    out[count] = s
    seconds = 0 if prompt and _is_slack(s, c) else _passed(out[count], c)
    if seconds:
        moves[count], cost[count] = 0, seconds
        count += 1

    for channel in range(c[_CHANNELS]):
        if s[DOES + channel] != IDLE:
            continue
        known = s[NEAR] | s[AHEAD]
        for other in range(c[_CHANNELS]):
            if s[DOES + other] == READING:
                known |= 1 << s[MOVES + other]
        if c[_NEAR_W] or c[_NEAR_D]:  # states are read ahead again, unless memory keeps them free
            known &= s[NEAR] | s[AHEAD] & s[MORE_AHEAD] | ((1 << n) - 1) << n
            for other in range(c[_CHANNELS]):
                if s[DOES + other] == READING:
                    known |= s[MORE_AHEAD] & 1 << s[MOVES + other]
        for level in range(c[_FAR]):
            if c[_CHANNEL + level] != channel:
                continue
            real = _real(s, level, c)
            for key in range(2 * n):
                kind = key >= n
                if s[STAGED + level] >> key & 1:
                    waits = s[PENDING] == STAGING and s[KEY] == key and s[LEVEL] == level
                    if not waits and real >= c[_SIZE + kind]:
                        out[count] = s
                        out[count, STAGED + level] ^= 1 << key
                        took = c[_FAR_W + 2 * level + kind]
                        _begin(out[count], channel, WRITING, key, level, took, c)
                        moves[count], cost[count] = 0, 0
                        count += 1
                if s[LYING + level] & ~known & useful & 1 << key and free >= c[_SIZE + kind]:
                    out[count] = s
                    took = c[_FAR_R + 2 * level + kind]
                    _begin(out[count], channel, READING, key, level, took, c)
                    moves[count], cost[count] = _READ_AHEAD * 1000 + key * 10 + level, 0
                    count += 1
            for kind in range(2):
                if s[DISCARDS + 2 * level + kind]:
                    out[count] = s
                    out[count, DISCARDS + 2 * level + kind] -= 1
                    took = c[_FAR_D + 2 * level + kind]
                    _begin(out[count], channel, OTHER, 0, 0, took, c)
                    moves[count], cost[count] = 0, 0
                    count += 1

    if s[BUSY]:
        return count

    # The program computes.
    at, adjoint = s[STATE], s[ADJOINT]
    if at < adjoint:
        for span in range(3):
            if (span == 0 and at + 1 >= adjoint) or (
                span == 2 and (c[_HELD] < 2 or at + 2 != adjoint)
            ):
                continue
            out[count] = s
            out[count, STATE] = at + max(span, 1)
            if span:
                out[count, TAPE], out[count, SPAN] = at, span
            _forget(out[count], c)
            _work(out[count], c[_REC] * span if span else c[_ADV], NO, 0, 0)
            moves[count], cost[count] = (_ADVANCE + span) * 1000 + at * 10, 0
            count += 1
    if s[SPAN] and s[TAPE] + s[SPAN] == adjoint:
        out[count] = s
        out[count, ADJOINT] = adjoint - 1
        out[count, SPAN] -= 1
        _forget(out[count], c)
        _work(out[count], c[_REV], NO, 0, 0)
        moves[count], cost[count] = _REVERSE * 1000 + (adjoint - 1) * 10, 0
        count += 1

    # It writes what is in a register.
    behind = False
    for level in range(c[_FAR]):
        behind |= s[STAGED + level] != 0
    for channel in range(c[_CHANNELS]):
        behind |= s[DOES + channel] == WRITING or s[DOES + channel] == CANCELLED
    for kind in range(2):
        if kind == 0:
            if at >= adjoint:
                continue
            key = at
        else:
            if s[SPAN] != 1:
                continue
            key = n + s[TAPE]
        size = c[_SIZE + kind]
        if not s[NEAR] >> key & 1 and free >= size:
            out[count] = s
            out[count, NEAR] |= 1 << key
            _work(out[count], c[_NEAR_W + kind], NO, 0, 0)
            moves[count], cost[count] = _NEAR_WRITE * 1000 + key * 10, 0
            count += 1
        for level in range(c[_FAR]):
            if _on(s, level, c) >> key & 1 or _promised(s, level, c) < size:
                continue
            if free >= size:
                out[count] = s
                out[count, STAGED + level] |= 1 << key
                _work(out[count], c[_NEAR_W + kind], STAGING, key, level)
                moves[count], cost[count] = _FAR_WRITE * 1000 + key * 10 + level, 0
                count += 1
            channel = c[_CHANNEL + level]
            if prompt and behind:
                continue
            if s[DOES + channel] == IDLE and _real(s, level, c) >= size:
                out[count] = s
                out[count, LYING + level] |= 1 << key
                took = c[_FAR_W + 2 * level + kind]
                _work(out[count], took, NO, 0, 0)
                _begin(out[count], channel, OTHER, 0, 0, took, c)
                moves[count], cost[count] = _FAR_WRITE * 1000 + key * 10 + level, 0
                count += 1

    # It reads into a register what is not there.
    for key in range(2 * n):
        kind = key >= n
        held = key == n + s[TAPE] and s[SPAN] == 1 if kind else key == at
        if held or not useful >> key & 1:
            continue
        if s[NEAR] >> key & 1:
            out[count] = s
            _hold(out[count], key, c)
            _work(out[count], c[_NEAR_R + kind], NO, 0, 0)
            moves[count], cost[count] = _NEAR_READ * 1000 + key * 10, 0
            count += 1
        if (s[AHEAD] | s[MORE_AHEAD]) >> key & 1:
            out[count] = s
            _hold(out[count], key, c)
            _copies(out[count], key, -1)
            _work(out[count], c[_NEAR_R + kind], USED, key, 0)
            moves[count], cost[count] = _FAR_READ * 1000 + key * 10 + 2, 0
            count += 1
        for level in range(c[_FAR]):
            if (_on(s, level, c) & ~s[LYING + level]) >> key & 1:
                out[count] = s
                _hold(out[count], key, c)
                _work(out[count], c[_NEAR_R + kind], COPIED, key, level)
                moves[count], cost[count] = _FAR_READ * 1000 + key * 10 + level, 0
                count += 1
            channel = c[_CHANNEL + level]
            if s[LYING + level] >> key & 1 and s[DOES + channel] == IDLE:
                out[count] = s
                _hold(out[count], key, c)
                took = c[_FAR_R + 2 * level + kind]
                _work(out[count], took, NO, 0, 0)
                _begin(out[count], channel, OTHER, 0, 0, took, c)
                moves[count], cost[count] = _FAR_READ * 1000 + key * 10 + level, 0
                count += 1

    # It discards: what is priced at any time, all else where room is wanted.
    for key in range(2 * n):
        kind = key >= n
        if s[NEAR] >> key & 1 and (c[_NEAR_D + kind] or free < largest):
            out[count] = s
            out[count, NEAR] ^= 1 << key
            _work(out[count], c[_NEAR_D + kind], DISCARDED, key, 0)
            moves[count], cost[count] = _NEAR_DISCARD * 1000 + key * 10, 0
            count += 1
        for level in range(c[_FAR]):
            wanted = _promised(s, level, c) < largest
            moved = (s[AHEAD] | s[MORE_AHEAD]) >> key & 1
            for channel in range(c[_CHANNELS]):
                moved |= (
                    s[DOES + channel] == READING
                    and s[MOVES + channel] == key
                    and s[OF + channel] == level
                )
            priced = c[_FAR_D + 2 * level + kind] > 0
            if s[LYING + level] >> key & 1 and (wanted or priced) and not moved:
                out[count] = s
                _dropped(out[count], level, 1 << key, c)
                moves[count], cost[count] = _FAR_DISCARD * 1000 + key * 10 + level, 0
                count += 1
            if s[STAGED + level] >> key & 1 and (wanted or prompt or free < largest):
                out[count] = s
                out[count, STAGED + level] ^= 1 << key
                moves[count], cost[count] = _FAR_DISCARD * 1000 + key * 10 + level, 0
                count += 1
            channel = c[_CHANNEL + level]
            writes = s[DOES + channel] == WRITING and s[OF + channel] == level
            if writes and s[MOVES + channel] == key and useful >> key & 1 and wanted:
                out[count] = s
                out[count, DOES + channel] = CANCELLED
                moves[count], cost[count] = _FAR_DISCARD * 1000 + key * 10 + level, 0
                count += 1
    return count


@njit(cache=True)
def _is_over(s: _Ints, c: _Ints) -> bool:
    over = s[ADJOINT] == 0 and s[BUSY] == 0 and s[NEAR] == 0
    for channel in range(c[_CHANNELS]):
        over &= s[DOES + channel] == IDLE
    for which in range(4):
        over &= s[DISCARDS + which] == 0
    return over


@njit(cache=True)
def _slot(one: int, two: int, mask: int) -> int:
    """Where to look for a state first."""
    place = one * np.uint64(0x9E3779B97F4A7C15) ^ two * np.uint64(0xC2B2AE3D27D4EB4F)
    return np.int64((place ^ place >> np.uint64(29)) & np.uint64(mask))


@njit(cache=True)
def _search(
    c: _Ints, bits: _Ints, prompt: bool, weights: _Ints, below: int, most: int
) -> tuple[int, int, _Ints]:
    """The least makespan below a number, how many states were seen, the program's actions.

    Where channels are `prompt`, none is idle while a write or a discard waits for it, and nothing
    is written directly while something is staged.

    -1 if there is none, and -2 if that would take more than so many states.
    """
    left = _program_left(c)
    mask = 1
    while mask < 2 * most:
        mask *= 2
    table = np.full(mask, -1, np.int32)
    mask -= 1
    words = np.empty((most, 2), np.uint64)
    dist, parent, move = (
        np.empty(most, np.int32),
        np.empty(most, np.int32),
        np.empty(most, np.int32),
    )
    done = np.zeros(most, np.bool_)
    items = 4 * most
    following, node_of = np.empty(items, np.int32), np.empty(items, np.int32)
    below *= _FINE
    heads = np.full(below + 1, -1, np.int32)
    s, out = np.zeros(_FIELDS, np.int64), np.zeros((128, _FIELDS), np.int64)
    moves, cost = np.zeros(128, np.int64), np.zeros(128, np.int64)
    path = np.empty(0, np.int64)

    s[ADJOINT], s[STATE] = c[_STEPS], 0
    words[0] = _pack(s, bits)
    dist[0], parent[0], move[0] = 0, -1, 0
    count, used = 1, 1
    first = _at_least(s, left, c) * _FINE
    table[_slot(words[0, 0], words[0, 1], mask)] = 0
    if first >= below:
        return -1, count, path
    following[0], node_of[0], heads[first] = -1, 0, 0
    f = first
    while f < below:
        if heads[f] < 0:
            f += 1
            continue
        item = heads[f]
        heads[f] = following[item]
        node = node_of[item]
        if done[node]:
            continue
        done[node] = True
        _unpack(words[node, 0], words[node, 1], bits, s)
        if _is_over(s, c):
            length, at = 0, node
            while at >= 0:
                length += move[at] > 0
                at = parent[at]
            path = np.empty(length, np.int64)
            at = node
            while at >= 0:
                if move[at] > 0:
                    length -= 1
                    path[length] = move[at]
                at = parent[at]
            return dist[node] // _FINE, count, path
        for which in range(_successors(s, c, prompt, out, moves, cost)):
            to = out[which]
            seconds = dist[node] + cost[which] * _FINE + weights[moves[which] // 10]
            total = seconds + _at_least(to, left, c) * _FINE
            if total >= below:
                continue
            one, two = _pack(to, bits)
            slot = _slot(one, two, mask)
            while table[slot] >= 0:
                found = table[slot]
                if words[found, 0] == one and words[found, 1] == two:
                    break
                slot = (slot + 1) & mask
            found = table[slot]
            if found < 0:
                if count == most:
                    return -2, count, path
                found = table[slot] = count
                words[found, 0], words[found, 1] = one, two
                count += 1
            elif dist[found] <= seconds:
                continue
            dist[found], parent[found], move[found] = seconds, node, moves[which]
            done[found] = False
            if used == items:
                return -2, count, path
            total = max(total, f)
            following[used], node_of[used] = heads[total], found
            heads[total] = used
            used += 1
    return -1, count, path


class Least(NamedTuple):
    """The least makespan, a schedule for it, and how many states were looked at."""

    makespan: float
    schedule: Schedule
    states: int


def least_free(
    chain: Chain, platform: Platform, /, *, below: float | None = None, most: int = MOST_STATES
) -> Least | None:
    """The least makespan over all schedules and all policies, also those that ckio does not have.

    None if there is no schedule below a given number of seconds. Raises TooLarge where more than
    `most` states would have to be looked at.
    """
    return _least(chain, platform, below, most, prompt=False)


def least_prompt(
    chain: Chain,
    platform: Platform,
    /,
    *,
    below: float | None = None,
    most: int = MOST_STATES,
    seed: int | None = None,
) -> Least | None:
    """The least makespan where no channel is idle while a write or a discard waits for it.

    ckio's rules are of that kind, so that no schedule takes less by them with any policy. Of
    schedules that take equally long, that with the fewest actions is returned, or one by a seed.
    """
    return _least(chain, platform, below, most, prompt=True, seed=seed)


def _least(
    chain: Chain,
    platform: Platform,
    below: float | None,
    most: int,
    *,
    prompt: bool,
    seed: int | None = None,
) -> Least | None:
    scale = _scale(chain, platform)
    numbers = _numbers(chain, platform, scale)
    limit = ceil((_longest(chain, platform) if below is None else below) * scale)
    weights = np.full(1200, 4)
    if seed is not None:
        weights = np.random.default_rng(seed).integers(2, 12, 1200)
    weights[:100] = weights[1100:] = 0  # time passes, and what channels do
    found, states, path = _search(numbers, _BITS, prompt, weights, limit, most)
    if found == -2 and seed is None:  # then any of those that take equally long, found sooner
        found, states, path = _search(numbers, _BITS, prompt, 0 * weights, limit, most)
    if found == -2:
        raise TooLarge(f"more than {states} states")
    if found == -1:
        return None
    return Least(found / scale, _schedule(chain, platform, path.tolist()), states)


class TooLarge(Exception):
    """There are too many states to be searched."""


def _longest(chain: Chain, platform: Platform) -> float:
    """More seconds than any schedule needs that is not absurd: each step is taken anew."""
    sizes = (chain.nbytes(Key(Kind.RESTART, 0)), chain.nbytes(Key(Kind.TAPE, 0)))
    access = sum(
        cost(nbytes)
        for level in platform.levels
        for cost in (level.write, level.read, level.discard)
        for nbytes in sizes
    )
    steps = chain.length
    return 1 + steps * (steps * float(chain.advance + chain.record + chain.reverse) + access)


def _scale(chain: Chain, platform: Platform) -> int:
    """1 if all costs are whole, 2 if they are halves."""
    sizes = (chain.restart, chain.tape)
    costs = [chain.advance, chain.record, chain.reverse]
    for level in platform.levels:
        costs += [cost(size) for cost in (level.write, level.read, level.discard) for size in sizes]
    for scale in (1, 2):
        if all(float(cost * scale).is_integer() for cost in costs):
            if max(scale * max(costs), 2 * scale * chain.record) > 31:
                break
            return scale
    raise BadInput("the search is for whole costs, or halves, of a few seconds")


def _numbers(chain: Chain, platform: Platform, scale: int) -> _Ints:
    memory, *far = platform.levels
    if chain.varies or chain.length > MOST_STEPS or len(far) > 2 or memory.capacity is None:
        raise BadInput("the search is for tiny chains, on limited memory and one or two far levels")
    if min(platform.tapes(chain), chain.length) > 2:
        raise BadInput("the search is for a working memory of one tape or two")
    channels = list(dict.fromkeys(level.channel for level in far))
    sizes = (chain.restart, chain.tape)
    c = np.zeros(_NUMBERS, np.int64)
    c[_STEPS], c[_HELD] = chain.length, min(platform.tapes(chain), 2)
    c[_FAR], c[_CHANNELS], c[_ROOM] = len(far), len(channels), memory.capacity
    c[_ADV : _REV + 1] = [scale * cost for cost in (chain.advance, chain.record, chain.reverse)]
    for kind, size in enumerate(sizes):
        c[_SIZE + kind] = size
        c[_NEAR_W + kind] = scale * memory.write(size)
        c[_NEAR_R + kind] = scale * memory.read(size)
        c[_NEAR_D + kind] = scale * memory.discard(size)
        for number, level in enumerate(far):
            c[_FAR_W + 2 * number + kind] = scale * level.write(size)
            c[_FAR_R + 2 * number + kind] = scale * level.read(size)
            c[_FAR_D + 2 * number + kind] = scale * level.discard(size)
    for number, level in enumerate(far):
        c[_CAPACITY + number] = _UNLIMITED if level.capacity is None else level.capacity
        c[_CHANNEL + number] = channels.index(level.channel)
    return c


def _schedule(chain: Chain, platform: Platform, path: Iterable[int]) -> Schedule:
    """The schedule of a path, which leaves out what is discarded when it takes no time."""
    n = chain.length
    near_discards = [platform.levels[0].discard(size) for size in (chain.restart, chain.tape)]
    stored: list[set[Key]] = [set() for _ in platform.levels]
    ahead = dict[Key, list[int]]()
    actions = list[Action]()

    def discard(key: Key, level: int) -> None:
        stored[level].remove(key)
        actions.append(Discard(key, level))

    for code in path:
        move, number, level = code // 1000, code // 10 % 100, code % 10
        key = Key(Kind.RESTART, number) if number < n else Key(Kind.TAPE, number - n)
        match move:
            case 1:
                actions.append(Advance(number, number + 1))
            case 2 | 3:
                actions.append(Record(number, number + move - 1))
            case 4:
                for where, keys in enumerate(stored):
                    for other in sorted(keys, key=lambda it: (it.kind.value, it.step)):
                        priced = where == 0 and near_discards[other.kind is Kind.TAPE]
                        if other.step >= number and not priced:
                            discard(other, where)
                actions.append(Reverse(number, number + 1))
            case 5 | 8:
                where = 0 if move == 5 else level + 1
                stored[where].add(key)
                actions.append(Write(key, where))
            case 6:
                actions.append(Read(key, 0))
            case 9:
                actions.append(Read(key, ahead[key].pop(0) if level == 2 else level + 1))
            case 11:
                ahead.setdefault(key, []).append(level + 1)
            case 7 | 10:
                discard(key, 0 if move == 7 else level + 1)
    return Schedule(chain, actions)


def policies(chain: Chain, platform: Platform, /) -> list[Overlap]:
    """Policies that ckio has: no overlap, one direction only, few at once, several horizons."""
    far = platform.levels[1:]
    sizes = (chain.restart, chain.tape)
    slowest = max((cost(n) for k in far for cost in (k.write, k.read) for n in sizes), default=0.0)
    horizons = [0.0, slowest / 2, *(times * slowest for times in (1, 2, 5)), float("inf")]
    found = [Overlap()]
    for writes in (0, 1, 2, None):
        found.append(Overlap(writes, 0))
        found += [Overlap(writes, reads, h) for reads in (1, 2, None) for h in horizons]
    return list(dict.fromkeys(found))


class Reached(NamedTuple):
    """The least makespan found by ckio's own rules, and with which schedule and policy.

    It is `proven` where it equals `least_prompt`.
    """

    makespan: float
    schedule: Schedule
    overlap: Overlap
    proven: bool


def least_by_rules(
    chain: Chain,
    platform: Platform,
    /,
    *others: Schedule,
    tries: int = 12,
    most: int = MOST_STATES,
) -> Reached:
    """The least makespan by ckio's own rules, as far as it is found.

    What channels do depends by those rules on what the program does later, so that states are not
    enough for a search. So schedules that are best for prompt channels are simulated, one after
    the other, and other ones that are given; often the first takes no longer by the rules.
    """
    prompt = least_prompt(chain, platform, most=most)
    assert prompt is not None
    among = policies(chain, platform)

    def schedules() -> Iterator[Schedule]:
        yield prompt.schedule
        yield from others
        for seed in range(tries):
            try:
                another = least_prompt(chain, platform, most=most, seed=seed)
            except TooLarge:
                return
            assert another is not None
            yield another.schedule

    best: Reached | None = None
    for schedule in schedules():
        for policy in among:
            seconds = simulate(schedule, platform, overlap=policy).makespan
            if best is None or seconds < best.makespan:
                best = Reached(seconds, schedule, policy, seconds == prompt.makespan)
        assert best is not None
        if best.proven:
            break
    assert best is not None
    return best


def tiny_cases(seed: int, count: int, /) -> list[tuple[Chain, Platform]]:
    """Chains of a few steps on levels of a few bytes, with whole costs, or halves for memory."""
    random = Random(seed)
    return [_tiny(random) for _ in range(count)]


def _tiny(random: Random) -> tuple[Chain, Platform]:
    steps, restart, tape = (
        random.choice([2, 3, 3, 4, 4, 5]),
        random.randint(1, 3),
        random.randint(1, 3),
    )
    chain = Chain(
        steps=steps,
        advance=random.randint(1, 4),
        record=random.randint(1, 5),
        reverse=random.randint(1, 5),
        restart=restart,
        tape=tape,
        adjoint=1,
    )
    copy = Affine(latency=random.choice([0, 0, 0.5, 1]))
    memory = Level(
        name="ram",
        capacity=random.randint(max(restart, tape), 6),
        write=copy,
        read=random.choice([copy, Affine()]),
        discard=Affine(latency=random.choice([0, 0, 0, 1])),
    )
    shared = random.random() < 0.3
    far = [
        Level(
            name=f"far{number}",
            capacity=random.choice([None, random.randint(restart, 8), random.randint(restart, 12)]),
            write=Affine(latency=random.randint(0, 6)),
            read=Affine(latency=random.randint(0, 6)),
            discard=Affine(latency=random.choice([0, 0, 0, 1])),
            backend="directory",
            channel="shared" if shared else "",
        )
        for number in range(random.choice([1, 1, 2]))
    ]
    return chain, Platform((memory, *far), working_memory=tape * random.choice([1, 1, 2]))
