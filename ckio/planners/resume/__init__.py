"""Resume: the schedule for the rest of a chain some of whose checkpoints are stored.

Three cases need such a schedule: recovery from a crash, the loss of a level, and the reverse sweep
of a chain of unknown length. In all of them some checkpoints are stored on some levels, and the
planner decides for each whether to keep or to drop it. A recurrence decides which restart keys to
keep (`legs`, `recurrence`). The plan is compared with that from the first key alone.

For example, take 4 steps of one second each, one slot in memory, and x_2 and x_0 on a disk from
which a read takes two seconds. The schedule reads x_2 and writes it to memory, advances one step
and reverses step 3, reads x_2 from memory and reverses step 2; then it does the same with x_0:

    >>> from ckio.platform import Affine, Level
    >>> chain = Chain(steps=4, advance=1, record=1, reverse=1, restart=1, tape=1, adjoint=1)
    >>> disk = Level(name="disk", capacity=2, read=Affine(2))
    >>> platform = Platform((Level(name="ram", capacity=1), disk), working_memory=1)
    >>> x_0, x_2 = Key(Kind.RESTART, 0), Key(Kind.RESTART, 2)
    >>> schedule = resume(chain, platform, [[], [x_0, x_2]], state=None)
    >>> makespan(schedule, platform)  # 2 reads, 2 advances, 4 records and 4 reverses
    14.0
"""

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from ckio.actions import Discard, Key, Kind
from ckio.actions.columns import DISCARD, KIND_CODE, READ, WRITE, Actions
from ckio.errors import NoSchedule
from ckio.planners.base import held_steps, no_schedule
from ckio.planners.recording import quickest, recorded
from ckio.planners.resume.legs import plans
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
    """Return the schedule for the rest of a chain, from the keys that are stored on each level.

    Stored keys may be restart data, tapes and adjoints. If there are adjoints, that of the smallest
    step m is read first, and the steps [0, m) remain to be reversed. Otherwise the adjoint starts
    at n. Each stored key is discarded after its last read, so that nothing is stored at the end.
    New checkpoints are restart data and, with `tapes`, also tapes. With `tapes`, steps that are
    recorded faster than they are advanced are recorded instead. Steps may differ.

    `state` is the content of the state register before the first action:

    * 0: x_0 of a fresh model. Every complete schedule starts like this.
    * None: nothing. The schedule begins with a Read, and is legal from any state.
    * i: x_i. The schedule must be appended to actions that lead to x_i. With i = n the adjoint may
      start immediately, even if the last Reverse of those actions ended at n.

    Raises BadInput for keys and states that this chain and platform cannot have; NoSchedule if some
    of the remaining steps cannot be reached.
    """
    keys = checked(chain, platform, stored, state)
    planned = quickest(chain) if tapes else chain
    rest = remainder(planned, platform, keys, state=state, new_tapes=tapes)
    held = held_steps(chain, platform) if rest.end else 1
    first = furthest_adjoint(chain, platform, keys)
    begin = Actions.of([] if first is None else [first])
    made = [with_discards(Schedule(planned, begin + actions, keys)) for actions in plans(rest)]
    if not made:
        raise _unreachable(rest)
    best = min(made, key=lambda schedule: makespan(schedule, platform)).actions
    return Schedule(chain, recorded(chain, best, held) if tapes else best, keys)


def _unreachable(rest: Remainder) -> NoSchedule:
    """Return the error that names the missing checkpoint or capacity."""
    taped = {step for step, _ in rest.tapes}
    first = min(
        [step for step, _ in rest.restarts] + [rest.steps if rest.state is None else rest.state]
    )
    if not taped.issuperset(range(first)):
        return NoSchedule(
            f"the steps before {first} cannot be reversed, because x_0 is neither stored nor in the"
            " state register: start with a fresh model (state = 0)"
        )
    size = rest.nbytes(Kind.RESTART, 0)
    needed = (
        f"the rest of the chain, {rest.steps} steps, needs a level with space for one checkpoint of"
        f" {size} bytes"
    )
    return no_schedule(rest.platform.levels, needed)


def with_discards(schedule: Schedule, /) -> Schedule:
    """Return the schedule with a Discard directly after the last Read of each key.

    Keys that are stored at the start, and are never read or are written before their first Read,
    are discarded first of all. Keys that are written and not read afterwards are not written. The
    given schedule must have no Discards.
    """
    actions = schedule.actions
    order, begins = _by_key(actions)
    unused = order[(actions.op[order] == WRITE) & np.append(begins[1:], True)[: len(order)]]
    if len(unused):
        actions = actions.take(np.delete(np.arange(len(actions)), unused))
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
    """Return the numbers of all accesses, grouped by key, and whether each begins a group."""
    access = np.flatnonzero(actions.op >= WRITE)
    order, begins = actions.take(access).by_key()
    return access[order], begins


def _unread(schedule: Schedule, first_reads: Actions) -> Actions:
    """Return Discards of the keys stored at the start whose first access is not a Read."""
    read = {(kind, level, step) for _, kind, level, step, _, _ in first_reads.rows()}
    return Actions.of(
        Discard(key, level)
        for level, keys in enumerate(schedule.stored)
        for key in sorted(keys, key=_order)
        if (KIND_CODE[key.kind], level, key.step) not in read
    )


def _order(key: Key) -> tuple[str, int]:
    return key.kind.value, key.step
