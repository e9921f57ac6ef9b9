"""A time loop in PyTorch. Its reverse mode follows a schedule of ckio."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from os import PathLike
from time import perf_counter
from typing import Any, Final
from weakref import WeakKeyDictionary

import torch

from ckio.actions import Record
from ckio.actions.checks import is_whole
from ckio.adapters import registry
from ckio.adapters.scratch import Scratch
from ckio.adapters.torch.loop import (
    Loop,
    Position,
    Step,
    TensorSteps,
    Tree,
    check_apart,
    check_mode,
    generators_of,
    params_of,
    refuse,
)
from ckio.adapters.torch.tensors import Tensors, is_smooth, owned
from ckio.backends.base import Backend
from ckio.errors import BadInput, RunFailed
from ckio.model.comm import check_measures
from ckio.planners.base import Planner
from ckio.planners.unknown import Online
from ckio.platform import Level, Platform, platform_of
from ckio.platform.chain import Chain
from ckio.platform.clock import WallClock
from ckio.runner import Reproducible, perform
from ckio.runner.unknown import RuleRun, check_fit, reserve
from ckio.schedule import Schedule
from ckio.schedule.policy import SYNCHRONOUS

Done = Callable[[Any, int], Any]
"""A function of x_i and i that returns whether the loop ends at x_i."""

_STATES: Final = 100
"""Number of states in memory for a loop of unknown length, if no platform is given."""

_took: WeakKeyDictionary[Any, dict[Any, float]] = WeakKeyDictionary()
"""Measured seconds of a step, by its module or its code, and by the shapes of its state."""


@torch._disable_dynamo  # type: ignore[untyped-decorator]  # noqa: SLF001, as torch.utils.checkpoint
def checkpointed_loop(
    step: Step,
    x0: Any,
    n: int | None = None,
    /,
    *,
    done: Done | None = None,
    params: Any = None,
    platform: Platform | str | PathLike[str] | None = None,
    ram: int | str | None = None,
    disk: str | PathLike[str] | None = None,
    archive: str | PathLike[str] | None = None,
    planner: str | Planner = "hrevolve",
    seconds: float | None = None,
    preserve_rng_state: bool = True,
    generators: Sequence[torch.Generator] = (),
    allow_rounding: bool = False,
) -> Any:
    """Return x_n of the loop `x = step(x, i)`. Its gradient needs only few stored states.

    The forward run stores the states that the schedule selects, and the graph of the last step
    only. `backward` performs the rest of the schedule: it computes states again from stored ones,
    and reverses one step after the other by autograd. The stored states are removed after
    `backward`, or when the graph is deleted.

    >>> w = torch.tensor([0.5, 2.0], requires_grad=True)
    >>> y = checkpointed_loop(lambda x, i: x * w, torch.ones(2), 3, params=[w])
    >>> y.sum().backward()
    >>> w.grad.tolist()
    [0.75, 12.0]

    Parameters
    ----------
    step
        `step(x, i)` returns x_{i+1}, as new tensors with the same shapes, dtypes and devices as
        those of x_i. It must depend only on its arguments, on `params`, and on random numbers.
    x0
        The initial state: a tensor, or tuples, lists and dicts of tensors, also of integers.
    n
        Number of steps. Give either this or `done`.
    done
        `done(x, i)` returns whether the loop ends at x_i. The planner of its checkpoints is
        `online`.
    params
        The tensors, or the module, that steps read in addition to the state. By default these are
        the parameters of a step that is a module or a method of a module.
    platform
        The levels for states. The default is one level in memory, with the number of slots with
        which no step is run more than three times: about 1.4 sqrt(n), or 100 if n is not known.
    ram
        Memory for states, in bytes or as "2GiB". This and the next two are given instead of a
        platform; their costs are usual ones, see `Platform.of`.
    disk
        A directory for states, such as "/scratch:200GiB".
    archive
        An HDF5 file for states, such as "/scratch/states.h5:200GiB".
    planner
        A planner or its name.
    seconds
        Seconds of a step, which the planner compares with the costs of the levels. If the levels
        have costs and this is not given, the step is run twice to measure it. This is done once
        for each step and shape of state. Several processes must give it, the same in all, so that
        their plans are the same.
    preserve_rng_state
        Whether steps that are run again draw the same random numbers from torch's own generators.
    generators
        Other generators from which steps draw.
    allow_rounding
        Whether a state may differ by rounding when it is computed again, as with operations that
        PyTorch calls nondeterministic.

    Raises
    ------
    BadInput
        The arguments, or the results of a step, do not fit together. Or a part of the gradient
        would be lost, because it belongs to a tensor that was not given. Or this is called within
        a transform of `torch.func` or a forward-mode derivative.
    NoSchedule, StorageError, RunFailed
        The errors of planners and of `ckio.run`. If a step raises an exception, it is the cause of
        a RunFailed. `backward` raises RunFailed also if `create_graph=True`.
    """
    if (n is None) == (done is None) or not (n is None or (is_whole(n) and n >= 0)):
        raise BadInput(f"a loop of n = {n!r} steps: give a whole number, or `done`")
    check_mode()
    tree = Tree.of(x0)
    state = tree.leaves(x0)
    own = generators_of({t.device for t in state}) if preserve_rng_state else ()
    loop = Loop.of(step, tree, state, params_of(step, params), (*own, *generators))
    if n == 0 or (done is not None and done(x0, 0)):
        return x0
    if not (torch.is_grad_enabled() and any(t.requires_grad for t in (*state, *loop.params))):
        end = _plain(loop, state, n, done)
    else:
        check_apart(loop.params)
        nbytes = sum(t.nbytes for t in (*state, *loop.random()))
        given = platform_of(platform, ram=ram, disk=disk, archive=archive)
        levels = given or _memory(nbytes, n)
        if platform is None:
            levels = replace(levels, working_memory=nbytes)  # for the tape of one step
        if seconds is None:
            seconds = _seconds(loop, state, levels, nbytes)
        chain = Chain(
            steps=n,
            advance=seconds,
            record=seconds,
            reverse=0.0,  # each step is reversed once, in every plan
            restart=nbytes,
            tape=nbytes,
            adjoint=0,
        )
        schedule: Any = _schedule  # mypy does not see that planners can be hashed
        plan = Online(chain, levels) if n is None else schedule(planner, chain, levels)
        planned = PlannedLoop(loop, plan, levels, done, allow_rounding)
        end = _Looped.apply(planned, *state, *loop.params)
    return tree.build(end)


@dataclass(frozen=True, slots=True)
class PlannedLoop:
    """A loop with its plan: a schedule, or the rule of `online` if its length is not known."""

    loop: Loop
    plan: Schedule | Online
    platform: Platform
    done: Done | None
    allow_rounding: bool

    def run(self, model: TensorSteps, /) -> Iterator[None]:
        """Run both sweeps on levels that are open meanwhile, and yield once between them."""
        steps: Any = Reproducible(model, allow_rounding=self.allow_rounding)  # type: ignore[arg-type]
        with Scratch(self.platform) as levels:
            if isinstance(self.plan, Online):
                yield from _until_done(self.plan, steps, levels.backends)
            else:
                yield from _by_schedule(self.plan, self.platform, steps, levels.backends)


@lru_cache(maxsize=64)
def _schedule(planner: Any, chain: Chain, platform: Platform) -> Schedule:
    """Return a schedule. It is planned once, because the same loop is often run many times."""
    plan: Planner = registry.find("planners", planner) if isinstance(planner, str) else planner
    return plan(chain, platform)


def _by_schedule(
    schedule: Schedule, platform: Platform, model: TensorSteps, backends: Sequence[Backend]
) -> Iterator[None]:
    turned = False
    times = perform(schedule, platform, model, backends, overlap=SYNCHRONOUS)
    for action, _ in zip(schedule.actions, times, strict=True):
        match action:
            case Record(_, end) if end == schedule.chain.length and not turned:
                turned = True
                yield


def _until_done(rule: Online, model: TensorSteps, backends: Sequence[Backend]) -> Iterator[None]:
    check_fit(rule, model, backends, [])
    reserve(rule, model, backends)
    run, clock = RuleRun(rule, model, backends), WallClock()
    for _ in run.times(run.forward(), clock):
        pass
    yield
    for _ in run.times(run.back(), clock):
        pass


def _memory(nbytes: int, n: int | None) -> Platform:
    """Return a platform with one level in memory.

    The level has s slots, the least number with (s + 1)(s + 2) / 2 >= n, so that no step is run
    more than three times. For example, 100 steps need 13 slots, because 14 * 15 / 2 = 105.
    """
    slots = _STATES if n is None else math.ceil(math.sqrt(2 * n + 0.25) - 1.5)
    level = Level(name="ram", capacity=max(1, slots) * nbytes)
    return Platform((level,))


def _seconds(loop: Loop, state: Tensors, platform: Platform, nbytes: int) -> float:
    """Return the seconds of a step, or 1 if levels have no costs with which to compare them.

    They are measured once, because training runs a loop often.
    """
    costs = (cost for level in platform.levels for cost in (level.write, level.read, level.discard))
    if not any(cost(nbytes) > 0 for cost in costs):
        return 1.0
    parallel = torch.distributed.is_available() and torch.distributed.is_initialized()
    many = parallel and torch.distributed.get_world_size() > 1
    check_measures(many, "give `seconds`, the same in all")
    owner = getattr(loop.step, "__self__", loop.step)
    if not isinstance(owner, torch.nn.Module):
        owner = getattr(loop.step, "__code__", type(owner))
    known = _took.setdefault(owner, {})
    if loop.like not in known:
        first = owned(state)
        for _ in range(2):  # the first run may be slower
            with torch.no_grad(), loop.inside(loop.random()):
                start = perf_counter()
                loop.advance(first, 0)
                known[loop.like] = perf_counter() - start
    return known[loop.like]


class _Looped(torch.autograd.Function):  # type: ignore[misc]  # torch is seen as Any
    """The loop as one node of a graph."""

    @staticmethod
    def forward(ctx: Any, plan: PlannedLoop, *tensors: torch.Tensor) -> Tensors:
        ctx.save_for_backward(*tensors)
        ctx.set_materialize_grads(False)
        ctx.plan, ctx.random = plan, plan.loop.random()
        ctx.model, ctx.run = _run_forward(plan, tensors, ctx.random)
        end = ctx.model.at
        plan.loop.set_random(end.random)
        state_n = tuple(t.detach() for t in end.state)
        ctx.mark_non_differentiable(*(t for t in state_n if not is_smooth(t)))
        return state_n

    @staticmethod
    def backward(ctx: Any, *cotangent: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        if torch.is_grad_enabled():
            raise RunFailed(
                "create_graph=True: a checkpointed loop has no second derivative, because the"
                " graphs of its steps are deleted; call backward() without create_graph"
            )
        tensors = ctx.saved_tensors  # raises if they were changed in place, or were freed
        model, run, ctx.run = ctx.model, ctx.run, None
        if run is None:  # a second reverse sweep, because the graph was retained
            model, run = _run_forward(ctx.plan, tensors, ctx.random)
        ctx.model = None
        model.cotangent = list(cotangent)
        for _ in run:
            pass
        return None, *model.cotangent, *model.of_params


def _run_forward(
    plan: PlannedLoop, tensors: Tensors, random: Tensors
) -> tuple[TensorSteps, Iterator[None]]:
    """Run the forward sweep; return the steps, and an iterator that runs the reverse sweep."""
    state = tensors[: len(plan.loop.like)]
    model = TensorSteps(plan.loop, Position(owned(state), random), done=plan.done)
    run = plan.run(model)
    next(run)
    return model, run


def _plain(loop: Loop, state: Tensors, n: int | None, done: Done | None) -> Tensors:
    """Run the loop without checkpoints, because no gradient is needed."""
    state, i = owned(state), 0
    while i != n and not (done is not None and done(loop.tree.build(state), i)):
        state = loop.after(state, i)
        for tensor in state:
            if tensor.requires_grad:
                refuse(i, tensor)
        i += 1
    return state
