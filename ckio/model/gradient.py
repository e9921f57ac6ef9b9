"""Is this the gradient? The Taylor test, for any model, from forward runs alone."""

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
"""How many times rounding a remainder must be for its rate to count; a quarter of it is 64."""

AT_ONCE = 64
"""Steps that a model is asked for at a time where it says itself when it is finished."""

APART = 8
"""As many controls are checked one by one where the gradient is wrong."""

UNCHANGED: Final = (
    "no step changes an array of the state: `step` has to write into its arrays, as in"
    " x[...] = 2 * x, and not x = 2 * x"
)


@dataclass(frozen=True, slots=True)
class GradientCheck(Printed):
    """The result of a Taylor test, with steps h that halve each time.

    Attributes
    ----------
    verified : bool
        Whether the remainder falls like h² until it is lost in rounding, or never rises above it,
        and the check is conclusive.
    slope : float
        <gradient, direction>.
    steps : tuple of float
        h.
    remainders : tuple of float
        R(h) = |J(c + h d) - J(c) - h slope|.
    rates : tuple of float
        log2 R(h) / R(h/2) for each halving: 2 for a right gradient, 1 for a wrong one.
    slope_errors : tuple of float
        R(h) / (h |slope|): a right gradient's error, relatively, could not be larger.
    rounding : float
        What rounding adds to a remainder, as measured.
    controls : mapping of str to GradientCheck
        The same of single controls, where the whole gradient is wrong: which of them are.
    unchanged : bool
        Whether the steps leave all arrays of restart data as they were.
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
        """Whether the functional changes along the direction by what the gradient predicts, at all.

        Otherwise the relative error of the slope is above 1 or no number, and the rates of the
        remainders are those of higher derivatives alone.
        """
        return bool(self.slope_errors) and self.slope_errors[-1] <= 1.0  # no number is not

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
                f"the check says nothing: of the change of J along the direction, the gradient"
                f" predicts {self.steps[-1] * self.slope:.1e} and leaves {self.remainders[-1]:.1e};"
                " it is negligible here, or wrong"
            )
        rates = ", ".join(f"{rate:.2f}" for rate in self.rates)
        return f"remainder rates {rates} (2 is right), slope within {self.slope_errors[-1]:.1e}"

    def _sentences(self) -> Iterator[str]:
        """Return the verdict and why, which controls are wrong, and what to try next."""
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
                "`ckio analyze MODEL` shows what its steps and adjoint steps read and overwrite,"
                " and where that is not what it declares"
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
    """Compare a gradient with the functional itself, along a random direction in all the controls.

    A right gradient leaves R(h) = O(h²), a wrong one O(h). The verdict is the last rate whose R(h)
    is well above rounding; how large rounding is, two h too small for anything else tell: a chaotic
    model amplifies it. Where no R(h) is above rounding (the functional is linear), the gradient is
    right if the change that it predicts is. A check whose slope is negligible compared with what it
    leaves, R(h) > h |slope|, says nothing, and verifies nothing: a gradient of zeros, for example.

    Takes halvings + 4 forward runs on fresh models, and no more memory than one of them. Where the
    gradient is wrong, each control is then checked alone, which takes halvings + 3 runs for each.

    Parameters
    ----------
    make : callable
        Makes fresh models, all alike.
    steps : int or None
        n, the steps of a run. None runs each model to its own end, where it says that it is
        finished: other controls may take more steps or fewer.
    gradient : mapping of str to array
        What claims to be the gradient of J after these steps, for every control.
    seed : int
        Which direction.
    halvings : int
        How often to halve h, at least once; the more chaotic the model, the more it takes until
        the remainder is of second order.
    apart : int
        The most controls that are checked one by one.
    comm : Comm, optional
        The ranks, where each has its part of the controls. A model that has some of them on several
        ranks puts them together itself: `gathered(name, array)`, the whole on each rank.

    Raises
    ------
    BadInput
        Where the gradient does not fit the controls, or there are no controls, or no halvings.
    RunFailed
        Where the model finishes before `steps`, or says that it is where it cannot be.
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
    """The functional along straight lines through the controls, and what a gradient leaves of it.

    Attributes
    ----------
    make, steps, halvings
        As `check_gradient` takes them.
    epsilon : float
        The rounding of the controls.
    """

    make: Callable[[], Differentiable]
    steps: int | None
    halvings: int
    epsilon: float

    def start(self, comm: Comm) -> tuple[float, bool]:
        """Return J(c), and whether the steps leave all arrays as they were, on all ranks."""
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
        """Test one direction, along which the gradient says that J has this slope."""

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
        """Advance to the end, some steps at a time where the model says when it is finished."""
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
    """Return a digest of the restart data at a step; None of a model that has none."""
    key = Key(Kind.RESTART, step)
    hasher = xxhash.xxh3_128()
    try:
        for data in model.dump(key):
            hasher.update(data)
    except UnsupportedKind:
        return None
    return hasher.hexdigest()


