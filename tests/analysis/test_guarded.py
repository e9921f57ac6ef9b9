"""Wrong declarations are found at the first step that breaks them, and right ones pass."""

from collections.abc import Callable
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from example_models.ocean import Ocean
from example_models.permafrost import Permafrost
from example_models.shallow_water import ShallowWater
from small_models import digest, reverse_all

from ckio.actions import Key, Kind
from ckio.actions.variables import Flow, Step, Variables
from ckio.analysis.guarded import Guarded
from ckio.analysis.lowering import lower
from ckio.analysis.recorded import observe
from ckio.backends.ram import Ram
from ckio.errors import BadInput, RunFailed
from ckio.model import sizes_of
from ckio.model.arraymodel import ArrayModel
from ckio.models.burgers import Burgers
from ckio.models.vorticity import Vorticity
from ckio.planners.binomial import revolve
from ckio.planners.dp import mixed
from ckio.planners.literature import multistage
from ckio.planners.trivial import recompute_all, store_all
from ckio.platform import Affine, Level, Platform
from ckio.platform.chain import Chain
from ckio.runner import run
from ckio.schedule import Schedule
from ckio.testing import CountingModel, restore, save, t, x

from .random_models import maker, random_program

STEPS = 8

PLANNERS = {
    "store-all": store_all,
    "recompute-all": recompute_all,
    "revolve": revolve,
    "multistage": multistage,
    "mixed": mixed,
}

Make = Callable[[], ArrayModel]


def plain(make: Make, steps: int = STEPS) -> tuple[object, ...]:
    return digest(reverse_all(make(), steps))


def performed(
    guarded: Guarded, planner: str, *, steps: int = STEPS, lowered: Variables | None = None
) -> tuple[object, ...]:
    """What comes of a schedule with three slots in memory, or one made of single arrays."""
    chain = Chain(steps=steps, advance=1.0, record=1.2, reverse=2.0, **sizes_of(guarded))
    level = Level(name="ram", write=Affine(0.1), read=Affine(0.1), capacity=3 * chain.restart)
    roomy = planner in {"store-all", "recompute-all"}
    platform = Platform((replace(level, capacity=None) if roomy else level,))
    schedule = PLANNERS[planner](chain, platform)
    if lowered is not None:
        platform = Platform((replace(level, capacity=None),))
        schedule = lower(schedule, lowered)
        assert not any(key.kind is Kind.RESTART and not key.name for key in keys(schedule))
    run(schedule, platform, guarded, [Ram()])
    return digest(guarded)


def keys(schedule: Schedule) -> list[Key]:
    return [action.key for action in schedule.actions if hasattr(action, "key")]


# --- right declarations pass

MODELS: dict[str, Make] = {
    "vorticity": lambda: Vorticity(grid=8),
    "vorticity without psi": lambda: Vorticity(grid=8, recompute="psi"),
    "burgers": lambda: Burgers(grid=16),
    "shallowwater": lambda: ShallowWater(grid=6),
    "permafrost": lambda: Permafrost(grid=6, steps=STEPS, change=3, thaw=2),
}


@pytest.mark.parametrize("name", MODELS)
def test_the_models_pass_as_they_are_declared_on_whole_states_and_array_by_array(name):
    make = MODELS[name]
    expected, variables = plain(make), make().variables
    for planner in ("recompute-all", "revolve", "mixed"):
        assert performed(Guarded(make(), variables), planner) == expected
    for planner in ("revolve", "multistage"):
        guarded = Guarded(make(), variables)
        assert performed(guarded, planner, lowered=variables) == expected


@pytest.mark.parametrize("make", [lambda: Ocean(grid=8), MODELS["shallowwater"]])
def test_they_pass_as_they_were_observed(make):
    guarded = Guarded(make(), observe(make, steps=4))
    assert performed(guarded, "revolve") == plain(make)


