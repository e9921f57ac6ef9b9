"""Derivatives along a direction in the controls: by a gradient, and by values of a function.

`draw_direction` draws a direction d at random, and `slope` returns <gradient, d>, on one rank or on
many. `fit` returns the derivative along d that the values at c + t d have, with its error.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import xxhash
from numpy.typing import NDArray

from ckio.errors import BadInput
from ckio.model import Differentiable, Model, optional
from ckio.model.comm import Comm, total

Controls = Mapping[str, NDArray[Any]]

DEGREE: Final = 4
"""The degree of the polynomial."""

SIZES: Final = 5
"""The most values of h in one fit, which has 11 values of J for 5 coefficients.

With more, the many small h would hide that J is not a polynomial up to the largest one.
"""

CERTAIN: Final = 15.0
"""The most standard errors by which the derivative of `fit` can be off.

With random errors, one fit in 10,000 is off by more than 8. Errors of another kind, by terms such
as t^5 or t |t|, are at most 9, and those beside a one-sided derivative at a kink are 14.
"""


def draw_direction(
    model: Differentiable, gradient: Controls, seed: int, comm: Comm, /
) -> dict[str, NDArray[Any]]:
    """Draw a direction: for each control, random numbers times the control's rms.

    The factor is 1 if the root mean square of the control is 0. The random numbers have an absolute
    value between 1/2 and 3/2, so that no control is left almost unchanged. They have the sign or
    phase of the gradient, so that the parts of a large control do not cancel; where the gradient is
    0, sign and phase are random. They are also random on several ranks, because each may have a
    part of the gradient only. The direction is 0 where the control is infinite or NaN, for example
    on land.
    """
    control: Controls = model.control
    if not control:
        raise BadInput(
            "check_gradient: the model has no controls; a gradient needs at least one, so add it to"
            " the model's `control`"
        )
    aligned, direction = comm.size == 1, dict[str, NDArray[Any]]()
    generators = _generators(seed, model, comm)
    for random, (name, array) in zip(generators, control.items(), strict=False):
        if not np.issubdtype(array.dtype, np.inexact):
            raise BadInput(
                f"check_gradient: control {name!r} has dtype {array.dtype}; the check needs real or"
                " complex numbers, such as float64"
            )
        if name not in gradient or gradient[name].shape != array.shape:
            raise BadInput(
                f"check_gradient: the gradient has no {name!r} of shape {array.shape}; it needs an"
                " array for each control, of the same shape"
            )
        finite = np.isfinite(array)
        sizes = np.abs(array[finite]).astype(np.float64)
        largest = float(sizes.max(initial=0.0)) or 1.0
        size = largest * math.sqrt(np.mean((sizes / largest) ** 2) if sizes.any() else 1.0)
        turns = random.random(array.shape)
        phase = np.exp(2j * np.pi * turns) if array.dtype.kind == "c" else np.sign(turns - 0.5)
        along = np.nan_to_num(np.sign(gradient[name])) if aligned else np.zeros(array.shape)
        phase = np.where(along == 0, phase, along)
        d = size * random.uniform(0.5, 1.5, array.shape) * phase
        direction[name] = np.where(finite, d, 0.0)
    return direction


def _generators(seed: int, model: Differentiable, comm: Comm) -> Sequence[np.random.Generator]:
    """Return one random generator for the direction of each control.

    A control that is the same on all ranks gets the same direction on each of them, for any number
    of ranks. Each part of a distributed control gets its own direction: with equal directions, the
    contributions of two parts to J could cancel, so that a wrong gradient would seem right.
    """
    parts = _is_part(model, comm)
    return [
        np.random.default_rng([seed, number, comm.rank] if part and comm.rank else [seed, number])
        for number, part in enumerate(parts)
    ]


def _is_part(model: Differentiable, comm: Comm) -> list[bool]:
    """Return for each control whether a rank has only a part of it.

    The model may declare the others in `shared_controls`. If it has `gathered`, a control is
    distributed if the gathered array has another shape. Otherwise, a control is distributed unless
    it is equal on all ranks, to the last bit.
    """
    control: Controls = model.control
    if comm.size == 1:
        return [False] * len(control)
    if (shared := optional(model).shared_controls) is not None:
        return [name not in shared for name in control]
    if (gathered := optional(model).gathered) is not None:
        mine = [gathered(name, array).shape != array.shape for name, array in control.items()]
        return [any(ranks) for ranks in zip(*comm.gather(mine), strict=True)]
    digests = [
        (array.shape, xxhash.xxh3_128_hexdigest(array.tobytes())) for array in control.values()
    ]
    return [len(set(ranks)) > 1 for ranks in zip(*comm.gather(digests), strict=True)]


def slope(model: Model, gradient: Controls, direction: Controls, comm: Comm) -> float:
    """Return <gradient, direction> over all ranks; it may be infinite or not a number."""
    with np.errstate(invalid="ignore"):  # the check reports such a slope; no warning is needed
        return _product(model, gradient, direction, comm)


def _product(model: Model, gradient: Controls, direction: Controls, comm: Comm) -> float:
    gathered = optional(model).gathered if comm.size > 1 else None
    if gathered is None:
        mine = sum(real_product(gradient[name], d) for name, d in direction.items())
        return sum(comm.gather(mine))
    slope = 0.0
    for name, d in direction.items():
        whole, shared = gathered(name, d), all(np.array_equal(d, x) for x in comm.gather(d))
        if shared and whole.shape == d.shape:
            slope += real_product(total(model, name, gradient[name], comm), d)
        else:
            slope += real_product(gathered(name, gradient[name]), whole)
    return slope


def real_product(gradient: NDArray[Any], direction: NDArray[Any]) -> float:
    """Return the real inner product; where the direction is 0, the gradient may be NaN."""
    return float(np.sum(np.conj(gradient) * direction, where=direction != 0).real)


def fit(
    values: Mapping[float, Any], start: Any, epsilon: float, /
) -> tuple[NDArray[Any], float, float, float]:
    """Return the derivative at t = 0 of a function of t, its error, the rounding error, and h.

    Of the polynomials fitted to successive h, the one with the least error is taken. Its largest h
    is returned. All are NaN if no such part of the line has finite values only.

    Parameters
    ----------
    values : mapping of float to array or float
        The values at t = h and t = -h, for some h. Errors are those of the norm of an array.
    start : array or float
        The value at t = 0.
    epsilon : float
        The relative rounding error of the values.
    """
    sizes = sorted((t for t in values if t > 0), reverse=True)
    best = (np.full(np.shape(start), math.nan), math.nan, math.nan, math.nan)
    count = min(SIZES, len(sizes))
    for number, h in enumerate(sizes[: len(sizes) - count + 1]):
        within = [sign * size for size in sizes[number : number + count] for sign in (1, -1)]
        change = np.array([np.ravel(values[t] - start) for t in within])
        change = np.vstack([np.zeros_like(change[:1]), change])
        if not np.isfinite(change).all():
            continue
        powers = np.vander(np.array([0.0, *within]) / h, DEGREE + 1, increasing=True)
        inverse = np.linalg.pinv(powers)
        coefficients = inverse @ change
        left = float(np.linalg.norm(change - powers @ coefficients))
        size = np.linalg.norm(start) + np.linalg.norm(change, axis=1).max()
        rounding = max(left / math.sqrt(len(change) - DEGREE - 1), epsilon / 2 * float(size))
        error = CERTAIN * rounding * float(np.linalg.norm(inverse[1])) / h
        if not error >= best[1]:
            best = coefficients[1].reshape(np.shape(start)) / h, error, rounding, h
    return best
