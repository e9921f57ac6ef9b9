"""Models that are hard to see through: views, odd types, parity, chance, hidden state, NaN."""

from collections.abc import Callable
from typing import Any
from warnings import catch_warnings, simplefilter

import numpy as np
import pytest

from ckio.actions.variables import Flow, Step
from ckio.analysis.guarded import Guarded
from ckio.analysis.recorded import FILLS, digest, equal, observe, poison
from ckio.errors import RunFailed
from ckio.model.arraymodel import ArrayModel
from ckio.testing import restore, save, x

STEPS = 12
NO_FUNCTION = r"{}.*: its results have to be a function .* stores data between"
USES = r"step {} uses {}, which is not declared \(use\)"

Does = Callable[[ArrayModel, Any, int], object]


def made(does: Does, flow: Flow, start: Any = None, **more: Any) -> ArrayModel:
    """A model of u, v and J, and more, whose steps do this; its adjoint reads nothing."""

    class Own(ArrayModel):
        def step(self, state, i):
            does(self, state, i)

        def start(self, state):
            super().start(state)
            if start is not None:
                start(self, state)

        def adjoint_step(self, adjoint, tape, i):
            adjoint["u"] += adjoint["J"]

    state = {"u": np.linspace(1, 2, 5), "v": np.linspace(3, 4, 5), "J": 0.0, **more}
    return Own(state, control={"u": state["u"]}, tape=[], flow=Step(flow), seed=["J"])


def guard(model: ArrayModel, steps: int = STEPS) -> None:
    """Go there, and once more from the start, and read what was stored at the end."""
    guarded = Guarded(model, model.variables)
    first = save(guarded, x(0))
    guarded.advance(0, steps)
    last = save(guarded, x(steps))
    restore(guarded, x(0), first)
    guarded.advance(0, steps)
    assert save(guarded, x(steps)) == last
    restore(guarded, x(steps), last)


U, EVERY = ("u",), ("u", "v", "J")

# --- memory that is shared


def keeps_v(model, state):
    model.kept = state["v"]


def test_a_view_that_the_model_keeps_of_its_state_is_found():
    def reads(model, state, i):
        state["u"] += model.kept
        state["v"] *= 1.01

    def writes(model, state, i):
        state["u"] += state["v"]
        model.kept *= 1.01

    def takes(model, state, i):
        model.kept = getattr(model, "kept", state["v"])
        reads(model, state, i)

    flow = Flow(EVERY, EVERY)
    for does, start in ((reads, keeps_v), (takes, None)):
        with pytest.raises(RunFailed, match=NO_FUNCTION.format("step 0.* u")):
            guard(made(does, flow, start))
    with pytest.raises(RunFailed, match=NO_FUNCTION.format("step 0.* v")):
        guard(made(writes, flow, start=keeps_v))
    with pytest.raises(RunFailed, match="step 0 overwrites v"):
        guard(made(writes, Flow(EVERY, ("u", "J")), start=keeps_v))


def test_writes_are_seen_however_they_are_written():
    def fancy(model, state, i):
        state["v"][[0, 3]] = state["u"][[1, 2]]

    def masked(model, state, i):
        state["v"][state["u"] > 1.2] = 7.0 + i

    def iterated(model, state, i):
        with np.nditer([state["u"], state["v"]], op_flags=[["readonly"], ["readwrite"]]) as both:
            for one, other in both:
                other[...] = 2 * one + i

    def into(model, state, i):
        np.multiply(state["u"], 3.0 + i, out=state["v"])

    def through(model, state, i):
        state["v"].reshape(5, 1).T[0, 1:3].fill(i)

    for does, whole in ((fancy, 0), (masked, 0), (iterated, 1), (into, 1), (through, 0)):
        with pytest.raises(RunFailed, match="step 0 overwrites v"):
            guard(made(does, Flow(U, U)))
        guard(made(does, Flow(U, ("u", "v"))))
        if whole:
            guard(made(does, Flow(U, ("u", "v"), ["v"])))
        else:
            with pytest.raises(RunFailed, match=r"overwrite all of v \(kill\)"):
                guard(made(does, Flow(U, ("u", "v"), ["v"])))


# --- arrays of any kind

PADDED = np.dtype([("one", "i1"), ("other", "f8")], align=True)


def padded() -> np.ndarray:
    array = np.zeros(3, PADDED)
    array.view(np.uint8)[...] = 7
    array["other"] = 2.0
    return array


