"""Conversion of schedules between ckio and checkpoint_schedules, in both directions.

In checkpoint_schedules a checkpoint is stored by the Forward that begins at its step, and can be
used for the steps of this Forward. For example, a checkpoint of step 3 that Forward(3, 7) stored
can be loaded only if the adjoint is at step 7 or before:

    Write x_3 in RAM, Advance(3, 5), Advance(5, 7)      Forward(3, 7, True, False, RAM)
    Read x_3 in RAM, Write x_3 on DISK, Advance(3, 5)   Copy(3, RAM, WORK), Forward(3, 5, ..., DISK)
    Read x_3 in RAM, Discard x_3 in RAM, Record(3, 4)   Move(3, RAM, WORK), Forward(3, 4, ..., WORK)
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any, NoReturn

from checkpoint_schedules import (
    CheckpointSchedule,
    Copy,
    EndForward,
    EndReverse,
    Forward,
    Move,
    StorageType,
)
from checkpoint_schedules import Reverse as Back

from ckio.actions import Action, Advance, Discard, Key, Kind, Read, Record, Reverse, Write
from ckio.errors import BadInput, IllegalAction
from ckio.platform import Level, Platform
from ckio.platform.chain import Chain
from ckio.schedule import Schedule, counts
from ckio.schedule.replay import validate

__all__ = ["CkioSchedule", "as_checkpoint_schedule", "from_checkpoint_schedule"]

_RAM, _DISK, _WORK = StorageType.RAM, StorageType.DISK, StorageType.WORK


def _storages(platform: Platform) -> list[StorageType]:
    """Return the storage of each level: RAM for the backend `ram`, and for level 0 without one."""
    return [
        _RAM if (level.backend or ("" if number else "ram")) == "ram" else _DISK
        for number, level in enumerate(platform.levels)
    ]


class CkioSchedule(CheckpointSchedule):  # type: ignore[misc]  # which ships no types
    """A schedule of ckio as a `CheckpointSchedule`: an iterator that can be used once.

    Attributes
    ----------
    actions : tuple of CheckpointAction
        All actions that it yields.
    """

    def __init__(self, steps: int, actions: Sequence[Any], /) -> None:
        super().__init__(steps)
        self.actions = tuple(actions)
        self._exhausted = False

    def _iterator(self) -> Iterator[Any]:
        for action, following in zip_longest(self.actions, self.actions[1:]):
            match action:
                case Forward(n1=end):
                    self._n = end
                case Copy() | Move():
                    is_tape = isinstance(following, Back)
                    self._n = following.n1 if is_tape else action.n
                case Back(n0=begin):
                    self._r = self.max_n - begin
                case EndReverse():
                    self._exhausted = True
                case _:
                    pass
            yield action

    @property
    def is_exhausted(self) -> bool:
        """Whether the adjoint is complete. Another adjoint needs another object."""
        return self._exhausted

    def uses_storage_type(self, storage_type: StorageType) -> bool:
        """Return whether any action uses this storage."""
        return any(storage_type in action.args for action in self.actions)


def as_checkpoint_schedule(schedule: Schedule, platform: Platform | None = None, /) -> CkioSchedule:
    """Return a schedule of ckio as a CheckpointSchedule, with the same steps, reads and writes.

    A step that is recorded, but neither reversed nor stored next, is a plain Forward.

    Parameters
    ----------
    schedule : Schedule
        A whole adjoint with a known number of steps, which stores whole states and tapes only.
    platform : Platform, optional
        Levels with the backend `ram` are RAM, and all others are DISK. A level 0 without a backend
        is RAM. By default level 0 is RAM and all others are DISK.

    Raises
    ------
    IllegalAction
        The schedule is not legal, on the platform if it is given.
    BadInput
        The schedule begins with stored checkpoints, does not reverse all steps, or has an action
        without a counterpart. The message names the action.
    """
    levels = (Level(name=f"level{number}") for number in range(len(counts(schedule).levels)))
    platform = Platform(tuple(levels)) if platform is None else platform
    if any(schedule.stored) or validate(schedule, platform).adjoint:
        raise BadInput(
            "a CheckpointSchedule begins with nothing stored and reverses every step, but this"
            " schedule does not; convert the schedule of the whole run"
        )
    translation = _Translation(schedule, _storages(platform), adjoint=schedule.chain.length)
    actions = list(schedule.actions)
    for number, (action, following) in enumerate(zip_longest(actions, actions[1:])):
        translation.follow(number, action, following)
    translation.check_written()
    translation.add(EndReverse())
    return CkioSchedule(schedule.chain.length, translation.actions)


@dataclass(slots=True)
class _Translation:
    """The actions so far, and the data in the storages and in working memory after them."""

    schedule: Schedule
    storages: Sequence[StorageType]
    adjoint: int
    actions: list[Any] = field(default_factory=list)
    stored: dict[tuple[StorageType, int], int] = field(default_factory=dict)
    """The last step up to which each checkpoint can be used, by storage and step."""
    state: int | None = 0
    tape: range = range(0)
    has_ended: bool = False
    write: tuple[int, StorageType] | None = None
    """The number of the Write of the present state, and its storage, until the next Forward."""

    def follow(self, number: int, action: Action, following: Action | None) -> None:
        """Translate an action."""
        match action, following:
            case Record(begin, end), Reverse() | Write(Key(Kind.TAPE)):
                self.check_written(" without a tape")
                self.forward(number, begin, end, tape=True)
            case Advance(begin, end) | Record(begin, end), _:
                self.advance(number, begin, end)
            case Reverse(begin, end), _:
                self.reverse(number, begin, end)
            case Write(key, level), _:
                self.store(number, key, self.storages[level])
            case Read(key, level), _:
                self.load(number, key, self.storages[level], move=following == Discard(key, level))
            case Discard(key, level), _:
                is_last = self.schedule.actions[number - 1] == Read(key, level)
                if self.adjoint and not is_last:  # at the end, nothing has to be deleted
                    self.refuse(number, "a checkpoint is deleted only by its last read")

    def advance(self, number: int, begin: int, end: int) -> None:
        match self.actions[-1:]:
            case [Forward(write_adj_deps=False) as last] if not self.write and end <= self.adjoint:
                self.actions[-1] = Forward(last.n0, end, last.write_ics, False, last.storage)
                if last.write_ics:
                    self.stored[last.storage, last.n0] = end
                self.state = end
            case _:
                self.forward(number, begin, end, tape=False)

    def forward(self, number: int, begin: int, end: int, *, tape: bool) -> None:
        if self.state != begin or end > self.adjoint:
            self.refuse(number, f"no Forward can advance from step {begin} to {end} here")
        (_, storage), self.write = self.write or (None, _WORK), None
        self.add(Forward(begin, end, storage is not _WORK, tape, storage))
        self.state, self.tape = end, range(begin, end if tape else begin)
        if storage is not _WORK:
            self.put(number, storage, begin, end)

    def reverse(self, number: int, begin: int, end: int) -> None:
        if not self.tape.start <= begin < end <= self.tape.stop:
            self.refuse(number, "this tape is not in working memory any more")
        self.adjoint, self.tape = begin, range(self.tape.start, begin)
        self.add(Back(end, begin, not self.tape))

    def store(self, number: int, key: Key, storage: StorageType) -> None:
        if key == Key(Kind.RESTART, key.step) and not self.write:
            self.write = number, storage
        elif key == Key(Kind.TAPE, key.step) and self.tape == range(key.step, key.step + 1):
            self.put(number, storage, key.step, key.step + 1)
            self.tape = range(0)
            self.actions[-1] = Forward(key.step, key.step + 1, False, True, storage)
        else:
            self.refuse(
                number, "a whole state is stored by one Forward, and a tape when it is recorded"
            )

    def load(self, number: int, key: Key, storage: StorageType, *, move: bool) -> None:
        self.check_written()
        step, is_tape, until = key.step, key.kind is Kind.TAPE, self.stored[storage, key.step]
        if self.tape:
            self.refuse(number, "no checkpoint can be loaded while a tape is in working memory")
        if step >= self.adjoint:
            self.refuse(number, "the step is already reversed")
        if until < self.adjoint and not is_tape:
            self.refuse(
                number,
                f"its checkpoint can be used only up to step {until}, but the adjoint is at step"
                f" {self.adjoint}",
            )
        self.add((Move if move else Copy)(step, storage, _WORK))
        self.state, self.tape = (None, range(step, step + 1)) if is_tape else (step, range(0))
        if move:
            del self.stored[storage, step]

    def put(self, number: int, storage: StorageType, step: int, until: int) -> None:
        if (storage, step) in self.stored:
            self.refuse(number, f"{storage.name} would have two checkpoints of step {step}")
        self.stored[storage, step] = until

    def check_written(self, which: str = "") -> None:
        if self.write:
            why = f"only a Forward{which} can store the state, and none begins at this step"
            self.refuse(self.write[0], why)

    def add(self, action: Any) -> None:
        if self.state == self.schedule.chain.length and not self.has_ended:
            self.has_ended = True
            self.actions.append(EndForward())
        self.actions.append(action)

    def refuse(self, number: int, why: str) -> NoReturn:
        raise BadInput(
            f"checkpoint_schedules has no counterpart of #{number} {self.schedule.actions[number]}:"
            f" {why}; use another planner"
        )


def from_checkpoint_schedule(theirs: Any, chain: Chain, platform: Platform, /) -> Schedule:
    """Return a schedule of checkpoint_schedules as a legal schedule of ckio, action for action.

    It is converted up to its first EndReverse. Then the checkpoints that it never deletes are
    discarded.

    Parameters
    ----------
    theirs : CheckpointSchedule
        A new schedule, of which no action has been read. It cannot be used again, unless it comes
        from `as_checkpoint_schedule`.
    chain : Chain
        Number and costs of the steps, and sizes of their checkpoints.
    platform : Platform
        The levels on which the result must be legal. RAM is the first level with the backend `ram`,
        or else a level 0 without a backend. DISK is the first level that is not RAM.

    Raises
    ------
    BadInput
        The schedule was begun before, has another number of steps, never reverses, or uses a
        storage that has no level. Or its checkpoints do not fit into the capacities, or its tapes
        into the working memory.
    """
    name = type(theirs).__name__
    if theirs.max_n not in {None, chain.length}:
        raise BadInput(
            f"{name} has {theirs.max_n} steps, but the chain has {chain.length}; give both the same"
            " number"
        )
    reading = _Reading(theirs, chain.length, _storages(platform), name)
    schedule = Schedule(chain, list(reading.actions()), note=f"{name} of checkpoint_schedules")
    try:
        adjoint = validate(schedule, platform).adjoint
    except IllegalAction as error:
        raise BadInput(f"{name} does not fit: {error}") from error
    if adjoint:
        raise BadInput(f"{name} ends with the adjoint at step {adjoint}; it must reverse all steps")
    return schedule


@dataclass(slots=True)
class _Reading:
    """The actions of `theirs` as actions of ckio."""

    theirs: Any
    length: int
    storages: Sequence[StorageType]
    name: str
    stored: dict[tuple[StorageType, int], tuple[Key, ...]] = field(default_factory=dict)

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
                    for (storage, _), keys in self.stored.items():
                        yield from (Discard(key, self._level(storage)) for key in keys)
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

    def _level(self, storage: StorageType) -> int:
        """Return the number of the level of a storage; raises BadInput if there is none."""
        if storage not in self.storages:
            raise BadInput(
                f"{self.name} stores checkpoints in {storage.name}, but no level of the platform is"
                " one; give it such a level"
            )
        return self.storages.index(storage)

    def _forward(self, action: Any) -> Iterator[Action]:
        begin, end, storage = action.n0, min(action.n1, self.length), action.storage
        keys = [Key(Kind.RESTART, begin)] if action.write_ics else []
        for key in keys:
            yield Write(key, self._level(storage))
        if not action.write_adj_deps:
            yield Advance(begin, end)
        elif storage is _WORK:
            yield Record(begin, end)
        else:
            for step in range(begin, end):
                keys.append(Key(Kind.TAPE, step))
                yield Record(step, step + 1)
                yield Write(keys[-1], self._level(storage))
        if keys:
            self.stored[storage, begin] = tuple(keys)

    def _fetch(self, action: Any) -> Iterator[Action]:
        source, target = action.from_storage, action.to_storage
        keys = self.stored[source, action.n]
        if sum(key.kind is Kind.TAPE for key in keys) > 1:
            self._refuse(action, "ckio cannot load tapes of several steps together")
        if isinstance(action, Move):
            del self.stored[source, action.n]
        if target in {_RAM, _DISK}:
            self.stored[target, action.n] = keys
        for key in keys:
            if target is not StorageType.NONE:
                yield Read(key, self._level(source))
            if target in {_RAM, _DISK}:
                yield Write(key, self._level(target))
            if isinstance(action, Move):
                yield Discard(key, self._level(source))

    def _refuse(self, action: Any, why: str) -> NoReturn:
        raise BadInput(f"{self.name}: {action}: {why}")
