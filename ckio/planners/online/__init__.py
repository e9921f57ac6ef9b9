"""Online planning: choose checkpoints while the number of steps is unknown, then reverse the chain.

    rule = Online(chain, platform)         `chain.steps` is ignored and may be None
    rule.at(step, stored)                  the actions at x_step
    rule.until(step, stored)               the next step at which there may be actions
    rule.finish(steps, stored)             the reverse sweep, when x_steps is known to be the last
    rule.follow(step, stored)              an object with `at` and `until` for one run

The results depend only on the step and on the stored keys. Therefore a run that was killed can
resume with the checkpoints that survive. The chain can end at every step: the stored checkpoints
suffice to reverse it, and they never exceed the capacity of a level. `at` and `until` of `Online`
go through all stored keys at each call, and the number of keys grows if a level never fills. A
`Follower` goes through them only once, because it assumes that the run performs all its actions.

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
from ckio.actions.columns import Actions
from ckio.errors import BadInput
from ckio.planners.base import alike, tapes
from ckio.planners.draft import Draft
from ckio.planners.literature import wang_moin
from ckio.planners.online.levels import OnlineLevels, levels
from ckio.planners.online.sweep import ForwardSweep
from ckio.planners.resume import resume
from ckio.platform import Platform
from ckio.platform.chain import Chain
from ckio.schedule import Schedule


class Follower:
    """The decisions of `Online.at` and `Online.until` for one run; it remembers the stored keys.

    The run must perform all actions that this object returns before the next call, and must not
    change the stored checkpoints in another way. `stored` are the keys on each level at the start,
    when the run is at x_step.
    """

    def __init__(
        self, levels: OnlineLevels, step: int = 0, stored: Sequence[Iterable[Key]] = (), /
    ) -> None:
        self._sweep, self._step = ForwardSweep(levels, Draft(), stored, step), step

    def at(self, step: int, /) -> Actions:
        """Return the actions at x_step, which is in the register before and after them.

        Raises BadInput if `step` is smaller than in an earlier call.
        """
        if step < self._step:
            raise BadInput(
                f"step {step} comes before step {self._step} of an earlier call; call `at` with"
                " steps in ascending order"
            )
        self._step, draft = step, Draft()
        self._sweep.at(step, draft)
        return draft.actions()

    def until(self, step: int, /) -> int:
        """Return the next step at which `at` may return actions; before it there are none."""
        return self._sweep.until(step)


__all__ = ["Follower", "Online", "online", "wang_moin"]


def online(chain: Chain, platform: Platform, /) -> Schedule:
    """Return the schedule of a run that did not know its number of steps until the end.

    The forward sweep does not depend on the number of steps, except that a chain of one step stores
    nothing. Raises NoSchedule if n > 1 and no level can store a checkpoint, and BadInput for a
    chain whose steps differ.
    """
    rule, draft = Online(chain, platform), Draft()
    if chain.length == 1:
        tapes(chain, platform)
        draft.step_back(0)
        return draft.schedule(chain)
    sweep, step = ForwardSweep(rule.levels, draft), 0
    while step < chain.length:
        sweep.at(step)
        then = min(sweep.until(step), chain.length)
        draft.advance(step, then)
        step = then
    back = rule.finish(chain.length, sweep.stored())
    note = f"forward sweep without knowing the end; reverse sweep: {back.note}"
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
    def levels(self) -> OnlineLevels:
        """The levels that are used, with the parameters of the rule for each."""
        return levels(self.chain, self.platform)

    def at(self, step: int, stored: Sequence[Iterable[Key]], /) -> Actions:
        """Return the actions at x_step, which is in the register before and after them.

        `stored` are the keys on each level. There are no actions if x_step is stored already.
        """
        return Follower(self.levels, step, stored).at(step)

    def until(self, step: int, stored: Sequence[Iterable[Key]], /) -> int:
        """Return the next step at which `at` may return actions; before it there are none."""
        return ForwardSweep(self.levels, Draft(), stored, step).until(step)

    def follow(self, step: int = 0, stored: Sequence[Iterable[Key]] = (), /) -> Follower:
        """Return an object with `at` and `until` for a run at x_step.

        Its calls take about the same time at each step, however many keys are stored.
        """
        return Follower(self.levels, step, stored)

    def finish(self, steps: int, stored: Sequence[Iterable[Key]], /) -> Schedule:
        """Return the schedule of the reverse sweep; the run is at x_steps, the end of the chain.

        It starts with the keys that are `stored` on each level. At its end nothing is stored. It is
        legal after actions that have led to x_steps. Raises NoSchedule if not all steps can be
        reached from the stored keys.
        """
        chain = self.chain.with_steps(steps)
        return resume(chain, self.platform, stored, state=steps)
