"""Recovery: plan the rest of a killed run from the checkpoints that it left on durable levels.

A run that can be recovered also stores its adjoint. `aside` returns the platform for which such a
run is planned, `with_adjoint_checkpoints` adds the adjoint checkpoints to the plan, and `every`
returns the best interval between them. `recover` returns the schedule for the rest after a kill; a
run of this schedule can be killed and recovered again.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from math import inf
from typing import TypeAlias

from ckio.actions import Advance, Discard, Key, Kind, Read, Record
from ckio.actions.columns import Actions
from ckio.planners.recovery.adjoints import (
    adjoint_seconds,
    aside,
    every,
    expected_seconds,
    spares,
    with_adjoint_checkpoints,
    without,
)
from ckio.planners.resume import checked, resume
from ckio.platform import Platform
from ckio.platform.chain import Chain
from ckio.schedule import Schedule

__all__ = [
    "adjoint_seconds",
    "aside",
    "every",
    "expected_seconds",
    "recover",
    "with_adjoint_checkpoints",
]

Stored: TypeAlias = tuple[frozenset[Key], ...]
"""The keys on each level."""

Place: TypeAlias = tuple[Key, int]
"""A key and the number of the level on which it is stored."""


def recover(
    chain: Chain,
    platform: Platform,
    survivors: Sequence[Iterable[Key]],
    /,
    *,
    level: int | None,
    every: float,
    tapes: bool = False,
) -> Schedule:
    """Return the schedule with which a fresh process finishes a chain, from the surviving keys.

    `survivors` are the keys on each level: restart data, tapes and adjoints, without corrupt ones.
    The schedule reads the adjoint of the smallest step. `planners.resume` plans the rest, with new
    tapes only if `tapes` is true. The adjoint is stored on `level` about `every` seconds apart (see
    `with_adjoint_checkpoints`). Space for two adjoints is reserved there; if survivors occupy it,
    those whose loss costs least are discarded. At the end nothing is stored.

    With None for `level` no adjoint is stored, and no space is reserved. The adjoint that is read
    stays stored until the end, so that it can be read again after another kill.

    Raises BadInput for keys that this chain and platform cannot have, and for a read-only `level`;
    NoSchedule if the level has no space for two adjoints, or some of the remaining steps cannot be
    reached.
    """
    stored = checked(chain, platform, survivors, 0)
    where, often = (0, inf) if level is None else (level, every)
    rest = _from_stored(chain, platform, stored, level=level, tapes=tapes)
    return with_adjoint_checkpoints(rest, platform, often, level=where)


def _from_stored(
    chain: Chain,
    platform: Platform,
    stored: Stored,
    *,
    level: int | None,
    tapes: bool,
) -> Schedule:
    """Return the plan from the stored keys, with space reserved for the adjoints."""
    adjoint = furthest(stored, level)
    held = None if adjoint is None else Read(*adjoint)
    smaller = platform if level is None else aside(platform, chain, level)
    for older in [] if held is None else [held, *spares(stored, held, level)]:
        if older.level != level:  # it stays stored until the next one is written
            smaller = without(smaller, chain, older.key, older.level)
    kept, dropped = fitting(chain, smaller, stored, adjoint)
    # Adjoints have reserved space: for the planner their size is 0.
    planned = resume(replace(chain, adjoint=0), smaller, kept, tapes=tapes)
    return Schedule(chain, Actions.of(dropped) + planned.actions, stored, planned.note)


def furthest(survivors: Stored, level: int | None, /) -> Place | None:
    """Return the adjoint of the smallest step, if any; of several copies the one on `level`."""
    adjoints = (
        (key.step, number != level, number, key)
        for number, keys in enumerate(survivors)
        for key in keys
        if key.kind is Kind.ADJOINT
    )
    best = min(adjoints, key=lambda row: row[:3], default=None)
    return None if best is None else (best[3], best[2])


def fitting(
    chain: Chain, platform: Platform, survivors: Stored, adjoint: Place | None, /
) -> tuple[Stored, list[Discard]]:
    """Return the keys that are kept, with this adjoint only, and Discards of keys that do not fit.

    If the keys on a level, without adjoints, exceed its capacity, the keys that save the fewest
    seconds for each of their bytes are discarded first.
    """
    kept = [{key for key in keys if key.kind is not Kind.ADJOINT} for keys in survivors]
    left = chain.length if adjoint is None else adjoint[0].step
    dropped = list(_drop(chain, platform, kept, left))
    if adjoint is not None:
        kept[adjoint[1]].add(adjoint[0])
    return tuple(map(frozenset, kept)), dropped


def _drop(
    chain: Chain, platform: Platform, kept: Sequence[set[Key]], left: int
) -> Iterator[Discard]:
    """Remove from each set the keys that do not fit on its level, and yield their Discards."""
    for number, (level, keys) in enumerate(zip(platform.levels, kept, strict=False)):
        used = sum(level.stored(chain.nbytes(key)) for key in keys)
        while level.capacity is not None and used > level.capacity:
            key = min(filter(chain.nbytes, keys), key=partial(_worth, chain, kept, left))
            keys.remove(key)
            used -= level.stored(chain.nbytes(key))
            yield Discard(key, number)


def _worth(chain: Chain, kept: Sequence[set[Key]], left: int, key: Key) -> tuple[float, str, int]:
    """Return the order in which keys are dropped: by the seconds that one saves for each byte.

    The least that a key saves is one forward sweep to it from the restart key before it. x_0 is
    never dropped, because it can be computed from no other key. Nor is the last state before step
    `left`, from which the next step is reversed if its tape is not stored: without it a run that is
    killed repeatedly would make no progress.
    """
    every = [other for keys in kept for other in keys]
    tape = key.kind is Kind.TAPE
    restarts = {other.step for other in every if other.kind is Kind.RESTART and other.step < left}
    below = max((step for step in restarts if step < key.step + tape), default=0)
    seconds = 0.0
    if key.step < left and every.count(key) == 1:
        if tape:
            seconds = chain.seconds(Record(key.step, key.step + 1))
        elif key.step == 0 or (key.step == max(restarts) and Key(Kind.TAPE, left - 1) not in every):
            seconds = inf
        if below < key.step:
            seconds += chain.seconds(Advance(below, key.step))
    return seconds / chain.nbytes(key), key.kind.value, -key.step
