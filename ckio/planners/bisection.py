"""Bisection: divide a chain into halves, and each half again; the later half is reversed first.

This is the schedule of Siskind and Pearlmutter, "Binomial checkpointing for arbitrary programs with
no user annotation", 2016, Fig. 2. When x_b is stored and in the register, the steps [b, e) are
reversed as follows:

    one step:       record and reverse it
    several steps:  advance to the middle m, write x_m, reverse [m, e); read x_b, reverse [b, m)

x_m is not written if [m, e) is one step, and each checkpoint is discarded at its last read. For n
equal steps and m = floor((b + e) / 2),

    checkpoints at a time, with x_0     ceil(log2 n)                                    for n > 1
    steps advanced                      S(n) = sum_{0<=k<n} ones(k) <= (n / 2) log2 n

where ones(k) is the number of ones of k in binary. The recurrence is

    S(n) = floor(n / 2) + S(floor(n / 2)) + S(ceil(n / 2)),    S(1) = 0

because every second number below n ends in a one, and the other digits of the even and of the odd
numbers are the numbers below the two halves. For example, S(2) = 1, S(3) = 1 + S(1) + S(2) = 2 and
S(4) = 2 + 2 S(2) = 4. The paper counts one more checkpoint, that of the last step, whose state is
still in the register here. With the same number of slots Revolve advances fewer steps. Bisection
needs no table, and the user need not choose a number of slots.

If steps differ, m is the step nearest to half of the seconds of advancing for which [m, e) has at
most 2^(c-1) steps, where c is the number of checkpoints including that of x_b. Therefore no more
checkpoints are stored than for equal steps. Only the steps before m are advanced over, so that
halves of the seconds are no gain if later steps take longer. The planner returns the better of the
two schedules: halves of the seconds and halves of the steps.

A checkpoint at depth p (p others are stored before it) is written and read about C(log2 n, p)
times. The middle depths are accessed most often, so that they are stored on the level that is
cheapest to write and read. The outermost and the innermost depths are stored on farther levels.

A run that does not know its end has stored, at x_k, each x_j for which j is a prefix of k in binary
(the lower ones of k are cleared): for k = 1011 (binary) these are 0, 1000, 1010 and 1011. They are
the points at which bisection divides every longer chain. To write less often, only those k are
stored that are multiples of

    g(k) = 2^max(0, bits(k) - 5)

or of a higher power of two if the levels have fewer than six slots: 16 writes while the chain
doubles its length. Therefore up to n / 16 of the last steps come after the last checkpoint, and are
advanced over once more. In the forward sweep at most six checkpoints are stored; in the reverse
sweep never more than ceil(log2 n) + 1 (for n > 1). The reason is this. Let x_k' be the last state
that was written, with k' = 2^a1 + .. + 2^ap and a1 > .. > ap. The i-th segment between checkpoints
has 2^ai steps, its first state is the i-th checkpoint, and its halves need i - 1 + max(1, ai)
checkpoints, where ai <= a1 - i + 1. After k' there are at most g(k') <= 2^ap steps, which need
p + max(1, log2 g(k')) checkpoints.
"""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import comb
from typing import Final, TypeAlias

import numpy as np

from ckio.actions import Key, Kind
from ckio.actions.columns import READ, WRITE, Actions
from ckio.errors import BadInput, NoSchedule
from ckio.planners.base import (
    LevelSlots,
    alike,
    candidates,
    level_slots,
    no_schedule,
    tapes,
    without_notes,
)
from ckio.planners.blocks import at_level
from ckio.planners.draft import Draft
from ckio.planners.resume import checked
from ckio.platform import Platform
from ckio.platform.chain import Chain, PerStep
from ckio.schedule import Schedule, makespan

MOST: Final = 64
"""Checkpoints at a time: more than the bisection of any chain needs."""

Middle: TypeAlias = Callable[[int, int], int]
"""A function that returns the step at which [begin, end), two steps or more, is divided."""


def halve(
    draft: Draft, begin: int, end: int, *, most: int, middle: Middle, again: bool = False
) -> None:
    """Add the actions that reverse [begin, end) to `draft`.

    At most `most` checkpoints are stored at a time, including x_begin. At the start x_begin is
    stored; it is also in the register, unless it must be read `again`. Instead of a level, each
    action has the depth of its checkpoint: 0 for x_begin, 1 for the next one, and so on.
    """
    todo = [(begin, end, 0, again)]
    while todo:
        begin, end, depth, again = todo.pop()
        if again:
            draft.read(begin, level=depth)
        while end - begin > 1:
            # The later part must fit into the free slots; the earlier part has this slot, too.
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
    """Return the checkpoints that n steps need at a time, ceil(log2 n)."""
    return (steps - 1).bit_length()


