"""The forward sweep of a run that does not know its end: how the stored checkpoints change."""

from bisect import bisect_left, bisect_right, insort
from collections import Counter
from collections.abc import Iterable, Sequence

from ckio.actions import Key, Kind
from ckio.actions.columns import Actions
from ckio.planners.base import check_ascending
from ckio.planners.draft import Draft
from ckio.planners.unknown.levels import Comb, FarLevel, OnlineLevels


class Follower:
    """The decisions of `Online` for one run; it remembers the stored keys.

    The run must perform all actions that this object returns before the next call, and must not
    change the stored checkpoints in another way. `stored` are the keys on each level at the start,
    when the run is at x_step; only restart data are considered. There may be keys of later steps,
    if a run has returned to an earlier step. They only occupy slots until their step is reached.
    """

    def __init__(
        self, levels: OnlineLevels, step: int = 0, stored: Sequence[Iterable[Key]] = (), /
    ) -> None:
        self._levels, self._draft, self._step = levels, Draft(), step
        self._near: list[int] = []
        self._far: list[int] = []
        self._level: dict[int, int] = {}  # by the step of each far checkpoint
        found = [
            (key.step, number)
            for number, keys in enumerate(stored)
            for key in keys
            if key.kind is Kind.RESTART
        ]
        self._used = Counter(number for _, number in found)
        self._ahead = sorted(found, reverse=True)
        self._reach(step)

    def _reach(self, step: int) -> None:
        """Add the stored keys up to this step to the near and far checkpoints."""
        while self._ahead and self._ahead[-1][0] <= step:
            found, level = self._ahead.pop()
            if level == self._levels.near.number:
                insort(self._near, found)
            else:
                if found not in self._level:
                    insort(self._far, found)
                self._level[found] = level

    def stored(self) -> tuple[frozenset[Key], ...]:
        """Return the keys on each level, up to the last level that has any."""
        found = [*((step, self._levels.near.number) for step in self._near), *self._level.items()]
        count = 1 + max((level for _, level in found), default=-1)
        keys: list[list[Key]] = [[] for _ in range(count)]
        for step, level in found:
            keys[level].append(Key(Kind.RESTART, step))
        return tuple(map(frozenset, keys))

    def at(self, step: int, /) -> Actions:
        """Return the actions at x_step, which is in the register before and after them.

        Raises BadInput if `step` is smaller than in an earlier call.
        """
        draft = Draft()
        self.append(step, draft)
        return draft.actions()

    def append(self, step: int, draft: Draft, /) -> None:
        """Add the actions of `at` to a draft."""
        check_ascending(step, self._step)
        self._step, self._draft = step, draft
        self._reach(step)
        if step in (*self._near[-1:], *self._far[-1:]):
            return
        if not self._near and not self._far:
            self._put_near(step)
        elif not self._far and (far := self._open(step)):
            self._demote(step, far[0])
        elif not self._to_far(step):
            self._to_near(step)

    def until(self, step: int, /) -> int:
        """Return the next step at which `at` may return actions; before it there are none."""
        self._reach(step)
        later = [far.first_step for far in self._levels.far if far.first_step > step]
        if self._near or self._far:
            later.append(self._base + self._near_comb.next(step - self._base))
        if self._far and (used := self._open(step)):
            first = self._far[0]
            later.append(first + self._far_comb(used).next(step - first))
        return min(later, default=step + 1)

    # The near level

    @property
    def _base(self) -> int:
        """The step of the first checkpoint of the near comb."""
        return self._far[-1] if self._far else self._near[0]

    @property
    def _near_comb(self) -> Comb:
        # If the first checkpoint is a far one, it occupies no near slot.
        return Comb(self._levels.near.slots + bool(self._far), self._levels.unit)

    def _to_near(self, step: int) -> None:
        """Store x_step on the near level if the rule of the comb requires it."""
        if not self._near_comb.takes(step - self._base):
            return
        if self._used[self._levels.near.number] >= self._levels.near.slots:
            spare = self._spare(step)
            if spare == step:
                return
            self._drop_near(spare)
        self._put_near(step)

    def _spare(self, step: int) -> int:
        """Return the near checkpoint to discard for x_step, or `step` if x_step is not stored."""
        behind = bisect_right(self._near, self._base) if self._far else 1
        stay = not self._far or self._near[:1] < self._far[:1]  # the first of all stays
        if stay < behind:
            return self._near[stay]
        comb = [self._base, *self._near[behind:], step]
        return _superfluous(comb, self._levels.unit)

    def _put_near(self, step: int) -> None:
        self._draft.write(step, level=self._levels.near.number)
        self._near.append(step)
        self._used[self._levels.near.number] += 1

    def _drop_near(self, step: int) -> None:
        self._draft.discard(step, level=self._levels.near.number)
        del self._near[bisect_left(self._near, step)]
        self._used[self._levels.near.number] -= 1

    # The far levels

    def _open(self, step: int) -> list[FarLevel]:
        """Return the far levels that are used at this step, in the order of filling."""
        return [far for far in self._levels.far if far.first_step <= step]

    def _free(self, far: FarLevel) -> int:
        return far.level.slots - self._used[far.level.number]

    def _far_comb(self, used: Sequence[FarLevel]) -> Comb:
        """Return the comb of all these levels; its unit is the period of the level being filled."""
        filled = next((far for far in used if self._free(far)), used[-1])
        return Comb(sum(far.level.slots for far in used), filled.period)

    def _to_far(self, step: int) -> bool:
        """Store x_step on a far level if the rule of the comb requires it; return whether it is."""
        used = self._open(step)
        if not used:
            return False
        comb, done = self._far_comb(used), step - self._far[0]
        if not comb.takes(done) or 2 * (step - self._far[-1]) < comb.grid(done):
            return False
        level = next((far.level.number for far in used if self._free(far)), None)
        if level is None:
            spare = _superfluous([*self._far, step], comb.unit)
            if spare == step:
                return False
            level = self._drop_far(spare)
        self._put_far(step, level)
        return True

    def _put_far(self, step: int, level: int) -> None:
        self._draft.write(step, level=level)
        insort(self._far, step)
        self._level[step] = level
        self._used[level] += 1

    def _drop_far(self, step: int) -> int:
        """Discard a far checkpoint; return its level, which has a free slot now."""
        level = self._level.pop(step)
        self._draft.discard(step, level=level)
        del self._far[bisect_left(self._far, step)]
        self._used[level] -= 1
        return level

    # From the near level to the first far one

    def _demote(self, step: int, far: FarLevel) -> None:
        """Move the near checkpoints that are a period apart to a far level.

        If the far level has too few slots, the period is doubled until they fit. Reading them
        overwrites the register. Therefore x_step is written before the move and read again after
        it. x_step is written to the near level; if that is full, a checkpoint that does not move is
        discarded first. If all of them move, x_step is written to the far level instead.
        """
        near, number = self._levels.near.number, far.level.number
        full = self._used[near] >= self._levels.near.slots
        period = far.period
        moving = _apart(self._near, period)
        while len(moving) + (full and moving == self._near) > self._free(far):
            if len(moving) == 1:
                return self._to_near(step)
            period *= 2
            moving = _apart(self._near, period)
        parked = near
        if full and moving == self._near:
            parked = number
            self._put_far(step, number)
        else:
            if full:
                self._drop_near(min(set(self._near).difference(moving)))
            self._put_near(step)
        for key in moving:
            self._draft.read(key, level=near)
            self._put_far(key, number)
            self._drop_near(key)
        self._draft.read(step, level=parked)
        return None


def _superfluous(steps: Sequence[int], unit: int) -> int:
    """Return the checkpoint to discard; the last if none is between it and the first.

    Only the slots of these checkpoints count. They are fewer than those of the level if other keys
    are stored on it.
    """
    return Comb(len(steps) - 1, unit).superfluous(steps) if len(steps) > 2 else steps[-1]


def _apart(steps: Sequence[int], period: int) -> list[int]:
    """Return the first step, and each that is at least 3/4 of a period after the last returned."""
    apart = list(steps[:1])
    for step in steps:
        if 4 * (step - apart[-1]) >= 3 * period:
            apart.append(step)
    return apart
