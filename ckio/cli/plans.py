"""What the planning options of a command line come to: a planner's call, and what it is given."""

import functools
import inspect
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import click

from ckio import costs, papertext
from ckio.actions import Kind
from ckio.chain import COSTS, Chain
from ckio.cli import console
from ckio.cli.files import blamed_on, read_text
from ckio.cli.models import Settings
from ckio.cli.models import costs as costs_of_model
from ckio.errors import BadInput, CkioError, IllegalAction, RunFailed
from ckio.overlap import Overlap
from ckio.planners import compact
from ckio.planners.compiled import seconds_of_loading
from ckio.platforms import Platform, is_paper_text
from ckio.registry import find, is_ours, names
from ckio.replay import validate
from ckio.schedule import Schedule

if TYPE_CHECKING:  # which brings numba in
    from ckio.planners.overlapped import Overlapped

TEXT_COSTS: Final[Mapping[str, float | int]] = {
    "advance": 1.0,
    "record": 0.0,
    "reverse": 0.0,
    "restart": 1,
    "tape": 1,
    "adjoint": 1,
}
"""What paper 004's text form takes for granted: a checkpoint is one byte, so capacity is slots."""

MOST_STEPS: Final = 2**31 - 1
"""The schedule of more would take some 100 GB."""

OVERLAPPED: Final = "overlapped"
"""The planner that says with which policy its schedule is to be run."""

Call: TypeAlias = "Callable[[Chain, Platform], Schedule | Overlapped]"
"""A planner with its own options."""


@dataclass(frozen=True)
class Planned:
    """What a planner has made.

    Attributes
    ----------
    schedule : Schedule
    seconds : float
        What it took to make, without loading or compiling code.
    made : Overlapped or None
        What `overlapped` has to say beside the schedule; None of other planners.
    """

    schedule: Schedule
    seconds: float
    made: "Overlapped | None" = None

    @property
    def overlap(self) -> Overlap:
        """The policy that the schedule was made for."""
        return Overlap() if self.made is None else self.made.overlap


@dataclass(frozen=True)
class Plan:
    """What the planning options of one command line come to."""

    planner: str
    chain: Chain
    platform: Platform
    call: Call

    def planned(self, *, quiet: bool) -> Planned:
        """Ask the planner; raises BadInput where the schedule is too large for the memory."""
        what = f"planning {self.chain.length} steps with {self.planner}"
        too_large = BadInput(f"{what} takes more memory than there is; plan fewer")
        if self.chain.length > MOST_STEPS:
            raise too_large
        if self.planner == OVERLAPPED:
            self._load(quiet=quiet)
        with console.progress(what, quiet=quiet):
            start, loading = time.perf_counter(), seconds_of_loading()
            try:
                found = self.call(self.chain, self.platform)
            except (MemoryError, OverflowError):
                raise too_large from None
            except CkioError:
                raise
            except Exception as error:
                raise RunFailed(f"{what}: {type(error).__name__}: {error}") from error
            seconds = time.perf_counter() - start - (seconds_of_loading() - loading)
        if isinstance(found, Schedule):
            self._check(found)
            return Planned(found, seconds)
        if self.planner != OVERLAPPED:
            raise RunFailed(f"{what}: it returned a {type(found).__name__}, which is no Schedule")
        return Planned(found.schedule, seconds, found)

    def _check(self, schedule: Schedule) -> None:
        """Raise RunFailed where another package's planner made no schedule of this chain."""
        if is_ours("planners", self.planner) or self.planner not in names("planners"):
            return
        try:
            left = validate(schedule, self.platform).adjoint
        except (IllegalAction, BadInput) as error:
            raise RunFailed(f"planner {self.planner!r} made no legal schedule: {error}") from error
        if left or schedule.chain.length != self.chain.length:
            raise RunFailed(
                f"planner {self.planner!r} made no schedule of this chain: it reverses"
                f" {schedule.chain.length - left} of {self.chain.length} steps"
            )

    def schedule(self, *, quiet: bool) -> tuple[Schedule, float]:
        """The schedule of `planned` alone, and the seconds it took to make."""
        found = self.planned(quiet=quiet)
        return found.schedule, found.seconds

    def _load(self, *, quiet: bool) -> None:
        """Load the code of `overlapped`: other planners do without any where chains are short."""
        from ckio.planners.overlapped import prepare

        what = "loading code, or compiling it the first time"
        with console.progress(what, quiet=quiet):
            prepare(self.platform)


