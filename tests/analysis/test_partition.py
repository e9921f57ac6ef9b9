"""Steps declared by hand, in numpy: their two halves give the gradient, by the least tape."""

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ckio.analysis.dag import choose, solve
from ckio.analysis.partitioned import (
    Assignment,
    Partition,
    StraightLine,
    cost_of_tape,
    partition,
    weigh,
)
from ckio.errors import BadInput
from ckio.platform import Affine, Level
from ckio.platform.clock import VirtualClock

DT, GRAVITY, SIZE = 0.1, 1.5, 12

State = dict[str, Any]


def curvature(theta: Any) -> Any:
    return np.roll(theta, 1) - 2 * theta + np.roll(theta, -1)


def backward(values: Mapping[str, Any], cotangent: Mapping[str, Any]) -> State:
    of_omega = cotangent["omega"] + DT * cotangent["theta"] + cotangent["work"] * values["omega'"]
    return {
        "theta": cotangent["theta"]
        - DT * GRAVITY * values["cos"] * of_omega
        + curvature(DT * values["k"] * of_omega),
        "omega": of_omega,
        "work": cotangent["work"],
        "k": cotangent["k"] + DT * values["bend"] * of_omega,
    }


PENDULUMS = StraightLine(
    inputs=["theta", "omega", "work", "k"],
    assignments=[
        Assignment(["sin", "cos"], ["theta"], lambda theta: (np.sin(theta), np.cos(theta))),
        Assignment(["bend"], ["theta"], curvature),
        Assignment(
            ["omega'"],
            ["omega", "sin", "bend", "k"],
            lambda omega, sin, bend, k: omega + DT * (k * bend - GRAVITY * sin),
        ),
        Assignment(["theta'"], ["theta", "omega'"], lambda theta, omega: theta + DT * omega),
        Assignment(["work'"], ["work", "omega'"], lambda work, omega: work + omega**2 / 2),
    ],
    outputs={"theta": "theta'", "omega": "omega'", "work": "work'", "k": "k"},
    required=["cos", "bend", "omega'", "k"],
    backward=backward,
)
"""A ring of pendulums, each coupled to its neighbours by springs k, which no step overwrites."""


def start() -> State:
    random = np.random.default_rng(1)
    return {name: random.standard_normal(SIZE) for name in PENDULUMS.inputs}


WEIGHTS = np.linspace(1, 2, SIZE)


def functional(state: Mapping[str, Any]) -> float:
    return float(np.sum(WEIGHTS * (np.sin(state["theta"]) + state["work"])))


def gradient(halves: Partition, state: State, steps: int) -> State:
    tapes: list[State] = []
    for _ in range(steps):
        state, tape = halves.forward(state)
        tapes.append(tape)
    cotangent = {name: np.zeros(SIZE) for name in state}
    cotangent |= {"theta": WEIGHTS * np.cos(state["theta"]), "work": WEIGHTS}
    lost = {name: np.full(SIZE, np.nan) for name in state} | {"k": state["k"]}
    for tape in reversed(tapes):
        cotangent = halves.backward(tape, cotangent, lost)
    return cotangent


def level(seconds_per_byte: float, latency: float = 0.0) -> Level:
    return Level(name="disk", write=Affine(latency, seconds_per_byte))


@pytest.mark.parametrize("where", [None, level(0.0), level(1e-9), level(1.0, 5.0)])
def test_the_gradient_of_some_steps_is_that_of_finite_differences(where: Level | None) -> None:
    halves = partition(PENDULUMS, start(), where)
    found = gradient(halves, start(), steps=4)
    for name in PENDULUMS.inputs:
        for i in range(0, SIZE, 5):
            ends = []
            for change in (1e-5, -1e-5):
                state = start()
                state[name][i] += change
                for _ in range(4):
                    state, _ = halves.forward(state)
                ends.append(functional(state))
            assert found[name][i] == pytest.approx((ends[0] - ends[1]) / 2e-5, rel=1e-7, abs=1e-8)


def test_the_tape_has_as_few_bytes_as_can_be_and_none_can_be_left_out() -> None:
    halves = partition(PENDULUMS, start())
    assert halves.tape == 2 * SIZE * 8  # not cos, bend and omega', which are 3
    assert len(halves.stored) == 2
    assert halves.begins == ("k",)
    saved, stored = halves.choice.saved, halves.choice.stored
    for name in (*saved, *stored):
        with pytest.raises(BadInput, match="is needed again and not stored"):
            choose(
                halves.graph,
                saved=[it for it in saved if it != name],
                stored=[it for it in stored if it != name],
            )


