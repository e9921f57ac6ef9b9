"""Resume: the schedule for the rest of a chain of which checkpoints are stored.

What recovery from a crash, the loss of a level and the planners of chains of unknown length have in
common: some checkpoints lie on some levels, and each is worth keeping or dropping. A short chain is
searched through (`short`); for a long one a recurrence says which restart keys to keep (`long`,
`stack`), on tables of what it takes to finish the steps between two of them (`tables`).

For example, 4 steps of a second each, with a slot in memory and x_2 and x_0 on a disk that takes
two seconds to read: x_2 is read, step 3 is reached and reversed, x_2 was kept in memory for step 2,
and the same follows from x_0:

    >>> from ckio.platform import Affine, Level
    >>> chain = Chain(steps=4, advance=1, record=1, reverse=1, restart=1, tape=1, adjoint=1)
    >>> disk = Level(name="disk", capacity=2, read=Affine(2))
    >>> platform = Platform((Level(name="ram", capacity=1), disk), working_memory=1)
    >>> x_0, x_2 = Key(Kind.RESTART, 0), Key(Kind.RESTART, 2)
    >>> schedule = resume(chain, platform, [[], [x_0, x_2]], state=None)
    >>> makespan(schedule, platform)  # 2 reads, 2 advances, 4 records and 4 reverses
    14.0
"""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from ckio.actions import Action, Discard, Key, Kind
from ckio.actions.columns import DISCARD, KIND_CODE, READ, WRITE, Actions
from ckio.errors import NoSchedule
from ckio.planners.base import no_schedule
from ckio.planners.base import tapes as tapes_held
from ckio.planners.resume import long, short
from ckio.planners.resume.remainder import Remainder, checked, furthest_adjoint, remainder
from ckio.platform import Platform
from ckio.platform.chain import Chain
from ckio.schedule import Schedule, makespan

__all__ = ["checked", "resume", "with_discards"]


def resume(
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
    what is left; else the adjoint starts at n. Everything that is stored is discarded, each key as
    soon as nothing more is read from it. New checkpoints are restart data, and with `tapes` also
    tapes. Steps may differ.

    `state` is what the register holds before the first action:

    * 0: x_0, a fresh model. That is what a schedule means by itself.
    * None: nothing. The schedule begins with a Read, and is legal from any state.
    * i: x_i; the schedule is to be appended to actions that lead there. With i = n the adjoint may
      start at once, also where the last Reverse of those actions ended at n.

    The note of the schedule says how it was planned and what is known of how good it is. Raises
    BadInput for keys and states that this chain and platform cannot have; NoSchedule where steps
    that are left cannot be reached.
    """
    keys = checked(chain, platform, stored, state)
    rest = remainder(chain, platform, keys, state=state, new_tapes=tapes)
    first = furthest_adjoint(chain, platform, keys)
    begin = Actions.of([] if first is None else [first])
    schedules = [
        with_discards(Schedule(chain, begin + Actions.of(actions), keys, note))
        for actions, note in _plans(rest)
    ]
    if not schedules:
        raise _unreachable(rest)
    return min(schedules, key=lambda schedule: makespan(schedule, platform))


def _plans(rest: Remainder) -> Iterator[tuple[Iterable[Action], str]]:
    """The actions of each plan that is worth a look, and what is to be said of it."""
    if rest.end == 0:
        yield (), "nothing is left to be reversed"
        return
    tapes_held(rest.chain, rest.platform)
    plan = short.search(rest) if short.is_short(rest) else None
    if plan is not None:
        best = plan.complete and rest.sizes_alike
        sort = "the best" if best else "a good"
        yield plan.actions, f"{sort} way to finish, by a search through what to keep"
        if plan.complete:
            return
    # On several levels keys could be moved first, and a state and tapes be used in other ways.
    known = plan is None and len(rest.platform.levels) == 1 and not rest.tapes
    known = known and (not rest.restarts or (rest.state is None and not rest.new_tapes))
    untried = "; not all ways to use the stored tapes were tried" if rest.tapes else ""
    for other in long.plans(rest):
        sort = "the best" if known and other.complete else "a good"
        yield other.actions, f"{sort} way to finish, {other.how}{untried}"


def _unreachable(rest: Remainder) -> NoSchedule:
    """The error that says what is missing."""
    taped = {step for step, _ in rest.tapes}
    first = min(
        [step for step, _ in rest.restarts] + [rest.steps if rest.state is None else rest.state]
    )
    if not taped.issuperset(range(first)):
        return NoSchedule(
            f"the steps before {first} cannot be reversed: x_0 is not stored, and the process does"
            " not hold it; begin with a fresh model (state = 0)"
        )
    size = rest.nbytes(Kind.RESTART, 0)
    needed = (
        f"what is left, {rest.steps} steps, needs a level with room for one checkpoint of {size}"
        " bytes free"
    )
    return no_schedule(rest.platform.levels, needed)


def with_discards(schedule: Schedule, /) -> Schedule:
    """The schedule with a Discard directly after the last Read of everything that is stored.

    What is stored at the start and not read before it is written again, if ever, goes first of all.
    The schedule has no Discards yet, and reads whatever it writes.
    """
    actions = schedule.actions
    order, begins = _by_key(actions)
    reads = actions.op[order] == READ
    last = np.sort(order[reads & ~np.append(reads[1:] & ~begins[1:], False)[: len(order)]])
    read = actions.take(last)
    drops = Actions(
        op=np.full(len(last), DISCARD, np.uint8),
        begin=read.begin,
        end=read.end,
        kind=read.kind,
        level=read.level,
    )
    places = np.concatenate((np.arange(len(actions)), last))
    merged = (actions + drops).take(np.argsort(places, kind="stable"))
    unread = _unread(schedule, actions.take(order[begins & reads]))
    return Schedule(schedule.chain, unread + merged, schedule.stored, schedule.note)


def _by_key(actions: Actions) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """The numbers of all accesses, those of one key together, and which is the first of its key."""
    access = np.flatnonzero(actions.op >= WRITE)
    here = actions.take(access)
    order = np.lexsort((here.begin, here.kind, here.level))
    begins = np.ones(len(order), np.bool_)
    if len(order):
        columns = [column[order] for column in (here.level, here.kind, here.begin)]
        begins[1:] = np.any([column[1:] != column[:-1] for column in columns], axis=0)
    return access[order], begins


def _unread(schedule: Schedule, first_reads: Actions) -> Actions:
    """Discards of what lies there at the start, without what is read before all else."""
    read = {(kind, level, step) for _, kind, level, step, _, _ in first_reads.rows()}
    return Actions.of(
        Discard(key, level)
        for level, keys in enumerate(schedule.stored)
        for key in sorted(keys, key=_order)
        if (KIND_CODE[key.kind], level, key.step) not in read
    )


def _order(key: Key) -> tuple[str, int]:
    return key.kind.value, key.step
