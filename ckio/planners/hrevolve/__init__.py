"""H-Revolve: the schedule of least makespan on K storage levels, by dynamic programming.

The chain has n = l + 1 steps (l is `length` below). What every schedule pays for its n Records and
n Reverses is left out, so that it cannot influence the plan. u_f is `Chain.advance`; w_k and r_k
are the seconds to write (and later discard) and to read x_0 on level k, c of whose slots are free:

    H_0(0) = 0,  H_0(l) = inf              x_0 in the register, and no level to put it on
    H_k,c(l) = min(H_{k-1}(l), w_k + Hbar_k,c(l))             x_0 in the register only
    Hbar_k,c(l) = min(H_{k-1}(l),                             x_0 also in one of c slots of level k
                      min_{1<=j<=l} j u_f + H_k,c-1(l-j) + r_k + Hbar_k,c(j-1))
    H_k,0 = H_{k-1},  H_k = H_k,c_k        with all c_k slots of level k

Levels count from 1 here. This is Theorem 2 of Herrmann and Pallez, "H-Revolve", ACM TOMS 2020, with
one repair: beyond the first level they let j run to l - 1 only, and j = l, to go to the end with
nothing stored on the way and come back to level k, is needed where reading x_0 from k costs less
than first moving it nearer. With it, exhaustive search has found nothing better in many thousand
small cases: strong evidence, not a proof.

It is solved in one of three ways, all of them exact for costs as `integers` has them: in short
tables for long chains, nearly all of whose segments are alike (`segments`); where that proves
nothing, as straight pieces in compiled code (`runs`), or row by row in numpy (`layers`).
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, TypeAlias

from ckio.actions import Record, Reverse
from ckio.actions.columns import Actions
from ckio.errors import BadInput
from ckio.planners import compiled
from ckio.planners.base import Room, alike, log, rooms, tapes
from ckio.planners.hrevolve import layers, segments, tiles
from ckio.planners.hrevolve.layers import solve_layers
from ckio.planners.hrevolve.segments import Segments
from ckio.planners.integers import Whole, whole
from ckio.planners.varying import varying
from ckio.platform import Platform
from ckio.platform.chain import Chain
from ckio.schedule import Schedule

if TYPE_CHECKING:
    from ckio.planners.hrevolve import runs

_MOST_ORDERS = 24
"""Orders of the levels that are tried: all those of four levels."""

_FEW = 500
"""Lengths up to which rows take some milliseconds, and short tables no less."""

_SHORT = 2_000
"""Lengths for which numpy is quicker than loading what is compiled."""

_LONG = 20_000
"""Lengths for which numpy takes a minute or more."""


def hrevolve(chain: Chain, platform: Platform, /, *, insist: bool = False) -> Schedule:
    """The least-makespan schedule of restart checkpoints on all levels of a platform.

    Where the levels' costs cross (one is quicker to write and slower to read than another), the
    recurrence is solved for every order that puts a level before those it beats in both (24 orders
    at most), and the cheapest is taken; the log says which.

    In chains of more than 2001 steps, costs are rounded where they are not multiples of a 10,000th
    or more of `advance`; `Schedule.note` says so, and by how much the makespan can be above the
    least. Some chains of more than 20,001 steps need numba (`pip install ckio[fast]`). Chains whose
    steps differ are planned by `varying`.

    Parameters
    ----------
    insist : bool
        Plan without numba, however long that takes.

    Raises
    ------
    NoSchedule
        Where n > 1 and no level holds a checkpoint.
    BadInput
        Where numba is needed and missing, and where costs are too large to be added up.
    """
    if chain.varies:
        return varying(chain, platform, tapes=False, planner="hrevolve")
    return _schedule(chain, platform, "hrevolve", repaired=True, insist=insist)


def hrevolve_2020(chain: Chain, platform: Platform, /, *, insist: bool = False) -> Schedule:
    """Theorem 2 as it is printed: beyond the first level, j stops at l - 1.

    Kept to show the difference from `hrevolve`, which is never slower; `insist` as there.
    """
    return _schedule(chain, platform, "hrevolve-2020", repaired=False, insist=insist)


def _schedule(
    chain: Chain, platform: Platform, planner: str, *, repaired: bool, insist: bool
) -> Schedule:
    alike(chain, planner=planner)
    tapes(chain, platform)
    return solve(chain, platform, planner=planner, repaired=repaired, insist=insist).schedule(chain)


Solution: TypeAlias = "Segments | layers.Tables | runs.Tables"
"""The recurrence, solved for one order of the levels."""


@dataclass(frozen=True)
class Plan:
    """A solution, and the makespan that it promises.

    Attributes
    ----------
    order : tuple of Room
        The levels, nearest first.
    solution : Solution or None
        The recurrence, solved; None for a chain of one step.
    seconds : float
        Equal to the makespan of the schedule as long as sums of the costs are exact in 64-bit
        floats (whole numbers, quarters and the like), else but for what their rounding adds up to;
        and where costs were rounded to units, which `note` says, within half a unit an access.
    note : str
        For people: in which sense this is the best.
    """

    order: tuple[Room, ...]
    solution: "Solution | None"
    seconds: float
    note: str = ""

    def schedule(self, chain: Chain, /) -> Schedule:
        """The actions, for the chain that was planned for."""
        if self.solution is None:
            return Schedule(chain, (Record(0, 1), Reverse(0, 1)))
        numbers = [room.number for room in self.order]
        return Schedule(chain, _actions(self.solution, numbers), note=self.note)


def solve(
    chain: Chain,
    platform: Platform,
    /,
    *,
    planner: str,
    repaired: bool,
    insist: bool = False,
) -> Plan:
    """The cheapest plan over the orders of the levels; raises as `hrevolve` does."""
    length, fixed = chain.length - 1, chain.length * (chain.record + chain.reverse)
    if length == 0:
        return Plan((), None, fixed)
    given = rooms(chain, platform, planner=planner)
    accesses = [seconds for room in given for seconds in (room.write, room.read)]
    costs = whole(chain.advance, accesses, length=length)
    if costs is not None and costs.rounded and length <= _SHORT:
        costs = None  # rows in seconds take no longer, and need no rounding
    problem = _Problem(length, chain.advance, repaired, planner, insist)
    if costs is not None:
        given = _priced(given, costs)
        problem = replace(problem, advance=costs.advance, is_whole=True)
    tried = [(order, problem.solved(order)) for order in islice(orders(given), _MOST_ORDERS)]
    order, solution = min(tried, key=lambda pair: pair[1].least)
    least = solution.least if costs is None else costs.seconds(int(solution.least))
    if not math.isfinite(least):
        raise BadInput(f"{planner}: the costs are too large to be added up; give them in seconds")
    names = [platform.levels[room.number].name for room in order]
    log.info("%s: levels in the order %s, of %d tried", planner, ", ".join(names), len(tried))
    return Plan(order, solution, least + fixed, _note(repaired, costs))


def _actions(solution: Solution, numbers: Sequence[int]) -> Actions:
    """All actions; `numbers` are those of the levels on the platform."""
    match solution:
        case Segments():
            return tiles.actions(solution, numbers)
        case layers.Tables():
            return layers.draft_of(solution, numbers).actions()
        case _:
            from ckio.planners.hrevolve.unroll import actions, everything, unroll

            return actions(unroll(solution, everything(solution), numbers))


def _priced(given: Sequence[Room], costs: Whole) -> list[Room]:
    """The levels with their costs in units."""
    writes, reads = costs.others[::2], costs.others[1::2]
    return [
        replace(room, write=write, read=read)
        for room, write, read in zip(given, writes, reads, strict=True)
    ]


def _note(repaired: bool, costs: Whole | None) -> str:
    theorem = "H-Revolve's recurrence" if repaired else "H-Revolve's Theorem 2 as it is printed"
    note = f"the least makespan by {theorem}"
    if costs is None or not costs.rounded:
        return note
    return f"{note}, for costs rounded to {costs.seconds(1):.3g} s: at most {costs.above:.1%} more"


@dataclass(frozen=True)
class _Problem:
    """What is the same for every order of the levels; costs are in seconds, or in whole units."""

    length: int
    advance: float
    repaired: bool
    planner: str
    insist: bool
    is_whole: bool = False

    def solved(self, order: Sequence[Room]) -> Solution:
        """The least makespan for one order, in the way that is quickest."""
        if self.is_whole and self.repaired and self.length > _FEW:
            found = segments.plan(self.length, *_columns(order), int(self.advance))
            if found is not None:
                return found
        if self.length > _SHORT and self.is_whole and compiled.available():
            return self.in_runs(order)
        if self.length > _LONG and not self.insist:
            raise self.too_long()
        return solve_layers(self.length, order, self.advance, repaired=self.repaired)

    def in_runs(self, order: Sequence[Room]) -> "runs.Tables":
        compiled.prepare()
        from ckio.planners.hrevolve.runs import solve_runs

        return solve_runs(self.length, *_columns(order), int(self.advance), repaired=self.repaired)

    def too_long(self) -> BadInput:
        steps = self.length + 1
        if self.is_whole:
            return BadInput(
                f"{self.planner}: {steps} steps are planned by compiled code: pip install"
                " ckio[fast]; or insist on numpy (insist=True, --insist), which may take hours"
            )
        return BadInput(
            f"{self.planner}: the costs are too large to be added up for {steps} steps; leave out"
            " levels that are much slower than a step, or insist on numpy (insist=True, --insist),"
            " which may take hours"
        )


def _columns(order: Sequence[Room]) -> tuple[list[int], list[int], list[int]]:
    """Slots, and the whole units to write and to read, by level."""
    write, read = ([int(room.write) for room in order], [int(room.read) for room in order])
    return [room.slots for room in order], write, read


def orders(given: Sequence[Room], /) -> Iterator[tuple[Room, ...]]:
    """Every order in which no level comes after one that it equals or beats in both costs."""
    # A level that beats another in both has the smaller sum, so it can only stand before it here.
    by_sum = sorted(given, key=lambda room: (room.write + room.read, room.write))
    if not by_sum:
        yield ()
    for place, first in enumerate(by_sum):
        if not any(
            earlier.write <= first.write and earlier.read <= first.read
            for earlier in by_sum[:place]
        ):
            for others in orders(by_sum[:place] + by_sum[place + 1 :]):
                yield first, *others