def test_what_is_missing_is_named() -> None:
    halves = partition(PENDULUMS, start())
    after, tape = halves.forward(start())
    for name in halves.stored:
        rest = {other: tape[other] for other in tape if other != name}
        with pytest.raises(KeyError, match="the tape has no"):
            halves.backward(rest, start(), after)
    with pytest.raises(KeyError, match="the state has no 'k'; it must have k"):
        halves.backward(tape, start(), {})
    with pytest.raises(KeyError, match="the state has no 'omega'"):
        halves.forward({"theta": np.zeros(SIZE)})


def test_both_states_may_be_changed_in_place_without_harm_to_the_tape() -> None:
    for where in (None, level(0.0)):  # the latter stores omega', which is an array of x_{i+1}
        halves = partition(PENDULUMS, start(), where)
        state = start()
        after, tape = halves.forward(state)
        held = {name: array.copy() for name, array in tape.items()}
        for array in (*state.values(), *after.values()):
            array[...] = np.nan
        for name in halves.stored:
            np.testing.assert_array_equal(tape[name], held[name])


def test_what_the_level_takes_decides() -> None:
    dear = (2.0, 0.5, 1.0, 1.0, 1.0)
    program = timed(PENDULUMS, dear)
    least = partition(program, start(), level(1.0))
    assert least.tape == 2 * SIZE * 8
    most = partition(program, start(), level(1e-4))
    assert set(most.stored) == {"cos", "bend", "omega'"}
    assert most.recomputing == 0.0
    between = partition(program, start(), level(1.0 / (SIZE * 8)))
    # A field takes 1 s: theta and bend again (0.5 s), or bend, are less than cos again (2 s).
    assert "cos" in between.stored


def timed(program: StraightLine, seconds: tuple[float, ...]) -> StraightLine:
    return StraightLine(
        inputs=program.inputs,
        assignments=[
            Assignment(it.results, it.arguments, it.compute, taken)
            for it, taken in zip(program.assignments, seconds, strict=True)
        ],
        outputs=program.outputs,
        required=program.required,
        backward=program.backward,
    )


def sines(seconds: float | None = None, clock: VirtualClock | None = None) -> StraightLine:
    def compute(u: Any) -> tuple[Any, Any]:
        if clock:
            clock.sleep(3.0)
        return np.sin(u), np.cos(u)

    return StraightLine(
        inputs=["u"],
        assignments=[
            Assignment(["sin", "cos"], ["u"], compute, seconds),
            Assignment(["u'"], ["sin", "cos"], lambda sin, cos: sin * cos, seconds and 0.0),
        ],
        outputs={"u": "u'"},
        required=["sin", "cos"],
        backward=lambda values, of: {"u": of["u"] * (values["cos"] ** 2 - values["sin"] ** 2)},
    )


def test_results_that_are_computed_together_are_paid_for_once() -> None:
    state, field = {"u": np.ones(100)}, 8.0
    where = level(field / 800)
    for seconds, stored in ((5.0, {"u"}), (11.0, {"sin", "cos"})):
        assert set(partition(sines(seconds), state, where).stored) == stored


def timed_by(clock: VirtualClock, program: StraightLine, where: Level | None = None) -> Partition:
    graph = weigh(program, {"u": np.ones(100)}, clock)
    return Partition(program, graph, solve(graph, cost=cost_of_tape(where) if where else None))


def test_seconds_are_measured_by_the_clock_and_declared_ones_are_not() -> None:
    clock = VirtualClock()
    halves = timed_by(clock, sines(clock=clock))
    assert (halves.stored, halves.recomputing) == (("u",), pytest.approx(3.0))
    where = level(2.0 / 800)  # a field is 2 s, and computing again 3 s
    assert set(timed_by(clock, sines(clock=clock), where).stored) == {"sin", "cos"}
    before = clock.now()
    halves = timed_by(clock, sines(1.0, clock), where)
    assert (halves.stored, halves.recomputing) == (("u",), 1.0)
    assert clock.now() - before == pytest.approx(3.0)  # once, for the sizes


