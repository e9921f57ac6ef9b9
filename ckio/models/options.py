"""Checks of the options of example models."""

import math

from ckio.actions.checks import is_whole
from ckio.errors import BadInput


def check_whole(model: str, *, least: int, **options: object) -> None:
    """Raise BadInput for an option that is not a whole number, or is below the least."""
    for name, value in options.items():
        if not is_whole(value) or value < least:
            raise BadInput(f"{model}: {name} = {value!r}; it must be a whole number >= {least}")


def check_real(
    model: str,
    *,
    above: float = -math.inf,
    least: float = -math.inf,
    below: float = math.inf,
    **options: object,
) -> None:
    """Raise BadInput for an option that is not a finite number within these bounds."""
    bounds = ((">", above), (">=", least), ("<", below))
    rules = [f"{sign} {bound:g}" for sign, bound in bounds if math.isfinite(bound)]
    rule = " and ".join(["finite", *rules])
    for name, value in options.items():
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise BadInput(f"{model}: {name} = {value!r}; it must be a number")
        if not (math.isfinite(value) and above < value < below and value >= least):
            raise BadInput(f"{model}: {name} = {value:g}; it must be {rule}")
