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
from ckio.planners.base import Room, alike, candidates, no_schedule, rooms, tapes, without_notes
from ckio.planners.blocks import at_level
from ckio.planners.draft import Draft
from ckio.planners.resume import checked
from ckio.platform import Platform
from ckio.platform.chain import Chain, PerStep
from ckio.schedule import Schedule, makespan

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
    """Return the levels' slots for the largest checkpoint, the cheapest level first."""
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


_BITS: Final = 5
"""How many leading bits of a step decide whether it is stored."""

_ENDLESS: Final = 2**62
"""More steps than any chain has."""

_NOTHING: Final = Actions.of(())


@dataclass(frozen=True, slots=True)
class Far:
    """A level other than the cheapest."""

    room: Room


@dataclass(frozen=True, slots=True)
class BisectionLevels:
    """The level that is cheapest to write and read, and the others after it."""

    near: Room
    far: tuple[Far, ...]


class BisectionFollower:
    """The decisions of the rule, step by step.

    It takes for granted that the run does what it says, and changes nothing else. Of what is
    `stored` when it begins, at x_step, restart data of later steps and second copies are discarded
    at once, and what is no prefix as soon as the next state is stored. Other kinds play no part.
    """

    def __init__(
        self, levels: BisectionLevels, step: int = 0, stored: Sequence[Iterable[Key]] = (), /
    ) -> None:
        self._rooms = (levels.near, *(far.room for far in levels.far))
        slots = places(self._rooms)
        self._bits = min(_BITS, len(slots) - 1)
        # While the chain grows to twice its length, depth p is written C(bits - 1, p - 1) times.
        busy = [0, *(comb(self._bits - 1, depth) for depth in range(self._bits))]
        self._level = shared_out(busy, slots)
        self._kept, self._superfluous = found(stored, restart_only=False)
        later = sorted(other for other in self._kept if other > step)
        self._superfluous += [(other, self._kept.pop(other)) for other in later]
        self._step = step

    def at(self, step: int, /) -> Actions:
        """Return the actions at x_step, which is in the register before and after.

        Raises BadInput for a step before the last one it was asked about.
        """
        if step < self._step:
            raise BadInput(f"a run is followed forward: step {step} comes before {self._step}")
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
        """The first step after this one at which `at` may say anything, if nothing else changes."""
        if self._bits == 0:
            return _ENDLESS
        grid = self._grid(step)
        return (step // grid + 1) * grid

    def _store(self, step: int, draft: Draft) -> None:
        """Write x_step, after what does not lead to it has been discarded."""
        for other in sorted(self._kept):
            if not _is_prefix(other, step):
                draft.discard(other, level=self._kept.pop(other))
        self._kept[step] = self._free(step.bit_count())
        draft.write(step, level=self._kept[step])

    def _grid(self, step: int) -> int:
        """g(k)."""
        return 1 << max(0, step.bit_length() - self._bits)

    def _free(self, depth: int) -> int:
        """The level for what lies so deep, or another where something else has taken its place."""
        used = Counter(self._kept.values())
        free = [room.number for room in self._rooms if used[room.number] < room.slots]
        return self._level[depth] if self._level[depth] in free else free[0]


def found(
    stored: Sequence[Iterable[Key]], *, restart_only: bool = True
) -> tuple[dict[int, int], list[tuple[int, int]]]:
    """The level of each restart checkpoint by its step, and second copies as (step, level)."""
    first: dict[int, int] = {}
    copies: list[tuple[int, int]] = []
    for level, keys in enumerate(stored):
        for key in sorted(keys, key=lambda key: key.step):
            if key.kind is not Kind.RESTART:
                if restart_only:
                    raise BadInput(f"stored: {key}; bisection goes on from restart data alone")
            elif first.setdefault(key.step, level) != level:
                copies.append((key.step, level))
    return first, copies


def _is_prefix(step: int, of: int) -> bool:
    """Whether a number is another with some of its lowest bits cleared; 0 is, of any."""
    return of & -(step & -step) == step


__all__ = ["Bisection", "BisectionFollower", "bisection"]


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
    def levels(self) -> BisectionLevels:
        """The part of the platform that it may use."""
        endless = self.chain.with_steps(MOST + 1)
        tapes(endless, self.platform)
        near, *far = offered(endless, self.platform)
        return BisectionLevels(near, tuple(map(Far, far)))

    def follow(self, step: int = 0, stored: Sequence[Iterable[Key]] = (), /) -> BisectionFollower:
        """Yield the actions of a run that stands at x_step, one after the other."""
        return BisectionFollower(self.levels, step, stored)

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
