"""Adjoint checkpoints of a run: on which level, how often, and what a kill costs at most."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from typing import Final

import numpy as np

from ckio.actions import Key, Kind, Record, Reverse
from ckio.actions.columns import DISCARD, KIND_CODE, REVERSE
from ckio.adapters.registry import find, place
from ckio.errors import BadInput, NoSchedule, UnsupportedKind
from ckio.jobs.request import DAY
from ckio.model import Model
from ckio.planners.resume import resume
from ckio.platform import Level, Platform
from ckio.platform.chain import Chain
from ckio.platform.readable import bytes_text, seconds_text
from ckio.recover import (
    adjoint_seconds,
    aside,
    recover,
    redone_at_most,
    with_adjoint_checkpoints,
)
from ckio.recover import every as daly_interval
from ckio.recover.again import Killed
from ckio.recover.survivors import Stored
from ckio.schedule import Schedule, makespan
from ckio.schedule.policy import Overlap

_LEAST: Final = 1.0
"""Seconds between two of them, if nothing else is wished: a level may be priced at nothing."""

PlanFor = Callable[[Platform], Schedule]
"""A planner with its chain and options: the schedule for a platform, or NoSchedule."""


@dataclass(frozen=True, slots=True)
class Kept:
    """Where the adjoint checkpoints of a run go.

    Attributes
    ----------
    level : str or None
        The name of the level; None where none can keep them.
    every : float
        Seconds of work between two.
    """

    level: str | None
    every: float


def is_durable(level: Level, /) -> bool:
    """Whether checkpoints outlive the process, as far as can be told without opening the level."""
    said = getattr(find("backends", level.backend), "durable", None)
    return said if isinstance(said, bool) else place(level, "run") is not None


def durable(platform: Platform, /) -> list[int]:
    """The numbers of the levels whose checkpoints outlive the process."""
    return [number for number, level in enumerate(platform.levels) if is_durable(level)]


def first_plan(
    chain: Chain,
    platform: Platform,
    model: Model | None,
    planned: PlanFor,
    /,
    *,
    every: float | None = None,
    mtbf: float = DAY,
    always: bool = False,
) -> tuple[Schedule, Kept]:
    """Return the schedule of a new run, and where its adjoint checkpoints go.

    They are stored `every` so many seconds of work, or at Daly's interval for this mean time
    between failures. Nothing is set aside where the whole run is expected to take less than the
    interval, unless it is to be set aside `always`. Raises BadInput where an interval is given and
    no level can keep what it asks for.
    """
    able = _able(chain, platform, model)
    choices = {number: kept_on(chain, platform, number, every=every, mtbf=mtbf) for number in able}
    nearest = next(iter(choices.values()), Kept(None, every or inf))
    if not choices and every is not None:
        raise BadInput(
            f"--every: no durable level keeps two adjoint checkpoints of this model,"
            f" {bytes_text(chain.adjoint)} each"
        )
    least = chain.length * float(np.min(chain.record) + np.min(chain.reverse))
    if not choices or not (always or least > nearest.every):
        plain = planned(platform)
        if not choices or makespan(plain, platform) <= nearest.every:
            return plain, nearest
    for number, kept in choices.items():
        try:
            schedule = planned(aside(platform, chain, number))
        except NoSchedule:  # with so much less room there; a level farther off may have more
            continue
        return _with_checkpoints(schedule, platform, kept), kept
    if every is not None:
        raise NoSchedule("--every: beside two adjoint checkpoints no level has room for this plan")
    return planned(platform), nearest


def without_end(
    chain: Chain,
    platform: Platform,
    model: Model,
    /,
    *,
    every: float | None = None,
    mtbf: float = DAY,
) -> tuple[Kept, Platform]:
    """Where the adjoint checkpoints of a run of unknown length go, and the platform without them.

    Their room is set aside on the nearest durable level that has it.
    """
    for number in _able(chain, platform, model):
        return kept_on(chain, platform, number, every=every, mtbf=mtbf), aside(
            platform, chain, number
        )
    return Kept(None, every or inf), platform


def aside_for(kept: Kept, chain: Chain, platform: Platform, /) -> Platform:
    """The platform without the room for these adjoint checkpoints, as far as it is there."""
    if kept.level is None:
        return platform
    try:
        return aside(platform, chain, platform.number(kept.level))
    except NoSchedule:
        return platform


def next_plan(
    chain: Chain,
    platform: Platform,
    survivors: Sequence[Iterable[Key]],
    model: Model | None,
    kept: Kept,
    /,
    *,
    tapes: bool = False,
    killed: Killed | None = None,
) -> tuple[Schedule, Kept]:
    """The schedule of a process that goes on from what an earlier one left on durable levels.

    If the level of the adjoint checkpoints has gone they go to another one, or to none: what an
    earlier process left then stays, if there is room. Tapes are stored, too, where `tapes` says so.
    What was `killed`, if that is known, may be taken up again. Where the chain has variables, they
    are what survives, and what the schedule stores.
    """
    if chain.variables is not None:
        from ckio.recover.byvariable import by_variable

        def rest_of(chain: Chain, platform: Platform, there: Stored) -> tuple[Schedule, Kept]:
            return next_plan(chain, platform, there, model, kept, tapes=tapes)

        return by_variable(rest_of, chain, platform, survivors)
    rest = partial(recover, chain, platform, survivors, tapes=tapes, killed=killed)
    able = [platform.levels[number].name for number in _able(chain, platform, model)]
    for name in sorted(able if kept.level else [], key=lambda name: name != kept.level):
        number = platform.number(name)
        try:
            found = rest(level=number, every=kept.every)
        except NoSchedule:
            continue
        return _last_one_stays(found), replace(kept, level=name)
    without = partial(resume, chain, platform, survivors, tapes=tapes)
    return _with_no_more(chain, platform, survivors, rest, without), replace(kept, level=None)


def _with_no_more(
    chain: Chain,
    platform: Platform,
    survivors: Sequence[Iterable[Key]],
    rest: Callable[..., Schedule],
    without: Callable[[], Schedule],
    /,
) -> Schedule:
    """The rest without new adjoint checkpoints; the furthest one that there is stays to the end.

    Unless the lack of its room costs more seconds than it took to come so far: then it is what is
    planned `without`.
    """
    try:
        staying = rest(level=None, every=inf)
    except NoSchedule:
        return without()
    end = chain.length
    steps = [key.step for keys in survivors for key in keys if key.kind is Kind.ADJOINT]
    came = min(steps, default=end)
    if came < end:
        worth = chain.seconds(Record(came, end)) + chain.seconds(Reverse(came, end))
        with suppress(BadInput):
            going = without()
            if makespan(staying, platform) > makespan(going, platform) + worth:
                return going
    return _last_one_stays(staying)


def told(schedule: Schedule, platform: Platform, kept: Kept, overlap: Overlap, /) -> str:
    """Say where adjoints are stored how often, and what a kill costs; "" where none is stored.

    With overlap, what is on its way is lost in a kill, and what it costs is not known before. Nor
    is it by variable: what is killed is not taken up again then, but planned anew.
    """
    actions = schedule.actions
    if kept.level is None or not (actions.kind == KIND_CODE[Kind.ADJOINT]).any():
        return ""
    number, costs = platform.number(kept.level), ""
    if schedule.chain.variables is None and not overlap:
        args = schedule, platform, durable(platform)
        most = redone_at_most(*args, level=number, every=kept.every)
        costs = f"; a kill costs {seconds_text(most)} of work at most" if most < inf else ""
    return f"an adjoint checkpoint on {kept.level} every {seconds_text(kept.every)} of work{costs}"


def _able(chain: Chain, platform: Platform, model: Model | None) -> list[int]:
    """Return the durable levels with space for two adjoint checkpoints, nearest first.

    Without a model, as for a run that is only planned, the adjoint can be stored.
    """
    try:
        if model is not None:
            model.layout(Key(Kind.ADJOINT, 0))
    except UnsupportedKind:
        return []
    return [
        number
        for number, level in enumerate(platform.levels)
        if level.slots(chain.largest("adjoint"), 2) == 2 and is_durable(level)
    ]


def kept_on(
    chain: Chain,
    platform: Platform,
    number: int,
    /,
    *,
    every: float | None = None,
    mtbf: float = DAY,
) -> Kept:
    """Place adjoint checkpoints on this level, `every` so often or at Daly's interval."""
    daly = max(_LEAST, daly_interval(adjoint_seconds(chain, platform, number), mtbf))
    return Kept(platform.levels[number].name, every or daly)


def _with_checkpoints(schedule: Schedule, platform: Platform, kept: Kept) -> Schedule:
    number = platform.number(kept.level or "")
    return _last_one_stays(with_adjoint_checkpoints(schedule, platform, kept.every, level=number))


def _last_one_stays(schedule: Schedule) -> Schedule:
    """Without the Discards of adjoints behind the last Reverse.

    The gradient is not yet anywhere else then: it is the process that removes what is on the
    levels, after it has written the result.
    """
    actions = schedule.actions
    after = np.arange(len(actions)) > np.flatnonzero(actions.op == REVERSE).max(initial=-1)
    last = after & (actions.op == DISCARD) & (actions.kind == KIND_CODE[Kind.ADJOINT])
    return Schedule(schedule.chain, actions.take(~last), schedule.stored, schedule.note)