KINDS: dict[str, tuple[np.ndarray, Does]] = {
    "number": (np.array(0.1), lambda m, s, i: (s["u"].__imul__(s["w"]), s["w"].__iadd__(1))),
    "counter": (np.array(0), lambda m, s, i: (s["u"].__iadd__(s["w"]), s["w"].__iadd__(1))),
    "unsigned": (
        np.array(3, np.uint64),
        lambda m, s, i: [s["u"].__iadd__(1) for _ in range(int(s["w"]))],
    ),
    "flag": (
        np.array(True),
        lambda m, s, i: (
            s["u"].__iadd__(1 if s["w"] else 2),
            np.logical_not(s["w"], out=s["w"]),
        ),
    ),
    "imaginary part": (
        np.ones(5, complex),
        lambda m, s, i: (s["u"].__iadd__(s["w"].imag), s["w"].__imul__(np.exp(0.1j))),
    ),
    "structured": (
        padded(),
        lambda m, s, i: (s["w"]["other"].__iadd__(1.5), s["u"].__iadd__(s["w"]["one"][0])),
    ),
    "long": (
        np.full(5, 1.1, np.longdouble),
        lambda m, s, i: (s["u"].__iadd__(s["w"]), s["w"].__imul__(np.longdouble(1.1))),
    ),
    "text": (
        np.array(["a", "bc"]),
        lambda m, s, i: s["u"].__iadd__(len(s["w"][0])) if s["w"][0] == "a" else None,
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_arrays_of_every_kind_are_looked_at(kind):
    content, does = KINDS[kind]
    guard(made(does, Flow(("u", "w"), ("u", "w")), w=content))
    with pytest.raises(RunFailed, match=USES.format(0, "w")):
        guard(made(does, Flow(U, ("u", "w")), w=content))


def test_empty_arrays_are_nothing_to_look_at():
    def does(model, state, i):
        state["u"] += state["w"].sum()
        state["w"][...] = i

    guard(made(does, Flow(U, ("u", "w"), ["w"]), w=np.zeros((0, 3))))


def test_what_is_the_same_has_the_same_digest_and_nothing_else_has():
    one, other = padded(), padded()
    other.view(np.uint8).reshape(3, -1)[:, 1:8] = 9  # between the numbers
    assert equal(one, other)
    assert digest(one) == digest(other)
    for fill in FILLS:
        poison(other := padded(), fill)
        assert not equal(one, other)
        assert digest(one) != digest(other)
    for kind in ("f2", "f4", "f8", "g", "c8", "c16"):
        zeros, nans = np.zeros(3, kind), np.array([0, np.nan, 0], kind)
        other = np.array([0, np.copysign(np.nan, -1), 0], kind)
        assert equal(nans, other)
        assert digest(nans) == digest(other)
        assert not equal(zeros, nans)
        assert not equal(zeros, -zeros)
        assert len({digest(zeros), digest(nans), digest(-zeros)}) == 3
    close = np.array([1, 1 + np.finfo(np.longdouble).eps], "g")
    assert not equal(close[:1], close[1:])
    assert digest(close[:1]) != digest(close[1:])


def test_a_program_that_counts_up_to_poison_comes_to_an_end():
    for kind in ("u1", "u4", "u8", "i8"):
        for fill in FILLS:
            array = np.array([0, 3], kind)
            poison(array, fill)
            assert (array != [0, 3]).all()
            assert (array <= 1003).all()


@pytest.mark.skipif(np.finfo("g").nmant != 63, reason="these numbers fill their bytes here")
def test_bytes_of_a_long_number_that_are_not_in_use_do_not_count():
    one, other = np.full(3, 1.1, "g"), np.full(3, 1.1, "g")
    other.view(np.uint8).reshape(3, -1)[:, 10:] = 9
    assert equal(one, other)
    assert digest(one) == digest(other)


def test_content_that_is_not_real_warns_of_nothing():
    def does(model, state, i):
        state["v"].astype(int)
        state["v"][...] = state["u"]
        state["u"] += 1

    with catch_warnings(record=True) as warned:
        simplefilter("always")
        guard(made(does, Flow(U, ("u", "v"), ["v"])))
    assert warned == []


# --- steps that are not all alike


SOME_STEPS = (0, 2), (1, 2), (2, 3), (3, 4), (5, 6), (6, 7)
"""Of so many steps, this one."""


def test_what_some_steps_use_is_found_in_the_first_of_them():
    for at, of in SOME_STEPS:

        def does(model, state, i, at=at, of=of):
            if i % of == at:
                state["u"] += state["v"]
            state["v"] *= 1.1
            state["u"] += 1

        with pytest.raises(RunFailed, match=USES.format(at, "v")):
            guard(made(does, Flow(U, ("u", "v"))))
        guard(made(does, Flow(("u", "v"), ("u", "v"))))


def test_observation_looks_at_steps_of_every_kind():
    for at, of in [(at, of) for of in (2, 3, 4) for at in range(of)]:  # noqa: B020

        def does(model, state, i, at=at, of=of):
            if i % of == at:
                state["u"] += state["v"]

        observed = observe(lambda does=does: made(does, Flow(EVERY, EVERY)), steps=8)
        assert "v" in observed.steps.forward.use


def test_a_threshold_that_real_content_never_comes_to_is_found():
    def does(model, state, i):
        state["u"] += state["v"].max() > 1e3
        state["v"] *= 1.0

    with pytest.raises(RunFailed, match=USES.format(0, "v")):
        guard(made(does, Flow(U, ("u", "v"))))


# --- steps that are no functions of the state


def test_chance_is_found_also_where_all_is_declared():
    random = np.random.default_rng(0)

    def always(model, state, i):
        state["u"] += random.random(5)

    def once(model, state, i):
        state["u"] += random.random(5) if i == 9 else 0

    flow = Flow(EVERY, EVERY)
    with pytest.raises(RunFailed, match=NO_FUNCTION.format("step 0, run once more")):
        guard(made(always, flow))
    with pytest.raises(RunFailed, match=NO_FUNCTION.format("step 9, run once more")):
        guard(made(once, flow))


def test_chance_that_comes_from_the_number_of_the_step_is_none():
    def does(model, state, i):
        state["u"] += np.random.default_rng(i).random(5)

    guard(made(does, Flow(U, U)))


def test_what_a_step_leaves_for_the_next_one_outside_of_the_state_is_found():
    def always(model, state, i):
        state["u"] += getattr(model, "was", 0)
        model.was = float(state["u"][0])

    def once(model, state, i):
        state["u"] += getattr(model, "was", 0)
        model.was = i == 8

    flow = Flow(EVERY, EVERY)
    with pytest.raises(RunFailed, match=NO_FUNCTION.format("step 0, run once more")):
        guard(made(always, flow))
    with pytest.raises(RunFailed, match=NO_FUNCTION.format("step 8, run once more")):
        guard(made(once, flow))


def test_work_memory_of_the_model_is_none_of_the_state():
    def does(model, state, i):
        work = model.__dict__.setdefault("work", np.empty(5))
        np.multiply(state["v"], 0.1, out=work)
        state["u"] += work

    guard(made(does, Flow(("u", "v"), U)))


def test_a_model_that_fails_says_so_itself():
    def does(model, state, i):
        if i == 4:
            raise ZeroDivisionError("no wind")
        state["u"] += 1

    with pytest.raises(ZeroDivisionError, match="no wind"):
        guard(made(does, Flow(U, ("u", "v"))))


# --- NaN that belongs there


def land(model, state, i):
    state["u"] += 0.1 * state["v"]
    state["v"] *= -1
    state["w"][...] = state["u"] - state["v"]
    state["J"] += np.nansum(state["u"])


@pytest.mark.filterwarnings("error")
def test_nan_on_land_is_content_like_any_other():
    sea = np.linspace(1, 2, 1001)
    sea[::3] = np.nan
    more = {"u": sea, "v": -sea, "w": sea}
    out = (*EVERY, "w")
    guard(made(land, Flow(EVERY, out, ["w"]), **more))
    with pytest.raises(RunFailed, match=USES.format(0, "v")):
        guard(made(land, Flow(("u", "J"), out, ["w"]), **more))
    with pytest.raises(RunFailed, match=USES.format(0, "u")):
        guard(made(land, Flow(("v", "J"), out, ["w"]), **more))


def test_an_array_that_is_all_nan_is_looked_at_too():
    nowhere = np.full(5, np.nan)
    with pytest.raises(RunFailed, match=USES.format(0, "v")):
        guard(made(land, Flow(("u", "J"), (*EVERY, "w"), ["w"]), v=nowhere, w=nowhere))
    guard(made(land, Flow(EVERY, (*EVERY, "w"), ["w"]), v=nowhere, w=nowhere))


def test_a_nan_is_a_nan_wherever_in_memory_it_is_added():
    """Which sign the sum of two of them has is different in the last few elements of an array."""
    plus, minus = np.full(1001, np.nan), np.full(1001, np.copysign(np.nan, -1))
    for n in range(1, 70):
        sums = plus[:n] + minus[:n]
        assert equal(sums, plus[:n])
        assert digest(sums) == digest(plus[:n])
