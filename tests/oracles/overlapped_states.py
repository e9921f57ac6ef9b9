"""The least makespan with overlap, by exhaustive search: for tiny chains."""

import heapq
from collections.abc import Iterator
from typing import NamedTuple

IDLE, WRITING, READING = range(3)


class Case(NamedTuple):
    """A chain of l + 1 steps: 1 second forward, 1 to record and reverse; whole costs."""

    length: int
    near: int
    far: int
    write: int
    read: int


class State(NamedTuple):
    """The next step to reverse, the state in the register, what lies near and far (bits).

    The channel does something to one state for some more seconds: `moving` is near already, and
    stays there, while it is written; it takes a near slot while it is read.
    """

    adjoint: int
    at: int
    near: int
    far: int
    channel: int
    moving: int
    left: int


def least_makespan(case: Case) -> int:
    """By Dijkstra's algorithm over all states, whatever the order of the transfers."""
    start = State(case.length, 0, 0, 0, IDLE, 0, 0)
    known, heap = {start: 0}, [(0, start)]
    while heap:
        seconds, state = heapq.heappop(heap)
        if state.adjoint < 0:
            return seconds
        if known[state] < seconds:
            continue
        for more, to in moves(case, state):
            after = forgotten(to)
            if seconds + more < known.get(after, 1 << 30):
                known[after] = seconds + more
                heapq.heappush(heap, (seconds + more, after))
    raise AssertionError("recomputing from the first state is always possible")


def forgotten(state: State) -> State:
    """Without what lies behind the adjoint and is of no more use, unless it is being moved."""
    useful = (2 << state.adjoint) - 1 if state.adjoint >= 0 else 0
    held = 1 << state.moving if state.channel == WRITING else 0
    return state._replace(near=state.near & (useful | held), far=state.far & useful)


def passed(state: State, seconds: int) -> State:
    """After some seconds, no more than the channel has left to do."""
    if state.channel == IDLE or state.left > seconds:
        return state._replace(left=max(0, state.left - seconds))
    bit = 1 << state.moving
    ended = state._replace(channel=IDLE, moving=0, left=0)
    if state.channel == WRITING:
        return ended._replace(far=state.far | bit)
    return ended._replace(near=state.near | bit)


def moves(case: Case, state: State) -> Iterator[tuple[int, State]]:
    """All that may be done next, and the seconds until then."""
    if state.at < state.adjoint:
        yield 1, passed(state._replace(at=state.at + 1), 1)
    elif state.at == state.adjoint:
        yield 1, passed(state._replace(adjoint=state.adjoint - 1), 1)
    if state.channel != IDLE:
        yield state.left, passed(state, state.left)
    here, idle = 1 << state.at, state.channel == IDLE
    if state.at <= state.adjoint:
        coming = state.channel == READING and state.moving == state.at
        if room_near(case, state) and not state.near & here and not coming:
            yield 0, state._replace(near=state.near | here)
        if idle and room_far(case, state) and not state.far & here:
            yield case.write, state._replace(far=state.far | here)
    for step in range(state.adjoint + 1):
        if state.near & 1 << step:
            yield from moves_of_near(case, state, step)
        if state.far & 1 << step:
            yield from moves_of_far(case, state, step)


def room_near(case: Case, state: State) -> bool:
    return state.near.bit_count() + (state.channel == READING) < case.near


def room_far(case: Case, state: State) -> bool:
    return state.far.bit_count() + (state.channel == WRITING) < case.far


def moves_of_near(case: Case, state: State, step: int) -> Iterator[tuple[int, State]]:
    """Copy it to the register, drop it, or begin to write it."""
    yield 0, state._replace(at=step)
    if not (state.channel == WRITING and state.moving == step):
        yield 0, state._replace(near=state.near ^ 1 << step)
    if state.channel == IDLE and room_far(case, state) and not state.far & 1 << step:
        yield 0, state._replace(channel=WRITING, moving=step, left=case.write)


def moves_of_far(case: Case, state: State, step: int) -> Iterator[tuple[int, State]]:
    """Drop it, read it to the register, or begin to read it ahead."""
    if not (state.channel == READING and state.moving == step):
        yield 0, state._replace(far=state.far ^ 1 << step)
    if state.channel == IDLE:
        yield case.read, state._replace(at=step)
        if room_near(case, state) and not state.near & 1 << step:
            yield 0, state._replace(channel=READING, moving=step, left=case.read)
