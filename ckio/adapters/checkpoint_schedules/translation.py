"""The actions of ckio in the words of checkpoint_schedules.

There a checkpoint is stored by the Forward that leaves its step, and what that Forward ran over is
what the checkpoint can be used for: one of step 3 that was stored by Forward(3, 7) can be loaded
only once the adjoint is at 7 or before. Loading anything needs empty hands: what was recorded is
reversed or stored by then. So each sentence here waits until it is known what follows.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn, assert_never

from checkpoint_schedules import Copy, EndForward, EndReverse, Forward, Move, StorageType
from checkpoint_schedules import Reverse as Back

from ckio.actions import Advance, Discard, Key, Kind, Read, Record, Reverse, Write
from ckio.adapters.checkpoint_schedules.later import Later
from ckio.errors import BadInput
from ckio.schedule import Schedule

_WORK = StorageType.WORK


@dataclass(frozen=True, slots=True)
class Line:
    """An action of theirs; after it the forward is at step n, and r steps are reversed."""

    action: Any
    n: int
    r: int


@dataclass(slots=True)
class _Sweep:
    """A Forward that is not said yet: more steps may follow, or where its tape is stored."""

    begin: int
    end: int
    into: list[StorageType]
    tape: bool = False


@dataclass(frozen=True, slots=True)
class _Fetched:
    """A Read that is not said yet: what follows decides where to."""

    number: int
    key: Key
    place: StorageType
    last: bool


@dataclass(slots=True)
class Translation:
    """One pass over a legal schedule; `lines` raises BadInput for what they have no word for."""

    schedule: Schedule
    places: Mapping[int, StorageType]
    said: list[Line] = field(default_factory=list)
    stored: dict[tuple[StorageType, int], int] = field(default_factory=dict)
    """By place and step, up to where what is stored there can be used."""
    state: int | None = 0
    tape: tuple[int, int] | None = None
    adjoint: int = field(init=False)
    n: int = 0
    turned: bool = False
    sweep: _Sweep | None = None
    fetched: _Fetched | None = None
    waiting: dict[StorageType, int] = field(default_factory=dict)
    """Where the state, or what was fetched, is to be stored; and by which action."""
    parked: dict[StorageType, int] = field(default_factory=dict)
    """`waiting` of a state that is read again, once others were copied from level to level."""
    moves: list[tuple[_Fetched, StorageType]] = field(default_factory=list)
    """What is copied from level to level once the Forward that waits is said."""
    now: int = 0

    def __post_init__(self) -> None:
        self.adjoint = self.schedule.chain.length

    def lines(self) -> tuple[Line, ...]:
        """All that there is to say."""
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
                    self._fetch(_Fetched(number, key, self.places[level], number in later.last))
                case Write() | Read() | Discard():
                    pass  # what is not used is not stored, and the last Read is a Move
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
        self.sweep = _Sweep(begin, end, list(self.waiting))
        self.waiting = {}

    def _record(self, begin: int, end: int) -> None:
        self._finish()
        self._copy_on()
        for number in self.waiting.values():
            self._refuse(number, "they store a state as the forward leaves it, and cannot record")
        self._deliver()
        self.sweep = _Sweep(begin, end, [], tape=True)

    def _reverse(self, begin: int, end: int, *, clear: bool) -> None:
        self._finish()
        if self.fetched and self.fetched.key.kind is Kind.TAPE:
            self._copy_on()
            self._deliver()
        if self.tape is None or not self.tape[0] <= begin < end <= self.tape[1]:
            self._refuse(self.now, "they store this tape, or lost it, and do not hold it any more")
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
            self._refuse(self.now, "they store a tape when it is recorded, and not later")

    def _settle(self) -> None:
        """Make up for what was fetched and is not used, before something else is."""
        if fetched := self.fetched:
            if fetched.last and not self.waiting:
                self._refuse(fetched.number, "nothing is done with what it reads")
            if self.waiting.pop(fetched.place, None) is not None:
                fetched = replace(fetched, last=False)  # it stays where it is
            self.moves += [(fetched, place) for place in self.waiting]
        else:
            self.parked |= self.waiting
        self.fetched, self.waiting = None, {}

    def _fetch(self, fetched: _Fetched) -> None:
        at = self.sweep.end if self.sweep else self.state
        if not self.parked or fetched.key.kind is Kind.TAPE or fetched.key.step != at:
            self.fetched = fetched
            return
        self.waiting, self.parked = self.parked, {}
        if fetched.last:  # it was stored for this alone; their forward has never left it
            del self.waiting[fetched.place]

    def _check_stored(self) -> None:
        for number in self.parked.values():
            self._refuse(number, "they store a state as the forward leaves it; here it does not")

    def _finish(self) -> None:
        """Say the Forward that waits, and what was moved meanwhile."""
        if self.sweep:
            self._say_forward(self.sweep)
        self.sweep, moves, self.moves = None, self.moves, []
        for number, (fetched, place) in enumerate(moves):
            more = any(other is fetched for other, _ in moves[number + 1 :])
            self._load(fetched, place, move=fetched.last and not more)

    def _say_forward(self, sweep: _Sweep) -> None:
        begin, end = sweep.begin, sweep.end
        if self.state != begin or end > self.adjoint:
            self._refuse(self.now, f"their forward cannot go from {self.state} to {end} before it")
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
            self._refuse(self.now, f"two checkpoints of step {step} would be in {place.name}")
        self.stored[place, step] = until

    def _deliver(self) -> None:
        """Say that what was fetched goes into the register."""
        self._check_stored()
        if (fetched := self.fetched) is None:
            return
        step, until = fetched.key.step, self._until(fetched)
        taped = fetched.key.kind is Kind.TAPE
        if until < self.adjoint and not taped:
            self._refuse(
                fetched.number,
                f"what they stored of it serves up to step {until}, the adjoint is at"
                f" {self.adjoint}",
            )
        self.state, self.n = (None, step + 1) if taped else (step, step)
        self._load(fetched, _WORK, move=fetched.last)
        self.tape = (step, step + 1) if taped else None
        self.fetched = None

    def _copy_on(self) -> None:
        """Say that what was fetched is stored elsewhere too."""
        if self.fetched:
            for place in self.waiting:
                self._load(self.fetched, place, move=False)
            self.waiting = {}

    def _load(self, fetched: _Fetched, place: StorageType, *, move: bool) -> None:
        """Say that a checkpoint goes into the register, or to where it is stored then."""
        step, until = fetched.key.step, self._until(fetched)
        if place is not _WORK:
            self._put(place, step, until)
        if move:
            del self.stored[fetched.place, step]
        self._say((Move if move else Copy)(step, fetched.place, place))

    def _until(self, fetched: _Fetched) -> int:
        """Up to where what was fetched can be used, if it can be loaded now."""
        if self.tape is not None:
            self._refuse(fetched.number, "they load nothing while they hold a tape to be reversed")
        if fetched.key.step >= self.adjoint:
            self._refuse(fetched.number, "the adjoint has been there")
        return self.stored[fetched.place, fetched.key.step]

    def _refuse(self, number: int, why: str) -> NoReturn:
        action = self.schedule.actions[number]
        raise BadInput(f"checkpoint_schedules has no words for #{number} {action}: {why}")
