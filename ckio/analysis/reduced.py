"""Any planner on what checkpoints really take: the same memory holds more of them."""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ckio.actions import Kind
from ckio.actions.variables import Variables
from ckio.analysis.lowering import lower
from ckio.planners.base import Planner
from ckio.platform import Level, Platform
from ckio.platform.chain import Chain
from ckio.schedule import Schedule, makespan


@dataclass(frozen=True)
class ByVariable:
    """A planner that knows the variables of a chain, made of one that knows whole states only.

    It plans with the reduced sizes, and what it plans is lowered: see `lower`.

    Attributes
    ----------
    planner : Planner
        Of whole checkpoints.
    variables : Variables
        What states are made of, and what the steps do to it.
    """

    planner: Planner
    variables: Variables

    def __call__(self, chain: Chain, platform: Platform, /) -> Schedule:
        """A schedule on single variables; raises what the planner raises, and what `lower` does.

        It is the better of two: with all versions of what is seldom overwritten in a room of their
        own, or in each checkpoint.
        """
        ways = [reduced(chain, platform, self.variables, apart=apart) for apart in (True, False)]
        found = [
            lower(self.planner(*way), self.variables, platform=platform)
            for way in (ways if ways[0] != ways[1] else ways[:1])
        ]
        return min(found, key=lambda each: makespan(each, platform))


def reduced(
    chain: Chain, platform: Platform, variables: Variables, /, *, apart: bool = True
) -> tuple[Chain, Platform]:
    """The chain with the sizes of what has to be stored, and the room that there is for it.

    A checkpoint of restart data takes the bytes of all that is live and overwritten. With `apart`,
    what is overwritten so seldom that there is room for all its versions takes that room once, and
    none in each checkpoint. The tape of a step takes what of it some step overwrites.
    """
    columns = variables.columns(Kind.RESTART, chain.length)
    versions = {name: len(np.unique(version[:-1][live[:-1]])) for name, version, live in columns}
    slots = [_slots(level, variables, versions) for level in platform.levels]
    least = min(filter(None, slots), default=0) if apart else 0
    few = {name: count for name, count in versions.items() if count <= least}
    if len(few) == len(versions):  # checkpoints of nothing have no slots
        few = {}
    each = [variables.nbytes[name] for name in versions.keys() - few.keys()]
    tape = sum(variables.nbytes[name] for name in variables.taped) if variables.tape else chain.tape
    levels = tuple(_less(level, variables, few, each) for level in platform.levels)
    # What is stored by variable is copied.
    smaller = replace(chain, restart=sum(each), tape=tape, handed=frozenset[Kind]())
    return smaller, replace(platform, levels=levels)


def _slots(level: Level, variables: Variables, versions: Mapping[str, int]) -> int | None:
    """How many checkpoints a level holds that share what they can; None where it never fills."""
    if level.capacity is None:
        return None

    def needed(slots: int) -> int:
        return sum(
            min(count, slots) * level.stored(variables.nbytes[name])
            for name, count in versions.items()
        )

    most = max(versions.values(), default=0)
    return bisect_right(range(1, most + 1), level.capacity, key=needed)


def _less(level: Level, variables: Variables, few: Mapping[str, int], each: Sequence[int]) -> Level:
    """The level without the room for all versions of some variables.

    Nor has it the room by which the variables of a checkpoint, `each` of so many bytes, take more
    than the whole: where a codec makes them smaller, they are rounded up one by one.
    """
    if level.capacity is None:
        return level
    taken = sum(count * level.stored(variables.nbytes[name]) for name, count in few.items())
    room, parts = max(0, level.capacity - taken), sum(map(level.stored, each))
    return replace(level, capacity=room * level.stored(sum(each)) // parts if parts else room)
