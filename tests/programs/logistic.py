"""A program by hand: so many steps of a logistic map, as the input says; nothing but NumPy."""

from collections.abc import Mapping
from math import inf
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ckio.errors import BadInput
from ckio.programs.interface import report_tape


class At(NamedTuple):
    x: NDArray[np.float64]
    rate: float
    left: int


class Logistic:
    """y = the x after `count` steps of x -> rate x (1 - x); a tick is a step."""

    fingerprint = "logistic"

    def __init__(self, fail_at: int = -1) -> None:
        self.fail_at = fail_at
        self.advanced = 0

    def start(self, *x: Any) -> At:
        u, rate, count = x
        return At(np.array(u, float), float(rate), int(count))

    def advance(self, state: At, limit: float = inf, /) -> tuple[At, int, bool]:
        x, rate, left = state
        ticks = int(min(limit, left))
        for tick in range(ticks):
            if left - tick == self.fail_at:
                raise ZeroDivisionError("as was asked")
            x = rate * x * (1 - x)
        self.advanced += ticks
        return At(np.array(x), rate, left - ticks), ticks, ticks == left

    def result(self, state: At, /) -> Any:
        if state.left:
            raise BadInput("it has not finished")
        return state.x

    def pullback(self, state: At, ticks: int, ct: Mapping[str, Any], /) -> dict[str, Any]:
        ticks = min(ticks, state.left)
        xs, rate = [state.x], state.rate
        for _ in range(ticks):
            xs.append(rate * xs[-1] * (1 - xs[-1]))
        report_tape(ticks, sum(x.nbytes for x in xs))
        after, begins = ("y", "") if ticks == state.left else ("x", "rate"), ("x", "rate")
        bar = ct.get("y", ct.get("x", np.zeros_like(state.x)))
        rates = ct.get("rate", np.zeros(()))
        for x in reversed(xs[:-1]):
            rates = rates + np.sum(bar * x * (1 - x))
            bar = bar * rate * (1 - 2 * x)
        del after, begins
        # A state that has just started cannot be told from another one: all have the same names.
        return {"x": bar, "rate": np.asarray(rates), "x.0": bar, "x.1": np.asarray(rates)}

    def pack(self, state: At, /) -> tuple[dict[str, Any], Any]:
        return {"x": state.x}, [state.rate.hex(), state.left]

    def unpack(self, arrays: Mapping[str, Any], meta: Any, /) -> At:
        return At(np.array(arrays["x"]), float.fromhex(meta[0]), meta[1])