def _slope(model: Model, gradient: Controls, direction: Controls, comm: Comm) -> float:
    """Return <gradient, direction> over all ranks; not a number where it is not finite."""
    with np.errstate(invalid="ignore"):  # such a gradient is not verified, no more
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
    """Return the random generator of the direction in each control.

    A control that all ranks share gets the same direction on each, on any number of ranks. Parts
    of a control get directions of their own: with the same one, what two parts contribute to the
    functional could cancel, so that a wrong gradient would seem right.
    """
    parts = _is_part(model, comm)
    return [
        np.random.default_rng([seed, number, comm.rank] if part and comm.rank else [seed, number])
        for number, part in enumerate(parts)
    ]


def _is_part(model: Differentiable, comm: Comm) -> list[bool]:
    """Return of each control whether this rank has a part of it, and not the whole.

    A model that puts parts together says so by the shape of the whole. Otherwise controls are
    shared if they are equal on all ranks, to the last bit.
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
    """Draw a direction, in each control as large as its root mean square (1 where that is 0)."""
    if not control:
        raise BadInput("check_gradient: the model has no controls; there is nothing to check")
    direction = {}
    for random, (name, array) in zip(generators, control.items(), strict=False):
        if not np.issubdtype(array.dtype, np.floating):
            raise BadInput(f"check_gradient: control {name!r} is {array.dtype}, not real numbers")
        if name not in gradient or gradient[name].shape != array.shape:
            raise BadInput(f"check_gradient: the gradient has no {name!r} of shape {array.shape}")
        size = math.sqrt(float(np.mean(np.square(array, dtype=np.float64)))) or 1.0
        direction[name] = size * random.standard_normal(array.shape)
    return direction


def _rate(whole: float, half: float) -> float:
    if not whole or not half:
        return -math.inf if half else math.inf
    return math.log2(whole / half)


def _verdict(
    remainders: tuple[float, ...], rates: tuple[float, ...], *, rounding: float, change: float
) -> bool:
    """Return the verdict; `change` is the gradient's prediction for the largest h."""
    if not all(math.isfinite(r) for r in remainders):
        return False
    least = ABOVE_ROUNDING * rounding
    counted = [rate for r, rate in zip(remainders, rates, strict=False) if r > least]
    if counted:
        return counted[-1] >= SECOND_ORDER and not _diverges(counted)
    return abs(change) > least


def _diverges(rates: list[float]) -> bool:
    """Return whether rates leave 2 for more, ever faster.

    Those of a right gradient come nearer to 2 as h falls. A small error of the gradient against the
    curvature, R(h) = |a h² - b h|, first makes them grow, and then falls to first order.

    >>> _diverges([2.08, 2.17, 2.41]), _diverges([2.4, 2.2, 2.1])
    (True, False)
    """
    if len(rates) < 2:
        return False
    before, last = rates[-2] - 2, rates[-1] - 2
    return last > 2 - SECOND_ORDER and last > 1.5 * before > 0
