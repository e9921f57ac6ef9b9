"""The friendly model keeps the promises of Model, whatever order of moves a schedule asks for."""

import copy
import pickle
import random
import tracemalloc
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_models import digest, reverse_all

from ckio.actions import Key, Kind
from ckio.actions.variables import Flow, Step
from ckio.errors import BadInput, RunFailed, UnsupportedKind
from ckio.model import ArrayModel, as_bytes
from ckio.testing import a, restore, save, t, x

N = 9


class Lynx(ArrayModel):
    """Hares x and lynxes y: x' = x + h x (rate - y), y' = y + h y (x - season), J = Σ x y."""

    def step(self, state, i):
        x, y, season = state["hares"], state["lynxes"], state["season"]
        state["J"] += (x * y).sum()
        born = 0.1 * x * (self.control["rate"] - y)
        y += 0.1 * y * (x - season)
        x += born
        state["month"] += 1
        season[...] = 1.0 + 0.25 * (state["month"] % 4)

    def adjoint_step(self, adjoint, tape, i):
        x, y, season = tape["hares"], tape["lynxes"], tape["season"]
        of_x, of_y = adjoint["hares"], adjoint["lynxes"]
        self.gradient["rate"] += 0.1 * x * of_x
        through_x = of_x * (1 + 0.1 * (self.control["rate"] - y)) + 0.1 * y * of_y
        of_y *= 1 + 0.1 * (x - season)
        of_y -= 0.1 * x * of_x
        of_x[...] = through_x
        of_x += y * adjoint["J"]
        of_y += x * adjoint["J"]


class Hunted(Lynx):
    """The same with J = Σ x y + (sum of the last hares)²."""

    def adjoint_seed(self, state, adjoint, n):
        total = state["hares"].sum()
        adjoint["hares"] += 2 * total
        return super().adjoint_seed(state, adjoint, n) + float(total) ** 2


def lynx(kind: type[Lynx] = Hunted, **options) -> Lynx:
    hares = options.pop("hares", np.array([1.5, 0.7, 1.1]))
    ones = np.ones(hares.shape)
    state = {"hares": hares, "lynxes": 0.9 * ones, "season": np.float32(ones), "month": 0, "J": 0.0}
    given = {
        "control": {"hares": hares, "rate": 1.1 * ones},
        "tape": ("hares", "lynxes", "season"),
        "units": {"hares": "kg", "J": "kg2"},
    }
    return kind(state, **given | options)


def store_all(n: int, make: Callable[[], ArrayModel] = lynx) -> ArrayModel:
    return reverse_all(make(), n)


class Walk:
    """A legal walk from x_0 to the gradient that goes back and forth at random."""

    def __init__(self, n: int, choose: random.Random) -> None:
        self.choose = choose
        self.model = lynx()
        self.stored = {x(0): save(self.model, x(0))}
        if self.often():
            self.model.advance(0, n)
        self.back(0, n)

    def often(self) -> bool:
        return self.choose.random() < 0.5

    def back(self, begin: int, end: int) -> None:
        """Bring the adjoint from `end` to `begin`; x_begin is stored."""
        restore(self.model, x(begin), self.stored[x(begin)])
        if end - begin > 1 and self.often():
            middle = self.choose.randrange(begin + 1, end)
            self.model.advance(begin, middle)
            self.stored[x(middle)] = save(self.model, x(middle))
            self.back(middle, end)
            if self.often():
                self.move_house(middle)
            self.back(begin, middle)
            return
        self.model.record(begin, end)
        if end == begin + 1 and self.often():
            tape = save(self.model, t(begin))
            self.wander(begin)
            self.model.record(begin, end)
            restore(self.model, t(begin), tape)
        while begin < end:
            self.wander(begin)
            middle = self.choose.randrange(begin, end)
            self.model.reverse(middle, end)
            end = middle

    def wander(self, begin: int) -> None:
        """Move the forward about, which is nothing to the tape and the adjoint."""
        restore(self.model, x(begin), self.stored[x(begin)])
        if self.often():
            self.model.advance(begin, begin + 1)
            restore(self.model, x(begin), self.stored[x(begin)])

    def move_house(self, step: int) -> None:
        """Go on with the adjoint in a new process."""
        adjoint = save(self.model, a(step))
        self.model = lynx()
        restore(self.model, a(step), adjoint)


