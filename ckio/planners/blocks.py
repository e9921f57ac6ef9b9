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

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ckio.actions.columns import DISCARD, WRITE, Actions
from ckio.errors import NoSchedule
from ckio.planners.base import LevelSlots, alike, held_steps, level_slots
from ckio.planners.binomial import revolve
from ckio.planners.draft import Draft
from ckio.planners.spacing import cut_1d
from ckio.platform import Level, Platform
from ckio.platform.chain import Chain
from ckio.schedule import Schedule


@dataclass(frozen=True, slots=True)
class Periods:
    """The lengths of all periods, and the number of steps of the turn: together the whole chain."""

    lengths: tuple[int, ...]
    turn: int


ChoosePeriods = Callable[[int, LevelSlots], tuple[Periods, str]]
"""A function from the number of near slots, and the far level, to the periods and a note."""


def in_periods(
    chain: Chain, platform: Platform, choose: ChoosePeriods, /, *, planner: str, once: bool
) -> Schedule:
    """Return the schedule of the chosen periods for the first far level with a slot for each.

    The near level is the nearest that can store a checkpoint. `choose` is called for one far level
    after the other, the nearest first. A far checkpoint is read `once`, or as often as this makes
    the schedule faster. If the platform has no far level, Revolve reverses the whole chain in near
    slots. Raises NoSchedule if the levels have too few slots.
    """
    alike(chain, planner=planner)
    held_steps(chain, platform)
    if chain.length == 1:
        return Schedule(chain, revolved(1, 1, level=0))
    near, *beyond = level_slots(chain, platform, planner=planner)
    if not beyond:
        name = platform.levels[near.number].name
        alone = revolved(chain.length, near.slots, level=near.number)
        return Schedule(chain, alone, note=f"no level is beyond {name}: Revolve there")
    needs: list[str] = []
    for far in beyond:
        with np.errstate(over="ignore", invalid="ignore"):  # infinite seconds are never the least
            periods, note = choose(near.slots, far)
            lengths = set(periods.lengths)
            cut = {
                steps: [steps] if once else cut_1d(steps, near.slots, chain.advance, far.read)
                for steps in lengths
            }
        if (count := len(periods.lengths)) <= far.slots:
            return Schedule(chain, _actions(periods, cut, near, far.number), note=note)
        needs.append(f"{count} slots on {platform.levels[far.number].name}, which has {far.slots}")
    raise NoSchedule(
        f"{planner} needs {', or '.join(needs)} (of {chain.restart} bytes each): give the level"
        " more capacity, or use two-level or hrevolve, which plan with any number of slots"
    )


def _actions(
    periods: Periods, cut: Mapping[int, Sequence[int]], near: LevelSlots, far: int
) -> Actions:
    """Return the forward sweep, the turn and the reverse sweep.

    `cut` are the segments of a period by its length, the last segment first.
    """
    begins = accumulate(periods.lengths, initial=0)
    *each, turn = zip((*periods.lengths, periods.turn), begins, strict=True)
    back = {
        steps: period(segments, near.slots, near.number, far) for steps, segments in cut.items()
    }
    draft = Draft()
    for steps, begin in each:
        draft.write(begin, level=far)
        draft.advance(begin, begin + steps)
    draft.lay(revolved(turn[0], near.slots, level=near.number), turn[1:])
    for steps, begin in reversed(each):
        draft.lay(back[steps], (begin,))
    return draft.actions()


def period(segments: Sequence[int], slots: int, near: int, far: int, /) -> Actions:
    """Return actions that reverse a period whose x_0 is stored on the far level.

    The register is empty at the start. The far checkpoint is discarded after its last read.
    """
    draft, begin = Draft(), sum(segments)
    for steps in segments:
        begin -= steps
        draft.read(0, level=far)
        if begin:
            draft.advance(0, begin)
        else:
            draft.discard(0, level=far)
        draft.lay(revolved(steps, slots, level=near), (begin,))
    return draft.actions()


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
