"""A planner by name and all that it is asked, as commands and runs ask it.

plan = plan_of(steps=300, platform=Path("platform.toml"))       as `ckio plan` asks
plan.planned().schedule
"""

import functools
import inspect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from ckio.actions import Kind
from ckio.adapters.registry import find, is_ours, names
from ckio.errors import BadInput, CkioError, IllegalAction, RunFailed
from ckio.jobs.display import PATIENCE, QUIET, Display, share
from ckio.jobs.models import Settings, maker, variables_of
from ckio.jobs.models import costs as costs_of_model
from ckio.planners import compact
from ckio.planners.auto import auto, far_levels, plan, unmeasured
from ckio.planners.base import Planner
from ckio.planners.compared import Planned
from ckio.platform import Platform, costs, is_paper_text
from ckio.platform.chain import COSTS, Chain
from ckio.schedule import Schedule
from ckio.schedule.policy import AUTO, SYNCHRONOUS, Overlap, Policy, exactly
from ckio.schedule.replay import validate
from ckio.schedule.text import notation

MOST_BYTES: Final = 1 << 26
"""Bytes of a text that is read at once: a table of the costs of a million steps has some 50 MB."""

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


# What is given as files


def read_text(path: Path, /) -> str:
    """Return the text of a file, without a byte order mark; BadInput where it cannot be read.

    So it is where the file has more than `MOST_BYTES`, as a device may.
    """
    try:
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
        if len(data) > MOST_BYTES:
            raise BadInput(f"{path}: it has more than {MOST_BYTES} bytes, the most that is read")
        return data.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError:
        raise BadInput(f"{path}: not text") from None
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}") from None


@contextmanager
def blamed_on(path: Path | None, /) -> Iterator[None]:
    """Make a schedule that is not legal the fault of the file that it was read from, if any."""
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
"""The costs that the text form of Herrmann & Pallez (2020) takes for granted: a checkpoint is one
byte, so that a capacity is a number of slots."""


def plan_of(
    *,
    planner: str | None = None,
    steps: int | None = None,
    platform: Path | None = None,
    model: str | None = None,
    settings: Settings = MappingProxyType({}),
    costs: Path | None = None,
    sequence: Path | None = None,
    overlap: Policy | None = SYNCHRONOUS,
    effort: int | None = None,
    by_variable: bool = False,
    display: Display = QUIET,
    **given: Any,
) -> Planning:
    """Return what a planner is asked, as the options of `ckio plan` say it.

    Parameters
    ----------
    planner : str, optional
        By default `auto`, or `hrevolve` where options of a planner are given.
    steps : int, optional
        The length of the chain; needed where neither `costs` nor `sequence` says it.
    platform : path
        A file of `ckio calibrate`, or the text form of Herrmann & Pallez (2020).
    model, settings : str, mapping
        The model whose costs and sizes are taken: from the platform, or else measured now.
    costs : path, optional
        A table of the costs of each step.
    sequence : path, optional
        A schedule in the notation of Herrmann & Pallez (2020), which is read instead of planned.
    overlap : Overlap, "auto" or None
        With None the plan decides what overlaps, as `chosen` says; by variable nothing does.
    effort : int, optional
        How long to search for plans with overlap: 1, 2 or 3.
    by_variable : bool
        Whether each variable of the model's state is stored only where it is needed.
    **given
        Costs and sizes of the chain (`COSTS`), and options of the planner.

    Raises
    ------
    BadInput
        Something is missing, or does not fit together.
    """
    if steps is None and costs is None and sequence is None:
        raise BadInput("--steps is missing: the number of steps of the chain")
    if platform is None:
        raise BadInput(
            "--platform is missing: a file that `ckio calibrate` writes; see ckio calibrate --help"
        )
    if settings and model is None:
        raise BadInput("--set gives options to a model: give --model as well")
    if by_variable and overlap is None:
        overlap = SYNCHRONOUS
    text = read_text(platform)
    machine = Platform.loads(text, source=str(platform))
    priced = {name: given.pop(name, None) for name in COSTS}
    if sequence is None:
        name, decided, levels = chosen(planner, overlap, machine, given)
        call = planner_call(name, **given)
    else:
        _refuse(
            sequence, {"planner": planner, "overlap": overlap or None, "effort": effort} | given
        )
    known, handed = _known_costs(text, machine, platform, model, settings, display=display)
    priced = {name: value for name, value in priced.items() if value is not None}
    chain = replace(_chain(steps, known, priced, costs, platform), handed=handed)
    machine = with_room(machine, chain)
    if is_paper_text(text):
        machine = replace(machine, working_memory=chain.largest("tape"))
    if sequence is not None:
        schedule = _written(sequence, chain, machine)
        plan = Planning(str(sequence), schedule.chain, machine, lambda _chain, _platform: schedule)
    else:
        levels = () if is_paper_text(text) else levels  # nobody can measure that machine
        plan = Planning(name, chain, machine, call, decided, effort, unmeasured=levels)
    return _by_variable(plan, model, settings) if by_variable else plan


def _by_variable(plan: Planning, model: str | None, settings: Settings) -> Planning:
    """Return the plan on single variables of the model; raises BadInput where it says of none."""
    if plan.decides:
        how = f"--planner {OVERLAPPED}" if plan.planner == OVERLAPPED else "--overlap auto"
        raise BadInput(
            f"{how} plans with whole checkpoints; leave out --by-variable, or say a policy:"
            " --overlap POLICY"
        )
    if model is None:
        raise BadInput("--by-variable is about the arrays of a model: give --model as well")
    from ckio.analysis.lowering import ByVariable

    variables = variables_of(model, maker(model, settings)()).cut(plan.chain.length)
    return replace(plan, call=ByVariable(plan.call, variables))


def _refuse(sequence: Path, given: Mapping[str, Any]) -> None:
    for option, value in given.items():
        if value is not None:
            raise BadInput(f"{sequence} is planned already; leave out --{option} or --sequence")


def _written(path: Path, chain: Chain, machine: Platform) -> Schedule:
    """Return a schedule in the paper's notation, short or not; BadInput where it is not legal."""
    text = read_text(path)
    try:
        if compact.is_compact(text):
            schedule = compact.loads(text, chain, machine, source=str(path))
        else:
            schedule = notation.loads(text, chain, source=str(path))
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
    """Return the chain of these costs: a table or an option goes before what is `known`."""
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
    text: str,
    machine: Platform,
    path: Path,
    model: str | None,
    settings: Settings,
    *,
    display: Display,
) -> tuple[Mapping[str, float | int], frozenset[Kind]]:
    """Return the costs that need not be given, and the kinds of checkpoints that are handed over.

    Costs are those of the model, or those that the paper's text takes for granted.
    """
    if model is not None:
        chain = costs_of_model(model, settings, machine, display=display)
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