@given(n=st.integers(1, 12), seed=st.integers(0, 10**6))
def test_any_legal_walk_gives_the_gradient_of_store_all_to_the_last_bit(n, seed):
    assert digest(Walk(n, random.Random(seed)).model) == digest(store_all(n))


def test_the_adjoint_starts_from_x_n_though_the_state_has_left_it():
    model = lynx()
    start = save(model, x(0))
    model.advance(0, N - 1)
    model.record(N - 1, N)
    last = save(model, t(N - 1))
    restore(model, x(0), start)
    value = model.functional
    model.record(0, N - 1)
    restore(model, t(N - 1), last)
    model.reverse(N - 1, N)
    restore(model, x(0), start)
    model.record(0, N - 1)
    model.reverse(0, N - 1)
    assert digest(model) == digest(store_all(N))
    assert model.functional == value


@pytest.mark.parametrize(
    ("spans", "message"),
    [
        ("A09 x R02 B02", "cannot start at step 2: the forward has reached step 9"),
        ("A09 x R02 dump", "cannot start at step 3"),
        # The gradient would be added to, from a cotangent that is another one, and nobody saw it.
        ("R09 B09 x R09 B09", "adjoint of this model is at step 0, not 9"),
        ("R09 B39 load R04 B34", "adjoint of this model is at step 3, not 4"),
        # An interrupted run, and the same model again: J and the gradient would be others.
        ("A02 R09", "state of this model is at step 2, not 0"),
    ],
)
def test_what_a_model_is_not_at_is_refused(spans, message):
    model, moves = lynx(), {"A": Lynx.advance, "R": Lynx.record, "B": Lynx.reverse}
    start = save(model, x(0))
    *before, last = spans.split()

    def do(word: str) -> None:
        nonlocal model
        match word:
            case "x":
                restore(model, x(0), start)
            case "dump":
                model.dump(a(3))
            case "load":
                cotangent, model = save(model, a(3)), lynx()
                restore(model, a(3), cotangent)
                restore(model, x(0), start)
            case _:
                moves[word[0]](model, int(word[1]), int(word[2]))

    for word in before:
        do(word)
    with pytest.raises(RunFailed, match=message):
        do(last)


def test_asking_for_the_functional_on_the_way_changes_nothing():
    model = lynx()
    values = [model.functional]
    for step in range(N):
        model.record(step, step + 1)
        values.append(model.functional)
    model.reverse(N - 1, N)
    value = model.functional
    plain = lynx()
    plain.record(0, N)
    plain.reverse(N - 1, N)
    assert save(model, a(N - 1)) == save(plain, a(N - 1))
    assert values[-1] == value
    assert len(set(values)) == N + 1


def test_a_dump_is_the_live_memory_and_not_a_copy():
    model = lynx()
    views = model.dump(x(0))
    before = [bytes(view) for view in views]
    model.advance(0, 1)
    assert [bytes(view) for view in views] == save(model, x(1)) != before


@pytest.mark.parametrize("key", [x(3), t(4), a(5)], ids=str)
def test_a_load_that_fails_leaves_the_model_as_it_was(key):
    model = lynx()
    start = save(model, x(0))
    model.record(0, 5)
    model.reverse(4, 5)
    restore(model, x(0), start)
    model.record(0, 5)
    before = [save(model, k) for k in (x(5), t(3), a(4))]
    half = [b"\xff" * view.nbytes for view in model.dump(key)][:-1]
    with pytest.raises(ValueError, match="argument 2 is shorter"):
        restore(model, key, half)
    assert [save(model, k) for k in (x(5), t(3), a(4))] == before


def test_loading_and_recording_again_allocate_no_arrays():
    model = lynx(Lynx, hares=np.ones(1 << 17))
    model.step = lambda state, i: None  # the steps of Lynx make temporary arrays; these are none
    start = save(model, x(0))
    model.record(0, 3)
    tape = save(model, t(1))
    tracemalloc.start()
    for _ in range(3):
        restore(model, x(0), start)
        model.record(0, 3)
        restore(model, t(1), tape)
        model.advance(3, 4)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1 << 17


