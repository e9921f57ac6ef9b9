"""The two sweeps, forward and back, which go on where a level has less room than was planned.

States may grow, so that a plan by the size of the first may ask for more than a level has. The rest
is then planned from what there is: with fewer states, and more to run again.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any, Generic, TypeVar

from ckio.actions.columns import Actions
from ckio.backends.base import Backend
from ckio.platform import Platform
from ckio.platform.chain import Chain
from ckio.programs.model import ProgramModel
from ckio.programs.protocol import Program
from ckio.programs.sizing import Sizing
from ckio.programs.ways import Live
from ckio.recover import recover
from ckio.runner.forward import Forward, Rules, Stored, ready_for_the_way_back, run_forward
from ckio.runner.persevere import Replan, persevere
from ckio.runner.rule import Rule
from ckio.runner.unknown import AT_ONCE
from ckio.schedule import Schedule
from ckio.schedule.timeline import TimelineRecorder

S = TypeVar("S")

RuleOf = Callable[[Chain, Platform], Rule]
"""What is stored on the way forward, of which chain and on which platform."""

log = logging.getLogger("ckio")


@dataclass(frozen=True)
class Task(Generic[S]):
    """What is to be computed, in steps of which size.

    Attributes
    ----------
    program, x, ybar
        As `checkpoint_vjp` takes them.
    memory : float
        Bytes that a tape may take.
    size : Sizing
        The ticks of a step.
    live : Live
        Sees each event.
    """

    program: Program[S]
    x: Any
    ybar: Any
    memory: float
    size: Sizing
    live: Live

    def model(self) -> ProgramModel[S]:
        """A fresh model of it."""
        return ProgramModel(
            self.program, self.x, self.size.base, ybar=self.ybar, budget=self.memory
        )

    def of_base(self, base: int, /) -> "Task[S]":
        """The same in steps of so many ticks."""
        return replace(self, size=replace(self.size, base=base))


def by_rule(
    task: Task[S], rule: RuleOf, platform: Platform, backends: Sequence[Backend], /
) -> ProgramModel[S]:
    """Forward, storing what the rule says, and back from there."""
    model = task.model()
    chain = task.size.chain(model, None)
    done = forward(task, model, lambda rest, _: rule(chain, rest), platform, backends)
    chain = chain.with_steps(done.steps)

    def plan(rest: Platform, stored: Stored) -> Schedule:
        return rule(chain, rest).finish(done.steps, stored)

    model.begin_again()
    return back(task, model, chain, done, plan)


def by_planner(
    task: Task[S],
    planner: Callable[[Chain, Platform], Schedule],
    platform: Platform,
    backends: Sequence[Backend],
    /,
) -> ProgramModel[S]:
    """Forward to count the ticks; then as it is planned."""
    model = task.model()
    plan = planner(task.size.chain(model, _counted(model)), platform)
    model.begin_again()
    return _perform(task, model, plan, platform, backends)


def forward(
    task: Task[S],
    model: ProgramModel[S],
    rules: Rules,
    platform: Platform,
    backends: Sequence[Backend],
    /,
    *,
    stored: Stored = (),
) -> Forward:
    """From x_0, or from what is stored, to the end of the program."""
    return run_forward(
        rules, platform, model, backends, say=log.warning, stored=stored, watch=task.live
    )


def _from_what_is_left(chain: Chain, platform: Platform, stored: Stored) -> Schedule:
    return recover(chain, platform, stored, level=None, every=inf)


def back(
    task: Task[S],
    model: ProgramModel[S],
    chain: Chain,
    done: Forward,
    plan: Callable[[Platform, Stored], Schedule],
    /,
    *,
    replan: Replan = _from_what_is_left,
) -> ProgramModel[S]:
    """From the end to x_0, by a plan from what is stored; the model that came there."""
    schedule, done = ready_for_the_way_back(plan, chain, done, say=log.warning)
    return _perform(task, model, schedule, done.platform, done.backends, replan=replan)


def already(steps: int, platform: Platform, backends: Sequence[Backend], /) -> Forward:
    """A way forward that was gone before, to these levels."""
    return Forward(steps, TimelineRecorder().timeline(Actions.of(())), platform, list(backends))


def _perform(
    task: Task[S],
    model: ProgramModel[S],
    schedule: Schedule,
    platform: Platform,
    backends: Sequence[Backend],
    *,
    replan: Replan = _from_what_is_left,
) -> ProgramModel[S]:
    return persevere(
        schedule,
        platform,
        model,
        backends,
        fresh=task.model,
        replan=replan,
        say=log.warning,
        watch=task.live,
    )[1]


def _counted(model: ProgramModel[Any]) -> int:
    """Run to the end; the number of steps."""
    step, reached = 0, model.advance(0, AT_ONCE)
    while reached > step and model.steps is None:
        step, reached = reached, model.advance(reached, reached + AT_ONCE)
    return reached
