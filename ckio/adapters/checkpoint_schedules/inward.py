"""Conversion of a schedule of checkpoint_schedules to one of ckio."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

from checkpoint_schedules import Copy, EndForward, EndReverse, Forward, Move, StorageType
from checkpoint_schedules import Reverse as Back

from ckio.actions import Action, Advance, Discard, Key, Kind, Read, Record, Reverse, Write
from ckio.adapters.checkpoint_schedules.outward import STORED, CkioSchedule
from ckio.adapters.checkpoint_schedules.simplify import simplify
from ckio.errors import BadInput, IllegalAction
from ckio.platform import Platform
from ckio.platform.chain import Chain
from ckio.schedule import Schedule
from ckio.schedule.replay import validate


def from_checkpoint_schedule(
    theirs: Any,
    chain: Chain,
    platform: Platform,
    /,
    *,
    levels: Mapping[StorageType, int] | None = None,
) -> Schedule:
    """Return a schedule of checkpoint_schedules as a legal schedule of ckio.

    It is converted up to its first EndReverse. A write is left out if the checkpoint is stored
    already, or is never read. A checkpoint is discarded after its last read, even if the original
    schedule discards it later or never. The note of the schedule counts the writes left out.

    Parameters
    ----------
    theirs : CheckpointSchedule
        A new schedule, of which no action has been read. It cannot be used again, unless it comes
        from `as_checkpoint_schedule`.
    chain : Chain
        Number and costs of the steps, and sizes of their checkpoints.
    platform : Platform
        The levels on which the result must be legal.
    levels : mapping of StorageType to int, optional
        The levels of RAM and DISK. By default RAM is the first level of backend `ram`, or level 0
        if there is none, and DISK is the first other level that is not of backend `ram`.

    Raises
    ------
    BadInput
        The schedule was begun before, has another number of steps, never reverses, or uses a
        storage that has no level. Or its checkpoints do not fit into the capacities, or its tapes
        into the working memory.
    """
    numbers = _levels(platform) if levels is None else dict(levels)
    for storage, number in numbers.items():
        if storage not in STORED or not 0 <= number < len(platform.levels):
            raise BadInput(
                f"levels: {storage!r} is level {number}; it must be RAM or DISK, on a level from 0"
                f" to {len(platform.levels) - 1}"
            )
    reading = _Reading(theirs, chain.length)
    schedule = _on_levels(Schedule(chain, reading.actions()), reading, numbers)
    try:
        adjoint = validate(schedule, platform).adjoint
    except IllegalAction as error:
        raise BadInput(f"{reading.name} does not fit: {error}") from error
    if adjoint:
        raise BadInput(
            f"{reading.name} ends with the adjoint at step {adjoint}; it must reverse all steps"
        )
    return schedule


def _levels(platform: Platform) -> dict[StorageType, int]:
    """Return the default levels of RAM and DISK."""
    numbers = range(len(platform.levels))
    ram = next((number for number in numbers if platform.levels[number].backend == "ram"), 0)
    disk = (n for n in numbers if n != ram and platform.levels[n].backend != "ram")
    return dict(zip(STORED, (ram, *disk), strict=False))


@dataclass(slots=True)
class _Reading:
    """The actions of `theirs` as actions of ckio, where RAM is level 0 and DISK is level 1."""

    theirs: Any
    length: int
    name: str = field(init=False)
    stored: dict[tuple[StorageType, int], tuple[Key, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.name = type(self.theirs).__name__
        known = self.theirs.max_n
        if known not in {None, self.length}:
            raise BadInput(
                f"{self.name} has {known} steps, but the chain has {self.length}; give both the"
                " same number"
            )

    def actions(self) -> Iterator[Action]:
        for action in self._originals():
            match action:
                case Forward():
                    yield from self._forward(action)
                case Back():
                    yield Reverse(action.n0, action.n1)
                case Copy() | Move():
                    yield from self._fetch(action)
                case EndForward():
                    pass
                case EndReverse():
                    return
                case _:
                    self._refuse(action, "it is not an action of checkpoint_schedules")
        raise BadInput(f"{self.name} ends without an EndReverse; give a schedule with an adjoint")

    def _originals(self) -> Iterator[Any]:
        """Yield the actions of `theirs`. Finalize it at the last step if its length is unknown."""
        if isinstance(self.theirs, CkioSchedule):
            yield from self.theirs.actions
            return
        if hasattr(self.theirs, "iter") or self.theirs.n or self.theirs.r:
            raise BadInput(f"{self.name} was begun before; make a new one")
        for action in self.theirs:
            yield action
            if isinstance(action, Forward) and action.n1 >= self.length and not self.theirs.max_n:
                self.theirs.finalize(self.length)

    def _forward(self, action: Any) -> Iterator[Action]:
        begin, end = action.n0, min(action.n1, self.length)
        stores = action.storage in STORED
        keys = [Key(Kind.RESTART, begin)] if action.write_ics else []
        if keys and not stores:
            self._refuse(action, "restart data can be stored only in RAM or on DISK")
        for key in keys:
            yield Write(key, STORED.index(action.storage))
        if not action.write_adj_deps:
            yield Advance(begin, end)
        elif not stores:
            yield Record(begin, end)
        else:
            for step in range(begin, end):
                keys.append(Key(Kind.TAPE, step))
                yield Record(step, step + 1)
                yield Write(keys[-1], STORED.index(action.storage))
        if keys:
            self.stored[action.storage, begin] = tuple(keys)

    def _fetch(self, action: Any) -> Iterator[Action]:
        source, target = action.from_storage, action.to_storage
        keys = self.stored.get((source, action.n))
        if keys is None:
            self._refuse(action, f"this storage has no checkpoint of step {action.n}")
        if sum(key.kind is Kind.TAPE for key in keys) > 1:
            self._refuse(action, "ckio cannot load tapes of several steps together")
        if isinstance(action, Move):
            del self.stored[source, action.n]
        if target in STORED:
            self.stored[target, action.n] = keys
        for key in keys:
            if target is not StorageType.NONE:
                yield Read(key, STORED.index(source))
            if target in STORED:
                yield Write(key, STORED.index(target))
            if isinstance(action, Move):
                yield Discard(key, STORED.index(source))

    def _refuse(self, action: Any, why: str) -> NoReturn:
        raise BadInput(f"{self.name}: {action}: {why}")


def _on_levels(
    original: Schedule, reading: _Reading, levels: Mapping[StorageType, int]
) -> Schedule:
    """Return the schedule on the levels of the platform, without useless reads and writes."""
    used = {action.level for action in original.actions if isinstance(action, Write)}
    for place in used:
        if STORED[place] not in levels:
            raise BadInput(
                f"{reading.name} stores checkpoints in {STORED[place].name}; give the number of"
                f" its level: levels={{StorageType.{STORED[place].name}: ...}}"
            )
    actions = simplify(original, {place: levels[STORED[place]] for place in used})
    writes = _writes(original.actions) - _writes(action for _, action in actions)
    note = (
        f"{reading.name} of checkpoint_schedules; left out {writes} writes of checkpoints that were"
        " stored already or are never read; each checkpoint is discarded after its last read"
    )
    return Schedule(original.chain, [action for _, action in actions], note=note)


def _writes(actions: Iterable[Action]) -> int:
    return sum(isinstance(action, Write) for action in actions)
