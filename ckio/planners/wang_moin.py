"""Minimal repetition dynamic checkpointing: a rule for a chain whose end is not known.

Every checkpoint has a height. x_0 has one without limit, and the others 0, when each state that is
reached is stored. When the level is full, one that is dispensable makes room, which is one with a
higher one after it; where there is none, the last one does, and the new one has its height and one
more. With s slots, that of x_0 among them, height r first appears when x_t with t = beta(s - 1, r)
is reached, beta(c, r) = C(c + r, c): it bounds how often a step has to be repeated on the way back,
and the rule keeps that as low as can be (Wang, Moin and Iaccarino, "Minimal repetition dynamic
checkpointing algorithm for unsteady adjoint calculation", SISC 31, 2009, Algorithm 1). Which of the
dispensable ones goes is left open there: here it is the last.

It keeps low neither the number of advances nor that of writes, of which there is one at every step.
`online` is better on both counts; this one is for comparison.
"""

from math import inf

import numpy as np

from ckio.actions import Key, Kind
from ckio.chain import Chain
from ckio.planners.base import alike, candidates, nearest, room_for_one, tapes
from ckio.planners.blocks import at_level
from ckio.planners.draft import Draft
from ckio.planners.stored import finish
from ckio.platforms import Platform
from ckio.schedule import Schedule


def wang_moin(chain: Chain, platform: Platform, /, *, on: str | None = None) -> Schedule:
    """Minimal repetition dynamic checkpointing on one level, and the best way back on it.

    The level is the nearest that holds a checkpoint, or the one called `on`. Raises NoSchedule
    where n > 1 and no level serves, and BadInput for a chain whose steps differ.
    """
    alike(chain, planner="wang-moin")
    tapes(chain, platform)
    levels, draft = candidates(platform, on), Draft()
    if chain.length == 1:
        draft.step_back(0)
        return draft.schedule(chain)
    level = nearest(
        levels,
        lambda level: level.slots(chain.restart, 1) == 1,
        planner="wang-moin",
        needs=room_for_one(chain),
    )
    alone = Platform((level,), platform.working_memory)
    dynamic = _Dynamic(draft, level.slots(chain.restart, chain.length))
    for step in range(chain.length):
        dynamic.at(step)
        draft.advance(step, step + 1)
    kept = [Key(Kind.RESTART, step) for step in dynamic.heights]
    back = finish(chain, alone, [kept], state=chain.length)
    actions = draft.schedule(chain).actions + back.actions
    number = np.full(len(actions), platform.number(level.name))
    note = f"forward with minimal repetition; back: {back.note}"
    return Schedule(chain, at_level(actions, number), note=note)


class _Dynamic:
    """The heights of the checkpoints stored, in the order of their steps."""

    def __init__(self, draft: Draft, slots: int) -> None:
        self.draft, self.slots = draft, slots
        self.heights: dict[int, float] = {}
        self.dispensable: list[int] = []

    def at(self, step: int) -> None:
        """Store x_step, which has just been reached, and make room for it."""
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
