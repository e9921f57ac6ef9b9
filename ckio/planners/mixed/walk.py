"""From the choices of `mixed` to its schedule."""

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple, Protocol

from ckio.actions import Kind
from ckio.planners.draft import Draft
from ckio.planners.mixed.space import Numbers, Space
from ckio.platform.chain import Chain


class Choice(NamedTuple):
    """What to do with x_0 where it is in the register only.

    Attributes
    ----------
    kind : Kind or None
        RESTART writes it, TAPE records the first step and writes its tape; None does without the
        levels of this stage.
    place : int
        Of the level, among those of the stage.
    """

    kind: Kind | None
    place: int


LOWER = Choice(None, 0)


class Segment(NamedTuple):
    """Steps that begin with a checkpoint of the first sweep; so many, one after the other.

    `free` numbers what is free on the level of that stage while they are reversed, what their own
    checkpoint takes included. A tape is that of one step.
    """

    kind: Kind
    stage: int
    free: int
    steps: int
    copies: int


class Stage(Protocol):
    """A solved recurrence on some of the levels, on top of the stages before it.

    `free` numbers what is free on its levels; `empty` is that number where nothing is stored. By
    the place of a level, `after_restart` and `after_tape` lead from `free` to what is left when a
    checkpoint more is stored there.
    """

    @property
    def spaces(self) -> Sequence[Space]: ...
    @property
    def empty(self) -> int: ...
    @property
    def after_restart(self) -> Sequence[Numbers]: ...
    @property
    def after_tape(self) -> Sequence[Numbers]: ...

    def fresh(self, length: int, free: int, /) -> Choice:
        """What to do with x_0, in the register only."""
        ...

    def stored(self, length: int, free: int, place: int, /) -> int:
        """How far to advance from x_0, in the register and on a level; 0 discards it there.

        `free` counts its room there.
        """
        ...


class _Part(NamedTuple):
    """What is left to do: the `length` steps from `at` on, by the choices of a stage.

    With a `place`, x_at has to be read from that level; without, it is in the register.
    """

    at: int
    length: int
    stage: int
    free: int
    place: int | None


class _Spend(NamedTuple):
    """What is left to do: reverse a step whose tape is on a level."""

    step: int
    level: int


def walk(
    stages: Sequence[Stage], chain: Chain, *, held: int, first: Sequence[Segment] = ()
) -> Draft:
    """The schedule that the choices describe, the last stage first.

    Where the `first` sweep is given, only its segments are left to the stages, each of one level.
    The working memory holds the tapes of `held` steps. Moves are advanced, or recorded
    where that is priced lower.
    """
    made = Walk(stages, held=held, recording=chain.record < chain.advance)
    return made.draft(chain.length, first)


class Walk:
    """The actions that the choices of some stages describe."""

    def __init__(self, stages: Sequence[Stage], *, held: int, recording: bool) -> None:
        self.stages, self.held, self.recording = stages, held, recording
        # Parts of the same length with the same room come again and again.
        self.fresh = [cache(stage.fresh) for stage in stages]
        self.stored = [cache(stage.stored) for stage in stages]
        self.empty = [stage.empty for stage in stages]
        self.after_restart = [[a.tolist() for a in stage.after_restart] for stage in stages]
        self.after_tape = [[a.tolist() for a in stage.after_tape] for stage in stages]
        self.numbers = [[space.number for space in stage.spaces] for stage in stages]
        self.todo: list[_Part | _Spend] = []
        self.made = Draft()

    def draft(self, length: int, first: Sequence[Segment]) -> Draft:
        """Everything, for a chain of this length."""
        last, at = len(self.stages) - 1, 0
        for segment in first:
            for _ in range(segment.copies):
                self.begin(at, segment)
                at += segment.steps
        free = self.empty[last] if self.stages else 0
        self.todo.append(_Part(at, length - at, last, free, None))
        self._finish_all()
        return self.made

    def apart(self, kind: Kind, stage: int, free: int, steps: int) -> tuple[Draft, Draft]:
        """Return the actions of a segment at step 0: up to its end, and those that reverse it."""
        self.made = ahead = Draft()
        self.begin(0, Segment(kind, stage, free, steps, copies=1))
        self.made = back = Draft()
        self._finish_all()
        return ahead, back

    def _finish_all(self) -> None:
        while self.todo:
            match self.todo.pop():
                case _Spend(step, level):
                    self.made.read(step, level=level, kind=Kind.TAPE)
                    self.made.discard(step, level=level, kind=Kind.TAPE)
                    self.made.reverse(step, step + 1)
                case part:
                    self.finish(part)

    def begin(self, at: int, segment: Segment) -> None:
        """Store the beginning of a segment, go to its end, and leave it to be reversed."""
        level = self.numbers[segment.stage][0]
        if segment.kind is Kind.TAPE:
            self.made.record(at, at + 1)
            self.made.write(at, level=level, kind=Kind.TAPE)
            self.todo.append(_Spend(at, level))
        else:
            self.made.write(at, level=level)
            self.move(at, at + segment.steps)
            self.todo.append(_Part(at, segment.steps, segment.stage, segment.free, 0))

    def finish(self, part: _Part) -> None:
        """Do a part up to its first Reverse, and leave the others to be done."""
        if part.place is not None:
            self.made.read(part.at, level=self.numbers[part.stage][part.place])
        while part.length > self.held:
            part = self.store(part) if part.place is None else self.sweep(part, part.place)
        at, length, stage, _, place = part
        if place is not None:
            self.made.discard(at, level=self.numbers[stage][place])
        self.made.record(at, at + length)
        self.made.reverse(at, at + length)

    def store(self, part: _Part) -> _Part:
        """Store something of a state in the register only; what is left to do first."""
        at, length, stage, free, _ = part
        match self.fresh[stage](length, free):
            case Choice(Kind.TAPE, place):
                level = self.numbers[stage][place]
                self.made.record(at, at + 1)
                self.made.write(at, level=level, kind=Kind.TAPE)
                self.todo.append(_Spend(at, level))
                return _Part(at + 1, length - 1, stage, self.after_tape[stage][place][free], None)
            case Choice(Kind.RESTART, place):
                self.made.write(at, level=self.numbers[stage][place])
                return part._replace(place=place)
            case _:
                return _Part(at, length, stage - 1, self.empty[stage - 1], None)

    def sweep(self, part: _Part, place: int) -> _Part:
        """Go on from a state in the register and on a level; what is left to do first."""
        at, length, stage, free, _ = part
        j = self.stored[stage](length, free, place)
        if j == 0:
            self.made.discard(at, level=self.numbers[stage][place])
            return part._replace(place=None)
        self.move(at, at + j)
        self.todo.append(_Part(at, j, stage, free, place))
        return _Part(at + j, length - j, stage, self.after_restart[stage][place][free], None)

    def move(self, begin: int, end: int) -> None:
        """Move forward, no longer at a time than the register has room for if it is recorded."""
        if not self.recording:
            self.made.advance(begin, end)
            return
        for at in range(begin, end, self.held):
            self.made.record(at, min(at + self.held, end))
