"""Planning without knowing the end: what to store while a program runs, and the way back from it.

    rule = Online(chain, platform)         where `chain.steps` plays no part, and may be None
    rule.at(step, stored)                  what to do when x_step is reached
    rule.until(step, stored)               the next step at which there may be anything to do
    rule.finish(steps, stored)             the way back, when x_steps turns out to be the last
    rule.follow(step, stored)              the first two along one run, which ask at every step

These are functions of the step and of what is stored alone, so that a run that was killed goes on
with what survived. At every step there is what it takes to end there, and never more than fits. To
go through all that is stored takes time for each key, though, and where a level never fills there
are ever more of them: a `Follower`, which takes for granted that a run does what it says, goes
through them once.

The near level is a comb of the chain (see `levels`) until it is so long that a far level pays (see
`levels`). Then x_0, and those of the comb that are 3/4 of a period apart, are moved to the
far level, and from there on every m-th state is written to it; the near level is a comb of the
steps since the last of these, and gives up what lies before it as it needs the slots. A far level
that is full is a comb too, whose unit is the period. Of several far levels each has a T and a
period of its own, and is used from its T on when those before it are full.

To move a checkpoint costs a read and a write, and one of each for the state that has been reached,
which it overwrites in the register. When the end comes, its last step has been advanced over and
not recorded: so the way back begins with a read, except on a chain of one step.
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
    """Says at each step of a run what `Online.at` and `Online.until` would, and remembers it.

    It takes for granted that the run does what it says, all of it and nothing else that changes
    what is stored, before it is asked again. What is `stored` when it begins, at x_step, is gone
    through once.
    """

    def __init__(
        self, levels: OnlineLevels, step: int = 0, stored: Sequence[Iterable[Key]] = (), /
    ) -> None:
        self._sweep, self._step = ForwardSweep(levels, Draft(), stored, step), step

    def at(self, step: int, /) -> Actions:
        """Return the actions at x_step, which is in the register before and after.

        Raises BadInput for a step before the last one it was asked about.
        """
        if step < self._step:
            raise BadInput(f"a run is followed forward: step {step} comes before {self._step}")
        self._step, draft = step, Draft()
        self._sweep.at(step, draft)
        return draft.actions()

    def until(self, step: int, /) -> int:
        """The first step after this one at which `at` may say anything, if nothing else changes."""
        return self._sweep.until(step)


__all__ = ["Follower", "Online", "online", "wang_moin"]


def online(chain: Chain, platform: Platform, /) -> Schedule:
    """Return the schedule of a run that did not know its end, once the end is known.

    Forward, nothing depends on the number of steps; only that a chain of one step stores nothing.
    Raises NoSchedule where n > 1 and no level holds a checkpoint, and BadInput for a chain whose
    steps differ.
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
    note = f"forward without knowing the end; back: {back.note}"
    return Schedule(chain, draft.schedule(chain).actions + back.actions, note=note)


@dataclass(frozen=True)
class Online:
    """The rule for a chain whose steps are all alike, on a platform.

    Raises BadInput for a chain whose steps differ. What it is asked first raises NoSchedule where
    no level holds a checkpoint, or the working memory no tape.
    """

    chain: Chain
    platform: Platform

    def __post_init__(self) -> None:
        alike(self.chain, planner="online")

    @cached_property
    def levels(self) -> OnlineLevels:
        """The part of the platform that it uses."""
        return levels(self.chain, self.platform)

    def at(self, step: int, stored: Sequence[Iterable[Key]], /) -> Actions:
        """Return the actions at x_step, which is in the register before and after.

        `stored` are the keys on each level. Nothing is to be done where x_step is one of them.
        """
        return Follower(self.levels, step, stored).at(step)

    def until(self, step: int, stored: Sequence[Iterable[Key]], /) -> int:
        """The first step after this one at which `at` may say anything, if nothing else changes."""
        return ForwardSweep(self.levels, Draft(), stored, step).until(step)

    def follow(self, step: int = 0, stored: Sequence[Iterable[Key]] = (), /) -> Follower:
        """`at` and `until` along a run that stands at x_step, in about the same time each step."""
        return Follower(self.levels, step, stored)

    def finish(self, steps: int, stored: Sequence[Iterable[Key]], /) -> Schedule:
        """The way back when x_steps has just been reached and is the end.

        It begins with what is `stored`, leaves nothing, and is legal after actions that have led to
        x_steps. Raises NoSchedule where not all steps can be reached from it.
        """
        chain = self.chain.with_steps(steps)
        return resume(chain, self.platform, stored, state=steps)
