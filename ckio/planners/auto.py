"""The best plan for a chain on a platform: of all planners, without overlap and with it.

`auto` takes the best synchronous schedule, and `plan` decides what overlaps as well. `unmeasured`
tells which levels were not measured so that the two can be compared.
"""

from collections.abc import Callable, Mapping

from ckio.errors import NoSchedule
from ckio.planners.base import Planner, log
from ckio.planners.compared import (
    FOLLOWERS,
    SHORT,
    SLOW,
    STATES_ONLY,
    WITH_TAPES,
    Planned,
    asked,
    note_useless,
)
from ckio.platform import Level, Platform, memory_level
from ckio.platform.chain import Chain
from ckio.schedule import Schedule, makespan
from ckio.schedule.policy import AUTO, Policy


def auto(chain: Chain, platform: Platform, /, *, tapes: bool = True) -> Schedule:
    """The schedule of least makespan of all planners that apply; its note says which and why.

    Without `tapes`, for a model that cannot store any, planners that store restart data only are
    compared.

    Of equally good ones it is the plainest. Up to 5000 steps every planner that knows the end of
    the chain is asked; beyond, store-all, periodic, hrevolve and mixed, which no other can beat,
    and where hrevolve does not apply (it may need numba), all others that are quick. Raises
    NoSchedule where no planner finds a schedule.
    """
    note_useless(chain, platform)
    schedules, refused = asked({**(WITH_TAPES if tapes else {}), **STATES_ONLY}, chain, platform)
    short = chain.length <= SHORT
    if short or "hrevolve" not in schedules:
        more, others = asked({**FOLLOWERS, **(SLOW if short else {})}, chain, platform)
        schedules, refused = schedules | more, refused | others
    if not schedules:
        raise NoSchedule(next(reversed(refused.values())))
    found = {name: (makespan(it, platform), it) for name, it in schedules.items()}
    best = min(found, key=lambda name: found[name][0])
    _, schedule = found[best]
    note = _reason(best, {name: seconds for name, (seconds, _) in found.items()})
    if not tapes:
        note += "; planners that store tapes were left out, as the model stores none"
    log.info("auto: %s", note)
    if schedule.note:
        note += f"; {schedule.note}"
    return Schedule(chain, schedule.actions, schedule.stored, note=note)


def _reason(best: str, seconds: Mapping[str, float]) -> str:
    """Why it is this one, in a sentence."""
    least = seconds[best]
    others = {name: value for name, value in seconds.items() if name != best}
    if not others:
        return f"{best}: the only planner that applies"
    name = min(others, key=others.__getitem__)
    more = others[name]
    among = f"of the {len(seconds)} planners that apply"
    if more == least:
        return f"{best}: {least:.6g} s, and none {among} is faster; {name} is as fast"
    return f"{best}: {least:.6g} s, {1 - least / more:.1%} less than {name}, the next {among}"


def plan(
    chain: Chain,
    platform: Platform,
    /,
    *,
    planner: Planner = auto,
    overlap: Policy = AUTO,
    tapes: bool = True,
    effort: int = 2,
    watch: Callable[[float], None] | None = None,
) -> Planned:
    """Return a schedule and the policy to carry it out with, as `ckio plan` does.

    With `overlap` "auto", the planner `auto` takes the best of synchronous and overlapped plans,
    and any other planner's schedule gets the policy with which it takes least. A given policy is
    kept as it is, whatever the planner. The rest is for the search of `auto` with overlap: without
    `tapes` it stores restart data only, `effort` is 1, 2 or 3 (quick, usual, thorough), and `watch`
    is called with the part that is done. Raises as the planner does.
    """
    if overlap == AUTO and planner is auto:
        from ckio.planners.overlap import plan as search

        return search(chain, platform, tapes=tapes, effort=effort, watch=watch)
    schedule = planner(chain, platform)
    synchronous = makespan(schedule, platform)
    if overlap != AUTO:
        return Planned(schedule, overlap, None if overlap else synchronous, synchronous)
    from ckio.planners.overlap import best_policy

    best, seconds = best_policy(schedule, platform)
    return Planned(schedule, best, seconds, synchronous)


def unmeasured(platform: Platform, /) -> list[str]:
    """Return the names of far levels of which it is not known what overlap costs.

    That is known where calibration has measured transfers beside the computation (see
    `ckio.platform.profile`): without it a prediction has no loss for the steps in it.
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
