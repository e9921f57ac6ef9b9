"""What a kill costs at most: a bound for all instants of a schedule in one walk over it.

A kill after k actions leaves the keys on durable levels. Let m be the step of the furthest adjoint
among them, or n, and let b <= k be an instant with the adjoint at m. Then this is a way to go on,
in no more room than the schedule itself takes; `again.py` writes it down:

    read a_m; discard what was written to durable levels since b; restore what the machine held
    at b, in one forward sweep from the nearest durable restart key (or from x_0, which a fresh
    model holds) that writes every key which is missing on its way; go on from b as scheduled.

The makespan of that, added to what was done until k, is the makespan of the schedule and

    (done until k) - (done until b)     lost: redone from b on
    + read(a_m)
    + discards of what was written since b
    + the sweep: read(x_d), advances from d to the highest step that is needed, and where the tape
      of a step is missing or held, what recording takes longer than advancing
    + writes of what is missing: on levels that are not durable, or discarded since b

As b, the last instant before the next Reverse is taken from which one sweep is enough: the
registers hold nothing that is still used, or what they hold is at or above all keys to be written.

A recovery stores its adjoint every so many seconds of its own. That may be more often than what is
left of the schedule does; at most, it is once for every `every` seconds of it and once for every
step. Last, it discards what the schedule would have left on the levels.
"""

from collections.abc import Collection
from math import inf

import numpy as np

from ckio.platform import Platform
from ckio.recover.interval import adjoint_seconds
from ckio.recover.walk import Walk
from ckio.schedule import Schedule
from ckio.schedule.replay import validate


def redone_at_most(
    schedule: Schedule,
    platform: Platform,
    durable: Collection[int],
    /,
    *,
    level: int,
    every: float,
) -> float:
    """Seconds that a kill before the last action is done costs at most.

    That is: what was done until the last action that was complete, and the makespan of the recovery
    together exceed the makespan of the schedule by no more. So all counts that the recovery does,
    spans, writes, reads and discards, also of adjoint checkpoints that it stores more often than
    the schedule would have; planning, opening and verifying, which nobody has priced, do not, nor
    does the part of an action that was under way. Each kill is one: of the recovery, which is again
    a schedule, this says anew what a kill of it costs.

    `durable` are the numbers of the levels whose keys survive; the recovery stores its adjoint on
    `level` every so many seconds. It holds for `recover` that is told what was `killed`, on this
    platform, with all that was durable still there, of any planner's schedule. A recovery that is
    not told plans from what is stored alone, which is mostly as good, and may cost more: it does
    not record several steps at once from stored keys, and for long chains it does not find the best
    of all ways.

    Infinite where one sweep is not enough to restore what a kill takes: where a state waits below
    the stored tapes from which steps are reversed. Raises IllegalAction for an illegal schedule.
    """
    end = validate(schedule, platform)
    left_over = sum(
        platform.levels[number].discard(schedule.chain.nbytes(key))
        for number, keys in enumerate(end.stored)
        for key in keys
    )
    instants = Walk(schedule, platform, frozenset(durable)).instants()
    if not len(instants.redone):
        return 0.0
    if not np.isfinite(instants.redone).all():
        return inf
    redone = instants.redone + left_over
    most = np.maximum(instants.adjoint - 1, 0).astype(np.float64)
    if every > 0:
        with np.errstate(over="ignore"):
            most = np.minimum(most, np.floor((instants.left + redone) / every))
    more = np.maximum(most - instants.stored, 0)
    return float((redone + more * adjoint_seconds(schedule.chain, platform, level)).max())
