"""H-Revolve and mixed: schedules of least makespan on K levels, by one recurrence.

A restart checkpoint occupies a bytes of a level and can be read any number of times. The tape of
one step occupies b bytes and is read once. The working memory holds one state, the register, from
which the next step starts, and the tapes of h steps, so that h steps can be recorded and reversed
together. n is the number of steps to reverse. F is the free space of all levels, a vector with the
bytes of each, and F - a e_k is F with a bytes less on level k.

P, Q and Q0 are the least seconds if x_0 is in the register: for P only there; for Q also on level
k; for Q0 also on level k, and the next action is to advance. They leave out the time to record and
reverse each step once, which every schedule needs:

    P(n, F) = 0 for n <= h, else the least of
        w'_k + r'_k + P(n - 1, F - b e_k)        record the first step, and write its tape
        w_k + Q0(n, F, k)                        write x_0
    Q0(n, F, k) = min_{1<=j<n} j u_f + P(n - j, F - a e_k) + r_k + Q(j, F, k)
    Q(n, F, k) = min(Q0(n, F, k), P(n, F))       where F includes the space of x_0

for all levels k that have space. w_k is the time to write a restart checkpoint and to discard it
later (each is discarded once, so that the two are paid together, when it is written), and r_k the
time to read it. w'_k is the time to write a tape, and r'_k to read and discard it. u_f is the time
to advance over one step (`move` in the code).
Q0 advances over j steps, reverses the n - j later ones, reads x_0, and reverses the j first ones.
The second term of Q discards x_0, so that its space is used for tapes, or writes x_0 to another
level. In the notation of Herrmann and Pallez (2020), whose chain has l = n - 1, P + n u_b is
HierTime_K(l), and Q + n u_b the same with a bar, but for the correction below.

For example, with one slot that is free of cost, h = 1, no tapes and u_f = 1 s, three steps need
P(3) = Q0(3) = 3 s: from x_0 advance two steps and reverse the last one; read x_0, advance one step
and reverse the second one; read x_0 and reverse the first one.

If a step that is reversed next is recorded in less time (`record_only`), the seconds left out are
`record_only` for each step and `record` for the last one, whose state J needs. A tape then costs
`record` - `record_only` more, because the next steps begin at the state after its step; and so does
each state between steps that are recorded together (`between` in the code). In the example, with
`record` = 1 s and `record_only` = 0, all that goes forward takes 3 s + 1 s instead of 3 s + 3 s.

With one level of s slots, h = 1, a = b and no cost of access, these are equations (1) and (2) of
Maddison, "Step-based checkpointing with high-level algorithmic differentiation", J. Comput. Sci.,
2024: P(n, s) = p(n, s) - n and Q0(n, s) = p_0(n, s - 1) - n. His argument that it never pays to
store both x_i and the tape of step i is also true with costs. Exhaustive search has found nothing
better in many thousand small cases. This is strong evidence, but no proof.

A sweep, which is what P and Q0 store before the first step is reversed, needs no tape before its
last restart checkpoint. Let a tape on level i be stored just before a restart checkpoint on level
k, whose segment has j steps, and let the two change places. The same checkpoints are stored at the
end of the sweep, so that all fit, and the rest of the chain and its free space are the same. As the
steps are equal, the tape, the advance over j steps and all access cost the same. Only Q(j, F, k) of
the segment changes: the tape has been read and discarded when the segment is reversed, so that F
has b more bytes on level i, and Q does not increase with F, because what fits into less space fits
into more. Repeated exchanges move all tapes to the end of each sweep. This is true on all levels
together and on one after the other, also if access costs something else in the first sweep than
later (`overlap.dual`), because neither cost depends on the place in the sweep; `record_only` and
checkpoints that are handed over (`handed`) change only the costs, and checkpoints that were stored
before (`resume`) only F. Therefore restart checkpoints alone lead from one F to the next, and

    P(n, F) = min(low(n, F), min_k w_k + Q0(n, F, k))

where low is the cost to store only tapes, as many as F has space for. On one level, F is then the
number of restart checkpoints that fit (`spaces`).

If the tape of a step contains the state after it (`tape_restarts`), the forward restarts from it
(Zhang and Constantinescu, J. Comput. Sci., 2023). Then T in place of P follows a tape on level k:

    P(n, F) = ... w'_k + r'_k + T(n - 1, F - b e_k, k) ...
    T(n, F, k) = min(P(n, F), min_{1<=j<n} j u_f + P(n - j, F) + r'_k + T(j, F, k))

For example, four steps of 1 s, with one slot of a state or a tape that costs nothing: store the
tape of the first step, which contains x_1; advance two steps, reverse the last one; read the tape,
advance one step, reverse the third one; read the tape, reverse the second one; read the tape,
reverse the first one. This takes 2 + 1 = 3 s. Without such tapes it takes 3 + 2 = 5 s, from x_0.
Such a tape also stands for a state, so that it may be needed before a restart checkpoint.

The recurrence takes O(K n^2) time for each F. Therefore chains with many values of F are planned
hierarchically: one level after the other, in an order of the levels. In stage k all nearer levels
are empty at the start and no farther level is used. f is the free space on level k:

    P_k(n, f) = min(P_{k-1}(n), w'_k + r'_k + P_k(n - 1, f - b), w_k + Q0_k(n, f))
    Q0_k(n, f) = min_{1<=j<n} j u_f + P_k(n - j, f - a) + r_k + Q_k(j, f)
    Q_k(n, f) = min(Q0_k(n, f), P_k(n, f))

Without tapes this is Theorem 2 of Herrmann and Pallez, "H-Revolve", ACM TOMS 2020, with one
correction. In the paper j ends at n - 2 on every level. On the first level the formula for one slot
stands for the missing j = n - 1; on the others nothing does. j = n - 1 means to advance to the last
step without another checkpoint, and then to read x_0 from level k. This is needed if a read of x_0
from level k costs less than a copy of x_0 on a nearer level. For example, with one slot on each of
two levels, w = (1, 1), r = (0, 0) and u_f = 1, five steps take 8 with j = 4, and 9 without it
(docs/papers.md).

With tapes, the best hierarchical schedule is not always the best schedule. A tape is read once and
may be stored on a far level, so that a restart checkpoint that is written later and read often
could have a nearer slot. A search has found 50 s instead of 61 s, with 6 steps
(`tests/planners/test_mixed.py`). Of 80,000 random cases of up to 40 steps on levels of a few bytes,
the worst takes 86 % more, with 31 steps. Such short chains are planned on all levels together. In
872 cases of 100 to 300 steps, with 3 to 20 near slots that cost nothing and 20 to 60 far ones, the
hierarchical schedule was as fast as the best.

In a long chain nearly all segments are alike, so that short tables solve the recurrence
(`segments`, and `sweep` for two different sizes). If these do not prove the optimum, tables of the
whole chain do (`recurrence`). Both are exact for the costs that `costs` returns. `unroll` turns the
decisions into actions. Tables on all levels together are in `joint`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from math import inf, isfinite
from typing import TYPE_CHECKING, Final

import numpy as np

from ckio.errors import BadInput, NoSchedule
from ckio.planners.base import alike, held_steps, log
from ckio.planners.compiled import prepare
from ckio.planners.dp import joint, segments
from ckio.planners.dp.costs import INFEASIBLE, SHORT, IntegerCosts
from ckio.planners.dp.spaces import (
    Space,
    orders,
    restart_spaces,
    spaces,
    with_integer_costs,
)
from ckio.planners.dp.unroll import Segment, Stage, Unrolling
from ckio.planners.recording import quickest, recorded
from ckio.planners.varying import varying
from ckio.platform import Platform
from ckio.platform.chain import Chain
from ckio.schedule import Schedule, makespan

if TYPE_CHECKING:
    from ckio.planners.dp.recurrence import Table

_MOST_ORDERS: Final = 24
"""The most orders of the levels that are tried; four levels have 24."""

_MOST_SOLVED: Final = 2e8
"""No further order is tried after tables of this total length: about ten seconds."""

_PER_NUMBER: Final = 5e-7
"""Seconds of planning for each number in a table of a long chain. It is not measured where a plan
is made, because the plan must not depend on the machine that makes it."""

_ALWAYS: Final = 1.0
"""Seconds that planning may take in any case."""

_SHARE: Final = 0.02
"""The part that planning may take of the seconds that it can still save."""

_NOTICED: Final = 1e-9
"""A relative loss by rounding that is no larger than that of sums of floats is not noted."""

_SEARCHED: Final = "optimal: exhaustive search has found nothing better in small cases"
_RECORDING: Final = "; steps are recorded instead of advanced, because recording costs less"
_HIERARCHICAL: Final = "optimal among hierarchical schedules; another schedule may be faster"


def hrevolve(chain: Chain, platform: Platform, /) -> Schedule:
    """Return the schedule of least makespan with restart checkpoints on all levels of a platform.

    The costs of two levels may cross: one is faster to write and slower to read than the other.
    Then the planner solves the recurrence for every order in which a level comes before those that
    are slower in both (at most 24 orders), and returns the best schedule. The log names its order
    of the levels.

    In chains of more than 2001 steps, costs are rounded unless they are multiples of a unit of at
    least `advance` / 10,000. `Schedule.note` then gives the unit, and by how much the makespan can
    exceed the least one. Chains whose steps differ are planned by `varying`. Source: Herrmann and
    Pallez (2020), Theorem 2, with the correction that the module describes.

    Raises
    ------
    NoSchedule
        If n > 1 and no level can store a checkpoint.
    BadInput
        If the costs are too large to be added up.
    """
    if chain.varies:
        return varying(chain, platform, tapes=False, planner="hrevolve")
    held_steps(chain, platform)
    return solve_states(chain, platform, planner="hrevolve").schedule(chain, held=1)


def hrevolve_2020(chain: Chain, platform: Platform, /) -> Schedule:
    """Return the schedule of Theorem 2 of Herrmann and Pallez (2020) as it is printed.

    For all levels but the first, j ends at n - 2. The function shows the difference from
    `hrevolve`, whose schedules are never slower. The errors are those of `hrevolve`; it also raises
    BadInput for a chain whose steps differ.
    """
    alike(chain, planner="hrevolve-2020")
    held_steps(chain, platform)
    solution = solve_states(chain, platform, planner="hrevolve-2020", as_printed=True)
    return solution.schedule(chain, held=1)


def mixed(chain: Chain, platform: Platform, /) -> Schedule:
    """Return the schedule of least makespan with restart checkpoints and tapes on all levels.

    If a plan on all levels together would take more than seconds, the schedule is the best
    hierarchical one. If the sizes of states and tapes differ in a chain of more than 2001 steps,
    planning stops when it would take more than 2 % of the seconds that it can still save, or 1 s.
    `Schedule.note` tells which case it is, and the gap. The schedule is never slower than that of
    `hrevolve`. Chains whose steps differ are planned by `varying`. Sources: Maddison
    (2024), equations (1) and (2); Herrmann and Pallez (2020), Theorem 2.

    Raises
    ------
    NoSchedule
        If no level can store a restart checkpoint, and all levels together cannot store the tapes
        that do not fit into the working memory.
    BadInput
        If the costs are too large to be added up.
    """
    if chain.varies:
        return varying(chain, platform, tapes=True, planner="mixed")
    held, planned = held_steps(chain, platform), quickest(chain)
    solution = solve(planned, platform, held=held)
    schedule = solution.schedule(planned, held=held)
    note = schedule.note + _RECORDING * (planned.advance < chain.advance)
    schedule = Schedule(chain, recorded(chain, schedule.actions, held), note=note)
    if solution.complete or not any(level.slots(chain.restart, 1) for level in platform.levels):
        return schedule
    other = hrevolve(chain, platform)
    if makespan(schedule, platform) <= makespan(other, platform):
        return schedule
    return Schedule(chain, other.actions, note="the schedule of hrevolve: no mixed one is faster")


@dataclass(frozen=True)
class Solution:
    """The solution of the recurrence, and its makespan.

    Attributes
    ----------
    stages : tuple of Table, or a JointTable
        The solution for each level. The schedule starts with the last stage.
    seconds : float
        The makespan of the schedule. It is exact as long as sums of the costs are exact in 64-bit
        floats (for example, whole numbers and quarters). Otherwise it differs by the rounding of
        sums, and, if costs were rounded to units, by at most half a unit for each access.
    note : str
        In which sense the schedule is the best.
    complete : bool
        Whether hrevolve cannot be better: all its schedules were compared, and nothing was rounded.
    first : tuple of Segment
        The first sweep, if it was solved separately.
    """

    stages: tuple[Stage, ...]
    seconds: float
    note: str
    complete: bool
    first: tuple[Segment, ...] = ()

    def schedule(self, chain: Chain, /, *, held: int) -> Schedule:
        """Return the schedule; `chain` is the chain for which the recurrence was solved."""
        unrolling = Unrolling(self.stages, held=held)
        return unrolling.draft(chain.length, self.first).schedule(chain, note=self.note)


_NOTHING: Final = Solution((), 0.0, "", complete=True)
"""Without a checkpoint."""


def solve_states(
    chain: Chain, platform: Platform, /, *, planner: str, as_printed: bool = False
) -> Solution:
    """Return the best solution without tapes over all orders of the levels.

    If `as_printed`, j ends at n - 2 for all levels but the first. Raises the errors of `hrevolve`.
    """
    problem = _Problem(chain, 1, planner)
    if chain.length == 1:
        return problem.result(_NOTHING, "")
    given = restart_spaces(chain, platform, planner=planner)
    if as_printed:
        given = [replace(space, to_the_last=False) for space in given]
    best, costs = problem.by_level(given)
    theorem = "H-Revolve's Theorem 2 as it is printed" if as_printed else "H-Revolve's recurrence"
    note = f"the least makespan by {theorem}"
    if costs.above > _NOTICED:
        note += (
            f" for costs rounded to {costs.seconds(1):.3g} s: at most {costs.above:.1%} more than"
            " the least"
        )
    return problem.result(best, note)


def solve(chain: Chain, platform: Platform, /, *, held: int) -> Solution:
    """Return the solution with tapes: on all levels together if that is quick, or hierarchically.

    The working memory holds the tapes of `held` steps.
    """
    problem = _Problem(chain, held, "mixed")
    if chain.length <= held:
        note = "optimal: no step is recomputed, and nothing is stored"
        return problem.result(replace(_NOTHING, seconds=(chain.length - 1) * chain.saved), note)
    given = spaces(chain, platform, held=held, restarting=chain.tape_restarts)
    quick = joint.is_quick_together(given, chain.length) or joint.are_quick(given, chain.length)
    if chain.tape_restarts and not quick:
        given = spaces(chain, platform, held=held)
    if joint.is_quick_together(given, chain.length):
        best, note = problem.together(given), _SEARCHED
    else:
        best, _ = problem.by_level(given)
        note = best.note or (_SEARCHED if len(given) == 1 else _HIERARCHICAL)
    return problem.result(best, note)


@dataclass(frozen=True)
class _Problem:
    """A chain; the working memory holds the tapes of `held` steps."""

    chain: Chain
    held: int
    planner: str

    @property
    def between(self) -> float:
        """Seconds of each state between steps that are recorded together: an Advance at most.

        Therefore it never pays to record fewer steps together than the memory holds.
        """
        return min(self.chain.saved, self.chain.advance) if self.held > 1 else 0.0

    def result(self, solution: Solution, note: str) -> Solution:
        """Return the solution with the time to record and reverse each step once.

        Raises BadInput if it takes infinitely long.
        """
        if not isfinite(solution.seconds):
            raise self._too_long() if self.chain.tape_restarts else self._too_large()
        chain, later = self.chain, self.chain.length - 1
        fixed = chain.length * (chain.record + chain.reverse) - later * chain.saved
        return replace(solution, seconds=solution.seconds + fixed, note=note)

    def _too_long(self) -> NoSchedule:
        return NoSchedule(
            f"{self.planner}: {self.chain.length} steps are planned as if tapes did not restart,"
            f" which needs space for a restart checkpoint of {self.chain.restart} bytes on a level"
        )

    def _too_large(self) -> BadInput:
        return BadInput(
            f"{self.planner}: the costs are too large to be added up for {self.chain.length} steps;"
            " give all costs in seconds, or remove levels that are much slower than a step"
        )

    def together(self, given: Sequence[Space]) -> Solution:
        """Return the solution on all levels together."""
        n = np.arange(self.chain.length + 1)
        nearer = np.where(n <= self.held, self.between * np.maximum(n - 1, 0), inf)
        table = joint.solve(given, nearer, move=self.chain.advance)
        return Solution((table,), float(table.finish[-1]), "", complete=True)

    def by_level(self, given: Sequence[Space]) -> tuple[Solution, IntegerCosts]:
        """Return the solution of the best order of the levels, and its costs in whole units."""
        counts = with_integer_costs(
            given, self.chain.advance, steps=self.chain.length, between=self.between
        )
        if counts is None:
            raise self._too_large()
        priced, costs = counts
        every = orders(priced)
        solutions, solved = list[Solution](), 0
        for order in islice(every, _MOST_ORDERS):
            solutions.append(self._in_order(order, costs))
            if not solutions[-1].first:
                solved += sum(stage.last for stage in solutions[-1].stages)
            if solved * self.chain.length > _MOST_SOLVED:
                break
        best = min(solutions, key=lambda solution: solution.seconds)
        names = ", ".join(stage.spaces[0].name for stage in best.stages)
        log.info("%s: levels in the order %s, of %d tried", self.planner, names, len(solutions))
        complete = all(it.complete for it in solutions) and next(every, None) is None
        return replace(best, complete=complete and costs.above < _NOTICED), costs

    def _in_order(self, order: Sequence[Space], costs: IntegerCosts) -> Solution:
        """Return the solution of one order of the levels.

        A long chain is planned from tables of its segments. If these do not prove the optimum, it
        is planned from tables of the whole chain.
        """
        all_ends = all(space.to_the_last and not space.restarting for space in order)
        is_long = self.chain.length - 1 > SHORT and all_ends
        found = self._in_segments(order, costs) if is_long else None
        return found or self._of_whole_chain(order, costs)

    def _of_whole_chain(self, order: Sequence[Space], costs: IntegerCosts) -> Solution:
        """Return the solution from tables of all numbers of steps."""
        order = [space.in_slots() if space.one_size else space for space in order]
        order = [replace(order[0], to_the_last=True), *order[1:]]  # also in the theorem as printed
        stages: tuple[Table, ...] | tuple[joint.JointTable, ...]
        if joint.are_quick(order, self.chain.length):
            stages = joint.in_order(
                order, self.chain.length, move=costs.move, held=self.held, between=costs.between
            )
        else:
            stages = self._tables(order, self.chain.length, costs=costs)
        least = int(stages[-1].finish[-1])
        seconds = costs.seconds(least) if least < INFEASIBLE else inf
        return Solution(stages, seconds, "", complete=True)

    def _tables(
        self, order: Sequence[Space], steps: int, *, costs: IntegerCosts
    ) -> "tuple[Table, ...]":
        """Return the tables of the levels for all numbers of steps up to `steps`."""
        prepare()
        from ckio.planners.dp.recurrence import in_order

        return in_order(order, steps, move=costs.move, held=self.held, between=costs.between)

    def _in_segments(self, order: Sequence[Space], costs: IntegerCosts) -> Solution | None:
        """Return the solution from tables of the segments of a first sweep.

        If states and tapes have two different sizes, its cost may be above a lower bound. Return
        None if short tables give no solution, or if those of the whole chain are worth their time.
        """
        steps, tables = self.chain.length, partial(self._tables, costs=costs)
        between, held = costs.between, self.held
        one_size = all(space.one_size for space in order)
        if one_size:
            plan = segments.plan(order, steps, tables, move=costs.move, held=held)
            at_end = (held - 1) * between  # of the last steps, which are recorded together
        else:
            from ckio.planners.dp.sweep import sweep_of_segments

            plan = sweep_of_segments(order, steps, tables, held=held, between=between)
            at_end = -between  # of the last one, which the sweep counts, too
        if plan is None:
            return None
        can_save = costs.seconds(round(max(0.0, plan.cost - plan.bound)))
        planning = steps * sum(space.empty + 1 for space in order) * _PER_NUMBER
        if can_save and planning <= max(_ALWAYS, _SHARE * can_save):
            return None
        complete, cost = one_size and not between, round(plan.cost) + at_end
        gap = max(0.0, cost / plan.bound - 1) if plan.bound > 0 else 0.0
        note = f"hierarchical, in segments: at most {gap:.2%} above the best such schedule"
        note, seconds = "" if complete else note, costs.seconds(cost)
        return Solution(plan.stages, seconds, note, complete=complete, first=plan.first)
