"""A recorded step that is reversed next is not computed: fewer steps, and the same gradient."""

from collections import Counter
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from ckio import ArrayModel, Chain, Level, Platform, Ram, sizes_of
from ckio.actions import Key, Kind
from ckio.adapters import registry
from ckio.errors import NoSchedule
from ckio.model.check import check_model
from ckio.models.burgers import Burgers
from ckio.models.vorticity import Vorticity
from ckio.models.wave import Wave
from ckio.planners import hrevolve, mixed, revolve
from ckio.runner import run
from ckio.runner.reproducible import ReplayCheck, Reproducible, unchecked
from ckio.schedule import Schedule, counts, makespan

from .wrong_models import Right, TapeInAttribute

X, A = Kind.RESTART, Kind.ADJOINT


def counting(kind: type[ArrayModel]) -> type[ArrayModel]:
    """A class of models that count the calls of `step`."""

    class Counting(kind):  # type: ignore[valid-type,misc]
        calls, records_late = 0, True

        def step(self, state, i):
            self.calls += 1
            super().step(state, i)

    return Counting


def machine(model: ArrayModel, steps: int, slots: int) -> tuple[Chain, Platform]:
    """Memory for so many states, at no cost."""
    chain = Chain(steps=steps, advance=1, record=1, reverse=1, record_only=0, **sizes_of(model))
    level = Level(name="ram", capacity=slots * chain.restart)
    return chain, Platform((level,), working_memory=chain.tape)


def performed(schedule: Schedule, platform: Platform, model: ArrayModel) -> ArrayModel:
    run(schedule, platform, model, [Ram(capacity=level.capacity) for level in platform.levels])
    return model


def equal(one: ArrayModel, other: ArrayModel) -> bool:
    same = all(np.array_equal(one.gradient[name], other.gradient[name]) for name in one.gradient)
    return same and one.functional == other.functional


@pytest.mark.parametrize(("steps", "slots", "calls"), [(100, 10, 223), (200, 20, 379)])
def test_revolve_computes_as_many_steps_fewer_as_it_reverses(
    steps: int, slots: int, calls: int
) -> None:
    """Revolve's steps (322, 578) less n - 1; without a check that computes any."""
    late = counting(Vorticity)(grid=16)
    chain, platform = machine(late, steps, slots)
    schedule = revolve(chain, platform)
    early = counting(Vorticity)(grid=16)
    early.records_late = False
    assert equal(performed(schedule, platform, late), performed(schedule, platform, early))
    assert late.calls == calls == early.calls - (steps - 1)
    assert makespan(schedule, platform) == calls + steps


@pytest.mark.parametrize("kind", [Vorticity, Burgers, Wave, Right])
@pytest.mark.parametrize("name", [*registry.names("planners")])
def test_the_steps_of_every_schedule_are_those_that_its_costs_say(
    kind: type[ArrayModel], name: str
) -> None:
    make = partial(counting(kind), **({} if kind is Right else {"grid": 24}))
    late = make()
    chain, platform = machine(late, 30, 4)
    deep = Platform((*platform.levels, Level(name="far")), platform.working_memory)
    try:
        schedule = registry.find("planners", name)(chain, deep)
    except NoSchedule:
        pytest.skip("this planner has no schedule here")
    alone = chain.saved_by(schedule.actions)  # a second for each step that is not computed
    whole = make()
    whole.record(0, 30)
    whole.reverse(0, 30)
    assert equal(performed(schedule, deep, unchecked(late)), whole)
    assert late.calls == counts(schedule).forward - alone.sum()


def test_a_state_is_computed_when_it_is_asked_for() -> None:
    asked: Counter[str] = Counter()
    for how in ("advance", "record", "dump", "state_arrays", "functional"):
        model = counting(Vorticity)(grid=16)
        plain = counting(Vorticity)(grid=16)
        plain.advance(0, 3)
        model.record(0, 3)
        assert model.calls == 2
        match how:
            case "advance":
                model.advance(3, 4)
                plain.advance(3, 4)
            case "record":
                model.record(3, 5)
                plain.advance(3, 4)
            case "functional":
                assert model.functional == plain.functional
        asked[how] = model.calls - 2
        state, expected = model.state_arrays(), plain.state_arrays()
        if how != "record":
            assert all(np.array_equal(state[name], expected[name]) for name in state)
    assert asked == {"advance": 2, "record": 2, "functional": 1, "dump": 0, "state_arrays": 0}


def test_a_model_that_does_not_say_so_computes_each_step_that_it_records() -> None:
    """Its adjoint may read what the step has left, if both are made one after the other."""
    model, right = TapeInAttribute(), Right()
    chain, platform = machine(model, 12, 3)
    schedule = hrevolve(chain, platform)
    assert equal(performed(schedule, platform, model), performed(schedule, platform, right))


def test_the_check_of_a_model_finds_an_adjoint_that_reads_what_its_step_has_left() -> None:
    class Late(TapeInAttribute):
        records_late = True

    class RightLate(Right):
        records_late = True

    assert not check_model(RightLate).faults
    assert check_model(Late).faults[0].check == "adjoint"
    assert "`records_late = True`" in str(check_model(Right))
    assert "records_late" not in str(check_model(RightLate)) + str(check_model(TapeInAttribute))


@pytest.mark.parametrize(
    ("planner", "tape", "slots", "before", "now"),
    [
        (hrevolve, 1, 20, 3.14, 2.54),
        (mixed, 1, 10, 3.02, 2.96),
        (mixed, 1, 20, 2.445, 2.422),
        (mixed, 1, 40, 2.058, 2.049),
        (mixed, 2, 10, 3.24, 3.07),
        (mixed, 2, 20, 2.58, 2.54),
    ],
)
def test_plans_weigh_a_stored_tape_against_a_step_that_is_never_computed(
    planner: Any, tape: int, slots: int, before: float, now: float
) -> None:
    """1000 steps of the vorticity model; a state takes 2 units, and access nothing."""
    chain = Chain(
        steps=1000, advance=6e-4, record=6.5e-4, record_only=5e-5, reverse=8.4e-4,
        restart=2, tape=tape, adjoint=2,
    )  # fmt: skip
    platform = Platform((Level(name="ram", capacity=2 * slots),), working_memory=tape)
    early = replace(chain, record_only=None)
    assert makespan(planner(early, platform), platform) == pytest.approx(before, abs=0.005)
    assert makespan(planner(chain, platform), platform) == pytest.approx(now, abs=0.005)


def test_the_check_of_states_asks_for_none_where_a_run_is_resumed_from_its_adjoint() -> None:
    """On ranks it would wait for others, which need no state there, either."""
    whole = counting(Vorticity)(grid=16)
    whole.record(0, 6)
    whole.reverse(4, 6)
    stored = [(key, whole.layout(key), list(map(bytes, whole.dump(key)))) for key in (Key(A, 4),)]
    start = counting(Vorticity)(grid=16)
    start.advance(0, 3)
    stored += [(key, start.layout(key), list(map(bytes, start.dump(key)))) for key in (Key(X, 3),)]
    model = counting(Vorticity)(grid=16)
    checked = Reproducible(model, ReplayCheck(share=np.inf))
    for key, layout, data in stored:
        with checked.load(key, layout) as into:
            for target, source in zip(into, data, strict=True):
                target[:] = source
    checked.record(3, 4)
    checked.reverse(3, 4)
    assert model.calls == 0
