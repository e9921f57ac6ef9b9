"""The vorticity model with all in its state: the same gradient, and what is not needed of it."""

import numpy as np
import pytest
from example_models.ocean import FIELDS, Ocean
from models.poisoning import flow_of, seed_of, tape_of
from small_models import digest, reverse_all

from ckio.actions import Key, Kind
from ckio.models.vorticity import Vorticity
from ckio.testing import restore, save

HELD = {*FIELDS, "J"}


@pytest.mark.parametrize("steps", [0, 1, 2, 3, 20])
@pytest.mark.parametrize("options", [{"grid": 8}, {"grid": 21, "wind": 0.5, "seed": 3}])
def test_functional_and_gradient_are_those_of_the_model_that_was_thought_about(options, steps):
    expected = digest(reverse_all(Vorticity(**options), steps))
    assert digest(reverse_all(Ocean(**options), steps)) == expected
    assert steps == 0 or np.frombuffer(expected[1]["Q"]).any()


def test_controls_are_what_the_state_starts_from():
    ocean, model = Ocean(grid=16), Vorticity(grid=16)
    for name in ("zeta", "Q"):
        for one in (ocean, model):
            one.control[name][...] *= 1.5
            one.control[name][0] = 7.0  # what is on a wall does not matter
    assert digest(reverse_all(ocean, 9)) == digest(reverse_all(model, 9))
    assert ocean.dt == model.dt


def test_the_gradient_of_the_wind_is_summed_up_in_the_adjoint_of_the_state():
    model = Ocean(grid=12)
    model.record(0, 10)
    model.reverse(4, 10)
    assert not model.gradient["Q"].any()
    assert model._adjoint.cotangent["Q"].any()
    model.reverse(0, 4)
    np.testing.assert_array_equal(model.gradient["Q"], model._adjoint.cotangent["Q"])


def test_nobody_has_said_what_is_needed_so_checkpoints_hold_it_all():
    model = Ocean(grid=16)
    assert model.variables is None
    for kind in (Kind.RESTART, Kind.TAPE):
        layout = model.layout(Key(kind, 0))
        assert {field.name for field in layout} == HELD
        assert {field.unit for field in layout} == {"s-1", "m2 s-1", "s-2", "m2 s-2"}


@pytest.mark.parametrize("i", [1, 2, 9])
def test_what_was_and_how_fast_it_changed_is_dead_and_the_wind_stays(i):
    flow = flow_of(lambda: Ocean(grid=7), i)
    assert flow.use == HELD - {"zeta_prev", "F_0"}
    assert flow.out == HELD - {"Q"}
    assert tape_of(lambda: Ocean(grid=7), i) == {"zeta", "psi"}
    assert seed_of(lambda: Ocean(grid=7), i) == {"zeta", "psi", "J"}


def test_what_is_reversed_twice_counts_once():
    model, a4, x0 = Ocean(grid=10), Key(Kind.ADJOINT, 4), Key(Kind.RESTART, 0)
    start = save(model, x0)
    model.record(0, 9)
    model.reverse(4, 9)
    half = save(model, a4)
    for _ in range(2):
        restore(model, a4, half)
        restore(model, x0, start)
        reverse_all(model, 4)
        assert digest(model) == digest(reverse_all(Ocean(grid=10), 9))
