"""Makespans with overlap in compiled code: the rules of `ckio.overlap`, for planners.

A planner needs the makespans of thousands of schedules. Therefore the simulation uses a few arrays
again and again. Its results equal those of `ckio.sim` to the last bit, also with measured profiles;
tests compare them.

A program is a schedule in columns (`TransferProgram`). Its state (`State`) has the current row of
the program, the transfer and the queue of each channel, and the content of the pool. `ckio.overlap`
explains these words and the rules.
"""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ckio.actions import Advance
from ckio.actions.columns import KINDS, WRITE
from ckio.overlap.costs import transfer_seconds
from ckio.planners.base import Ints, Seconds
from ckio.planners.compiled import inner_kernel, kernel
from ckio.platform import Level, Platform, memory_level
from ckio.platform.chain import Chain
from ckio.schedule import Schedule, bytes_moved, seconds_of
from ckio.schedule.policy import Overlap

# mypy: disable-error-code="no-any-return"

COMPUTE, NEAR_READ, NEAR_WRITE, NEAR_DISCARD, FAR_WRITE, FAR_READ, FAR_DISCARD = range(7)
"""Codes of a row of the program; near is the memory level."""

NONE: Final = -1
"""Means no row."""

ALL: Final = 1 << 60
"""Means no limit, in bytes or in number."""

OPCODES: Final = np.array(
    [
        [COMPUTE] * 6,
        [COMPUTE] * 3 + [NEAR_WRITE, NEAR_READ, NEAR_DISCARD],
        [COMPUTE] * 3 + [FAR_WRITE, FAR_READ, FAR_DISCARD],
    ]
)
"""The code of a row, by the level of an action (none, near, far) and its code in `columns`."""

_LATER, _COPIED, _QUEUED, _MOVING, _DROPPED, _DONE, _CANCELLED = range(7)
"""Status of a staged write: not reached, being copied, queued, in transfer, in transfer but already
discarded, finished, cancelled."""

_BEGUN, _ARRIVED, _USED = range(1, 4)
"""Status of a read ahead: in transfer, in the pool, used."""

_READY, _BUSY, _STUCK, _WAITS, _OVER = range(5)
"""Phases of the program."""

PROGRAM: Final = np.dtype(
    [
        *((name, np.int64) for name in ("row", "phase", "free", "staged", "ahead", "ahead_bytes")),
        *((name, np.int64) for name in ("copying", "direct", "unstarted", "waited")),
        *((name, np.float64) for name in ("now", "until", "lost")),
    ]
)
"""The state of the program and the pool: the current row and its phase; free bytes of the pool;
staged writes; reads ahead and their bytes; the staged write from which the program copies; the row
whose transfer the program waits for, whether this is a write that has not started, and whether the
program has waited in the current row; seconds: now, the end of the current action, its delay."""

_NOT_YET: Final = -1.0
"""Replaces the seconds of an action that must wait."""


class TransferProgram(NamedTuple):
    """A schedule with one row for each action; `link` fills the last six columns.

    Attributes
    ----------
    opcode : int64 array
        COMPUTE, NEAR_READ, ...
    own, direct, background : float64 arrays
        Seconds of the program for a step or near access, or for the copy of a far access; seconds
        of a transfer for which the program waits; seconds of a transfer in the background.
    hinders, handoff : float64 arrays
        Seconds that the program loses by a transfer in the background, and after a wait for one.
    nbytes, channel, key : int64 arrays
        Bytes of the pool; the channel of a far level; a number for the key and its level.
    limited, moved : int64 arrays
        For a write to a level whose device accepts a limited number of bytes at a time (`Device`):
        the number of the level, else NONE; the bytes that are moved.
    clock : float64 array, one longer
        Seconds of computing before the row.
    source : int64 array
        For a far read or discard: the row of the write of its key, or NONE.
    peak : int64 array
        The most bytes of near checkpoints from this row to the next far read.
    use, follows, first : int64 arrays
        The first far read at or after the row; the next one on the same channel; the first of each
        channel.
    """

    opcode: Ints
    own: Seconds
    direct: Seconds
    background: Seconds
    hinders: Seconds
    handoff: Seconds
    nbytes: Ints
    channel: Ints
    key: Ints
    limited: Ints
    moved: Ints
    clock: Seconds
    source: Ints
    peak: Ints
    use: Ints
    follows: Ints
    first: Ints


