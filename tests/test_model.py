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

from ckio.actions import Key, Kind
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


def lynx(kind: type[Lynx] = Hunted) -> Lynx:
    hares = np.array([1.5, 0.7, 1.1])
    return kind(
        {
            "hares": hares,
            "lynxes": np.array([0.4, 0.9, 1.2]),
            "season": np.ones(3, np.float32),
            "month": np.array(0),
            "J": 0.0,
        },
        control={"hares": hares, "rate": np.array([1.0, 1.1, 0.8])},
        tape=("hares", "lynxes", "season"),
        units={"hares": "kg", "J": "kg2"},
    )


def results(model: ArrayModel) -> tuple[object, ...]:
    return model.functional, *((name, g.tobytes()) for name, g in model.gradient.items())


def store_all(n: int, make: Callable[[], ArrayModel] = lynx) -> ArrayModel:
    model = make()
    assert model.record(0, n) == n
    model.reverse(0, n)
    return model


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
    assert results(Walk(n, random.Random(seed)).model) == results(store_all(n))


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
    assert results(model) == results(store_all(N))
    assert model.functional == value


def test_the_adjoint_cannot_start_before_the_end_is_reached():
    model = lynx()
    start = save(model, x(0))
    model.advance(0, N)
    restore(model, x(0), start)
    model.record(0, 2)
    with pytest.raises(RunFailed, match="cannot start at step 2: the forward has come to 9"):
        model.reverse(0, 2)
    with pytest.raises(RunFailed, match="cannot start at step 3"):
        model.dump(a(3))


def test_replaying_steps_does_not_count_the_functional_twice():
    model = lynx(Lynx)
    start = save(model, x(0))
    model.advance(0, N)
    once = model.functional
    restore(model, x(0), start)
    model.advance(0, N)
    assert model.functional == once


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


def test_an_adjoint_that_was_in_a_run_is_not_begun_again():
    """Its gradient would be added to, from a cotangent that is another one: wrong, and not seen."""
    model = lynx()
    start = save(model, x(0))
    model.record(0, N)
    model.reverse(0, N)
    restore(model, x(0), start)
    model.record(0, N)
    with pytest.raises(RunFailed, match=rf"the adjoint of this model is at step 0, not {N}; a run"):
        model.reverse(0, N)


def test_an_adjoint_that_was_read_goes_on_from_there():
    model = lynx()
    model.record(0, N)
    model.reverse(3, N)
    cotangent = save(model, a(3))
    other = lynx()
    other.record(0, 4)
    restore(other, a(3), cotangent)
    with pytest.raises(RunFailed, match="the adjoint of this model is at step 3, not 4; a run"):
        other.reverse(3, 4)
    other.reverse(0, 3)
    model.reverse(0, 3)
    assert save(other, a(0)) == save(model, a(0))


def test_a_state_that_was_in_a_part_of_a_run_is_not_taken_for_x_0():
    """An interrupted run, say, and the same model again: J and the gradient would be others."""
    model = lynx()
    model.advance(0, 2)
    with pytest.raises(RunFailed, match="the state of this model is at step 2, not 0; a run needs"):
        model.record(0, N)


def test_loading_and_recording_again_allocate_no_arrays():
    size = 1 << 17
    model = Lynx(
        {
            "hares": np.ones(size),
            "lynxes": np.ones(size),
            "season": np.ones(size),
            "month": 0,
            "J": 0.0,
        },
        control={"rate": 1.0},
    )
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
    assert peak < size


def test_the_tape_holds_the_arrays_that_are_named_as_they_were_before_the_step():
    model = lynx()
    model.advance(0, 2)
    before = dict(zip(model.layout(x(2)), save(model, x(2)), strict=True))
    model.record(2, 4)
    fields = model.layout(t(2))
    assert [field.name for field in fields] == ["hares", "lynxes", "season"]
    assert save(model, t(2)) == [before[field] for field in fields]


def test_by_default_the_tape_is_the_whole_state():
    model = Lynx(
        {"hares": [1.0], "lynxes": [1.0], "season": [1.0], "month": 0, "J": 0.0}, control={}
    )
    assert model.layout(t(0)) == model.layout(x(0))


