"""The rest of a chain that was interrupted, and the checkpoints that are stored for it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from ckio.actions import Key, Kind, Read
from ckio.errors import BadInput
from ckio.platform import Platform, copies
from ckio.platform.chain import Chain

Stored: TypeAlias = tuple[int, int]
"""A checkpoint of known kind: its step, and the number of the level on which it lies."""


@dataclass(frozen=True, slots=True)
class Remainder:
    """The steps [0, end) that are to be reversed, and what is of use for that.

    Attributes
    ----------
    chain, platform
        As they were given.
    end : int
        Where the adjoint stands; n + 1 where it cannot begin before the state has reached x_n. This
        is as if one step more followed, of which only x_n is needed.
    state : int or None
        i where the state register holds x_i, and that is of use.
    restarts, tapes : tuple of (step, level)
        What is stored and of use, by kind, in the order of steps.
    new_tapes : bool
        Whether tapes may be written too.
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
        """How many steps are left."""
        return min(self.end, self.chain.length)

    @property
    def sizes_alike(self) -> bool:
        """Whether the checkpoints of each kind that play a part have one size."""
        names = ("restart", "tape") if self.new_tapes or self.tapes else ("restart",)
        return all(np.ptp(self.chain.each(name)[: self.steps]) == 0 for name in names)

    def nbytes(self, kind: Kind, step: int) -> int:
        """Bytes of a checkpoint."""
        return self.chain.nbytes(Key(kind, step))

    def seconds_to_read(self, kind: Kind, step: int, level: int) -> float:
        """Seconds to read a checkpoint from a level."""
        nbytes = self.nbytes(kind, step) * copies(self.chain, self.platform, level, kind)
        return self.platform.levels[level].read(nbytes)

    def seconds_to_keep(self, kind: Kind, step: int, level: int) -> float:
        """Seconds to write a checkpoint to a level, and to discard it there later."""
        nbytes, store = self.nbytes(kind, step), self.platform.levels[level]
        moved = nbytes * copies(self.chain, self.platform, level, kind)
        return store.write(moved) + store.discard(nbytes)


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
    """The Read of the adjoint that has come furthest, from the level that is quickest to read."""
    reads = [
        Read(key, level)
        for level, keys in enumerate(stored)
        for key in keys
        if key.kind is Kind.ADJOINT
    ]

    def order(read: Read) -> tuple[int, float, int]:
        moved = chain.nbytes(read.key) * copies(chain, platform, read.level, Kind.ADJOINT)
        return read.key.step, platform.levels[read.level].read(moved), read.level

    return min(reads, key=order, default=None)


def checked(
    chain: Chain, platform: Platform, stored: Sequence[Iterable[Key]], state: int | None, /
) -> tuple[frozenset[Key], ...]:
    """The keys on each level; raises BadInput for what cannot be stored there or held."""
    levels = tuple(frozenset(keys) for keys in stored)
    if len(levels) > len(platform.levels):
        raise BadInput(
            f"stored: keys on {len(levels)} levels; the platform has {len(platform.levels)}"
        )
    if state is not None and not 0 <= state <= chain.length:
        raise BadInput(f"state = {state}; the chain has the states x_0 to x_{chain.length}")
    for level, keys in zip(platform.levels, levels, strict=False):
        for key in keys:
            _check_key(chain, key, level.name)
        used = sum(level.stored(chain.nbytes(key)) for key in keys)
        if level.capacity is not None and used > level.capacity:
            raise BadInput(
                f"stored: level {level.name} would hold {used} bytes; its capacity is"
                f" {level.capacity}"
            )
    return levels


def _check_key(chain: Chain, key: Key, level: str) -> None:
    if key.name:
        raise BadInput(f"stored: {key} on level {level} is one variable; give whole checkpoints")
    if key.step > chain.length - (key.kind is Kind.TAPE):
        raise BadInput(
            f"stored: {key} on level {level} is beyond the chain, which has {chain.length} steps"
        )
