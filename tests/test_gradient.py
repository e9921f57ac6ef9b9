"""The Taylor test finds gradients right that are right, and wrong that are wrong."""

import math

import numpy as np
import pytest

from ckio.errors import BadInput, RunFailed
from ckio.model import ArrayModel
from ckio.model.gradient import check_gradient
from ckio.models.burgers import Burgers

STEPS = 20


class Logistic(ArrayModel):
    """Populations that grow to a limit: x' = x + r x (1 - x), J = Σ x^p over all steps."""

    power = 3

    def step(self, state, i):
        x = state["x"]
        state["J"] += (x**self.power).sum()
        x += self.control["rate"] * x * (1 - x)

    def adjoint_step(self, adjoint, tape, i):
        x, of_x = tape["x"], adjoint["x"]
        self.gradient["rate"] += x * (1 - x) * of_x
        of_x *= 1 + self.control["rate"] * (1 - 2 * x)
        of_x += self.power * x ** (self.power - 1) * adjoint["J"]


class Linear(Logistic):
    """x' = x, and J = Σ x: nothing but rounding is left of a remainder."""

    def step(self, state, i):
        state["J"] += state["x"].sum()

    def adjoint_step(self, adjoint, tape, i):
        adjoint["x"] += adjoint["J"]


class Constant(Logistic):
    """J = 1 - 1 + 1 - ..., whatever the controls."""

    def step(self, state, i):
        state["J"][...] = 1 - state["J"]

    def adjoint_step(self, adjoint, tape, i):
        adjoint["J"] *= -1


def maker(kind=Logistic, *, dtype=np.float64, rate=0.3):
    def make():
        x = np.array([0.1, 0.3, 0.6, 1.2], dtype)
        return kind(
            {"x": x, "J": np.zeros((), dtype)},
            control={"x": x, "rate": np.full(4, rate, dtype)},
        )

    return make


def gradient_of(make):
    model = make()
    model.record(0, STEPS)
    model.reverse(0, STEPS)
    return {name: array.copy() for name, array in model.gradient.items()}


def test_a_right_gradient_is_verified_at_second_order():
    make = maker()
    check = check_gradient(make, STEPS, gradient_of(make))
    assert check.verified
    assert min(check.rates) > 1.95
    assert len(check.steps) == len(check.remainders) == len(check.slope_errors) == 6
    assert check.summary().startswith("verified: remainder rates 2.0")


@pytest.mark.parametrize("error", [1e-3, -1e-3, 0.1, 1.0, -2.0])
def test_a_gradient_off_by_a_factor_is_not_verified(error):
    make = maker()
    wrong = {name: g * (1 + error) for name, g in gradient_of(make).items()}
    check = check_gradient(make, STEPS, wrong)
    assert not check.verified
    assert check.summary().startswith("NOT verified")


@pytest.mark.parametrize("name", ["x", "rate"])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_one_wrong_element_of_one_control_is_found(name, seed):
    make = maker()
    gradient = gradient_of(make)
    gradient[name][seed] *= 1.01
    assert not check_gradient(make, STEPS, gradient, seed=seed).verified


@pytest.mark.parametrize(("name", "other"), [("x", "rate"), ("rate", "x")])
def test_the_control_that_is_wrong_is_named(name, other):
    make = maker()
    gradient = gradient_of(make)
    gradient[name] = gradient[name] * 2
    check = check_gradient(make, STEPS, gradient)
    assert {control: each.verified for control, each in check.controls.items()} == {
        name: False,
        other: True,
    }
    verdict, *table, wrong, right, hint = str(check).splitlines()
    assert table[0].split() == ["step", "h", "remainder", "rate"]
    assert len(table) == 2 + len(check.steps)
    assert verdict.startswith("NOT verified: remainder rates ")
    assert wrong.startswith(f"wrong in '{name}': remainder rates 1.0")
    assert right == f"right in '{other}'"
    assert hint.startswith("`ckio analyze MODEL` shows what its steps")
    assert check.summary() == "; ".join((verdict, wrong, right, hint))


