"""What steps do to arrays, found out by filling them with what was not there."""

from collections.abc import Callable

import numpy as np

from ckio.actions import Key, Kind
from ckio.actions.variables import Flow
from ckio.errors import RunFailed
from ckio.model.arraymodel import ArrayModel, functional_at
from ckio.model.arrays import Arrays, copies

FILLS = (np.nan, 1.0)

Make = Callable[[], ArrayModel]
Bytes = dict[str, bytes]


def at(make: Make, i: int) -> tuple[ArrayModel, Arrays]:
    """A model that stands at x_i, and x_i."""
    model = make()
    model.dump(Key(Kind.RESTART, 0))  # makes x_0
    assert model.advance(0, i) == i
    return model, model._state


def flow_of(make: Make, i: int) -> Flow:
    """Of step i. What is used and overwritten counts as overwritten in whole."""
    model, state = at(make, i)
    expected, before = after(model, state, i), as_bytes(state)
    assert after(model, state, i) == expected
    use, out = set(), {name for name in state if expected[name] != before[name]}
    for name in state:
        for fill in FILLS:
            filled = with_fill(state, name, fill)
            found = after(model, filled, i)
            if others(found, name) != others(expected, name):
                use.add(name)
            elif found[name] != filled[name].tobytes():
                out.add(name)
                if found[name] != expected[name]:
                    use.add(name)
    return Flow(use, out, out)


def tape_of(make: Make, i: int) -> set[str]:
    """The arrays of the tape that the adjoint of step i reads."""
    model, state = at(make, i)
    tape = copies("", {name: state[name] for name in model._taped})
    return {
        name
        for name in tape
        for fill in FILLS
        if back(model, with_fill(tape, name, fill), i) != back(model, tape, i)
    }


def seed_of(make: Make, i: int) -> set[str]:
    """The arrays of x_i that the start of the adjoint reads."""
    model, state = at(make, i)
    return {
        name
        for name in state
        for fill in FILLS
        if start(model, with_fill(state, name, fill), i) != start(model, state, i)
    }


def after(model: ArrayModel, state: Arrays, i: int) -> Bytes:
    """The state after step i, of a copy; nothing where the model refuses to go on."""
    state = copies("", state)
    try:
        model.step(state, i)
    except RunFailed:
        return {}
    return as_bytes(state)


def back(model: ArrayModel, tape: Arrays, i: int) -> Bytes:
    """The adjoint and what is added to the gradient, after step i is reversed."""
    random = np.random.default_rng(i)
    shapes = {name: array.shape for name, array in model._adjoint.cotangent.items()}
    adjoint = copies("", {n: random.standard_normal(shape) for n, shape in shapes.items()})
    for array in model.gradient.values():
        array[...] = 0
    model.adjoint_step(adjoint, copies("", tape), i)
    gradient = {f"gradient {name}": array for name, array in model.gradient.items()}
    return as_bytes({**adjoint, **gradient})


def start(model: ArrayModel, state: Arrays, i: int) -> Bytes:
    adjoint = copies("", {name: 0 * x for name, x in model._adjoint.cotangent.items()})
    value = functional_at(model.adjoint_seed, state, adjoint, i)
    return as_bytes({**adjoint, "value": np.array(value)})


def with_fill(arrays: Arrays, name: str, fill: float) -> Arrays:
    filled = copies("", arrays)
    filled[name][...] = fill
    return filled


def as_bytes(arrays: dict[str, np.ndarray]) -> Bytes:
    return {name: array.tobytes() for name, array in arrays.items()}


def others(arrays: Bytes, name: str) -> Bytes:
    return {other: data for other, data in arrays.items() if other != name}
