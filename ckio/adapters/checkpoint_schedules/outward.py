"""A schedule of ckio as a `CheckpointSchedule`: for pyadjoint, tlm_adjoint and all who ask for one.

What the actions become is in `translation.py`; this is the object that yields them.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from checkpoint_schedules import (
    CheckpointSchedule,
    Copy,
    EndReverse,
    Forward,
    Move,
    StorageType,
)

from ckio.actions import Kind
from ckio.actions.columns import KIND_CODE, WRITE
from ckio.adapters.checkpoint_schedules.translation import Translation
from ckio.errors import BadInput
from ckio.platform import Level, Platform
from ckio.schedule import Schedule, counts
from ckio.schedule.replay import validate


class CkioSchedule(CheckpointSchedule):  # type: ignore[misc]  # which ships no types
    """A schedule of ckio in the words of checkpoint_schedules.

    It is an iterator, as all of theirs are; once it is exhausted, a new loop begins anew.

    Attributes
    ----------
    schedule : Schedule
        What it says.
    actions : tuple of CheckpointAction
        All that it yields.
    """

    def __init__(self, schedule: Schedule, places: Mapping[int, StorageType], /) -> None:
        super().__init__(schedule.chain.length)
        self.schedule = schedule
        self._lines = Translation(schedule, places).lines()
        self.actions = tuple(line.action for line in self._lines)
        self._used = {place for action in self.actions for place in _places(action)}
        self._exhausted = False

    def __iter__(self) -> Iterator[Any]:
        if self._exhausted:
            del self.iter  # where the base class keeps the generator
            self._n, self._r, self._exhausted = 0, 0, False
        return self

    def _iterator(self) -> Iterator[Any]:
        for line in self._lines:
            self._n, self._r = line.n, line.r
            self._exhausted = isinstance(line.action, EndReverse)
            yield line.action

    @property
    def is_exhausted(self) -> bool:
        """Whether the adjoint has arrived; another is only for who begins anew."""
        return self._exhausted

    @property
    def is_running(self) -> bool:
        """Whether anything was yielded."""
        return hasattr(self, "iter")

    def uses_storage_type(self, storage_type: StorageType) -> bool:
        """Whether any action names it."""
        return storage_type in self._used


def as_checkpoint_schedule(
    schedule: Schedule,
    platform: Platform | None = None,
    /,
    *,
    storage: Mapping[int, StorageType] | None = None,
) -> CkioSchedule:
    """A schedule of ckio, of whole checkpoints and a known number of steps, as one of theirs.

    Its forward steps are the same, and so are the reads and writes, with these exceptions: what is
    never read is not written; what is on two levels of one storage is there once; what is read
    for the last time is deleted then; a state that is put away while others are copied from level
    to level stays where it is; and what is written to two storages at once, or between being read
    and recorded, is copied, which reads it once more. What is recorded and neither reversed nor
    stored is a Forward like any other.

    Parameters
    ----------
    schedule : Schedule
    platform : Platform, optional
        If given, the schedule must be legal on it, and levels of `ram` are RAM and others DISK.
    storage : mapping of int to StorageType, optional
        Which level is RAM and which is DISK; by default level 0 is RAM and all others are DISK.

    Raises
    ------
    IllegalAction
        It is not a legal schedule.
    BadInput
        It does not begin at the beginning and go back to it, or does what they have no word for:
        the message names the action.
    """
    used = len(counts(schedule).levels)
    keys = schedule.actions.take(schedule.actions.op >= WRITE)
    if any(schedule.stored):
        raise BadInput(
            "a CheckpointSchedule begins with nothing stored; this one goes on with some"
        )
    roomy = Platform(tuple(Level(name=f"level{number}") for number in range(used)))
    if keys.name.any() or (keys.kind == KIND_CODE[Kind.ADJOINT]).any():
        raise BadInput("a CheckpointSchedule stores whole states and tapes, and nothing else")
    if validate(schedule, platform or roomy).adjoint:
        raise BadInput("a CheckpointSchedule reverses every step; this one does not")
    return CkioSchedule(schedule, _storage(used, platform, storage))


def _storage(
    used: int, platform: Platform | None, given: Mapping[int, StorageType] | None
) -> dict[int, StorageType]:
    """Where each level is, for them; raises BadInput."""
    found = dict(given) if given is not None else {}
    for level in range(used) if given is None else ():
        near = platform.levels[level].backend == "ram" if platform else level == 0
        found[level] = StorageType.RAM if near else StorageType.DISK
    for level in range(used):
        if found.get(level) not in {StorageType.RAM, StorageType.DISK}:
            raise BadInput(f"storage: level {level} is {found.get(level)}; it must be RAM or DISK")
    return found


def _places(action: Any) -> tuple[StorageType, ...]:
    match action:
        case Forward():
            return (action.storage,)
        case Copy() | Move():
            return action.from_storage, action.to_storage
        case _:
            return ()