def test_controls_are_checked_alone_only_where_the_gradient_is_wrong():
    runs = []

    def make():
        runs.append(1)
        return maker()()

    gradient = gradient_of(maker())
    assert not check_gradient(make, STEPS, gradient).controls
    right = len(runs)
    assert right == 1 + 5 + 4
    gradient["x"] = gradient["x"] * 2
    check_gradient(make, STEPS, gradient)
    assert len(runs) - right == right + 2 * (5 + 3)
    assert list(check_gradient(make, STEPS, gradient, apart=1).controls) == ["x"]


def test_a_gradient_that_is_not_finite_is_told_as_such():
    make = maker()
    gradient = gradient_of(make)
    gradient["rate"][1] = math.nan
    check = check_gradient(make, STEPS, gradient)
    assert check.summary().startswith(
        "NOT verified: the gradient along the direction is nan; wrong"
    )
    assert check.controls["x"].verified


class Rebinding(Logistic):
    """A step that computes new arrays, and keeps none of them."""

    def step(self, state, i):
        x, total = state["x"], state["J"]
        total = total + (x**3).sum()
        x = x + self.control["rate"] * x * (1 - x)


def test_steps_that_change_no_array_are_told():
    gradient = gradient_of(maker())
    check = check_gradient(maker(Rebinding), STEPS, gradient)
    assert (check.verified, check.unchanged) == (False, True)
    assert "; no step changes an array of the state: `step` has to write into" in check.summary()
    zero = {name: np.zeros_like(array) for name, array in gradient.items()}
    check = check_gradient(maker(Rebinding), STEPS, zero)
    assert (check.verified, check.unchanged) == (False, True)
    assert "the check says nothing" in check.summary()
    assert not check_gradient(maker(Constant), STEPS, gradient_of(maker(Constant))).unchanged


def test_a_gradient_of_zeros_or_of_no_numbers_is_not_verified():
    make = maker()
    for value in (0.0, math.nan, math.inf):
        claimed = {name: np.full_like(g, value) for name, g in gradient_of(make).items()}
        assert not check_gradient(make, STEPS, claimed).verified


def test_a_linear_functional_has_nothing_but_rounding_left():
    make = maker(Linear)
    gradient = gradient_of(make)
    assert check_gradient(make, STEPS, gradient).verified
    gradient["x"][1] *= 1 + 1e-6
    assert not check_gradient(make, STEPS, gradient).verified


def test_nothing_is_verified_of_a_functional_that_does_not_change():
    make = maker(Constant)
    gradient = gradient_of(make)
    check = check_gradient(make, STEPS, gradient)
    assert not check.verified
    assert "the check says nothing" in check.summary()
    gradient["x"][1] = 1e-9
    assert not check_gradient(make, STEPS, gradient).verified


def test_single_precision_is_checked_as_far_as_it_goes():
    make = maker(dtype=np.float32)
    gradient = gradient_of(make)
    assert check_gradient(make, STEPS, gradient).verified
    gradient["rate"] *= 1.5
    assert not check_gradient(make, STEPS, gradient).verified


@pytest.mark.parametrize("seed", range(5))
def test_rounding_that_chaos_amplifies_does_not_hide_a_right_gradient(seed):
    make = maker(rate=2.9)  # chaotic: errors grow a hundred thousand times
    gradient = gradient_of(make)
    assert check_gradient(make, STEPS, gradient, seed=seed, halvings=26).verified


def test_more_halvings_take_one_run_each():
    runs = []

    def make():
        runs.append(1)
        return maker()()

    gradient = gradient_of(maker())
    check_gradient(make, STEPS, gradient, halvings=3)
    three = len(runs)
    check_gradient(make, STEPS, gradient, halvings=7)
    assert len(runs) - three == three + 4


