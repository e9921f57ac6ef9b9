"""The best plan for a chain on a platform, chosen from all planners, with or without overlap.

`auto` returns the best synchronous schedule. `plan` also decides which transfers overlap with the
computation. `unmeasured` lists the levels without the measurements that this decision needs.
"""

from collections.abc import Callable, Mapping
from functools import partial

from ckio.errors import NoSchedule
from ckio.planners.base import Planner, log
from ckio.planners.compared import Plan, less_than, note_useless, run_planners
from ckio.planners.table import compared
from ckio.platform import Level, Platform, memory_level
from ckio.platform.chain import Chain
from ckio.schedule import Schedule, makespan
from ckio.schedule.policy import AUTO, Overlap, Policy


def auto(chain: Chain, platform: Platform, /, *, tapes: bool = True) -> Schedule:
    """Return the schedule of least makespan among all planners that apply.

    The planners are store-all, periodic, mixed and hrevolve, because no other one is better than
    the best of these. The note of the schedule names the planner and compares it with the next one.
    If several planners are equally good, `auto` takes the simplest schedule: the planner that comes
    first in `ckio.planners.table`. The log names the planners that do not apply, and why.

    Set `tapes` to False if the model cannot store tapes. Then only planners that store restart data
    alone are compared.

    Raises NoSchedule if no planner finds a schedule.

    For example, five steps take 1 s each to advance, 2 s to record and 1 s to reverse, and the
    working memory holds all five tapes. Storing all tapes is then the best schedule, in 5 (2 + 1) s
    = 15 s:

    >>> from ckio.platform import Level
    >>> chain = Chain(steps=5, advance=1, record=2, reverse=1, restart=8, tape=8, adjoint=8)
    >>> platform = Platform((Level(name="ram", capacity=16),), working_memory=40)
    >>> schedule = auto(chain, platform)
    >>> makespan(schedule, platform), schedule.note.partition(":")[0]
    (15.0, 'store-all')
    """
    note_useless(chain, platform)
    planners = compared("tapes", "states") if tapes else compared("states")
    schedules, refused = run_planners(planners, chain, platform)
    if not schedules:
        raise NoSchedule(next(reversed(refused.values())))
    found = {name: (makespan(it, platform), it) for name, it in schedules.items()}
    best = min(found, key=lambda name: found[name][0])
    _, schedule = found[best]
    note = _reason(best, {name: seconds for name, (seconds, _) in found.items()})
    log.info("auto: %s", note)
    if schedule.note:
        note += f"; {schedule.note}"
    return Schedule(chain, schedule.actions, schedule.stored, note=note)


def _reason(best: str, seconds: Mapping[str, float]) -> str:
    """Return a sentence that says why this planner is the best."""
    least = seconds[best]
    others = {name: value for name, value in seconds.items() if name != best}
    if not others:
        return f"{best}: the only planner that applies"
    name = min(others, key=others.__getitem__)
    more = others[name]
    among = f"of the {len(seconds)} planners that apply"
    if more == least:
        return f"{best}: {least:.6g} s, and none {among} is faster; {name} is as fast"
    return f"{best}: {least:.6g} s, {less_than(least, more)} {name}, the next {among}"


def plan(
    chain: Chain,
    platform: Platform,
    /,
    *,
    planner: Planner = auto,
    overlap: Policy = AUTO,
    tapes: bool = True,
    watch: Callable[[float], None] | None = None,
) -> Plan:
    """Return a schedule with its policy of overlap, as the command `ckio plan` does.

    Parameters
    ----------
    planner
        The planner of the schedule; `auto` by default.
    overlap
        A policy, which is then used as it is, or "auto". With "auto" and the planner `auto`, the
        result is the best of the synchronous and the overlapped plans. With "auto" and any other
        planner, the result is the schedule of that planner, with the policy of least makespan.
    tapes
        Whether `auto` may store tapes in addition to restart data.
    watch
        Called with the fraction of the work that is done, from 0 to 1, if overlap is planned.

    Raises the errors of the planner.
    """
    if overlap == AUTO and not far_levels(platform):
        overlap = Overlap()  # nothing can overlap, so that no compiled code is loaded
    if overlap == AUTO and planner is auto:
        from ckio.planners.overlap import overlapped

        return overlapped(chain, platform, tapes=tapes, watch=watch)
    make = partial(auto, tapes=tapes) if planner is auto else planner
    schedule = make(chain, platform)
    synchronous = makespan(schedule, platform)
    if overlap != AUTO:
        seconds = None if overlap else synchronous
        return Plan.of(schedule, overlap, makespan=seconds, synchronous=synchronous)
    from ckio.planners.overlap import best_policy

    best, seconds = best_policy(schedule, platform)
    return Plan.of(schedule, best, makespan=seconds, synchronous=synchronous)


def unmeasured(platform: Platform, /) -> list[str]:
    """Return the names of the far levels for which the cost of overlap is not known.

    The cost is known if calibration has measured transfers that run concurrently with the
    computation (see `ckio.platform.profile`). Without it, a prediction ignores that these transfers
    make the time steps slower.
    """
    return [
        level.name
        for level in far_levels(platform)
        if level.profile is None
        or level.profile.write_beside is None
        or level.profile.read_beside is None
    ]


def far_levels(platform: Platform, /) -> list[Level]:
    """Return the levels whose transfers may overlap with the computation: all but plain memory."""
    memory = memory_level(platform)
    return [level for number, level in enumerate(platform.levels) if number != memory]
