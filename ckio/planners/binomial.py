"""Revolve: the fewest forward steps with a given number of slots on one level, in closed form.

With s slots, that of x_0 among them, and no step advanced over more than r times, a chain of up to
beta(s, r) = C(s + r, s) steps can be reversed. With the smallest r such that beta(s, r) >= n, the
n steps are advanced over r n - C(s + r, s + 1) times in all, which is the least
(Griewank and Walther, "Algorithm 799: Revolve", ACM TOMS 2000).
"""

from math import comb

from ckio.errors import BadInput
from ckio.planners.base import alike, candidates, nearest, room_for_one, tapes
from ckio.planners.draft import Draft
from ckio.platform import Platform
from ckio.platform.chain import Chain
from ckio.schedule import Schedule


def revolve(chain: Chain, platform: Platform, /, *, on: str | None = None) -> Schedule:
    """The fewest forward steps on one level and, of those schedules, the fewest writes.

    The level is the nearest that holds a checkpoint, or the one called `on`; what it costs to
    reach plays no part. Raises NoSchedule where n > 1 and no level serves.
    """
    return on_one_level(chain, platform, most=chain.length - 1, planner="revolve", on=on)


def on_one_level(
    chain: Chain, platform: Platform, /, *, most: int, planner: str, on: str | None
) -> Schedule:
    """Revolve in at most `most` of the slots of the nearest level, or of the one called `on`."""
    alike(chain, planner=planner)
    tapes(chain, platform)
    levels = candidates(platform, on)
    draft = Draft()
    if chain.length == 1:
        draft.step_back(0)
    else:
        level = nearest(
            levels,
            lambda level: level.slots(chain.restart, 1) == 1,
            planner=planner,
            needs=room_for_one(chain),
        )
        slots = level.slots(chain.restart, most)
        _sweep(draft, chain.length, slots=slots, level=platform.number(level.name))
    return draft.schedule(chain)


def revolve_forward_steps(steps: int, slots: int, /) -> int:
    """The least number of forward steps, advanced and recorded, with this many slots on one level.

    Raises BadInput for less than one step, or no slot for more than one.

    >>> revolve_forward_steps(1000, 20)
    3747
    """
    if steps < 1 or slots < 1 < steps:
        raise BadInput(f"{steps} steps with {slots} slots: both must be at least 1")
    if steps == 1:
        return 1
    slots = min(slots, steps - 1)
    r = _repetitions(steps, slots)
    return steps + r * steps - comb(slots + r, slots + 1)


def _sweep(draft: Draft, steps: int, *, slots: int, level: int) -> None:
    # What is left to do, next last: the `length` steps from `at` on are to be reversed with s
    # slots, one of which holds x_at if it is `stored`; r is at least what they need.
    todo = [(0, steps, slots, _repetitions(steps, slots), False)]
    while todo:
        at, length, s, r, stored = todo.pop()
        if stored:
            draft.read(at, level=level)
        while length > 1:
            if not stored:
                draft.write(at, level=level)
            while _beta(s, r - 1) >= length:
                r -= 1
            middle = _split(length, s, r)
            draft.advance(at, at + middle)
            todo.append((at, middle, s, r, True))
            at, length, s, stored = at + middle, length - middle, s - 1, False
        if stored:
            draft.discard(at, level=level)
        draft.step_back(at)


def _split(steps: int, s: int, r: int) -> int:
    """Where to put the next checkpoint after x_0.

    It leads to the fewest forward steps if beta(s, r - 2) <= split <= beta(s, r - 1) and
    beta(s - 1, r - 1) <= steps - split <= beta(s - 1, r). Within these bounds the number of writes
    depends on the split; this one makes them fewest.
    """
    fewest_writes = steps - _beta(s - 1, r - 1) - _beta(s - 2, r - 1)
    return min(max(fewest_writes, _beta(s, r - 2), 1), _beta(s, r - 1))


def _repetitions(steps: int, s: int) -> int:
    """The smallest r with beta(s, r) >= steps."""
    r = 0
    while _beta(s, r) < steps:
        r += 1
    return r


def _beta(s: int, r: int) -> int:
    return comb(s + r, s) if s >= 0 and r >= 0 else 0
