"""`np.array` of numbers that are being taped, as people write it."""

from typing import Any

import numpy as np
import pytest
from numpy import array

from ckio.errors import BadInput
from ckio.programs import Options, checkpoint_vjp, primops, program, vjp


@program
def pendulum(angle: Any, speed: Any, steps: int) -> Any:
    y = np.array([angle, speed])
    for _ in range(steps):
        y = y + 0.1 * np.array([y[1], -np.sin(y[0])])
    return y


@program
def kinds(x: Any, u: Any) -> Any:
    rows = np.asarray([u, 2.0 * u, np.array([x, 1.0, x * x])])
    cube = array([[[x, 2.0], [3.0, x]]] * 2)
    full = np.full(3, x) + np.full((2, 3), 2.0)
    copied, same = np.array(u), np.asarray(u)
    copied[0] = 7.0
    same[1] = same[1] * x
    whole = np.asarray([1, 2, 3]) + np.array((4, 5, 6))
    return rows.sum(axis=0) * u + cube.sum() * copied + full[1] * whole + u


@pytest.mark.parametrize(
    ("p", "x"),
    [(pendulum, (0.5, 0.2, 30)), (kinds, (1.3, np.array([0.2, 0.4, 0.9])))],
    ids=["pendulum", "kinds"],
)
def test_values_are_those_of_numpy_and_derivatives_are_there(p: Any, x: Any) -> None:
    def at(h: float) -> Any:
        return p(*(v + h if isinstance(v, float | np.ndarray) else v for v in x))

    y, bars = vjp(p, x, np.ones(len(at(0.0))))
    assert y.tolist() == at(0.0).tolist() == primops(p, *x)[0].tolist()
    slope = sum(float(np.sum(bar)) for bar in bars)
    assert slope == pytest.approx(float((at(1e-6) - at(-1e-6)).sum()) / 2e-6, rel=1e-7)
    _, again = checkpoint_vjp(p, x, np.ones(len(y)), Options(base=1))
    for bar, other in zip(bars, again, strict=True):
        np.testing.assert_allclose(bar, other, rtol=1e-14)


@program
def whole(x: Any) -> Any:
    return x * np.array([x, 2.0], dtype=int)


def test_whole_numbers_have_no_derivative() -> None:
    with pytest.raises(BadInput, match="derivative"):
        vjp(whole, 2.5, np.ones(2))