@pytest.mark.campaign
@pytest.mark.parametrize("seeds", [range(2), range(2, 100)], ids=str)
def test_a_random_model_passes(seeds):
    for seed in seeds:
        program = random_program(Random(seed))
        variables = program.variables()
        make = maker(program, flow=variables.steps, seed=program.seeds)
        expected = plain(make)
        guarded = [Guarded(make(), variables) for _ in range(2)]
        # This one stores all of its state, whatever is declared.
        guarded.append(Guarded(maker(program)(), variables))
        for model, planner in zip(guarded, ("revolve", "mixed", "revolve"), strict=True):
            assert performed(model, planner) == expected, f"seed {seed}"
        lowered = make().variables
        by_array = performed(Guarded(make(), variables), "revolve", lowered=lowered)
        assert by_array == expected, f"seed {seed}"


def test_a_second_process_goes_on():
    for name in ("vorticity", "shallowwater"):
        first, second = (
            Guarded(model, model.variables) for model in (MODELS[name]() for _ in "12")
        )
        kept = {}
        for key in (x(0), x(4)):
            kept[key] = save(first, key)
            first.advance(key.step, key.step + 4)
        restore(first, x(4), kept[x(4)])
        first.record(4, 8)
        first.reverse(4, 8)
        a_4 = Key(Kind.ADJOINT, 4)
        restore(second, a_4, save(first, a_4))
        restore(second, x(0), kept[x(0)])
        second.advance(0, 3)
        second.record(3, 4)
        tape = save(second, t(3))
        restore(second, x(0), kept[x(0)])
        second.advance(0, 3)
        restore(second, t(3), tape)
        second.reverse(3, 4)
        restore(second, x(0), kept[x(0)])
        second.record(0, 3)
        second.reverse(0, 3)
        assert digest(second) == plain(MODELS[name])


# --- wrong ones do not


def without(flow: Flow, which: str, name: str) -> Flow:
    """A flow in which one name is missing from a set, or too many in kill."""
    match which:
        case "use":
            return replace(flow, use=flow.use - {name})
        case "out":
            return Flow(flow.use, flow.out - {name}, flow.kill - {name})
        case _:
            return replace(flow, kill=flow.kill | {name})


def wrong(variables: Variables):
    """Every declaration that is wrong in one name of one set: with the set, and the name."""
    step = variables.steps
    flow, taped = step.forward, step.record.use
    for which, names in {
        "use": flow.use,
        "out": flow.out,
        "kill": flow.out - flow.kill - flow.use,
    }.items():
        for name in sorted(names):
            changed = without(flow, which, name)
            record = Flow(taped, changed.out, changed.kill)
            yield which, name, replace(variables, steps=Step(changed, record))
    for name in sorted(taped):
        record = Flow(taped - {name}, flow.out, flow.kill)
        yield "tape", name, replace(variables, steps=Step(flow, record))
    for name in sorted(variables.seed):
        yield "seed", name, replace(variables, seed=variables.seed - {name})


SAYS = {
    "use": r"step 0 uses {}\b",
    "out": r"step 0 overwrites {}\b",
    "kill": r"step 0 is declared to overwrite all of {}\b",
    "tape": r"adjoint of step 1 reads {} of its tape",
    "seed": r"adjoint_seed reads {}\b",
}


def a_step_on_its_way_and_one_back(guarded: Guarded) -> None:
    guarded.advance(0, 1)
    guarded.record(1, 2)
    guarded.reverse(1, 2)


@pytest.mark.campaign
@pytest.mark.parametrize("seeds", [range(4), range(4, 200)], ids=str)
def test_every_single_wrong_declaration_of_a_random_model_is_found_at_once(seeds):
    for seed in seeds:
        program, count = random_program(Random(seed)), 0
        for which, name, variables in wrong(program.variables()):
            guarded = Guarded(maker(program)(), variables)
            with pytest.raises(RunFailed, match=SAYS[which].format(name)):
                a_step_on_its_way_and_one_back(guarded)
            count += 1
        assert count >= 3, f"seed {seed}"


class Late(ArrayModel):
    """From step 3 on `v` matters."""

    def __init__(self, **kwargs) -> None:
        state = {"u": np.ones(3), "v": np.full(3, 2.0), "J": 0.0}
        super().__init__(state, control={"u": np.ones(3)}, tape=["u"], **kwargs)

    def step(self, state, i):
        v = state["v"]
        state["u"] += v if i >= 3 else 1
        state["J"] += state["u"].sum()
        v *= 2

    def adjoint_step(self, adjoint, tape, i):
        adjoint["u"] += tape["u"] * adjoint["J"]


