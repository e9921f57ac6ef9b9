"""From the decisions of a solved recurrence to the actions of a schedule.

Stage k is the solution of the recurrence on levels 1 to k. The work that remains is a stack of
parts: (steps, free space on level k, where the first state x is). The top of the stack is finished
first, because the last steps of the chain are reversed first. Whenever a part is taken from the
stack,

* its x is stored, and is read first. Only the whole chain begins with x in the register; and so
  does what remains of a part after an advance, which is never on the stack, but done at once;
* all later steps are reversed, and their checkpoints are discarded. A part discards its x as soon
  as no action reads it any more;
* the only checkpoints stored are x and those of the parts below on the stack, whose space is not
  counted in its free space.

Parts of the same length with the same free space occur many times. Unless they are short or very
long, their actions are computed once, as a tile, and the tile is copied to each place where it
occurs. Therefore a schedule of a million steps takes about a second.
"""

from collections.abc import Sequence
from functools import cache
from typing import Final, NamedTuple, Protocol

from ckio.actions import Kind
from ckio.actions.columns import Actions
from ckio.planners.dp.spaces import Numbers, Space
from ckio.planners.draft import Draft

_TILES: Final = range(4, 1 << 13)
"""Lengths, in steps, of the parts whose actions are computed once. Shorter parts have few actions,
and longer ones occur seldom."""

_MOST_TILED: Final = 1 << 21
"""The most actions in all tiles together: forty megabytes."""

_DEEPEST: Final = 20
"""How deep tiles may consist of other tiles, because each is made by a call within a call."""


class StoreDecision(NamedTuple):
    """A decision about x_0 if it is only in the register.

    Attributes
    ----------
    kind : Kind or None
        RESTART writes x_0; TAPE records the first step and writes its tape, from which the forward
        restarts; None stores `tapes` and then uses only the levels of earlier stages.
    place : int
        The index of the level among those of the stage.
    tapes : tuple of int
        How many tapes of the next steps are stored on each level of the stage.
    """

    kind: Kind | None = None
    place: int = 0
    tapes: tuple[int, ...] = ()


class Segment(NamedTuple):
    """`copies` equal segments of the first sweep, one after the other.

    Each has `steps` steps and begins with a checkpoint of this kind on the level of the stage. If
    the kind is a tape, it has one step. `free` is the number of the free space on the level while
    the segment is reversed, including the space of its own checkpoint.
    """

    kind: Kind
    stage: int
    free: int
    steps: int
    copies: int


class Stage(Protocol):
    """The solution of a recurrence on some levels, in addition to those of the stages before it.

    `free` is a number for the free space on its levels; `empty` is this number if nothing is
    stored, and `last` one from which on more space is of no use. For each level, `after_restart`
    and `after_tape` map `free` to the number after one more checkpoint is stored there.
    """

    @property
    def spaces(self) -> Sequence[Space]: ...
    @property
    def empty(self) -> int: ...
    @property
    def last(self) -> int: ...
    @property
    def after_restart(self) -> Sequence[Numbers] | Numbers: ...
    @property
    def after_tape(self) -> Sequence[Numbers] | Numbers: ...

    def store(self, length: int, free: int, /) -> StoreDecision:
        """Return what to store if x_0 is in the register only."""
        ...

    def advance(self, length: int, free: int, place: int, /) -> int:
        """Return how far to advance if x_0 is in the register and on a level; 0 discards it there.

        `free` includes the space of x_0 on the level.
        """
        ...

    def restart(self, length: int, free: int, place: int, /) -> int:
        """Return how far to advance if x_0 is in the register and in a tape on a level.

        It is the tape of the step before x_0, and stays there. 0 means not to restart from it.
        """
        ...

    def least_free(self, length: int, free: int, /) -> int:
        """Return the least known `free` with which `length` steps take no longer."""
        ...


class _StepsLeft(NamedTuple):
    """The `length` steps from `at`, to be reversed with the decisions of a stage.

    With a `place`, x_at must be read from that level, by itself or with the tape of the step before
    (`kind`); without, it is in the register.
    """

    at: int
    length: int
    stage: int
    free: int
    place: int | None
    kind: Kind = Kind.RESTART


class _Spend(NamedTuple):
    """A step to be reversed from its tape, which is stored on a level."""

    step: int
    level: int


