"""Restart checkpoints and tapes mixed on K levels: the schedule of least makespan.

A restart checkpoint takes a bytes of a level and can be read any number of times; the tape of one
step takes b and is read once. With F for what is free on each level, e_k for one byte of level k,
and without what every schedule pays for recording and reversing each step once,

    P(n, F) = 0 for n <= h, else the least of                        x_0 in the register only
        w'_k + r'_k + P(n - 1, F - b e_k)        record the first step, and write its tape
        w_k + Q0(n, F, k)                        write x_0
    Q0(n, F, k) = min_{1<=j<n} j u + P(n - j, F - a e_k) + r_k + Q(j, F, k)    x_0 also on level k,
    Q(n, F, k) = min(Q0(n, F, k), P(n, F))                             whose room F still counts

for all levels k on which there is room. w_k and r_k are the seconds to write and later discard, and
to read, a restart checkpoint, w'_k and r'_k those of a tape; u is what moving takes, advanced or,
where that is priced lower, recorded; and the working memory holds the tapes of h steps, so that so
many are recorded and reversed at once. The second term of Q gives up x_0 for tapes, or for another
level. With one level, h = 1, a = b and nothing to pay for access this is (1) and (2) of Maddison,
"On the implementation of checkpointing with high-level algorithmic differentiation", 2023, whose
argument that x_i and the tape of step i are never worth storing together holds with costs too.

Exhaustive search has found nothing better in many thousand small cases: strong evidence, not a
proof. Time is O(K n^2) for each F, so that chains with many of them are planned hierarchically: on
one level at a time, in an order, with all nearer levels free and no farther one used,

    P_k(n, f) = min(P_{k-1}(n), w'_k + r'_k + P_k(n - 1, f - b), w_k + Q0_k(n, f))

and so on. Without tapes that is H-Revolve (Herrmann and Pallez, ACM TOMS 2020). With tapes it is
not always the optimum: a tape is read once and may lie far away, a restart checkpoint that is taken
later, and often read, would then be better kept nearer. Search found 54 s where it takes 61, with
6 steps; and of 80,000 random cases of up to 40 steps on levels of a few bytes the worst lost 86 %,
with 31 steps. Chains so short are planned on all levels at once. In 872 cases of 100 to 300 steps,
on 3 to 20 free near slots and 20 to 60 far ones, nothing was lost.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from ckio.errors import BadInput
from ckio.planners.base import tapes
from ckio.planners.hrevolve import hrevolve
from ckio.planners.mixed.full import Seconds, columns, table
from ckio.planners.mixed.levels import by_level
from ckio.planners.mixed.space import Space, spaces
from ckio.planners.mixed.walk import Segment, Stage, walk
from ckio.planners.varying import varying
from ckio.platform import Platform
from ckio.platform.chain import Chain
from ckio.schedule import Schedule, makespan

_MOST_COMPARED: Final = 5e8
"""Numbers that a plan of all levels at once may compare: some two seconds."""

_MOST_KEPT: Final = 1 << 26
"""Numbers that its tables may hold: half a gigabyte."""

_SEARCHED: Final = "optimal: exhaustive search has found nothing better in small cases"
_RECORDING: Final = "; moves are recorded, which is priced lower than to advance"
_HIERARCHICAL: Final = "optimal among hierarchical schedules; the best of all may be faster still"


def mixed(chain: Chain, platform: Platform, /, *, insist: bool = False) -> Schedule:
    """The least-makespan schedule of restart checkpoints and tapes on all levels of a platform.

    Where all levels at once are too much for a plan in seconds, the least among hierarchical
    schedules; the note says which. It is never slower than that of `hrevolve`. Chains of more than
    20,001 steps, and of fewer on levels with room for very many checkpoints, need numba
    (`pip install ckio[fast]`).

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
    plan = solve(chain, platform, held=held, insist=insist)
    schedule = plan.schedule(chain, held=held)
    if plan.complete or not any(level.slots(chain.restart, 1) for level in platform.levels):
        return schedule
    other = hrevolve(chain, platform, insist=insist)
    if makespan(schedule, platform) <= makespan(other, platform):
        return schedule
    return Schedule(chain, other.actions, note="hrevolve's: no mixed schedule found is faster")


@dataclass(frozen=True)
class Plan:
    """What was solved.

    Attributes
    ----------
    stages : tuple of Stage
        To be walked from the last one on.
    seconds : float
        The makespan that they promise.
    note : str
        What kind of optimum this is.
    complete : bool
        Whether every plan of restart checkpoints alone was among those compared.
    first : tuple of Segment
        The first sweep, where that is not left to the stages.
    """

    stages: tuple[Stage, ...]
    seconds: float
    note: str
    complete: bool
    first: tuple[Segment, ...] = ()

    def schedule(self, chain: Chain, /, *, held: int) -> Schedule:
        """The actions, for the chain that was planned for."""
        draft = walk(self.stages, chain, held=held, first=self.first)
        return draft.schedule(chain, note=self.note)


def solve(
    chain: Chain,
    platform: Platform,
    /,
    *,
    held: int,
    jointly: bool | None = None,
    insist: bool = False,
) -> Plan:
    """The plan on all levels `jointly`, or by level; if that is not said, as there is time for."""
    if chain.length <= held:
        plan = Plan((), 0.0, "optimal: no step is taken twice, and nothing is stored", True)
    else:
        given = spaces(chain, platform, held=held)
        if jointly is None:
            jointly = _few(given, chain.length)
        unaided = np.where(np.arange(chain.length + 1) <= held, 0.0, np.inf)
        move = min(chain.advance, chain.record)
        with np.errstate(over="ignore"):
            if jointly:
                plan = _jointly(given, unaided, move=move)
            else:
                plan = _by_level(given, unaided, move=move, insist=insist)
        if chain.record < chain.advance:
            plan = replace(plan, note=plan.note + _RECORDING)
    seconds = plan.seconds + chain.length * (chain.record + chain.reverse)
    if not np.isfinite(seconds):
        raise BadInput("mixed: the costs are too large to be added up; give them in seconds")
    return replace(plan, seconds=seconds)


def _few(given: Sequence[Space], length: int) -> bool:
    """Whether there is time and memory for tables of all levels at once."""
    numbers = length * columns(given)
    compared = numbers * length * len(given) / 2
    return compared <= _MOST_COMPARED and numbers * (1 + 2 * len(given)) <= _MOST_KEPT


def _jointly(given: Sequence[Space], unaided: Seconds, *, move: float) -> Plan:
    solved = table(given, unaided, move=move)
    note = _SEARCHED + _rounding(given)
    return Plan((solved,), float(solved.finish[-1]), note, _exact(given))


def _by_level(given: Sequence[Space], unaided: Seconds, *, move: float, insist: bool) -> Plan:
    found = by_level(given, unaided, move=move, insist=insist)
    note = _SEARCHED if len(given) == 1 else _HIERARCHICAL
    if not found.first:  # which counts slots
        note += _rounding(given)
    return Plan(found.stages, found.seconds, note, found.complete, found.first)


def _exact(given: Sequence[Space]) -> bool:
    return all(space.exact for space in given)


def _rounding(given: Sequence[Space]) -> str:
    return "" if _exact(given) else "; sizes are rounded up to units that can be counted"
