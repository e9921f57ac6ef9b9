"""Recovery is a planner, not a mode: it plans from what a killed run left on durable levels.

`aside` is the platform to plan an adjoint run for, `with_adjoint_checkpoints` puts its own
checkpoints into the plan, `every` says how often; `recover` makes the schedule for the rest, which
is again one to be killed and recovered, and `redone_at_most` bounds what a kill costs.
"""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from math import inf

from ckio.actions import Discard, Key, Read
from ckio.actions.columns import Actions
from ckio.errors import BadInput, IllegalAction, NoSchedule
from ckio.planners.base import without_notes
from ckio.planners.hrevolve import hrevolve
from ckio.planners.mixed import mixed
from ckio.planners.stored import finish
from ckio.planners.stored.standing import checked
from ckio.platform import Platform
from ckio.platform.chain import Chain
from ckio.recover.adjoints import spares, with_adjoint_checkpoints
from ckio.recover.again import Killed, taken_up
from ckio.recover.interval import adjoint_seconds, every
from ckio.recover.redone import redone_at_most
from ckio.recover.room import aside, without
from ckio.recover.survivors import Place, Stored, fitting, furthest
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
    """The schedule of a fresh process for the rest of a chain, from what is stored on each level.

    `survivors` may be restart data, tapes and adjoints, without those that are corrupt. The adjoint
    of the smallest step is read, and the rest is planned by `planners.stored.finish`, which stores
    tapes too only where `tapes` says so; then the adjoint is stored on `level` about `every`
    seconds (see `with_adjoint_checkpoints`). Room for two adjoints is set aside there: where
    survivors lie in it, those that are cheapest to lose are discarded. At the end nothing is left.

    Where it is known what was `killed`, that is taken up again if it takes less time: then a kill
    costs no more than `redone_at_most` says of it.

    With None for `level` no adjoint is stored, nor is room set aside. The one that is read stays
    where it is until the end, so that it can be read again.

    Raises BadInput for keys that this chain and platform cannot have, and for what `finish` cannot
    plan (a long chain whose steps differ); NoSchedule where the level has no room for two adjoints,
    or the steps that are left cannot be reached.
    """
    stored = checked(chain, platform, survivors, 0)
    adjoint = furthest(stored, level)
    where, often = (0, inf) if level is None else (level, every)
    plans = list[Schedule]()
    if killed is not None and (again := taken_up(killed, platform, stored, adjoint)) is not None:
        again = with_adjoint_checkpoints(again, platform, often, level=where)
        plans += [again] if _is_legal(again, platform) else []
    try:
        anew = _from_stored(chain, platform, stored, adjoint, level=level, tapes=tapes)
    except BadInput:
        if not plans:
            raise
    else:
        plans.insert(0, with_adjoint_checkpoints(anew, platform, often, level=where))
    return min(plans, key=lambda plan: makespan(plan, platform))


def _is_legal(schedule: Schedule, platform: Platform) -> bool:
    """Whether what was planned for more room, or for other levels, fits on these."""
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
    """A plan from what is stored, in which room for the adjoints is set aside."""
    held = None if adjoint is None else Read(*adjoint)
    smaller = platform if level is None else aside(platform, chain, level)
    for older in [] if held is None else [held, *spares(stored, held, level)]:
        if older.level != level:  # it stays there until the next one is written
            smaller = without(smaller, chain, older.key, older.level)
    kept, dropped = fitting(chain, smaller, stored, adjoint)
    # Adjoints have room of their own: to a planner they are of no size.
    planned = _planned(replace(chain, adjoint=0), smaller, kept, adjoint, tapes=tapes)
    return Schedule(chain, Actions.of(dropped) + planned.actions, stored, planned.note)


def _planned(
    chain: Chain, platform: Platform, kept: Stored, adjoint: Place | None, *, tapes: bool
) -> Schedule:
    """The better of two plans: from what is stored, and with all of it discarded but the adjoint.

    The second is made by planners that go further than `finish` does: with tapes, they record
    several steps at once, and the steps of a long chain may differ.
    """
    if adjoint is not None and adjoint[0].step == 0:
        return _anew(chain, kept, adjoint, Actions.of([]), "nothing is left to be reversed")
    try:
        best = finish(chain, platform, kept, tapes=tapes)
    except BadInput as error:
        try:
            return _afresh(chain, platform, kept, adjoint, tapes=tapes)
        except NoSchedule:
            raise error from None
    if not tapes:
        return best
    afresh = _afresh(chain, platform, kept, adjoint, tapes=tapes)
    return min(best, afresh, key=lambda schedule: makespan(schedule, platform))


def _afresh(
    chain: Chain, platform: Platform, kept: Stored, adjoint: Place | None, *, tapes: bool
) -> Schedule:
    """As if nothing were stored but the adjoint."""
    left = chain if adjoint is None else chain.with_steps(adjoint[0].step)
    with without_notes():
        plan = mixed(left, platform) if tapes else hrevolve(left, platform)
    return _anew(chain, kept, adjoint, plan.actions, f"planned anew: {plan.note}")


def _anew(
    chain: Chain, kept: Stored, adjoint: Place | None, actions: Actions, note: str
) -> Schedule:
    """These actions from the adjoint on; what else is stored goes before them."""
    read, discard = ([], []) if adjoint is None else ([Read(*adjoint)], [Discard(*adjoint)])
    others = [
        Discard(key, number)
        for number, keys in enumerate(kept)
        for key in sorted(keys, key=lambda key: (key.kind.value, key.step))
        if (key, number) != adjoint
    ]
    whole = Actions.of([*read, *others]) + actions + Actions.of(discard)
    return Schedule(chain, whole, kept, note)
