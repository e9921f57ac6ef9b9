"""A run whose model decides when it is finished.

In the forward sweep, an online rule decides which checkpoints are stored. When the model finishes,
the number of steps is written to the run's directory. The rest is then planned from the stored
checkpoints for a fresh model, as in a resumed run.
"""

from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial

from ckio.actions import Key, Kind
from ckio.backends.base import Backend
from ckio.errors import BadInput, NoSchedule
from ckio.jobs import adjoints
from ckio.jobs.adjoints import AdjointPolicy
from ckio.jobs.models import with_ticker
from ckio.jobs.request import DAY, Manifest
from ckio.jobs.result import Result
from ckio.jobs.run import (
    Attempt,
    adjoint_policy,
    cleared_if_nothing_is_left,
    levels_left,
    new_levels,
    perform,
    plan_rest,
    stoppable,
    write_manifest,
)
from ckio.jobs.states import first_states
from ckio.model import Differentiable
from ckio.model.arraymodel import ArrayModel
from ckio.planners.recovery import aside
from ckio.planners.unknown import Online
from ckio.platform import Platform
from ckio.platform.chain import Chain
from ckio.platform.readable import option
from ckio.runner.failover import Forward, Stored, run_forward
from ckio.schedule import Schedule
from ckio.schedule.policy import SYNCHRONOUS, exactly
from ckio.schedule.text import dumps

PLANNER = "online"
"""The planner for an unknown number of steps."""


def check_finishes(name: str, model: Differentiable, /, *, hint: str = "") -> None:
    """Raise BadInput for a model that never finishes by itself.

    `hint` says why the number of steps is not known, if there is more to say.
    """
    own = getattr(type(model), "finished", None)
    if isinstance(model, ArrayModel) and own is ArrayModel.finished:
        raise BadInput(
            f"{option('steps')} is missing{hint}: model {name!r} does not say itself when it is"
            f" finished; give {option('steps')}, or define `finished`"
        )


def begin(attempt: Attempt, /) -> Result:
    """Begin a run of unknown length, and perform it to its end, as `run.begin` does."""
    request, chain, platform = attempt.request, attempt.chain, attempt.platform
    with cleared_if_nothing_is_left(attempt.directory):
        first = first_states(attempt.model())
        model = attempt.model()
        check_finishes(attempt.name, model)
        mtbf = request.mtbf or DAY
        args = chain, platform, model
        wished, smaller = adjoints.without_end(*args, every=request.every, mtbf=mtbf)
        # The rule is made again when it is used; here it raises an error if no level has space
        # for a state, before anything is written.
        _ = Online(chain, smaller).levels
        attempt = replace(attempt, overlap=exactly(request.overlap) or SYNCHRONOUS)
        attempt.directory.write_plan(_no_plan(chain, platform), "")
        manifest = write_manifest(attempt, model, wished, first)
        with new_levels(attempt, manifest) as backends:
            none = tuple(frozenset[Key]() for _ in backends)
            before = _forward(attempt, model, platform, backends, wished=wished, stored=none)
            return _back(attempt, manifest, before, wished)


def resume(attempt: Attempt, model: Differentiable, manifest: Manifest, /) -> Result:
    """Resume a run that was stopped in the forward sweep, as `run.resume` does."""
    display, wished = attempt.display, adjoint_policy(attempt, manifest)
    with levels_left(attempt, manifest) as levels:
        for line in levels.lost:
            display.warn(line)
        stored = tuple(
            frozenset(key for key in keys if key.kind is Kind.RESTART) for keys in levels.survivors
        )
        furthest = max((key.step for keys in stored for key in keys), default=0)
        display.tell(f"resumed at step {furthest}, in the forward sweep")
        args = attempt, model, levels.platform, levels.backends
        before = _forward(*args, wished=wished, stored=stored)
        return _back(attempt, manifest, before, wished)


def _no_plan(chain: Chain, platform: Platform) -> str:
    """Return the text of schedule.txt before there is a plan.

    A process that resumes the run reads the platform from its headers.
    """
    text = dumps(Schedule(chain.with_steps(1), ()), platform)
    first, rest = text.split("\n", 1)
    return f"{first}\n## the number of steps is not known yet: this is no plan\n{rest}"


def _rule(wished: AdjointPolicy, chain: Chain, platform: Platform, stored: Stored, /) -> Online:
    """Return the rule that decides which checkpoints are stored, without the adjoints' space.

    The stored checkpoints may already use part of this space, if a run was stopped in the forward
    sweep, or if a level has less space than planned. Then their bytes are the capacity, so that the
    rule stores nothing more on this level, and does not find it too full.
    """
    smaller = platform
    if wished.level is not None:
        with suppress(NoSchedule):  # on a level that has failed, no adjoint is stored
            smaller = aside(platform, chain, platform.number(wished.level))
    levels = []
    for level, keys in zip(smaller.levels, stored, strict=True):
        used = sum(level.stored(chain.nbytes(key)) for key in keys)
        fits = level.capacity is None or used <= level.capacity
        levels.append(level if fits else replace(level, capacity=used))
    return Online(chain, replace(smaller, levels=tuple(levels)))


def _forward(
    attempt: Attempt,
    model: Differentiable,
    platform: Platform,
    backends: Sequence[Backend],
    *,
    wished: AdjointPolicy,
    stored: Stored,
) -> Forward:
    """Run the forward sweep until the model finishes; raises Halted if it is stopped before."""
    chain, ranks = attempt.chain, attempt.ranks
    with ExitStack() as stack:
        tick = stack.enter_context(attempt.display.progress("running forward"))
        live = with_ticker(lambda: model, tick)()
        journal = attempt.journal()
        watch = None if journal is None else stack.enter_context(journal)
        begun = Schedule(chain.with_steps(1), (), stored)
        stack.enter_context(stoppable(attempt, begun, platform, backends, model=lambda: live))
        return run_forward(
            partial(_rule, wished, chain),
            platform,
            live,
            backends,
            warn=attempt.display.warn,
            clock=None if ranks.is_alone else ranks.clock,
            stored=stored,
            watch=watch,
            stop=attempt.stopper,
        )


def _back(
    attempt: Attempt, manifest: Manifest, before: Forward, wished: AdjointPolicy, /
) -> Result:
    """Perform the rest of the run, whose number of steps is now known, with a fresh model."""
    attempt = attempt.with_steps(before.steps)
    attempt.directory.begin(replace(manifest, chain=attempt.chain))
    attempt.display.tell(f"the model has finished after {before.steps} steps")
    model = attempt.model()
    plan = plan_rest(attempt, model, wished, before.platform, before.stored)
    return perform(attempt, model, plan, before.backends, before=before.timeline)