def policy(asked: Overlap | None, own: Overlap, whose: str, /, *, quiet: bool) -> Overlap:
    """The policy that was asked for, or else a plan's own; a line where the first replaces it."""
    if asked is None:
        return own
    if own and asked != own and not quiet:
        click.echo(f"overlap {asked if asked else 'none'} as asked for, instead of {own} {whose}")
    return asked


def plan_of(
    *,
    planner: str | None,
    steps: int | None,
    platform: Path | None,
    model: str | None = None,
    settings: Settings,
    costs: Path | None = None,
    sequence: Path | None = None,
    quiet: bool,
    **given: Any,
) -> Plan:
    """The plan that the options ask for; raises BadInput where they do not fit together."""
    if steps is None and costs is None and sequence is None:
        raise BadInput("--steps is missing: the number of steps of the chain")
    if platform is None:
        raise BadInput("--platform is missing: a file from `ckio calibrate`, or paper 004's text")
    if settings and model is None:
        raise BadInput("--set gives options to a model: give --model as well")
    text = read_text(platform)
    machine = Platform.loads(text, source=str(platform))
    priced = {name: given.pop(name) for name in COSTS}
    if sequence is None:
        name = planner or "hrevolve"
        call = planner_call(name, **given)
    else:
        name = str(sequence)
        _refuse(sequence, {"planner": planner} | given)
    known, handed = _known_costs(text, machine, platform, model, settings, quiet=quiet)
    priced = {name: value for name, value in priced.items() if value is not None}
    chain = replace(_chain(steps, known, priced, costs, platform), handed=handed)
    if is_paper_text(text):
        machine = replace(machine, working_memory=chain.largest("tape"))
    if sequence is not None:
        schedule = _written(sequence, chain, machine)
        return Plan(name, schedule.chain, machine, lambda _chain, _platform: schedule)
    return Plan(name, chain, machine, call)


def _refuse(sequence: Path, given: Mapping[str, Any]) -> None:
    for option, value in given.items():
        if value is not None:
            raise BadInput(f"{sequence} is planned already; leave out --{option} or --sequence")


def _written(path: Path, chain: Chain, machine: Platform) -> Schedule:
    """A schedule in the paper's notation, short or not; BadInput where it is not legal."""
    text = read_text(path)
    try:
        if compact.is_compact(text):
            schedule = compact.loads(text, chain, machine, source=str(path))
        else:
            schedule = papertext.loads(text, chain, source=str(path))
        with blamed_on(path):
            left = validate(schedule, machine).adjoint
    except (MemoryError, OverflowError):
        raise BadInput(f"{path}: it takes more memory than there is; plan fewer steps") from None
    if left:
        raise BadInput(f"{path}: it ends before the first {left} steps are reversed")
    return schedule


def _chain(
    steps: int | None,
    known: Mapping[str, float],
    priced: Mapping[str, float],
    table: Path | None,
    platform: Path,
) -> Chain:
    """The chain of costs in words: what a table or an option says goes before what is `known`."""
    if table is not None:
        chain = costs.loads(read_text(table), priced, known, source=str(table))
        return chain if steps is None else chain.with_steps(steps)
    values = {**known, **priced}
    missing = [f"--{name}" for name in COSTS if name not in values]
    if missing:
        raise BadInput(
            f"{platform}: no model costs in it; give --model, or {', '.join(missing)} as well"
        )
    return Chain(steps=steps, **values)  # type: ignore[arg-type]


def _known_costs(
    text: str, machine: Platform, path: Path, model: str | None, settings: Settings, *, quiet: bool
) -> tuple[Mapping[str, float | int], frozenset[Kind]]:
    """Seconds and bytes that need not be given, a model's or those of paper 004's text.

    And the kinds of checkpoints that the model hands over.
    """
    if model is not None:
        chain = costs_of_model(model, settings, machine, quiet=quiet)
    elif is_paper_text(text):
        return TEXT_COSTS, frozenset()
    elif len(machine.models) == 1:
        (chain,) = machine.models.values()
    elif machine.models:
        names = "; ".join(machine.models)
        raise BadInput(f"{path}: it knows the costs of several models ({names}); choose by --model")
    else:
        return {}, frozenset()
    return {name: getattr(chain, name) for name in COSTS}, chain.handed


def planner_call(name: str, /, **given: Any) -> Call:
    """A planner with its own options; raises BadInput for one that it does not have."""
    planner = find("planners", name)
    if name == OVERLAPPED:
        from ckio.planners.overlapped import plan as planner
    options = {option: value for option, value in given.items() if value is not None}
    known = inspect.signature(planner).parameters
    for option in options:
        if option not in known:
            raise BadInput(f"planner {name!r} has no option --{option}")
    return functools.partial(planner, **options)
