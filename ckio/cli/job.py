"""A run as it was asked for, and what one process is to do of it."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ckio.actions import Key, Kind
from ckio.cli.levels import Keep
from ckio.cli.models import RESULTS, Settings, check_has
from ckio.cli.outcome import digest
from ckio.cli.plans import Plan
from ckio.cli.stopping import Stopper
from ckio.model import Differentiable
from ckio.overlap import Overlap
from ckio.runner.perform import ALONE

WITH_TAPES: Final = ("mixed", "auto")
"""The planners that store tapes."""


@dataclass(frozen=True, kw_only=True)
class How:
    """What one process is asked to do beside the run itself.

    Attributes
    ----------
    keep, check, quiet : bool
        Whether checkpoints stay at the end, the gradient is verified, and nothing is printed.
    stopper : Stopper or None
        What stops the run to be resumed; None where signals interrupt it.
    overlap : Overlap
        How much storage goes on behind the computation.
    log : Path or None
        The file of the journal, if one is kept.
    """

    keep: bool = False
    check: bool = False
    quiet: bool = False
    stopper: Stopper | None = None
    overlap: Overlap = ALONE
    log: Path | None = None

    @property
    def keeps(self) -> Keep:
        return "everything" if self.keep else "after errors"

    @property
    def needed(self) -> tuple[str, ...]:
        """What a model must have beside its moves."""
        return (*RESULTS, "control") if self.check else RESULTS


@dataclass(frozen=True)
class Job:
    """A run as it was asked for, in this process or in an earlier one."""

    model: str
    settings: Settings
    fresh: Callable[[], Differentiable]
    plan: Plan
    options: Mapping[str, Any]


def model_of(job: Job, how: How) -> Differentiable:
    """A fresh model, which has what a run needs."""
    model = job.fresh()
    check_has(f"model {job.model!r}", model, how.needed)
    return model


def stores_tapes(job: Job, survivors: Iterable[Iterable[Key]], /) -> bool:
    """Whether what is planned anew stores tapes too: as the first plan did, or what survives."""
    return job.plan.planner in WITH_TAPES or any(
        key.kind is Kind.TAPE for keys in survivors for key in keys
    )


def control_of(model: Differentiable) -> str | None:
    """The digest of a fresh model's controls, if it has them."""
    control = getattr(model, "control", None)
    return None if control is None else digest(control)