def test_the_tape_holds_the_arrays_that_are_named_as_they_were_before_the_step():
    model = lynx(tape=["season", "hares", "season"])
    model.advance(0, 2)
    before = dict(zip(model.layout(x(2)), save(model, x(2)), strict=True))
    model.record(2, 4)
    fields = model.layout(t(2))
    assert [field.name for field in fields] == ["season", "hares"]
    assert save(model, t(2)) == [before[field] for field in fields]
    whole = lynx(tape=None)
    assert whole.layout(t(0)) == whole.layout(x(0))


def test_layouts_say_names_types_shapes_and_units_and_buffers_fit_them():
    model = lynx()
    model.advance(0, 3)
    model.record(3, 4)

    def listed(key):
        layout = model.layout(key)
        sizes = [np.dtype(f.dtype).itemsize * int(np.prod(f.shape)) for f in layout]
        assert [view.nbytes for view in model.dump(key)] == sizes
        return [(f.name, f.dtype, f.shape, f.unit) for f in layout]

    of_state = [
        ("hares", "<f8", (3,), "kg"),
        ("lynxes", "<f8", (3,), ""),
        ("season", "<f4", (3,), ""),
        ("month", "<i8", (), ""),
        ("J", "<f8", (), "kg2"),
    ]
    assert listed(x(4)) == of_state
    assert listed(t(3)) == of_state[:3]
    assert listed(a(4)) == [
        ("adjoint_hares", "<f8", (3,), "(kg2)/(kg)"),
        ("adjoint_lynxes", "<f8", (3,), "kg2"),
        ("adjoint_season", "<f4", (3,), "kg2"),
        ("adjoint_J", "<f8", (), "(kg2)/(kg2)"),
        ("gradient_hares", "<f8", (3,), "(kg2)/(kg)"),
        ("gradient_rate", "<f8", (3,), "kg2"),
        ("functional", "<f8", (), "kg2"),
    ]
    with pytest.raises(BadInput, match="x_2 does not fit this model"):
        model.load(x(2), model.layout(t(2)))
    with pytest.raises(UnsupportedKind, match=r"x_0\.hares"):
        model.dump(Key(Kind.RESTART, 0, "hares"))


def test_controls_are_changed_before_the_first_move_and_belong_to_the_model():
    base, changed = lynx(), lynx()
    changed.control["hares"][...] *= 2
    changed.advance(0, 1)
    base.advance(0, 1)
    assert changed.functional != base.functional
    assert not np.shares_memory(base.control["hares"], lynx().control["hares"])


def test_each_step_of_either_sweep_is_reported_with_where_it_stands():
    seen: list[int] = []
    model = lynx()
    model.on_step = seen.append
    model.advance(0, 2)
    model.record(2, 4)
    model.reverse(2, 4)
    assert seen == [1, 2, 3, 4, 3, 2]


def test_a_program_may_end_by_itself():
    class Short(Lynx):
        def finished(self, state, i):
            return state["month"] == 5

    model = lynx(Short)
    assert model.advance(0, 3) == 3
    assert model.record(3, 10) == 5
    model.reverse(3, 5)
    restart = lynx(Short)
    assert restart.record(0, 10) == 5
    restart.reverse(3, 5)
    assert digest(model) == digest(restart)


def test_arrays_are_changed_in_place_only():
    control = lynx().control
    names = list(control)
    control["rate"] += 1.0
    for change in (
        lambda: control.__setitem__("rate", np.zeros(3)),
        lambda: control.update(hares=np.ones(3)),
        lambda: control.setdefault("foxes", np.ones(3)),
        lambda: control.pop("hares"),
        lambda: control.__ior__({"hares": np.ones(3)}),
        lambda: control.__delitem__("hares"),
        control.clear,
    ):
        with pytest.raises(TypeError, match="changed in place"):
            change()
    assert list(control) == names
    assert control["rate"].tolist() == [2.1] * 3
    with pytest.raises(KeyError, match=r"'foxes'.*hares, rate"):
        control["foxes"]


def test_arrays_can_be_copied_and_sent_to_another_process():
    gradient = store_all(N).gradient
    for other in (copy.deepcopy(gradient), pickle.loads(pickle.dumps(gradient))):
        assert {n: g.tobytes() for n, g in other.items()} == {
            n: g.tobytes() for n, g in gradient.items()
        }
        assert not np.shares_memory(other["rate"], gradient["rate"])


