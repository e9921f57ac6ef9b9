"""Which arrays the checkpoints of a model must contain, and what this saves.

figures = model_figures("ckio.models.burgers:Burgers")           as `ckio analyze --json` prints
[array["name"] for array in figures["arrays"] if array["stored"] == "never"]
figures = model_figures("burgers", platform=Path("platform.toml"), steps=100)
[row["makespan"] for row in figures["plan"]["rows"]]             whole, needed, by array
step_figures("graph.toml")["choices"]                            the values on the tape of a step
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from ckio.actions.columns import KINDS, READ, WRITE
from ckio.actions.variables import NOTHING, TOGETHER, Step, Variables
from ckio.adapters.registry import find_object, lossy
from ckio.analysis.dag import Cost, ValueGraph, cost_on, solve
from ckio.analysis.lowering import ByVariable
from ckio.analysis.model_arrays import (
    WATCHED,
    ModelArrays,
    analyze,
    declaration,
    uses,
)
from ckio.analysis.snapshots import compare_snapshots
from ckio.errors import BadInput, NoSchedule
from ckio.jobs.display import QUIET, Display
from ckio.jobs.models import Settings, blamed, identity, maker
from ckio.jobs.planning import OVERLAPPED, Planning, plan_of, planner_call
from ckio.platform import Level, Platform
from ckio.platform.clock import WallClock
from ckio.platform.readable import read_text
from ckio.schedule import Schedule, bytes_moved, counts, makespan
from ckio.schedule.policy import AUTO

MOST_SNAPSHOTS: Final = 1000
"""The most steps whose snapshots are compared. Later steps have the same snapshots as the last."""


def model_figures(
    model: str,
    /,
    *,
    settings: Settings = MappingProxyType({}),
    watched: int = WATCHED,
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
    watched : int
        The number of the first steps that are observed.
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
    with display.progress(f"watching {model}"), blamed(f"{what}, watched"):
        arrays = analyze(fresh, steps=steps, watched=watched, what=what)
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
        "snapshots": [] if wrong else _snapshots(arrays, length),
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


def _snapshots(arrays: ModelArrays, length: int | None) -> list[dict[str, Any]]:
    """Return the snapshots of the steps that are planned or declared, or of the observed ones."""
    steps = arrays.variables.steps
    count = length or (WATCHED if isinstance(steps, Step) else len(steps))
    return _policies(arrays.variables, min(count, MOST_SNAPSHOTS))


def _policies(variables: Variables, count: int) -> list[dict[str, Any]]:
    """Return the bytes of the snapshots of `count` steps, by each policy."""
    return [
        {
            "steps": count,
            "policy": policy,
            "arrays": sorted(NOTHING.union(*(it.stored for it in found.snapshots))),
            "stored": found.stored,
            "taped": found.taped,
        }
        for policy, found in compare_snapshots(variables.cut(count), count).items()
    ]


def step_figures(
    model: str,
    state: str | None = None,
    platform: Path | None = None,
    /,
    *,
    display: Display = QUIET,
) -> dict[str, Any]:
    """Return the values that the tape of a step stores, and those that are computed again.

    `model` is the name of a step in JAX or of a StraightLine, with `state` as the name of its
    arrays. Without a state, `model` is a file with a graph of values.
    """
    machine = None
    if platform is not None:
        machine = Platform.loads(read_text(platform), source=str(platform))
    graph, cost_of, variables = _graph(model, state, display=display)
    choices = []
    for level in (None, *(machine.levels if machine is not None else ())):
        choice = solve(graph, cost=cost_of(level) if level else None)
        names = {
            "saved": choice.saved,
            "stored": choice.stored,
            "in place": choice.begins,
            "recomputed": choice.recomputed,
        }
        choices.append(
            {"level": level.name if level else None, "tape": choice.nbytes}
            | {what: list(map(str, each)) for what, each in names.items()}
            | {"storing": choice.storing if level else None, "recomputing": choice.recomputing}
        )
    required = [graph.nbytes.get(name, 1) for name in graph.required]
    return {
        "step": model,
        "values": len(graph.arguments),
        "required": {"values": len(required), "bytes": sum(required)},
        "choices": choices,
        "snapshots": _policies(variables, WATCHED) if variables else [],
    }


def _graph(
    model: str, state: str | None, *, display: Display
) -> tuple[ValueGraph, Callable[[Level], Cost], Variables | None]:
    """Return the graph of a step's values, the costs of a level, and the traced variables.

    The graph is read from a file, or measured from a step.
    """
    if state is None:
        return ValueGraph.loads(read_text(Path(model)), source=model), cost_on, None
    from ckio.analysis.partitioned import StraightLine, cost_of_tape, trace, traced_flow, weigh

    step, start = find_object(model), find_object(state)
    arrays: Mapping[str, Any] = start() if callable(start) else start
    with display.progress(f"measuring {model}"):
        program = step if isinstance(step, StraightLine) else trace(step, arrays)
        graph = weigh(program, arrays, WallClock())
    if isinstance(step, StraightLine):
        return graph, cost_of_tape, None
    nbytes = {name: int(graph.nbytes[name]) for name in arrays}
    return graph, cost_of_tape, Variables(nbytes, traced_flow(step, arrays))


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
    lowered = schedules["by array"]
    stored = list(_stored(lowered, machine)) if isinstance(lowered, Schedule) else []
    return {"planner": plan.planner, "steps": plan.chain.length, "rows": rows, "arrays": stored}


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


def _stored(schedule: Schedule, platform: Platform) -> Iterator[dict[str, Any]]:
    """Yield the numbers of writes and reads on each level, of arrays that are stored together."""
    actions, moved = schedule.actions, bytes_moved(schedule, platform)
    for number, level in enumerate(platform.levels):
        for code, kind in enumerate(KINDS):
            for name, text in enumerate(actions.names):
                here = (actions.name == name) & (actions.kind == code) & (actions.level == number)
                writes, reads = ((actions.op == op) & here for op in (WRITE, READ))
                if not (writes | reads).any():
                    continue
                yield {
                    "names": text.split(TOGETHER) if text else [],
                    "kind": kind.name.lower(),
                    "level": level.name,
                    "writes": int(writes.sum()),
                    "reads": int(reads.sum()),
                    "written": int(moved[writes].sum()),
                }
