"""Reverse mode in little memory: `vjp` by checkpoints, for programs whose length nobody knows.

The program is run to its end once, and checkpoints are kept on the way, so that counting its ticks
costs nothing. Then it is taken back, `base` ticks at a time, from the nearest checkpoint.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from os import PathLike
from typing import Any, TypeVar

from ckio.backends.base import Backend
from ckio.errors import BadInput, CkioError, RunFailed
from ckio.platform import Platform
from ckio.programs.interface import Stats, check_inputs, vjp
from ckio.programs.meter import metered
from ckio.programs.protocol import Program
from ckio.programs.resumable import begun, reversed_in
from ckio.programs.sizing import MEMORY, Base, sizing
from ckio.programs.sweeps import Task, by_planner, by_rule
from ckio.programs.ways import Live, Scheduled, way
from ckio.schedule.timeline import Event

S = TypeVar("S")


def checkpoint_vjp(
    p: Program[S],
    x: Any,
    ybar: Any,
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
    watch: Callable[[Event], None] | None = None,
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
        Bytes that a tape may take: a step whose tape would take more is taken back in halves. A
        single tick is taped whole, whatever it takes.
    platform, backends
        Levels to store on, and each of them opened; memory, if they are not given. What states take
        is judged by the first. Should a level have less room than that in the end, the run goes on
        with what fits; what must not be exceeded is the capacity of the opened level.
    directory
        Where to keep what is stored, so that a run that is killed goes on: call the same again.
        What it leaves is removed at the end. The way back is then the best one in as many slots as
        "bisection" has, or `slots`. Not together with `backends`, or a planner.
    every
        Seconds between two checkpoints of the adjoint in `directory`.
    stats
        A dict that is filled with `ticks`, `base`, `live_peak`, `tape_peak`, `forward_ticks`: see
        `ckio.programs.interface.Stats`.
    watch
        Called with each event after it has happened, as by `ckio.run`: to show how far it is. What
        it raises ends the run. A program that is taken back by one tape has no events.

    Raises
    ------
    BadInput
        As `vjp`; where a parameter makes no sense; where what `directory` holds is of other code or
        other inputs, or cannot be used.
    StorageError
        A level failed, and there is no way to go on without it.
    """
    how = way(schedule, slots, platform, backends)
    if directory is not None and (backends is not None or how.planner is not None):
        raise BadInput("checkpoint_vjp: a directory goes with no backends and no planner")
    size = sizing(p, x, base, memory)
    short = size.ticks is not None and size.ticks <= size.base
    if short and not (directory is not None and begun(directory)):
        return vjp(p, x, ybar, stats=stats)
    check_inputs(x)
    live = Live(watch)
    task = Task(p, x, ybar, memory, size, live)
    with metered() as meter, _as_raised():
        if directory is not None:
            model = reversed_in(directory, task, how.rule, slots=slots, every=every)
        elif how.planner is not None:
            model = by_planner(task, how.planner, how.platform, how.backends)
        else:
            model = by_rule(task, how.rule, how.platform, how.backends)
    if stats is not None:
        stats.update(ticks=model.ticks or 0, base=model.base, live_peak=live.peak)
        stats.update(tape_peak=meter.nodes, tape_bytes=meter.nbytes, forward_ticks=meter.ticks)
    return model.result, model.xbar


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