LATE = Variables(
    {"u": 24, "v": 24, "J": 8},
    Step(Flow({"u"}, {"u", "v", "J"})),
    seed={"J"},
    tape={"u"},
)


def test_what_finished_reads_has_to_be_declared_also_for_recording():
    class Ends(Late):
        def finished(self, state, i):
            return bool(state["v"][0] > 100)

    flow = Flow({"u", "v"}, {"u", "v", "J"})
    tape_only = replace(LATE, steps=Step(flow, Flow({"u"}, flow.out)))
    guarded = Guarded(Ends(), tape_only)
    assert guarded.advance(0, 2) == 2
    with pytest.raises(RunFailed, match=r"depends on v whether there is a step 2.*recorded"):
        guarded.record(2, 3)


def test_a_guarded_model_ends_where_the_model_ends():
    class Ends(Late):
        def finished(self, state, i):
            return i == 3

    whole = replace(LATE, steps=Step(Flow({"u", "v", "J"}, {"u", "v", "J"})))
    assert Guarded(Ends(), whole).advance(0, 10) == 3


def test_a_step_may_be_recorded_without_all_that_it_uses():
    """What its tape needs has to be there."""
    model = Late(
        flow=Step(Flow({"u", "v"}, {"u", "v", "J"}), Flow({"u"}, {"u", "v", "J"})), seed=["J"]
    )
    guarded = Guarded(model, model.variables)
    kept = save(guarded, Key(Kind.RESTART, 0, "u"))
    guarded.record(0, 6)
    guarded.reverse(1, 6)
    restore(guarded, Key(Kind.RESTART, 0, "u"), kept)
    guarded.record(0, 1)  # v is as in x_6: of no use, and in nobody's way
    guarded.reverse(0, 1)


def test_what_the_adjoint_must_not_change_is_looked_at():
    class Spoils(Late):
        def step(self, state, i):
            state["J"] += state["u"].sum()

        def adjoint_step(self, adjoint, tape, i):
            tape["u"][...] = 0

    stays = replace(LATE, steps=Step(Flow({"u"}, {"J"})))
    guarded = Guarded(Spoils(), stays)
    guarded.record(0, 1)
    with pytest.raises(RunFailed, match="adjoint of step 0 changes u, which no step overwrites"):
        guarded.reverse(0, 1)


# --- steps that are no functions


class Moody(Late):
    """Steps that depend on what was done before, in ways of which the state knows nothing."""

    mood = 0.0

    def step(self, state, i):
        super().step(state, i)
        state["u"] += self.mood


def test_a_step_that_gives_something_else_when_replayed_is_found_by_digests():
    variables = replace(LATE, steps=Step(Flow({"u", "v"}, {"u", "v", "J"})))
    model = Moody()
    guarded = Guarded(model, variables)
    kept = save(guarded, x(0))
    guarded.advance(0, 5)
    model.mood = 1e-9
    restore(guarded, x(0), kept)
    with pytest.raises(RunFailed, match=r"computed again or read back, u in x_1 differs"):
        guarded.advance(0, 5)


def test_a_checkpoint_that_comes_back_changed_is_found_by_digests():
    variables = replace(LATE, steps=Step(Flow({"u", "v"}, {"u", "v", "J"})))
    guarded = Guarded(Late(), variables)
    guarded.advance(0, 2)
    kept = save(guarded, x(2))
    guarded.advance(2, 4)
    restore(guarded, x(2), kept)
    kept[1] = bytes([kept[1][0] ^ 1]) + kept[1][1:]
    restore(guarded, x(2), kept)
    with pytest.raises(RunFailed, match="read back, v in x_2 differs"):
        guarded.advance(2, 4)


