"""A planner by name with its chain, platform and options, for commands and runs.

plan = plan_of(steps=300, platform=Path("platform.toml"))       with the options of `ckio plan`
plan.planned()
"""

import functools
import inspect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from ckio.adapters.registry import find, is_ours, names
from ckio.errors import BadInput, CkioError, IllegalAction, RunFailed
from ckio.jobs.display import QUIET, Display, share
from ckio.jobs.models import Settings, maker, variables_of
from ckio.jobs.models import costs as costs_of_model
from ckio.planners.base import Planner
from ckio.planners.compared import Plan
from ckio.planners.fastest import auto, far_levels, plan, unmeasured
from ckio.platform import Platform, costs, is_paper_text
from ckio.platform.chain import COSTS, Chain, known_with
from ckio.platform.readable import option, read_text, typed
from ckio.schedule import Schedule
from ckio.schedule.policy import AUTO, SYNCHRONOUS, Overlap, Policy, exactly
from ckio.schedule.replay import validate

MOST_STEPS: Final = 2**31 - 1
"""The most steps of a plan: the schedule of more steps would need some 100 GB."""

_OWN: Final = inspect.Parameter.KEYWORD_ONLY
"""The kind of the parameters of a planner that are its options."""

OVERLAPPED: Final = "overlapped"
"""The planner that also decides the policy for overlap: `auto` with overlap."""


@dataclass(frozen=True)
class Planning:
    """A planner by name, with its chain, platform and options.

    Attributes
    ----------
    planner : str
        The name of the planner.
    chain : Chain
        The chain to plan.
    platform : Platform
        The levels and their costs.
    call : Planner
        The planner with its own options.
    overlap : Overlap or "auto"
        The policy for overlap; "auto" if the plan decides.
    tapes : bool
        Whether the model can store tapes.
    unmeasured : tuple of str
        The levels for which overlap was not considered, because its costs were not measured there.
    """

    planner: str
    chain: Chain
    platform: Platform
    call: Planner
    overlap: Policy = SYNCHRONOUS
    tapes: bool = True
    unmeasured: tuple[str, ...] = field(default=(), compare=False)

    @property
    def decides(self) -> bool:
        """Whether the plan decides the policy for overlap."""
        return self.overlap == AUTO or self.planner == OVERLAPPED

    @property
    def not_considered(self) -> str:
        """Return the reason why overlap was not considered; "" if it was, or was not asked for."""
        if not self.unmeasured:
            return ""
        many = len(self.unmeasured) > 1
        return (
            f"overlap was not considered: level{'s' * many} {', '.join(self.unmeasured)}"
            f" {'were' if many else 'was'} not measured concurrently with a computation; use"
            " `ckio calibrate --model` to measure that, or give"
            f" {option('overlap', 'auto')}"
        )

    def load(self, display: Display = QUIET, /) -> None:
        """Load the compiled code for overlap. Other plans of short chains do not need it."""
        if self.decides:
            what = "loading code, or compiling it the first time"
            with display.progress(what):
                from ckio.planners.overlap import prepare

                prepare(self.platform)

    def planned(self, display: Display = QUIET, /) -> Plan:
        """Return the plan; raises BadInput if the schedule is too large for the memory."""
        what = f"planning {self.chain.length} steps with {self.planner}"
        too_large = BadInput(f"{what} takes more memory than there is; plan fewer steps")
        if self.chain.length > MOST_STEPS:
            raise too_large
        self.load(display)
        with display.progress(what, unit="%") as tick:
            try:
                return plan(
                    self.chain,
                    self.platform,
                    planner=auto if self.call is auto else self._made,
                    overlap=AUTO if self.decides else self.overlap,
                    tapes=self.tapes,
                    watch=share(tick),
                )
            except (MemoryError, OverflowError):
                raise too_large from None
            except CkioError:
                raise
            except Exception as error:
                raise RunFailed(f"{what}: {type(error).__name__}: {error}") from error

    def _made(self, chain: Chain, platform: Platform, /) -> Schedule:
        """Return the schedule of the planner; raises RunFailed if it is not one of this chain.

        Only schedules of planners from other packages are validated.
        """
        schedule: object = self.call(chain, platform)
        if not isinstance(schedule, Schedule):
            raise RunFailed(
                f"planning {chain.length} steps with {self.planner}: it returned a"
                f" {type(schedule).__name__}, which is no Schedule; correct this planner"
            )
        if is_ours("planners", self.planner) or self.planner not in names("planners"):
            return schedule
        try:
            left = validate(schedule, platform).adjoint
        except (IllegalAction, BadInput) as error:
            raise RunFailed(f"planner {self.planner!r} made no legal schedule: {error}") from error
        if left or schedule.chain.length != chain.length:
            raise RunFailed(
                f"planner {self.planner!r} made no schedule of this chain: it reverses"
                f" {schedule.chain.length - left} of {chain.length} steps; correct this planner"
            )
        return schedule


