"""The check of a gradient: forward runs with changed controls, compared with the gradient.

Let c be the controls, d a direction in them, and s = <gradient, d> the slope along it. The forward
runs give J(c + t d) for t = 0, ±h, ±h/2, ... A polynomial in t of degree 4, fitted to these values
by least squares, has as its linear coefficient the derivative D of J along d. What the polynomial
leaves over, which is rounding, kinks and higher derivatives, gives the standard error σ of D.

* If |D - s| is more than 15 σ, the gradient is wrong.
* If |D - s| is at most 3 σ, and 15 σ are small beside s, the gradient is verified.
* Otherwise the check is inconclusive: the runs cannot tell a right gradient from a wrong one.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Final, Literal

import numpy as np

from ckio.actions import Key, Kind
from ckio.actions.checks import describe
from ckio.errors import BadInput, RunFailed, UnsupportedKind
from ckio.model import Differentiable, Model, functional_of, layout_of, reached
from ckio.model.comm import SOLO, Comm
from ckio.model.directional import CERTAIN, SIZES, Controls, draw_direction, fit, slope
from ckio.platform.readable import sheet_text

Verdict = Literal["wrong", "inconclusive", "verified"]
VERDICTS: Final[tuple[Verdict, ...]] = ("wrong", "inconclusive", "verified")

AGREES: Final = 3.0
"""The most standard errors by which D and s differ if they agree."""

TOLERANCE: Final = 1e-4
"""The error of D, relative to the slope in each control, below which a gradient is verified.

D and s then agree within 2e-5. An error of 1e-3 in one of 25 steps shows, also in single precision.
"""

ROUNDINGS: Final = 128
"""The tolerance as a multiple of the relative rounding error, if this is more than `TOLERANCE`.

