"""The protocol of a planner, and the slots of levels, which all planners ask for."""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final, Protocol

from ckio.actions import Kind
from ckio.errors import BadInput, NoSchedule
from ckio.platform import Level, Platform, copies
from ckio.platform.chain import Chain
from ckio.schedule import Schedule

log = logging.getLogger("ckio")

_NOTED: Final = ContextVar("noted", default=True)


class Planner(Protocol):
    """Pure: the same inputs give the same schedule, on every rank.

    Raises NoSchedule where n > 1 and no level can serve it, or the working memory cannot hold the
    tape of one step.
    """

    def __call__(self, chain: Chain, platform: Platform, /) -> Schedule: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """The slots of a level for restart checkpoints, and their costs.

    Attributes
    ----------
    number : int
        Of the level, in the platform.
    slots : int
        Checkpoints that it holds at a time; never more than a chain has use for.
    write : float
        Seconds to write one, and to discard it later: each is written once and discarded once.
    read : float
        Seconds to read one.
    """

    number: int
    slots: int
    write: float
    read: float


def rooms(chain: Chain, platform: Platform, /, *, planner: str) -> list[Room]:
    """Return the slots of each level for restart checkpoints, nearest first.

    A level that cannot hold one is left out, with a note in the log. Raises NoSchedule where none
    is left.
    """
    nbytes = chain.restart
    usable = [level for level in platform.levels if level.slots(nbytes, 1)]
    if not usable:
        raise no_schedule(platform.levels, f"{planner} needs {room_for_one(chain)}")
    for level in platform.levels:
        if level not in usable:
            note_ignored(level, planner)
    return [
        Room(
            number=number,
            slots=level.slots(nbytes, chain.length - 1),
            write=level.write(moved) + level.discard(nbytes),
            read=level.read(moved),
        )
        for level in usable
        for number in [platform.number(level.name)]
        for moved in [nbytes * copies(chain, platform, number, Kind.RESTART)]
    ]


def room_for_one(chain: Chain, /) -> str:
    """Return the least that every planner of restart checkpoints needs, for messages."""
    return f"a level with room for one checkpoint of {chain.restart} bytes"


def candidates(platform: Platform, on: str | None, /) -> tuple[Level, ...]:
    """Return the levels that a one-level planner may write to: the one called `on`, or else any."""
    levels = platform.levels if on is None else (platform.levels[platform.number(on)],)
    return tuple(level for level in levels if not level.read_only)


def nearest(
    levels: Sequence[Level], fits: Callable[[Level], bool], /, *, planner: str, needs: str
) -> Level:
    """The first level that `fits`; those before it are ignored, with a note in the log.

    Raises NoSchedule, saying what the planner `needs`, where none fits.
    """
    for passed, level in enumerate(levels):
        if fits(level):
            for nearer in levels[:passed]:
                note_ignored(nearer, planner)
            return level
    raise no_schedule(levels, f"{planner} needs {needs}")


def note_ignored(level: Level, planner: str, /) -> None:
    """Say once that a level is too small for what a planner wants of it."""
    if _NOTED.get():
        log.warning(
            "%s ignores level %s: %s bytes are too few", planner, level.name, level.capacity
        )


@contextmanager
def without_notes() -> Iterator[None]:
    """Leave out what `note_ignored` says: of planners that are asked on behalf of another."""
    token = _NOTED.set(False)
    try:
        yield
    finally:
        _NOTED.reset(token)


def no_schedule(levels: Sequence[Level], needed: str, /) -> NoSchedule:
    """The error that says what is needed, what each level offers, and what to do."""
    offers = ", ".join(f"{level.name} offers {level.capacity}" for level in levels)
    return NoSchedule(
        f"{needed}; {offers or 'the platform has no level'}: give a level more capacity, or use a"
        " planner that stores less"
    )


def alike(chain: Chain, /, *, planner: str) -> None:
    """Raise BadInput for a chain whose steps differ, which `planner` would treat as all alike."""
    if chain.varies:
        raise BadInput(
            f"{planner} plans for steps that are all alike, and those of this chain differ: use"
            " hrevolve, mixed or auto"
        )


def tapes(chain: Chain, platform: Platform, /) -> int:
    """How many steps' tape the working memory holds; raises NoSchedule where not even one."""
    held = platform.tapes(chain)
    if held == 0:
        needed = chain.largest("tape")
        raise NoSchedule(
            f"no step can be reversed: its tape takes {needed} bytes, the working memory has"
            f" {platform.working_memory}; raise `working_memory`"
        )
    return held
