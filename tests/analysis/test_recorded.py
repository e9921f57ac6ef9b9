"""What steps do to their arrays is found by doing them."""

from itertools import product
from random import Random

import numpy as np
import pytest
from example_models.ocean import Ocean

from ckio.actions.variables import Flow, Step, Variables
from ckio.analysis.recorded import (
    FILLS,
    NAN,
    contradictions,
    equal,
    flow_of,
    observe,
    poison,
    unneeded,
)
from ckio.errors import BadInput, RunFailed
from ckio.model.arraymodel import ArrayModel
from ckio.model.arrays import Arrays
from ckio.models.vorticity import Vorticity

from .random_models import maker, random_program

# --- other content


KINDS = ["f8", "f4", "f2", "c16", "i1", "u1", "i8", "u8", "?", "U3", "S5", "M8[s]", "i4,f8"]


def test_poison_is_other_content_for_every_type():
    for fill, kind, shape in product(FILLS, KINDS, ((), (1,), (3, 2), (0,))):
        array = np.zeros(shape, kind)
        before = array.copy()
        poison(array, fill)
        assert equal(array, before) == (array.size == 0), kind


def test_poison_that_is_not_nan_is_finite_and_about_as_large():
    for fill in FILLS:
        array = np.array([1e-8, -3e-8, np.nan])
        poison(array, fill)
        assert np.isnan(array).all() if fill == NAN else np.isfinite(array).all()
    poison(array := np.array([2.0, -1.0]), 1)
    assert (abs(array) > 0.5).all()
    assert (abs(array) < 2).all()


# --- steps of anybody


def adams_bashforth(state, i):
    """`diag` is used by nobody."""
    now = -state["c"] * state["u"] ** 2
    state["u"] += 0.01 * (23 * now - 16 * state["F_1"] + 5 * state["F_2"]) / 12
    state["F_2"][:] = state["F_1"]
    state["F_1"][:] = now
    state["diag"][:] = now
    if i == 1:
        state["rare"][0] = state["seldom"][0]
    return state


def fresh() -> dict[str, np.ndarray]:
    names = ("u", "F_1", "F_2", "c", "diag", "rare", "seldom", "never")
    return {name: np.linspace(1, 2, 4) + k for k, name in enumerate(names)}


def test_doing_it_again_says_exactly_what_depends_on_what():
    arrays = fresh()
    flow = flow_of(lambda state: adams_bashforth(state, 0), arrays)
    # u goes into F_1; what was in diag is of no importance.
    out = {"u", "F_1", "F_2", "diag"}
    assert flow == Flow({"u", "F_1", "F_2", "c"}, out, {"F_1", "F_2", "diag"})
    assert all(equal(array, arrays[name]) for name, array in fresh().items())
    flow = flow_of(lambda state: adams_bashforth(state, 1), arrays)
    assert flow.use == {"u", "F_1", "F_2", "c", "seldom"}
    assert flow.out == out | {"rare"}


def test_what_writes_the_same_again_overwrites_nevertheless():
    def step(arrays: Arrays) -> Arrays:
        arrays["mask"][...] = 1.0
        return arrays

    assert flow_of(step, {"mask": np.ones(3)}) == Flow((), {"mask"}, {"mask"})


def test_what_nan_is_refused_for_but_nothing_depends_on_is_not_used():
    def step(arrays: Arrays) -> Arrays:
        if not all(np.isfinite(x).all() for x in arrays.values()):
            raise ValueError("not finite")
        arrays["u"] += arrays["v"]
        return arrays

    three = {name: np.ones(2) for name in "uvw"}
    assert flow_of(step, three) == Flow({"v"}, {"u"})


def test_what_fails_for_any_other_content_is_used():
    def step(arrays: Arrays) -> Arrays:
        if arrays["v"][0] != 1:
            raise ValueError
        return arrays

    assert flow_of(step, {"v": np.ones(2)}).use == {"v"}


def test_what_is_no_function_of_its_arrays_is_refused():
    random = np.random.default_rng(0)

    def step(arrays: Arrays) -> Arrays:
        arrays["u"] += random.standard_normal()
        return arrays

    with pytest.raises(RunFailed, match="another u"):
        flow_of(step, {"u": np.ones(2), "v": np.ones(2)})


