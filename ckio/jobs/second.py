"""`hessian_product`: the Hessian of J times a direction, in this process, with checkpoints.

The product is the gradient of the slope dJ = <dJ/dc, dc> along the direction dc. The tangent-linear
loop computes dJ, and is an ordinary model, so that all of ckio serves it as it is.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ckio.errors import BadInput
from ckio.jobs.gradients import Arrays, set_control
from ckio.jobs.models import factory_of, name_of
from ckio.jobs.once import gradient
from ckio.jobs.result import Result
from ckio.model import TANGENT, TwiceDifferentiable, optional
from ckio.platform.readable import did_you_mean


@dataclass(frozen=True)
class HessianProduct:
    """The Hessian of J times a direction, and what is computed with it.

    Attributes
    ----------
    product : mapping of str to array
        The Hessian times the direction: the derivative of `gradient` along it, for each control.
    gradient : mapping of str to array
        dJ/dc, as of `ckio.gradient`.
    slope : float
        The derivative of J along the direction.
    run : Result
        The run of the tangent-linear loop, with its report; its `functional` is the slope.
    """

    product: Arrays
    gradient: Arrays
    slope: float
    run: Result


def hessian_product(
    model: str | Callable[..., Any],
    direction: Arrays,
    /,
    *,
    steps: int | None = None,
    control: Arrays | None = None,
    **options: Any,
) -> HessianProduct:
    """Return the Hessian of J times a direction, computed with checkpoints; no file is left.

    Checkpoints have twice the bytes of those of `gradient`, and the time is about three times as
    long, because each step is taken with its tangent.

    Parameters
    ----------
    model : str or callable
        As of `gradient`; its models offer `TwiceDifferentiable`, as those of
        `ckio.functions(..., tangent=, second=)` do.
    direction : mapping of str to array
        A direction in the controls; those that are not given have the direction 0.
    steps : int, optional
        The number of steps n.
    control : mapping of str to array, optional
        The controls, instead of the model's own.
    **options
        Those of `gradient`. `check=True` verifies the product by differences of the slope.

    Raises
    ------
    BadInput
        If the model offers no Hessian products, a name is no control, or as `gradient`.
    RunFailed, NotVerified
        As `gradient`.

    For example, J = u_0⁴ after two steps u ← u², whose second derivative is 12 u_0²:

    >>> from ckio.model.functions import functions
    >>> model = functions(
    ...     lambda u, p, i: (u**2, u**2 if i == 1 else 0.0),
    ...     lambda bar, u, p, i: (2 * u * (bar + (i == 1)), None),
    ...     3.0,
    ...     tangent=lambda u, p, i, du, dp: (2 * u * du, 2 * u * du if i == 1 else 0.0),
    ...     second=lambda bar, u, p, i, dbar, du, dp: (
    ...         2 * du * (bar + (i == 1)) + 2 * u * dbar, None
    ...     ),
    ... )
    >>> found = hessian_product(model, {"x": 1.0}, steps=2, ram="1MiB")
    >>> found.product["x"].item(), found.gradient["x"].item(), found.slope
    (108.0, 108.0, 108.0)
    """
    make = factory_of(model)
    directions = {TANGENT + name: value for name, value in direction.items()}

    @functools.wraps(make)  # its options, and the file in which it is written
    def pair(*given: Any, **settings: Any) -> Any:
        fresh = make(*given, **settings)
        if not isinstance(fresh, TwiceDifferentiable):
            raise BadInput(
                f"model {name_of(model)!r} has no method tangent_model, so there is no Hessian"
                " product of it; make it by ckio.functions(..., tangent=, second=), or define one"
            )
        known = optional(fresh).control or {}
        for name in direction:
            if name not in known:
                raise BadInput(f"direction: no control {name!r}; {did_you_mean(name, known)}")
        tangent = fresh.tangent_model()
        own = known if control is None else control
        zero = {TANGENT + name: np.zeros_like(array) for name, array in known.items()}
        set_control(tangent, {**own, **zero, **directions})
        return tangent

    pair.__qualname__ = f"{getattr(make, '__qualname__', 'model')}.tangent_model"
    run = gradient(pair, steps=steps, **options)
    product = {n: bar for n, bar in run.gradient.items() if not n.startswith(TANGENT)}
    return HessianProduct(
        product, {n: run.gradient[TANGENT + n] for n in product}, run.functional, run
    )
