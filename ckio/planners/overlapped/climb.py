"""Local search on a whole chain, for what its pieces do not know of one another. Needs numba.

`segments` plans each segment by itself; what one leaves to the channel holds up the next, and near
slots that are taken by what is on its way are missing there. So the chain is written down as a tree
of pieces, one piece after the other is changed at random, and a change stays where the chain does
not take longer, by the engine. Random numbers are the same each time.
"""

from math import inf
from typing import NamedTuple

import numpy as np

from ckio.planners.compiled import kernel
from ckio.planners.overlapped.chains import Cut, Found, planned
from ckio.planners.overlapped.pieces import (
    LONGEST,
    STAY,
    Choices,
    Free,
    Splits,
    Tree,
    choices,
    splits,
    tree,
    unroll,
)
from ckio.planners.overlapped.programs import Ints, Seconds
from ckio.planners.overlapped.segments import (
    ROWS,
    Machine,
    Room,
    Segments,
    Terms,
    room,
    took,
)
from ckio.planners.overlapped.tables import Table

# mypy: disable-error-code="no-any-return"

_WORK = 4 * 10**7
"""Steps that are simulated in all: some seconds."""

_TRIALS = 100
"""So many changes are tried for each step at the most."""

_MOVED, _ELSEWHERE, _NEARER, _OTHERWISE = 0.45, 0.7, 0.8, 0.92
"""Of all changes, up to the first part move a split, then store its state on the other level, then
leave a far piece to the near level, then plan it by other tables; the rest go back to the tables.
"""


class Trial(NamedTuple):
    """What is changed, and where it is written down and simulated."""

    splits: Splits
    chosen: Choices
    free: Free
    tree: Tree
    room: Room
    terms: Terms


def climbed(machine: Machine, segments: Segments, plans: list[tuple[Cut, float]]) -> Found | None:
    """The best of some chains, each given by its cut and horizon, after many changes.

    Half of them are tried on all chains, the rest on what is then the best one. None if there is
    none, or if it is too long.
    """
    if machine.length > LONGEST or not plans:
        return None
    place = room(ROWS * (machine.length + 2), machine.near + machine.far, machine.length)
    draw = np.random.default_rng(0)
    trials = min(_TRIALS * machine.length, _WORK // machine.length) // 2
    found = []
    for cut, horizon in plans:
        trial = Trial(
            splits(segments.variants[0].near, segments),
            _chosen(machine, segments, cut),
            Free(machine.near, machine.far, 0, machine.far),
            tree(machine),
            place,
            Terms(machine.costs, machine.policy(horizon)),
        )
        seconds = _climb(trial, tree(machine), draw.random((trials // len(plans), 4)))
        found.append((seconds, horizon, trial))
    seconds, horizon, trial = min(found, key=lambda one: one[0])
    if seconds == inf:
        return None
    seconds = _climb(trial, tree(machine), draw.random((trials, 4)))
    count, _ = unroll(trial.splits, trial.chosen, trial.free, place.rows, trial.tree)
    return Found(place.rows, count, seconds, horizon)


def _chosen(machine: Machine, segments: Segments, cut: Cut) -> Choices:
    """The choices that make the chain what `cut` says."""
    chosen, at, left = choices(machine.length), 0, machine.length
    chosen.far[at, left] = STAY
    lengths = segments.grid.lengths[list(cut.places)].tolist()
    for steps, plan in zip(lengths, planned(machine, segments, cut), strict=True):
        chosen.far[at, left] = -steps
        chosen.variant[at, steps - 1], chosen.slots[at, steps - 1] = plan[0] + 1, plan[1]
        at, left = at + steps, left - steps
    if lengths:
        chosen.far[at - lengths[-1], left + lengths[-1]] = lengths[-1]
    return chosen


@kernel
def _climb(trial: Trial, spare: Tree, random: Table) -> float:
    """Change one piece after the other; the seconds in the end."""
    splits, chosen, free, tree, room, terms = trial
    count, parts = unroll(splits, chosen, free, room.rows, tree)
    if count > len(room.rows.op):
        return np.inf
    seconds = took(room, count, terms)
    for number in range(len(random)):
        piece = tree.pieces[int(random[number, 0] * parts)]
        at, length = piece[0], piece[1]
        before = _choice(chosen, at, length)
        _change(trial, piece, random[number])
        if _choice(chosen, at, length) != before:
            count, now = unroll(splits, chosen, free, room.rows, spare)
            taken = took(room, count, terms) if count <= len(room.rows.op) else np.inf
            if taken <= seconds:
                seconds, parts = taken, now
                tree, spare = spare, tree
            else:
                _choose(chosen, at, length, before)
    return seconds


@kernel
def _choice(chosen: Choices, at: int, length: int) -> tuple[int, int, int, int]:
    near, far, variant, slots = chosen
    return near[at, length], far[at, length], variant[at, length], slots[at, length]


@kernel
def _choose(chosen: Choices, at: int, length: int, choice: tuple[int, int, int, int]) -> None:
    near, far, variant, slots = chosen
    near[at, length], far[at, length], variant[at, length], slots[at, length] = choice


@kernel
def _change(trial: Trial, piece: Ints, draw: Seconds) -> None:
    """Choose something else for a piece; `draw` are random numbers, the first of them used up."""
    at, length, is_far, j = piece
    chosen = trial.chosen
    split = chosen.far if is_far else chosen.near
    steps = abs(j)
    if draw[1] < _MOVED:
        by = 1 + int(draw[2] ** 3 * length / 2)
        steps += by if draw[3] < 0.5 else -by
        if 1 <= steps <= length:
            split[at, length] = -steps if j < 0 else steps
    elif draw[1] < _ELSEWHERE:
        steps = steps if steps else 1 + int(draw[2] * length)
        split[at, length] = steps if j < 0 else -steps
    elif not is_far:
        split[at, length] = 0
    elif draw[1] < _NEARER:
        split[at, length] = STAY
    elif draw[1] < _OTHERWISE:
        chosen.variant[at, length] = 1 + int(draw[2] * len(trial.splits.slots))
        chosen.slots[at, length] = 1 + int(draw[3] * min(trial.free.far, length))
    else:
        split[at, length] = chosen.variant[at, length] = 0
