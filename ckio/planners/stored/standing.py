"""Where a process stands in the middle of a chain: what is left, what is stored, what it holds."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ckio.actions import Action, Key, Kind, Read
from ckio.actions.columns import Actions
from ckio.errors import BadInput
from ckio.planners.blocks import at_level
from ckio.platform import Level, Platform
from ckio.platform.chain import Chain

_NONE = Level(name="none", capacity=0)
"""So that there is a level, where none is of use."""

Place = tuple[int, int]
"""A checkpoint of known kind: its step, and the number of the level on which it lies."""


@dataclass(frozen=True, slots=True)
class Standing:
    """What is left of a chain, and what there is to finish it with.

    Attributes
    ----------
    chain, platform
        As they were given.
    adjoint : int
        m: the steps [0, m) are left to be reversed.
    turned : bool
        Whether a Reverse may begin at m: not at the end of a chain that the state has yet to reach.
    state : int or None
        i where the state register holds x_i, and that is of use.
    restarts, tapes : tuple of (step, level)
        What is stored and of use, by kind, in the order of steps.
    new_tapes : bool
        Whether tapes may be written too.
    """

    chain: Chain
    platform: Platform
    adjoint: int
    turned: bool
    state: int | None
    restarts: tuple[Place, ...]
    tapes: tuple[Place, ...]
    new_tapes: bool


def standing(
    chain: Chain,
    platform: Platform,
    stored: Sequence[frozenset[Key]],
    /,
    *,
    state: int | None,
    new_tapes: bool,
) -> Standing:
    """Where a process stands once it has read the furthest adjoint that is stored, if any."""
    first = furthest_adjoint(stored)
    adjoint = chain.length if first is None else first.key.step
    turned = first is not None or state == chain.length
    places = {
        kind: sorted(
            (key.step, level)
            for level, keys in enumerate(stored)
            for key in keys
            if key.kind is kind and key.step < adjoint
        )
        for kind in (Kind.RESTART, Kind.TAPE)
    }
    return Standing(
        chain=chain,
        platform=platform,
        adjoint=adjoint,
        turned=turned,
        state=None if state is None or state >= adjoint else state,
        restarts=tuple(places[Kind.RESTART]),
        tapes=tuple(place for place in places[Kind.TAPE] if turned or place[0] < chain.length - 1),
        new_tapes=new_tapes,
    )


def of_use(rest: Standing, /) -> tuple[Standing, list[int]]:
    """The same without the levels that can hold nothing and do not, and the numbers of the others.

    Where levels are tried in turn, those that are of no use are not to change which is first.
    """
    sizes = [int(np.min(rest.chain.restart)), int(np.min(rest.chain.tape))][: 1 + rest.new_tapes]
    holding = {level for _, level in rest.restarts + rest.tapes}
    numbers = [
        number
        for number, level in enumerate(rest.platform.levels)
        if number in holding or any(level.slots(size, 1) for size in sizes)
    ]
    levels = tuple(rest.platform.levels[number] for number in numbers) or (_NONE,)
    restarts, tapes = (
        tuple((step, numbers.index(level)) for step, level in keys)
        for keys in (rest.restarts, rest.tapes)
    )
    platform = replace(rest.platform, levels=levels)
    return replace(rest, platform=platform, restarts=restarts, tapes=tapes), numbers


def renumbered(actions: Iterable[Action], numbers: Sequence[int], /) -> Actions:
    """The actions on these levels of a platform, of which they know only the order."""
    columns = Actions.of(actions)
    return at_level(columns, np.array([*numbers, 0])[columns.level])


def furthest_adjoint(stored: Sequence[frozenset[Key]], /) -> Read | None:
    """The Read of the adjoint that has come furthest, from the nearest level that holds it."""
    found = (
        (key.step, level, Read(key, level))
        for level, keys in enumerate(stored)
        for key in keys
        if key.kind is Kind.ADJOINT
    )
    return min(found, key=lambda row: row[:2], default=(0, 0, None))[2]


def checked(
    chain: Chain, platform: Platform, stored: Sequence[Iterable[Key]], state: int | None, /
) -> tuple[frozenset[Key], ...]:
    """What is stored on each level; raises BadInput for what cannot be stored there or held."""
    kept = tuple(frozenset(keys) for keys in stored)
    if len(kept) > len(platform.levels):
        raise BadInput(
            f"stored: keys on {len(kept)} levels; the platform has {len(platform.levels)}"
        )
    if state is not None and not 0 <= state <= chain.length:
        raise BadInput(f"state = {state}; the chain has the states x_0 to x_{chain.length}")
    for level, keys in zip(platform.levels, kept, strict=False):
        for key in keys:
            _check_key(chain, key, level.name)
        used = sum(level.stored(chain.nbytes(key)) for key in keys)
        if level.capacity is not None and used > level.capacity:
            raise BadInput(
                f"stored: level {level.name} would hold {used} bytes; its capacity is"
                f" {level.capacity}"
            )
    return kept


def _check_key(chain: Chain, key: Key, level: str) -> None:
    if key.name:
        raise BadInput(f"stored: {key} on level {level} is one variable; give whole checkpoints")
    if key.step > chain.length - (key.kind is Kind.TAPE):
        raise BadInput(
            f"stored: {key} on level {level} is beyond the chain, which has {chain.length} steps"
        )
