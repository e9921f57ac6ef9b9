"""Online planning: choose checkpoints while the number of steps is unknown, then reverse the chain.

    rule = Online(chain, platform)         `chain.steps` is ignored and may be None
    run = rule.follow(step, stored)        the decisions for a run that is at x_step
    run.at(step)                           the actions at x_step
    run.until(step)                        the next step at which there may be actions
    rule.finish(steps, stored)             the reverse sweep, when x_steps is known to be the last

The results depend only on the step and on the stored keys. Therefore a run that was killed can
resume with the checkpoints that survive. The chain can end at every step: the stored checkpoints
suffice to reverse it, and they never exceed the capacity of a level.

The checkpoints on the near level are a comb, until the chain is so long (T steps) that a far level
pays; see `levels` for both. Then x_0, and the states of the comb that are at least 3/4 of a period
apart, are moved to the far level, and afterwards every m-th state is written to it. The
near level is then a comb of the steps after the last far checkpoint. Earlier near checkpoints are
discarded when their slots are needed. If a far level is full, its checkpoints are a comb as well,
with the period as unit. Each of several far levels has its own T and its own period. A far level is
used from its T, when all far levels before it are full.

A move of checkpoints costs a read and a write for each. In addition, the current state must be
written before and read again after the move, because the move overwrites the register. When the
end is known, the last step has been advanced over and not recorded. Therefore the reverse sweep
begins with a read, except for a chain of one step.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from ckio.actions import Key
from ckio.planners.base import LevelSlots, alike, held_steps
from ckio.planners.draft import Draft
from ckio.planners.resume import resume
from ckio.planners.unknown.levels import OnlineLevels, levels
from ckio.planners.unknown.sweep import Follower
from ckio.platform import Platform
from ckio.platform.chain import Chain
from ckio.schedule import Schedule

__all__ = ["Follower", "Online", "online"]


def online(chain: Chain, platform: Platform, /) -> Schedule:
    """Return the schedule of a run that did not know its number of steps until the end.

    The forward sweep does not depend on the number of steps, except that a chain of one step stores
    nothing. Raises NoSchedule if n > 1 and no level can store a checkpoint, and BadInput for a
    chain whose steps differ.
    """
    rule, draft = Online(chain, platform), Draft()
    if chain.length == 1:
        held_steps(chain, platform)
        draft.step_back(0)
        return draft.schedule(chain)
    sweep, step = rule.follow(), 0
    while step < chain.length:
        sweep.append(step, draft)
        then = min(sweep.until(step), chain.length)
        draft.advance(step, then)
        step = then
    back = rule.finish(chain.length, sweep.stored())
    note = "forward sweep without knowing the end"
    return Schedule(chain, draft.schedule(chain).actions + back.actions, note=note)


@dataclass(frozen=True)
class Online:
    """The rule for runs that do not know their end, for a chain of equal steps on a platform.

    Raises BadInput for a chain whose steps differ. The first use of the object raises NoSchedule if
    no level can store a checkpoint, or the working memory cannot hold the tape of one step.
    """

    chain: Chain
    platform: Platform

    def __post_init__(self) -> None:
        alike(self.chain, planner="online")

    @cached_property
    def _levels(self) -> OnlineLevels:
        """The levels that are used, with the parameters of the rule for each."""
        return levels(self.chain, self.platform)

    @property
    def levels(self) -> tuple[LevelSlots, ...]:
        """The levels that are used in the forward sweep, the cheapest to write and read first."""
        return (self._levels.near, *(far.level for far in self._levels.far))

    def follow(self, step: int = 0, stored: Sequence[Iterable[Key]] = (), /) -> Follower:
        """Return the decisions for a run at x_step, with the keys that are `stored` on each level.

        Its calls take about the same time at each step, however many keys are stored.
        """
        return Follower(self._levels, step, stored)

    def finish(self, steps: int, stored: Sequence[Iterable[Key]], /) -> Schedule:
        """Return the schedule of the reverse sweep; the run is at x_steps, the end of the chain.

        It starts with the keys that are `stored` on each level. At its end nothing is stored. It is
        legal after actions that have led to x_steps. Raises NoSchedule if not all steps can be
        reached from the stored keys.
        """
        chain = self.chain.with_steps(steps)
        return resume(chain, self.platform, stored, state=steps)