class Observed(ArrayModel):
    """x' = x / 2, observed before each step and at the end: J = weight Σ x_i² + x_n³."""

    weight = None

    def step(self, state, i):
        state["J"] += (state["x"] ** 2).sum()
        state["x"] *= 0.5

    def adjoint_step(self, adjoint, tape, i):
        adjoint["x"] *= 0.5
        adjoint["x"] += 2 * tape["x"] * adjoint["J"]

    def adjoint_seed(self, state, adjoint, n):
        adjoint["x"][...] = 3 * state["x"] ** 2
        if self.weight is not None:
            adjoint["J"][...] = self.weight
        return (state["x"] ** 3).sum()


@pytest.mark.parametrize("weight", [None, 1.0, 0.25, 0.0])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("sum_in", [np.float64, np.float32])
def test_observations_on_the_way_and_at_the_end_add_up(weight, dtype, sum_in):
    start = np.array([1.0, 3.0], dtype)
    kind = type("Weighted", (Observed,), {"weight": weight})
    model = kind({"x": start, "J": sum_in(0)}, control={"x": start})
    model.record(0, 2)
    model.reverse(0, 2)
    x = [start.astype(float) / 2**i for i in range(3)]  # all of these sums are exact
    factor = 1.0 if weight is None else weight
    assert model.functional == factor * ((x[0] ** 2).sum() + (x[1] ** 2).sum()) + (x[2] ** 3).sum()
    wanted = factor * (2 * x[0] + x[1]) + 3 * x[2] ** 2 / 4
    assert model.gradient["x"].tolist() == wanted.tolist()


def test_an_end_that_adds_the_sum_itself_is_refused():
    """In an earlier version adjoint_seed returned all of J; the sum must not count twice."""

    def adjoint_seed(self, state, adjoint, n):
        return float(state["J"]) + Observed.adjoint_seed(self, state, adjoint, n)

    kind = type("Twice", (Observed,), {"adjoint_seed": adjoint_seed})
    model = kind({"x": [1.0], "J": 0.0}, control={})
    model.advance(0, 2)
    with pytest.raises(RunFailed, match="return only the other terms of J"):
        _ = model.functional


def test_the_sum_is_read_at_the_end_whatever_the_seed_names():
    """With `seed`, J would otherwise count as an array that nobody reads, and be lost."""
    flow = Step(Flow({"x", "J"}, {"x", "J"}), record=Flow({"x"}, {"x", "J"}))
    model = Observed({"x": [1.0], "J": 0.0}, control={"x": [1.0]}, flow=flow, seed={"x"})
    assert [field.name for field in model.layout(x(1))] == ["x", "J"]
    other = Observed({"x": [1.0], "J": 0.0}, control={"x": [1.0]}, flow=flow, seed={"x"})
    model.advance(0, 1)
    restore(other, x(1), save(model, x(1)))
    other.advance(1, 2)
    assert other.functional == 1.0 + 0.25 + 0.25**3


@pytest.mark.parametrize(
    ("method", "returns", "message"),
    [
        ("step", lambda state, *_: {**state}, "a dict; it must change"),
        ("start", lambda state: {**state}, "a dict"),
        ("adjoint_step", lambda adjoint, *_: {**adjoint}, "a dict"),
        ("finished", lambda state, i: state["hares"] < 0, "an array.* True or False"),
        ("adjoint_seed", lambda state, *_: state["hares"], "an array"),
        ("adjoint_seed", lambda *_: None, "None; it must return a number"),
    ],
)
def test_answers_that_are_no_answers_are_told_with_the_method_that_gave_them(
    method, returns, message
):
    def answer(self, *arguments):
        return returns(*arguments)

    answer.__name__ = method
    kind = type("Odd", (Lynx,), {method: answer})
    with pytest.raises(RunFailed, match=f"{method} returned {message}"):
        _ = lynx(kind).functional if method == "adjoint_seed" else store_all(N, lambda: lynx(kind))


