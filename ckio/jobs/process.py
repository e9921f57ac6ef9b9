"""One process of a run: its request, its model, its plan, and who is told of it."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

import xxhash

from ckio.actions import Key, Kind
from ckio.actions.variables import Variables
from ckio.errors import IllegalAction, NoSchedule, UnsupportedKind
from ckio.jobs.display import QUIET, Display
from ckio.jobs.gradients import digest
from ckio.jobs.levels import Keep
from ckio.jobs.models import RESULTS, check_has
from ckio.jobs.planning import OVERLAPPED, Planning
from ckio.jobs.request import Request
from ckio.jobs.stopping import Stopper
from ckio.model import Array, Differentiable, Model
from ckio.parallel.team import ALONE, Team
from ckio.planners.compared import Planned
from ckio.platform import Platform
from ckio.platform.chain import Chain
from ckio.schedule import Schedule
from ckio.schedule.policy import AUTO, SYNCHRONOUS, Overlap

WITH_TAPES: Final = ("mixed", AUTO, OVERLAPPED)
"""The planners that store tapes."""


@dataclass(frozen=True, kw_only=True)
class Process:
    """One process that works on a run, in which it was begun or resumed.

    Attributes
    ----------
    request : Request
        Of a resumed run, with what it was begun with.
    fresh : callable
        Makes the model anew.
    planning : Planning
        The planner, the chain and the platform.
    variables : Variables or None
        What states are made of, where checkpoints are stored variable by variable.
    overlap : Overlap
        How much I/O overlaps with computation.
    stopper : Stopper or None
        What stops the run so that it can be resumed; None where signals interrupt it.
    display : Display
    team : Team
        The ranks that do it; the first one speaks for them.
    plans : list
        What was planned so far for the same job, to be taken again.
    """

    request: Request
    fresh: Callable[[], Differentiable]
    planning: Planning
    variables: Variables | None = None
    overlap: Overlap = SYNCHRONOUS
    stopper: Stopper | None = None
    display: Display = QUIET
    team: Team = ALONE
    plans: list[tuple[Planning, Planned]] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The name of the model."""
        return self.request.model or "model"

    @property
    def chain(self) -> Chain:
        return self.planning.chain

    @property
    def platform(self) -> Platform:
        return self.planning.platform

    @property
    def keeps(self) -> Keep:
        return "everything" if self.request.keep else "after errors"

    def model(self) -> Differentiable:
        """Return a fresh model, which has what a run needs; raises BadInput."""
        model = self.fresh()
        needed = (*RESULTS, "control") if self.request.check else RESULTS
        check_has(f"model {self.name!r}", model, needed)
        return model

    def planned(self, planning: Planning, /) -> Planned:
        """Plan, or take what was planned before for just this chain and platform."""
        for known, planned in self.plans:
            if known == planning:
                return planned
        planned = planning.planned(self.display)
        self.plans.append((planning, planned))
        return planned

    def with_chain(self, chain: Chain, /) -> "Process":
        """Return the same process for another chain."""
        return replace(self, planning=replace(self.planning, chain=chain))

    @property
    def rooms(self) -> list[tuple[Chain, Platform]]:
        """The chain and the platform to plan with.

        Where there are variables, the chain stores what of them has to be stored. There are several
        ways to see that; what is planned in one may not fit, or be better.
        """
        if self.variables is None:
            return [(self.chain, self.platform)]
        from ckio.analysis.lowering import reduced

        known = self.chain, self.platform, self.variables
        ways = [reduced(*known, apart=apart) for apart in (True, False)]
        return ways if ways[0] != ways[1] else ways[:1]

    def lowered(self, schedule: Schedule, /) -> Schedule:
        """Return what is planned on single variables, where there are such.

        Raises NoSchedule where it does not fit so: parts of a checkpoint are rounded up each.
        """
        if self.variables is None:
            return schedule
        from ckio.analysis.lowering import lower

        try:
            return lower(schedule, self.variables, platform=self.platform)
        except IllegalAction as error:
            raise NoSchedule(f"--by-variable: what is planned does not fit: {error}") from error

    def stores_tapes(self, survivors: Iterable[Iterable[Key]], /) -> bool:
        """Whether the rest is planned with tapes, too: as the first plan, or as what survives."""
        return (self.planning.planner in WITH_TAPES and self.planning.tapes) or any(
            key.kind is Kind.TAPE for keys in survivors for key in keys
        )


def has_tapes(chain: Chain, make: Callable[[], Model], /) -> bool:
    """Whether a model can store tapes; one that cannot says that they have no bytes."""
    if chain.largest("tape"):
        return True
    try:
        make().layout(Key(Kind.TAPE, 0))
    except UnsupportedKind:
        return False
    return True


def control_of(model: Differentiable, team: Team = ALONE, /) -> str | None:
    """Return the digest of a fresh model's controls, if it has them; of those of all ranks."""
    control = getattr(model, "control", None)
    return None if control is None else digest_of(control, team)


def digest_of(control: Mapping[str, Array], team: Team = ALONE, /) -> str:
    """Return the digest of controls; of those of all ranks."""
    mine = digest(control)
    if team.is_alone:
        return mine
    return xxhash.xxh3_128("".join(map(str, team.gather(mine))).encode()).hexdigest()