def by_steps(begin: int, end: int, /) -> int:
    """Return the step in the middle."""
    return (begin + end) // 2


def by_seconds(seconds: PerStep, /) -> Middle:
    """Return a function that finds the step nearest to half of the seconds."""
    total = seconds.before.tolist()

    def middle(begin: int, end: int) -> int:
        half = total[begin] / 2 + total[end] / 2
        after = bisect_left(total, half, begin, end)
        before = bisect_right(total, half, begin, end + 1) - 1
        if after <= before:  # several steps are equally near, because steps may take no time
            split = min(max(by_steps(begin, end), after), before)
        else:
            split = before if half - total[before] <= total[after] - half else after
        return min(max(split, begin + 1), end - 1)

    return middle


def offered(chain: Chain, platform: Platform, /) -> list[LevelSlots]:
    """Return the slots of each level for the largest checkpoint, the cheapest level first."""
    largest = replace(chain, restart=chain.largest("restart"))
    found = level_slots(largest, platform, planner="bisection")
    return sorted(found, key=lambda room: room.write + room.read)


def places(usable: Iterable[LevelSlots], /) -> list[int]:
    """Return the level number of each slot, at most `MOST` slots for each level."""
    return [room.number for room in usable for _ in range(min(room.slots, MOST))]


def shared_out(busy: Sequence[int], slots: Sequence[int], /) -> list[int]:
    """Return the level of each depth: the depth with the most accesses has the first slot."""
    order = sorted(range(len(busy)), key=lambda depth: -busy[depth])
    level = dict(zip(order, slots, strict=False))
    return [level[depth] for depth in range(len(busy))]


def placed(actions: Actions, slots: Sequence[int], /, *own: int) -> Actions:
    """Return the actions of `halve` with levels instead of depths.

    `own` is the level of x_begin if x_begin is stored already; otherwise x_begin has a slot, too.
    """
    moved = (actions.op == WRITE) | (actions.op == READ)
    busy = np.bincount(actions.level[moved]).tolist()
    levels = [*own, *shared_out(busy[len(own) :], slots)]
    return at_level(actions, np.array(levels)[actions.level])


_BITS: Final = 5
"""Number of leading bits of a step that decide whether its state is stored."""

_ENDLESS: Final = 2**62
"""More steps than any chain has."""

_NOTHING: Final = Actions.of(())


@dataclass(frozen=True, slots=True)
class Far:
    """A level that is not the cheapest."""

    room: LevelSlots


@dataclass(frozen=True, slots=True)
class BisectionLevels:
    """The level that is cheapest to write and read, then the others in order of cost."""

    near: LevelSlots
    far: tuple[Far, ...]