def test_layouts_say_names_types_shapes_and_units():
    def listed(key):
        return [(f.name, f.dtype, f.shape, f.unit) for f in lynx().layout(key)]

    assert listed(x(0)) == [
        ("hares", "<f8", (3,), "kg"),
        ("lynxes", "<f8", (3,), ""),
        ("season", "<f4", (3,), ""),
        ("month", "<i8", (), ""),
        ("J", "<f8", (), "kg2"),
    ]
    assert listed(a(0)) == [
        ("adjoint_hares", "<f8", (3,), "(kg2)/(kg)"),
        ("adjoint_lynxes", "<f8", (3,), "kg2"),
        ("adjoint_season", "<f4", (3,), "kg2"),
        ("adjoint_J", "<f8", (), "(kg2)/(kg2)"),
        ("gradient_hares", "<f8", (3,), "(kg2)/(kg)"),
        ("gradient_rate", "<f8", (3,), "kg2"),
        ("functional", "<f8", (), "kg2"),
    ]


@pytest.mark.parametrize("key", [x(4), t(3), a(4)], ids=str)
def test_buffers_have_the_sizes_that_the_layout_says(key):
    model = lynx()
    model.advance(0, 3)
    model.record(3, 4)
    sizes = [np.dtype(f.dtype).itemsize * int(np.prod(f.shape)) for f in model.layout(key)]
    assert [view.nbytes for view in model.dump(key)] == sizes


def test_a_checkpoint_of_another_layout_is_refused_before_anything_is_read():
    model = lynx()
    with pytest.raises(BadInput, match="x_2 does not fit this model"):
        model.load(x(2), model.layout(t(2)))


def test_single_variables_are_not_stored_yet():
    with pytest.raises(UnsupportedKind, match=r"x_0\.hares"):
        lynx().dump(Key(Kind.RESTART, 0, "hares"))


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
    assert results(model) == results(restart)


def test_arrays_are_changed_in_place_only():
    model = lynx()
    model.control["rate"] += 1.0
    with pytest.raises(TypeError, match="changed in place"):
        model.control["rate"] = np.zeros(3)
    assert model.control["rate"].tolist() == [2.0, 2.1, 1.8]


@pytest.mark.parametrize(
    "change",
    [
        lambda arrays: arrays.update(hares=np.ones(3)),
        lambda arrays: arrays.setdefault("foxes", np.ones(3)),
        lambda arrays: arrays.pop("hares"),
        lambda arrays: arrays.__ior__({"hares": np.ones(3)}),
        lambda arrays: arrays.__delitem__("hares"),
        lambda arrays: arrays.clear(),
    ],
)
def test_no_array_is_exchanged_added_or_dropped(change):
    model = lynx()
    names = list(model.control)
    with pytest.raises(TypeError, match="changed in place"):
        change(model.control)
    assert list(model.control) == names


def test_an_array_that_is_not_there_is_named_with_those_that_are():
    with pytest.raises(KeyError, match="no array is called 'foxes' here; there are hares, rate"):
        lynx().control["foxes"]


def test_arrays_can_be_copied_and_sent_to_another_process():
    gradient = store_all(N).gradient
    for other in (copy.deepcopy(gradient), pickle.loads(pickle.dumps(gradient))):
        assert {n: g.tobytes() for n, g in other.items()} == {
            n: g.tobytes() for n, g in gradient.items()
        }
        assert not np.shares_memory(other["rate"], gradient["rate"])


def test_arrays_that_are_returned_and_not_written_to_are_noticed():
    class Functional(Lynx):
        def step(self, state, i):
            return {name: 2 * array for name, array in state.items()}

    class FunctionalAdjoint(Lynx):
        def adjoint_step(self, adjoint, tape, i):
            return dict(adjoint)

    with pytest.raises(RunFailed, match=r"Functional.step returned a dict; it must change"):
        lynx(Functional).advance(0, 1)

    class FunctionalStart(Lynx):
        def start(self, state):
            return {name: array + 1 for name, array in state.items()}

    with pytest.raises(RunFailed, match=r"FunctionalAdjoint.adjoint_step returned a dict"):
        store_all(N, lambda: lynx(FunctionalAdjoint))
    with pytest.raises(RunFailed, match=r"FunctionalStart.start returned a dict"):
        lynx(FunctionalStart).advance(0, 1)


