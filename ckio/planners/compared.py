"""The planners that `auto` compares, with or without overlap, and the result of a comparison."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from ckio.errors import BadInput, NoSchedule
from ckio.planners.base import Planner, log, note_ignored, without_notes
from ckio.platform import Platform
from ckio.platform.chain import Chain
from ckio.schedule import Schedule
from ckio.schedule.policy import Overlap


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Plan(Schedule):
    """A schedule with its policy of overlap, the predicted seconds of both, and a lower bound.

    Attributes
    ----------
    makespan : float or None
        Seconds with this policy, equal to the makespan of `ckio.sim` to the last bit. None if the
        caller gave the policy, because then nothing was simulated.
    synchronous : float
        Seconds without overlap: of the best synchronous schedule if all planners were compared,
        otherwise of this schedule.
    bound : float or None
        An estimated lower bound in seconds: no schedule with any policy is expected to be faster.
        None if no bound was computed. It is for plans that use one level after the other, which in
        tests were up to 0.1 % above the least.
    """

    makespan: float | None
    synchronous: float
    bound: float | None = None

    @classmethod
    def of(cls, schedule: Schedule, overlap: Overlap, /, **figures: Any) -> Self:
        """Return a schedule as a plan with this policy and these attributes."""
        stored, note = schedule.stored, schedule.note
        return cls(schedule.chain, schedule.actions, stored, note, overlap, **figures)

    @property
    def gap(self) -> float | None:
        """The relative gap to the lower bound, makespan / bound - 1, or None if it is not known."""
        if self.makespan is None or not self.bound:
            return None
        return self.makespan / self.bound - 1


def run_planners(
    planners: Mapping[str, Planner], chain: Chain, platform: Platform, /
) -> tuple[dict[str, Schedule], dict[str, str]]:
    """Return the schedules of the planners that apply, and the reasons why the others do not.

    Both are dictionaries, with the names of the planners as keys.
    """
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
    """Write a warning to the log for each level that no planner can use."""
    if chain.length > 1:
        smallest = int(min(chain.each("restart").min(), chain.each("tape").min()))
        for level in platform.levels:
            if not level.slots(smallest, 1):
                note_ignored(level, "auto")


def less_than(seconds: float, others: float, /) -> str:
    """Return how much less a time is than another, which is not less, as text.

    >>> less_than(9.0, 10.0), less_than(9.9999, 10.0)
    ('10.0% less than', 'within 0.1% of')
    """
    share = 1 - seconds / others if others else 0.0
    return f"{share:.1%} less than" if round(share, 3) else "within 0.1% of"