class BisectionFollower:
    """The decisions of bisection for a run that does not know its end, step by step.

    The run must perform all actions that this object returns, and must not change the stored
    checkpoints in another way. `stored` are the keys on each level at the start, when the run is at
    x_step. Restart data of later steps and second copies are discarded by the first actions.
    Checkpoints that are no prefix are discarded when the next state is stored. Keys that are not
    restart data are ignored.
    """

    def __init__(
        self, levels: BisectionLevels, step: int = 0, stored: Sequence[Iterable[Key]] = (), /
    ) -> None:
        self._rooms = (levels.near, *(far.room for far in levels.far))
        slots = places(self._rooms)
        self._bits = min(_BITS, len(slots) - 1)
        # While the chain doubles its length, depth p is written C(bits - 1, p - 1) times.
        busy = [0, *(comb(self._bits - 1, depth) for depth in range(self._bits))]
        self._level = shared_out(busy, slots)
        self._kept, self._superfluous = found(stored, restart_only=False)
        later = sorted(other for other in self._kept if other > step)
        self._superfluous += [(other, self._kept.pop(other)) for other in later]
        self._step = step

    def at(self, step: int, /) -> Actions:
        """Return the actions at x_step, which is in the register before and after them.

        Raises BadInput if `step` is smaller than in an earlier call.
        """
        if step < self._step:
            raise BadInput(
                f"step {step} comes before step {self._step} of an earlier call; call `at` with"
                " steps in ascending order"
            )
        self._step = step
        due = step % self._grid(step) == 0 and step not in self._kept
        if not due and not self._superfluous:
            return _NOTHING
        draft = Draft()
        for other, level in self._superfluous:
            draft.discard(other, level=level)
        self._superfluous = []
        if due:
            self._store(step, draft)
        return draft.actions()

    def until(self, step: int, /) -> int:
        """Return the next step at which `at` may return actions; before it there are none."""
        if self._bits == 0:
            return _ENDLESS
        grid = self._grid(step)
        return (step // grid + 1) * grid

    def _store(self, step: int, draft: Draft) -> None:
        """Discard the checkpoints that are no prefix of `step`, then write x_step."""
        for other in sorted(self._kept):
            if not _is_prefix(other, step):
                draft.discard(other, level=self._kept.pop(other))
        self._kept[step] = self._free(step.bit_count())
        draft.write(step, level=self._kept[step])

    def _grid(self, step: int) -> int:
        """Return g(k), of which stored steps are multiples."""
        return 1 << max(0, step.bit_length() - self._bits)

    def _free(self, depth: int) -> int:
        """Return the level for this depth, or another one if the slot there is occupied."""
        used = Counter(self._kept.values())
        free = [room.number for room in self._rooms if used[room.number] < room.slots]
        return self._level[depth] if self._level[depth] in free else free[0]


def found(
    stored: Sequence[Iterable[Key]], *, restart_only: bool = True
) -> tuple[dict[int, int], list[tuple[int, int]]]:
    """Return the level of each restart checkpoint by step, and second copies as (step, level)."""
    first: dict[int, int] = {}
    copies: list[tuple[int, int]] = []
    for level, keys in enumerate(stored):
        for key in sorted(keys, key=lambda key: key.step):
            if key.kind is not Kind.RESTART:
                if restart_only:
                    raise BadInput(
                        f"stored: {key}; bisection resumes from restart data only: leave out other"
                        " keys"
                    )
            elif first.setdefault(key.step, level) != level:
                copies.append((key.step, level))
    return first, copies


def _is_prefix(step: int, of: int) -> bool:
    """Whether `step` is `of` with some of its lowest ones cleared; 0 is a prefix of any number."""
    return of & -(step & -step) == step


__all__ = ["Bisection", "BisectionFollower", "bisection"]


def bisection(chain: Chain, platform: Platform, /, *, on: str | None = None) -> Schedule:
    """Return the schedule that divides the chain into halves.

    Checkpoints are stored on all levels together, or only on the level called `on`. If they differ
    in size, the planner assumes that each is as large as the largest. Raises NoSchedule if n > 1
    and the levels cannot store ceil(log2 n) checkpoints. Source: Siskind and Pearlmutter (2016),
    Fig. 2.
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
    """Bisection for a run that does not know its end; `chain.steps` is ignored.

    One slot is enough for any number of steps; with fewer slots the run advances more steps. Raises
    BadInput for a chain whose steps differ. The first use of the object raises NoSchedule if no
    level can store a checkpoint, or the working memory cannot hold the tape of one step.
    """

    chain: Chain
    platform: Platform

    def __post_init__(self) -> None:
        alike(self.chain, planner="bisection of a run that does not know its end")

    @cached_property
    def levels(self) -> BisectionLevels:
        """The levels that can store a checkpoint."""
        endless = self.chain.with_steps(MOST + 1)
        tapes(endless, self.platform)
        near, *far = offered(endless, self.platform)
        return BisectionLevels(near, tuple(map(Far, far)))

    def follow(self, step: int = 0, stored: Sequence[Iterable[Key]] = (), /) -> BisectionFollower:
        """Return the decisions for a run at x_step, with the keys that are `stored` on each level.

        See `BisectionFollower`.
        """
        return BisectionFollower(self.levels, step, stored)

    def finish(self, steps: int, stored: Sequence[Iterable[Key]], /) -> Schedule:
        """Return the schedule of the reverse sweep; the run is at x_steps, the end of the chain.

        The segments between the checkpoints that are `stored` are reversed in halves, the last
        segment first; earlier checkpoints stay stored until their segment is reversed. At the end
        nothing is stored. The schedule is legal after actions that have led to x_steps. Raises
        NoSchedule if x_0 is not stored. Raises BadInput for keys that are not restart data, or that
        this chain and platform cannot have stored.
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
        return Schedule(chain, actions, kept, f"halves between {len(ends)} checkpoints")


def _from_the_start(chain: Chain, slots: Sequence[int], most: int, middle: Middle) -> Schedule:
    """Return the schedule of the whole chain; x_0 is in the register and not yet stored."""
    draft = Draft()
    draft.write(0, level=0)
    halve(draft, 0, chain.length, most=most, middle=middle)
    what = "steps" if middle is by_steps else "seconds"
    note = f"the {what} are divided into halves: {most} checkpoints at a time"
    return Schedule(chain, placed(draft.actions(), slots), note=note)


def _segment(begin: int, end: int, own: int, free: Sequence[int]) -> Actions:
    """Return the actions that reverse [begin, end) with the `free` slots.

    x_begin is stored on the level `own` and is not in the register.
    """
    draft, most = Draft(), 1 + min(len(free), needed_for(end - begin))
    halve(draft, begin, end, most=most, middle=by_steps, again=True)
    return placed(draft.actions(), free, own)
