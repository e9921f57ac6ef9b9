"""Schedules in periods: far checkpoints between them, and Revolve in near slots within them.

    forward sweep   write x_i to the far level, advance over the period; and so on
    turn            what is left of the chain, reversed by Revolve
    backward sweep  read the last x_i on the far level, reverse its period; and so on

Going back through a period, its x_i may be read several times; each read is followed by an advance
to the begin of a segment, which Revolve reverses. Blocks of equal length are built once and put
together as columns: a chain of a million steps takes about a second.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from ckio.actions import Action, Advance, Discard, Key, Kind, Read, Write
from ckio.actions.columns import WRITE, Actions
from ckio.errors import BadInput, NoSchedule
from ckio.planners.base import Room, alike, no_schedule, room_for_one, rooms, tapes
from ckio.planners.binomial import revolve
from ckio.platform import Level, Platform
from ckio.platform.chain import Chain
from ckio.schedule import Schedule

Segments = Callable[[int], Sequence[int]]
"""The segments of a period of so many steps, as `spacing.segments` gives them: the last first."""

Piece = tuple[Actions, int]
"""Actions on steps that count from 0, and the step of the chain where they begin."""

FIRST = Key(Kind.RESTART, 0)


@dataclass(frozen=True, slots=True)
class Periods:
    """The steps from each far checkpoint to the next, and those of the turn: all of the chain.

    In text, `(16, 16, 11; 10)`.
    """

    lengths: tuple[int, ...]
    turn: int

    def __post_init__(self) -> None:
        if min((self.turn, *self.lengths)) < 1:
            raise BadInput(f"Periods: {self} has a period without a step; each has at least one")

    def __str__(self) -> str:
        return f"({', '.join(map(str, self.lengths))}; {self.turn})"

    @property
    def steps(self) -> int:
        """The length of the chain."""
        return sum(self.lengths) + self.turn


@dataclass(frozen=True, slots=True)
class NearAndFar:
    """The near slots, the far level, and the seconds to advance a step: a plan depends on them."""

    slots: int
    far: Room
    advance: float


@dataclass(frozen=True, slots=True)
class PeriodPlan:
    """Periods, how each is taken back, and in a sentence how they were chosen."""

    periods: Periods
    segments: Segments
    note: str


def by_revolve(steps: int, /) -> list[int]:
    """A period taken back in one segment: its first state is read once."""
    return [steps]


def in_periods(
    chain: Chain,
    platform: Platform,
    plan: Callable[[NearAndFar], PeriodPlan],
    /,
    *,
    planner: str,
    near: str | None,
    far: str | None,
    needs_far: bool = False,
) -> Schedule:
    """The schedule of a plan on the first far level with a slot for each of its periods.

    Where there is no far level, the chain is one turn, or NoSchedule is raised if it `needs_far`.
    """
    alike(chain, planner=planner)
    tapes(chain, platform)
    check_names(platform, near, far, planner=planner)
    if chain.length == 1:
        return Schedule(chain, revolved(1, 1, level=0))
    first, beyond = places(chain, platform, planner=planner, near=near, far=far)
    if not beyond:
        name = platform.levels[first.number].name
        if needs_far:
            raise NoSchedule(
                f"{planner} needs a level beyond {name} for the checkpoints between its periods:"
                " add one that holds a checkpoint, or leave `period` out"
            )
        alone = revolved(chain.length, first.slots, level=first.number)
        return Schedule(chain, alone, note=f"no level is beyond {name}: Revolve there")
    needs: list[str] = []
    for room in beyond:
        with np.errstate(over="ignore", invalid="ignore"):  # what takes for ever is never the least
            made = plan(NearAndFar(slots=first.slots, far=room, advance=chain.advance))
            cut = {steps: made.segments(steps) for steps in set(made.periods.lengths)}
        if (count := len(made.periods.lengths)) <= room.slots:
            builder = Builder(near=first.number, far=room.number, slots=first.slots)
            return Schedule(chain, builder.all(made.periods, cut.__getitem__), note=made.note)
        needs.append(
            f"{count} slots on {platform.levels[room.number].name}, which has {room.slots}"
        )
    raise NoSchedule(
        f"{planner} needs {', or '.join(needs)} (of {chain.restart} bytes each): give the level"
        " more capacity, or use two-level or hrevolve, which plan for the slots that there are"
    )


def check_names(platform: Platform, near: str | None, far: str | None, /, *, planner: str) -> None:
    """Raise BadInput for a name of no level, or one name for both; None is no name."""
    for name in (near, far):
        if name is not None:
            platform.number(name)
    if near is not None and near == far:
        raise BadInput(f"{planner}: near and far are both {near!r}; they must be two levels")


def places(
    chain: Chain, platform: Platform, /, *, planner: str, near: str | None, far: str | None
) -> tuple[Room, tuple[Room, ...]]:
    """The near level, and what may be the far one, nearest first.

    The near level is the nearest that holds a checkpoint but for `far`, and the far one any beyond
    it; either may be named. Raises NoSchedule where a level that is named, or all, are too small.
    """
    usable = rooms(chain, platform, planner=planner)

    def named(name: str) -> Room:
        number = platform.number(name)
        for room in usable:
            if room.number == number:
                return room
        raise no_schedule([platform.levels[number]], f"{planner} needs {room_for_one(chain)}")

    if far is None:
        first = usable[0] if near is None else named(near)
        return first, tuple(room for room in usable if room.number > first.number)
    beyond = named(far)
    if near is not None:
        return named(near), (beyond,)
    others = [room for room in usable if room != beyond]
    if not others:
        raise no_schedule(
            platform.levels, f"{planner} needs {room_for_one(chain)}, other than {far}"
        )
    return others[0], (beyond,)


@dataclass(frozen=True)
class Builder:
    """Makes actions of periods.

    Attributes
    ----------
    near, far : int
        The numbers of the levels; `far` plays no part where nothing is written there.
    slots : int
        Checkpoints on the near level at a time.
    """

    near: int
    far: int
    slots: int

    def all(self, periods: Periods, segments: Segments, /) -> Actions:
        """All three parts; each far checkpoint is discarded directly after its last read."""
        sweep, turn = cache(self.sweep), self.revolve(periods.turn)
        back = cache(lambda steps: self.period(segments(steps)))
        begins = np.cumsum([0, *periods.lengths]).tolist()
        whole = list(zip(periods.lengths, begins, strict=False))
        return joined(
            [(sweep(steps), begin) for steps, begin in whole]
            + [(turn, begins[-1])]
            + [(back(steps), begin) for steps, begin in reversed(whole)]
        )

    def sweep(self, steps: int, /) -> Actions:
        """Write x_0 to the far level, and advance."""
        return Actions.of([Write(FIRST, self.far), Advance(0, steps)])

    def period(self, segments: Sequence[int], /) -> Actions:
        """Take a period back whose x_0 is on the far level, and nothing in the register."""
        pieces: list[Piece] = []
        begin = sum(segments)
        for steps in segments:
            begin -= steps
            start: list[Action] = [Read(FIRST, self.far)]
            start += [Advance(0, begin)] if begin else [Discard(FIRST, self.far)]
            pieces += [(Actions.of(start), 0), (self.revolve(steps), begin)]
        return joined(pieces)

    def revolve(self, steps: int, /) -> Actions:
        """Revolve in the near slots."""
        return revolved(steps, self.slots, level=self.near)


def revolved(steps: int, slots: int, /, *, level: int) -> Actions:
    """Revolve's actions for so many steps from 0 on, in so many slots of a level."""
    chain = Chain(steps=steps, advance=1, record=0, reverse=0, restart=1, tape=1, adjoint=1)
    actions = revolve(chain, Platform((Level(name="near", capacity=slots),))).actions
    return at_level(actions, np.full(len(actions), level))


def at_level(actions: Actions, level: NDArray[np.int64], /) -> Actions:
    """Return the actions with their accesses on these levels."""
    return Actions(
        op=actions.op,
        begin=actions.begin,
        end=actions.end,
        kind=actions.kind,
        level=np.where(actions.op >= WRITE, level, 0).astype(np.int16),
    )


def joined(pieces: Sequence[Piece], /) -> Actions:
    """The actions of all pieces, one after the other, as one."""
    parts = [actions for actions, _ in pieces]
    op = np.concatenate([part.op for part in parts])
    shift = np.repeat([begin for _, begin in pieces], [len(part) for part in parts])
    return Actions(
        op=op,
        begin=np.concatenate([part.begin for part in parts]) + shift,
        end=np.concatenate([part.end for part in parts]) + np.where(op < WRITE, shift, 0),
        kind=np.concatenate([part.kind for part in parts]),
        level=np.concatenate([part.level for part in parts]),
    )
