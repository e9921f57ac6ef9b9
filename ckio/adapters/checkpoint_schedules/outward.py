"""Conversion of a schedule of ckio to a `CheckpointSchedule` for pyadjoint and tlm_adjoint.

In checkpoint_schedules, a checkpoint is stored by the Forward that begins at its step, and can be
used for the steps of this Forward. For example, a checkpoint of step 3 that Forward(3, 7) stored
can be loaded only if the adjoint is at step 7 or before. While a tape is in working memory, no
checkpoint can be loaded. Therefore `Translation` delays each action until the next ones are known.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Generic, NoReturn, TypeVar, assert_never

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

from ckio.actions import Advance, Discard, Key, Kind, Read, Record, Reverse, Write
from ckio.actions.columns import KIND_CODE, WRITE
from ckio.errors import BadInput
from ckio.platform import Level, Platform
from ckio.schedule import Schedule, counts
from ckio.schedule.replay import validate

_WORK = StorageType.WORK

Place = TypeVar("Place")


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
        self._lines = Translation(schedule, places).lines()
        self.actions = tuple(line.action for line in self._lines)
        self._used = {place for action in self.actions for place in _places(action)}
        self._exhausted = False

    def __iter__(self) -> Iterator[Any]:
        if self._exhausted:
            del self.iter  # the base class stores the generator in this attribute
            self._n, self._r, self._exhausted = 0, 0, False
        return self

    def _iterator(self) -> Iterator[Any]:
        for line in self._lines:
            self._n, self._r = line.n, line.r
            self._exhausted = isinstance(line.action, EndReverse)
            yield line.action

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
        return storage_type in self._used


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
    storage is stored once. A state that is stored while others are copied between levels stays on
    its level. A checkpoint that is written to two storages at the same time, or between its read
    and its record, is copied, which takes one more read. A step that is recorded, but neither
    reversed nor stored, is a plain Forward.

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


def _places(action: Any) -> tuple[StorageType, ...]:
    match action:
        case Forward():
            return (action.storage,)
        case Copy() | Move():
            return action.from_storage, action.to_storage
        case _:
            return ()


@dataclass(frozen=True, slots=True)
class Line:
    """A CheckpointAction. After it the forward is at step n, and r steps are reversed."""

    action: Any
    n: int
    r: int


@dataclass(slots=True)
class _PendingForward:
    """A Forward that is not emitted yet, because its next steps or a Write may follow."""

    begin: int
    end: int
    into: list[StorageType]
    tape: bool = False


@dataclass(frozen=True, slots=True)
class _PendingRead:
    """A Read that is not emitted yet, because its target depends on the next actions."""

    number: int
    key: Key
    place: StorageType
    last: bool


@dataclass(slots=True)
class Translation:
    """One pass over a legal schedule.

    `lines` raises BadInput for an action without a counterpart.
    """

    schedule: Schedule
    places: Mapping[int, StorageType]
    said: list[Line] = field(default_factory=list)
    stored: dict[tuple[StorageType, int], int] = field(default_factory=dict)
    """The last step up to which each checkpoint can be used, by storage and step."""
    state: int | None = 0
    tape: tuple[int, int] | None = None
    adjoint: int = field(init=False)
    n: int = 0
    turned: bool = False
    sweep: _PendingForward | None = None
    fetched: _PendingRead | None = None
    waiting: dict[StorageType, int] = field(default_factory=dict)
    """The storages to which the state or a fetched checkpoint must be written, and the number of
    the action that does so."""
    parked: dict[StorageType, int] = field(default_factory=dict)
    """`waiting` of a state that is read again after others were copied between levels."""
    moves: list[tuple[_PendingRead, StorageType]] = field(default_factory=list)
    """Copies between levels that follow the Forward that is not emitted yet."""
    now: int = 0

    def __post_init__(self) -> None:
        self.adjoint = self.schedule.chain.length

    def lines(self) -> tuple[Line, ...]:
        """Return all CheckpointActions, each with the steps n and r after it."""
        later = Later.of(self.schedule, self.places)
        for number, action in enumerate(self.schedule.actions):
            self.now = number
            match action:
                case Advance(begin, end):
                    self._forward(begin, end)
                case Record(begin, end) if number in later.taped:
                    self._record(begin, end)
                case Record(begin, end):
                    self._forward(begin, end)
                case Reverse(begin, end):
                    self._reverse(begin, end, clear=number in later.cleared)
                case Write(key, level) if number in later.written:
                    self._write(key, self.places[level])
                case Read(key, level) if number in later.read:
                    self._settle()
                    self._fetch(_PendingRead(number, key, self.places[level], number in later.last))
                case Write() | Read() | Discard():
                    pass  # unused checkpoints are not stored, and the last Read is a Move
                case _:
                    assert_never(action)
        self._settle()
        self._finish()
        self._check_stored()
        self._say(EndReverse())
        return tuple(self.said)

    def _say(self, action: Any) -> None:
        self.said.append(Line(action, self.n, self.schedule.chain.length - self.adjoint))

    def _forward(self, begin: int, end: int) -> None:
        if self.sweep and not self.sweep.tape and not self.waiting and not self.fetched:
            self.sweep.end = end
            return
        self._finish()
        self._deliver()
        self.sweep = _PendingForward(begin, end, list(self.waiting))
        self.waiting = {}

    def _record(self, begin: int, end: int) -> None:
        self._finish()
        self._copy_on()
        for number in self.waiting.values():
            self._refuse(number, "only a Forward without a tape can store the state at its begin")
        self._deliver()
        self.sweep = _PendingForward(begin, end, [], tape=True)

    def _reverse(self, begin: int, end: int, *, clear: bool) -> None:
        self._finish()
        if self.fetched and self.fetched.key.kind is Kind.TAPE:
            self._copy_on()
            self._deliver()
        if self.tape is None or not self.tape[0] <= begin < end <= self.tape[1]:
            self._refuse(self.now, "this tape is not in working memory any more")
        self.adjoint = begin
        self._say(Back(end, begin, clear))
        if clear:
            self.tape = None

    def _write(self, key: Key, place: StorageType) -> None:
        fetched, sweep = self.fetched, self.sweep
        if key.kind is Kind.RESTART or (fetched and fetched.key == key):
            self.waiting[place] = self.now
        elif sweep and sweep.tape and sweep.begin == key.step and not fetched:
            sweep.into.append(place)
        else:
            self._refuse(self.now, "a tape can be stored only when it is recorded")

    def _settle(self) -> None:
        """Turn a fetched checkpoint that no step uses into copies, before another is fetched."""
        if fetched := self.fetched:
            if fetched.last and not self.waiting:
                self._refuse(fetched.number, "no later action uses the checkpoint that it reads")
            if self.waiting.pop(fetched.place, None) is not None:
                fetched = replace(fetched, last=False)  # it stays in its storage
            self.moves += [(fetched, place) for place in self.waiting]
        else:
            self.parked |= self.waiting
        self.fetched, self.waiting = None, {}

    def _fetch(self, fetched: _PendingRead) -> None:
        at = self.sweep.end if self.sweep else self.state
        if not self.parked or fetched.key.kind is Kind.TAPE or fetched.key.step != at:
            self.fetched = fetched
            return
        self.waiting, self.parked = self.parked, {}
        if fetched.last:  # it was stored only for this read, and the Forward still begins at it
            del self.waiting[fetched.place]

    def _check_stored(self) -> None:
        for number in self.parked.values():
            self._refuse(number, "only a Forward can store the state, and none begins at this step")

    def _finish(self) -> None:
        """Emit the pending Forward, and the copies that were delayed by it."""
        if self.sweep:
            self._say_forward(self.sweep)
        self.sweep, moves, self.moves = None, self.moves, []
        for number, (fetched, place) in enumerate(moves):
            more = any(other is fetched for other, _ in moves[number + 1 :])
            self._load(fetched, place, move=fetched.last and not more)

    def _say_forward(self, sweep: _PendingForward) -> None:
        begin, end = sweep.begin, sweep.end
        if self.state != begin or end > self.adjoint:
            self._refuse(self.now, f"a Forward cannot advance from {self.state} to {end} before it")
        place = sweep.into[0] if sweep.into else _WORK
        self.state = self.n = end
        self.tape = (begin, end) if sweep.tape and not sweep.into else None
        self._say(Forward(begin, end, bool(sweep.into) and not sweep.tape, sweep.tape, place))
        if end == self.schedule.chain.length and not self.turned:
            self.turned = True
            self._say(EndForward())
        if sweep.into:
            self._put(place, begin, end)
            for other in sweep.into[1:]:
                self._put(other, begin, end)
                self._say(Copy(begin, place, other))

    def _put(self, place: StorageType, step: int, until: int) -> None:
        if (place, step) in self.stored:
            self._refuse(self.now, f"{place.name} would have two checkpoints of step {step}")
        self.stored[place, step] = until

    def _deliver(self) -> None:
        """Emit the load of the fetched checkpoint into the register."""
        self._check_stored()
        if (fetched := self.fetched) is None:
            return
        step, until = fetched.key.step, self._until(fetched)
        taped = fetched.key.kind is Kind.TAPE
        if until < self.adjoint and not taped:
            self._refuse(
                fetched.number,
                f"its checkpoint can be used only up to step {until}, but the adjoint is at step"
                f" {self.adjoint}",
            )
        self.state, self.n = (None, step + 1) if taped else (step, step)
        self._load(fetched, _WORK, move=fetched.last)
        self.tape = (step, step + 1) if taped else None
        self.fetched = None

    def _copy_on(self) -> None:
        """Emit copies of the fetched checkpoint to other storages."""
        if self.fetched:
            for place in self.waiting:
                self._load(self.fetched, place, move=False)
            self.waiting = {}

    def _load(self, fetched: _PendingRead, place: StorageType, *, move: bool) -> None:
        """Emit the load of a checkpoint into the register, or its copy to a storage."""
        step, until = fetched.key.step, self._until(fetched)
        if place is not _WORK:
            self._put(place, step, until)
        if move:
            del self.stored[fetched.place, step]
        self._say((Move if move else Copy)(step, fetched.place, place))

    def _until(self, fetched: _PendingRead) -> int:
        """Return the step up to which a checkpoint can be used, if it can be loaded now."""
        if self.tape is not None:
            self._refuse(
                fetched.number, "no checkpoint can be loaded while a tape is in working memory"
            )
        if fetched.key.step >= self.adjoint:
            self._refuse(fetched.number, "the step is already reversed")
        return self.stored[fetched.place, fetched.key.step]

    def _refuse(self, number: int, why: str) -> NoReturn:
        action = self.schedule.actions[number]
        raise BadInput(
            f"checkpoint_schedules has no counterpart of #{number} {action}: {why}; use another"
            " planner"
        )


@dataclass(frozen=True, slots=True)
class Later:
    """The numbers of actions, by the later use of their results.

    Attributes
    ----------
    read : set of int
        The Reads that are used: a step is computed or reversed from the checkpoint, or it is
        written to another level and read there.
    written : set of int
        The Writes whose checkpoint is read later. A checkpoint on two levels of one storage is
        written once.
    last : set of int
        The last Reads of checkpoints that are discarded later.
    left : set of int
        The last Reads of checkpoints that are never discarded.
    taped : set of int
        The Records whose tape is reversed or stored.
    cleared : set of int
        The Reverses after which no part of the tape is used.
    """

    read: set[int] = field(default_factory=set)
    written: set[int] = field(default_factory=set)
    last: set[int] = field(default_factory=set)
    left: set[int] = field(default_factory=set)
    taped: set[int] = field(default_factory=set)
    cleared: set[int] = field(default_factory=set)

    @staticmethod
    def of(schedule: Schedule, places: Mapping[int, Place], /) -> "Later":
        """Analyze a legal schedule whose levels belong to these storages."""
        read, useful = _used(schedule)
        later = Later(read)
        _stays(schedule, places, useful, later)
        _tapes(schedule, later)
        return later


@dataclass(slots=True)
class _Stay(Generic[Place]):
    """A checkpoint in a storage: its Write, its last Read, and the levels on which it is."""

    written: int
    read: int = -1
    levels: set[int] = field(default_factory=set)


def _used(schedule: Schedule) -> tuple[set[int], set[int]]:
    """Return the Reads that are used, and the Writes of their checkpoints.

    The schedule is searched from its end, because later actions decide whether a Read is used.
    """
    read, written = set[int](), set[int]()
    wanted = set[tuple[Key, int]]()
    needed = {Kind.RESTART: False, Kind.TAPE: False}  # whether a later action uses the register
    for number in reversed(range(len(schedule.actions))):
        match schedule.actions[number]:
            case Advance():
                needed[Kind.RESTART] = True
            case Record():
                needed[Kind.RESTART], needed[Kind.TAPE] = True, False
            case Reverse():
                needed[Kind.TAPE] = True
            case Write(key, level) if (key, level) in wanted:
                wanted.remove((key, level))
                written.add(number)
                needed[key.kind] = True
            case Read(key, level):
                if needed[key.kind]:
                    read.add(number)
                    wanted.add((key, level))
                needed[key.kind] = False
            case Write() | Discard():
                pass
    return read, written


def _stays(schedule: Schedule, places: Mapping[int, Place], useful: set[int], later: Later) -> None:
    stays: dict[tuple[Place, Key], _Stay[Place]] = {}
    for number, action in enumerate(schedule.actions):
        match action:
            case Write(key, level) if number in useful:
                stays.setdefault((places[level], key), _Stay(number)).levels.add(level)
            case Read(key, level) if number in later.read:
                stay = stays[places[level], key]
                stay.read = number
                later.written.add(stay.written)
            case Discard(key, level) if (places[level], key) in stays:
                stay = stays[places[level], key]
                stay.levels.discard(level)
                if not stay.levels:
                    later.last.add(stays.pop((places[level], key)).read)
            case _:
                pass
    later.left.update(stay.read for stay in stays.values() if stay.read >= 0)


def _tapes(schedule: Schedule, later: Later) -> None:
    record = reverse = -1
    for number, action in enumerate(schedule.actions):
        match action:
            case Record() | Read(Key(kind=Kind.TAPE)):
                later.cleared.add(reverse)
                record = number
            case Write(Key(kind=Kind.TAPE)) if number in later.written:
                later.taped.add(record)
            case Reverse():
                later.taped.add(record)
                reverse = number
            case _:
                pass
    later.cleared.add(reverse)