def test_a_gradient_that_does_not_fit_is_refused():
    make = maker()
    gradient = gradient_of(make)
    with pytest.raises(BadInput, match="no 'rate'"):
        check_gradient(make, STEPS, {"x": gradient["x"]})
    with pytest.raises(BadInput, match=r"no 'x' of shape \(4,\)"):
        check_gradient(make, STEPS, gradient | {"x": np.zeros(3)})
    with pytest.raises(BadInput, match="halvings = 0"):
        check_gradient(make, STEPS, gradient, halvings=0)
    with pytest.raises(BadInput, match="no controls"):
        check_gradient(lambda: Constant({"x": 1.0, "J": 0.0}, control={}), STEPS, {})


def test_a_program_that_ends_early_cannot_be_checked():
    class Short(Logistic):
        def finished(self, state, i):
            return i == 7

    with pytest.raises(RunFailed, match="finished at step 7 of 20"):
        check_gradient(maker(Short), STEPS, gradient_of(maker()))


def burgers_gradient(**options):
    """By store-all over its own steps, and how many those are."""
    steps = Burgers(**options).advance(0, 10**6)
    model = Burgers(**options)
    model.record(0, steps)
    model.reverse(0, steps)
    return steps, {name: array.copy() for name, array in model.gradient.items()}


def watched_burgers(reached, **options):
    """Models that leave, in `reached`, the step that each came to."""

    def make():
        number = len(reached)
        reached.append(0)

        def on_step(step):
            reached[number] = step

        return Burgers(**options, on_step=on_step)

    return make


def test_each_model_runs_to_its_own_end_where_the_steps_are_not_given():
    times = [0.0]
    model = Burgers(grid=50)
    model.on_step = lambda _: times.append(float(model._state["t"]))
    last = model.advance(0, 10**6) - 2
    taken = set()
    for part in (1e-4, 1 - 1e-4):  # of what the last step could be: a step more or less is near
        options = {"grid": 50, "time": times[last] + part * (times[last + 1] - times[last])}
        steps, gradient = burgers_gradient(**options)
        reached = []
        check = check_gradient(watched_burgers(reached, **options), None, gradient)
        assert check.verified
        assert steps in reached
        taken |= {step - steps for step in reached[1:]}  # the first only shows its controls
    assert taken & {-1, 1}


@pytest.mark.parametrize("name", ["u", "viscosity"])
def test_a_wrong_gradient_of_a_model_that_ends_by_itself_is_found(name):
    _, gradient = burgers_gradient(grid=40)
    gradient[name] *= 1.01
    assert not check_gradient(lambda: Burgers(grid=40), None, gradient).verified


@pytest.mark.parametrize("end", [1, 63, 64, 65, 128])
def test_a_model_that_ends_where_it_is_asked_to_pause_is_run_to_its_end(end):
    class Short(Logistic):
        def finished(self, state, i):
            return i == end

    make = maker(Short)
    model = make()
    model.record(0, end)
    model.reverse(0, end)
    gradient = {name: array.copy() for name, array in model.gradient.items()}
    open_ended = check_gradient(make, None, gradient, halvings=9)
    assert open_ended == check_gradient(make, end, gradient, halvings=9)


def test_a_functional_that_is_no_number_is_refused():
    class Scattered(Logistic):
        @property
        def functional(self):
            return np.ones(3)

    with pytest.raises(RunFailed, match=r"functional is an array of shape \(3,\); it must be J"):
        check_gradient(maker(Scattered), STEPS, gradient_of(maker()))


def test_a_model_that_says_it_went_back_is_refused():
    class Backwards(Logistic):
        def advance(self, begin, end):
            return super().advance(begin, end) if begin <= 1 else begin - 1

    with pytest.raises(RunFailed, match="advance from 64 returned 63; it must"):
        check_gradient(maker(Backwards), None, gradient_of(maker()))
