"""Bisection: a chain is divided in halves, and each half again, the later one first.

This is the schedule of Siskind and Pearlmutter, "Binomial checkpointing for arbitrary programs with
no user annotation", 2016, Fig. 2. With x_b stored and in the register, [b, e) is taken back so:

    one step:  record and reverse it
    others:    advance to the middle m, write x_m, take [m, e) back; read x_b, take [b, m) back

where x_m is not written if [m, e) is one step, and a checkpoint is discarded at its last read. Of n
steps that are all alike, with m = floor((b + e) / 2),

    stored at a time, with x_0     ceil(log2 n)                                    for n > 1
    advances                       S(n) = sum_{0<=k<n} ones(k) <= (n / 2) log2 n

where ones(k) counts the ones of k in binary: S(n) = floor(n / 2) + S(floor(n / 2)) + S(ceil(n / 2))
holds of it, as every other number ends in a one and the rest are those below the two halves. That
paper counts one checkpoint more, that of a last step, which is still in the register here. With as
many slots Revolve advances less; halves need no table, and no number of slots to be chosen.

Where steps differ, m is as near to half of the seconds of advancing as leaves 2^(c-1) steps at most
to [m, e) for c checkpoints, that of x_b among them; so no more are stored than of steps alike. As
only what comes before m is advanced over, that is no gain where later steps take longer: the better
of this and halves of the steps is taken.

What lies below p others is written and read about C(log2 n, p) times. The busiest depths, which are
the middle ones, take the level that is cheapest to write and read; the outermost and the innermost
go farther away.

A run that does not know its end stores at x_k the x_j of which j is a prefix of k in binary, the
ones below it cleared: of k = 1011 (binary) 0, 1000, 1010 and 1011. These are the halves of halves
of every chain that may yet come. To write seldom, k is a multiple of

    g(k) = 2^max(0, bits(k) - 5)

or of a higher power of two where the levels have less than six slots: 16 writes while the chain
grows to twice its length. So up to n / 16 last steps lie beyond the last checkpoint, and are
advanced over once more. Forward, no more than six checkpoints are stored; on the way back to x_0,
never more than ceil(log2 n) + 1 (for n > 1). For k' = 2^a1 + .. + 2^ap with a1 > .. > ap, the last
x_k' that was written, the i-th segment between checkpoints has 2^ai steps, its first state is the
i-th of them, and its halves need i - 1 + max(1, ai), where ai <= a1 - i + 1. Beyond k' lie at most
g(k') <= 2^ap steps, which need p + max(1, log2 g(k')).
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from ckio.actions import Key
from ckio.actions.columns import Actions
from ckio.errors import NoSchedule
from ckio.planners.base import alike, candidates, no_schedule, tapes, without_notes
from ckio.planners.bisection.follower import Far, Follower, Levels, found
from ckio.planners.bisection.halves import (
    MOST,
    Middle,
    by_seconds,
    by_steps,
    halve,
    needed_for,
    offered,
    placed,
    places,
)
from ckio.planners.draft import Draft
from ckio.planners.stored.standing import checked
from ckio.platform import Platform
from ckio.platform.chain import Chain, PerStep
from ckio.schedule import Schedule, makespan

__all__ = ["Bisection", "Follower", "bisection"]


def bisection(chain: Chain, platform: Platform, /, *, on: str | None = None) -> Schedule:
    """Divide the chain in halves, on all levels together or on the one called `on`.

    Where checkpoints differ in size, each is taken to be as large as the largest. Raises NoSchedule
    where n > 1 and the levels have no room for ceil(log2 n) of them.
    """
    tapes(chain, platform)
    levels, steps, draft = candidates(platform, on), chain.length, Draft()
    if steps == 1:
        draft.step_back(0)
        return draft.schedule(chain)
    needed, numbers = needed_for(steps), {platform.number(level.name) for level in levels}
    slots = places(room for room in offered(chain, platform) if room.number in numbers)
    if len(slots) < needed:
        size = chain.largest("restart")
        raise no_schedule(
            levels,
            f"bisection of {steps} steps needs checkpoints of {size} bytes, {needed} at a time",
        )
    of_steps = _from_the_start(chain, slots, needed, by_steps)
    if not isinstance(chain.advance, PerStep):
        return of_steps
    of_seconds = _from_the_start(chain, slots, needed, by_seconds(chain.advance))
    return min(of_steps, of_seconds, key=lambda plan: makespan(plan, platform))


@dataclass(frozen=True)
class Bisection:
    """The rule for a run that does not know its end; `chain.steps` plays no part.

    One slot is enough for any number of steps: with few slots it advances more. Raises BadInput for
    a chain whose steps differ; what it is asked first raises NoSchedule where no level holds a
    checkpoint, or the working memory no tape.
    """

    chain: Chain
    platform: Platform

    def __post_init__(self) -> None:
        alike(self.chain, planner="bisection of a run that does not know its end")

    @cached_property
    def levels(self) -> Levels:
        """What it may use of the platform."""
        endless = self.chain.with_steps(MOST + 1)
        tapes(endless, self.platform)
        near, *far = offered(endless, self.platform)
        return Levels(near, tuple(map(Far, far)))

    def follow(self, step: int = 0, stored: Sequence[Iterable[Key]] = (), /) -> Follower:
        """What to do along a run that stands at x_step, and does what it is told."""
        return Follower(self.levels, step, stored)

    def finish(self, steps: int, stored: Sequence[Iterable[Key]], /) -> Schedule:
        """The way back when x_steps has just been reached and is the end.

        It takes back what lies between the checkpoints that are `stored`, the last of them first,
        in halves; those further back stay until then. It leaves nothing, and is legal after actions
        that have led to x_steps. Raises NoSchedule where x_0 is not stored, and BadInput for what
        this chain and platform cannot have stored, or is not restart data.
        """
        chain = self.chain.with_steps(steps)
        kept = checked(chain, self.platform, stored, steps)
        level, copies = found(kept)
        ends = [step for step in sorted(level, reverse=True) if step < steps]
        if ends[-1:] != [0]:
            raise NoSchedule(
                f"the steps before {min([*ends, steps])} cannot be reversed: x_0 is not stored;"
                " begin with a fresh model"
            )
        draft = Draft()
        for step, number in [*copies, *((step, level[step]) for step in level.keys() - ends)]:
            draft.discard(step, level=number)
        actions, used, end = draft.actions(), Counter(level[step] for step in ends), steps
        with without_notes():
            usable = offered(chain, self.platform)
        for begin in ends:
            free = [replace(room, slots=room.slots - used[room.number]) for room in usable]
            actions += _segment(begin, end, level[begin], places(free))
            used[level[begin]] -= 1
            end = begin
        return Schedule(chain, actions, kept, f"in halves between {len(ends)} checkpoints")


def _from_the_start(chain: Chain, slots: Sequence[int], most: int, middle: Middle) -> Schedule:
    """All of a chain, x_0 being in the register and not yet stored."""
    draft = Draft()
    draft.write(0, level=0)
    halve(draft, 0, chain.length, most=most, middle=middle)
    what = "steps" if middle is by_steps else "seconds"
    note = f"in halves of the {what}: {most} checkpoints at a time"
    return Schedule(chain, placed(draft.actions(), slots), note=note)


def _segment(begin: int, end: int, own: int, free: Sequence[int]) -> Actions:
    """Take [begin, end) back, x_begin being stored on the level `own`, with the `free` places."""
    draft, most = Draft(), 1 + min(len(free), needed_for(end - begin))
    halve(draft, begin, end, most=most, middle=by_steps, again=True)
    return placed(draft.actions(), free, own)
