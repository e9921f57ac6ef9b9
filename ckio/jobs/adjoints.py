"""Adjoint checkpoints of a run: their level, their interval, and the cost of a kill."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from math import ceil, inf
from typing import Final, TypeVar

import numpy as np

from ckio.actions import Advance, Key, Kind
from ckio.actions.columns import DISCARD, KIND_CODE, REVERSE
from ckio.adapters.registry import backend_of
from ckio.errors import BadInput, NoSchedule, UnsupportedKind
from ckio.jobs.request import DAY
from ckio.model import Model
from ckio.planners.recovery import (
    Stored,
    adjoint_seconds,
    aside,
    expected_seconds,
    recover,
    with_adjoint_checkpoints,
)
from ckio.planners.recovery import every as daly_interval
from ckio.planners.resume import resume
from ckio.platform import Platform
from ckio.platform.chain import Chain
from ckio.platform.readable import bytes_text, option, seconds_text
from ckio.schedule import Schedule, makespan
from ckio.sim.engine import makespan as predicted

_LEAST: Final = 1.0
"""The least interval, in seconds, if none is given: a level may cost 0 s, so that Daly's is 0 s."""

PlanT = TypeVar("PlanT", bound=Schedule)


@dataclass(frozen=True, slots=True)
class AdjointPolicy:
    """The level and the interval of the adjoint checkpoints of a run.

    Attributes
    ----------
    level : str or None
        The name of the level; None if no level can store them.
    every : float
        Seconds of predicted work between two adjoint checkpoints.
    """

    level: str | None
    every: float


def first_plan(
    chain: Chain,
    platform: Platform,
    model: Model | None,
    planned: Callable[[Chain, Platform], PlanT],
    /,
    *,
    every: float | None = None,
    mtbf: float = DAY,
    always: bool = False,
) -> tuple[Schedule, tuple[AdjointPolicy, PlanT]]:
    """Return the schedule of a new run, its adjoint checkpoints, and the plan without these.

    No adjoint checkpoints are stored if the whole run is predicted to take less than the interval,
    unless `always` is true.

    Parameters
    ----------
    chain, platform
        The chain and the platform. If the chain has variables, the schedule stores variables.
    model : Model or None
        The model, which is asked whether it stores its adjoint.
    planned : callable
        The planner, for the platform without the space of the adjoint checkpoints.
    every : float, optional
        Seconds of work between two adjoint checkpoints. By default Daly's interval.
    mtbf : float
        The mean time between failures in seconds, for Daly's interval.
    always : bool
        Whether adjoint checkpoints are stored also in a short run.

    Raises
    ------
    BadInput
        If `every` is given, and no durable level has space for two adjoint checkpoints.
    """
    if chain.variables is not None:
        from ckio.analysis.lowering import by_variable

        plan_whole = partial(first_plan, every=every, mtbf=mtbf, always=always)
        return by_variable(lambda c, p, _: plan_whole(c, p, model, planned), chain, platform)
    able = _able(chain, platform, model)
    choices = [policy_on(chain, platform, number, every=every, mtbf=mtbf) for number in able]
    nearest = choices[0] if choices else AdjointPolicy(None, every or inf)
    if not choices and every is not None:
        raise BadInput(
            f"{option('every')}: no durable level keeps two adjoint checkpoints of this model,"
            f" {bytes_text(chain.adjoint)} each; increase the capacity of a durable level, or leave"
            f" out {option('every')}"
        )
    least = chain.length * float(np.min(chain.record) + np.min(chain.reverse))
    if not choices or not (always or least > nearest.every):
        plain = planned(chain, platform)
        if not choices or makespan(plain, platform) <= nearest.every:
            return plain, (nearest, plain)
    for number, policy in zip(able, choices, strict=True):
        with suppress(NoSchedule):  # in the smaller space; a slower level may have more
            plain = planned(chain, aside(platform, chain, number))
            schedule = with_adjoint_checkpoints(plain, platform, policy.every, level=number)
            return _last_one_stays(schedule), (policy, plain)
    if every is not None:
        raise NoSchedule(
            f"{option('every')}: no level has space for this plan in addition to two adjoint"
            " checkpoints; increase the capacity of a durable level, or leave out"
            f" {option('every')}"
        )
    plain = planned(chain, platform)
    return plain, (nearest, plain)


def without_end(
    chain: Chain,
    platform: Platform,
    model: Model,
    /,
    *,
    every: float | None = None,
    mtbf: float = DAY,
) -> tuple[AdjointPolicy, Platform]:
    """Return level and interval of adjoint checkpoints of a run of unknown length, and the rest.

    The rest is the platform without their space, which is reserved on the nearest durable level
    that has it.
    """
    for number in _able(chain, platform, model):
        policy = policy_on(chain, platform, number, every=every, mtbf=mtbf)
        return policy, aside(platform, chain, number)
    return AdjointPolicy(None, every or inf), platform


