"""The rest of an interrupted chain, and the checkpoints that are stored for it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from ckio.actions import Key, Kind, Read
from ckio.errors import BadInput
from ckio.planners.base import access_seconds
from ckio.platform import Platform
from ckio.platform.chain import Chain

Stored: TypeAlias = tuple[int, int]
"""A checkpoint of known kind: its step, and the number of the level on which it is stored."""


@dataclass(frozen=True, slots=True)
class Remainder:
    """The steps [0, end) to be reversed, and the states and tapes that are useful for this.

    Attributes
    ----------
    chain, platform
        The whole chain, and the platform.
    end : int
        The step of the adjoint; n + 1 if the adjoint cannot start before the state has reached x_n.
        This is as if one more step followed, of which only x_n is needed.
    state : int or None
        i if the state register holds x_i and this is useful, otherwise None.
    restarts, tapes : tuple of (step, level)
        The stored keys that are useful, by kind, in the order of steps.
    new_tapes : bool
        Whether new tapes may be written.
    """

    chain: Chain
    platform: Platform
    end: int
    state: int | None
    restarts: tuple[Stored, ...]
    tapes: tuple[Stored, ...]
    new_tapes: bool

    @property
    def steps(self) -> int:
        """The number of steps that remain."""
        return min(self.end, self.chain.length)

    def nbytes(self, kind: Kind, step: int) -> int:
        """Return the bytes of a checkpoint."""
        return self.chain.nbytes(Key(kind, step))

    def seconds_to_read(self, kind: Kind, step: int, level: int) -> float:
        """Return the seconds to read a checkpoint from a level."""
        nbytes = self.nbytes(kind, step)
        return access_seconds(self.chain, self.platform, level, kind, nbytes)[1]

    def seconds_to_keep(self, kind: Kind, step: int, level: int) -> float:
        """Return the seconds to write a checkpoint to a level, and to discard it later."""
        nbytes = self.nbytes(kind, step)
        return access_seconds(self.chain, self.platform, level, kind, nbytes)[0]


def remainder(
    chain: Chain,
    platform: Platform,
    stored: Sequence[frozenset[Key]],
    /,
    *,
    state: int | None,
    new_tapes: bool,
) -> Remainder:
    """Return the rest of the chain after the furthest stored adjoint has been read, if any."""
    first = furthest_adjoint(chain, platform, stored)
    end = chain.length + (state != chain.length) if first is None else first.key.step
    restarts, tapes = (
        tuple(
            sorted(
                (key.step, level)
                for level, keys in enumerate(stored)
                for key in keys
                if key.kind is kind and key.step < min(end, chain.length)
            )
        )
        for kind in (Kind.RESTART, Kind.TAPE)
    )
    return Remainder(
        chain=chain,
        platform=platform,
        end=end,
        state=None if state is None or state >= min(end, chain.length) else state,
        restarts=restarts,
        tapes=tapes,
        new_tapes=new_tapes,
    )


def furthest_adjoint(
    chain: Chain, platform: Platform, stored: Sequence[frozenset[Key]], /
) -> Read | None:
    """Return the Read of the adjoint of the smallest step, from the level fastest to read."""
    reads = [
        Read(key, level)
        for level, keys in enumerate(stored)
        for key in keys
        if key.kind is Kind.ADJOINT
    ]

    def order(read: Read) -> tuple[int, float, int]:
        nbytes = chain.nbytes(read.key)
        _, seconds = access_seconds(chain, platform, read.level, Kind.ADJOINT, nbytes)
        return read.key.step, seconds, read.level

    return min(reads, key=order, default=None)


def checked(
    chain: Chain, platform: Platform, stored: Sequence[Iterable[Key]], state: int | None, /
) -> tuple[frozenset[Key], ...]:
    """Return the keys on each level as sets.

    Raises BadInput for a state that the chain does not have, for keys that the levels cannot have,
    and if they exceed a capacity.
    """
    levels = tuple(frozenset(keys) for keys in stored)
    if len(levels) > len(platform.levels):
        raise BadInput(
            f"stored has keys for {len(levels)} levels; the platform has only"
            f" {len(platform.levels)}: give one set of keys for each level of the platform"
        )
    if state is not None and not 0 <= state <= chain.length:
        raise BadInput(f"state = {state}; it must be from 0 to {chain.length}, the last state")
    for level, keys in zip(platform.levels, levels, strict=False):
        for key in keys:
            _check_key(chain, key, level.name)
        used = sum(level.stored(chain.nbytes(key)) for key in keys)
        if level.capacity is not None and used > level.capacity:
            raise BadInput(
                f"stored: the keys on level {level.name} occupy {used} bytes; its capacity is"
                f" {level.capacity}: leave out keys, or raise the capacity"
            )
    return levels


def _check_key(chain: Chain, key: Key, level: str) -> None:
    if key.name:
        raise BadInput(
            f"stored: {key} on level {level} is a single variable; give keys of whole checkpoints"
        )
    if key.step > chain.length - (key.kind is Kind.TAPE):
        raise BadInput(
            f"stored: {key} on level {level} is after the end of the chain, which has"
            f" {chain.length} steps: leave it out"
        )