class Policy(NamedTuple):
    """Bytes of the pool, the most staged writes and reads ahead, and the horizon in seconds."""

    pool: int
    write_behind: int
    read_ahead: int
    horizon: float


class Device(NamedTuple):
    """By level: bytes that wait for the device at time `since`, their limit, and bytes a second.

    A write that exceeds the limit `dirty` takes longer, until the device has moved the excess. For
    example, if 3 GB wait, the limit is 3 GB and the device moves 0.5 GB a second, a write of 1 GB
    takes 2 s longer.
    """

    waiting: Seconds
    since: Seconds
    dirty: Seconds
    drained: Seconds


class State(NamedTuple):
    """The state of a program.

    Attributes
    ----------
    status, following : int64 arrays, by row
        The status of a staged write or a read ahead; the next row in the queue of its channel.
    head, tail : int64 arrays, by channel
        The first and the last row of the queue of writes and discards.
    now, until : arrays, by channel
        The row in transfer, or NONE, and the time in seconds when it ends.
    wanted, reads : int64 arrays, by channel
        The read for which the program waits, or NONE; the next read that may be made ahead.
    device : Device
        The bytes that wait for each device.
    totals : array of one PROGRAM
        The program and the pool.
    """

    status: Ints
    following: Ints
    head: Ints
    tail: Ints
    now: Ints
    wanted: Ints
    reads: Ints
    until: Seconds
    device: Device
    totals: NDArray[np.void]


def _state(schedule: Schedule, platform: Platform, channels: int) -> State:
    """Return a state for one schedule, with the limits of devices whose writes may have to wait."""
    rows, levels = len(schedule) + 1, len(platform.levels)
    status, following = np.zeros((2, rows), np.int64)
    head, tail, now, wanted, reads = np.zeros((5, channels), np.int64)
    device = Device(*np.zeros((4, levels)))
    for number, level in enumerate(platform.levels):
        if level.profile and level.profile.dirty is not None and level.profile.drained:
            device.dirty[number] = level.profile.dirty
            device.drained[number] = level.profile.drained
    totals, until = np.zeros(1, PROGRAM), np.zeros(channels)
    return State(status, following, head, tail, now, wanted, reads, until, device, totals)


class Replayed:
    """A legal schedule on a platform; `seconds` returns its makespan with any policy.

    Nothing may be stored at the start of the schedule. Raises BadInput for a level that the
    platform does not have.
    """

    def __init__(self, schedule: Schedule, platform: Platform, /) -> None:
        self._near = memory_level(platform)
        self._pool = ALL
        if self._near is not None:
            self._pool = _limit(platform.levels[self._near].capacity)
        self._program = _program_of(schedule, platform, self._near)
        self._synchronous = seconds_of(schedule, platform)
        self._state = _state(schedule, platform, len(self._program.first))

    def seconds(self, overlap: Overlap, /) -> float:
        """Return the makespan with a policy, in seconds; infinite if the program never ends."""
        if not overlap:
            return float(in_turn(self._synchronous, self._program, self._state.device))
        counts = _limit(overlap.write_behind), _limit(overlap.read_ahead)
        policy = Policy(self._pool, *counts, overlap.horizon)
        return float(perform(self._program, policy, self._state))


def warm_up() -> None:
    """Call each kernel once, for a schedule of one step."""
    chain = Chain(steps=1, advance=1, record=1, reverse=1, restart=1, tape=1, adjoint=1)
    platform = Platform((Level(name="far", backend="directory"),))
    replayed = Replayed(Schedule(chain, [Advance(0, 1)]), platform)
    for overlap in Overlap(), Overlap(1, 1):
        replayed.seconds(overlap)


