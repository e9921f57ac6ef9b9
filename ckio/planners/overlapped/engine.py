"""The rules of `ckio.traffic` in compiled code: what a schedule takes with overlap. Needs numba.

A planner asks for the makespan of a million short programs, so all that happens is told by a few
arrays that are used again. What is found is equal to the last bit to what `ckio.sim` finds; tests
compare them.
"""

from collections.abc import Sequence

import numpy as np

from ckio.overlap import Overlap
from ckio.planners.overlapped.channels import (
    AHEAD,
    ALL,
    BEGUN,
    COPIED,
    COPYING,
    DIRECT,
    DONE,
    LATER,
    LYING,
    MOVING,
    NOW,
    PHASE,
    QUEUED,
    ROOM,
    ROW,
    STAGED,
    THERE,
    UNTIL,
    USED,
    WRITING,
    Policy,
    State,
    begin,
    discard,
    end,
    pass_by,
    queue,
    state,
)
from ckio.planners.overlapped.programs import (
    FAR_DISCARD,
    FAR_READ,
    FAR_WRITE,
    NEAR_DISCARD,
    NEAR_WRITE,
    NONE,
    Program,
    kernel,
    of_schedule,
)
from ckio.platforms import Platform
from ckio.schedule import Schedule
from ckio.traffic import memory_level

# mypy: disable-error-code="no-any-return"

_READY, _BUSY, _STUCK, _WAITS, _OVER = range(5)

_NOT_YET = -1.0
"""In place of the seconds of an action that has to wait."""


@kernel
def perform(program: Program, length: int, policy: Policy, state: State) -> float:
    """The seconds of a program of so many rows, transfers behind it included.

    Infinite if it waits for ever: for room that a near checkpoint never leaves.
    """
    _start(program, length, policy, state)
    while True:
        for number in range(len(state.now)):
            if state.now[number] != NONE and state.until[number] <= state.time[NOW]:
                end(program, state, number)
        _go_on(program, length, policy, state)
        for number in range(len(state.now)):
            if state.now[number] == NONE:
                begin(program, length, policy, state, number)
        if not _pass_time(state):
            break
    return state.time[NOW] if state.tally[PHASE] == _OVER else np.inf


@kernel
def _start(program: Program, length: int, policy: Policy, state: State) -> None:
    for row in range(length):
        state.status[row] = LATER
    for number in range(len(state.now)):
        state.head[number] = state.now[number] = state.wanted[number] = NONE
        state.reads[number] = program.first[number]
    tally = state.tally
    for item in range(len(tally)):
        tally[item] = 0
    tally[ROOM], tally[COPYING], tally[DIRECT] = policy.room, NONE, NONE
    state.time[NOW] = 0.0


@kernel
def _pass_time(state: State) -> bool:
    """Go on to the next instant at which anything ends; whether there is one."""
    soonest = state.time[UNTIL] if state.tally[PHASE] == _BUSY else np.inf
    for number in range(len(state.now)):
        if state.now[number] != NONE:
            soonest = min(soonest, state.until[number])
    if soonest == np.inf:
        return False
    state.time[NOW] = soonest
    return True


@kernel
def _go_on(program: Program, length: int, policy: Policy, state: State) -> None:
    """Let the program go on as far as it can while no time passes."""
    tally, time = state.tally, state.time
    if tally[PHASE] == _BUSY:
        if time[UNTIL] > time[NOW]:
            return
        _leave(program, state)
    elif tally[PHASE] == _WAITS:
        if tally[DIRECT] != NONE:
            return
        _leave(program, state)
    if tally[PHASE] != _OVER:
        tally[PHASE] = _READY
    while tally[ROW] < length and tally[PHASE] == _READY:
        seconds = _enter(program, policy, state)
        if seconds > 0.0:
            tally[PHASE], time[UNTIL] = _BUSY, time[NOW] + seconds
        elif seconds < 0.0:
            tally[PHASE] = _STUCK if tally[DIRECT] == NONE else _WAITS
        else:
            _leave(program, state)
    if tally[PHASE] == _READY:
        tally[PHASE] = _OVER


@kernel
def _enter(program: Program, policy: Policy, state: State) -> float:
    """The seconds that the program itself needs for its next action, or _NOT_YET."""
    row = state.tally[ROW]
    way = program.way[row]
    if way == NEAR_WRITE:
        if program.nbytes[row] > state.tally[ROOM]:
            return _NOT_YET
        state.tally[ROOM] -= program.nbytes[row]
    elif way == FAR_WRITE:
        return _enter_write(program, policy, state, row)
    elif way == FAR_READ:
        return _enter_read(program, state, row)
    elif way == FAR_DISCARD:
        discard(program, state, row)
        return 0.0
    return program.seconds[row]


@kernel
def _enter_write(program: Program, policy: Policy, state: State, row: int) -> float:
    tally = state.tally
    if tally[STAGED] < policy.write_behind and program.nbytes[row] <= tally[ROOM]:
        tally[STAGED] += 1
        tally[ROOM] -= program.nbytes[row]
        state.status[row] = COPIED
        return program.copy[row]
    if tally[STAGED] == 0:
        tally[DIRECT], tally[WRITING] = row, 1
        queue(state, program.channel[row], row)
    return _NOT_YET


@kernel
def _enter_read(program: Program, state: State, row: int) -> float:
    if state.status[row] == THERE:
        return program.copy[row]
    if state.status[row] == BEGUN:
        return _NOT_YET
    pass_by(program, state, row)
    source = program.source[row]
    if source != NONE and COPIED <= state.status[source] <= MOVING:
        state.tally[COPYING] = source
        return program.copy[row]
    state.tally[DIRECT] = state.wanted[program.channel[row]] = row
    return _NOT_YET


@kernel
def _leave(program: Program, state: State) -> None:
    """The current action has been done."""
    tally, row = state.tally, state.tally[ROW]
    way = program.way[row]
    if way == NEAR_DISCARD:
        tally[ROOM] += program.nbytes[row]
    elif way == FAR_WRITE and state.status[row] == COPIED:
        state.status[row] = QUEUED
        queue(state, program.channel[row], row)
    elif way == FAR_READ:
        copied = tally[COPYING]
        tally[COPYING] = NONE
        if copied != NONE and state.status[copied] == DONE:  # it was written meanwhile
            tally[ROOM] += program.nbytes[copied]
        elif state.status[row] == THERE:
            tally[AHEAD] -= 1
            tally[LYING] -= program.nbytes[row]
            tally[ROOM] += program.nbytes[row]
        state.status[row] = USED
    tally[ROW] += 1


def simulated(
    schedule: Schedule, platform: Platform, overlaps: Sequence[Overlap], /
) -> list[float]:
    """The makespans of a legal schedule that begins with nothing stored, by policy, in seconds."""
    made, places = of_schedule(schedule, platform)
    empty = state(len(schedule), len(made.first), places)
    near = memory_level(platform)
    room = ALL if near is None else _limit(platform.levels[near].capacity)
    return [
        perform(
            made,
            len(schedule),
            Policy(room, _limit(one.write_behind), _limit(one.read_ahead), one.horizon),
            empty,
        )
        for one in overlaps
    ]


def _limit(count: int | None) -> int:
    return ALL if count is None else min(count, ALL)