# --- models


@pytest.mark.campaign
@pytest.mark.parametrize("seeds", [range(10), range(10, 500)], ids=str)
def test_a_random_model_does_what_was_put_into_it(seeds):
    for seed in seeds:
        program = random_program(Random(seed))
        observed = observe(maker(program))
        assert observed == program.variables(), f"seed {seed}"
        assert observed.nbytes == program.variables().nbytes
        assert contradictions(program.variables(), observed) == ()
        assert unneeded(program.variables(), observed) == ()


def test_the_cases_are_not_trivial():
    flows = [random_program(Random(seed)).flow() for seed in range(60)]
    assert len({(flow.use, flow.out, flow.kill) for flow in flows}) > 40
    assert sum(bool(flow.kill) for flow in flows) > 20
    assert sum(bool(flow.out - flow.kill - flow.use - {"J"}) for flow in flows) > 10


def test_vorticity_as_its_code_says():
    observed = observe(lambda: Vorticity(grid=8))
    fields = {"zeta", "psi", "F_1", "F_2"}
    flow = Flow(fields, {*fields, "J"})
    assert observed.steps == Step(flow, Flow({"zeta", "psi"}, flow.out))
    assert observed.tape == {"zeta", "psi"}
    assert observed.seed == {"zeta", "psi", "J"}
    assert observed.nbytes == {**dict.fromkeys(("zeta", "psi", "F_1", "F_2"), 8 * 9 * 9), "J": 8}


def test_of_all_that_a_naive_program_holds_little_is_needed():
    observed = observe(lambda: Ocean(grid=8))
    assert "zeta_prev" in observed.nbytes
    assert observed.live == {"zeta", "psi", "F_1", "F_2", "Q", "J"}
    assert observed.stored == {"zeta", "psi", "F_1", "F_2", "J"}
    assert observed.tape == {"zeta", "psi"}


class Counts(ArrayModel):
    """Ends by a count that its steps do not look at; looks at an array, but not at its content."""

    def __init__(self) -> None:
        state = {"u": np.ones(3), "left": np.array(4), "shape": np.zeros(3), "J": 0.0}
        super().__init__(state, control={"u": np.ones(3)}, tape=["u", "shape"])

    def finished(self, state, i):
        return bool(state["left"] <= 0)

    def step(self, state, i):
        state["u"] += np.ones(state["shape"].shape)
        state["left"] -= 1

    def adjoint_step(self, adjoint, tape, i):
        adjoint["u"] += tape["u"] * adjoint["J"]


def test_what_only_the_end_depends_on_is_used_also_where_a_step_is_recorded():
    observed = observe(Counts, steps=100)
    assert observed.steps.forward == Flow({"left"}, {"u", "left"})
    assert observed.steps.record.use == {"u", "left"}
    assert (observed.seed, observed.tape) == ({"J"}, {"u"})


def test_a_model_without_a_step_has_nothing_to_observe():
    class Over(Counts):
        def finished(self, state, i):
            return True

    with pytest.raises(RunFailed, match="finished at x_0"):
        observe(Over)
    with pytest.raises(BadInput, match="steps = 0"):
        observe(Counts, steps=0)


def test_each_difference_is_said_with_its_name(golden):
    nbytes = dict.fromkeys("abcdefg", 8)
    observed = Variables(
        {**nbytes, "g": 16, "h": 8},
        Step(Flow(set("ab"), set("bcd"), {"c"}), Flow({"a"}, set("bcd"))),
        seed={"b"},
        tape={"a"},
    )
    declared = Variables(
        nbytes,
        Step(Flow(set("be"), set("cdf"), {"d"}), Flow({"f"}, set("cdf"))),
        seed={"c"},
        tape={"f"},
    )
    wrong, too_much = contradictions(declared, observed), unneeded(declared, observed)
    assert len(wrong) == 8
    golden("differences.txt", "\n".join((*wrong, *too_much)) + "\n")
    assert contradictions(observed, observed) == unneeded(observed, observed) == ()
