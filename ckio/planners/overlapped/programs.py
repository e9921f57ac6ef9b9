"""A schedule as the compiled engine takes it: columns, and what is known before it begins.

The near level is the memory level of `ckio.traffic`, and all others are far.
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from ckio.columns import KINDS, WRITE
from ckio.planners import compiled
from ckio.platforms import Platform
from ckio.schedule import Schedule, seconds_of
from ckio.traffic import memory_level

Ints = NDArray[np.int64]
Seconds = NDArray[np.float64]

_Function = TypeVar("_Function", bound=Callable[..., Any])


def kernel(function: _Function, /) -> _Function:
    """Compiled where numba is there; the same in Python else, which short schedules can bear."""
    return compiled.kernel(function) if compiled.available() else function


COMPUTE, NEAR_READ, NEAR_WRITE, NEAR_DISCARD, FAR_WRITE, FAR_READ, FAR_DISCARD = range(7)
"""What the program does in a row; NEAR is the memory level."""

NONE = -1
"""In place of a row."""

_WAYS: Final = np.array(
    [
        [COMPUTE] * 6,
        [COMPUTE] * 3 + [NEAR_WRITE, NEAR_READ, NEAR_DISCARD],
        [COMPUTE] * 3 + [FAR_WRITE, FAR_READ, FAR_DISCARD],
    ]
)
"""By where the action takes place (nowhere, near, far) and its code in `columns`."""


class Program(NamedTuple):
    """One row for each action; the last six columns are made by `link`.

    Attributes
    ----------
    way : int64 array
        COMPUTE, NEAR_READ, ...
    seconds, copy : float64 arrays
        Of the action itself, or its transfer; of the copy instead, for a far write or read.
    nbytes, channel, place : int64 arrays
        What it takes of the pool; the channel of a far level; a number for the key and its level.
    source : int64 array
        Of a far read or discard: the row of what it reads, or NONE.
    clock : float64 array, one longer
        Seconds computed before.
    peak : int64 array
        Most bytes of near checkpoints from here to the next far read.
    use, follows, first : int64 arrays
        The first far read from here on; the next one on the same channel; the first by channel.
    """

    way: Ints
    seconds: Seconds
    copy: Seconds
    nbytes: Ints
    channel: Ints
    place: Ints
    source: Ints
    clock: Seconds
    peak: Ints
    use: Ints
    follows: Ints
    first: Ints


def program(rows: int, channels: int, /) -> Program:
    """A program with room for so many rows, still empty."""
    ints = [np.zeros(rows + 1, np.int64) for _ in range(8)]
    floats = [np.zeros(rows + 1) for _ in range(3)]
    way, nbytes, channel, place, source, peak, use, follows = ints
    first = np.zeros(channels, np.int64)
    return Program(
        way, floats[0], floats[1], nbytes, channel, place, source, floats[2], peak, use, follows,
        first,
    )  # fmt: skip


def of_schedule(schedule: Schedule, platform: Platform, /) -> tuple[Program, int]:
    """The program of a schedule that begins with nothing stored, and its number of places.

    Raises BadInput as `seconds_of` does.
    """
    actions, levels, near = schedule.actions, platform.levels, memory_level(platform)
    channels = {
        name: number
        for number, name in enumerate(
            dict.fromkeys(level.channel for at, level in enumerate(levels) if at != near)
        )
    }
    made = program(len(actions), len(channels))
    access, far = actions.op >= WRITE, actions.level != (NONE if near is None else near)
    nbytes = schedule.chain.nbytes_of(actions)
    made.way[:-1] = _WAYS[np.where(access, 1 + far, 0), actions.op]
    made.seconds[:-1] = seconds_of(schedule, platform)
    made.nbytes[:-1] = nbytes
    if near is not None:
        level = levels[near]
        made.nbytes[:-1] = np.where(far, nbytes, level.stored_of(nbytes))
        write, read = (
            price.latency + price.per_byte * nbytes for price in (level.write, level.read)
        )
        made.copy[:-1] = np.where(actions.op == WRITE, write, read)
    of_level = [channels.get(level.channel, 0) for level in levels]
    made.channel[:-1] = np.array([*of_level, 0])[actions.level]
    states, kinds = schedule.chain.length + 1, len(KINDS)
    made.place[:-1] = (actions.level.astype(np.int64) * kinds + actions.kind) * states + np.where(
        access, actions.begin, 0
    )
    places = len(levels) * kinds * states
    link(made, len(actions), np.full(places, NONE))
    return made, places


@kernel
def link(program: Program, length: int, last: Ints) -> None:
    """Fill in what follows from the other columns; `last` has an element for each place."""
    way, first = program.way, program.first
    held, program.clock[0] = 0, 0.0
    for row in range(length):
        doing, before = way[row], held
        seconds = program.seconds[row] if doing == COMPUTE else 0.0
        program.clock[row + 1] = program.clock[row] + seconds
        if doing == NEAR_WRITE:
            held += program.nbytes[row]
        elif doing == NEAR_DISCARD:
            held -= program.nbytes[row]
        elif doing == FAR_WRITE:
            last[program.place[row]] = row
        elif doing >= FAR_READ:
            program.source[row] = last[program.place[row]]
        program.peak[row] = max(before, held)
    for number in range(len(first)):
        first[number] = length
    use = length
    program.use[length] = length
    for row in range(length - 1, -1, -1):
        if way[row] == FAR_READ:
            use, number = row, program.channel[row]
            program.follows[row], first[number] = first[number], row
        elif row + 1 < length:
            program.peak[row] = max(program.peak[row], program.peak[row + 1])
        if way[row] == FAR_WRITE:
            last[program.place[row]] = NONE
        program.use[row] = use