def chosen(
    planner: str | None,
    overlap: Policy | None,
    platform: Platform,
    /,
) -> tuple[str, Policy, tuple[str, ...]]:
    """Return the planner, the policy for overlap, and the levels that prevented overlap.

    If no planner is named, it is `auto`. With `auto` and no policy, the plan decides the overlap if
    its costs were measured on all far levels. Otherwise nothing overlaps, and the levels without
    these measurements are returned.
    """
    levels: list[str] = []
    if overlap is None:
        overlap = SYNCHRONOUS
        if planner in (AUTO, None) and far_levels(platform):
            levels = unmeasured(platform)
            overlap = SYNCHRONOUS if levels else AUTO
    return planner or AUTO, overlap, tuple(levels)


def policy(asked: Policy | None, own: Overlap, whose: str, /, display: Display = QUIET) -> Overlap:
    """Return the policy that was asked for, or else that of the plan.

    If the first replaces the second, the display receives a note.
    """
    if (exact := exactly(asked)) is None:
        return own
    if own and exact != own:
        name = exact if exact else "none"
        display.say(f"overlap {name} as asked for, instead of {own} {whose}")
    return exact


def overlap_figures(planned: Plan, /) -> dict[str, Any]:
    """Return the entries of `--json` on overlap: policy, synchronous makespan, bound and gap."""
    return {
        "overlap": str(planned.overlap),
        "synchronous": planned.synchronous,
        "bound": planned.bound,
        "gap": planned.gap,
    }


def planner_call(text: str, /) -> Planner:
    """Return the planner of a text NAME or NAME:OPTION=VALUE,..., for example periodic:period=10.

    Raises BadInput for an unknown planner or option.
    """
    name, colon, words = text.partition(":")
    planner: Planner = auto if name == OVERLAPPED else find("planners", name)
    if not colon:
        return planner
    known = [name for name, it in inspect.signature(planner).parameters.items() if it.kind is _OWN]
    options: dict[str, Any] = {}
    for word in words.split(","):
        option, equals, value = word.partition("=")
        if not equals or option not in known or option in options:
            has = f"its options are {', '.join(known)}, each once" if known else "it has no options"
            raise BadInput(f"planner {text!r}: {word!r} is no OPTION=VALUE of {name}; {has}")
        options[option] = number = typed(value)
        # Those of other packages may have options of any value.
        if type(number) is int and number < 1 and is_ours("planners", name):
            raise BadInput(f"planner {text!r}: {option} must be at least 1")
    return functools.partial(planner, **options)


def with_working_memory(platform: Platform, chain: Chain, /) -> Platform:
    """Return the platform with working memory for a tape of this chain.

    It is enlarged only if it is exactly the largest tape of the models in the platform. This value
    was written by the calibration, and is not a limit that a user has set.
    """
    memory, known = platform.working_memory, platform.models.values()
    measured = max((costs.largest("tape") for costs in known), default=None)
    if memory is None or memory != measured or memory >= chain.largest("tape"):
        return platform
    return replace(platform, working_memory=chain.largest("tape"))


# Files


@contextmanager
def naming_file(path: Path | None, /) -> Iterator[None]:
    """Turn IllegalAction into BadInput that names the file of the schedule, if it has one."""
    try:
        yield
    except IllegalAction as error:
        if path is None:
            raise
        raise BadInput(f"{path} is not legal on this platform: {error}") from None


# Options


TEXT_COSTS: Final[Mapping[str, float | int]] = {
    "advance": 1.0,
    "record": 0.0,
    "reverse": 0.0,
    "restart": 1,
    "tape": 1,
    "adjoint": 1,
}
"""The costs that the text form of Herrmann & Pallez (2020) implies.

A checkpoint has one byte, so that a capacity is a number of slots.
"""