def _limit(count: int | None) -> int:
    return ALL if count is None else min(count, ALL)


def _program_of(schedule: Schedule, platform: Platform, near: int | None, /) -> TransferProgram:
    """Return the program of a schedule; nothing is stored at its start."""
    actions, levels = schedule.actions, platform.levels
    channels = {
        name: number
        for number, name in enumerate(
            dict.fromkeys(level.channel for at, level in enumerate(levels) if at != near)
        )
    }
    access, far = actions.op >= WRITE, actions.level != (NONE if near is None else near)
    nbytes, background = schedule.chain.nbytes_of(actions), transfer_seconds(schedule, platform)
    direct, of_level = seconds_of(schedule, platform), actions.level
    pooled = nbytes if near is None else np.where(far, nbytes, levels[near].stored_of(nbytes))
    channel = np.array([*(channels.get(level.channel, 0) for level in levels), 0])[of_level]
    waits = [it.profile is not None and it.profile.dirty is not None for it in levels]
    limited = np.where((actions.op == WRITE) & np.array([*waits, False])[of_level], of_level, NONE)
    states, kinds = schedule.chain.length + 1, len(KINDS)
    key = (of_level.astype(np.int64) * kinds + actions.kind) * states
    key += np.where(access, actions.begin, 0)

    def ints(values: ArrayLike) -> Ints:
        return np.append(values, NONE).astype(np.int64)

    def seconds(values: ArrayLike) -> Seconds:
        return np.append(values, 0.0)

    source, peak, use, follows = np.zeros((4, len(actions) + 1), np.int64)
    made = TransferProgram(
        opcode=ints(OPCODES[np.where(access, 1 + far, 0), actions.op]),
        own=seconds(np.where(access & far, background.own, platform.overhead + direct)),
        direct=seconds(direct),
        background=seconds(background.seconds),
        hinders=seconds(background.hinders),
        handoff=seconds(background.handoffs),
        nbytes=ints(pooled),
        channel=ints(channel),
        key=ints(key),
        limited=ints(limited),
        moved=ints(bytes_moved(schedule, platform)),
        clock=np.zeros(len(actions) + 1),
        source=source,
        peak=peak,
        use=use,
        follows=follows,
        first=np.zeros(len(channels), np.int64),
    )
    link(made, np.full(len(levels) * kinds * states, NONE))
    return made


@kernel
def link(program: TransferProgram, last: Ints) -> None:
    """Fill the last six columns; `last` has an element NONE for each key."""
    opcode, first, length = program.opcode, program.first, len(program.opcode) - 1
    held, program.clock[0] = 0, 0.0
    for row in range(length):
        code, before = opcode[row], held
        seconds = program.direct[row] if code == COMPUTE else 0.0
        program.clock[row + 1] = program.clock[row] + seconds
        if code == NEAR_WRITE:
            held += program.nbytes[row]
        elif code == NEAR_DISCARD:
            held -= program.nbytes[row]
        elif code == FAR_WRITE:
            last[program.key[row]] = row
        elif code >= FAR_READ:
            program.source[row] = last[program.key[row]]
        program.peak[row] = max(before, held)
    for number in range(len(first)):
        first[number] = length
    use = length
    program.use[length] = length
    for row in range(length - 1, -1, -1):
        if opcode[row] == FAR_READ:
            use, number = row, program.channel[row]
            program.follows[row], first[number] = first[number], row
        elif row + 1 < length:
            program.peak[row] = max(program.peak[row], program.peak[row + 1])
        if opcode[row] == FAR_WRITE:
            last[program.key[row]] = NONE
        program.use[row] = use


@kernel
def in_turn(seconds: Seconds, program: TransferProgram, device: Device) -> float:
    """Return the seconds without overlap, including the time that writes wait for their device."""
    now = 0.0
    _forget(device)
    for row in range(len(seconds)):
        now += seconds[row] + _longer(program, device, row, now)
        _add(program, device, row, now)
    return now


