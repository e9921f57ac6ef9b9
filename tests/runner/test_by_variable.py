"""Schedules of single variables, performed: any call may fail, and the gradient is the same."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from small_models import digest, reverse_all

from ckio.actions import Key, Kind
from ckio.actions.columns import KIND_CODE, WRITE
from ckio.actions.variables import Flow, Step, Variables
from ckio.analysis.lowering import ByVariable, lower, reduced, whole_checkpoints
from ckio.backends.ram import Ram
from ckio.errors import (
    BadInput,
    CorruptCheckpoint,
    LevelFull,
    MissingCheckpoint,
    StorageError,
)
from ckio.model import sizes_of
from ckio.model.arraymodel import ArrayModel
from ckio.planners.dp import hrevolve, mixed
from ckio.platform import Affine, Level, Platform
from ckio.platform.chain import Chain
from ckio.runner import run
from ckio.runner.failover import Stored, failover
from ckio.schedule import Schedule, counts, makespan
from ckio.schedule.policy import Overlap

from .failing import THOROUGH, Faults, finished, memory, some

STEPS, CHANGE = 6, 3


def step(*more: str) -> Step:
    """The array `flux` is dead in every x_i, `map` never changes, `slow` in one step alone."""
    out = {"x", "J", "flux", *more}
    return Step(Flow({"x", "slow", "map", "J"}, out, out), Flow({"x", "slow", "map"}, out, out))


FLOW = tuple(step("slow") if i == CHANGE else step() for i in range(STEPS))


class Seasons(ArrayModel):
    """Growth at a rate that changes once."""

    def __init__(self, *, flow: bool = True) -> None:
        x = np.linspace(0.2, 0.7, 8)
        super().__init__(
            {"x": x, "slow": 1 + x, "map": 1 - x, "flux": x, "J": 0.0},
            control={"x": x, "slow": 1 + x},
            tape=("x", "slow", "map"),
            flow=FLOW if flow else None,
            seed=("J",) if flow else None,
        )

    def step(self, state, i, /):  # type: ignore[no-untyped-def]
        x, slow, flux = state["x"], state["slow"], state["flux"]
        flux[...] = slow * x * (1 - x)
        state["J"] += (x**2).sum() * (1 + i)
        if i == CHANGE:
            slow += x
        x += state["map"] * flux

    def adjoint_step(self, adjoint, tape, i, /):  # type: ignore[no-untyped-def]
        x, slow, k = tape["x"], tape["slow"], tape["map"]
        of_x, of_slow = adjoint["x"], adjoint["slow"]
        of_flux = k * of_x
        if i == CHANGE:
            of_x += of_slow
        of_x += of_flux * slow * (1 - 2 * x)
        of_slow += of_flux * x * (1 - x)
        of_x += 2 * x * (1 + i) * adjoint["J"]


TRUTH = digest(reverse_all(Seasons(flow=False), STEPS))
CHAIN = Chain(steps=STEPS, advance=1, record=1.5, reverse=2, **sizes_of(Seasons()))
PLATFORM = Platform(
    tuple(
        Level(
            name=f"level{number}",
            capacity=slots * CHAIN.restart,
            write=Affine(latency=0.1 * number, per_byte=1e-3 * number),
            read=Affine(latency=0.1 * number, per_byte=1e-3 * number),
        )
        for number, slots in enumerate((1, 1, 2))
    ),
    working_memory=CHAIN.tape,
)
VARIABLES = Seasons().variables or Variables({}, step())
PLAN = ByVariable(hrevolve, VARIABLES)(CHAIN, PLATFORM)
CALLS = sum(level.writes + level.reads + level.discards for level in counts(PLAN).levels)


def replan(chain: Chain, platform: Platform, stored: Stored) -> Schedule:
    """The rest, from the variables that are stored."""
    assert chain.variables is not None
    variables = chain.variables
    smaller, room = reduced(replace(chain, variables=None), platform, variables)
    rest = finished(smaller, room, whole_checkpoints(stored, smaller, room, variables))
    return lower(rest, variables, platform=platform, stored=stored)


def test_the_gradient_is_bitwise_that_of_whole_checkpoints() -> None:
    on_whole_states = hrevolve(CHAIN, PLATFORM)
    for schedule in (PLAN, on_whole_states, lower(on_whole_states, VARIABLES, platform=PLATFORM)):
        model = Seasons()
        timeline = run(schedule, PLATFORM, model, [Ram(), Ram(), Ram()])
        assert digest(model) == TRUTH
        assert timeline.actions == schedule.actions
    assert makespan(PLAN, PLATFORM) <= makespan(on_whole_states, PLATFORM)


def test_tapes_are_stored_by_variable_too() -> None:
    size = 4 * CHAIN.restart
    platform = Platform((Level(name="ram", capacity=size, write=Affine(0.1)),), CHAIN.tape)
    plan = ByVariable(mixed, VARIABLES)(CHAIN, platform)
    tapes = plan.actions.kind == KIND_CODE[Kind.TAPE]
    assert (tapes & (plan.actions.op == WRITE)).any()
    model = Seasons()
    run(plan, platform, model, [Ram(capacity=size)])
    assert digest(model) == TRUTH


@THOROUGH
@pytest.mark.parametrize("overlap", [Overlap(), Overlap(2, 2)], ids=["alone", "overlap"])
def test_any_call_may_fail_once_or_from_then_on(overlap: Overlap, thorough: bool) -> None:
    errors = (StorageError, CorruptCheckpoint, LevelFull, MissingCheckpoint)
    for number in range(0, CALLS, 1 if thorough else 5):
        for error, ever in some(list(product(errors, (False, True))), number, thorough=thorough):
            faults, said = Faults({number: error}, ever=ever), list[str]()
            levels = memory(faults, PLATFORM)
            _, model = failover(
                *(PLAN, PLATFORM, Seasons(), [Ram(), *levels[1:]] if overlap else levels),
                fresh=Seasons,
                replan=replan,
                warn=said.append,
                overlap=overlap,
            )
            assert digest(model) == TRUTH, (number, error, ever)
            assert bool(said) == bool(faults.raised)


def test_a_model_of_other_sizes_is_refused_before_the_start() -> None:
    variables = replace(VARIABLES, nbytes={**VARIABLES.nbytes, "x": 72})
    plan = lower(hrevolve(CHAIN, PLATFORM), variables)
    levels = tuple(replace(level, capacity=None) for level in PLATFORM.levels)
    with pytest.raises(BadInput, match=r"plans .* bytes for .*x.* in a restart"):
        run(plan, Platform(levels), Seasons(), [Ram(), Ram(), Ram()])


def test_what_changes_only_after_a_run_is_on_no_tape_of_it() -> None:
    """`slow` does in step 3: in a plan of two steps it is constant, and no part of a tape."""
    model, level, key = Seasons(), Ram(), Key(Kind.TAPE, 0, "x")
    model.record(0, 1)
    level.write(key, model.layout(key), model.dump(key))
    model.record(1, 2)
    model.reverse(1, 2)
    with model.load(key, model.layout(key)) as buffers:
        level.read(key, buffers)
    model.reverse(0, 1)
    whole = Seasons()
    whole.record(0, 2)
    whole.reverse(0, 2)
    assert digest(model) == digest(whole)
