"""The Taylor test finds gradients right that are right, and wrong that are wrong."""

import math
from functools import partial

import numpy as np
import pytest
from small_models import reverse_all

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
            {"x": x, "J": np.zeros((), dtype)}, control={"x": x, "rate": np.full(4, rate, dtype)}
        )

    return make


def gradient_of(make, steps=STEPS):
    return {name: it.copy() for name, it in reverse_all(make(), steps).gradient.items()}


def test_a_right_gradient_is_verified_at_second_order():
    make = maker()
    check = check_gradient(make, STEPS, gradient_of(make))
    assert check.verified
    assert min(check.rates) > 1.95
    assert len(check.steps) == len(check.remainders) == len(check.rates) + 1 == 6
    assert check.summary().startswith("verified: remainder rates 2.0")


def test_a_wrong_gradient_is_not_verified():
    make = maker()
    gradient = gradient_of(make)
    for error in (1e-3, -1e-3, 0.1, 1.0, -2.0):
        wrong = {name: g * (1 + error) for name, g in gradient.items()}
        check = check_gradient(make, STEPS, wrong)
        assert not check.verified, error
        assert check.summary().startswith("NOT verified")
    for value in (0.0, math.nan, math.inf):
        claimed = {name: np.full_like(g, value) for name, g in gradient.items()}
        assert not check_gradient(make, STEPS, claimed).verified, value


@pytest.mark.parametrize("name", ["x", "rate"])
def test_one_wrong_element_of_one_control_is_found(name):
    make = maker()
    for seed in (1, 2, 3):
        gradient = gradient_of(make)
        gradient[name][seed] *= 1.01
        assert not check_gradient(make, STEPS, gradient, seed=seed).verified, seed


@pytest.mark.parametrize(("name", "other"), [("x", "rate"), ("rate", "x")])
def test_the_control_that_is_wrong_is_named(name, other):
    make = maker()
    gradient = gradient_of(make)
    gradient[name] = gradient[name] * 2
    check = check_gradient(make, STEPS, gradient)
    alone = {control: each.verified for control, each in check.controls.items()}
    assert alone == {name: False, other: True}
    verdict, *table, wrong, right, hint = str(check).splitlines()
    assert table[0].split() == ["step", "h", "remainder", "rate"]
    assert len(table) == 2 + len(check.steps)
    assert verdict.startswith("NOT verified")
    assert wrong.startswith(f"wrong in '{name}'")
    assert right == f"right in '{other}'"
    assert "ckio check MODEL" in hint
    assert check.summary() == "; ".join((verdict, wrong, right, hint))


def test_halvings_take_two_runs_each_and_controls_are_checked_alone_only_where_it_is_wrong():
    def runs(gradient, **options):
        made = []
        check = check_gradient(lambda: made.append(1) or maker()(), STEPS, gradient, **options)
        return len(made), list(check.controls)

    gradient = gradient_of(maker())
    right, controls = runs(gradient)
    assert (right, controls) == (2 + 2 * 6, [])
    assert runs(gradient, halvings=7)[0] == runs(gradient, halvings=3)[0] + 2 * 4
    gradient["x"] = gradient["x"] * 2
    assert runs(gradient) == (right + 2 * 2 * 6, ["rate", "x"])


def test_a_gradient_that_is_not_finite_is_told_as_such():
    make = maker()
    gradient = gradient_of(make)
    gradient["rate"][1] = math.nan
    check = check_gradient(make, STEPS, gradient)
    assert "gradient along the direction is nan" in check.summary()
    assert check.controls["x"].verified


@pytest.mark.parametrize(
    ("make", "name", "change"),
    [
        (maker(Linear), "x", lambda array: array * (1 + 1e-6)),  # nothing but rounding is left
        (maker(dtype=np.float32), "rate", lambda array: array * 1.5),
    ],
    ids=["linear", "single precision"],
)
def test_gradients_are_checked_as_far_as_rounding_lets_them(make, name, change):
    gradient = gradient_of(make)
    assert check_gradient(make, STEPS, gradient).verified
    gradient[name][1:2] = change(gradient[name][1:2])
    assert not check_gradient(make, STEPS, gradient).verified


def test_nothing_is_verified_of_a_functional_that_does_not_change():
    gradient = gradient_of(maker(Constant))
    check = check_gradient(maker(Constant), STEPS, gradient)
    assert not check.verified
    assert "the check is inconclusive" in check.summary()
    gradient["x"][1] = 1e-9
    assert not check_gradient(maker(Constant), STEPS, gradient).verified


def test_rounding_that_chaos_amplifies_does_not_hide_a_right_gradient():
    make = maker(rate=2.9)  # chaotic: errors grow a hundred thousand times
    gradient = gradient_of(make)
    for seed in range(5):
        assert check_gradient(make, STEPS, gradient, seed=seed, halvings=26).verified, seed


def test_a_control_without_elements_is_right():
    def make():
        x, none = np.array([0.1, 0.3]), np.zeros((2, 0))
        return Logistic({"x": x, "J": 0.0}, control={"x": x, "rate": 0.3 * x, "none": none})

    assert check_gradient(make, STEPS, gradient_of(make)).verified