@kernel
def perform(program: TransferProgram, policy: Policy, state: State) -> float:
    """Return the seconds of a program, including transfers that end after it.

    The result is infinite if the program never ends, because it waits for space that a near
    checkpoint never leaves.
    """
    _start(program, policy, state)
    while True:
        for number in range(len(state.now)):
            if state.now[number] != NONE and state.until[number] <= state.totals[0].now:
                _end(program, state, number)
        _continue(program, policy, state)
        for number in range(len(state.now)):
            if state.now[number] == NONE:
                _begin(program, policy, state, number)
        if not _pass_time(state):
            break
    return state.totals[0].now if state.totals[0].phase == _OVER else np.inf


@inner_kernel
def _start(program: TransferProgram, policy: Policy, state: State) -> None:
    for row in range(len(program.opcode)):
        state.status[row] = _LATER
    for number in range(len(state.now)):
        state.head[number] = state.now[number] = state.wanted[number] = NONE
        state.reads[number] = program.first[number]
    totals = state.totals[0]
    totals.row = totals.phase = totals.staged = totals.ahead = totals.ahead_bytes = 0
    totals.unstarted = totals.waited = 0
    totals.free, totals.copying, totals.direct = policy.pool, NONE, NONE
    totals.now, totals.lost = 0.0, 0.0
    _forget(state.device)


@inner_kernel
def _pass_time(state: State) -> bool:
    """Advance the time to the next instant at which anything ends; return whether there is one."""
    soonest = state.totals[0].until if state.totals[0].phase == _BUSY else np.inf
    for number in range(len(state.now)):
        if state.now[number] != NONE:
            soonest = min(soonest, state.until[number])
    if soonest == np.inf:
        return False
    state.totals[0].now = soonest
    return True


# The time that writes wait for the device


@inner_kernel
def _forget(device: Device) -> None:
    for number in range(len(device.waiting)):
        device.waiting[number] = device.since[number] = 0.0


@inner_kernel
def _waiting(device: Device, number: int, now: float) -> float:
    left = device.waiting[number] - device.drained[number] * (now - device.since[number])
    return max(0.0, left)


@inner_kernel
def _longer(program: TransferProgram, device: Device, row: int, now: float) -> float:
    """Return the additional seconds of a write that begins now."""
    number = program.limited[row]
    if number == NONE:
        return 0.0
    over = _waiting(device, number, now) + program.moved[row] - device.dirty[number]
    return max(0.0, over / device.drained[number])


@inner_kernel
def _add(program: TransferProgram, device: Device, row: int, now: float) -> None:
    """Add the bytes of a write that ends now."""
    number = program.limited[row]
    if number != NONE:
        device.waiting[number] = _waiting(device, number, now) + program.moved[row]
        device.since[number] = now


# The program


@inner_kernel
def _continue(program: TransferProgram, policy: Policy, state: State) -> None:
    """Advance the program as far as possible at the current time."""
    totals = state.totals[0]
    if totals.phase == _BUSY:
        while totals.until <= totals.now and totals.lost > 0.0:
            totals.until, totals.lost = totals.now + totals.lost, 0.0
        if totals.until > totals.now:
            return
        _leave(program, state)
        totals.phase = _READY
    elif totals.phase == _WAITS:
        if totals.direct != NONE:
            return
        totals.phase = _READY
        _work(program, state, program.handoff[totals.row])
    elif totals.phase != _OVER:
        totals.phase = _READY
    while totals.row < len(program.opcode) - 1 and totals.phase == _READY:
        seconds = _enter(program, policy, state)
        if seconds >= 0.0:
            _work(program, state, seconds)
        else:
            totals.phase = _STUCK if totals.direct == NONE else _WAITS
            totals.waited = 1
    if totals.phase == _READY:
        totals.phase = _OVER


