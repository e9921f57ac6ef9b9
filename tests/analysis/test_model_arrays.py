"""What checkpoints of a model have to hold is found by one call; `ckio analyze` prints it."""

import numpy as np
import pytest

from ckio.actions.variables import Flow, Step
from ckio.analysis import analyze
from ckio.analysis.model_arrays import declaration, uses
from ckio.errors import BadInput
from ckio.model.arraymodel import ArrayModel


class Decay(ArrayModel):
    """x decays at a rate; `work` is of no use between steps."""

    def step(self, state, i):
        np.multiply(state["x"], state["rate"], out=state["work"])
        state["J"] += (state["x"] ** 2).sum()
        state["x"] -= state["work"]

    def adjoint_step(self, adjoint, tape, i):
        adjoint["rate"] -= tape["x"] * adjoint["x"]
        adjoint["x"] *= 1 - tape["rate"]
        adjoint["x"] += 2 * tape["x"] * adjoint["J"]


def decay(**declared):
    x = np.linspace(0.1, 0.4, 16)
    state = {"x": x, "rate": x, "work": np.zeros(16), "J": 0.0}
    return Decay(state, control={"x": x, "rate": x}, **declared)


def test_a_model_that_declares_nothing_is_observed_and_told_what_to_declare():
    arrays = analyze(decay, steps=2)
    assert (arrays.declared, arrays.watched, arrays.contradictions()) == (None, 2, ())
    assert {use.name: use.why for use in uses(arrays, None)} == {
        "x": "always",
        "rate": "in place",
        "work": "dead",
        "J": "always",
    }
    assert arrays.whole["restart"] == 3 * 16 * 8 + 8
    assert arrays.needed["restart"] == 16 * 8 + 8
    # Declared with just that, it needs the same, and nothing is to be said of it.
    arguments = eval(f"dict({declaration(arrays)})", {"Flow": Flow, "Step": Step, "dict": dict})
    declared = analyze(lambda: decay(**arguments))
    assert (declared.needed, declared.contradictions()) == (arrays.needed, ())


def test_what_is_declared_and_wrong_is_said_with_its_name():
    record = Flow({"x", "rate"}, {"x", "work", "J"}, {"work"})
    flow = Step(Flow({"x", "J"}, {"x", "work", "J"}, {"work"}), record=record)
    (wrong,) = analyze(lambda: decay(flow=flow, tape=["x", "rate"])).contradictions()
    assert "rate" in wrong


def test_of_another_kind_of_model_nothing_can_be_known():
    with pytest.raises(BadInput, match="the model: its steps cannot be observed"):
        analyze(object)