def test_a_gradient_that_does_not_fit_is_refused():
    make = maker()
    gradient = gradient_of(make)
    with pytest.raises(BadInput, match="no 'rate'"):
        check_gradient(make, STEPS, {"x": gradient["x"]})
    with pytest.raises(BadInput, match=r"no 'x' of shape \(4,\)"):
        check_gradient(make, STEPS, gradient | {"x": np.zeros(3)})
    with pytest.raises(BadInput, match="a Logistic does not make models; give a class"):
        check_gradient(make(), STEPS, gradient)
    with pytest.raises(BadInput, match="the gradient is a Logistic; give a dict"):
        check_gradient(make, STEPS, make())
    with pytest.raises(BadInput, match="halvings = 2"):
        check_gradient(make, STEPS, gradient, halvings=2)
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
    return steps, gradient_of(lambda: Burgers(**options), steps)


def test_each_model_runs_to_its_own_end_where_the_steps_are_not_given():
    def make():
        number = len(reached)
        reached.append(0)
        model = Burgers(**options)
        model.on_step = lambda step: reached.__setitem__(number, step)
        return model

    times = [0.0]
    model = Burgers(grid=50)
    model.on_step = lambda _: times.append(float(model._state["t"]))
    last = model.advance(0, 10**6) - 2
    taken = set()
    for part in (1e-4, 1 - 1e-4):  # of what the last step could be: a step more or less is near
        options = {"grid": 50, "time": times[last] + part * (times[last + 1] - times[last])}
        steps, gradient = burgers_gradient(**options)
        reached = []
        found = check_gradient(make, None, gradient)  # J has a kink within the smallest h
        assert found.verdict == "inconclusive"
        assert check_gradient(make, None, gradient, halvings=12).verified
        assert steps in reached
        taken |= {step - steps for step in reached[1:]}  # the first only shows its controls
    assert taken & {-1, 1}
    for name in ("u", "viscosity"):
        steps, gradient = burgers_gradient(grid=40)
        gradient[name] *= 1.01
        assert not check_gradient(lambda: Burgers(grid=40), None, gradient).verified


@pytest.mark.parametrize("end", [1, 63, 64, 65, 128])
def test_a_model_that_ends_where_it_is_asked_to_pause_is_run_to_its_end(end):
    class Short(Logistic):
        def finished(self, state, i):
            return i == end

    make = maker(Short)
    gradient = gradient_of(make, end)
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


class Coarse(ArrayModel):
    """u' = u (1 + a k), J = Σ u², and a control `free` on which J does not depend."""

    def __init__(
        self, state, control, functional, *, amplitude=0.3, wrong=1.0, at=None, initial=False
    ):
        self.amplitude, self.wrong, self.at = amplitude, wrong, at
        u = np.linspace(0.5, 1.5, 8).astype(state)
        k = 0.5 if control is float else np.full(8, 0.5, control)
        super().__init__(
            {"u": u, "J": np.zeros((), functional)},
            control={"k": k, "free": np.ones(3, state)} | ({"u": u} if initial else {}),
            tape=["u"],
        )

    def step(self, state, i):
        u = state["u"]
        u *= (1 + self.amplitude * self.control["k"]).astype(u.dtype)
        state["J"] += (u.astype(np.float64) ** 2).sum().astype(state["J"].dtype)

    def adjoint_step(self, adjoint, tape, i):
        u, bar = tape["u"], adjoint["u"]
        factor = (1 + self.amplitude * self.control["k"]).astype(u.dtype)
        bar += 2 * u * factor * adjoint["J"]
        part = self.amplitude * u * bar * (self.wrong if self.at in (None, i) else 1.0)
        self.gradient["k"] += part if self.gradient["k"].ndim else part.sum()
        bar *= factor


@pytest.mark.parametrize(
    "dtypes",
    [
        (np.float32, np.float64, np.float64),
        (np.float64, np.float64, np.float32),
        (np.float32, float, np.float32),
        (np.float16, np.float32, np.float32),
        (np.float16, np.float16, np.float32),
    ],
)
def test_rounding_is_that_of_the_coarsest_dtype(dtypes):
    error = 0.3 if np.float16 in dtypes else 1e-3
    for seed in range(5):
        make = partial(Coarse, *dtypes)
        check = check_gradient(make, 6, gradient_of(make, 6), seed=seed)
        assert check.verified, check.summary()
        for factor in (1 + error, 1 - error):
            wrong = partial(Coarse, *dtypes, wrong=factor)
            assert not check_gradient(wrong, 6, gradient_of(wrong, 6), seed=seed).verified