def test_answers_that_are_no_answers_are_told_with_the_method_that_gave_them():
    class Scattered(Lynx):
        def finished(self, state, i):
            return state["hares"] < 0

        def adjoint_seed(self, state, adjoint, n):
            return state["hares"]

    class Silent(Lynx):
        def adjoint_seed(self, state, adjoint, n):
            adjoint["J"][...] = 1

    rule = "it must return True or False, whether the program ends at step 0"
    with pytest.raises(RunFailed, match=rf"Scattered.finished returned an array of .*; {rule}"):
        lynx(Scattered).advance(0, 1)
    with pytest.raises(RunFailed, match=r"Scattered.adjoint_seed returned an array of .* must re"):
        _ = lynx(Scattered).functional
    with pytest.raises(RunFailed, match=r"Silent.adjoint_seed returned None; it must return J, a"):
        _ = lynx(Silent).functional


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


def test_an_array_named_twice_is_on_the_tape_once():
    model = Lynx(
        {"hares": [1.0], "lynxes": [1.0], "season": [1.0], "month": 0, "J": 0.0},
        control={"rate": 1.0},
        tape=["season", "hares", "season"],
    )
    assert [field.name for field in model.layout(t(0))] == ["season", "hares"]
    model.record(0, 1)
    assert [view.nbytes for view in model.dump(t(0))] == [8, 8]


@pytest.mark.parametrize("lengths", [(1, 5, 3), (4, 2, 7)])
def test_tapes_of_any_length_follow_one_another(lengths):
    model, reference = lynx(), store_all(sum(lengths))
    starts = [sum(lengths[:k]) for k in range(len(lengths))]
    saved = []
    for begin, length in zip(starts, lengths, strict=True):
        saved.append(save(model, x(begin)))
        model.record(begin, begin + length)
    for begin, length, start in reversed(list(zip(starts, lengths, saved, strict=True))):
        restore(model, x(begin), start)
        model.record(begin, begin + length)
        model.reverse(begin, begin + length)
    assert results(model) == results(reference)


@pytest.mark.parametrize(
    "hares",
    [
        np.asfortranarray([[1.5, 0.7], [1.1, 0.3], [0.4, 2.0]]),
        np.array([[1.5, 0, 0.7, 0], [1.1, 0, 0.3, 0], [0.4, 0, 2.0, 0]])[:, ::2],
    ],
    ids=["Fortran order", "with gaps"],
)
def test_arrays_come_in_any_order_and_are_kept_in_c_order(hares):
    def make(hares):
        return Lynx(
            {
                "hares": hares,
                "lynxes": np.ones((3, 2)),
                "season": np.ones((3, 2)),
                "month": 0,
                "J": 0.0,
            },
            control={"hares": hares, "rate": np.ones((3, 2))},
        )

    model = store_all(N, lambda: make(hares))
    assert results(model) == results(store_all(N, lambda: make(hares.copy(order="C"))))
    field = model.layout(x(0))[0]
    array = np.frombuffer(save(make(hares), x(0))[0]).reshape(field.shape)
    np.testing.assert_array_equal(array, hares)


@pytest.mark.parametrize(
    ("state", "options", "message"),
    [
        ({"x": [1.0]}, {"control": {}}, "needs one real number 'J'"),
        ({"x": [1.0], "J": 0}, {"control": {}}, "needs one real number 'J'"),
        ({"x": [1.0], "J": [0.0, 0.0]}, {"control": {}}, "needs one real number 'J'"),
        ({"x": [1.0], "J": 0j}, {"control": {}}, "needs one real number 'J'"),
        ({"J": 0.0}, {"control": {"n": 3}}, r"\['n'\] have no derivative"),
        ({"J": 0.0, "x": [1.0]}, {"control": {"x": [1.0, 2.0]}}, "must be the same"),
        (
            {"J": 0.0, "x": [1]},
            {"control": {"x": [1.5]}},
            "'x' is a control, and int64 in the state",
        ),
        ({"J": 0.0}, {"control": {}, "tape": ["x"]}, r"tape names \['x'\]"),
        ({"J": 0.0, "x": [None]}, {"control": {}}, "hold objects"),
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
