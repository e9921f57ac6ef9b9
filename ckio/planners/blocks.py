"""Schedules in periods: far checkpoints between periods, and Revolve in near slots within them.

    forward sweep   for each period: write x_i to the far level, advance over the period
    turn            reverse the last steps of the chain, which are in no period, by Revolve
    reverse sweep   for each period, the last one first: read x_i from the far level, reverse it

A period may be divided into segments. Then its x_i is read once for each segment; after each read
the run advances to the first step of the segment, and Revolve reverses the segment. For example, a
chain of 5 steps with a period of 3 and a turn of 2 is: write x_0 to the far level, advance 3 steps,
reverse steps 3 and 4 by Revolve, read x_0, reverse steps 0 to 2 by Revolve.

The actions of periods of equal length are computed once and joined as columns: a chain of a million
steps takes about a second.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ckio.actions import Action, Advance, Discard, Key, Kind, Read, Write
from ckio.actions.columns import DISCARD, WRITE, Actions
from ckio.errors import BadInput, NoSchedule
from ckio.planners.base import LevelSlots, alike, held_steps, level_slots
from ckio.planners.binomial import revolve
from ckio.platform import Level, Platform
from ckio.platform.chain import Chain
from ckio.schedule import Schedule

Segments = Callable[[int], Sequence[int]]
"""A function from the steps of a period to the lengths of its segments, the last segment first.

