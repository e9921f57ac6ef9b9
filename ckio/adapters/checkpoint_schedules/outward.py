"""Conversion of a schedule of ckio to a `CheckpointSchedule` for pyadjoint and tlm_adjoint.

In checkpoint_schedules a checkpoint is stored by the Forward that begins at its step, and can be
used for the steps of this Forward. For example, a checkpoint of step 3 that Forward(3, 7) stored
can be loaded only if the adjoint is at step 7 or before:

    Write x_3 in RAM, Advance(3, 5), Advance(5, 7)      Forward(3, 7, True, False, RAM)
    Read x_3 in RAM, Write x_3 on DISK, Advance(3, 5)   Copy(3, RAM, WORK), Forward(3, 5, ..., DISK)
    Read x_3 in RAM, Discard x_3 in RAM, Record(3, 4)   Move(3, RAM, WORK), Forward(3, 4, ..., WORK)
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any, Final, NoReturn

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
from ckio.actions.columns import KIND_CODE, WRITE
from ckio.adapters.checkpoint_schedules.simplify import simplify
from ckio.errors import BadInput
from ckio.platform import Level, Platform
from ckio.schedule import Schedule, counts
from ckio.schedule.replay import validate

STORED: Final = (StorageType.RAM, StorageType.DISK)
"""The storages, in the order of the numbers that this package uses for them."""


class CkioSchedule(CheckpointSchedule):  # type: ignore[misc]  # which ships no types
    """A schedule of ckio as a `CheckpointSchedule`.

    It is an iterator, like all classes of checkpoint_schedules. Once it is exhausted, a new loop
    starts it again.

    Attributes
    ----------
    schedule : Schedule
        The schedule of ckio.
    actions : tuple of CheckpointAction
        All actions that it yields.
    """

    def __init__(self, schedule: Schedule, places: Mapping[int, StorageType], /) -> None:
        super().__init__(schedule.chain.length)
        self.schedule = schedule
        self.actions = _translate(schedule, places)
        self._exhausted = False

    def __iter__(self) -> Iterator[Any]:
        if self._exhausted:
            del self.iter  # the base class stores the generator in this attribute
            self._n, self._r, self._exhausted = 0, 0, False
        return self

    def _iterator(self) -> Iterator[Any]:
        for action, following in zip_longest(self.actions, self.actions[1:]):
            match action:
                case Forward(n1=end):
                    self._n = end
                case Copy() | Move():
                    is_tape = isinstance(following, Back)
                    self._n = following.n1 if is_tape else action.n
                case Back(n0=begin):
                    self._r = self.schedule.chain.length - begin
                case EndReverse():
                    self._exhausted = True
                case _:
                    pass
            yield action

    @property
    def is_exhausted(self) -> bool:
        """Whether the adjoint is complete. Another adjoint needs a new loop."""
        return self._exhausted

    @property
    def is_running(self) -> bool:
        """Whether it has yielded an action."""
        return hasattr(self, "iter")

    def uses_storage_type(self, storage_type: StorageType) -> bool:
        """Return whether any action uses this storage."""
        return any(storage_type in action.args for action in self.actions)


def as_checkpoint_schedule(
    schedule: Schedule,
    platform: Platform | None = None,
    /,
    *,
    storage: Mapping[int, StorageType] | None = None,
) -> CkioSchedule:
    """Return a schedule of ckio as a CheckpointSchedule.

    The schedule must have a known number of steps, and store whole states and tapes only. Forward
    steps, reads and writes are the same, with these exceptions. A checkpoint that is never read is
    not written, and a checkpoint is deleted after its last read. A checkpoint on two levels of one
    storage is stored once. A step that is recorded, but neither reversed nor stored, is a plain
    Forward.

    Parameters
    ----------
    schedule : Schedule
    platform : Platform, optional
        If given, the schedule must be legal on it. Levels with the backend `ram` are RAM, and all
        others are DISK.
    storage : mapping of int to StorageType, optional
        The storage of each level. By default level 0 is RAM and all others are DISK.

    Raises
    ------
    IllegalAction
        The schedule is not legal.
    BadInput
        The schedule begins with stored checkpoints, does not reverse all steps, or has an action
        without a counterpart. The message names the action.
    """
    used = len(counts(schedule).levels)
    keys = schedule.actions.take(schedule.actions.op >= WRITE)
    if any(schedule.stored):
        raise BadInput(
            "a CheckpointSchedule begins with nothing stored, but this schedule begins with stored"
            " checkpoints; convert the schedule of the whole run"
        )
    unlimited = Platform(tuple(Level(name=f"level{number}") for number in range(used)))
    if keys.name.any() or (keys.kind == KIND_CODE[Kind.ADJOINT]).any():
        raise BadInput(
            "a CheckpointSchedule stores whole states and tapes only; use a planner that does"
        )
    if validate(schedule, platform or unlimited).adjoint:
        raise BadInput(
            "a CheckpointSchedule reverses every step, but this schedule does not; convert the"
            " schedule of the whole run"
        )
    return CkioSchedule(schedule, _storage(used, platform, storage))


def _storage(
    used: int, platform: Platform | None, given: Mapping[int, StorageType] | None
) -> dict[int, StorageType]:
    """Return the storage type of each level; raises BadInput."""
    types = dict(given) if given is not None else {}
    for level in range(used) if given is None else ():
        backend = platform.levels[level].backend if platform else ""
        near = backend == "ram" if backend else level == 0
        types[level] = StorageType.RAM if near else StorageType.DISK
    for level in range(used):
        if types.get(level) not in {StorageType.RAM, StorageType.DISK}:
            raise BadInput(f"storage: level {level} is {types.get(level)}; it must be RAM or DISK")
    return types


@dataclass(slots=True)
class _Translation:
    """The actions so far, and what is in the storages and in the working memory after them."""

    schedule: Schedule
    actions: list[Any] = field(default_factory=list)
    stored: dict[tuple[int, int], int] = field(default_factory=dict)
    """The last step up to which each checkpoint can be used, by storage and step."""
    adjoint: int = field(init=False)
    state: int | None = 0
    tape: range = range(0)
    has_ended: bool = False
    write: tuple[int, int] | None = None
    """The number of the Write of the present state, and its storage, until the next Forward."""

    def __post_init__(self) -> None:
        self.adjoint = self.schedule.chain.length

    def follow(self, number: int, action: Action, following: Action | None) -> None:
        """Translate an action; the one that follows it says whether a Read is the last."""
        match action:
            case Advance(begin, end):
                self.advance(number, begin, end)
            case Record(begin, end):
                self.check_written(" without a tape")
                self.forward(number, begin, end, tape=True)
            case Reverse(begin, end):
                self.reverse(number, begin, end)
            case Write(key, place):
                self.store(number, key, place)
            case Read(key, place):
                self.load(number, key, place, is_last=following == Discard(key, place))
            case Discard():
                pass  # the Read before it is a Move

    def advance(self, number: int, begin: int, end: int) -> None:
        match self.actions[-1:]:
            case [Forward(write_adj_deps=False) as last] if not self.write and end <= self.adjoint:
                self.actions[-1] = Forward(last.n0, end, last.write_ics, False, last.storage)
                if last.write_ics:
                    self.stored[STORED.index(last.storage), last.n0] = end
                self.state = end
            case _:
                into, self.write = self.write[1] if self.write else None, None
                self.forward(number, begin, end, into=into)

    def forward(
        self, number: int, begin: int, end: int, *, into: int | None = None, tape: bool = False
    ) -> None:
        if self.state != begin or end > self.adjoint:
            self.refuse(number, f"no Forward can advance from step {begin} to {end} here")
        storage = StorageType.WORK if into is None else STORED[into]
        self.add(Forward(begin, end, into is not None, tape, storage))
        self.state, self.tape = end, range(begin, end if tape else begin)
        if into is not None:
            self.put(number, into, begin, end)

    def reverse(self, number: int, begin: int, end: int) -> None:
        if not self.tape.start <= begin < end <= self.tape.stop:
            self.refuse(number, "this tape is not in working memory any more")
        self.adjoint, self.tape = begin, range(self.tape.start, begin)
        self.add(Back(end, begin, not self.tape))

    def store(self, number: int, key: Key, place: int) -> None:
        if key.kind is Kind.RESTART and not self.write:
            self.write = number, place
        elif key.kind is Kind.TAPE and self.tape == range(key.step, key.step + 1):
            self.put(number, place, key.step, key.step + 1)
            self.tape = range(0)
            self.actions[-1] = Forward(key.step, key.step + 1, False, True, STORED[place])
        else:
            self.refuse(number, "a state is stored by one Forward, and a tape when it is recorded")

    def load(self, number: int, key: Key, place: int, *, is_last: bool) -> None:
        self.check_written()
        step, is_tape, until = key.step, key.kind is Kind.TAPE, self.stored[place, key.step]
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
        self.add((Move if is_last else Copy)(step, STORED[place], StorageType.WORK))
        self.state, self.tape = (None, range(step, step + 1)) if is_tape else (step, range(0))
        if is_last:
            del self.stored[place, step]

    def put(self, number: int, place: int, step: int, until: int) -> None:
        if (place, step) in self.stored:
            self.refuse(number, f"{STORED[place].name} would have two checkpoints of step {step}")
        self.stored[place, step] = until

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


def _translate(schedule: Schedule, places: Mapping[int, StorageType]) -> tuple[Any, ...]:
    """Return all CheckpointActions; raises BadInput for an action without a counterpart."""
    translation = _Translation(schedule)
    levels = {level: STORED.index(place) for level, place in places.items()}
    actions = simplify(schedule, levels)
    following = *(action for _, action in actions[1:]), None
    for (number, action), after in zip(actions, following, strict=True):
        translation.follow(number, action, after)
    translation.check_written()
    translation.add(EndReverse())
    return tuple(translation.actions)
