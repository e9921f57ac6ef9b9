"""Recovery is a planner: it plans from what a killed run left on durable levels.

`aside` is the platform to plan an adjoint run for, `with_adjoint_checkpoints` puts its own
checkpoints into the plan, `every` says how often; `recover` makes the schedule for the rest, which
may itself be killed and recovered, and `redone_at_most` bounds what a kill costs.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from math import inf

from ckio.actions import Advance, Discard, Key, Kind, Read, Record
from ckio.actions.columns import Actions
from ckio.errors import IllegalAction
from ckio.planners.recover.adjoints import (
    adjoint_seconds,
    aside,
    every,
    spares,
    with_adjoint_checkpoints,
    without,
)
from ckio.planners.recover.killed import Killed, Place, Stored, redone_at_most, taken_up
from ckio.planners.resume import checked, resume
from ckio.platform import Platform
from ckio.platform.chain import Chain
from ckio.schedule import Schedule, makespan
from ckio.schedule.replay import validate

__all__ = [
    "Killed",
    "adjoint_seconds",
    "aside",
    "every",
    "recover",
    "redone_at_most",
    "with_adjoint_checkpoints",
]


def recover(
    chain: Chain,
    platform: Platform,
    survivors: Sequence[Iterable[Key]],
    /,
    *,
    level: int | None,
    every: float,
    tapes: bool = False,
    killed: Killed | None = None,
) -> Schedule:
    """Return the schedule of a fresh process for the rest, from what is stored on each level.

    `survivors` may be restart data, tapes and adjoints, without those that are corrupt. The adjoint
    of the smallest step is read, and the rest is planned by `planners.resume`, which stores
    tapes too only where `tapes` says so; then the adjoint is stored on `level` about `every`
    seconds (see `with_adjoint_checkpoints`). Space for two adjoints is set aside there: where
    survivors lie in it, those that are cheapest to lose are discarded. At the end nothing is left.

    Where it is known what was `killed`, that is taken up again if it takes less time: then a kill
    costs no more than `redone_at_most` says of it.

    With None for `level` no adjoint is stored, nor is space set aside. The one that is read stays
    where it is until the end, so that it can be read again.

    Raises BadInput for keys that this chain and platform cannot have; NoSchedule where the level
    has no space for two adjoints, or the steps that are left cannot be reached.
    """
    stored = checked(chain, platform, survivors, 0)
    adjoint = furthest(stored, level)
    where, often = (0, inf) if level is None else (level, every)
    plans = list[Schedule]()
    if killed is not None and (again := taken_up(killed, platform, stored, adjoint)) is not None:
        again = with_adjoint_checkpoints(again, platform, often, level=where)
        plans += [again] if _is_legal(again, platform) else []
    anew = _from_stored(chain, platform, stored, adjoint, level=level, tapes=tapes)
    plans.insert(0, with_adjoint_checkpoints(anew, platform, often, level=where))
    return min(plans, key=lambda plan: makespan(plan, platform))


def _is_legal(schedule: Schedule, platform: Platform) -> bool:
    """Whether what was planned for more space, or for other levels, fits on these."""
    with suppress(IllegalAction):
        validate(schedule, platform)
        return True
    return False


def _from_stored(
    chain: Chain,
    platform: Platform,
    stored: Stored,
    adjoint: Place | None,
    *,
    level: int | None,
    tapes: bool,
) -> Schedule:
    """Plan from what is stored, with space set aside for the adjoints."""
    held = None if adjoint is None else Read(*adjoint)
    smaller = platform if level is None else aside(platform, chain, level)
    for older in [] if held is None else [held, *spares(stored, held, level)]:
        if older.level != level:  # it stays there until the next one is written
            smaller = without(smaller, chain, older.key, older.level)
    kept, dropped = fitting(chain, smaller, stored, adjoint)
    # Adjoints have space of their own: to a planner they are of no size.
    planned = resume(replace(chain, adjoint=0), smaller, kept, tapes=tapes)
    return Schedule(chain, Actions.of(dropped) + planned.actions, stored, planned.note)


def furthest(survivors: Stored, level: int | None, /) -> Place | None:
    """Return the adjoint that has come furthest, if any; of several copies the one on `level`."""
    adjoints = (
        (key.step, number != level, number, key)
        for number, keys in enumerate(survivors)
        for key in keys
        if key.kind is Kind.ADJOINT
    )
    best = min(adjoints, key=lambda row: row[:3], default=None)
    return None if best is None else (best[3], best[2])


def fitting(
    chain: Chain, platform: Platform, survivors: Stored, adjoint: Place | None, /
) -> tuple[Stored, list[Discard]]:
    """Return what is kept, of adjoints only this one, and the Discards of what does not fit.

    Where a level of this platform holds less than what lies there without the adjoints, what is
    cheapest to lose goes first: what saves the fewest seconds for each of its bytes.
    """
    kept = [{key for key in keys if key.kind is not Kind.ADJOINT} for keys in survivors]
    left = chain.length if adjoint is None else adjoint[0].step
    dropped = list(_dropped(chain, platform, kept, left))
    if adjoint is not None:
        kept[adjoint[1]].add(adjoint[0])
    return tuple(map(frozenset, kept)), dropped


def _dropped(
    chain: Chain, platform: Platform, kept: Sequence[set[Key]], left: int
) -> Iterator[Discard]:
    """Take from each set what does not fit on its level, one key after the other."""
    for number, (level, keys) in enumerate(zip(platform.levels, kept, strict=False)):
        used = sum(level.stored(chain.nbytes(key)) for key in keys)
        while level.capacity is not None and used > level.capacity:
            worth = _Worth.of(chain, kept, left)
            key = min(filter(chain.nbytes, keys), key=worth)
            keys.remove(key)
            used -= level.stored(chain.nbytes(key))
            yield Discard(key, number)


@dataclass(frozen=True, slots=True)
class _Worth:
    """The order in which keys are dropped.

    What a key saves at the least is the way to it from the next restart key below, once.

    Attributes
    ----------
    left : int
        The steps [0, left) are to be reversed.
    copies : Counter of Key
        On how many levels each key lies.
    restarts : list of int
        The steps of all restart keys, ascending.
    """

    chain: Chain
    left: int
    copies: Counter[Key]
    restarts: list[int]

    @staticmethod
    def of(chain: Chain, kept: Sequence[set[Key]], left: int) -> "_Worth":
        copies = Counter(key for keys in kept for key in keys)
        restarts = sorted(key.step for key in copies if key.kind is Kind.RESTART)
        return _Worth(chain, left, copies, restarts)

    def __call__(self, key: Key) -> tuple[float, str, int]:
        return self._seconds(key) / self.chain.nbytes(key), key.kind.value, -key.step

    def _is_next(self, key: Key) -> bool:
        """Whether the next step is reversed from this restart key."""
        if key.kind is not Kind.RESTART or self.copies[Key(Kind.TAPE, self.left - 1)]:
            return False
        return key.step == self.restarts[bisect_left(self.restarts, self.left) - 1]

    def _seconds(self, key: Key) -> float:
        if key.step >= self.left or self.copies[key] > 1:
            return 0.0
        if key == Key(Kind.RESTART, 0):
            return inf  # everything may be had from it, and it from nothing
        if self._is_next(key):
            return inf  # or a run that is stopped again and again would come no further than there
        tape = key.kind is Kind.TAPE
        lower = bisect_left(self.restarts, key.step + tape) - 1
        below = self.restarts[lower] if lower >= 0 else 0
        seconds = self.chain.seconds(Record(key.step, key.step + 1)) if tape else 0.0
        return seconds + (self.chain.seconds(Advance(below, key.step)) if below < key.step else 0)
