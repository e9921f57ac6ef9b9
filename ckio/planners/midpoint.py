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

If steps differ, the steps are divided into halves nevertheless, not the seconds: `hrevolve` plans
for steps that differ.

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

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import comb
from typing import Final

from ckio.actions import Key, Kind
from ckio.actions.columns import Actions
from ckio.errors import BadInput, NoSchedule
from ckio.planners.base import (
    ENDLESS,
    LevelSlots,
    alike,
    candidates,
    cheapest_first,
    check_ascending,
    held_steps,
    level_slots,
    no_schedule,
    slot_levels,
    without_notes,
)
from ckio.planners.blocks import levels_by_use, share_out
from ckio.planners.draft import Draft
from ckio.planners.resume import checked
from ckio.platform import Platform
from ckio.platform.chain import Chain
from ckio.schedule import Schedule

_MOST: Final = 64
"""Checkpoints at a time: more than the bisection of any chain needs."""

_BITS: Final = 5
"""Number of leading bits of a step that decide whether its state is stored."""

_NOTHING: Final = Actions.of(())


def bisection(chain: Chain, platform: Platform, /, *, on: str | None = None) -> Schedule:
    """Return the schedule that divides the chain into halves.

    Checkpoints are stored on all levels together, or only on the level called `on`. If they differ
    in size, the planner assumes that each is as large as the largest. Raises NoSchedule if n > 1
    and the levels cannot store ceil(log2 n) checkpoints. Source: Siskind and Pearlmutter (2016),
    Fig. 2.
    """
    held_steps(chain, platform)
    levels, steps, draft = candidates(platform, on), chain.length, Draft()
    if steps == 1:
        draft.step_back(0)
        return draft.schedule(chain)
    needed, numbers = _needed_for(steps), {platform.number(level.name) for level in levels}
    usable = [each for each in _level_slots(chain, platform) if each.number in numbers]
    slots = slot_levels(usable, most=needed)
    if len(slots) < needed:
        size = chain.largest("restart")
        raise no_schedule(
            levels,
            f"bisection of {steps} steps needs checkpoints of {size} bytes, {needed} at a time",
        )
    _halve(draft, 0, steps, slots=needed)
    note = f"the steps are divided into halves: {needed} checkpoints at a time"
    return Schedule(chain, share_out(draft.actions(), slots), note=note)


def _level_slots(chain: Chain, platform: Platform) -> list[LevelSlots]:
    """Return the slots of each level for the largest checkpoint, the cheapest level first."""
    largest = replace(chain, restart=chain.largest("restart"))
    return cheapest_first(level_slots(largest, platform, planner="bisection"))


def _needed_for(steps: int) -> int:
    """Return the checkpoints that n steps need at a time, ceil(log2 n)."""
    return (steps - 1).bit_length()


