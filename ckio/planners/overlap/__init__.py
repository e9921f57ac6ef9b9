"""The best plan if I/O overlaps with computation: a schedule, and the policy for running it.

    engine      compute makespans with overlap, equal to those of `ckio.sim`
    race        simulate schedules with several policies
    dual        plan with multipliers of the seconds of the program and of each channel; a bound
    grid        plan for a few platforms with cheaper far access and less memory

The race also has the schedules that `auto` compares, with and without overlap. Therefore no other
schedule and policy that were simulated take less time than the plan that is returned.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from math import inf
from typing import Any, Final

from ckio.errors import NoSchedule
from ckio.planners import compiled
from ckio.planners.base import log
from ckio.planners.compared import Plan, less_than, note_useless, run_planners
from ckio.planners.overlap import engine
from ckio.planners.overlap.race import Candidate, Race, policies
from ckio.planners.table import compared
from ckio.planners.varying import sorted_bound
from ckio.platform import Affine, Level, Platform, memory_level
from ckio.platform.chain import SIZES, Chain
from ckio.schedule import Schedule
from ckio.schedule.policy import Overlap

__all__ = ["best_policy", "overlapped", "prepare"]

_ROUNDING: Final = 1e-9
"""If a plan is below the lower bound by more than this (relative), a weaker bound replaces it."""

_CLOSE: Final = 1.002
"""No more plans are made if one is within this factor of the bound: 0.2 % could be saved."""

_SHORT: Final = 5_000
"""Steps up to which all named planners are simulated: less than a second."""


def overlapped(
    chain: Chain,
    platform: Platform,
    /,
    *,
    tapes: bool = True,
    watch: Callable[[float], None] | None = None,
) -> Plan:
    """Return the best schedule and policy that are found, with or without overlap.

    Parameters
    ----------
    tapes : bool
        Whether tapes may be stored in addition to states.
    watch
        Called several times with the finished part of the work, from 0 to 1.

    Raises
    ------
    NoSchedule
        If no planner finds a schedule; the message is that of one of the planners.
    BadInput
        If a planner refuses the chain.
    """
    note_useless(chain, platform)
    sizes = [chain.largest(size) for size in ("restart", "tape")[: 1 + tapes]]
    race = Race(chain, platform, policies(platform, sizes))
    refused = _enter_named(race, chain, platform, tapes=tapes)
    if watch is not None:
        watch(0.2)
    planned = _alike(chain) if chain.varies else chain
    bound = _enter_plans(race, planned, platform, tapes=tapes, watch=watch)
    best = race.best
    if best is None:
        raise NoSchedule(next(reversed(refused.values())))
    if chain.varies or not 0 < bound <= best.seconds * (1 + _ROUNDING):
        bound = _least(chain, platform, tapes=tapes)
    bound = min(bound, best.seconds)
    made = Plan(
        chain,
        best.schedule.actions,
        overlap=best.overlap,
        makespan=best.seconds,
        synchronous=race.synchronous,
        bound=bound,
    )
    note = _note(made, race, best)
    log.info("overlap: %s", note)
    return replace(made, note=note)


def best_policy(schedule: Schedule, platform: Platform, /) -> tuple[Overlap, float]:
    """Return the policy with which the schedule takes the least time, and the seconds.

    The policy may be no overlap.
    """
    chain = schedule.chain
    sizes = [chain.largest("restart"), chain.largest("tape")]
    tried = policies(platform, sizes)
    if schedule.stored or chain.variables:
        tried = [Overlap()]
    race = Race(chain, platform, tried)
    race.enter(schedule, "the schedule", thoroughly=True)
    assert race.best is not None
    return race.best.overlap, race.best.seconds


def prepare(platform: Platform, /) -> None:
    """Load the compiled code that `overlapped` needs here, or compile it the first time."""
    if len(platform.levels) > 1 or memory_level(platform) is None:
        compiled.prepare(__name__)


def warm_up() -> None:
    """Call each kernel once, in plans for a small platform."""
    engine.warm_up()
    slow = Affine(latency=3.0)
    chain = Chain(steps=60, advance=1, record=1, reverse=1, restart=1, tape=2, adjoint=1)
    near, far = Level(name="near", capacity=4), Level(name="far", write=slow, read=slow)
    for capacity, tapes in ((9, True), (9, False), (None, True)):
        levels = near, replace(far, capacity=capacity, backend="directory")
        overlapped(chain, Platform(levels, working_memory=2), tapes=tapes)


def _enter_named(race: Race, chain: Chain, platform: Platform, *, tapes: bool) -> dict[str, str]:
    """Enter the schedules of all planners that apply; return the refusals of others by name."""
    planners = compared("tapes", "states") if tapes else compared("states")
    if chain.length <= _SHORT and not chain.varies:
        planners |= compared("regular")
    found, refused = run_planners(planners, chain, platform)
    for name, schedule in found.items():
        race.enter(schedule, name, thoroughly=True)
    if chain.tape_restarts and "mixed" in found:  # more reads of tapes may be slower with overlap
        plain = planners["mixed"](replace(chain, tape_restarts=False), platform)
        race.enter(replace(plain, chain=chain), "mixed", thoroughly=True)
    return refused


def _enter_plans(
    race: Race,
    chain: Chain,
    platform: Platform,
    *,
    tapes: bool,
    watch: Callable[[float], None] | None,
) -> float:
    """Enter the plans of the dual and of the grid; return the bound in seconds, 0 without one."""
    if len(platform.levels) <= (memory_level(platform) is not None) or chain.length == 1:
        return 0.0
    from ckio.planners.overlap.dual import Problem, dual
    from ckio.planners.overlap.grid import grid

    problem = Problem(chain, platform, tapes=tapes)

    def enter(schedule: Schedule) -> float:
        return race.enter(schedule, "a plan made for overlap")

    bound = 0.0
    with suppress(NoSchedule):
        if chain.length > problem.held and (bound := dual(problem, enter)):
            for done in grid(problem, enter):
                if watch is not None:
                    watch(0.4 + 0.6 * done)
                if race.seconds <= bound * _CLOSE:
                    break
    return bound


def _alike(chain: Chain) -> Chain:
    """Return a chain of equal steps, with the mean costs and the largest checkpoints."""
    costs: dict[str, Any] = {
        name: chain.largest(name) if name in SIZES else float(chain.each(name).mean())
        for name in chain.costs
    }
    return replace(chain, **costs)


def _least(chain: Chain, platform: Platform, *, tapes: bool) -> float:
    """Return a lower bound for any chain: that of the slots of all levels, without access costs."""
    sizes = [chain.each("restart").min(), *([chain.each("tape").min()] if tapes else [])]
    slots = sum(level.slots(int(min(sizes)), chain.length) for level in platform.levels)
    bound = sorted_bound(chain, platform, slots=min(slots, chain.length), tapes=tapes)
    return bound if bound < inf else 0.0


def _note(made: Plan, race: Race, best: Candidate) -> str:
    """Return two sentences: the choice and its gain, and the gap to the bound."""
    policy = f"with {made.overlap.text()}" if made.overlap else "without overlap"
    note = f"{best.how}, {policy}: {best.seconds:.6g} s"
    others = {name: seconds for name, seconds in race.seconds_by_name.items() if name != best.how}
    if others:
        name = min(others, key=others.__getitem__)
        note += f", {less_than(best.seconds, others[name])} {name}, the next best"
    if made.overlap:
        note += f", and {less_than(best.seconds, made.synchronous)} the best without overlap"
    gap = f"The gap to the estimated lower bound of {made.bound:.6g} s is {made.gap or 0.0:.1%}"
    return f"{note}. {gap}"