def plan_of(
    *,
    planner: str | None = None,
    steps: int | None = None,
    platform: Path | None = None,
    model: str | None = None,
    settings: Settings = MappingProxyType({}),
    costs: Path | None = None,
    overlap: Policy | None = SYNCHRONOUS,
    by_variable: bool = False,
    display: Display = QUIET,
    **given: float | None,
) -> Planning:
    """Return the planning for the options of `ckio plan`.

    Parameters
    ----------
    planner : str, optional
        In the form of `planner_call`; by default `auto`.
    steps : int, optional
        The length of the chain; required unless `costs` determines it.
    platform : path
        A file of `ckio calibrate`, or the text form of Herrmann & Pallez (2020).
    model, settings : str, mapping
        The model whose costs and sizes are used: those of the platform, or else measured now.
    costs : path, optional
        A table of the costs of each step.
    overlap : Overlap, "auto" or None
        With None the plan decides the overlap, as in `chosen`; by variable, nothing overlaps.
    by_variable : bool
        Whether each variable of the model's state is stored separately, and only if it is needed.
    **given
        Costs (seconds) and sizes (bytes) of the chain, by the names in `ALL_COSTS`.

    Raises
    ------
    BadInput
        If an option is missing, or options do not fit together.
    """
    if steps is None and costs is None:
        raise BadInput(f"{option('steps')} is missing: give the number of steps of the chain")
    if platform is None:
        raise BadInput(
            f"{option('platform')} is missing: a file that `ckio calibrate` writes; see ckio"
            " calibrate --help"
        )
    if settings and model is None:
        raise BadInput(
            f"{option('settings')} gives options to a model; give {option('model')}, too"
        )
    if by_variable and overlap is None:
        overlap = SYNCHRONOUS
    text = read_text(platform)
    machine = Platform.loads(text, source=str(platform))
    name, decided, levels = chosen(planner, overlap, machine)
    call = planner_call(name)
    known, declared = _known_costs(text, machine, platform, model, settings, display=display)
    own = {name: value for name, value in given.items() if value is not None}
    chain = replace(_chain(steps, known, own, costs, platform), **declared)
    machine = with_working_memory(machine, chain)
    if is_paper_text(text):
        machine = replace(machine, working_memory=chain.largest("tape"))
    levels = () if is_paper_text(text) else levels  # a machine of the paper is not measured
    plan = Planning(name, chain, machine, call, decided, unmeasured=levels)
    return _by_variable(plan, model, settings) if by_variable else plan


def _by_variable(plan: Planning, model: str | None, settings: Settings) -> Planning:
    """Return the planning by variable of the model; raises BadInput if it declares no variables."""
    if plan.decides:
        is_named = plan.planner == OVERLAPPED
        how = option("planner", OVERLAPPED) if is_named else option("overlap", AUTO)
        raise BadInput(
            f"{how} plans with whole checkpoints; leave out {option('by_variable')}, or give a"
            f" policy: {option('overlap', 'POLICY')}"
        )
    if model is None:
        raise BadInput(
            f"{option('by_variable')} needs the arrays of a model; give {option('model')}, too"
        )
    from ckio.analysis.lowering import ByVariable

    variables = variables_of(model, maker(model, settings)()).cut(plan.chain.length)
    return replace(plan, call=ByVariable(plan.call, variables))


def _chain(
    steps: int | None,
    known: Mapping[str, float],
    own: Mapping[str, float],
    table: Path | None,
    platform: Path,
) -> Chain:
    """Return the chain of these costs. A table or an option replaces a cost in `known`."""
    if table is not None:
        chain = costs.loads(read_text(table), own, known, source=str(table))
        return chain if steps is None else chain.with_steps(steps)
    values = {**known_with(known, own), **own}
    missing = [option(name) for name in COSTS if name not in values]
    if missing:
        raise BadInput(
            f"{platform}: no model costs in it; give {option('model')}, or"
            f" {', '.join(missing)} as well"
        )
    return Chain(steps=steps, **values)  # type: ignore[arg-type]


def _known_costs(
    text: str,
    machine: Platform,
    path: Path,
    model: str | None,
    settings: Settings,
    *,
    display: Display,
) -> tuple[Mapping[str, float | int], Mapping[str, Any]]:
    """Return the known costs, and what the model declares of its checkpoints.

    Known costs are those of the model, or those that the text form of the paper implies.
    """
    if model is not None:
        chain = costs_of_model(model, settings, machine, display=display)
    elif is_paper_text(text):
        return TEXT_COSTS, {}
    elif len(machine.models) == 1:
        (chain,) = machine.models.values()
    elif machine.models:
        names = "; ".join(machine.models)
        raise BadInput(
            f"{path}: it has the costs of several models ({names}); choose by {option('model')}"
        )
    else:
        return {}, {}
    return chain.costs, chain.declared
