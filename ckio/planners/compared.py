"""The planners that `auto` compares, with overlap and without, and what a comparison comes to."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ckio.errors import BadInput, NoSchedule
from ckio.planners.base import Planner, log, note_ignored, without_notes
from ckio.planners.table import compared
from ckio.platform import Platform
from ckio.platform.chain import Chain
from ckio.schedule import Schedule
from ckio.schedule.policy import Overlap

WITH_TAPES: Final[Mapping[str, Planner]] = compared("tapes")
STATES_ONLY: Final[Mapping[str, Planner]] = compared("states")
"""One of these two groups has the best synchronous schedule, up to the rounding of costs."""

FOLLOWERS: Final[Mapping[str, Planner]] = compared("follower")
"""Quick for any chain. They store states only, and ignore some costs."""

SLOW: Final[Mapping[str, Planner]] = compared("slow")
"""The time of these may grow with the square of the steps."""

SHORT: Final = 5_000
"""Steps up to which all planners are asked: it costs less than a second there."""


@dataclass(frozen=True)
class Planned:
    """A schedule, the policy to carry it out with, and what is known of both.

    Attributes
    ----------
    schedule : Schedule
        Its note says why it was taken.
    overlap : Overlap
    makespan : float or None
        Seconds with this policy, equal to those of `ckio.sim` to the last bit; None where the
        policy was given, so that nothing was simulated.
    synchronous : float
        Seconds without overlap: of the best synchronous schedule where all planners were compared,
        otherwise of this one.
    bound : float or None
        Seconds below which no schedule is expected to come with any policy; None where no bound was
        computed.
    exact : bool
        Whether the bound is for plans on all levels at once. Otherwise it rests on plans on one
        level after the other, and is an estimate: search has found these up to 0.1 % above the
        least.
    """

    schedule: Schedule
    overlap: Overlap
    makespan: float | None
    synchronous: float
    bound: float | None = None
    exact: bool = False

    @property
    def gap(self) -> float | None:
        """By which part of the lower bound the makespan is above it, if both are known."""
        if self.makespan is None or not self.bound:
            return None
        return self.makespan / self.bound - 1


def asked(
    planners: Mapping[str, Planner], chain: Chain, platform: Platform, /
) -> tuple[dict[str, Schedule], dict[str, str]]:
    """Return the schedules of the planners that apply, and why others do not, by name."""
    found, refused = dict[str, Schedule](), dict[str, str]()
    for name, planner in planners.items():
        try:
            with without_notes():
                found[name] = planner(chain, platform)
        except (NoSchedule, BadInput) as error:
            log.info("auto: %s does not apply: %s", name, error)
            refused[name] = str(error)
    return found, refused


def note_useless(chain: Chain, platform: Platform, /) -> None:
    """Say of which levels no planner can make use."""
    if chain.length > 1:
        smallest = int(min(chain.each("restart").min(), chain.each("tape").min()))
        for level in platform.levels:
            if not level.slots(smallest, 1):
                note_ignored(level, "auto")