It is more only in dtypes that are coarser than float32: 0.125 in float16.
"""

ITERATIVE: Final = 3e-8
"""The relative error of the slope that the iterative solvers of a right gradient may cause."""

AT_ONCE = 64
"""The number of steps in each call of `advance`, if the model decides when it is finished."""

APART = 8
"""The most controls that are checked one by one if the gradient is not verified."""

FAR: Final = 0.5
"""The largest h: the elements of a control change by up to 3/4 of its size."""


@dataclass(frozen=True, slots=True)
class GradientCheck:
    """The result of a check, for step lengths h that are halved each time.

    Attributes
    ----------
    along : {"verified", "wrong", "inconclusive"}
        The verdict on the gradient along the direction d.
    slope : float
        s = <gradient, d>, the derivative of J along the direction d according to the gradient.
    derivative : float
        D, the same derivative according to the forward runs.
    error : float
        The most by which D can be off. NaN if J is not finite near the controls.
    limit : float
        The largest `error` with which the gradient is verified.
    steps : tuple of float
        The step lengths h, in descending order. If rounding hides the change of J, they begin with
        more and larger ones.
    remainders : tuple of float
        R(h) = |J(c + h d) - J(c) - h s|, for each h, where c are the controls.
    rates : tuple of float
        log2(R(h) / R(h/2)), one less than there are step lengths: 2 for a right gradient, 1 for a
        wrong one, and without meaning where R is as small as the rounding error.
    rounding : float
        The rounding error of J, as measured.
    controls : mapping of str to GradientCheck
        The checks of single controls: of all if the gradient is not verified along the direction,
        and always of those whose gradient is 0, which are not part of the direction.
    functional : float
        J(c) of a forward run.
    """

    along: Verdict
    slope: float
    derivative: float
    error: float
    limit: float
    steps: tuple[float, ...]
    remainders: tuple[float, ...]
    rates: tuple[float, ...]
    rounding: float
    controls: Mapping[str, "GradientCheck"] = field(default_factory=dict)
    functional: float = math.nan

    @property
    def verdict(self) -> Verdict:
        """The verdict on the gradient: the worst one along the direction and of the controls."""
        found = {self.along, *(check.along for check in self.controls.values())}
        return next(verdict for verdict in VERDICTS if verdict in found)

    @property
    def verified(self) -> bool:
        """Whether the gradient is right; false also if the check is inconclusive."""
        return self.verdict == "verified"

    @property
    def reason(self) -> str:
        """The reason for the verdict: that of the control which decides, or of the direction."""
        for name, check in self.controls.items():
            if check.along == self.verdict != self.along:
                return f"{check.along} in {name!r}: {check.reason}"
        return self._reasons()

    def summary(self) -> str:
        """Return the verdict and its reasons in one line."""
        return "; ".join(self._sentences())

    def __str__(self) -> str:
        verdict, *notes = self._sentences()
        rates = ("", *(f"{rate:.2f}" for rate in self.rates))
        rows = [
            [f"{h:.3g}", f"{remainder:.3e}", rate]
            for h, remainder, rate in zip(self.steps, self.remainders, rates, strict=True)
        ]
        return sheet_text(verdict, ["step h", "remainder", "rate"], rows, notes)

    def _reasons(self) -> str:
        if not math.isfinite(self.slope):
            return f"the gradient along the direction is {self.slope}"
        if self.along == "inconclusive":
            return f"the check is inconclusive: {self._doubt()}"
        if not self.slope:
            right = "the gradient is 0, and J does not depend on it"
            wrong = f"the gradient is 0, but J has the slope {self._found()}"
            return right if self.along == "verified" else wrong
        clear = [
            f"{rate:.2f}"
            for rate, half in zip(self.rates, self.remainders[1:], strict=True)
            if half > CERTAIN * self.rounding
        ]
        rates = f"remainder rates {', '.join(clear)} (2 is right)" if clear else "no rates"
        off = abs(self.derivative - self.slope)
        if self.along == "verified":
            return f"{rates}, slope within {(off + self.error) / abs(self.slope):.1e}"
        return f"{rates}, slope wrong by {off / abs(self.slope):.1e}"

    def _doubt(self) -> str:
        """Return why the check is inconclusive."""
        if math.isnan(self.error):
            return f"J is not finite, {self.steps[-SIZES:][0]:.0e} from the controls"
        return (
            f"J has the slope {self._found()} and the gradient {self.slope:.6g}, which is certain"
            f" with ± {self.limit:.0e}; the rounding error of J is {self.rounding:.0e}"
        )

    def _found(self) -> str:
        return f"{self.derivative:.6g} ± {self.error:.0e}"

    def _sentences(self) -> Iterator[str]:
        """Return the verdict with its reasons, the controls that are wrong, and the remedy."""
        yield f"{'verified' if self.verified else 'NOT verified'}: {self._reasons()}"
        together: dict[int, list[str]] = {}  # the controls of each check
        for name, check in self.controls.items():
            together.setdefault(id(check), []).append(name)
        for names in together.values():
            check = self.controls[names[0]]
            if not check.verified or not check.slope:
                word = "right" if check.verified else check.along
                yield f"{word} in {_listed(names)}: {check._reasons()}"  # noqa: SLF001
        right = [name for name, check in self.controls.items() if check.verified and check.slope]
        if right:
            yield f"right in {_listed(right)}"
        if not self.verified:
            yield (
                "`ckio check MODEL` tests each step and its adjoint, and finds the step and the"
                " array that are wrong"
            )


def check_gradient(
    make: Callable[[], Differentiable],
    steps: int | None,
    gradient: Controls,
    /,
    *,
    seed: int = 0,
    halvings: int = 5,
    comm: Comm = SOLO,
) -> GradientCheck:
    """Test a gradient against forward runs, along a random direction d in all controls.

    With the slope s = <gradient, d>, the remainder R(h) = |J(c + h d) - J(c) - h s| is O(h²) for a
    right gradient and O(h) for a wrong one. The verdict depends on the slope D of J itself, from a
    polynomial that is fitted to J(c + t d) at t = 0, ±h, ±h/2, ... The gradient is wrong if D and s
    differ by more than the error of D, and verified if they agree and that error is at most 1e-4 of
    s. Otherwise the check is inconclusive, and the gradient is not verified: if rounding hides the
    change of J, or if J is chaotic or has a kink near the controls and needs more halvings.

    The largest h is ε^(1/5) times the size of a control, where ε is the relative rounding error of
    the coarsest dtype among controls, gradient, restart data, tape and J: the error ε/h by rounding
    is then equal to the error h⁴ by the degree of the polynomial. The rounding error of J is
    measured: it is what the polynomial leaves over, and at least ε |J| / 2.

    Rounding hides the change of J in single precision, or if J hardly depends on a control. Then h
    is doubled, up to 1/2, as long as this makes the error of D smaller.

    On one rank the direction has the signs of the gradient. It is scaled in each control so that
    all contribute about equally to the slope: the error of D is at most 1e-4 of the least part. If
    the gradient is not verified along this direction, each control is checked separately, and of
    more than 8 controls, the others together. A control
    whose gradient is 0 is always checked separately: it is right if J is the same to the last bit,
    also if the control is changed by 1/ε times its size.

    Single elements of a control are not tested: an error in one of them shows if it changes the
    slope along the direction by more than the error of D.

    For example, J(c) = c² at c = 1 has the gradient 2. With d = 1, R(h) = h², so that R(0.1) = 0.01
    and R(0.05) = 0.0025, and the rate is log2(4) = 2. For the wrong gradient 1.5,
    R(h) = 0.5 h + h², so that R(0.1) = 0.06 and R(0.05) = 0.0275, and the rate is 1.13.

    The check takes 2 halvings + 3 forward runs on fresh models, and the memory of one model. It
    takes two more runs for each doubling of h, and three for each control whose gradient is 0. If
    the gradient is not verified, it takes 2 halvings + 2 more for each control.

    Parameters
    ----------
    make : callable
        Returns a fresh model. All models that it returns must be equal.
    steps : int or None
        The number of steps n of a run. With None, each model runs until it finishes itself; the
        number of steps may then depend on the controls.
    gradient : mapping of str to array
        The gradient of J after these steps that is to be tested: one array for each control, with
        the shape of the control. That of a complex control is the direction of steepest ascent, so
        that s is the real part of the sum of conj(gradient) d.
    seed : int
        The seed of the random direction.
    halvings : int
        How often h is halved, at least three times. A chaotic model needs more halvings until J is
        smooth within h.
    comm : Comm, optional
        The ranks, each with its own part of the controls and of the gradient. The gradient of a
        control that is the same on all ranks is the sum of these parts. If several ranks have the
        same part of a control, the model needs a method `gathered(name, array)`, which returns the
        whole array on each rank.

    Returns
    -------
    GradientCheck
        The verdict in `verified`, with the figures on which it is based.

    Raises
    ------
    BadInput
        If the gradient does not fit the controls, if there are no controls, or if halvings < 3.
    RunFailed
        If the model finishes before `steps`, or returns an impossible step.
    """
    if not callable(make):
        raise BadInput(f"check_gradient: {no_factory(make)}")
    if not isinstance(gradient, Mapping):
        raise BadInput(
            f"check_gradient: the gradient is {describe(gradient)}; give a dict with one array for"
            " each control, such as model.gradient"
        )
    if halvings < 3:
        raise BadInput(f"check_gradient: halvings = {halvings}; it must be at least 3")
    model = make()
    alone = comm.size == 1
    direction = draw_direction(model, gradient, seed, comm)
    slopes = {name: slope(model, gradient, {name: d}, comm) for name, d in direction.items()}
    epsilon = max(comm.gather(_epsilon(model, gradient)))
    del model
    runs = _Runs(make, steps)
    start, last = runs.start()
    if isinstance(start, np.floating):
        epsilon = max(epsilon, float(np.finfo(start.dtype).eps))
    test = _SlopeTest(runs, float(start), last, halvings, epsilon, seed, alone)

    moving = sorted((name for name, s in slopes.items() if s), key=lambda name: abs(slopes[name]))
    fixed = [name for name, slope in slopes.items() if not slope]
    if not moving:
        return test.check(direction, slopes)
    check = test.check(direction, {name: slopes[name] for name in moving})
    each: dict[str, GradientCheck] = {}
    if not check.verified and len(moving) > 1:
        for names in _groups(moving):
            found = test.check(direction, {name: slopes[name] for name in names})
            each |= dict.fromkeys(names, found)
        if check.along == "inconclusive" and all(found.verified for found in each.values()):
            check = max(each.values(), key=lambda found: found.error / found.limit)
    for names in _groups(fixed):
        found = test.check_independent({name: direction[name] for name in names})
        each |= dict.fromkeys(names, found)
    return replace(check, controls=each)


def no_factory(make: object, /) -> str:
    """Return a message about something that was given in place of a function."""
    return (
        f"{describe(make)} does not make models; give a class, or a function that returns a new"
        " model"
    )


def _listed(names: Sequence[str]) -> str:
    """Return names as a phrase; of more than two, only the first."""
    more = f"{len(names) - 1} more" if len(names) > 2 else "".join(map(repr, names[1:]))
    return f"{names[0]!r} and {more}" if more else repr(names[0])


def _groups(names: Sequence[str]) -> list[list[str]]:
    """Return the controls that are checked together: one by one, and the others as one group."""
    rest = list(names[APART:])
    return [*([name] for name in names[:APART]), *([rest] if rest else [])]


@dataclass(frozen=True, slots=True)
class _Runs:
    """Forward runs of fresh models, over `steps` steps; None: until they finish themselves."""

    make: Callable[[], Differentiable]
    steps: int | None

    def start(self) -> tuple[float, int]:
        """Return J(c), and the last step."""
        model = self.make()
        last = self._run(model)
        return functional_of(model), last

    def functional(self, change: Controls) -> float:
        """Return J(c + change)."""
        model = self.make()
        control: Controls = model.control
        for name, array in change.items():
            control[name][...] += array
        self._run(model)
        return float(functional_of(model))

    def _run(self, model: Model) -> int:
        """Advance from x_0 to the end, and return the last step."""
        if (end := self.steps) is not None:
            step = reached("advance", model.advance(0, end), 0, end)
            if step < end:
                raise RunFailed(f"check_gradient: the model finished at step {step} of {end}")
            return step
        step, end = 0, AT_ONCE
        while (step := reached("advance", model.advance(step, end), step, end)) == end:
            end += AT_ONCE
        return step


@dataclass(frozen=True, slots=True)
class _SlopeTest:
    """J along straight lines through the controls, and what it says of a gradient.

    Attributes
    ----------
    runs : _Runs
        The forward runs.
    start : float
        J(c).
    last : int
        The number of steps.
    halvings, seed : int
        The arguments of `check_gradient`.
    epsilon : float
        The relative rounding error of the coarsest dtype.
    alone : bool
        Whether there is one rank. On several ranks, a model that fails ends the check, because its
        communicator cannot be used any more; it is then not changed far from its controls.
    """

    runs: _Runs
    start: float
    last: int
    halvings: int
    epsilon: float
    seed: int
    alone: bool

    @property
    def sizes(self) -> tuple[float, ...]:
        """The values of h."""
        return tuple(self.epsilon**0.2 / 2**halving for halving in range(self.halvings + 1))

    def check(self, direction: Controls, slopes: Mapping[str, float]) -> GradientCheck:
        """Check the controls in `slopes` together; the slopes are those along `direction`."""
        scales = self._scales(slopes)
        d = {name: scale * direction[name] for name, scale in scales.items()}
        parts = [scale * slopes[name] for name, scale in scales.items()]

        def values(h: float) -> dict[float, float]:
            return {
                t: self.runs.functional({name: t * array for name, array in d.items()})
                for t in (h, -h)
            }

        known = {t: value for h in self.sizes for t, value in values(h).items()}
        found = self._judge(known, parts)
        while found.verdict == "inconclusive" and self.alone and 2 * (h := found.steps[0]) <= FAR:
            try:
                known |= values(2 * h)
            except Exception:  # so far from its controls, a model can fail in any way
                break
            further = self._judge(known, parts)
            if not further.error < found.error:
                break
            found = further
        return found

    def check_independent(self, direction: Controls) -> GradientCheck:
        """Check controls whose gradient is 0: J must not depend on them at all.

        In coarse dtypes, rounding can hide a small dependence. Therefore a control is changed by
        1/epsilon times its size, so that a part of J of relative size epsilon² would show.
        """
        h, large = self.sizes[0], 1 / self.epsilon
        runs = replace(self.runs, steps=self.last)  # not the steps that such controls could cause
        if self.runs.functional({name: h * d for name, d in direction.items()}) != self.start:
            return self.check(direction, dict.fromkeys(direction, 0.0))
        same = True
        for t in (large, -large):
            try:
                with np.errstate(all="ignore"):
                    value = runs.functional({name: t * d for name, d in direction.items()})
            except Exception:  # a model can fail in any way at such controls: it depends on them
                if not self.alone:
                    raise
                value = math.nan
            same = same and value == self.start
        found = self._judge({t: self.start for h in self.sizes for t in (h, -h)}, [0.0])
        return replace(found, along="verified") if same else found

    def _scales(self, slopes: Mapping[str, float]) -> dict[str, float]:
        """Return factors for the direction, by which all parts of the slope are about equal.

        No factor is larger than 1, and no part is negative. The parts differ at random: if they
        were equal, an error in one control could cancel the opposite error in another one.
        """
        if len(slopes) == 1 or not all(s and math.isfinite(s) for s in slopes.values()):
            return dict.fromkeys(slopes, 1.0)
        random = np.random.default_rng(self.seed).uniform(0.5, 1.0, len(slopes))
        parts = dict(zip(slopes, random.tolist(), strict=True))
        unit = min(abs(slope) / parts[name] for name, slope in slopes.items())
        return {name: unit * parts[name] / slope for name, slope in slopes.items()}

    def _judge(self, values: Mapping[float, float], slopes: Sequence[float]) -> GradientCheck:
        """Compare J(c + t d), by t, with the parts of the slope."""
        slope = sum(slopes)
        found, error, rounding, h = fit(values, self.start, self.epsilon)
        derivative = float(found)
        error += max(ITERATIVE, CERTAIN / 2 * self.epsilon) * abs(slope)
        limit = max(TOLERANCE, ROUNDINGS * self.epsilon) * min(map(abs, slopes))
        # Rounding can make J a staircase, which a fit does not see: all elements of an array may be
        # rounded in the same direction, in each of several operations of each step.
        stairs = 4 * self.epsilon * self.last * abs(self.start) / h
        off = abs(derivative - slope)
        along: Verdict = "inconclusive"
        if not math.isfinite(slope) or (derivative and off > max(error, stairs)):
            along = "wrong"
        elif off <= error * (AGREES / CERTAIN) and error < limit:
            along = "verified"
        sizes = tuple(sorted((t for t in values if t > 0), reverse=True))
        remainders = tuple(abs(values[t] - self.start - t * slope) for t in sizes)
        return GradientCheck(
            along=along,
            slope=slope,
            derivative=derivative,
            error=error,
            limit=limit,
            steps=sizes,
            remainders=remainders,
            rates=tuple(_rate(whole, half) for whole, half in pairwise(remainders)),
            rounding=rounding,
            functional=self.start,
        )


def _epsilon(model: Differentiable, gradient: Controls) -> float:
    """Return the relative rounding error of the coarsest dtype of a model and its gradient."""
    dtypes = [array.dtype for array in (*model.control.values(), *gradient.values())]
    for kind in (Kind.RESTART, Kind.TAPE):
        with suppress(UnsupportedKind):
            dtypes += [np.dtype(each.dtype) for each in layout_of(model, Key(kind, 0))]
    return max(float(np.finfo(dtype).eps) for dtype in dtypes if dtype.kind in "fc")


def _rate(whole: float, half: float) -> float:
    if not whole or not half:
        return -math.inf if half else math.inf
    return math.log2(whole / half)