def test_nan_that_a_model_refuses_is_replaced_by_what_it_takes():
    class Careful(Late):
        def step(self, state, i):
            if not all(np.isfinite(array).all() for array in state.values()):
                raise RunFailed("not finite")
            state["u"] += 1
            state["v"][...] = i
            state["J"] += state["u"].sum() + state["v"].sum()

    variables = replace(LATE, steps=Step(Flow({"u"}, {"u", "v", "J"}, {"v"})))
    guarded = Guarded(Careful(flow=variables.steps), variables)
    kept = save(guarded, x(0))
    assert len(kept) == 2  # without v
    guarded.advance(0, 3)
    restore(guarded, x(0), kept)
    assert guarded.advance(0, 3) == 3


def test_what_is_of_another_state_is_there_again_when_it_is_needed():
    """K of x_2 stays good while steps go over [0, 1), which do not touch it."""

    class Rarely(Late):
        def step(self, state, i):
            if i == 1:
                state["v"][...] = state["u"]
            if i >= 2:
                state["J"] += state["v"].sum()
            state["u"] += 1

    plain, change = Flow({"u"}, {"u"}), Flow({"u"}, {"u", "v"}, {"v"})
    last = Flow({"u", "v"}, {"u", "J"})
    steps = [Step(plain), Step(change), Step(last), Step(last)]
    model = Rarely(flow=steps, seed=["J"])
    guarded = Guarded(model, model.variables)
    u_0, u_2 = Key(Kind.RESTART, 0, "u"), Key(Kind.RESTART, 2, "u")
    kept = save(guarded, u_0)
    guarded.advance(0, 2)
    v_2 = Key(Kind.RESTART, 2, "v")
    later, kept_v = save(guarded, u_2), save(guarded, v_2)
    guarded.advance(2, 4)
    restore(guarded, u_0, kept)
    guarded.advance(0, 1)
    restore(guarded, u_2, later)
    assert guarded.record(2, 3) == 3
    assert save(guarded, v_2) == kept_v


def test_what_a_checkpoint_holds_that_was_not_right_is_not_taken_for_right():
    class Rarely(Late):
        def step(self, state, i):
            if i == 0:
                state["v"] += 1
            if i == 1:
                state["v"][...] = state["u"]
            if i >= 2:
                state["J"] += state["v"].sum()
            state["u"] += 1

    plain, change = Flow({"u"}, {"u", "v"}), Flow({"u"}, {"u", "v"}, {"v"})
    model = Rarely(flow=[*map(Step, (plain, change, Flow({"u", "v"}, {"u", "J"})))], seed=["J"])
    guarded = Guarded(model, model.variables)
    u_0 = Key(Kind.RESTART, 0, "u")
    kept = save(guarded, u_0)
    guarded.advance(0, 3)
    restore(guarded, u_0, kept)
    guarded.advance(0, 1)  # v is dead here, and was not read
    kept = save(guarded, x(1))
    restore(guarded, x(1), kept)
    assert guarded.advance(1, 3) == 3


# --- what cannot be guarded


def test_it_takes_array_models_and_declarations_of_them():
    chain = Chain(steps=1, advance=1.0, record=1.0, reverse=1.0, restart=1, tape=1, adjoint=1)
    with pytest.raises(BadInput, match="takes an ArrayModel; CountingModel is not one"):
        Guarded(CountingModel(chain), LATE)
    more = replace(LATE, nbytes={**LATE.nbytes, "w": 8})
    with pytest.raises(BadInput, match="w is declared; the state has only J, u, v"):
        Guarded(Late(), more).advance(0, 1)


def test_steps_that_nobody_declared_are_refused():
    two = replace(LATE, steps=(Step(Flow({"u"}, {"u", "v", "J"})),) * 2)
    guarded = Guarded(Late(), two)
    with pytest.raises(RunFailed, match="step 2 is not among the 2 declared steps"):
        guarded.advance(0, 3)


def test_arrays_that_are_returned_are_not_lost_without_a_word():
    class Returns(Late):
        def step(self, state, i):
            return {**state}

    with pytest.raises(RunFailed, match="returned a dict"):
        Guarded(Returns(), LATE).advance(0, 1)


def test_the_guarded_model_is_the_model():
    model = Late()
    seen: list[int] = []
    guarded = Guarded(model, LATE)
    guarded.on_step = seen.append
    assert guarded.on_step is model.on_step
    guarded.advance(0, 2)
    assert seen == [1, 2]
    assert guarded.variables is LATE
    assert guarded.control is model.control
