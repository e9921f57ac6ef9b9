"""The planning options of a command line: a planner with what it is given, and what overlaps."""

import functools
import inspect
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from ckio import costs, papertext
from ckio.actions import Kind
from ckio.chain import COSTS, Chain
from ckio.cli import console
from ckio.cli.files import blamed_on, read_text
from ckio.cli.models import Settings
from ckio.cli.models import costs as costs_of_model
from ckio.errors import BadInput, CkioError, IllegalAction, RunFailed
from ckio.overlap import AUTO, SYNCHRONOUS, Overlap, Policy, exactly
from ckio.planners import compact
from ckio.planners.auto import auto, far_levels, plan, unmeasured
from ckio.planners.base import Planner
from ckio.planners.compared import Planned
from ckio.platforms import Platform, is_paper_text
from ckio.registry import find, is_ours, names
from ckio.replay import validate
from ckio.schedule import Schedule

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
"""The planner that says with which policy its schedule is to be run: `auto` with overlap."""


@dataclass(frozen=True)
class Plan:
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
        """A line that says why overlap was not considered, where that is so; or ""."""
        if not self.unmeasured:
            return ""
        many = len(self.unmeasured) > 1
        return (
            f"overlap was not considered: level{'s' * many} {', '.join(self.unmeasured)}"
            f" {'were' if many else 'was'} not measured beside a computation; `ckio calibrate"
            " --model` does that, or say --overlap auto"
        )

    def load(self, *, quiet: bool) -> None:
        """Load the compiled code for overlap: other plans do without where chains are short."""
        if self.decides:
            what = "loading code, or compiling it the first time"
            with console.progress(what, quiet=quiet, after=console.PATIENCE):
                from ckio.planners.overlap import prepare

                prepare(self.platform)

    def planned(self, *, quiet: bool) -> Planned:
        """Ask the planner; raises BadInput where the schedule is too large for the memory."""
        what = f"planning {self.chain.length} steps with {self.planner}"
        too_large = BadInput(f"{what} takes more memory than there is; plan fewer")
        if self.chain.length > MOST_STEPS:
            raise too_large
        searches = self.decides and self.call is auto
        if self.effort is not None and not searches:
            raise BadInput("--effort is of the search for plans that overlap: say --overlap auto")
        self.load(quiet=quiet)
        with console.progress(what, quiet=quiet, unit="%", after=console.PATIENCE) as tick:
            try:
                return plan(
                    self.chain,
                    self.platform,
                    planner=auto if searches else self._made,
                    overlap=AUTO if self.decides else self.overlap,
                    tapes=self.tapes,
                    effort=self.effort or 2,
                    watch=console.share(tick),
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
        made: object = self.call(chain, platform)
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
    """The planner, what is to overlap, and the levels for which that was not considered.

    Where neither is said, nor any option of a planner's `own`, or the planner is `auto`, overlap is
    considered if it was measured on all far levels what it costs; otherwise nothing overlaps.
    """
    levels: list[str] = []
    if overlap is None:
        overlap = SYNCHRONOUS
        asked = planner == AUTO or (planner is None and not any(own.values()))
        if asked and far_levels(platform):
            levels = unmeasured(platform)
            overlap = SYNCHRONOUS if levels else AUTO
    return planner or (AUTO if overlap == AUTO else "hrevolve"), overlap, tuple(levels)


def policy(asked: Policy | None, own: Overlap, whose: str, /, *, quiet: bool) -> Overlap:
    """The policy that was asked for, or else a plan's own; a line where the first replaces it."""
    if (exact := exactly(asked)) is None:
        return own
    if own and exact != own and not quiet:
        console.echo(f"overlap {exact if exact else 'none'} as asked for, instead of {own} {whose}")
    return exact


def overlap_figures(planned: Planned, /) -> dict[str, Any]:
    """Return the keys of `--json` about overlap: policy, synchronous seconds, bound and gap."""
    return {
        "overlap": str(planned.overlap),
        "synchronous": planned.synchronous,
        "bound": planned.bound,
        "gap": planned.gap,
    }


def plan_of(
    *,
    planner: str | None,
    steps: int | None,
    platform: Path | None,
    model: str | None = None,
    settings: Settings,
    costs: Path | None = None,
    sequence: Path | None = None,
    overlap: Policy | None = SYNCHRONOUS,
    effort: int | None = None,
    quiet: bool,
    **given: Any,
) -> Plan:
    """The plan that the options ask for; raises BadInput where they do not fit together.

    Without a policy, as `chosen` says, it is the plan that decides what overlaps.
    """
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
        name, decided, levels = chosen(planner, overlap, machine, given)
        call = planner_call(name, **given)
    else:
        _refuse(
            sequence, {"planner": planner, "overlap": overlap or None, "effort": effort} | given
        )
    known, handed = _known_costs(text, machine, platform, model, settings, quiet=quiet)
    priced = {name: value for name, value in priced.items() if value is not None}
    chain = replace(_chain(steps, known, priced, costs, platform), handed=handed)
    if is_paper_text(text):
        machine = replace(machine, working_memory=chain.largest("tape"))
    if sequence is not None:
        schedule = _written(sequence, chain, machine)
        return Plan(str(sequence), schedule.chain, machine, lambda _chain, _platform: schedule)
    levels = () if is_paper_text(text) else levels  # nobody can measure that machine
    return Plan(name, chain, machine, call, decided, effort, unmeasured=levels)


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
    """Return the costs that need not be given, and the kinds of checkpoints that are handed over.

    Costs are those of the model, or those that paper 004's text takes for granted.
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


def planner_call(name: str, /, **given: Any) -> Planner:
    """A planner with its own options; raises BadInput for one that it does not have."""
    planner: Planner = auto if name == OVERLAPPED else find("planners", name)
    options = {option: value for option, value in given.items() if value is not None}
    known = inspect.signature(planner).parameters
    for option in options:
        if option not in known:
            raise BadInput(f"planner {name!r} has no option --{option}")
    return functools.partial(planner, **options) if options else planner