def test_no_random_wrong_gradient_is_verified():
    random, right, found = np.random.default_rng(1), 0, set()
    for number in range(60):
        dtype, error = (np.float32, np.float64)[number % 2], 10 ** random.uniform(-3, 0)
        options = {"amplitude": 10 ** random.uniform(-10, 0)}
        if number % 3:
            options |= {"wrong": 1 - error, "at": random.integers(10) if number % 3 == 1 else None}
        make = partial(Coarse, dtype, dtype, dtype, **options)
        check = check_gradient(make, 10, gradient_of(make, 10), seed=number)
        if number % 3:
            assert not check.verified, (dtype, options, check.summary())
            found.add(check.verdict)
        else:
            assert check.verdict != "wrong", (dtype, options, check.summary())
            right += check.verified
    assert found == {"wrong", "inconclusive"}
    assert right >= 8


@pytest.mark.parametrize("size", [1e-6, 1.0, 1e6])
def test_each_control_has_a_verdict_however_small_its_part(size):
    class Two(ArrayModel):
        """J = (x + 1e-6 y²)², so that the part of y in the slope is tiny."""

        def __init__(self):
            x, y = np.full(3, 1.0), np.full(2, size)
            super().__init__({"x": x, "J": 0.0}, control={"x": x, "y": y, "free": np.ones(2)})

        def step(self, state, i):
            state["J"] += (
                state["x"].sum() + 1e-6 * self.control["y"] @ self.control["y"] / size**2
            ) ** 2

        def adjoint_step(self, adjoint, tape, i): ...

    y = np.full(2, size)
    total = 2 * (3 + 2e-6)
    gradient = {"x": np.full(3, total), "y": total * 2e-6 * y / size**2, "free": np.zeros(2)}
    check = check_gradient(Two, 1, gradient)
    assert check.verified, check.summary()
    assert list(check.controls) == ["free"]
    assert "right in 'free': the gradient is 0, and J does not depend on it" in check.summary()
    for factor in (0.0, -1.0, 1.001, 1e6):
        wrong = gradient | {"y": gradient["y"] * factor}
        check = check_gradient(Two, 1, wrong)
        verdicts = {name: each.verdict for name, each in check.controls.items()}
        assert (check.verdict, verdicts["y"], verdicts["free"]) == ("wrong", "wrong", "verified")
    check = check_gradient(Two, 1, gradient | {"free": np.array([1e-9, 0])})
    assert not check.verified


def test_a_gradient_of_zero_is_not_verified_if_rounding_hides_that_j_depends_on_the_control():
    for amplitude in (1e-6, 1e-10):
        single = partial(Coarse, np.float32, np.float32, np.float32, initial=True)
        make = partial(single, amplitude=amplitude, wrong=0.0)
        check = check_gradient(make, 6, gradient_of(make, 6))
        found = {name: each.verdict for name, each in check.controls.items()}
        assert found == {"k": "inconclusive", "free": "verified"}
        assert not check.verified


def test_many_controls_are_checked_together_and_those_that_are_left_as_a_group():
    names = [f"c{number}" for number in range(12)]

    class Many(ArrayModel):
        def __init__(self):
            super().__init__({"J": 0.0}, control=dict.fromkeys(names, 1.0))

        def step(self, state, i):
            state["J"] += sum(float(self.control[n]) ** (k + 1) for k, n in enumerate(names))

        def adjoint_step(self, adjoint, tape, i): ...

    gradient = {name: np.array(number + 1.0) for number, name in enumerate(names)}
    check = check_gradient(Many, 1, gradient)
    assert (check.verified, dict(check.controls)) == (True, {})
    check = check_gradient(Many, 1, gradient | {"c11": np.array(12.1)})
    assert check.verdict == "wrong"
    wrong = [name for name, each in check.controls.items() if each.verdict == "wrong"]
    assert (len(wrong), "c11" in wrong) == (4, True)
    assert "and 3 more: remainder rates" in check.summary()


def test_the_gradient_of_a_complex_control_is_the_direction_of_steepest_ascent():
    class Complex(ArrayModel):
        """J = Σ Re(w z²), whose steepest ascent is conj(2 w z)."""

        w = np.array([1 + 2j, 0.5 - 1j])

        def __init__(self):
            super().__init__({"J": 0.0}, control={"z": np.array([1 + 0.5j, -0.3 + 1j])})

        def step(self, state, i):
            state["J"] += (self.w * self.control["z"] ** 2).sum().real

        def adjoint_step(self, adjoint, tape, i): ...

    ascent = np.conj(2 * Complex.w * Complex().control["z"])
    assert check_gradient(Complex, 1, {"z": ascent}).verified
    assert not check_gradient(Complex, 1, {"z": np.conj(ascent)}).verified
    assert not check_gradient(Complex, 1, {"z": ascent * 1.001}).verified


def test_where_a_control_is_nan_it_is_not_changed_and_its_gradient_is_not_tested():
    class Sea(ArrayModel):
        def __init__(self):
            super().__init__({"J": 0.0}, control={"u": np.array([0.2, np.nan, 0.5])})

        def step(self, state, i):
            state["J"] += np.nansum(self.control["u"] ** 2)

        def adjoint_step(self, adjoint, tape, i): ...

    for land in (0.0, math.nan):
        assert check_gradient(Sea, 1, {"u": np.array([0.4, land, 1.0])}).verified
        assert not check_gradient(Sea, 1, {"u": np.array([0.4, land, 1.01])}).verified
