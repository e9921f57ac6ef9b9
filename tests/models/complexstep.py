"""Derivatives of a functional that computes in complex numbers, to the last digits but one."""

from collections.abc import Callable

import numpy as np
import pytest

from ckio.model.arraymodel import ArrayModel

Controls = dict[str, np.ndarray]


def check_every_component(
    model: ArrayModel,
    control: Controls,
    functional: Callable[[Controls], complex],
    *,
    rel: float = 1e-13,
    within: float = 1e-12,
    **others: float,
) -> dict[str, float]:
    """Hold functional and gradient of a model that is done beside those of one written anew.

    Each control's error is measured by its largest derivative, which is returned; it may be
    `within`, or what `others` says of that control.
    """
    numbers = {name: np.array(array, complex) for name, array in control.items()}
    assert functional(numbers) == pytest.approx(model.functional, rel=rel)
    scales = {}
    for name, gradient in model.gradient.items():
        expected = np.zeros(gradient.shape)
        tiny = 1e-30 * (np.abs(numbers[name]).max() or 1.0)
        for place in np.ndindex(expected.shape):
            numbers[name][place] += 1j * tiny
            expected[place] = functional(numbers).imag / tiny
            numbers[name][place] -= 1j * tiny
        scales[name] = np.abs(expected).max()
        atol = others.get(name, within) * scales[name]
        np.testing.assert_allclose(gradient, expected, rtol=0, atol=atol, err_msg=name)
    return scales
