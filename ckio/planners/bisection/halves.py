"""Halves of a span: where it is divided, what is done then, and on which level."""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Final, TypeAlias

import numpy as np

from ckio.actions.columns import READ, WRITE, Actions
from ckio.planners.base import Room, rooms
from ckio.planners.blocks import at_level
from ckio.planners.draft import Draft
from ckio.platform import Platform
from ckio.platform.chain import Chain, PerStep

MOST: Final = 64
"""Checkpoints at a time, more than halves of any chain need."""

Middle: TypeAlias = Callable[[int, int], int]
"""Where the steps [begin, end) are divided, two of them or more."""


def halve(
    draft: Draft, begin: int, end: int, *, most: int, middle: Middle, again: bool = False
) -> None:
    """Take [begin, end) back with `most` checkpoints at a time, that of x_begin among them.

    It is stored, and in the register too unless it is to be read `again`. In place of levels there
    is how deep a checkpoint lies: that of x_begin at 0, the next one at 1.
    """
    todo = [(begin, end, 0, again)]
    while todo:
        begin, end, depth, again = todo.pop()
        if again:
            draft.read(begin, level=depth)
        while end - begin > 1:
            # What is left free has to do for the later part; the earlier has this slot back.
            split = max(middle(begin, end), end - (1 << most - depth - 1))
            todo.append((begin, split, depth, True))
            draft.advance(begin, split)
            begin, depth, again = split, depth + 1, False
            if end - begin > 1:
                draft.write(begin, level=depth)
        if again:
            draft.discard(begin, level=depth)
        draft.step_back(begin)


def needed_for(steps: int, /) -> int:
    """ceil(log2 n)."""
    return (steps - 1).bit_length()


def by_steps(begin: int, end: int, /) -> int:
    """Half of the steps."""
    return (begin + end) // 2


def by_seconds(seconds: PerStep, /) -> Middle:
    """The step nearest to half of the seconds."""
    total = seconds.before.tolist()

    def middle(begin: int, end: int) -> int:
        half = total[begin] / 2 + total[end] / 2
        after = bisect_left(total, half, begin, end)
        before = bisect_right(total, half, begin, end + 1) - 1
        if after <= before:  # several, as steps may take no time
            split = min(max(by_steps(begin, end), after), before)
        else:
            split = before if half - total[before] <= total[after] - half else after
        return min(max(split, begin + 1), end - 1)

    return middle


def offered(chain: Chain, platform: Platform, /) -> list[Room]:
    """What the levels offer for the largest checkpoint, the cheapest first."""
    largest = replace(chain, restart=chain.largest("restart"))
    found = rooms(largest, platform, planner="bisection")
    return sorted(found, key=lambda room: room.write + room.read)


def places(usable: Iterable[Room], /) -> list[int]:
    """The level of each slot, as many as can be used."""
    return [room.number for room in usable for _ in range(min(room.slots, MOST))]


def shared_out(busy: Sequence[int], slots: Sequence[int], /) -> list[int]:
    """The level of each depth: the busiest takes the first of the slots."""
    order = sorted(range(len(busy)), key=lambda depth: -busy[depth])
    level = dict(zip(order, slots, strict=False))
    return [level[depth] for depth in range(len(busy))]


def placed(actions: Actions, slots: Sequence[int], /, *own: int) -> Actions:
    """The actions of `halve` on levels; x_begin is on a level of its own, if that is given."""
    moved = (actions.op == WRITE) | (actions.op == READ)
    busy = np.bincount(actions.level[moved]).tolist()
    levels = [*own, *shared_out(busy[len(own) :], slots)]
    return at_level(actions, np.array(levels)[actions.level])
