"""Reverse mode in little memory: `vjp` by checkpoints, for programs whose length nobody knows.

The program is run to its end once, and checkpoints are kept on the way, so that counting its ticks
costs nothing. Then it is taken back, `base` ticks at a time, from the nearest checkpoint.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from os import PathLike
from typing import Any, TypeVar

from ckio.backends.base import Backend
from ckio.errors import BadInput, CkioError, RunFailed
from ckio.platforms import Platform
from ckio.programs.interface import Stats, vjp
from ckio.programs.meter import metered
from ckio.programs.model import ProgramModel
from ckio.programs.protocol import Program
from ckio.programs.resumable import Given, reversed_in
from ckio.programs.sizing import MEMORY, Base, sizing
from ckio.programs.ways import Live, Scheduled, way
from ckio.runner import run
from ckio.runner.unknown import AT_ONCE, run_to_end

S = TypeVar("S")


def checkpoint_vjp(
    p: Program[S],
    x: Any,
    ybar: Any,
    /,
    *,
    base: Base = "auto",
    schedule: Scheduled = "bisection",
    slots: int | None = None,
    memory: float = MEMORY,
    platform: Platform | None = None,
    backends: Sequence[Backend] | None = None,
    directory: str | PathLike[str] | None = None,
    every: float = 60.0,
    stats: Stats | None = None,
) -> tuple[Any, Any]:
    """The same as `vjp(p, x, ybar)`, in memory that grows with the logarithm of its ticks.

    With t ticks in steps of `base`, "bisection" keeps ceil(log2(t / base)) + 1 states at a time at
    most, and runs the program forward about 1 + log2(t / base) / 2 times. A tape holds one step.

    Parameters
    ----------
    p, x, ybar
        As `vjp` takes them.
    base
        Ticks of a step; "auto" makes a tape of them as large as `memory`, by what the first ticks
        take.
    schedule
        "bisection" (Siskind and Pearlmutter, 2016); "revolve", which runs forward as little as can
        be in `slots` states; "hrevolve", the same on the levels of `platform`; or any planner,
        for which the ticks are counted beforehand.
    slots
        States that are kept at a time: 32 if not given, with "bisection" as many as it needs.
    memory
        Bytes that a tape may take: a step whose tape would take more is taken back in halves.
    platform, backends
        Levels to store on, and each of them opened; memory, if they are not given.
    directory
        Where to keep what is stored, so that a run that is killed goes on: call the same again.
        What it leaves is removed at the end. The way back is then the best one in as many slots as
        "bisection" has, or `slots`. Not together with `backends`, or a planner.
    every
        Seconds between two checkpoints of the adjoint in `directory`.
    stats
        A dict that is filled with `ticks`, `base`, `live_peak`, `tape_peak`, `forward_ticks`: see
        `ckio.programs.interface.Stats`.

    Raises
    ------
    BadInput
        As `vjp`; where a parameter makes no sense; where what `directory` holds is of other code or
        other inputs.
    StorageError
        A level failed.
    """
    how = way(schedule, slots, platform, backends)
    size = sizing(p, x, base, memory)
    if size.ticks is not None and size.ticks <= size.base:
        return vjp(p, x, ybar, stats=stats)
    live = Live()
    with metered() as meter, _as_raised():
        if directory is not None:
            if backends is not None or how.rule is None:
                raise BadInput("checkpoint_vjp: a directory goes with no backends and no planner")
            given = Given(p, x, ybar, memory)
            model = reversed_in(
                directory, given, size, how.rule, slots=slots, every=every, live=live
            )
        else:
            model = ProgramModel(p, x, size.base, ybar=ybar, budget=memory)
            if how.rule is not None:
                rule = how.rule(size.chain(model, None), how.platform)
                run_to_end(rule, model, how.backends, watch=live)
            elif how.planner is not None:
                chain = size.chain(model, _counted(model))
                plan = how.planner(chain, how.platform)
                model.begin_again()
                run(plan, how.platform, model, how.backends, watch=live)
    if stats is not None:
        stats.update(ticks=model.ticks or 0, base=size.base, live_peak=live.peak)
        stats.update(tape_peak=meter.nodes, tape_bytes=meter.nbytes)
        stats.update(forward_ticks=model.forward_ticks)
    return model.result, model.xbar


def _counted(model: ProgramModel[Any]) -> int:
    """Run to the end; the number of steps."""
    step, reached = 0, model.advance(0, AT_ONCE)
    while reached > step and model.steps is None:
        step, reached = reached, model.advance(reached, reached + AT_ONCE)
    return reached


@contextmanager
def _as_raised() -> Iterator[None]:
    """Let what the program raises be what the caller sees, as `vjp` does."""
    try:
        yield
    except RunFailed as failed:
        cause = failed.__cause__
        if cause is None or isinstance(cause, CkioError):
            raise
        cause.add_note(f"(within checkpoint_vjp: {failed})")
        raise cause from None
