"""Any schedule on single variables: which version of which is written, read and discarded, when.

A schedule of whole checkpoints stores x_i where it writes x_i. Most of it need not be: a variable
that is not overwritten is still there when x_i is read, one that is overwritten before it is used
is not needed, and one that has not changed since another checkpoint is stored already. Instead of
Sbk, Snp and Req of the paper's two fixed places, an array (a variable in one version) is stored for
as long as it is needed, whichever checkpoints come and go meanwhile. For each variable by itself:

* Every step, as it is done, needs some version to be there, or leaves one (`events`). An Advance
  needs all that its steps use, a Record what the tape is made of; the rest of what its steps use
  it needs only if the state that it leaves is needed further on.
* Where what is left is not what is needed next, it has to be read in between: each such place is
  one read, and reads of that version are needed in any way of doing it. No other place is.
* So every array that is read anywhere has to be written once, and no other does. That is the least
  number of writes, and of reads, that the schedule can do with. (It is proved where steps overwrite
  in whole, kill = out, and recording steps use all that forward steps do. What is overwritten in
  part is kept right through it rather than read after it; and where a recording step leaves what is
  needed, it does so if no Read comes in between.)
* It can be written at any Write of the schedule while it is there (`placing`).
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ckio.actions import Discard, Key, Kind, Write
from ckio.actions.columns import READ, WRITE, Actions
from ckio.actions.variables import ChainFlows, Names, Step, as_names
from ckio.analysis.dataflow.closed import placed
from ckio.analysis.dataflow.events import awake, events
from ckio.analysis.dataflow.needed import Accesses, Needed
from ckio.analysis.dataflow.placing import Placing, latest
from ckio.analysis.dataflow.stays import Stays
from ckio.analysis.dataflow.variable import Variable, Woken
from ckio.platform import Level, Platform
from ckio.schedule import Schedule, counts
from ckio.schedule.replay import validate


@dataclass(frozen=True, slots=True)
class ArrayPlan:
    """What a schedule does on single variables, beside its computing and its tapes.

    A variable in one version is Key(RESTART, version, variable): as it is in x_version, where it
    was last overwritten. A Write of restart data becomes the writes of some variables or of none,
    so does a Read; a Discard of restart data becomes nothing, as arrays are discarded where they
    are read for the last time. Beside tapes there may be variables, too, which adjoint steps use in
    place. Adjoint checkpoints stay as they are.

    Attributes
    ----------
    places : tuple of int
        For each access, in order, the number of the action that it goes with.
    accesses : Actions
        Writes, Reads and Discards of single variables.
    stored : tuple of frozenset of Key
        What of the checkpoints that the schedule starts with is needed, on each level.
    """

    places: tuple[int, ...]
    accesses: Actions
    stored: tuple[frozenset[Key], ...]

    def at(self, place: int, /) -> Actions:
        """What is done where the schedule has its action number `place`."""
        begin, end = (bisect_left(self.places, number) for number in (place, place + 1))
        return self.accesses[begin:end]

    @property
    def writes(self) -> int:
        """How many arrays are written."""
        return int((self.accesses.op == WRITE).sum())

    @property
    def reads(self) -> int:
        """How many arrays are read."""
        return int((self.accesses.op == READ).sum())

    def peaks(self, nbytes: Mapping[str, int], /) -> tuple[int, ...]:
        """The most bytes of arrays on each level at one time, by the bytes of each variable.

        A level may come to hold more than with whole checkpoints: an array that these hold on
        several levels, or write again later, is kept on one of them for all that time.
        """
        used = [sum(nbytes[key.name] for key in keys) for keys in self.stored]
        used += [0] * (int(self.accesses.level.max(initial=-1)) + 1 - len(used))
        most = list(used)
        for access in self.accesses:
            match access:
                case Write(key, level):
                    used[level] += nbytes[key.name]
                    most[level] = max(most[level], used[level])
                case Discard(key, level):
                    used[level] -= nbytes[key.name]
                case _:
                    pass
        return tuple(most)


def plan_schedule(
    schedule: Schedule,
    steps: Step | Sequence[Step],
    /,
    *,
    seed: Iterable[str],
    placing: Placing = latest,
) -> ArrayPlan:
    """What a schedule of whole checkpoints has to store, variable by variable.

    Parameters
    ----------
    schedule : Schedule
        A legal one, by any planner, or the beginning of one: what comes after it is not known here.
    steps : Step, or sequence of Step
        What the steps of the chain use and overwrite: one for all of them, or one for each.
    seed : iterable of str
        What the functional and the start of the adjoint read of x_n, when the forward gets there.
    placing : callable
        `latest`, `earliest` or a `LeastSeconds`: when and where an array is written, of the
        chances that there are.

    Raises
    ------
    IllegalAction
        Where the schedule is not legal.
    BadInput
        Where no reading of arrays can make the schedule right for these steps: an adjoint step uses
        in place what is neither there nor stored (it has to be on the tape); or where the number of
        steps is not that of the chain, or an action is on a single variable already.
    """
    validate(schedule, roomy(schedule))
    chain_steps, names = (
        ChainFlows(steps, schedule.chain.length),
        as_names("plan_schedule: seed", seed),
    )
    stored: list[set[Key]] = [set() for _ in schedule.stored]
    found: list[Accesses] = []
    for needed in needed_arrays(schedule, chain_steps, names):
        copies = placed(needed, placing)
        found.append(copies.accesses(needed.name, Kind.RESTART))
        for level, key in copies.start(needed.name, Kind.RESTART):
            stored[level].add(key)
    accesses = Accesses.together(found)
    return ArrayPlan(
        tuple(accesses.place.tolist()), accesses.actions, tuple(map(frozenset, stored))
    )


def needed_arrays(schedule: Schedule, steps: ChainFlows, seed: Names, /) -> list[Needed]:
    """What a legal schedule has to store of each variable; raises BadInput as `plan_schedule`.

    The state that a recorded step leaves is taken not to be needed, until a variable finds that it
    is; then the step needs more of the others.
    """
    actions, needed = schedule.actions, awake(schedule.actions, steps)
    names = sorted(steps.variables | seed)
    stays = Stays.of(schedule, Kind.RESTART)
    variables = [Variable(schedule, name, steps.versions(name), stays) for name in names]
    while True:
        found: list[Needed] = []
        woken = np.zeros_like(needed)
        for variable in variables:
            try:
                found.append(variable.arrays(events(actions, steps, variable.name, seed, needed)))
            except Woken as news:
                woken[news.steps] = True
        if not woken.any():
            return found
        needed |= woken


def roomy(schedule: Schedule) -> Platform:
    """Levels that never fill, as many as the schedule uses: here only its order matters."""
    return Platform(tuple(Level(name=f"level{n}") for n in range(len(counts(schedule).levels))))