def next_plan(
    chain: Chain,
    platform: Platform,
    survivors: Sequence[Iterable[Key]],
    model: Model | None,
    policy: AdjointPolicy,
    /,
    *,
    tapes: bool = False,
) -> tuple[Schedule, AdjointPolicy]:
    """Return the schedule of a process that resumes a run, and its adjoint checkpoints.

    If the level of the adjoint checkpoints is not used any more, they are stored on another level.
    If no level has space for them, the last one of the earlier process is kept, if possible.

    Parameters
    ----------
    chain, platform
        The chain and the platform. If the chain has variables, the schedule stores variables.
    survivors : sequence of keys
        The intact checkpoints on each level.
    model : Model or None
        The model, which is asked whether it stores its adjoint.
    policy : AdjointPolicy
        The level and interval of adjoint checkpoints of the run.
    tapes : bool
        Whether tapes are stored, too.
    """
    if chain.variables is not None:
        from ckio.analysis.lowering import by_variable

        def rest_of(whole: Chain, space: Platform, there: Stored) -> tuple[Schedule, AdjointPolicy]:
            return next_plan(whole, space, there, model, policy, tapes=tapes)

        return by_variable(rest_of, chain, platform, [frozenset(keys) for keys in survivors])
    rest = partial(recover, chain, platform, survivors, tapes=tapes)
    able = [platform.levels[number].name for number in _able(chain, platform, model)]
    for name in sorted(able if policy.level else [], key=lambda name: name != policy.level):
        number = platform.number(name)
        with suppress(NoSchedule):
            schedule = rest(level=number, every=policy.every)
            return _last_one_stays(schedule), replace(policy, level=name)
    with suppress(NoSchedule):
        return _last_one_stays(rest(level=None, every=inf)), replace(policy, level=None)
    return resume(chain, platform, survivors, tapes=tapes), replace(policy, level=None)


def expected_makespan(
    schedule: Schedule, platform: Platform, policy: AdjointPolicy, mtbf: float, /
) -> float:
    """Return an estimate of the mean seconds of a run that is killed once in `mtbf` seconds.

    A kill repeats the work since the last adjoint checkpoint, and, before that, a part of a forward
    sweep: half of the steps remain in the mean, and for these the checkpoints that survive save
    about half of the sweep.
    """
    seconds, chain = predicted(schedule, platform), schedule.chain
    interval = seconds
    if policy.level is not None:
        number = platform.number(policy.level)
        interval = min(interval, policy.every + adjoint_seconds(chain, platform, number))
    sweep = chain.seconds(Advance(0, chain.length))
    return expected_seconds(seconds, interval, mtbf, sweep / 4)


def cost_of_a_kill(
    schedule: Schedule, platform: Platform, policy: AdjointPolicy, mtbf: float | None = None, /
) -> str:
    """Return a sentence on level and interval of adjoint checkpoints, and the cost of a kill.

    With `mtbf`, the mean seconds between two kills, it also gives the expected makespan. The
    sentence is "" if no adjoint is stored.
    """
    if policy.level is None or not (schedule.actions.kind == KIND_CODE[Kind.ADJOINT]).any():
        return ""
    costs = kill_seconds(schedule.chain, platform, platform.number(policy.level), policy.every)
    expected = ""
    if mtbf is not None:
        seconds = seconds_text(expected_makespan(schedule, platform, policy, mtbf))
        expected = f"; with a kill in {seconds_text(mtbf)} on average, expect {seconds}"
    rows = schedule.actions.op == REVERSE
    to_reverse = int((schedule.actions.end - schedule.actions.begin)[rows].sum())
    steps = ceil(policy.every * to_reverse / (predicted(schedule, platform) or inf))
    often = f"every {seconds_text(policy.every)} of work, about {steps} steps"
    node = ""
    if copied := platform.levels[platform.number(policy.level)].options.get("copies_every"):
        node = f"; the loss of {policy.level}, up to {seconds_text(costs + float(copied))}"
    return (
        f"an adjoint checkpoint on {policy.level} {often if steps > 1 else 'after each step'}; a"
        f" kill costs about {seconds_text(costs)} of work{node}{expected}"
    )


def kill_seconds(chain: Chain, platform: Platform, level: int, every: float, /) -> float:
    """Return an estimate of the seconds of work that a kill costs.

    They are the work since the last adjoint checkpoint, which is one interval at most, and one
    forward sweep that restores the lost checkpoints, from x_0 to the last step. Most kills cost
    less. The estimate is no bound: the rest may take longer, because its plan starts from the
    checkpoints that survive, and writes those that were lost once more.
    """
    sweep = chain.seconds(Advance(0, chain.length))
    return every + sweep + adjoint_seconds(chain, platform, level)


def _able(chain: Chain, platform: Platform, model: Model | None) -> list[int]:
    """Return the durable levels with space for two adjoint checkpoints, nearest first.

    There are none if a model is given and does not store its adjoint.
    """
    try:
        if model is not None:
            model.layout(Key(Kind.ADJOINT, 0))
    except UnsupportedKind:
        return []
    return [
        number
        for number, level in enumerate(platform.levels)
        if level.slots(chain.largest("adjoint"), 2) == 2
        and (level.backend and backend_of(level).durable)
    ]


def policy_on(
    chain: Chain,
    platform: Platform,
    number: int,
    /,
    *,
    every: float | None = None,
    mtbf: float = DAY,
) -> AdjointPolicy:
    """Return adjoint checkpoints on this level, at the interval `every` or Daly's."""
    daly = max(_LEAST, daly_interval(adjoint_seconds(chain, platform, number), mtbf))
    return AdjointPolicy(platform.levels[number].name, every or daly)


def _last_one_stays(schedule: Schedule) -> Schedule:
    """Return the schedule without the Discards of adjoints after the last Reverse.

    At this point the gradient is stored nowhere else. The process removes the checkpoints on the
    levels after it has written the result.
    """
    actions = schedule.actions
    after = np.arange(len(actions)) > np.flatnonzero(actions.op == REVERSE).max(initial=-1)
    last = after & (actions.op == DISCARD) & (actions.kind == KIND_CODE[Kind.ADJOINT])
    return Schedule(schedule.chain, actions.take(~last), schedule.stored, schedule.note)
