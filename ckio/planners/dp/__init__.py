"""H-Revolve and mixed: schedules of least makespan on K levels, by one recurrence.

A restart checkpoint takes a bytes of a level and can be read any number of times; the tape of one
step takes b and is read once. With F for what is free on the levels, e_k for one byte of level k,
and without what every schedule pays for recording and reversing each step once,

    P(n, F) = 0 for n <= h, else the least of                        x_0 in the register only
        w'_k + r'_k + P(n - 1, F - b e_k)        record the first step, and write its tape
        w_k + Q0(n, F, k)                        write x_0
    Q0(n, F, k) = min_{1<=j<n} j u + P(n - j, F - a e_k) + r_k + Q(j, F, k)    x_0 also on level k,
    Q(n, F, k) = min(Q0(n, F, k), P(n, F))                          whose space F still counts

for all levels k on which there is space. w_k and r_k are the seconds to write and later discard,
and to read, a restart checkpoint, w'_k and r'_k those of a tape; u is what moving takes, advanced
or, where that is priced lower, recorded; and the working memory holds the tapes of h steps, so that
so many are recorded and reversed at once. The second term of Q gives up x_0 for tapes, or for
another level. With one level, h = 1, a = b and nothing to pay for access this is (1) and (2) of
Maddison, "On the implementation of checkpointing with high-level algorithmic differentiation",
2023, whose argument that x_i and the tape of step i are never worth storing together holds with
costs too. Exhaustive search has found nothing better in many thousand small cases: strong evidence,
not a proof. For example, with one slot, free of cost, and no tapes, three steps of 1 s take 3 s
besides: from x_0 advance two steps and reverse the last one, read x_0 and advance one, read x_0.

Time is O(K n^2) for each F, so that chains with many of them are planned hierarchically: on one
level at a time, in an order, with all nearer levels free and no farther one used,

    P_k(n, f) = min(P_{k-1}(n), w'_k + r'_k + P_k(n - 1, f - b), w_k + Q0_k(n, f))

and so on. Without tapes that is Theorem 2 of Herrmann and Pallez, "H-Revolve", ACM TOMS 2020, with
one repair: beyond the first level they let j run to n - 2 only, and j = n - 1, to go to the end
with nothing stored on the way and come back to level k, is needed where reading x_0 from k costs
less than first moving it nearer. With tapes the hierarchical optimum is not always the optimum: a
tape is read once and may lie far away, a restart checkpoint that is taken later, and often read,
would then be better kept nearer. Search found 54 s where it takes 61, with 6 steps; and of 80,000
random cases of up to 40 steps on levels of a few bytes the worst lost 86 %, with 31 steps. Chains
so short are planned on all levels at once. In 872 cases of 100 to 300 steps, on 3 to 20 free near
slots and 20 to 60 far ones, nothing was lost.

The recurrence is solved in short tables for long chains, nearly all of whose segments are alike
(`segments`); where that proves nothing, as straight pieces in compiled code (`pieces`), or row by
row in numpy (`tables`). All of them are exact for costs as `whole` has them. `walk` turns the
decisions into actions.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby, islice
from math import inf, isfinite
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from ckio.actions import Kind
from ckio.errors import BadInput
from ckio.planners.base import alike, log, tapes, without_notes
from ckio.planners.compiled import available, prepare
from ckio.planners.dp import segments
from ckio.planners.dp import tables as dp_tables
from ckio.planners.dp.spaces import Space, orders, restart_spaces, spaces
from ckio.planners.dp.tables import FAR, Table, rows
from ckio.planners.dp.walk import Segment, Walk
from ckio.planners.dp.whole import Whole, whole
from ckio.planners.varying import varying
from ckio.platform import Platform
from ckio.platform.chain import Chain
from ckio.schedule import Schedule, makespan

if TYPE_CHECKING:
    from ckio.planners.dp.pieces import Layers

_MOST_ORDERS: Final = 24
"""Orders of the levels that are tried: all those of four levels."""

_MOST_SOLVED: Final = 2e8
"""Lengths of layers that are solved before the order is settled: some ten seconds."""

_FEW: Final = 500
"""Lengths up to which tables take some milliseconds, and short tables no less."""

_SHORT: Final = 2_000
"""Lengths for which numpy is quicker than loading what is compiled."""

_QUICK: Final = 1_000
"""Lengths of the tables of segments for which that is so."""

_LONG: Final = 20_000
"""Lengths for which numpy takes a minute or more."""

_MOST_COMPARED: Final = 5e8
"""Numbers that a plan of all levels at once may compare: some two seconds."""

_MOST_FINE: Final = 1 << 18
"""Sums of sizes that are told apart where tables are only as long as segments."""

_MOST_JOINT: Final = 1 << 26
"""Numbers that its tables may hold: half a gigabyte."""

_MOST_TABULATED: Final = 2e7
"""Numbers of tables up to the whole length that are worth it where a first sweep has a gap."""

_MOST_KEPT: Final = 1 << 27
"""Numbers that numpy's tables may hold, with tapes: a gigabyte."""

