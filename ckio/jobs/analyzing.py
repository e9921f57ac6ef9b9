"""Which arrays the checkpoints of a model must contain, and what this saves.

figures = model_figures("ckio.models.burgers:Burgers")           as `ckio analyze --json` prints
[array["name"] for array in figures["arrays"] if array["stored"] == "never"]
figures = model_figures("burgers", platform=Path("platform.toml"), steps=100)
[row["makespan"] for row in figures["plan"]["rows"]]             whole, needed, by array
"""

from dataclasses import asdict, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ckio.actions.columns import WRITE
from ckio.actions.variables import Step, Variables
from ckio.adapters.registry import lossy
from ckio.analysis.lowering import ByVariable
from ckio.analysis.model_arrays import (
    ModelArrays,
    analyze,
    declaration,
    uses,
)
from ckio.errors import BadInput, NoSchedule
from ckio.jobs.display import QUIET, Display
from ckio.jobs.models import Settings, identity, maker, naming
from ckio.jobs.planning import OVERLAPPED, Planning, plan_of, planner_call
from ckio.platform import Platform
from ckio.platform.readable import read_text
from ckio.schedule import Schedule, bytes_moved, counts, makespan
from ckio.schedule.policy import AUTO


def model_figures(
    model: str,
    /,
    *,
    settings: Settings = MappingProxyType({}),
    platform: Path | None = None,
    planner: str | None = None,
    steps: int | None = None,
    display: Display = QUIET,
) -> dict[str, Any]:
    """Return the arrays that checkpoints of a model must contain, as `ckio analyze --json` does.

    Parameters
    ----------
    model, settings : str, mapping
        The name of the model and its options, as for a run.
    platform : path, optional
        A file of `ckio calibrate`. With it and steps, the result has plans with whole states, with
        the needed arrays of a state, and with single arrays: the bytes they store and their
        makespans.
    planner, steps : str, int, optional
        The planner and the length of these plans.

    Raises
    ------
    BadInput
        If the model is unknown, or options do not fit together.
    RunFailed
        If a step of the model fails.
    """
    machine = _machine(platform, steps, planner)
    what, fresh = f"model {model!r}", maker(model, settings)
    with display.progress(f"watching {model}"), naming(f"{what}, watched"):
        arrays = analyze(fresh, steps=steps, what=what)
        length = _length(arrays.declared, steps, platform)
        wrong = arrays.contradictions()
    # No costs are measured for a model with a wrong declaration, because it would fail in any run.
    plan = None
    if machine is not None and length is not None and not wrong:
        plan = plan_of(
            model=model,
            settings=settings,
            platform=platform,
            steps=length,
            display=display,
            planner=planner,
        )
    return {
        "model": identity(model, settings),
        **_sets(arrays),
        "arrays": list(map(asdict, uses(arrays, steps))),
        "checkpoints": {"whole": arrays.whole, "needed": arrays.needed},
        "plan": None if plan is None else _planned(plan, arrays, display=display),
        "lossy": lossy(machine) if machine is not None else {},
    }


def _machine(path: Path | None, steps: int | None, planner: str | None) -> Platform | None:
    """Return the platform, if one is given; raises BadInput if an option would have no effect."""
    if steps is not None and steps < 1:
        raise BadInput(f"--steps {steps}: a chain has at least 1 step")
    if planner == OVERLAPPED:
        raise BadInput(
            f"--planner {OVERLAPPED} plans with whole checkpoints only; choose another planner, or"
            " use `ckio plan --overlap`"
        )
    if path is not None:
        planner_call(planner or AUTO)
        return Platform.loads(read_text(path), source=str(path))
    if planner is not None:
        raise BadInput("--planner is an option of a plan; give --platform and --steps, too")
    return None


def _length(declared: Variables | None, steps: int | None, platform: Path | None) -> int | None:
    """Return the number of steps of the plan, as given or declared; None without a plan.

    Raises BadInput if an option would have no effect.
    """
    if steps is None and declared is not None and not isinstance(declared.steps, Step):
        return len(declared.steps)
    if steps is None and platform is not None:
        raise BadInput("--platform is an option of a plan; give --steps, too")
    return steps


def _sets(arrays: ModelArrays) -> dict[str, Any]:
    """Return the source of the flows, their contradictions, and a declaration of them."""
    wrong, declared = list(arrays.contradictions()), arrays.declared
    unlike = wrong and declared is not None and isinstance(declared.steps, Step)
    return {
        "source": "observed" if arrays.declared is None else "declared",
        "watched": arrays.watched,
        "contradictions": wrong,
        "unchanged": arrays.unchanged,
        "notes": list(arrays.notes()),
        "declaration": declaration(arrays) if declared is None or unlike else None,
    }


def _planned(plan: Planning, arrays: ModelArrays, *, display: Display) -> dict[str, Any]:
    """Return the planner's schedules for whole states, for the needed arrays, and by array."""
    machine, needed, call = plan.platform, arrays.needed, plan.call
    memory = machine.working_memory
    if memory is not None:  # the calibration may have seen only the needed part of the tape
        memory = max(memory, arrays.whole["tape"])
    whole = replace(plan.chain, restart=arrays.whole["restart"], tape=arrays.whole["tape"])
    plans = {
        "whole": replace(plan, chain=whole, platform=replace(machine, working_memory=memory)),
        "needed": replace(
            plan, chain=replace(whole, restart=needed["restart"], tape=needed["tape"])
        ),
        "by array": replace(plan, chain=whole, call=ByVariable(call, arrays.variables)),
    }
    schedules = {name: _schedule(each, display=display) for name, each in plans.items()}
    if all(isinstance(each, NoSchedule) for each in schedules.values()):
        raise schedules["needed"]  # type: ignore[misc]
    rows = [_row(name, plans[name], each) for name, each in schedules.items()]
    return {"planner": plan.planner, "steps": plan.chain.length, "rows": rows}


def _schedule(plan: Planning, *, display: Display) -> Schedule | NoSchedule:
    """Return the planner's schedule, or the error if there is none."""
    try:
        return plan.planned(display)
    except NoSchedule as error:
        return error


def _row(name: str, plan: Planning, schedule: Schedule | NoSchedule) -> dict[str, Any]:
    """Return the figures of a schedule; those by array have no single size of a checkpoint."""
    sizes = {kind: getattr(plan.chain, kind) for kind in ("restart", "tape")}
    row = {"what": name, **(dict.fromkeys(sizes) if name == "by array" else sizes)}
    if isinstance(schedule, NoSchedule):
        return {**row, **dict.fromkeys(("written", "forward_steps", "makespan"))} | {
            "refused": str(schedule)
        }
    moved = bytes_moved(schedule, plan.platform)
    return row | {
        "written": int(moved[schedule.actions.op == WRITE].sum()),
        "forward_steps": counts(schedule).forward,
        "makespan": makespan(schedule, plan.platform),
        "refused": None,
    }
