"""The best plan for a chain on a platform: of all planners, without overlap and with it.

`auto` takes the best synchronous schedule, and `plan` decides what overlaps as well. Whether a
platform was measured so that the two can be compared says `unmeasured`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from ckio.chain import Chain
from ckio.errors import BadInput, NoSchedule
from ckio.overlap import AUTO, Overlap, Policy
from ckio.planners.base import Planner, log, note_ignored, without_notes
from ckio.planners.binomial import revolve
from ckio.planners.disk import (
    disk_revolve,
    per_rev_revolve,
    periodic_disk_revolve,
    revolve_1d,
)
from ckio.planners.hrevolve import hrevolve
from ckio.planners.mixed import mixed
from ckio.planners.multistage import multistage
from ckio.planners.trivial import periodic, store_all
from ckio.planners.twolevel import two_level
from ckio.platforms import Level, Platform
from ckio.schedule import Schedule, makespan
from ckio.traffic import memory_level

_LEADERS: Final[Mapping[str, Planner]] = {
    "store-all": store_all,
    "periodic": periodic,
    "hrevolve": hrevolve,
    "mixed": mixed,
}
"""One of these is the best up to the rounding of costs: hrevolve beats all that store no tapes."""

_FOLLOWERS: Final[Mapping[str, Planner]] = {
    "revolve": revolve,
    "multistage": multistage,
    "two-level": two_level,
    "per-rev-revolve": per_rev_revolve,
    "periodic-disk-revolve": periodic_disk_revolve,
    "1d-revolve": revolve_1d,
}
"""Quick for any chain; in long ones they are asked where hrevolve does not apply."""

_SLOW: Final[Mapping[str, Planner]] = {"disk-revolve": disk_revolve}
"""The time of these may grow with the square of the steps."""

_MOST_STEPS: Final = 5_000
"""Steps up to which all planners are asked: it costs less than a second there."""


def auto(chain: Chain, platform: Platform, /) -> Schedule:
    """The schedule of least makespan of all planners that apply; its note says which and why.

    Of equally good ones it is the plainest. Up to 5000 steps every planner that knows the end of
    the chain is asked; beyond, store-all, periodic, hrevolve and mixed, which no other can beat,
    and where hrevolve does not apply (it may need numba), all others that are quick. Raises
    NoSchedule where no planner finds a schedule.
    """
    refused: list[str] = []
    _note_useless(chain, platform)
    found = _asked(_LEADERS, chain, platform, refused)
    short = chain.length <= _MOST_STEPS
    if short or "hrevolve" not in found:
        found |= _asked({**_FOLLOWERS, **(_SLOW if short else {})}, chain, platform, refused)
    if not found:
        raise NoSchedule(refused[-1])
    best = min(found, key=lambda name: found[name][0])
    _, schedule = found[best]
    note = _reason(best, {name: makespan for name, (makespan, _) in found.items()})
    log.info("auto: %s", note)
    if schedule.note:
        note += f"; {schedule.note}"
    return Schedule(chain, schedule.actions, schedule.stored, note=note)


def _asked(
    planners: Mapping[str, Planner], chain: Chain, platform: Platform, refused: list[str]
) -> dict[str, tuple[float, Schedule]]:
    """What each of these planners finds, with its makespan; why others do not goes to `refused`."""
    found: dict[str, tuple[float, Schedule]] = {}
    for name, planner in planners.items():
        try:
            with without_notes():
                schedule = planner(chain, platform)
        except (NoSchedule, BadInput) as error:
            log.info("auto: %s does not apply: %s", name, error)
            refused.append(str(error))
            continue
        found[name] = makespan(schedule, platform), schedule
    return found


def _note_useless(chain: Chain, platform: Platform) -> None:
    """Say of which levels no planner can make use."""
    if chain.length > 1:
        smallest = int(min(chain.each("restart").min(), chain.each("tape").min()))
        for level in platform.levels:
            if not level.slots(smallest, 1):
                note_ignored(level, "auto")


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


@dataclass(frozen=True)
class Planned:
    """A schedule, the policy to carry it out with, and what is known of both.

    Attributes
    ----------
    schedule : Schedule
        Its note says why it was taken.
    overlap : Overlap
    makespan : float or None
        Seconds with this policy; None where the policy was given, so that nothing was simulated.
    synchronous : float
        Seconds without overlap: of the best synchronous schedule where all planners were compared,
        otherwise of this one.
    bound : float or None
        Seconds below which no schedule comes with any policy; None where no bound was computed.
    """

    schedule: Schedule
    overlap: Overlap
    makespan: float | None
    synchronous: float
    bound: float | None = None

    @property
    def gap(self) -> float | None:
        """By which part of the lower bound the makespan is above it, if both are known."""
        if self.makespan is None or not self.bound:
            return None
        return self.makespan / self.bound - 1


def plan(
    chain: Chain,
    platform: Platform,
    /,
    *,
    planner: Planner = auto,
    overlap: Policy = AUTO,
    tapes: bool = True,
    effort: int | None = None,
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
        return _searched(chain, platform, tapes=tapes, effort=effort, watch=watch)
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
    `ckio.profile`): without it a prediction has no loss for the steps in it.
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


def _searched(
    chain: Chain,
    platform: Platform,
    /,
    *,
    tapes: bool,
    effort: int | None,
    watch: Callable[[float], None] | None,
) -> Planned:
    """Return the best of synchronous and overlapped plans."""
    from ckio.planners import overlap

    _note_useless(chain, platform)
    made = overlap.plan(chain, platform, tapes=tapes, effort=effort or 2, watch=watch)
    return Planned(made.schedule, made.overlap, made.makespan, made.synchronous, made.bound)