def test_a_model_without_the_constructor_of_its_base_says_so():
    class Forgetful(Lynx):
        def __init__(self):
            self.rate = 1.0

    model = Forgetful()
    for use in (lambda: model.advance(0, 1), lambda: model.functional, lambda: model.control):
        with pytest.raises(BadInput, match=r"Forgetful.__init__ has to call super\(\).__init__"):
            use()


def test_what_goes_wrong_in_a_step_says_in_which():
    class Breaking(Lynx):
        def step(self, state, i):
            if i == 4:
                raise ZeroDivisionError("no hares")
            super().step(state, i)

        def adjoint_step(self, adjoint, tape, i):
            adjoint["hares"] += np.ones(4)

    with pytest.raises(ZeroDivisionError, match="no hares") as forward:
        lynx(Breaking).advance(0, N)
    assert forward.value.__notes__ == ["(step 4)"]
    with pytest.raises(ValueError, match="broadcast") as back:
        store_all(3, lambda: lynx(Breaking))
    assert back.value.__notes__ == ["(adjoint of step 2)"]


@pytest.mark.parametrize(
    "hares",
    [
        np.asfortranarray([[1.5, 0.7], [1.1, 0.3], [0.4, 2.0]]),
        np.array([[1.5, 0, 0.7, 0], [1.1, 0, 0.3, 0], [0.4, 0, 2.0, 0]])[:, ::2],
    ],
    ids=["Fortran order", "with gaps"],
)
def test_arrays_come_in_any_order_and_are_kept_in_c_order(hares):
    model = store_all(N, lambda: lynx(hares=hares))
    assert digest(model) == digest(store_all(N, lambda: lynx(hares=hares.copy(order="C"))))
    array = np.frombuffer(save(lynx(hares=hares), x(0))[0]).reshape(model.layout(x(0))[0].shape)
    np.testing.assert_array_equal(array, hares)


@pytest.mark.parametrize(
    ("state", "options", "message"),
    [
        ({"x": [1.0]}, {"control": {}}, "needs one real number 'J'"),
        ({"x": [1.0], "J": 0}, {"control": {}}, "'J' in the state must be one real"),
        ({"x": [1.0], "J": [0.0, 0.0]}, {"control": {}}, "'J' in the state must be one"),
        ({"x": [1.0], "J": 0j}, {"control": {}}, "'J' in the state must be one real"),
        ({"J": 0.0}, {"control": {"n": 3}}, r"\['n'\] have no derivative"),
        ({"J": 0.0, "x": [1.0]}, {"control": {"x": [1.0, 2.0]}}, "must be the same"),
        (
            {"J": 0.0, "x": [1]},
            {"control": {"x": [1.5]}},
            "'x' is a control, and int64 in the state",
        ),
        ({"J": 0.0}, {"control": {}, "tape": ["x"]}, r"tape names \['x'\]"),
        ({"J": 0.0, "x": [1.0]}, {"control": {}, "tape": "x"}, r"tape = 'x' is text.*\['x'\]"),
        ({"J": 0.0, "x": [1.0]}, {"control": {}, "seed": "J"}, "seed = 'J' is text"),
        ({"J": 0.0, "x": [1.0]}, {"control": {}, "recompute": "x"}, "recompute = 'x' is text"),
        ({"J": 0.0, "x": [None]}, {"control": {}}, "have Python objects"),
    ],
)
def test_a_model_that_cannot_work_is_refused(state, options, message):
    with pytest.raises(BadInput, match=message):
        Lynx(state, **options)


def cube() -> np.ndarray:
    return np.arange(24.0).reshape(2, 3, 4)


@pytest.mark.parametrize(
    "array",
    [
        cube(),
        np.asfortranarray(cube()),
        np.array(3.5),
        np.empty((0, 3)),
        np.array(["2024-02-29"], "datetime64[D]"),
        cube()[1],
    ],
    ids=["C order", "Fortran order", "no dimensions", "no elements", "dates", "contiguous slice"],
)
def test_the_bytes_of_an_array_are_its_own_memory(array):
    view = as_bytes(array)
    assert view.nbytes == array.nbytes
    view[:] = bytes(array.nbytes)
    assert not array.view(np.int64).any()


def test_an_array_with_gaps_has_no_bytes_of_its_own():
    with pytest.raises(BadInput, match="contiguous"):
        as_bytes(cube()[:, ::2])
