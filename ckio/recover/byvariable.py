"""What is left of a run by variable: planned from whole checkpoints, done with what is there."""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from typing import TypeAlias, TypeVar

from ckio.actions import Key, Kind
from ckio.analysis.lowering import lower, whole
from ckio.analysis.reduced import reduced
from ckio.errors import BadInput, IllegalAction, NoSchedule
from ckio.platform import Platform
from ckio.platform.chain import Chain
from ckio.recover.survivors import Stored
from ckio.schedule import Schedule, makespan

T = TypeVar("T")
Rest: TypeAlias = Callable[[Chain, Platform, Stored], tuple[Schedule, T]]
"""Plans the rest from whole checkpoints, which lie on these levels; says something beside."""


def by_variable(
    rest: Rest[T], chain: Chain, platform: Platform, survivors: Sequence[Iterable[Key]], /
) -> tuple[Schedule, T]:
    """The rest of a chain that has variables, from what is left of them on each level.

    `rest` plans it with reduced sizes, from the checkpoints of which every part is there: in both
    ways to reduce them, of which the better is taken; where one has no room for what lies there,
    the other may. What is planned so may not fit where a level has hardly more room than for that;
    then it is planned from the adjoints alone.

    Raises BadInput where none of these is a plan that fits.
    """
    assert chain.variables is not None
    variables, stored = chain.variables, tuple(frozenset(keys) for keys in survivors)
    adjoints = tuple(frozenset(key for key in keys if key.kind is Kind.ADJOINT) for keys in stored)
    in_one = tuple(frozenset(key for key in keys if not key.name) for keys in stored)
    free = _beside(platform, chain, in_one, 1)
    whole_chain = replace(chain, variables=None)
    ways = [reduced(whole_chain, free, variables, apart=apart) for apart in (True, False)]
    reason: BadInput | IllegalAction | None = None
    for there in dict.fromkeys((stored, adjoints)):
        found = list[tuple[Schedule, T]]()
        for smaller, left in ways if ways[0] != ways[1] else ways[:1]:
            room = _beside(left, chain, in_one, -1)
            try:
                plan, beside = rest(smaller, room, whole(there, smaller, room, variables))
                found.append((lower(plan, variables, platform=platform, stored=stored), beside))
            except (BadInput, IllegalAction) as error:
                reason = reason or error
        if found:
            return min(found, key=lambda each: makespan(each[0], platform))
    if isinstance(reason, BadInput):
        raise reason
    raise NoSchedule(f"what is left does not fit by variable: {reason}")


def _beside(
    platform: Platform, chain: Chain, stored: Sequence[Collection[Key]], sign: int, /
) -> Platform:
    """The platform with the room that is taken on each level less (1), or more (-1)."""
    levels = list(platform.levels)
    for number, keys in enumerate(stored):
        level = levels[number]
        if level.capacity is not None:
            taken = sum(level.stored(chain.nbytes(key)) for key in keys)
            levels[number] = replace(level, capacity=max(0, level.capacity - sign * taken))
    return replace(platform, levels=tuple(levels))
