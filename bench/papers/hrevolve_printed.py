"""Schedules as Herrmann and Pallez (2020) compare them: Revolve by table, and levels folded to two.

Their baselines know one level or two; on a machine with more they are planned for two and then put
on the real levels, the checkpoints that are used least on the furthest (their section 5.3).
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ckio.actions import Action, Discard, Key, Read, Write
from ckio.errors import NoSchedule
from ckio.planners.draft import Draft
from ckio.platform import Affine, Level, Platform
from ckio.platform.chain import Chain
from ckio.schedule import Schedule

AT_ONCE = 1000
"""Lengths are tabulated in multiples of this, so that one table serves many of them."""


def revolve_by_table(chain: Chain, platform: Platform) -> Schedule:
    """Revolve on level 0, free as it is to them, by dynamic programming; the last of equal splits.

    T_c(l) = min(l (l + 1) / 2, min_{1<=j<l} j + T_{c-1}(l - j) + T_c(j - 1)). Which of equally good
    splits is taken does not change the forward steps, but it changes how often is written and read.
    Their Listing 3 has F_0->2 in Revolve(4, 2), where j = 2 is as good as its j = 3.
    """
    length = chain.length - 1
    slots = platform.levels[0].slots(chain.restart, max(1, length))
    splits = _last_splits(-(-max(1, length) // AT_ONCE) * AT_ONCE, slots)
    draft, todo = Draft(), [(0, length, slots, False)]
    while todo:
        at, length, c, stored = todo.pop()
        if stored:
            draft.read(at, level=0)
        elif length:
            draft.write(at, level=0)
        while length:
            j = int(splits[c - 1, length])
            if j == length:
                c = 1
            draft.advance(at, at + j)
            todo.append((at, j - 1, c, True))
            at, length, c, stored = at + j, length - j, c - 1, False
            if length:
                draft.write(at, level=0)
        if stored:
            draft.discard(at, level=0)
        draft.step_back(at)
    return draft.schedule(chain)


@lru_cache(8)
def _last_splits(longest: int, slots: int) -> NDArray[np.int32]:
    """The last j of least cost, by c - 1 and l; j = l is to use one slot alone from there on."""
    lengths = np.arange(longest + 1.0)
    alone = lengths * (lengths + 1) / 2
    splits = np.zeros((slots, longest + 1), np.int32)
    splits[:] = np.arange(longest + 1)
    row = alone
    for c in range(1, slots):
        outer, row = row[::-1].copy(), alone.copy()
        again = lengths + 1  # j + T_c(j - 1) at j - 1
        again[0] = 1
        for length in range(1, longest + 1):
            if length > 1:
                begin = longest - length + 1
                costs = outer[begin : begin + length - 1] + again[: length - 1]
                j = length - 1 - int(costs[::-1].argmin())
                if costs[j - 1] <= alone[length]:
                    row[length], splits[c, length] = costs[j - 1], j
            again[length] = row[length] + length + 1
    return splits


def folded(slots: int, write: float, read: float) -> Platform:
    """Two levels as HP's two-level algorithms know them: free memory, and a disk without end."""
    disk = Level(name="disk", write=Affine(write), read=Affine(read))
    return Platform((Level(name="memory", capacity=slots), disk), working_memory=1)


def spread(schedule: Schedule, platform: Platform, homes: Sequence[Sequence[int]], /) -> Schedule:
    """The schedule with each of its levels spread over several: `homes[k]` for level k.

    The checkpoints of a level are a stack. Its places that are used most go to the nearest slots.
    Raises NoSchedule where a stack is higher than its homes have slots.
    """
    places = list(_places(schedule.actions))
    uses = Counter((action.level, place) for action, place in _accesses(schedule.actions, places))
    nbytes, most = schedule.chain.restart, len(places)
    home: dict[tuple[int, int], int] = {}
    for level, numbers in enumerate(homes):
        slots = [
            number for number in numbers for _ in range(platform.levels[number].slots(nbytes, most))
        ]
        ranked = sorted((place for place in uses if place[0] == level), key=lambda p: -uses[p])
        if len(ranked) > len(slots):
            raise NoSchedule(f"{len(ranked)} checkpoints for {len(slots)} slots")
        home |= dict(zip(ranked, slots, strict=False))
    return Schedule(schedule.chain, _moved(schedule.actions, places, home))


def _places(actions: Sequence[Action]) -> Iterator[int]:
    """For each action the height of its checkpoint in the stack of its level; -1 for none."""
    where: dict[tuple[int, Key], int] = {}
    height: Counter[int] = Counter()
    for action in actions:
        match action:
            case Write(key, level):
                where[level, key] = height[level]
                height[level] += 1
                yield where[level, key]
            case Read(key, level):
                yield where[level, key]
            case Discard(key, level):
                height[level] -= 1
                yield where.pop((level, key))
            case _:
                yield -1


def _accesses(
    actions: Sequence[Action], places: Sequence[int]
) -> Iterator[tuple[Write | Read, int]]:
    for action, place in zip(actions, places, strict=True):
        if isinstance(action, Write | Read):
            yield action, place


def _moved(
    actions: Sequence[Action], places: Sequence[int], home: Mapping[tuple[int, int], int]
) -> Iterator[Action]:
    for action, place in zip(actions, places, strict=True):
        if isinstance(action, Write | Read | Discard):
            yield replace(action, level=home[action.level, place])
        else:
            yield action
