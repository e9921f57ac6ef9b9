"""`ckio analyze`: what checkpoints of a model have to hold, and what that saves."""

from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

import click

from ckio.actions.columns import KINDS, READ, WRITE
from ckio.actions.variables import TOGETHER, Step, Variables
from ckio.adapters.registry import find_model, lossy, options_of
from ckio.analysis.model_arrays import (
    CALLS,
    WATCHED,
    ModelArrays,
    Recomputable,
    declaration,
    declared_by,
    recomputable,
    uses,
    watch,
)
from ckio.analysis.reduced import ByVariable
from ckio.cli import console
from ckio.cli.analyzed import show
from ckio.cli.files import read_platform
from ckio.cli.levels import say_lossy
from ckio.cli.options import json_option, planner_options, settings_option
from ckio.cli.plans import plan_of
from ckio.errors import BadInput, NoSchedule, RunFailed
from ckio.jobs.models import Settings, blamed, identity, maker
from ckio.jobs.planning import OVERLAPPED, Planning, planner_call
from ckio.platform import Platform
from ckio.platform.chain import COSTS
from ckio.schedule import Schedule, bytes_moved, counts, makespan

DEFAULT: Final = "auto"
"""The planner whose own options are given where none is named."""

_GIVEN: Final = ("planner", "steps", "platform")
"""The options that are not a planner's own."""


@click.command()
@click.argument("model")
@settings_option
@click.option(
    "--watch", "watched", type=click.IntRange(1), metavar="N", default=WATCHED, show_default=True,
    help="how many of the first steps are watched",
)  # fmt: skip
@planner_options
@json_option
def command(*, model: str, settings: Settings, watched: int, as_json: bool, **options: Any) -> None:
    """Find out what checkpoints of MODEL have to hold, and what need not be stored.

    MODEL is MODULE:ATTRIBUTE, FILE.py:ATTRIBUTE, FILE.py with one model in it, or a name that
    `ckio calibrate --help` lists. What its steps use and overwrite is what it declares (`flow`);
    the first steps are done, a few times on altered copies, to see what they really do. Where they
    do what is not declared, the exit status is 1: gradients would be wrong.

    With a --platform it is said where it is less to compute an array again than to store it, and
    with --steps as well, what a plan then stores and what it takes: with whole states, with
    checkpoints of what is needed, and array by array.
    """
    what = f"model {model!r}"
    machine = _machine(options)
    fresh = maker(model, settings)
    declared = declared_by(what, fresh(), options["steps"])
    length = _length(declared, options)
    steps = min(watched, options["steps"] or watched)
    with console.progress(f"watching {model}", quiet=as_json), blamed(f"{what}, watched"):
        arrays = watch(fresh, declared, steps)
        wrong = arrays.contradictions()
        again = [] if wrong else recomputable(arrays, fresh, machine)
    # Before anything is measured: a model that declares too little fails in any run.
    plan = None
    if machine is not None and length is not None and not wrong:
        given = {**options, **dict.fromkeys(COSTS), "steps": length}
        plan = plan_of(**given, model=model, settings=settings, quiet=as_json)
    figures = {
        "model": identity(model, settings),
        **_sets(arrays),
        "arrays": list(map(asdict, uses(arrays, options["steps"]))),
        "checkpoints": {"whole": arrays.whole, "needed": arrays.needed},
        "recompute": [_recomputed(each, model) for each in again],
        "plan": None if plan is None else _planned(plan, arrays, quiet=as_json),
        "lossy": lossy(machine) if machine is not None else {},
    }
    if as_json:
        console.print_json(figures)
    else:
        show(figures)
        say_lossy(machine or Platform(()))
    if wrong:
        raise RunFailed(
            f"{what} declares too little of what its steps do: {wrong[0]}"
            f"{f' (and {len(wrong) - 1} more)' if len(wrong) > 1 else ''}; correct its flow, or"
            " its gradient will be wrong"
        )


def _machine(options: dict[str, Any]) -> Platform | None:
    """The platform, if there is one; BadInput where nothing would come of the other options."""
    path: Path | None = options["platform"]
    if options["steps"] is not None and options["steps"] < 1:
        raise BadInput(f"--steps {options['steps']}: a chain has at least 1")
    if options["planner"] == OVERLAPPED:
        raise BadInput(
            f"--planner {OVERLAPPED} plans with whole checkpoints only; choose another, or ask"
            " `ckio plan --overlap`"
        )
    own = {name: value for name, value in options.items() if name not in _GIVEN}
    if path is not None:
        planner_call(options["planner"] or DEFAULT, **own)
        return read_platform(path)
    for name, value in {"planner": options["planner"], **own}.items():
        if value is not None:
            raise BadInput(f"--{name} is about a plan: give --platform and --steps as well")
    return None