_SEARCHED: Final = "optimal: exhaustive search has found nothing better in small cases"
_RECORDING: Final = "; moves are recorded, which is priced lower than to advance"
_HIERARCHICAL: Final = "optimal among hierarchical schedules; the best of all may be faster still"


def hrevolve(chain: Chain, platform: Platform, /, *, insist: bool = False) -> Schedule:
    """Return the least-makespan schedule of restart checkpoints on all levels of a platform.

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
    return _hrevolve(chain, platform, "hrevolve", repaired=True, insist=insist)


def hrevolve_2020(chain: Chain, platform: Platform, /, *, insist: bool = False) -> Schedule:
    """Return the schedule of Theorem 2 as it is printed: beyond the first level, j stops at n - 2.

    It is kept to show the difference from `hrevolve`, which is never slower; `insist` as there.
    """
    alike(chain, planner="hrevolve-2020")
    return _hrevolve(chain, platform, "hrevolve-2020", repaired=False, insist=insist)


def _hrevolve(
    chain: Chain, platform: Platform, planner: str, *, repaired: bool, insist: bool
) -> Schedule:
    tapes(chain, platform)
    solution = solve_states(chain, platform, planner=planner, repaired=repaired, insist=insist)
    return solution.schedule(chain, held=1, recording=False)


def mixed(chain: Chain, platform: Platform, /, *, insist: bool = False) -> Schedule:
    """Return the least-makespan schedule of restart checkpoints and tapes on all levels.

    Where all levels at once are too much for a plan in seconds, the least among hierarchical
    schedules; the note says which. It is never slower than that of `hrevolve`. Chains of more than
    20,001 steps, and of fewer on levels with space for very many checkpoints, need numba
    (`pip install ckio[fast]`). Chains whose steps differ are planned by `varying`.

    Parameters
    ----------
    insist : bool
        Plan without numba, however long that takes, as far as tables of a gigabyte do.

    Raises
    ------
    NoSchedule
        Where no level holds a restart checkpoint, and all of them together not the tapes that the
        working memory does not hold.
    BadInput
        Where numba is needed and missing, and where costs are too large to be added up.
    """
    if chain.varies:
        return varying(chain, platform, tapes=True, planner="mixed")
    held = tapes(chain, platform)
    solution = solve(chain, platform, held=held, insist=insist)
    schedule = solution.schedule(chain, held=held, recording=chain.record < chain.advance)
    if solution.complete or not any(level.slots(chain.restart, 1) for level in platform.levels):
        return schedule
    other = hrevolve(chain, platform, insist=insist)
    if makespan(schedule, platform) <= makespan(other, platform):
        return schedule
    return Schedule(chain, other.actions, note="hrevolve's: no mixed schedule found is faster")


@dataclass(frozen=True)
class Solution:
    """The recurrence, solved, and the makespan that it promises.

    Attributes
    ----------
    stages : tuple of Table or Layers
        To be walked from the last one on.
    seconds : float
        Equal to the makespan of the schedule as long as sums of the costs are exact in 64-bit
        floats (whole numbers, quarters and the like), else but for what their rounding adds up to;
        and where costs were rounded to units within half a unit an access.
    note : str
        In which sense this is the best.
    complete : bool
        Whether every plan of restart checkpoints alone was among those compared, and neither a
        cost nor a size was rounded.
    first : tuple of Segment
        The first sweep, where that is not left to the stages.
    """

    stages: tuple["Table | Layers", ...]
    seconds: float
    note: str
    complete: bool
    first: tuple[Segment, ...] = ()

    def schedule(self, chain: Chain, /, *, held: int, recording: bool) -> Schedule:
        """Return the schedule of the chain that was planned for."""
        walk = Walk(self.stages, held=held, recording=recording)
        return walk.draft(chain.length, self.first).schedule(chain, note=self.note)


def solve_states(
    chain: Chain, platform: Platform, /, *, planner: str, repaired: bool, insist: bool = False
) -> Solution:
    """Return the cheapest solution without tapes over the orders of the levels.

    If not `repaired`, j stops at n - 2 beyond the first level. Raises as `hrevolve` does.
    """
    fixed = chain.length * (chain.record + chain.reverse)
    if chain.length == 1:
        return Solution((), fixed, "", complete=True)
    given = restart_spaces(chain, platform, planner=planner)
    asked = _Asked(chain.length, 1, chain.advance, planner, repaired, insist)
    best, prices = asked.best(given)
    theorem = "H-Revolve's recurrence" if repaired else "H-Revolve's Theorem 2 as it is printed"
    note = f"the least makespan by {theorem}"
    if prices is not None and prices.rounded:
        unit, above = prices.seconds(1), prices.above
        note += f", for costs rounded to {unit:.3g} s: at most {above:.1%} more"
    return replace(best, seconds=best.seconds + fixed, note=note)


def solve(
    chain: Chain,
    platform: Platform,
    /,
    *,
    held: int,
    jointly: bool | None = None,
    insist: bool = False,
) -> Solution:
    """Return the solution with tapes on all levels `jointly`, or by level; as there is time for.

    The working memory holds the tapes of `held` steps.
    """
    fixed = chain.length * (chain.record + chain.reverse)
    if chain.length <= held:
        note = "optimal: no step is taken twice, and nothing is stored"
        return Solution((), fixed, note, complete=True)
    given, fine = spaces(chain, platform, held=held), list[Space]()
    if chain.length - 1 > _SHORT and available() and not all(it.slots for it in given):
        with without_notes():
            fine = spaces(chain, platform, held=held, most=_MOST_FINE, units=_MOST_FINE // 4)
    move = min(chain.advance, chain.record)
    asked = _Asked(chain.length, held, move, "mixed", True, insist, tuple(fine))
    if jointly is None:
        jointly = _few(given, chain.length)
    if jointly:
        best, note = asked.jointly(given), _SEARCHED
    else:
        best, _ = asked.best(given)
        note = best.note or (_SEARCHED if len(given) == 1 else _HIERARCHICAL)
    counted = [] if best.first and not best.note else fine if best.note else given
    if not all(space.exact for space in counted):  # slots are always counted
        note += "; sizes are rounded up to units that can be counted"
    if chain.record < chain.advance:
        note += _RECORDING
    return replace(best, seconds=best.seconds + fixed, note=note)


def _few(given: Sequence[Space], length: int) -> bool:
    """Whether there is time and memory for tables of all levels at once."""
    numbers = length * rows(given)
    compared = numbers * length * len(given) / 2
    return compared <= _MOST_COMPARED and numbers * (1 + 2 * len(given)) <= _MOST_JOINT


class _Swept(NamedTuple):
    """A solution with a first sweep, and how far it is above a lower bound at most, as a part."""

    solution: Solution
    gap: float


@dataclass(frozen=True)
class _Asked:
    """A chain of `length` steps, of which the working memory holds the tapes of `held`.

    Sizes of `fine` levels are rounded to smaller units.
    """

    length: int
    held: int
    move: float
    planner: str
    repaired: bool
    insist: bool
    fine: tuple[Space, ...] = ()

    def jointly(self, given: Sequence[Space]) -> Solution:
        """Return the solution on all levels at once."""
        with np.errstate(over="ignore"):
            table = dp_tables.solve(given, _unaided(self.length, self.held, inf), move=self.move)
        complete = all(space.exact for space in given)
        return self._checked(Solution((table,), float(table.finish[-1]), "", complete))

    def best(self, given: Sequence[Space]) -> tuple[Solution, Whole | None]:
        """Return the solution of the best order of the levels, and its costs if they are whole."""
        prices = whole(
            self.move,
            [cost for space in given for cost in space.costs if cost < inf],
            length=self.length - 1,
        )
        if prices is not None and prices.rounded and self.length <= _SHORT + 1:
            prices = None  # tables in seconds take no longer, and need no rounding
        every = islice(orders(given if prices is None else priced(given, prices)), _MOST_ORDERS)
        solutions, solved = list[Solution](), 0
        for order in every:
            solutions.append(self._solved(order, prices))
            solved += 0 if solutions[-1].first else sum(it.last for it in solutions[-1].stages)
            if solved * self.length > _MOST_SOLVED:
                break
        best = min(solutions, key=lambda solution: solution.seconds)
        names = ", ".join(stage.spaces[0].name for stage in best.stages)
        log.info("%s: levels in the order %s, of %d tried", self.planner, names, len(solutions))
        complete = all(it.complete for it in solutions) and next(every, None) is None
        return self._checked(replace(best, complete=complete)), prices

    def _checked(self, solution: Solution) -> Solution:
        if not isfinite(solution.seconds):
            raise BadInput(
                f"{self.planner}: the costs are too large to be added up; give them in seconds"
            )
        return solution

    def _solved(self, order: Sequence[Space], prices: Whole | None) -> Solution:
        """Return the solution of one order, in the way that is quickest."""
        exact = all(space.exact for space in order)
        if prices is None:
            self._refuse_long(order, prices)
            with np.errstate(over="ignore"):
                tables = self._in_tables(order, self.length, self.move, inf)
            return Solution(tables, float(tables[-1].finish[-1]), "", exact)
        move, complete = prices.advance, not prices.rounded
        if self.repaired and self.length - 1 > _FEW:
            short = partial(self._short, move=move)
            plan = segments.plan(order, self.length, short, move=move, held=self.held)
            if plan is not None:
                seconds = prices.seconds(plan.cost)
                return Solution(tuple(plan.stages), seconds, "", complete, plan.first)
        swept = self._swept(order, prices) if self.fine else None
        tabulated = self.length * sum(rows([space]) for space in order)
        if swept is not None and (not swept.gap or tabulated > _MOST_TABULATED):
            return swept.solution
        stages = self._whole(order, prices)
        least = int(stages[-1].finish[-1])
        seconds = prices.seconds(least) if least < FAR else inf
        if swept is not None and swept.solution.seconds <= seconds:
            return swept.solution
        return Solution(stages, seconds, "", complete and exact)

    def _swept(self, order: Sequence[Space], prices: Whole) -> "_Swept | None":
        """Return the solution with the best first sweep of segments, where sizes differ."""
        from ckio.planners.dp.sweep import sweep_of_segments

        levels = {space.number: space for space in priced(self.fine, prices)}
        order = [levels[space.number] for space in order]
        short = partial(self._in_pieces, order, move=prices.advance)
        found = sweep_of_segments(order, self.length, short, held=self.held)
        if found is None:
            return None
        sweep, stages = found
        first = [
            Segment(Kind.RESTART if steps else Kind.TAPE, stage, free, max(1, steps), 1)
            for stage, free, steps in sweep.segments
        ]
        alike = (list(group) for _, group in groupby(first))
        first = [group[0]._replace(copies=len(group)) for group in alike]
        seconds = prices.seconds(round(sweep.seconds))
        gap = max(0.0, sweep.seconds / sweep.bound - 1) if sweep.bound > 0 else 0.0
        note = f"hierarchical, in segments, at most {gap:.2%} above the best such schedule"
        solution = Solution(stages, seconds, note, complete=False, first=tuple(first))
        return _Swept(solution, gap)

    def _whole(self, order: Sequence[Space], prices: Whole) -> "tuple[Table | Layers, ...]":
        """The stages up to the whole length, for whole costs."""
        counted = [space.in_slots(self.length) if space.slots else space for space in order]
        if self.length - 1 > _SHORT and available():
            return self._in_pieces(counted, self.length, prices.advance)
        self._refuse_long(order, prices)
        return self._in_tables(order, self.length, prices.advance, FAR)

    def _short(
        self, order: Sequence[Space], length: int, *, move: int
    ) -> "tuple[Table | Layers, ...]":
        """The stages up to the length of segments, for whole costs."""
        if length <= _QUICK or not available():
            return self._in_tables(order, length, move, FAR)
        return self._in_pieces(order, length, move)

    def _in_pieces(self, order: Sequence[Space], length: int, move: int) -> "tuple[Layers, ...]":
        prepare()
        from ckio.planners.dp import pieces

        lower = _unaided(length, self.held, FAR)[1:]
        return pieces.in_order(order, lower, move=move, repaired=self.repaired)

    def _in_tables(
        self, order: Sequence[Space], length: int, move: float, far: float
    ) -> tuple[Table, ...]:
        lower, stages = _unaided(length, self.held, far), list[Table]()
        for number, space in enumerate(order):
            sweeps = self.repaired or number == 0
            stages.append(dp_tables.solve((space,), lower, move=move, sweeps=sweeps))
            lower = stages[-1].finish
        return tuple(stages)

    def _refuse_long(self, order: Sequence[Space], prices: Whole | None) -> None:
        """Raise BadInput for a chain that is too long, or on too much space, for numpy's tables."""
        insist = "insist on numpy (insist=True, --insist), which may take hours"
        kept = 2 * self.length * sum(rows([space]) for space in order if space.tapes)
        if kept > _MOST_KEPT and prices is not None:
            raise BadInput(
                f"{self.planner}: {self.length} steps with so much room are planned by compiled"
                f" code: pip install ckio[fast]; numpy's tables would take {kept >> 26} GB"
            )
        if (self.length - 1 <= _LONG or self.insist) and kept <= _MOST_KEPT:
            return
        if prices is not None:
            raise BadInput(
                f"{self.planner}: {self.length} steps are planned by compiled code: pip install"
                f" ckio[fast]; or {insist}"
            )
        raise BadInput(
            f"{self.planner}: the costs are too large to be added up for {self.length} steps; leave"
            f" out levels that are much slower than a step, or {insist}"
        )


def _unaided(length: int, held: int, far: float) -> Any:
    """P without any level, for each length up to the greatest: 0, or `far`."""
    return np.where(np.arange(length + 1) <= held, type(far)(0), far)


def priced(given: Sequence[Space], prices: Whole) -> list[Space]:
    """Return the levels with their costs in units; those that are infinite stay so."""
    others = iter(prices.others)
    costs = [[next(others) if cost < inf else cost for cost in it.costs] for it in given]
    return [
        replace(space, write=write, read=read, tape=tape)
        for space, (write, read, tape) in zip(given, costs, strict=True)
    ]
