"""A run whose model decides when it is finished.

In the forward sweep, an online rule decides which checkpoints are stored. When the model finishes,
the number of steps is written to the run's directory. The rest is then planned from the stored
checkpoints for a fresh model, as in a resumed run.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial

from ckio.actions import Key, Kind
from ckio.backends.base import Backend
from ckio.errors import BadInput, Stopped
from ckio.jobs import adjoints
from ckio.jobs.adjoints import Kept, next_plan
from ckio.jobs.begin import cleared_if_nothing_is_left, levels_of, start, write_plan
from ckio.jobs.directory import RunDirectory
from ckio.jobs.models import blamed, watched
from ckio.jobs.process import Process, conclude
from ckio.jobs.request import DAY, Manifest
from ckio.jobs.result import Result
from ckio.jobs.resume import interval, levels_left
from ckio.jobs.states import first_states
from ckio.jobs.stopping import halted, seconds_to_stop, store_standing
from ckio.model import Differentiable
from ckio.model.arraymodel import ArrayModel
from ckio.planners.online import Online
from ckio.platform import Platform
from ckio.platform.chain import Chain
from ckio.runner.failover import Forward, Stored, ready_for_the_way_back, run_forward
from ckio.schedule import Schedule
from ckio.schedule.policy import SYNCHRONOUS, exactly
from ckio.schedule.text import dumps

PLANNER = "online"
"""The planner for an unknown number of steps."""


def check_finishes(name: str, model: Differentiable, /) -> None:
    """Raise BadInput for a model that never finishes by itself."""
    own = getattr(type(model), "finished", None)
    if isinstance(model, ArrayModel) and own is ArrayModel.finished:
        raise BadInput(
            f"--steps is missing: model {name!r} does not say itself when it is finished; give"
            " --steps, or define `finished`"
        )


def begin(process: Process, directory: RunDirectory, /) -> Result:
    """Begin a run of unknown length, and perform it to its end, as `begin.begin` does."""
    request, chain, platform = process.request, process.chain, process.platform
    with cleared_if_nothing_is_left(directory):
        first = first_states(process.model())
        model = process.model()
        check_finishes(process.name, model)
        mtbf = request.mtbf or DAY
        kept, smaller = adjoints.without_end(chain, platform, model, every=request.every, mtbf=mtbf)
        _ = Online(chain, smaller).levels  # raises an error if no level has space for a state
        process = replace(process, overlap=exactly(request.overlap) or SYNCHRONOUS)
        directory.write_plan(_no_plan(chain, platform), "")
        manifest = start(process, directory, model, kept, first)
        with levels_of(process, manifest) as backends:
            none = tuple(frozenset[Key]() for _ in backends)
            before = _forward(process, model, platform, backends, kept=kept, stored=none)
            return _back(process, directory, manifest, before, kept=kept)


def again(
    process: Process, model: Differentiable, directory: RunDirectory, manifest: Manifest, /
) -> Result:
    """Resume a run that was stopped in the forward sweep, as `resume.again` does."""
    display, kept = process.display, interval(process, manifest)
    with levels_left(process, manifest) as levels:
        for line in levels.lost:
            display.warn(line)
        stored = tuple(
            frozenset(key for key in keys if key.kind is Kind.RESTART) for keys in levels.survivors
        )
        furthest = max((key.step for keys in stored for key in keys), default=0)
        display.tell(f"resumed at step {furthest}, in the forward sweep")
        args = levels.platform, levels.backends
        before = _forward(process, model, *args, kept=kept, stored=stored)
        return _back(process, directory, manifest, before, kept=kept)


def _no_plan(chain: Chain, platform: Platform) -> str:
    """Return the text of schedule.txt before there is a plan."""
    text = dumps(Schedule(chain.with_steps(1), ()), platform)
    first, rest = text.split("\n", 1)
    return f"{first}\n## the number of steps is not known yet: this is no plan\n{rest}"


def _rule(kept: Kept, chain: Chain, platform: Platform, stored: Stored, /) -> Online:
    """Return the rule that decides which checkpoints are stored, without the adjoints' space.

    The stored checkpoints may already use part of this space, if a run was stopped in the forward
    sweep, or if a level has less space than planned. Then their bytes are the capacity.
    """
    smaller = adjoints.aside_for(kept, chain, platform)
    levels = []
    for level, keys in zip(smaller.levels, stored, strict=True):
        used = sum(level.stored(chain.nbytes(key)) for key in keys)
        fits = level.capacity is None or used <= level.capacity
        levels.append(level if fits else replace(level, capacity=used))
    return Online(chain, replace(smaller, levels=tuple(levels)))


def _forward(
    process: Process,
    model: Differentiable,
    platform: Platform,
    backends: Sequence[Backend],
    *,
    kept: Kept,
    stored: Stored,
) -> Forward:
    """Run the forward sweep until the model finishes; raises Halted if it is stopped before."""
    chain, stopper, ranks = process.chain, process.stopper, process.ranks
    with ExitStack() as stack:
        tick = stack.enter_context(process.display.progress("running forward"))
        live = watched(lambda: model, tick)()
        journal = process.journal()
        watch = None if journal is None else stack.enter_context(journal)
        if stopper is not None:
            stopper.start(seconds_to_stop(Schedule(chain.with_steps(1), ()), platform))
        try:
            with blamed(f"model {process.name!r}"):
                return run_forward(
                    partial(_rule, kept, chain),
                    platform,
                    live,
                    backends,
                    say=process.display.warn,
                    clock=None if ranks.is_alone else ranks.clock,
                    stored=stored,
                    watch=watch,
                    stop=stopper,
                )
        except Stopped as stopped:
            assert stopper is not None
            with blamed(f"model {process.name!r}, stopped"):
                chain = process.chain.with_steps(max(1, stopped.adjoint))
                args = stopped, live, backends, platform, chain
                standing = store_standing(*args, before=stored, ranks=ranks)
            raise halted(stopper.why, standing) from None


def _back(
    process: Process,
    directory: RunDirectory,
    manifest: Manifest,
    before: Forward,
    /,
    *,
    kept: Kept,
) -> Result:
    """Perform the rest of the run, whose number of steps is now known, with a fresh model."""
    steps, wished, display = before.steps, kept, process.display
    chain = process.chain.with_steps(steps)
    directory.begin(replace(manifest, chain=chain))
    process = process.with_chain(chain)
    display.tell(f"the model has finished after {steps} steps")
    model = process.model()

    def plan(rest: Platform, stored: Stored) -> Schedule:
        nonlocal kept
        args = chain, rest, stored, model, wished
        tapes = process.stores_tapes(stored)
        schedule, kept = process.ranks.once(lambda: next_plan(*args, tapes=tapes))
        return schedule

    with display.progress(f"planning the reverse sweep over {steps} steps"):
        schedule, before = ready_for_the_way_back(plan, chain, before, say=display.warn)
    platform = before.platform
    predicted = write_plan(directory, schedule, process)
    display.tell(adjoints.cost_of_a_kill(schedule, platform, kept))
    return conclude(
        process,
        directory,
        model,
        schedule,
        platform=platform,
        backends=before.backends,
        predicted=predicted,
        kept=kept,
        before=before.timeline,
    )
