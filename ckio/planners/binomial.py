"""Revolve: the fewest forward steps with a given number of slots on one level, in closed form.

Let s be the number of slots, including that of x_0, and let no step be advanced over more than r
times. Then the longest chain that can be reversed has

    beta(s, r) = C(s + r, s)

steps, where C is the binomial coefficient. For a chain of n steps, let r be the smallest number
with beta(s, r) >= n. The least total number of advances is then

    r n - C(s + r, s + 1)

For example, for n = 4 and s = 2: beta(2, 1) = 3 < 4 <= beta(2, 2) = 6, so that r = 2, and the least
number is 2 * 4 - C(4, 3) = 4 advances.

Source: Griewank and Walther (2000), "Algorithm 799: Revolve", ACM TOMS.
"""

from collections.abc import Callable
from math import comb

from ckio.planners.base import alike, candidates, held_steps, nearest, space_for_one
from ckio.planners.draft import Draft
from ckio.platform import Platform
from ckio.platform.chain import Chain
from ckio.schedule import Schedule


def revolve(chain: Chain, platform: Platform, /, *, on: str | None = None) -> Schedule:
    """Return the schedule with the fewest forward steps on one level (Griewank & Walther 2000).

    Of all schedules with the fewest forward steps, this one also has the fewest writes. It uses one
    level: the nearest that can store a checkpoint, or the level called `on`.

    Assumptions: all steps are alike, the length of the chain is known, and only restart data is
    stored. The seconds of writes and reads do not change the schedule.

    Raises BadInput if the steps differ. Raises NoSchedule if the chain has more than one step and
    the level cannot store a checkpoint, or if the working memory cannot hold the tape of one step.

    For example, let all four steps take 1 s each to advance, record and reverse, and let accesses
    to memory take no time. With two slots, 4 steps are advanced over, 4 are recorded and 4 are
    reversed, in 12 s:

    >>> from ckio.platform import Level
    >>> from ckio.schedule import makespan
    >>> chain = Chain(steps=4, advance=1, record=1, reverse=1, restart=8, tape=8, adjoint=8)
    >>> platform = Platform((Level(name="ram", capacity=16),), working_memory=8)
    >>> schedule = revolve(chain, platform)
    >>> print(*schedule.actions[:4], sep="; ")
    Write(x_0, level 0); Advance[0, 1); Write(x_1, level 0); Advance[1, 3)
    >>> makespan(schedule, platform)
    12.0
    """
    alike(chain, planner="revolve")
    held_steps(chain, platform)
    levels, draft = candidates(platform, on), Draft()
    if chain.length == 1:
        draft.step_back(0)
    else:
        level = nearest(
            levels,
            lambda level: level.slots(chain.restart, 1) == 1,
            planner="revolve",
            needs=space_for_one(chain),
        )
        slots = level.slots(chain.restart, chain.length - 1)
        _sweep(draft, chain.length, slots=slots, level=platform.number(level.name))
    return draft.schedule(chain)


def _sweep(draft: Draft, steps: int, *, slots: int, level: int) -> None:
    # A stack of tasks, the next task last. A task is to reverse the `length` steps that begin
    # at `at`, with s slots and at most r repetitions. If `stored`, one of the slots holds x_at.
    todo = [(0, steps, slots, least(lambda r: beta(slots, r) >= steps), False)]
    while todo:
        at, length, s, r, stored = todo.pop()
        if stored:
            draft.read(at, level=level)
        while length > 1:
            if not stored:
                draft.write(at, level=level)
            while beta(s, r - 1) >= length:
                r -= 1
            middle = _split(length, s, r)
            draft.advance(at, at + middle)
            todo.append((at, middle, s, r, True))
            at, length, s, stored = at + middle, length - middle, s - 1, False
        if stored:
            draft.discard(at, level=level)
        draft.step_back(at)


def _split(steps: int, s: int, r: int) -> int:
    """Return the step of the next checkpoint after x_0.

    The number of forward steps is the least if beta(s, r - 2) <= split <= beta(s, r - 1) and
    beta(s - 1, r - 1) <= steps - split <= beta(s - 1, r). Within these bounds the number of writes
    depends on the split. This function returns the split with the fewest writes.
    """
    fewest_writes = steps - beta(s - 1, r - 1) - beta(s - 2, r - 1)
    return min(max(fewest_writes, beta(s, r - 2), 1), beta(s, r - 1))


def beta(s: int, r: int, /) -> int:
    """Return the longest chain for s slots, if no step is advanced over more than r times.

    >>> beta(2, 2)
    6
    """
    return comb(s + r, s) if s >= 0 and r >= 0 else 0


def least(holds: Callable[[int], bool], /) -> int:
    """Return the smallest whole number >= 0 for which `holds`; it must hold for all larger ones."""
    low, high = -1, 1
    while not holds(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle
    return high
