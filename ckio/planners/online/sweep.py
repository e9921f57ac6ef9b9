"""The forward sweep of a run that does not know its end: what lies on the levels, and changes."""

from bisect import bisect_left, bisect_right, insort
from collections import Counter
from collections.abc import Iterable, Sequence

from ckio.actions import Key, Kind
from ckio.planners.draft import Draft
from ckio.planners.online.levels import Comb, Far, OnlineLevels


class ForwardSweep:
    """The checkpoints up to some step, changed by `at`, which puts what it does into a draft.

    It depends on `stored`, the keys on each level, of which only restart data play a part. Those of
    later steps, which a run may find that goes back to an earlier one, take room and no more until
    their step is reached.
    """

    def __init__(
        self,
        levels: OnlineLevels,
        draft: Draft,
        stored: Sequence[Iterable[Key]] = (),
        step: int = 0,
    ) -> None:
        self._levels, self._draft = levels, draft
        self._near: list[int] = []
        self._far: list[int] = []
        self._level: dict[int, int] = {}  # of each far checkpoint
        places = [
            (key.step, number)
            for number, keys in enumerate(stored)
            for key in keys
            if key.kind is Kind.RESTART
        ]
        self._used = Counter(number for _, number in places)
        self._ahead = sorted(places, reverse=True)
        self._reach(step)

    def _reach(self, step: int) -> None:
        """Count what is stored up to this step."""
        while self._ahead and self._ahead[-1][0] <= step:
            found, level = self._ahead.pop()
            if level == self._levels.near.number:
                insort(self._near, found)
            else:
                if found not in self._level:
                    insort(self._far, found)
                self._level[found] = level

    def stored(self) -> tuple[frozenset[Key], ...]:
        """The keys on each level, up to the last that has any."""
        places = [*((step, self._levels.near.number) for step in self._near), *self._level.items()]
        count = 1 + max((level for _, level in places), default=-1)
        keys: list[list[Key]] = [[] for _ in range(count)]
        for step, level in places:
            keys[level].append(Key(Kind.RESTART, step))
        return tuple(map(frozenset, keys))

    def at(self, step: int, draft: Draft | None = None, /) -> None:
        """All that is to be done when x_step, which is no longer than that ago, is in the register.

        It is in the register afterwards too. What is done goes into another draft, if one is given.
        """
        self._draft = self._draft if draft is None else draft
        self._reach(step)
        if step in (*self._near[-1:], *self._far[-1:]):
            return
        if not self._near and not self._far:
            self._put_near(step)
        elif not self._far and (places := self._open(step)):
            self._demote(step, places[0])
        elif not self._to_far(step):
            self._to_near(step)

    def until(self, step: int, /) -> int:
        """The first step after this one at which there may be something to do."""
        self._reach(step)
        later = [far.since for far in self._levels.far if far.since > step]
        if self._near or self._far:
            later.append(self._base + self._near_comb.next(step - self._base))
        if self._far and (places := self._open(step)):
            first = self._far[0]
            later.append(first + self._far_comb(places).next(step - first))
        return min(later, default=step + 1)

    # The near level

    @property
    def _base(self) -> int:
        """The first of the near level's comb."""
        return self._far[-1] if self._far else self._near[0]

    @property
    def _near_comb(self) -> Comb:
        # A far checkpoint is the first one without taking a slot.
        return Comb(self._levels.near.slots + bool(self._far), self._levels.unit)

    def _to_near(self, step: int) -> None:
        """Store x_step on the near level, if the comb says so."""
        if not self._near_comb.takes(step - self._base):
            return
        if self._used[self._levels.near.number] >= self._levels.near.slots:
            spare = self._spare(step)
            if spare == step:
                return
            self._drop_near(spare)
        self._put_near(step)

    def _spare(self, step: int) -> int:
        """Which near checkpoint is to make room for x_step; `step`, if it is not worth it."""
        behind = bisect_right(self._near, self._base) if self._far else 1
        stay = not self._far or self._near[:1] < self._far[:1]  # the first of all leads to x_0
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

    def _open(self, step: int) -> list[Far]:
        """The far levels that are used at this step, the first to be filled first."""
        return [far for far in self._levels.far if far.since <= step]

    def _free(self, far: Far) -> int:
        return far.room.slots - self._used[far.room.number]

    def _far_comb(self, places: Sequence[Far]) -> Comb:
        """The comb of all of them, in periods of the one that is being filled."""
        filled = next((far for far in places if self._free(far)), places[-1])
        return Comb(sum(far.room.slots for far in places), filled.period)

    def _to_far(self, step: int) -> bool:
        """Store x_step on a far level, if the comb says so."""
        places = self._open(step)
        if not places:
            return False
        comb, done = self._far_comb(places), step - self._far[0]
        if not comb.takes(done) or 2 * (step - self._far[-1]) < comb.grid(done):
            return False
        level = next((far.room.number for far in places if self._free(far)), None)
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
        """Discard a far checkpoint; the level that has room now."""
        level = self._level.pop(step)
        self._draft.discard(step, level=level)
        del self._far[bisect_left(self._far, step)]
        self._used[level] -= 1
        return level

    # From the near level to the first far one

    def _demote(self, step: int, far: Far) -> None:
        """Move the near checkpoints that are a period apart, or as many as there is room for.

        They overwrite the register, so x_step is stored before and read again after: on the near
        level, where one that does not move makes room for it if there is none, or else on the far.
        """
        near, number = self._levels.near.number, far.room.number
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
    """Which of these checkpoints is to go; the last, where there is none between it and the first.

    It counts no other slots than these have, fewer than the level's where it holds other things.
    """
    return Comb(len(steps) - 1, unit).superfluous(steps) if len(steps) > 2 else steps[-1]


def _apart(steps: Sequence[int], period: int) -> list[int]:
    """The first, and of the others those that are about a period from the one before."""
    kept = list(steps[:1])
    for step in steps:
        if 4 * (step - kept[-1]) >= 3 * period:
            kept.append(step)
    return kept