def test_parts_take_no_longer_than_the_whole() -> None:
    """The function is slow when it is timed alone, which takes eight calls, and fast later."""
    clock, calls = VirtualClock(), iter(range(10**6))

    def compute(u: Any) -> tuple[Any, Any]:
        clock.sleep(3.0 if next(calls) < 8 else 1.0)
        return np.sin(u), np.cos(u)

    program = sines()
    program = replace(
        program,
        assignments=[Assignment(["sin", "cos"], ["u"], compute), *program.assignments[1:]],
    )
    halves = timed_by(clock, program)
    assert (halves.stored, halves.recomputing) == (("u",), pytest.approx(1.0))


def test_what_is_not_overwritten_takes_no_byte() -> None:
    program = StraightLine(
        inputs=["u", "k"],
        assignments=[Assignment(["u'"], ["u", "k"], np.multiply)],
        outputs={"u": "u'"},  # k is not even named
        required=["k"],
        backward=lambda values, of: {"u": of["u"] * values["k"]},
    )
    state = {"u": np.ones(3), "k": np.full(3, 2.0)}
    halves = partition(program, state)
    after, tape = halves.forward(state)
    assert (halves.stored, halves.begins, tape) == ((), ("k",), {})
    assert list(after["u"]) == list(halves.backward(tape, {"u": np.ones(3)}, after)["u"]) == [2] * 3


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"inputs": "u"}, "must be a list of names"),
        ({"inputs": ["u", ""]}, "the name of a value is text, and not empty"),
        ({"required": ["w"]}, "'w' is an output or required, and it is not a value"),
        ({"outputs": {"u": "w"}}, "'w' is an output or required, and it is not a value"),
        ({"outputs": {"v": "u"}}, "'v' is overwritten, but it is not an array of the state"),
        ({"assignments": [Assignment(["v"], ["w"], np.sin)]}, "'v' is computed from 'w'"),
        ({"assignments": [Assignment(["u"], ["u"], np.sin)]}, "'u' is assigned twice"),
    ],
)
def test_a_program_that_is_none_is_refused(changed: dict[str, Any], message: str) -> None:
    given: dict[str, Any] = {
        "inputs": ["u"],
        "assignments": [Assignment(["v"], ["u"], np.sin)],
        "outputs": {"u": "v"},
        "required": ["u"],
        "backward": lambda values, of: of,
    }
    StraightLine(**given)
    with pytest.raises(BadInput, match=message):
        StraightLine(**given | changed)


def test_an_assignment_that_is_none_is_refused() -> None:
    with pytest.raises(BadInput, match="name at least one value"):
        Assignment([], ["u"], np.sin)
    with pytest.raises(BadInput, match="seconds"):
        Assignment(["v"], ["u"], np.sin, seconds=-1.0)
    with pytest.raises(BadInput, match="3 arrays were computed for the 2 results a, b"):
        Assignment(["a", "b"], [], lambda: (1, 2, 3))([])


def test_without_jax_it_says_what_to_install() -> None:
    script = """
import sys
import numpy as np
import ckio.analysis.partitioned as room
assert not any(name.split(".")[0] in ("jax", "jaxlib") for name in sys.modules)
sys.modules["jax"] = None  # as where it is not installed
from ckio.errors import BadInput
for ask in (room.trace, room.partition):
    try:
        ask(lambda state: state, {"u": np.ones(3)})
    except BadInput as error:
        assert "pip install 'ckio[jax]'" in str(error), error
    else:
        raise SystemExit("nothing was said")
"""
    subprocess.run([sys.executable, "-c", script], check=True)


def test_a_stored_value_with_memory_of_its_own_is_not_copied() -> None:
    made: list[Any] = []

    def exp(u: Any) -> Any:
        made.append(np.exp(u))
        return made[-1]

    step = StraightLine(
        inputs=["u"],
        assignments=[Assignment(["v"], ["u"], exp), Assignment(["u'"], ["u", "v"], np.add)],
        outputs={"u": "u'"},
        required=["v"],
        backward=lambda values, cotangent: {"u": cotangent["u"] * (1 + values["v"])},
    )
    u = {"u": np.ones(3)}
    _, tape = partition(step, u).forward(u)
    assert tape["v"] is made[-1]
