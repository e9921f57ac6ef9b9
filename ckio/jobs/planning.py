"""A planner by name and all that it is asked, as commands and runs ask it."""

import functools
import inspect
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Final

from ckio.adapters.registry import find, is_ours, names
from ckio.errors import BadInput, CkioError, IllegalAction, RunFailed
from ckio.jobs.display import PATIENCE, QUIET, Display, share
from ckio.planners.auto import auto, far_levels, plan, unmeasured
from ckio.planners.base import Planner
from ckio.planners.compared import Planned
from ckio.platform import Platform
from ckio.platform.chain import Chain
from ckio.schedule import Schedule
from ckio.schedule.policy import AUTO, SYNCHRONOUS, Overlap, Policy, exactly
from ckio.schedule.replay import validate

MOST_STEPS: Final = 2**31 - 1
"""The schedule of more would take some 100 GB."""

OVERLAPPED: Final = "overlapped"
"""The planner that says with which policy its schedule is to be run: `auto` with overlap."""


@dataclass(frozen=True)
class Planning:
    """A planner by name, and all that it is asked.

    Attributes
    ----------
    planner : str
    chain : Chain
    platform : Platform
    call : Planner
        With its own options.
    overlap : Overlap or "auto"
    effort : int or None
        How long to search for plans with overlap; None for the usual.
    tapes : bool
        Whether the model can store tapes.
    unmeasured : tuple of str
        The levels for which overlap was not considered: what it costs was not measured there.
    """

    planner: str
    chain: Chain
    platform: Platform
    call: Planner
    overlap: Policy = SYNCHRONOUS
    effort: int | None = None
    tapes: bool = True
    unmeasured: tuple[str, ...] = ()

    @property
    def decides(self) -> bool:
        """Whether the plan says what is to overlap."""
        return self.overlap == AUTO or self.planner == OVERLAPPED

    @property
    def not_considered(self) -> str:
        """Return a line that says why overlap was not considered, where that is so; or ""."""
        if not self.unmeasured:
            return ""
        many = len(self.unmeasured) > 1
        return (
            f"overlap was not considered: level{'s' * many} {', '.join(self.unmeasured)}"
            f" {'were' if many else 'was'} not measured beside a computation; `ckio calibrate"
            " --model` does that, or say --overlap auto"
        )

    def load(self, display: Display = QUIET, /) -> None:
        """Load the compiled code for overlap: other plans do without where chains are short."""
        if self.decides:
            what = "loading code, or compiling it the first time"
            with display.progress(what, after=PATIENCE):
                from ckio.planners.overlap import prepare

                prepare(self.platform)

    def planned(self, display: Display = QUIET, /) -> Planned:
        """Ask the planner; raises BadInput where the schedule is too large for the memory."""
        what = f"planning {self.chain.length} steps with {self.planner}"
        too_large = BadInput(f"{what} takes more memory than there is; plan fewer")
        if self.chain.length > MOST_STEPS:
            raise too_large
        searches = self.decides and self.call is auto
        if self.effort is not None and not searches:
            raise BadInput("--effort is of the search for plans that overlap: say --overlap auto")
        self.load(display)
        with display.progress(what, unit="%", after=PATIENCE) as tick:
            try:
                return plan(
                    self.chain,
                    self.platform,
                    planner=auto if searches else self._made,
                    overlap=AUTO if self.decides else self.overlap,
                    tapes=self.tapes,
                    effort=self.effort or 2,
                    watch=share(tick),
                )
            except (MemoryError, OverflowError):
                raise too_large from None
            except CkioError:
                raise
            except Exception as error:
                raise RunFailed(f"{what}: {type(error).__name__}: {error}") from error

    def _made(self, chain: Chain, platform: Platform, /) -> Schedule:
        """Return what the planner makes; raises RunFailed where that is no schedule of this chain.

        Only what planners of other packages make is looked at closely.
        """
        plain = self.call is not auto
        made: object = (
            self.call(chain, platform) if plain else auto(chain, platform, tapes=self.tapes)
        )
        if not isinstance(made, Schedule):
            raise RunFailed(
                f"planning {chain.length} steps with {self.planner}: it returned a"
                f" {type(made).__name__}, which is no Schedule"
            )
        if is_ours("planners", self.planner) or self.planner not in names("planners"):
            return made
        try:
            left = validate(made, platform).adjoint
        except (IllegalAction, BadInput) as error:
            raise RunFailed(f"planner {self.planner!r} made no legal schedule: {error}") from error
        if left or made.chain.length != chain.length:
            raise RunFailed(
                f"planner {self.planner!r} made no schedule of this chain: it reverses"
                f" {made.chain.length - left} of {chain.length} steps"
            )
        return made


def chosen(
    planner: str | None,
    overlap: Policy | None,
    platform: Platform,
    /,
    own: Mapping[str, Any] = MappingProxyType({}),
) -> tuple[str, Policy, tuple[str, ...]]:
    """Return the planner, what is to overlap, and the levels for which that was not considered.

    Without a planner's name it is `auto`, unless options of a planner's `own` are given: then it is
    `hrevolve`, whose options they are. With `auto`, and no policy, overlap is considered if it was
    measured on all far levels what it costs; otherwise nothing overlaps.
    """
    levels: list[str] = []
    if overlap is None:
        overlap = SYNCHRONOUS
        asked = planner == AUTO or (planner is None and not any(own.values()))
        if asked and far_levels(platform):
            levels = unmeasured(platform)
            overlap = SYNCHRONOUS if levels else AUTO
    own_planner = "hrevolve" if any(own.values()) and overlap != AUTO else AUTO
    return planner or own_planner, overlap, tuple(levels)


def policy(asked: Policy | None, own: Overlap, whose: str, /, display: Display = QUIET) -> Overlap:
    """Return the policy that was asked for, or else a plan's own; say where it is replaced."""
    if (exact := exactly(asked)) is None:
        return own
    if own and exact != own:
        name = exact if exact else "none"
        display.say(f"overlap {name} as asked for, instead of {own} {whose}")
    return exact


def overlap_figures(planned: Planned, /) -> dict[str, Any]:
    """Return the keys of `--json` about overlap: policy, synchronous seconds, bound and gap."""
    return {
        "overlap": str(planned.overlap),
        "synchronous": planned.synchronous,
        "bound": planned.bound,
        "gap": planned.gap,
    }


def planner_call(name: str, /, **given: Any) -> Planner:
    """Return a planner with its own options; raises BadInput for one that it does not have."""
    planner: Planner = auto if name == OVERLAPPED else find("planners", name)
    options = {option: value for option, value in given.items() if value is not None}
    known = inspect.signature(planner).parameters
    for option in options:
        if option not in known:
            raise BadInput(f"planner {name!r} has no option --{option}")
    return functools.partial(planner, **options) if options else planner


def with_room(platform: Platform, chain: Chain, /) -> Platform:
    """Return the platform with working memory for a tape of this chain.

    Where the platform has just the room for the largest tape of the models that it was calibrated
    with, that is what calibration wrote, and no limit that anybody set.
    """
    room, known = platform.working_memory, platform.models.values()
    measured = max((costs.largest("tape") for costs in known), default=None)
    if room is None or room != measured or room >= chain.largest("tape"):
        return platform
    return replace(platform, working_memory=chain.largest("tape"))
