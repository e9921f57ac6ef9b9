"""A schedule as a table: what a compiled loop walks through, and what the levels do at each row."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ckio.actions import Advance, Discard, Key, Kind, Read, Record, Reverse, Write
from ckio.adapters import registry
from ckio.errors import BadInput
from ckio.planners.base import Planner
from ckio.platform import FREE, Platform
from ckio.platform.chain import Chain
from ckio.schedule import Schedule
from ckio.schedule.replay import validate

Slot = tuple[int, int]
"""The number of a level, and that of the block whose first state lies there."""


class Op(IntEnum):
    """What a row says; KEEP takes the state for the block that is reversed next."""

    ADVANCE = 0
    KEEP = 1
    WRITE = 2
    READ = 3
    REVERSE = 4


Row = tuple[Op, int, int]
"""`begin` and `end` of blocks; for an access, the block, and the number of the access."""


@dataclass(frozen=True)
class Plan:
    """The two sweeps of a gradient.

    Attributes
    ----------
    platform : Platform
    forward, backward : tuple of Row
    slots : tuple of Slot
        Where each access goes to.
    drops : tuple of tuple of Slot
        What is discarded after each access.
    written : int
        How many of the accesses are on the way forward.
    """

    platform: Platform
    forward: tuple[Row, ...]
    backward: tuple[Row, ...]
    slots: tuple[Slot, ...]
    drops: tuple[tuple[Slot, ...], ...]

    @cached_property
    def written(self) -> int:
        return sum(row[0] is Op.WRITE for row in self.forward)

    @staticmethod
    def columns(rows: tuple[Row, ...]) -> NDArray[np.int32]:
        return np.array(rows, np.int32).reshape(-1, 3)


def plan(
    count: int,
    nbytes: int,
    platform: Platform,
    planner: str | Planner,
    seconds: Callable[[], tuple[float, float]],
    /,
) -> Plan:
    """The plan of so many blocks, whose states have so many bytes.

    What a block takes, forward and back, is asked only where the levels have prices. Raises
    NoSchedule, and BadInput for a planner that stores anything but states.
    """
    priced = any(level.write != FREE or level.read != FREE for level in platform.levels)
    advance, reverse = seconds() if priced else (1.0, 3.0)
    chain = Chain(
        steps=count,
        advance=advance,
        record=0.0,  # only the state is kept; what its steps need is computed where it is reversed
        reverse=reverse,
        restart=nbytes,
        tape=nbytes,
        adjoint=nbytes,
    )
    one = replace(platform, working_memory=max(1, nbytes))
    make: Planner = registry.find("planners", planner) if isinstance(planner, str) else planner
    schedule = make(chain, one)
    validate(schedule, one)
    return _table(schedule, platform, planner)


def _table(schedule: Schedule, platform: Platform, planner: object) -> Plan:
    rows: list[Row] = []
    slots: list[Slot] = []
    drops: list[tuple[Slot, ...]] = []
    moves = _moves(schedule)
    for number, action in enumerate(schedule.actions):
        match action:
            case Advance(begin, end):
                rows.append((Op.ADVANCE, begin, end))
            case Record(begin, end) if end - begin == 1:
                rows.append((Op.KEEP, begin, end))
                rows.extend([(Op.ADVANCE, begin, end)] if moves[number] else [])
            case Reverse(begin, end):
                rows.append((Op.REVERSE, begin, end))
            case Write(Key(Kind.RESTART, step), level) | Read(Key(Kind.RESTART, step), level):
                op = Op.WRITE if isinstance(action, Write) else Op.READ
                rows.append((op, step, len(slots)))
                slots.append((level, step))
                drops.append(())
            case Discard(Key(_, step), level):
                drops[-1] += ((level, step),)
            case _:
                raise BadInput(
                    f"planner {planner!r}: {action}; a block of steps keeps no tape: use a planner"
                    " that stores restart data alone, such as hrevolve"
                )
    turn = next(i for i, row in enumerate(rows) if row[0] is Op.REVERSE)
    return Plan(platform, tuple(rows[:turn]), tuple(rows[turn:]), tuple(slots), tuple(drops))


def _moves(schedule: Schedule) -> list[bool]:
    """For each Record, whether anybody needs the state that it comes to."""
    needed, moves = False, []
    for action in reversed(schedule.actions):
        moves.append(needed or (isinstance(action, Record) and action.end == schedule.chain.steps))
        match action:
            case Advance() | Record() | Write():
                needed = True
            case Read():
                needed = False
            case _:
                pass
    return moves[::-1]