def _halve(draft: Draft, begin: int, end: int, *, slots: int, stored: bool = False) -> None:
    """Add the actions that reverse [begin, end) in so many slots, all on level 0, to `draft`.

    One of the slots is that of x_begin. x_begin is in the register or, if `stored`, in its slot.
    """
    todo = [(begin, end, slots, stored)]
    while todo:
        begin, end, free, stored = todo.pop()
        if stored:
            draft.read(begin, level=0)
        while end - begin > 1:
            if not stored:
                draft.write(begin, level=0)
            # The later half must fit into the slots that are free then.
            middle = max((begin + end) // 2, end - (1 << free - 1))
            draft.advance(begin, middle)
            todo.append((begin, middle, free, True))
            begin, free, stored = middle, free - 1, False
        if stored:
            draft.discard(begin, level=0)
        draft.step_back(begin)


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
    def levels(self) -> tuple[LevelSlots, ...]:
        """The levels that can store a checkpoint, the cheapest to write and read first."""
        endless = self.chain.with_steps(_MOST + 1)
        held_steps(endless, self.platform)
        return tuple(_level_slots(endless, self.platform))

    def follow(self, step: int = 0, stored: Sequence[Iterable[Key]] = (), /) -> "BisectionFollower":
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
        for key in (key for keys in kept for key in keys if key.kind is not Kind.RESTART):
            raise BadInput(
                f"stored: {key}; bisection resumes from restart data only: leave out other keys"
            )
        level, superfluous = _locate(kept)
        ends = [step for step in sorted(level, reverse=True) if step < steps]
        if ends[-1:] != [0]:
            raise NoSchedule(
                f"the steps before {min([*ends, steps])} cannot be reversed: x_0 is not stored;"
                " begin with a fresh model"
            )
        superfluous += [(step, level[step]) for step in level.keys() - ends]
        draft = Draft()
        for step, number in superfluous:
            draft.discard(step, level=number)
        actions, used, end = draft.actions(), Counter(level[step] for step in ends), steps
        with without_notes():
            usable = _level_slots(chain, self.platform)
        for begin in ends:
            free = [replace(each, slots=each.slots - used[each.number]) for each in usable]
            slots, segment = slot_levels(free, most=_needed_for(end - begin)), Draft()
            _halve(segment, begin, end, slots=1 + len(slots), stored=True)
            actions += share_out(segment.actions(), slots, level[begin])
            used[level[begin]] -= 1
            end = begin
        return Schedule(chain, actions, kept, f"halves between {len(ends)} checkpoints")


class BisectionFollower:
    """The decisions of bisection for a run that does not know its end, step by step.

    The run must perform all actions that this object returns, and must not change the stored
    checkpoints in another way. `stored` are the keys on each level at the start, when the run is at
    x_step. Restart data of later steps and second copies are discarded by the first actions.
    Checkpoints that are no prefix are discarded when the next state is stored. Keys that are not
    restart data are ignored.
    """

    def __init__(
        self,
        levels: Sequence[LevelSlots],
        step: int = 0,
        stored: Sequence[Iterable[Key]] = (),
        /,
    ) -> None:
        self._levels = levels
        slots = slot_levels(levels, most=_BITS + 1)
        self._bits = len(slots) - 1
        # While the chain doubles its length, depth p is written C(bits - 1, p - 1) times.
        writes = [0, *(comb(self._bits - 1, depth) for depth in range(self._bits))]
        self._level = levels_by_use(writes, slots).tolist()
        self._kept, self._superfluous = _locate(stored)
        later = sorted(other for other in self._kept if other > step)
        self._superfluous += [(other, self._kept.pop(other)) for other in later]
        self._step = step

    def at(self, step: int, /) -> Actions:
        """Return the actions at x_step, which is in the register before and after them.

        Raises BadInput if `step` is smaller than in an earlier call.
        """
        check_ascending(step, self._step)
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
            return ENDLESS
        grid = self._grid(step)
        return (step // grid + 1) * grid

    def _store(self, step: int, draft: Draft) -> None:
        """Discard the checkpoints that are no prefix of `step`, then write x_step."""
        for other in sorted(self._kept):
            if not _is_prefix(other, step):
                draft.discard(other, level=self._kept.pop(other))
        self._kept[step] = self._level_for(step.bit_count())
        draft.write(step, level=self._kept[step])

    def _grid(self, step: int) -> int:
        """Return g(k), of which stored steps are multiples."""
        return 1 << max(0, step.bit_length() - self._bits)

    def _level_for(self, depth: int) -> int:
        """Return the level for this depth, or another one if the slot there is occupied."""
        used = Counter(self._kept.values())
        free = [each.number for each in self._levels if used[each.number] < each.slots]
        return self._level[depth] if self._level[depth] in free else free[0]


def _locate(stored: Sequence[Iterable[Key]]) -> tuple[dict[int, int], list[tuple[int, int]]]:
    """Return the level of each restart checkpoint by step, and second copies as (step, level)."""
    keys = [
        (key.step, level)
        for level, keys in enumerate(stored)
        for key in sorted(keys, key=lambda key: key.step)
        if key.kind is Kind.RESTART
    ]
    first = dict(reversed(keys))
    return first, [copy for copy in keys if first[copy[0]] != copy[1]]


def _is_prefix(step: int, of: int) -> bool:
    """Whether `step` is `of` with some of its lowest ones cleared; 0 is a prefix of any number."""
    return of & -(step & -step) == step
