"""Minimal repetition dynamic checkpointing: a rule for a chain of unknown length.

Every state is stored when it is reached. Every checkpoint has a height: infinity for x_0, and 0
for the others at first. A checkpoint is dispensable if a later checkpoint is higher. If the level
is full, a dispensable checkpoint is discarded. If none is dispensable, the last checkpoint is
discarded, and the height of the new checkpoint is larger by one than that of the discarded.

Let s be the number of slots, including that of x_0, and beta(c, r) = C(c + r, c). Height r first
appears when x_t with t = beta(s - 1, r) is reached. The height bounds how often a step must be
repeated in the reverse sweep, and the rule makes this bound as low as possible. For example,
with s = 3 slots, height 1 first appears at x_3, and height 2 at x_6, because beta(2, 1) = 3 and
beta(2, 2) = 6.

Source: Wang, Moin and Iaccarino (2009), "Minimal repetition dynamic checkpointing algorithm for
unsteady adjoint calculation", SISC 31, Algorithm 1. The paper does not say which dispensable
checkpoint is discarded; here it is the last.

The rule minimizes neither the advances nor the writes: it writes at every step. `online` needs
fewer of both; this planner is for comparison.
"""

from math import inf

import numpy as np

from ckio.actions import Key, Kind
from ckio.planners.base import alike, candidates, held_steps, nearest, space_for_one
from ckio.planners.blocks import at_level
from ckio.planners.draft import Draft
from ckio.planners.resume import resume
from ckio.platform import Platform
from ckio.platform.chain import Chain
from ckio.schedule import Schedule


def wang_moin(chain: Chain, platform: Platform, /, *, on: str | None = None) -> Schedule:
    r"""Return the schedule of minimal repetition dynamic checkpointing on one level.

    The forward sweep is Algorithm 1 of Wang, Moin & Iaccarino (2009), a rule for a chain of unknown
    length. The reverse sweep is the best one for the checkpoints that are then stored. The level is
    the nearest that can store a checkpoint, or the level called `on`.

    Assumptions: all steps are alike, and only restart data is stored. The seconds of writes and
    reads do not change the forward sweep.

    Raises BadInput if the steps differ. Raises NoSchedule if the chain has more than one step and
    the level cannot store a checkpoint, or if the working memory cannot hold the tape of one step.

    For example, 12 steps of 1 s with two slots in memory need 36 advances. Revolve, which knows the
    length of the chain, needs 28:

    >>> from ckio.schedule import counts
    >>> chain = Chain(steps=12, advance=1, record=0, reverse=0, restart=1, tape=1, adjoint=1)
    >>> platform = Platform.loads("1\n 2 0 0")
    >>> counts(wang_moin(chain, platform)).advanced
    36
    """
    alike(chain, planner="wang-moin")
    held_steps(chain, platform)
    levels, draft = candidates(platform, on), Draft()
    if chain.length == 1:
        draft.step_back(0)
        return draft.schedule(chain)
    level = nearest(
        levels,
        lambda level: level.slots(chain.restart, 1) == 1,
        planner="wang-moin",
        needs=space_for_one(chain),
    )
    alone = Platform((level,), platform.working_memory)
    dynamic = _Dynamic(draft, level.slots(chain.restart, chain.length))
    for step in range(chain.length):
        dynamic.at(step)
        draft.advance(step, step + 1)
    kept = [Key(Kind.RESTART, step) for step in dynamic.heights]
    back = resume(chain, alone, [kept], state=chain.length)
    actions = draft.schedule(chain).actions + back.actions
    number = np.full(len(actions), platform.number(level.name))
    return Schedule(chain, at_level(actions, number), note="forward sweep with minimal repetition")


class _Dynamic:
    """The heights of the stored checkpoints, in the order of their steps."""

    def __init__(self, draft: Draft, slots: int) -> None:
        self.draft, self.slots = draft, slots
        self.heights: dict[int, float] = {}
        self.dispensable: list[int] = []

    def at(self, step: int) -> None:
        """Store x_step, which has just been reached; if the level is full, discard first."""
        if not self.heights:
            self.put(step, inf)
        elif len(self.heights) < self.slots:
            self.put(step, 0)
        elif self.dispensable:
            self.drop(self.dispensable.pop())
            self.put(step, 0)
        elif self.slots > 1:
            last = next(reversed(self.heights))
            height = self.drop(last) + 1
            self.dispensable = [key for key, other in self.heights.items() if other < height]
            self.put(step, height)

    def put(self, step: int, height: float) -> None:
        self.draft.write(step, level=0)
        self.heights[step] = height

    def drop(self, step: int) -> float:
        self.draft.discard(step, level=0)
        return self.heights.pop(step)
