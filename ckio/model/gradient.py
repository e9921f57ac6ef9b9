"""The Taylor test of a gradient: forward runs with changed controls, compared with the gradient.

Let c be the controls, d a direction and s = <gradient, d> the slope along it. The remainder
R(h) = |J(c + h d) - J(c) - h s| decreases as h² if the gradient is right, and as h if it is wrong.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Final

import numpy as np
import xxhash
from numpy.typing import NDArray

from ckio.actions import Key, Kind
from ckio.errors import BadInput, RunFailed, UnsupportedKind
from ckio.model import Differentiable, Model, functional_of, reached
from ckio.model.comm import SOLO, Comm
from ckio.platform.readable import Printed, Sheet

Controls = Mapping[str, NDArray[Any]]

SECOND_ORDER = 1.9
"""The least rate that counts as second order."""

ABOVE_ROUNDING = 256
"""A rate R(h) / R(h/2) counts if R(h) is more than this many times the rounding error.

R(h/2), a quarter of R(h), is then still more than 64 times the rounding error.
"""

AT_ONCE = 64
"""The number of steps in each call of `advance`, if the model decides when it is finished."""

APART = 8
"""The most controls that are checked one by one if the gradient is wrong."""

UNCHANGED: Final = (
    "no step changes an array of the state: `step` has to write into its arrays, as in"
    " x[...] = 2 * x; the statement x = 2 * x makes a new array, which is lost"
)


@dataclass(frozen=True, slots=True)
class GradientCheck(Printed):
    """The result of a Taylor test, for step lengths h that are halved each time.

    Attributes
    ----------
    verified : bool
        Whether the gradient is right: the check is conclusive, and the remainder decreases as h²
        until it is as small as the rounding error, or is never larger than the rounding error.
    slope : float
        s = <gradient, d>, the derivative of J along the direction d according to the gradient.
    steps : tuple of float
        The step lengths h, in descending order.
    remainders : tuple of float
        R(h) = |J(c + h d) - J(c) - h s|, for each h, where c are the controls.
    rates : tuple of float
        log2(R(h) / R(h/2)), one less than there are step lengths: 2 for a right gradient, 1 for a
        wrong one.
    slope_errors : tuple of float
        R(h) / (h |s|), for each h. The last one is an upper estimate of the relative error of the
        slope.
    rounding : float
        The rounding error of a remainder, as measured.
    controls : mapping of str to GradientCheck
        If the gradient is wrong: the same check for single controls, which shows which are wrong.
    unchanged : bool
        Whether the steps leave all arrays of the restart data unchanged.
    """

    verified: bool
    slope: float
    steps: tuple[float, ...]
    remainders: tuple[float, ...]
    rates: tuple[float, ...]
    slope_errors: tuple[float, ...]
    rounding: float
    controls: Mapping[str, "GradientCheck"] = field(default_factory=dict)
    unchanged: bool = False

    @property
    def conclusive(self) -> bool:
        """Whether the remainder at the smallest h is at most the change that the slope predicts.

        Otherwise the relative error of the slope is above 1 or not a number. The rates then show
        the higher derivatives of J only, and do not test the gradient.
        """
        return bool(self.slope_errors) and self.slope_errors[-1] <= 1.0  # false for NaN

    def summary(self) -> str:
        """Return the verdict and its reasons in one line."""
        return "; ".join(self._sentences())

    def _sheet(self) -> Sheet:
        verdict, *notes = self._sentences()
        rates = ("", *(f"{rate:.2f}" for rate in self.rates))
        rows = [
            [f"{h:.3g}", f"{remainder:.3e}", rate]
            for h, remainder, rate in zip(self.steps, self.remainders, rates, strict=True)
        ]
        return Sheet(verdict, ["step h", "remainder", "rate"], rows, notes)

    def _reasons(self) -> str:
        if not math.isfinite(self.slope):
            return f"the gradient along the direction is {self.slope}"
        second_order = all(map(math.isfinite, self.remainders)) and self.rates[-1] >= SECOND_ORDER
        if second_order and not self.conclusive:
            return (
                "the check is inconclusive: the gradient predicts that J changes by"
                f" {self.steps[-1] * self.slope:.1e} along the direction, which is not large"
                f" compared with the remainder {self.remainders[-1]:.1e}; the gradient is"
                " negligible along this direction, or wrong"
            )
        rates = ", ".join(f"{rate:.2f}" for rate in self.rates)
        return f"remainder rates {rates} (2 is right), slope within {self.slope_errors[-1]:.1e}"

    def _sentences(self) -> Iterator[str]:
        """Return the verdict with its reasons, the controls that are wrong, and the remedy."""
        yield f"{'verified' if self.verified else 'NOT verified'}: {self._reasons()}"
        if self.unchanged:
            yield UNCHANGED
        right = [name for name, check in self.controls.items() if check.verified]
        for name, check in self.controls.items():
            if not check.verified:
                yield f"wrong in {name!r}: {check._reasons()}"  # noqa: SLF001 (of its own class)
        if right:
            yield f"right in {' and '.join(map(repr, right))}"
        if not self.verified:
            yield (
                "`ckio analyze MODEL` shows which arrays the steps and adjoint steps read and"
                " overwrite, and where that differs from the model's declaration"
            )


def check_gradient(
    make: Callable[[], Differentiable],
    steps: int | None,
    gradient: Controls,
    /,
    *,
    seed: int = 0,
    halvings: int = 5,
    apart: int = APART,
    comm: Comm = SOLO,
) -> GradientCheck:
    """Test a gradient against forward runs, along a random direction d in all controls.

    With the slope s = <gradient, d>, the remainder R(h) = |J(c + h d) - J(c) - h s| is O(h²) for a
    right gradient and O(h) for a wrong one. The verdict depends on the last rate log2(R(h)/R(h/2))
    whose R(h) is well above the rounding error. The rounding error is measured with two values of h
    that are so small that R(h) consists of rounding only, because a chaotic model amplifies it. If
    no R(h) is above the rounding error, as for a linear functional, the gradient is right if the
    change h s that it predicts is above it. If R(h) > h |s|, the check is inconclusive and the
    gradient is not verified; a gradient of zeros is an example.

    For example, J(c) = c² at c = 1 has the gradient 2. With d = 1, R(h) = h², so that R(0.1) = 0.01
    and R(0.05) = 0.0025, and the rate is log2(4) = 2. For the wrong gradient 1.5,
    R(h) = 0.5 h + h², so that R(0.1) = 0.06 and R(0.05) = 0.0275, and the rate is 1.13.

    The check takes halvings + 4 forward runs on fresh models, and the memory of one model. If the
    gradient is wrong, each control is then checked separately, with halvings + 3 runs for each.

    Parameters
    ----------
    make : callable
        Returns a fresh model. All models that it returns must be equal.
    steps : int or None
        The number of steps n of a run. With None, each model runs until it finishes itself; the
        number of steps may then depend on the controls.
    gradient : mapping of str to array
        The gradient of J after these steps that is to be tested: one array for each control, with
        the shape of the control.
    seed : int
        The seed of the random direction.
    halvings : int
        How often h is halved, at least once. A chaotic model needs more halvings until the
        remainder is of second order.
    apart : int
        The most controls that are checked one by one.
    comm : Comm, optional
        The ranks, if each has a part of the controls. If several ranks have the same part of a
        control, the model needs a method `gathered(name, array)`, which returns the whole array on
        each rank.

    Returns
    -------
    GradientCheck
        The verdict in `verified`, with the figures on which it is based.

    Raises
    ------
    BadInput
        If the gradient does not fit the controls, if there are no controls, or if halvings < 1.
    RunFailed
        If the model finishes before `steps`, or returns an impossible step.
    """
    if halvings < 1:
        raise BadInput(f"check_gradient: halvings = {halvings}; it must be at least 1")
    model = make()
    control: Controls = model.control
    direction = _direction(control, gradient, _generators(seed, model, comm))
    epsilon = max(float(np.finfo(array.dtype).eps) for array in control.values())
    slopes = [_slope(model, gradient, {name: d}, comm) for name, d in direction.items()]
    del model
    line = _Direction(make, steps, halvings, epsilon)
    start, unchanged = line.start(comm)
    check = line.check(start, direction, sum(slopes))
    alone: dict[str, GradientCheck] = {}
    if not check.verified and len(direction) > 1:
        for (name, d), slope in list(zip(direction.items(), slopes, strict=True))[:apart]:
            alone[name] = line.check(start, {name: d}, slope)
    return replace(check, controls=alone, unchanged=unchanged)


@dataclass(frozen=True, slots=True)
class _Direction:
    """The functional along straight lines through the controls, and the remainders of a gradient.

    Attributes
    ----------
    make, steps, halvings
        The arguments of `check_gradient`.
    epsilon : float
        The relative rounding error of the controls.
    """

    make: Callable[[], Differentiable]
    steps: int | None
    halvings: int
    epsilon: float

    def start(self, comm: Comm) -> tuple[float, bool]:
        """Return J(c), and whether the steps leave all arrays unchanged, on all ranks."""
        model = self.make()
        before = _digest(model, 0)
        first = reached("advance", model.advance(0, 1), 0, 1)
        same = before is not None and first == 1 and _digest(model, 1) == before
        if first == 1:
            last = self._run(model, 1)
            same = same and _digest(model, last) == before
        elif self.steps is not None:
            raise RunFailed(f"check_gradient: the model finished at step 0 of {self.steps}")
        return functional_of(model), all(comm.gather(same))

    def check(self, start: float, direction: Controls, slope: float) -> GradientCheck:
        """Test one direction; `start` is J(c), and `slope` is <gradient, direction>."""

        def remainder(h: float) -> float:
            return abs(self._functional(direction, h) - start - h * slope)

        tiny = 64 * self.epsilon
        rounding = max(remainder(tiny), remainder(-tiny), self.epsilon * abs(start))
        h = tuple(self.epsilon**0.2 / 2**halving for halving in range(self.halvings + 1))
        remainders = tuple(remainder(size) for size in h)
        rates = tuple(_rate(whole, half) for whole, half in pairwise(remainders))
        found = GradientCheck(
            verified=_verdict(remainders, rates, rounding=rounding, change=h[0] * slope),
            slope=slope,
            steps=h,
            remainders=remainders,
            rates=rates,
            slope_errors=tuple(
                r / abs(size * slope) if slope else math.inf
                for r, size in zip(remainders, h, strict=True)
            ),
            rounding=rounding,
        )
        return replace(found, verified=found.verified and found.conclusive)

    def _functional(self, direction: Controls, h: float) -> float:
        """Return J(c + h d)."""
        model = self.make()
        control: Controls = model.control
        for name, d in direction.items():
            control[name][...] += h * d
        self._run(model, 0)
        return functional_of(model)

    def _run(self, model: Model, step: int) -> int:
        """Advance from `step` to the end, and return the last step."""
        if self.steps is not None:
            end = self.steps
            if (
                step < end
                and (step := reached("advance", model.advance(step, end), step, end)) < end
            ):
                raise RunFailed(f"check_gradient: the model finished at step {step} of {end}")
            return step
        end = AT_ONCE
        while (step := reached("advance", model.advance(step, end), step, end)) == end:
            end += AT_ONCE
        return step


def _digest(model: Model, step: int) -> str | None:
    """Return a digest of the restart data at a step; None if the model has no restart data."""
    key = Key(Kind.RESTART, step)
    hasher = xxhash.xxh3_128()
    try:
        for data in model.dump(key):
            hasher.update(data)
    except UnsupportedKind:
        return None
    return hasher.hexdigest()


def _slope(model: Model, gradient: Controls, direction: Controls, comm: Comm) -> float:
    """Return <gradient, direction> over all ranks; it may be infinite or not a number."""
    with np.errstate(invalid="ignore"):  # the check reports such a slope; no warning is needed
        return _product(model, gradient, direction, comm)


def _product(model: Model, gradient: Controls, direction: Controls, comm: Comm) -> float:
    gathered = getattr(model, "gathered", None) if comm.size > 1 else None
    if gathered is None:
        mine = sum(float(np.sum(gradient[name] * d)) for name, d in direction.items())
        return sum(comm.gather(mine))
    return sum(
        float(np.sum(gathered(name, gradient[name]) * gathered(name, d)))
        for name, d in direction.items()
    )


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

    If the model has `gathered`, a control is distributed if the gathered array has another shape.
    Otherwise, a control is distributed unless it is equal on all ranks, to the last bit.
    """
    control: Controls = model.control
    if comm.size == 1:
        return [False] * len(control)
    if (gathered := getattr(model, "gathered", None)) is not None:
        mine = [gathered(name, array).shape != array.shape for name, array in control.items()]
        return [any(ranks) for ranks in zip(*comm.gather(mine), strict=True)]
    digests = [
        (array.shape, xxhash.xxh3_128_hexdigest(array.tobytes())) for array in control.values()
    ]
    return [len(set(ranks)) > 1 for ranks in zip(*comm.gather(digests), strict=True)]