`spacing.segments` returns such lengths.
"""

Piece = tuple[Actions, int]
"""Actions on steps that count from 0, and the step of the chain where they begin."""

FIRST = Key(Kind.RESTART, 0)


@dataclass(frozen=True, slots=True)
class Periods:
    """The lengths of all periods, and the number of steps of the turn: together the whole chain.

    As text: `(16, 16, 11; 10)`.
    """

    lengths: tuple[int, ...]
    turn: int

    def __post_init__(self) -> None:
        if min((self.turn, *self.lengths)) < 1:
            raise BadInput(
                f"Periods: {self} has a period without a step; give each period and the turn at"
                " least one step"
            )

    def __str__(self) -> str:
        return f"({', '.join(map(str, self.lengths))}; {self.turn})"

    @property
    def steps(self) -> int:
        """The length of the chain."""
        return sum(self.lengths) + self.turn


@dataclass(frozen=True, slots=True)
class NearAndFar:
    """The number of near slots, the far level, and the seconds to advance one step.

    A plan of periods depends on these.
    """

    slots: int
    far: LevelSlots
    advance: float


@dataclass(frozen=True, slots=True)
class PeriodPlan:
    """Periods, the segments in which each is reversed, and a note on how they were chosen."""

    periods: Periods
    segments: Segments
    note: str


def by_revolve(steps: int, /) -> list[int]:
    """Return one segment for the whole period: its first state is read once."""
    return [steps]


def in_periods(
    chain: Chain,
    platform: Platform,
    plan: Callable[[NearAndFar], PeriodPlan],
    /,
    *,
    planner: str,
) -> Schedule:
    """Return the schedule of the plan for the first far level with a slot for each of its periods.

    The near level is the nearest that can store a checkpoint. `plan` is called for one far level
    after the other, the nearest first. If the platform has no far level, Revolve reverses the whole
    chain in near slots. Raises NoSchedule if the levels have too few slots.
    """
    alike(chain, planner=planner)
    held_steps(chain, platform)
    if chain.length == 1:
        return Schedule(chain, revolved(1, 1, level=0))
    first, *beyond = level_slots(chain, platform, planner=planner)
    if not beyond:
        name = platform.levels[first.number].name
        alone = revolved(chain.length, first.slots, level=first.number)
        return Schedule(chain, alone, note=f"no level is beyond {name}: Revolve there")
    needs: list[str] = []
    for far in beyond:
        with np.errstate(over="ignore", invalid="ignore"):  # infinite seconds are never the least
            made = plan(NearAndFar(slots=first.slots, far=far, advance=chain.advance))
            cut = {steps: made.segments(steps) for steps in set(made.periods.lengths)}
        if (count := len(made.periods.lengths)) <= far.slots:
            builder = Builder(near=first.number, far=far.number, slots=first.slots)
            return Schedule(chain, builder.all(made.periods, cut.__getitem__), note=made.note)
        needs.append(f"{count} slots on {platform.levels[far.number].name}, which has {far.slots}")
    raise NoSchedule(
        f"{planner} needs {', or '.join(needs)} (of {chain.restart} bytes each): give the level"
        " more capacity, or use two-level or hrevolve, which plan with any number of slots"
    )


@dataclass(frozen=True)
class Builder:
    """Builds the actions of periods.

    Attributes
    ----------
    near, far : int
        The numbers of the levels. `far` is not used if there are no periods.
    slots : int
        Checkpoints on the near level at a time.
    """

    near: int
    far: int
    slots: int

    def all(self, periods: Periods, segments: Segments, /) -> Actions:
        """Return the forward sweep, the turn and the reverse sweep.

        Each far checkpoint is discarded directly after its last read.
        """
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
        """Return actions that write x_0 to the far level and advance."""
        return Actions.of([Write(FIRST, self.far), Advance(0, steps)])

    def period(self, segments: Sequence[int], /) -> Actions:
        """Return actions that reverse a period whose x_0 is stored on the far level.

        The register is empty at the start.
        """
        pieces: list[Piece] = []
        begin = sum(segments)
        for steps in segments:
            begin -= steps
            start: list[Action] = [Read(FIRST, self.far)]
            start += [Advance(0, begin)] if begin else [Discard(FIRST, self.far)]
            pieces += [(Actions.of(start), 0), (self.revolve(steps), begin)]
        return joined(pieces)

    def revolve(self, steps: int, /) -> Actions:
        """Return the actions of Revolve in the near slots."""
        return revolved(steps, self.slots, level=self.near)


def revolved(steps: int, slots: int, /, *, level: int) -> Actions:
    """Return the actions of Revolve for `steps` steps, from 0, in `slots` slots of a level."""
    chain = Chain(steps=steps, advance=1, record=0, reverse=0, restart=1, tape=1, adjoint=1)
    actions = revolve(chain, Platform((Level(name="near", capacity=slots),))).actions
    return at_level(actions, np.full(len(actions), level))


def at_level(actions: Actions, level: NDArray[np.int64], /) -> Actions:
    """Return the actions with other levels for their accesses, one level for each action."""
    return Actions(
        op=actions.op,
        begin=actions.begin,
        end=actions.end,
        kind=actions.kind,
        level=np.where(actions.op >= WRITE, level, 0).astype(np.int16),
    )


def share_out(actions: Actions, slots: Sequence[int], /, *stored: int) -> Actions:
    """Return the actions with levels: the checkpoints used most often are in the first slots.

    The checkpoints of the actions must form a stack, as those of Revolve and of bisection do: the
    one written last is discarded first. Each position in the stack has one slot, and `slots` are
    the level numbers of all slots, best first. `stored` are the levels of the checkpoints at the
    bottom of the stack that are stored before the first action.
    """
    change = (actions.op == WRITE).astype(np.int64) - (actions.op == DISCARD)
    in_use = np.cumsum(change) + (actions.op == DISCARD) + len(stored)
    positions = np.maximum(in_use - 1, 0)
    used = (actions.op >= WRITE) & (actions.op != DISCARD)
    uses = np.bincount(positions[used])[len(stored) :]
    return at_level(
        actions, np.append(stored, levels_by_use(uses, slots)).astype(np.int64)[positions]
    )


def levels_by_use(uses: ArrayLike, slots: Sequence[int], /) -> NDArray[np.int64]:
    """Return the level of each position in a stack: the one with the most uses has the first slot.

    For equal numbers of uses, the last position in the stack comes first.
    """
    uses = np.asarray(uses)
    levels = np.empty(len(uses), np.int64)
    levels[np.lexsort((-np.arange(len(uses)), -uses))] = slots[: len(uses)]
    return levels


def joined(pieces: Sequence[Piece], /) -> Actions:
    """Return the actions of all pieces, one piece after the other."""
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