@inner_kernel
def _work(program: TransferProgram, state: State, seconds: float) -> None:
    """Start the current action; finish it immediately if it takes no time."""
    totals = state.totals[0]
    if totals.now + seconds > totals.now:
        totals.phase, totals.until = _BUSY, totals.now + seconds
    else:
        _leave(program, state)


@inner_kernel
def _enter(program: TransferProgram, policy: Policy, state: State) -> float:
    """Return the seconds that the program itself needs for its next action, or _NOT_YET."""
    row = state.totals[0].row
    opcode = program.opcode[row]
    if opcode == NEAR_WRITE:
        if program.nbytes[row] > state.totals[0].free:
            return _NOT_YET
        state.totals[0].free -= program.nbytes[row]
    elif opcode == FAR_WRITE:
        return _enter_write(program, policy, state, row)
    elif opcode == FAR_READ:
        return _enter_read(program, state, row)
    elif opcode == FAR_DISCARD:
        _discard(program, state, row)
        return 0.0
    return program.own[row] + _longer(program, state.device, row, state.totals[0].now)


@inner_kernel
def _copy(program: TransferProgram, state: State, row: int) -> float:
    """Return the seconds of a copy, including the cost of a wait before it."""
    return program.own[row] + (program.handoff[row] if state.totals[0].waited else 0.0)


@inner_kernel
def _enter_write(program: TransferProgram, policy: Policy, state: State, row: int) -> float:
    totals = state.totals[0]
    if totals.staged < policy.write_behind and program.nbytes[row] <= totals.free:
        totals.staged += 1
        totals.free -= program.nbytes[row]
        state.status[row] = _COPIED
        return _copy(program, state, row)
    if totals.staged == 0:
        totals.direct, totals.unstarted = row, 1
        _queue(state, program.channel[row], row)
    return _NOT_YET


@inner_kernel
def _enter_read(program: TransferProgram, state: State, row: int) -> float:
    if state.status[row] == _ARRIVED:
        return _copy(program, state, row)
    if state.status[row] == _BEGUN:
        return _NOT_YET
    _pass_by(program, state, row)
    source = program.source[row]
    if source != NONE and _COPIED <= state.status[source] <= _MOVING:
        state.totals[0].copying = source
        return _copy(program, state, row)
    state.totals[0].direct = state.wanted[program.channel[row]] = row
    return _NOT_YET


@inner_kernel
def _discard(program: TransferProgram, state: State, row: int) -> None:
    """Cancel a staged write that has not started; otherwise queue the discard on the channel."""
    source = program.source[row]
    if source != NONE and state.status[source] == _QUEUED:
        state.status[source] = _CANCELLED
        _give_back(program, state, source)
        return
    if source != NONE and state.status[source] == _MOVING:
        state.status[source] = _DROPPED
    _queue(state, program.channel[row], row)


@inner_kernel
def _leave(program: TransferProgram, state: State) -> None:
    """Finish the current action."""
    totals = state.totals[0]
    row = totals.row
    opcode = program.opcode[row]
    if opcode == NEAR_WRITE:
        _add(program, state.device, row, totals.now)
    elif opcode == NEAR_DISCARD:
        totals.free += program.nbytes[row]
    elif opcode == FAR_WRITE and state.status[row] == _COPIED:
        state.status[row] = _QUEUED
        _queue(state, program.channel[row], row)
    elif opcode == FAR_READ:
        copied = totals.copying
        totals.copying = NONE
        if copied != NONE and state.status[copied] == _DONE:  # it ended during the copy
            totals.free += program.nbytes[copied]
        elif state.status[row] == _ARRIVED:
            totals.ahead -= 1
            totals.ahead_bytes -= program.nbytes[row]
            totals.free += program.nbytes[row]
        state.status[row] = _USED
    totals.waited = 0
    totals.row += 1


# The channels


