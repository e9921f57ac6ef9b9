"""The interface of a planner, and the slots of each level, which all planners use."""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from ckio.actions import Kind
from ckio.errors import BadInput, NoSchedule
from ckio.platform import Level, Platform, copies
from ckio.platform.chain import Chain
from ckio.schedule import Schedule

log = logging.getLogger("ckio")

Ints = NDArray[np.int64]
Seconds = NDArray[np.float64]

ENDLESS: Final = 2**62
"""More steps than any chain has."""

_NOTED: Final = ContextVar("noted", default=True)


class Planner(Protocol):
    """A function that makes a schedule for a chain on a platform.

    A planner is a pure function: the same inputs give the same schedule, on every rank. It raises
    NoSchedule if the chain has more than one step and no level has space for the checkpoints, or
    if the working memory cannot hold the tape of one step.
    """

    def __call__(self, chain: Chain, platform: Platform, /) -> Schedule: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelSlots:
    """The slots of a level for restart checkpoints, and their costs.

    Attributes
    ----------
    number : int
        The number of the level in the platform, from 0.
    slots : int
        The checkpoints that the level can store at the same time; never more than the chain needs.
    write : float
        Seconds to write one checkpoint and to discard it later. The two are one cost, because each
        checkpoint is written once and discarded once.
    read : float
        Seconds to read one checkpoint.
    """

    number: int
    slots: int
    write: float
    read: float


def level_slots(chain: Chain, platform: Platform, /, *, planner: str) -> list[LevelSlots]:
    """Return the slots of each level for restart checkpoints, nearest level first.

    A level that cannot store one checkpoint is left out, and a warning in the log says so. Raises
    NoSchedule if no level can store one. `planner` is the planner's name, for the messages.
    """
    usable = list[LevelSlots]()
    for number, level in enumerate(platform.levels):
        if level.slots(chain.restart, 1):
            slots = level.slots(chain.restart, chain.length - 1)
            write, read = access_seconds(chain, platform, number, Kind.RESTART, chain.restart)
            usable.append(LevelSlots(number=number, slots=slots, write=write, read=read))
    if not usable:
        raise no_schedule(platform.levels, f"{planner} needs {space_for_one(chain)}")
    for number in set(range(len(platform.levels))).difference(it.number for it in usable):
        note_ignored(platform.levels[number], planner)
    return usable


def access_seconds(
    chain: Chain, platform: Platform, number: int, kind: Kind, nbytes: int, /
) -> tuple[float, float]:
    """Return the seconds to write a checkpoint to a level and discard it later, and to read it."""
    level, moved = platform.levels[number], nbytes * copies(chain, platform, number, kind)
    return level.write(moved) + level.discard(nbytes), level.read(moved)


def cheapest_first(levels: Iterable[LevelSlots], /) -> list[LevelSlots]:
    """Return the levels in the order of the seconds to write and read a checkpoint."""
    return sorted(levels, key=lambda level: level.write + level.read)


def slot_levels(levels: Iterable[LevelSlots], /, *, most: int) -> list[int]:
    """Return the level number of each slot in the order of the levels, of `most` slots at most."""
    return [level.number for level in levels for _ in range(min(level.slots, most))][:most]


def check_ascending(step: int, earlier: int, /) -> None:
    """Raise BadInput if the step of a call of `at` is smaller than that of an earlier call."""
    if step < earlier:
        raise BadInput(
            f"step {step} comes before step {earlier} of an earlier call; call `at` with steps in"
            " ascending order"
        )


def space_for_one(chain: Chain, /) -> str:
    """Return the least that every planner of restart checkpoints needs, as words for messages."""
    return f"a level that can store one checkpoint of {chain.restart} bytes"


def candidates(platform: Platform, on: str | None, /) -> tuple[Level, ...]:
    """Return the levels that a one-level planner may write to: the level called `on`, or all."""
    levels = platform.levels if on is None else (platform.levels[platform.number(on)],)
    return tuple(level for level in levels if not level.read_only)


def nearest(
    levels: Sequence[Level], fits: Callable[[Level], bool], /, *, planner: str, needs: str
) -> Level:
    """Return the first level for which `fits` is true.

    The levels before it are ignored, and a warning in the log says so. Raises NoSchedule if no
    level fits; the message says that the planner `needs` this.
    """
    for passed, level in enumerate(levels):
        if fits(level):
            for nearer in levels[:passed]:
                note_ignored(nearer, planner)
            return level
    raise no_schedule(levels, f"{planner} needs {needs}")


def note_ignored(level: Level, planner: str, /) -> None:
    """Write a warning to the log: the level is too small for the planner, or read-only."""
    if _NOTED.get():
        few = f"its {level.capacity} bytes are too few"
        log.warning(
            "%s ignores level %s: %s", planner, level.name, "read-only" if level.read_only else few
        )


@contextmanager
def without_notes() -> Iterator[None]:
    """Suppress the warnings of `note_ignored`, for planners that another planner calls."""
    token = _NOTED.set(False)
    try:
        yield
    finally:
        _NOTED.reset(token)


def no_schedule(levels: Sequence[Level], needed: str, /) -> NoSchedule:
    """Return the error that says what is needed, what each level offers, and the remedy."""
    offers = ", ".join(f"{level.name} offers {level.capacity}" for level in levels)
    return NoSchedule(
        f"{needed}; {offers or 'the platform has no level'}: give a level more capacity, or use a"
        " planner that stores less"
    )


def alike(chain: Chain, /, *, planner: str) -> None:
    """Raise BadInput for a chain whose steps differ, because `planner` assumes equal steps."""
    if chain.varies:
        raise BadInput(
            f"{planner} plans for steps that are all alike, but the steps of this chain differ: use"
            " hrevolve, mixed or auto"
        )


def held_steps(chain: Chain, platform: Platform, /) -> int:
    """Return the number of steps whose tapes fit in the working memory together.

    Raises NoSchedule if the tape of one step does not fit.
    """
    held = platform.tapes(chain)
    if held == 0:
        needed = chain.largest("tape")
        raise NoSchedule(
            f"no step can be reversed: its tape takes {needed} bytes, the working memory has"
            f" {platform.working_memory}; raise `working_memory`"
        )
    return held


def held_ends(chain: Chain, platform: Platform, /) -> Ints:
    """Return for each step i the end of the steps from i whose tapes fit in the working memory.

    For example, tapes of 1, 2 and 3 bytes, of which 4 bytes fit:

    >>> chain = Chain(
    ...     steps=3, advance=1, record=1, reverse=1, restart=1, tape=np.array([1, 2, 3]), adjoint=1
    ... )
    >>> held_ends(chain, Platform((), working_memory=4)).tolist()
    [2, 2, 3]
    """
    if platform.working_memory is None:
        return np.full(chain.length, chain.length)
    before = np.append(0, np.cumsum(chain.each("tape")))
    memory = min(platform.working_memory, int(before[-1]))
    return np.searchsorted(before, before[:-1] + memory, side="right") - 1