def _direction(
    control: Controls, gradient: Controls, generators: Sequence[np.random.Generator]
) -> dict[str, NDArray[np.float64]]:
    """Draw a direction: for each control, normal random numbers times the control's rms.

    The factor is 1 if the root mean square of the control is 0.
    """
    if not control:
        raise BadInput(
            "check_gradient: the model has no controls; a gradient needs at least one, so add it to"
            " the model's `control`"
        )
    direction = {}
    for random, (name, array) in zip(generators, control.items(), strict=False):
        if not np.issubdtype(array.dtype, np.floating):
            raise BadInput(
                f"check_gradient: control {name!r} has dtype {array.dtype}; the check needs real"
                " numbers, such as float64"
            )
        if name not in gradient or gradient[name].shape != array.shape:
            raise BadInput(
                f"check_gradient: the gradient has no {name!r} of shape {array.shape}; it needs an"
                " array for each control, of the same shape"
            )
        total = float(np.sum(np.square(array, dtype=np.float64)))
        size = math.sqrt(total / max(1, array.size)) or 1.0
        direction[name] = size * random.standard_normal(array.shape)
    return direction


def _rate(whole: float, half: float) -> float:
    if not whole or not half:
        return -math.inf if half else math.inf
    return math.log2(whole / half)


def _verdict(
    remainders: tuple[float, ...], rates: tuple[float, ...], *, rounding: float, change: float
) -> bool:
    """Return whether the remainders are those of a right gradient.

    `change` is h s, the change of J that the gradient predicts, for the largest h.
    """
    if not all(math.isfinite(r) for r in remainders):
        return False
    least = ABOVE_ROUNDING * rounding
    counted = [rate for r, rate in zip(remainders, rates, strict=False) if r > least]
    if counted:
        return counted[-1] >= SECOND_ORDER and not _diverges(counted)
    return abs(change) > least


def _diverges(rates: list[float]) -> bool:
    """Return whether the rates increase away from 2, faster at each halving.

    The rates of a right gradient approach 2 as h decreases. If a small error b of the gradient has
    the opposite sign of the curvature a, R(h) = |a h² - b h|: the rates first increase, and then
    fall to 1.

    >>> _diverges([2.08, 2.17, 2.41]), _diverges([2.4, 2.2, 2.1])
    (True, False)
    """
    if len(rates) < 2:
        return False
    before, last = rates[-2] - 2, rates[-1] - 2
    return last > 2 - SECOND_ORDER and last > 1.5 * before > 0