class Unrolling:
    """Turns the decisions of stages into actions.

    The working memory holds the tapes of `held` steps.
    """

    def __init__(self, stages: Sequence[Stage], *, held: int) -> None:
        self.stages, self.held = stages, held
        self._to_store = [cache(stage.store) for stage in stages]
        self._to_advance = [cache(stage.advance) for stage in stages]
        self._to_restart = [cache(stage.restart) for stage in stages]
        self._least = [cache(stage.least_free) for stage in stages]
        self._after_restart = [[a.tolist() for a in stage.after_restart] for stage in stages]
        self._after_tape = [[a.tolist() for a in stage.after_tape] for stage in stages]
        self._numbers = [[space.number for space in stage.spaces] for stage in stages]
        self._tiles: dict[_StepsLeft | _Spend, Actions] = {}
        self._tiled = self._depth = 0
        self._todo: list[_StepsLeft | _Spend] = []
        self._draft = Draft()

    def draft(self, length: int, first: Sequence[Segment] = ()) -> Draft:
        """Return the actions of a whole chain.

        If the segments of the first sweep are given, the stages plan only the reversal of each
        segment; each stage then has one level.
        """
        at, begins, self._draft = 0, list[int](), Draft()
        for segment in first:
            begins.append(at)
            for _ in range(segment.copies):
                self._begin(at, segment)
                at += segment.steps
        last = len(self.stages) - 1
        empty = self.stages[last].empty if self.stages else 0
        self._reverse(_StepsLeft(at, length - at, last, empty, None))
        for segment, begin in zip(reversed(first), reversed(begins), strict=True):
            tile = self.reversal(segment)
            ends = range(begin, begin + segment.steps * segment.copies, segment.steps)
            self._draft.lay(tile, ends[::-1])
        return self._draft

    def reversal(self, segment: Segment) -> Actions:
        """Return the actions that reverse one of these segments, at step 0."""
        part: _StepsLeft | _Spend = _StepsLeft(0, segment.steps, segment.stage, segment.free, 0)
        if segment.kind is Kind.TAPE:
            part = _Spend(0, self.level(segment))
        if part not in self._tiles:
            self._tiles[part] = self._make(part)
        return self._tiles[part]

    def level(self, segment: Segment) -> int:
        """Return the number of a segment's level in the platform."""
        return self._numbers[segment.stage][0]

    def _begin(self, at: int, segment: Segment) -> None:
        """Write the checkpoint of a segment, and go to the end of the segment."""
        level = self.level(segment)
        if segment.kind is Kind.TAPE:
            self._draft.store_tape(at, level=level)
        else:
            self._draft.write(at, level=level)
            self._draft.advance(at, at + segment.steps)

    def _make(self, left: _StepsLeft | _Spend) -> Actions:
        """Return the actions that reverse one part or one step."""
        outer = self._todo, self._draft
        self._todo, self._draft, self._depth = [], Draft(), self._depth + 1
        self._reverse(left)
        actions = self._draft.actions()
        (self._todo, self._draft), self._depth = outer, self._depth - 1
        return actions

    def _reverse(self, left: _StepsLeft | _Spend) -> None:
        """Reverse a part, and all parts that this leaves on the stack."""
        self._todo.append(left)
        while self._todo:
            match self._todo.pop():
                case _Spend(step, level):
                    self._draft.spend_tape(step, level=level)
                case part if part is not left and part.length in _TILES:
                    self._lay(part)
                case part:
                    self._finish(part)

    def _lay(self, part: _StepsLeft) -> None:
        """Reverse a part by its tile, which is computed when it is first needed."""
        at, length, stage, free, place, kind = part
        before = int(kind is Kind.TAPE)  # the tile begins at the step of the tape
        free = self._least[stage](length, free)
        key = _StepsLeft(before, length, stage, free, place, kind)
        if key not in self._tiles:
            if self._tiled > _MOST_TILED or self._depth > _DEEPEST:
                self._finish(part)
                return
            self._tiles[key] = self._make(key)
            self._tiled += len(self._tiles[key])
        self._draft.lay(self._tiles[key], (at - before,))

    def _finish(self, part: _StepsLeft) -> None:
        """Add the actions of a part up to its first Reverse; push its other parts on the stack."""
        if part.place is not None:
            level, before = self._numbers[part.stage][part.place], part.kind is Kind.TAPE
            self._draft.read(part.at - before, level=level, kind=part.kind)
        while part.length > self.held:
            part = self._store(part) if part.place is None else self._sweep(part, part.place)
        at, length, stage, _, place, kind = part
        if place is not None and kind is Kind.RESTART:
            self._draft.discard(at, level=self._numbers[stage][place])
        self._draft.record(at, at + length)
        self._draft.reverse(at, at + length)

    def _store(self, part: _StepsLeft) -> _StepsLeft:
        """Store a checkpoint when x is only in the register; return the part to do next."""
        at, length, stage, free, _, _ = part
        match self._to_store[stage](length, free):
            case StoreDecision(Kind.TAPE, place, _):
                level = self._numbers[stage][place]
                self._draft.store_tape(at, level=level)
                self._todo.append(_Spend(at, level))
                after = self._after_tape[stage][place][free]
                return _StepsLeft(at + 1, length - 1, stage, after, place, Kind.TAPE)
            case StoreDecision(Kind.RESTART, place, _):
                self._draft.write(at, level=self._numbers[stage][place])
                return part._replace(place=place, kind=Kind.RESTART)
            case StoreDecision(_, _, tapes):
                for level, count in zip(self._numbers[stage], tapes, strict=True):
                    for step in range(at, at + count):
                        self._draft.store_tape(step, level=level)
                        self._todo.append(_Spend(step, level))
                    at, length = at + count, length - count
                return _StepsLeft(at, length, stage - 1, self.stages[stage - 1].empty, None)

    def _sweep(self, part: _StepsLeft, place: int) -> _StepsLeft:
        """Advance when x is in the register and on a level; return the part to do next."""
        at, length, stage, free, _, kind = part
        if kind is Kind.TAPE:
            if (j := self._to_restart[stage](length, free, place)) == 0:
                return part._replace(place=None)
            self._draft.advance(at, at + j)
            self._todo.append(part._replace(length=j))
            return _StepsLeft(at + j, length - j, stage, free, None)
        j = self._to_advance[stage](length, free, place)
        if j == 0:
            self._draft.discard(at, level=self._numbers[stage][place])
            return part._replace(place=None)
        self._draft.advance(at, at + j)
        self._todo.append(_StepsLeft(at, j, stage, free, place))
        return _StepsLeft(at + j, length - j, stage, self._after_restart[stage][place][free], None)
