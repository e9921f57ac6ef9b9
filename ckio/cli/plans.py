"""The planning options of a command line: a planner, and what it plans for."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from ckio.actions import Kind
from ckio.cli import console
from ckio.cli.files import blamed_on, read_text
from ckio.errors import BadInput
from ckio.jobs.models import Settings
from ckio.jobs.models import costs as costs_of_model
from ckio.jobs.planning import OVERLAPPED, Planning, chosen, planner_call, with_room
from ckio.planners import compact
from ckio.platform import Platform, costs, is_paper_text
from ckio.platform.chain import COSTS, Chain
from ckio.schedule import Schedule
from ckio.schedule.policy import SYNCHRONOUS, Policy
from ckio.schedule.replay import validate
from ckio.schedule.text import notation

__all__ = ["OVERLAPPED"]

TEXT_COSTS: Final[Mapping[str, float | int]] = {
    "advance": 1.0,
    "record": 0.0,
    "reverse": 0.0,
    "restart": 1,
    "tape": 1,
    "adjoint": 1,
}
"""What paper 004's text form takes for granted: a checkpoint is one byte, so capacity is slots."""


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
) -> Planning:
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
    machine = with_room(machine, chain)
    if is_paper_text(text):
        machine = replace(machine, working_memory=chain.largest("tape"))
    if sequence is not None:
        schedule = _written(sequence, chain, machine)
        return Planning(str(sequence), schedule.chain, machine, lambda _chain, _platform: schedule)
    levels = () if is_paper_text(text) else levels  # nobody can measure that machine
    return Planning(name, chain, machine, call, decided, effort, unmeasured=levels)


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
        chain = costs_of_model(model, settings, machine, display=console.display(quiet=quiet))
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
