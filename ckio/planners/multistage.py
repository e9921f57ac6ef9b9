"""Multistage: Revolve in the slots of several levels, those used most on the nearest.

Revolve's checkpoints form a stack. For a chain of n steps and s slots in all, each place in the
stack is written and read so many times; the places used least go to the farthest level, and so on.
It takes the fewest forward steps that s slots allow, and looks at no costs
(Stumm and Walther, "MultiStage approaches for optimal offline checkpointing", SISC 2009; for two
levels in Maddison, "On the implementation of checkpointing with high-level algorithmic
differentiation", 2023).
"""

import numpy as np
from numpy.typing import NDArray

from ckio.chain import Chain
from ckio.columns import DISCARD, WRITE, Actions
from ckio.planners.base import alike, rooms, tapes
from ckio.planners.blocks import at_level, revolved
from ckio.platforms import Platform
from ckio.schedule import Schedule

_Ints = NDArray[np.int64]


def multistage(chain: Chain, platform: Platform, /) -> Schedule:
    """The fewest forward steps in the slots of all levels together, the most used ones nearest.

    Raises NoSchedule where n > 1 and no level holds a checkpoint.
    """
    alike(chain, planner="multistage")
    tapes(chain, platform)
    if chain.length == 1:
        return Schedule(chain, revolved(1, 1, level=0))
    levels = rooms(chain, platform, planner="multistage")
    slots = np.repeat([room.number for room in levels], [room.slots for room in levels])
    slots = slots[: chain.length - 1]
    actions = revolved(chain.length, len(slots), level=0)
    places = _places(actions)
    return Schedule(chain, at_level(actions, _levels(actions, places, slots)[places]))


def _places(actions: Actions) -> _Ints:
    """The place in the stack, from 0, that each access is of: the highest that is in use."""
    change = (actions.op == WRITE).astype(np.int64) - (actions.op == DISCARD)
    in_use = np.cumsum(change) + (actions.op == DISCARD)
    places: _Ints = np.maximum(in_use - 1, 0)
    return places


def _levels(actions: Actions, places: _Ints, slots: _Ints) -> _Ints:
    """The level of each place: `slots` are those of all levels, nearest first."""
    used = (actions.op >= WRITE) & (actions.op != DISCARD)
    uses = np.bincount(places[used], minlength=len(slots))
    order = np.lexsort(
        (-np.arange(len(slots)), -uses)
    )  # of equal uses, the last in the stack first
    levels = np.empty(len(slots), np.int64)
    levels[order] = slots
    return levels