@inner_kernel
def _begin(program: TransferProgram, policy: Policy, state: State, number: int) -> None:
    """Start the next transfer of an idle channel, if there is one."""
    totals, row = state.totals[0], state.wanted[number]
    if row != NONE:
        state.wanted[number] = NONE
    else:
        row = state.reads[number]
        if row < len(program.opcode) - 1 and _may_begin(program, policy, state, number, row):
            state.status[row] = _BEGUN
            totals.ahead += 1
            totals.ahead_bytes += program.nbytes[row]
            totals.free -= program.nbytes[row]
            _pass_by(program, state, row)
        else:
            row = _oldest(state, number)
            if row == NONE:
                return
    now, seconds = totals.now, program.direct[row]
    if totals.direct != row:
        seconds = program.background[row]
        if totals.phase == _BUSY:
            totals.lost += program.hinders[row]
    state.now[number] = row
    state.until[number] = now + (seconds + _longer(program, state.device, row, now))


@inner_kernel
def _end(program: TransferProgram, state: State, number: int) -> None:
    """Finish the transfer of a channel."""
    totals, row = state.totals[0], state.now[number]
    state.now[number] = NONE
    _add(program, state.device, row, totals.now)
    if totals.direct == row:
        totals.direct = NONE
    elif program.opcode[row] == FAR_READ:
        state.status[row] = _ARRIVED
    elif program.opcode[row] == FAR_WRITE:
        state.status[row] = _DONE
        _give_back(program, state, row)


@inner_kernel
def _queue(state: State, number: int, row: int) -> None:
    """Append a write or discard to the queue of a channel."""
    state.following[row] = NONE
    if state.head[number] == NONE:
        state.head[number] = row
    else:
        state.following[state.tail[number]] = row
    state.tail[number] = row


@inner_kernel
def _oldest(state: State, number: int) -> int:
    """Remove the oldest write or discard that is not cancelled from the queue, and return it.

    Return NONE if there is none.
    """
    row = state.head[number]
    while row != NONE and state.status[row] == _CANCELLED:
        row = state.following[row]
    if row != NONE:
        state.head[number] = state.following[row]
        if state.status[row] == _QUEUED:
            state.status[row] = _MOVING
        elif state.totals[0].direct == row:
            state.totals[0].unstarted = 0
    else:
        state.head[number] = NONE
    return row


@inner_kernel
def _pass_by(program: TransferProgram, state: State, row: int) -> None:
    """Go to the following read of the channel if `row` is its next one."""
    number = program.channel[row]
    if state.reads[number] == row:
        state.reads[number] = program.follows[row]


@inner_kernel
def _give_back(program: TransferProgram, state: State, row: int) -> None:
    """Free the pool space of a staged write, unless the program copies from it now."""
    state.totals[0].staged -= 1
    if state.totals[0].copying != row:
        state.totals[0].free += program.nbytes[row]


@inner_kernel
def _may_begin(
    program: TransferProgram, policy: Policy, state: State, number: int, row: int
) -> bool:
    """Return whether a read may start before the program needs it."""
    totals = state.totals[0]
    here, source = totals.row, program.source[row]
    if totals.ahead >= policy.read_ahead or source >= here:
        return False
    if totals.direct != NONE and totals.unstarted and program.channel[totals.direct] == number:
        return False
    if source != NONE and _COPIED <= state.status[source] <= _MOVING:
        return False
    if program.clock[row] - program.clock[here + 1] > policy.horizon:
        return False
    return _fits(program, policy, state, row)


@inner_kernel
def _fits(program: TransferProgram, policy: Policy, state: State, row: int) -> bool:
    """Return whether the pool has space for a read, now and until the program uses it."""
    at, nbytes = state.totals[0].row, program.nbytes[row]
    if nbytes > state.totals[0].free:
        return False
    ahead, use = state.totals[0].ahead_bytes, program.use[at]
    while use <= row:
        if program.peak[at] + ahead + nbytes > policy.pool:
            return False
        if _BEGUN <= state.status[use] <= _ARRIVED:
            ahead -= program.nbytes[use]
        at = use + 1
        use = program.use[at]
    return True
