"""What is on its way in the compiled engine: the pool, the channels, and their queues.

`ckio.traffic` says what the rules are; the words for them are the same here.
"""

from typing import NamedTuple

import numpy as np

from ckio.planners.overlapped.programs import (
    FAR_READ,
    FAR_WRITE,
    NONE,
    Ints,
    Program,
    Seconds,
    kernel,
)

# mypy: disable-error-code="no-any-return"

LATER, COPIED, QUEUED, MOVING, DROPPED, DONE, CANCELLED = range(7)
"""A staged write: not yet, on its way to the pool, waits, moves, moves for nothing, was moved."""

BEGUN, THERE, USED = range(1, 4)
"""A read ahead."""

ROW, PHASE, ROOM, STAGED, AHEAD, LYING, COPYING, DIRECT, WRITING = range(9)
"""Columns of `State.tally`: the program's row, and what it does there; bytes that are left in the
pool; writes staged, reads ahead, and their bytes; the staged write that is copied from; the row
whose transfer the program waits for, and whether that is a write that has not begun."""

NOW, UNTIL = range(2)
"""Elements of `State.time`: the seconds now, and until when the program is busy."""


ALL = 1 << 60
"""No limit, in bytes or in number."""


class Policy(NamedTuple):
    """Bytes of the pool, writes staged and reads ahead at the most, seconds of computing."""

    room: int
    write_behind: int
    read_ahead: int
    horizon: float


class State(NamedTuple):
    """Where a program is: by row, by channel, and in all."""

    status: Ints
    behind: Ints
    head: Ints
    tail: Ints
    now: Ints
    wanted: Ints
    reads: Ints
    until: Seconds
    tally: Ints
    time: Seconds
    last: Ints


def state(rows: int, channels: int, places: int, /) -> State:
    """A state for programs of so many rows and places at the most."""
    by_row = (np.zeros(rows + 1, np.int64) for _ in range(2))
    by_channel = (np.zeros(channels, np.int64) for _ in range(5))
    seconds = np.zeros(channels), np.zeros(2)
    status, behind = by_row
    head, tail, now, wanted, reads = by_channel
    tally, last = np.zeros(9, np.int64), np.full(places, NONE)
    return State(
        status, behind, head, tail, now, wanted, reads, seconds[0], tally, seconds[1], last
    )


@kernel
def discard(program: Program, state: State, row: int) -> None:
    """Cancel a staged write that has not begun, or leave a discard to the channel."""
    source = program.source[row]
    if source != NONE and state.status[source] == QUEUED:
        state.status[source] = CANCELLED
        give_back(program, state, source)
        return
    if source != NONE and state.status[source] == MOVING:
        state.status[source] = DROPPED
    queue(state, program.channel[row], row)


@kernel
def pass_by(program: Program, state: State, row: int) -> None:
    """A read, if it is the next, needs not to be begun any more."""
    number = program.channel[row]
    if state.reads[number] == row:
        state.reads[number] = program.follows[row]


@kernel
def queue(state: State, number: int, row: int) -> None:
    """Put a write or discard behind all others of a channel."""
    state.behind[row] = NONE
    if state.head[number] == NONE:
        state.head[number] = row
    else:
        state.behind[state.tail[number]] = row
    state.tail[number] = row


@kernel
def give_back(program: Program, state: State, row: int) -> None:
    """A staged write leaves the pool, unless the program copies from it just now."""
    state.tally[STAGED] -= 1
    if state.tally[COPYING] != row:
        state.tally[ROOM] += program.nbytes[row]


@kernel
def begin(program: Program, length: int, policy: Policy, state: State, number: int) -> None:
    """Let an idle channel begin what there is to be done."""
    row = state.wanted[number]
    if row != NONE:
        state.wanted[number] = NONE
    else:
        row = state.reads[number]
        if row < length and _may_begin(program, policy, state, number, row):
            state.status[row] = BEGUN
            state.tally[AHEAD] += 1
            state.tally[LYING] += program.nbytes[row]
            state.tally[ROOM] -= program.nbytes[row]
            pass_by(program, state, row)
        else:
            row = _oldest(state, number)
            if row == NONE:
                return
    state.now[number] = row
    state.until[number] = state.time[NOW] + program.seconds[row]


@kernel
def _oldest(state: State, number: int) -> int:
    """The oldest write or discard that was not cancelled, or NONE; it leaves the queue."""
    row = state.head[number]
    while row != NONE and state.status[row] == CANCELLED:
        row = state.behind[row]
    if row != NONE:
        state.head[number] = state.behind[row]
        if state.status[row] == QUEUED:
            state.status[row] = MOVING
        elif state.tally[DIRECT] == row:
            state.tally[WRITING] = 0
    else:
        state.head[number] = NONE
    return row


@kernel
def end(program: Program, state: State, number: int) -> None:
    """A channel's transfer has ended."""
    tally, row = state.tally, state.now[number]
    state.now[number] = NONE
    if tally[DIRECT] == row:
        tally[DIRECT] = NONE
    elif program.way[row] == FAR_READ:
        state.status[row] = THERE
    elif program.way[row] == FAR_WRITE:
        state.status[row] = DONE
        give_back(program, state, row)


@kernel
def _may_begin(program: Program, policy: Policy, state: State, number: int, row: int) -> bool:
    """Whether a read may begin before the program needs it."""
    tally = state.tally
    here, source = tally[ROW], program.source[row]
    if tally[AHEAD] >= policy.read_ahead or source >= here:
        return False
    if tally[DIRECT] != NONE and tally[WRITING] and program.channel[tally[DIRECT]] == number:
        return False
    if source != NONE and COPIED <= state.status[source] <= MOVING:
        return False
    if program.clock[row] - program.clock[here + 1] > policy.horizon:
        return False
    return _fits(program, policy, state, row)


@kernel
def _fits(program: Program, policy: Policy, state: State, row: int) -> bool:
    """Whether the pool has room for a read, now and as long as it is going to lie there."""
    at, nbytes = state.tally[ROW], program.nbytes[row]
    if nbytes > state.tally[ROOM]:
        return False
    lying, use = state.tally[LYING], program.use[at]
    while use <= row:
        if program.peak[at] + lying + nbytes > policy.room:
            return False
        if BEGUN <= state.status[use] <= THERE:
            lying -= program.nbytes[use]
        at = use + 1
        use = program.use[at]
    return True
