"""Finish from stored keys: the schedule for the rest of a chain of which checkpoints exist.

What recovery from a crash, the loss of a level and the planners of chains of unknown length have in
common: some checkpoints lie on some levels, and each is worth keeping, moving or dropping.
"""

from collections.abc import Iterable, Iterator, Sequence
from math import inf

from ckio.actions import Action, Key
from ckio.actions.columns import Actions
from ckio.errors import NoSchedule
from ckio.planners.base import alike, no_schedule, room_for_one
from ckio.planners.base import tapes as tapes_held
from ckio.planners.stored import exact as stored_exact
from ckio.planners.stored import long as stored_long
from ckio.planners.stored.discards import with_discards
from ckio.planners.stored.standing import (
    Standing,
    checked,
    furthest_adjoint,
    of_use,
    renumbered,
    standing,
)
from ckio.platform import Platform
from ckio.platform.chain import Chain
from ckio.schedule import Schedule, makespan


def finish(
    chain: Chain,
    platform: Platform,
    stored: Sequence[Iterable[Key]],
    /,
    *,
    state: int | None = 0,
    tapes: bool = False,
) -> Schedule:
    """The rest of a chain, from what is stored on each level: restart data, tapes and adjoints.

    Where adjoints are stored, that of the smallest step m is read first, and the steps [0, m) are
    what is left; else the adjoint starts at n, and a tape of the last step is of no use. Everything
    that is stored is discarded, each key as soon as nothing more is read from it. New checkpoints
    are restart data, and with `tapes` also tapes.

    `state` is what the register holds before the first action:

    * 0: x_0, a fresh model. That is what a schedule means by itself.
    * None: nothing. The schedule begins with a Read, and is legal from any state.
    * i: x_i; the schedule is to be appended to actions that lead there. With i = n the adjoint may
      start at once, also where the last Reverse of those actions ended at n.

    The note of the schedule says how it was planned and what is known of how good it is. Raises
    BadInput for keys and states that this chain and platform cannot have, and for a long chain
    whose steps differ; NoSchedule where steps that are left cannot be reached.
    """
    kept = checked(chain, platform, stored, state)
    tapes_held(chain, platform)
    rest = standing(chain, platform, kept, state=state, new_tapes=tapes)
    first = furthest_adjoint(kept)
    begin = Actions.of([] if first is None else [first])
    alone, numbers = of_use(rest)
    schedules = [
        with_discards(Schedule(chain, begin + renumbered(actions, numbers), kept, note))
        for actions, note in _plans(alone)
    ]
    if not schedules:
        raise _unreachable(rest)
    return min(schedules, key=lambda schedule: makespan(schedule, platform))


def _plans(rest: Standing) -> Iterator[tuple[Iterable[Action], str]]:
    """The actions of each plan that is worth a look, and what is to be said of it."""
    if rest.adjoint == 0:
        yield (), "nothing is left to be reversed"
        return
    searched = stored_exact.small(rest)
    if searched:
        found = stored_exact.solve(rest)
        if found.seconds < inf:
            sort = "the best" if found.complete else "a good"
            yield found.actions, f"{sort} way to finish, by a search through what to keep"
        at_once = rest.new_tapes and rest.platform.tapes(rest.chain) > 1
        if rest.chain.varies or (found.complete and not at_once):
            return
    alike(rest.chain, planner="finishing a long chain from stored keys")
    for plan in stored_long.plans(rest):
        yield plan.actions, _said(rest, plan, searched=searched)


def _said(rest: Standing, plan: stored_long.Plan, *, searched: bool) -> str:
    # With a state in the register or new tapes, and keys, a few ways to use both are not tried.
    plain = not rest.restarts or (rest.state is None and not rest.new_tapes)
    best = plan.exact and plain and not rest.tapes and not searched
    how = (
        "by a recurrence over which restart keys to keep"
        if plan.exact
        else "in segments between the restart keys that are kept"
    )
    said = f"{'the best' if best else 'a good'} way to finish, {how}"
    return said + "; not all ways to use the stored tapes were tried" * bool(rest.tapes)


def _unreachable(rest: Standing) -> NoSchedule:
    """The error that says what is missing."""
    taped = {step for step, _ in rest.tapes}
    held = [step for step, _ in rest.restarts] + ([] if rest.state is None else [rest.state])
    first = min(held, default=rest.adjoint)
    if not taped.issuperset(range(first)):
        return NoSchedule(
            f"the steps before {first} cannot be reversed: x_0 is not stored, and the process does"
            " not hold it; begin with a fresh model (state = 0)"
        )
    needed = f"what is left, {rest.adjoint} steps, needs {room_for_one(rest.chain)} free"
    return no_schedule(rest.platform.levels, needed)