def _length(declared: Variables | None, options: dict[str, Any]) -> int | None:
    """The steps of the plan: as many as given or declared; None for no plan.

    Raises BadInput where nothing would come of an option.
    """
    steps: int | None = options["steps"]
    if steps is None and declared is not None and not isinstance(declared.steps, Step):
        return len(declared.steps)
    for name, value in options.items():
        if steps is None and value is not None and name != "platform":
            raise BadInput(f"--{name} is about a plan: give --steps as well")
    return steps


def _sets(arrays: ModelArrays) -> dict[str, Any]:
    """Where the sets come from, how they fit together, and what would declare them, if need be."""
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


def _recomputed(array: Recomputable, model: str) -> dict[str, Any]:
    """What it would save to compute an array again, and how that is asked for."""
    option = "recompute" in options_of(find_model(model))
    return {
        "name": array.name,
        "from": list(array.arguments),
        "saved": array.saved,
        "seconds": array.seconds,
        "calls": CALLS,
        "option": f"--set recompute={','.join(array.recompute)}" if option else None,
        "levels": [
            {
                "name": name,
                "seconds": seconds,
                "less": "recompute" if array.seconds < seconds else "store",
            }
            for name, seconds in array.moved.items()
        ],
    }


def _planned(plan: Planning, arrays: ModelArrays, *, quiet: bool) -> dict[str, Any]:
    """What a planner's schedules of whole states store, and of what is needed, and by array."""
    machine, needed, call = plan.platform, arrays.needed, plan.call
    memory = machine.working_memory
    if memory is not None:  # it may have been measured with the tape that is needed
        memory = max(memory, arrays.whole["tape"])
    whole = replace(plan.chain, restart=arrays.whole["restart"], tape=arrays.whole["tape"])
    plans = {
        "whole": replace(plan, chain=whole, platform=replace(machine, working_memory=memory)),
        "needed": replace(
            plan, chain=replace(whole, restart=needed["restart"], tape=needed["tape"])
        ),
        "by array": replace(plan, chain=whole, call=ByVariable(call, arrays.variables)),
    }
    found = {name: _schedule(each, quiet=quiet) for name, each in plans.items()}
    if all(isinstance(each, NoSchedule) for each in found.values()):
        raise found["needed"]  # type: ignore[misc]
    rows = [_row(name, plans[name], each) for name, each in found.items()]
    lowered = found["by array"]
    stored = list(_stored(lowered, machine)) if isinstance(lowered, Schedule) else []
    return {"planner": plan.planner, "steps": plan.chain.length, "rows": rows, "arrays": stored}


def _schedule(plan: Planning, *, quiet: bool) -> Schedule | NoSchedule:
    """What the planner makes, or why it makes nothing."""
    try:
        return plan.planned(console.display(quiet=quiet)).schedule
    except NoSchedule as error:
        return error


def _row(name: str, plan: Planning, found: Schedule | NoSchedule) -> dict[str, Any]:
    """What a schedule takes; checkpoints that are stored by array are not all alike."""
    sizes = {kind: getattr(plan.chain, kind) for kind in ("restart", "tape")}
    row = {"what": name, **(dict.fromkeys(sizes) if name == "by array" else sizes)}
    if isinstance(found, NoSchedule):
        return {**row, **dict.fromkeys(("written", "forward_steps", "makespan"))} | {
            "refused": str(found)
        }
    moved = bytes_moved(found, plan.platform)
    return row | {
        "written": int(moved[found.actions.op == WRITE].sum()),
        "forward_steps": counts(found).forward,
        "makespan": makespan(found, plan.platform),
        "refused": None,
    }


def _stored(schedule: Schedule, platform: Platform) -> Iterator[dict[str, Any]]:
    """How often each array, or those that are stored as one, is written to each level and read."""
    actions, moved = schedule.actions, bytes_moved(schedule, platform)
    for number, level in enumerate(platform.levels):
        for code, kind in enumerate(KINDS):
            for name, text in enumerate(actions.names):
                there = (actions.name == name) & (actions.kind == code) & (actions.level == number)
                writes, reads = ((actions.op == op) & there for op in (WRITE, READ))
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
