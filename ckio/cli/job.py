"""A run as it was asked for, and what one process is to do of it."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click
import xxhash

from ckio.actions import Key, Kind
from ckio.chain import Chain
from ckio.cli.levels import Keep
from ckio.cli.models import RESULTS, Settings, check_has
from ckio.cli.outcome import digest
from ckio.cli.plans import OVERLAPPED, Plan
from ckio.cli.stopping import Stopper
from ckio.errors import BadInput, IllegalAction, NoSchedule, UnsupportedKind
from ckio.model import Differentiable, Model
from ckio.overlap import AUTO, SYNCHRONOUS, Overlap
from ckio.platforms import Platform
from ckio.schedule import Schedule
from ckio.team import ALONE as NOBODY_ELSE
from ckio.team import Team
from ckio.variables import Variables

WITH_TAPES: Final = ("mixed", AUTO, OVERLAPPED)
"""The planners that store tapes."""


@dataclass(frozen=True, kw_only=True)
class How:
    """What one process is asked to do beside the run itself.

    Attributes
    ----------
    keep, check, quiet : bool
        Whether checkpoints stay at the end, the gradient is verified, and nothing is printed.
    by_variable : bool
        Whether checkpoints are stored variable by variable.
    guarded : bool
        Whether each step is held against what is declared of it.
    stopper : Stopper or None
        What stops the run to be resumed; None where signals interrupt it.
    overlap : Overlap
        How much storage goes on behind the computation.
    log : Path or None
        The file of the journal, if one is kept.
    team : Team
        The ranks that do it; the first one speaks for them.
    """

    keep: bool = False
    by_variable: bool = False
    guarded: bool = False
    check: bool = False
    quiet: bool = False
    stopper: Stopper | None = None
    overlap: Overlap = SYNCHRONOUS
    log: Path | None = None
    team: Team = NOBODY_ELSE

    def warn(self, text: str, /) -> None:
        """Tell what is to be known also where nothing else is printed.

        That it cannot be told, as in a log on a disk that is full, is no reason to end a run.
        """
        if self.team.rank == 0:
            with suppress(OSError):
                click.echo(f"ckio: {text}", err=True)

    @property
    def keeps(self) -> Keep:
        return "everything" if self.keep else "after errors"

    @property
    def needed(self) -> tuple[str, ...]:
        """What a model must have beside its moves."""
        return (*RESULTS, "control") if self.check else RESULTS


@dataclass(frozen=True)
class Job:
    """A run as it was asked for, in this process or in an earlier one.

    Attributes
    ----------
    model, settings
        The model and its options.
    fresh : callable
        Makes the model anew.
    plan : Plan
    options : mapping
        The planner's own.
    variables : Variables or None
        What states are made of, where checkpoints are stored variable by variable.
    """

    model: str
    settings: Settings
    fresh: Callable[[], Differentiable]
    plan: Plan
    options: Mapping[str, Any]
    variables: Variables | None = None

    @property
    def rooms(self) -> list[tuple[Chain, Platform]]:
        """What is planned with: where there are variables, with what of them has to be stored.

        There are several ways to see that; what is planned in one may not fit, or be better.
        """
        chain, platform = self.plan.chain, self.plan.platform
        if self.variables is None:
            return [(chain, platform)]
        from ckio.analysis.reduced import reduced

        ways = [reduced(chain, platform, self.variables, apart=apart) for apart in (True, False)]
        return ways if ways[0] != ways[1] else ways[:1]

    def lowered(self, schedule: Schedule, /) -> Schedule:
        """What is planned, on single variables where there are such.

        Raises NoSchedule where it does not fit so: parts of a checkpoint are rounded up each.
        """
        if self.variables is None:
            return schedule
        from ckio.analysis.lowering import lower

        try:
            return lower(schedule, self.variables, platform=self.plan.platform)
        except IllegalAction as error:
            raise NoSchedule(f"--by-variable: what is planned does not fit: {error}") from error


def model_of(job: Job, how: How) -> Differentiable:
    """A fresh model, which has what a run needs."""
    model = job.fresh()
    check_has(f"model {job.model!r}", model, how.needed)
    return model


def variables_of(name: str, model: object, /) -> Variables:
    """What the states of a model are made of; raises BadInput where it does not say."""
    found = getattr(model, "variables", None)
    if not isinstance(found, Variables):
        raise BadInput(
            f"--by-variable: model {name!r} does not say what its steps use and overwrite; see what"
            f" `ckio analyze {name}` observes, and declare it as `flow`"
        )
    return found


def stores_tapes(job: Job, survivors: Iterable[Iterable[Key]], /) -> bool:
    """Whether what is planned anew stores tapes too: as the first plan did, or what survives."""
    return (job.plan.planner in WITH_TAPES and job.plan.tapes) or any(
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


def control_of(model: Differentiable, team: Team = NOBODY_ELSE, /) -> str | None:
    """The digest of a fresh model's controls, if it has them; of those of all ranks."""
    control = getattr(model, "control", None)
    mine = None if control is None else digest(control)
    if team.is_alone or mine is None:
        return mine
    return xxhash.xxh3_128("".join(map(str, team.gather(mine))).encode()).hexdigest()
