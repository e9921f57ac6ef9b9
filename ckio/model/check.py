"""Test a model on its first steps: checkpoints, steps that are computed again, and derivatives.

A gradient by checkpoints is right if a few properties of single steps hold, and each is tested
alone, so that a fault is found at one step and in one array. The derivative of a step F is tested
by the dot-product test: for random w and d, <F'(x)ᵀ w, d> by the adjoint step equals <w, F'(x) d>
by central differences (F(x + h d) - F(x - h d)) / 2h. With d in one array and w in another, it
tests one term of the adjoint.
"""

import math
import pickle
import random
import re
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np
import xxhash
from numpy.typing import NDArray

from ckio.actions import Key, Kind
from ckio.errors import BadInput, RunFailed, UnsupportedKind
from ckio.model import Differentiable, as_bytes, functional_of, layout_of, reached
from ckio.model.arrays import is_differentiable
from ckio.model.gradient import UNCHANGED
from ckio.platform.readable import Printed, Sheet

Arrays = dict[str, NDArray[Any]]

CHECKS: Final = ("steps", "checkpoints", "controls", "adjoint", "derivative", "gradient")
"""What is tested, in this order. If a test fails, those after it are left out."""

NO_FUNCTION: Final = (
    "a step has to be a function of the state and the controls; perhaps an array is missing in the"
    " state, or the step draws random numbers, counts its calls, or swaps pointers"
)

_MOST: Final = 12
"""The most faults, and rows of derivatives, that are printed."""

_DISTANCES: Final = tuple(8.0**-k for k in range(1, 7))
"""Distances h of the differences, for directions as large as the values themselves."""


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong: one of CHECKS, the step and the array where it shows ("" if unknown)."""

    check: str
    step: int
    array: str
    reason: str

    def __str__(self) -> str:
        return self.reason


@dataclass(frozen=True, slots=True)
class Derivative:
    """The derivative of one array after a step by one array before it, in two ways.

    Attributes
    ----------
    steps : (int, int)
        The first step, and the one after the last.
    of, by : str
        An array after these steps, or J; and an array before them, or a control.
    forward, adjoint : float
        <w, F'(x) d> by differences, and <F'(x)ᵀ w, d> by the adjoint.
    accuracy : float
        How much the two may differ.
    """

    steps: tuple[int, int]
    of: str
    by: str
    forward: float
    adjoint: float
    accuracy: float

    @property
    def is_right(self) -> bool:
        return abs(self.forward - self.adjoint) <= self.accuracy

    def _ratio(self) -> float:
        return abs(self.forward - self.adjoint) / (self.accuracy or 1.0)

    def _row(self) -> list[str]:
        begin, end = self.steps
        span = f"step {begin}" if end == begin + 1 else f"steps {begin}-{end - 1}"
        error = abs(self.forward - self.adjoint)
        figures = (self.forward, self.adjoint, error)
        return [f"{self.of} by {self.by}, {span}", *(f"{it:.3e}" for it in figures)]


@dataclass(frozen=True, slots=True)
class ModelCheck(Printed):
    """The result of `check_model`.

    Attributes
    ----------
    steps : int
        The number of steps that were run.
    faults : tuple of Fault
        What is wrong, the earliest step first.
    untested : tuple of str
        What could not be tested, with reasons.
    derivatives : tuple of Derivative
        All comparisons of derivatives.
    """

    steps: int
    faults: tuple[Fault, ...]
    untested: tuple[str, ...]
    derivatives: tuple[Derivative, ...]

    @property
    def verified(self) -> bool:
        """Whether everything was tested, and is right."""
        return not self.faults and not self.untested

    def summary(self) -> str:
        """Return the verdict in one line."""
        if self.faults:
            return f"WRONG: {self.faults[0].reason}"
        if self.untested:
            return f"no fault in {self.steps} steps, but not all was tested"
        return f"verified in {self.steps} steps"

    def _sheet(self) -> Sheet:
        worst: dict[object, Derivative] = {}
        for it in sorted(self.derivatives, key=Derivative._ratio, reverse=True):
            whole = it.steps[1] - it.steps[0] > 1
            worst.setdefault(it if not it.is_right else (it.steps, it.by * whole), it)
        rows = sorted(worst.values(), key=lambda it: (it.is_right, it.steps))[:_MOST]
        header = ["derivative", "by differences", "by the adjoint", "difference"]
        notes = [f"also: {fault}" for fault in self.faults[1:_MOST]]
        notes += [f"not tested: {reason}" for reason in self.untested]
        return Sheet(self.summary(), header, [it._row() for it in rows], notes)


def check_model(make: Callable[[], Any], /, *, steps: int = 5, seed: int = 0) -> ModelCheck:
    """Test a model on its first steps, without a level or a plan.

    Parameters
    ----------
    make : callable
        Returns a fresh model; all must be equal. Use a small grid: each control takes about a dozen
        models and runs, and each array of the state three dozen steps.
    steps : int
        The number of steps. All are computed again. The derivatives of the first two and of the
        last are tested, and those of the others if the gradient of all steps is wrong.
    seed : int
        The seed of the random directions.

    Raises
    ------
    BadInput
        If steps < 1, or the model's arrays are not in the memory of the host.
    """
    if steps < 1:
        raise BadInput(f"check: steps = {steps}; it must be at least 1")
    check = _Check(make, seed)
    with np.errstate(all="ignore"):
        check.run(steps)
    faults, untested = sorted(check.faults, key=lambda it: it.step), dict.fromkeys(check.untested)
    return ModelCheck(
        len(check.states) - 1, tuple(faults), tuple(untested), tuple(check.derivatives)
    )


class _Check:
    """The tests, and what they found so far.

    Attributes
    ----------
    states : list of dict
        The restart data x_0, x_1, ... of a run from the start.
    around : list of dict
        After each step of that run, digests of the data outside the state.
    """

    def __init__(self, make: Callable[[], Any], seed: int) -> None:
        self.make, self.seed = make, seed
        self.faults: list[Fault] = []
        self.untested: list[str] = []
        self.derivatives: list[Derivative] = []
        self.states: list[Arrays] = []
        self.around: list[dict[str, bytes]] = []
        self.at = ("steps", 0)

    def run(self, steps: int) -> None:
        n = steps
        for test in (self._forward, self._again, self._adjoints, self._derivatives, self._gradient):
            try:
                test(range(n))
            except _Found:
                return
            except Exception as error:  # the methods of the model may raise anything
                notes = " ".join(getattr(error, "__notes__", ()))
                text = f"{type(error).__name__}: {error} {notes}".strip()
                self._fault("", f"step {self.at[1]} ({self.at[0]}) raises {text}")
            if self.faults:
                return
            n = len(self.states) - 1

    def _fault(self, array: str, reason: str) -> None:
        self.faults.append(Fault(*self.at, array, reason))

    def _compare(self, found: Arrays, right: Arrays, what: str, rerun: Any = None) -> None:
        """Report all arrays that differ, and raise _Found; `rerun` is a model that ran a step."""
        wrong = [name for name, array in right.items() if _bits(array) != _bits(found.get(name))]
        why = self._no_function(rerun) if wrong and rerun is not None else ""
        for name in wrong:
            apart = _distance(found.get(name), right[name])
            if why and apart <= 64 * _eps(right[name]):
                why = "equal up to rounding: perhaps threads add in another order each time"
            size = f" (by {apart:.1e} of its size)" if math.isfinite(apart) else ""
            self._fault(name, f"{name!r} {what}{size}{why and f'; {why}'}")
        if wrong:
            raise _Found

    def _no_function(self, model: Any) -> str:
        """Return why a step may give another result, with what differs outside of the state."""
        before, now = self.around[self.at[1]], _surroundings(model)
        hidden = [name for name, digest in now.items() if digest != before.get(name, digest)]
        return NO_FUNCTION + (f"; outside of it, {', '.join(hidden)} differ" if hidden else "")

    def _stay(self, model: Any, control: Arrays, where: str) -> None:
        """Report the controls that a method has changed."""
        before, self.at = self.at, ("controls", self.at[1])
        now = _controls(model)
        self._compare(now, {n: a for n, a in control.items() if n in now}, f"is changed by {where}")
        self.at = before

    # Steps and checkpoints

    def _forward(self, steps: Sequence[int]) -> None:
        """Run from the start. All later tests compare with these states."""
        model = self.make()
        if getattr(model, "space", None) is not None:
            raise BadInput("check: the model's arrays are on a device; check it on the CPU")
        self.states.append(_save(model, Key(Kind.RESTART, 0)))
        controls = [_controls(model)]
        for i in steps:
            self.at = ("steps", i)
            if reached("advance", model.advance(i, i + 1), i, i + 1) == i:
                break
            self.states.append(_save(model, Key(Kind.RESTART, i + 1)))
            self.around.append(_surroundings(model))
            controls.append(_controls(model))
        if len(self.states) == 1:
            raise RunFailed("the model has finished at x_0; there is no step to check")
        self.at = ("steps", 0)
        if all(map(_same, self.states, self.states[1:])):
            self._fault("", f"{UNCHANGED}; or `dump` returns an old copy")
            raise _Found
        self._compare(
            _save(self.make(), Key(Kind.RESTART, 0)), self.states[0], "of x_0 differs in a new"
            " model: all models that are made must be equal",
        )  # fmt: skip
        for i, (before, now) in enumerate(pairwise(controls)):
            self.at = ("controls", i)
            self._compare(now, before, f"is changed by step {i}")
        self.at = ("steps", 0)
        finest = min(map(_eps, controls[0].values()), default=1.0)
        if "J" in self.states[0] and _eps(self.states[0]["J"]) > finest:
            self._fault("J", f"'J' is summed in {self.states[0]['J'].dtype}, and a control is more"
                        " precise: small parts of the sum are lost; make J float64")  # fmt: skip

    def _again(self, steps: Sequence[int]) -> None:
        """Run each step again in another model, the last step first, from its checkpoint."""
        model = self.make()
        control = _controls(model)
        for i in reversed(steps):
            key, after = Key(Kind.RESTART, i), self.states[i + 1]
            self.at = ("checkpoints", i)
            _load(model, key, self.states[i])
            self._compare(_save(model, key), self.states[i], f"of x_{i} is not what was loaded")
            with suppress(_Interrupted), model.load(key, layout_of(model, key)) as buffers:
                for buffer in buffers:
                    buffer[:] = b"\x55" * len(buffer)
                raise _Interrupted
            self._compare(
                _save(model, key), self.states[i], "changes if a load fails: `load` has to fill"
                " other memory, and to adopt it at its end",
            )  # fmt: skip
            self.at = ("steps", i)
            for again in ("from its checkpoint", "twice from one state"):
                _load(model, key, self.states[i])
                model.advance(i, i + 1)
                found = _save(model, Key(Kind.RESTART, i + 1))
                self._compare(found, after, f"differs if step {i} runs {again}", model)
            _load(model, key, self.states[i])
            reached("record", model.record(i, i + 1), i, i + 1)
            found = _save(model, Key(Kind.RESTART, i + 1))
            self._compare(found, after, f"after `record` of step {i} is not as after `advance`")
            self._stay(model, control, f"step {i}")

    def _adjoints(self, steps: Sequence[int]) -> None:
        """Reverse steps twice, from a stored tape, and look what else changes."""
        model = self.make()
        control = _controls(model)
        for i in _some(steps):
            self.at = ("adjoint", i)
            if (seed := self._random_adjoint(model, i + 1)) is None:
                return
            right = self._reverse(model, i, seed)
            self._stay(model, control, f"the adjoint of step {i}")
            kept = {n: a for n, a in self.states[i + 1].items() if n not in _overwritten(model)}
            found = _save(model, Key(Kind.RESTART, i + 1))
            self._compare(found, kept, f"of the state is changed by the adjoint of step {i}")
            again = self._reverse(model, i, seed)
            self._compare(again, right, f"differs if step {i} is reversed twice")
            _load(model, Key(Kind.ADJOINT, i), right)
            found = _save(model, Key(Kind.ADJOINT, i))
            self._compare(found, right, f"of the adjoint at {i} is not what was loaded")
            try:
                tape = self._tape(model, i)
            except UnsupportedKind:
                tape = None
            if tape is not None:
                for name in tape.keys() & self.states[i].keys():
                    if _eps(tape[name]) > _eps(self.states[i][name]):
                        kinds = f"{tape[name].dtype} on the tape, {self.states[i][name].dtype} in"
                        self._fault(name, f"{name!r} is {kinds} the state: its adjoint is inexact")
                _load(model, Key(Kind.TAPE, i), tape)
                _load(model, Key(Kind.RESTART, 0), self.states[0])
                model.advance(0, 1)  # the adjoint must not depend on the state
                found = _save(model, Key(Kind.TAPE, i))
                self._compare(found, tape, f"of the tape of step {i} is not what was loaded")
                _load(model, Key(Kind.ADJOINT, i + 1), seed)
                model.reverse(i, i + 1)
                found = _save(model, Key(Kind.ADJOINT, i))
                self._compare(found, right, f"differs if step {i} is reversed from a stored tape,"
                              " in another state: the tape does not have all that it reads")  # fmt: skip
            _load(model, Key(Kind.RESTART, i), self.states[i])
            model.advance(i, i + 1)
            found = _save(model, Key(Kind.RESTART, i + 1))
            self._compare(found, self.states[i + 1], f"differs if step {i} runs after its adjoint")

    def _random_adjoint(self, model: Any, step: int) -> Arrays | None:
        """Return random contents of an adjoint checkpoint; None if the model has none."""
        try:
            layout = layout_of(model, Key(Kind.ADJOINT, step))
        except UnsupportedKind:
            self.untested.append("the adjoint of single steps: the model has no adjoint checkpoint")
            return None
        arrays = {it.name: np.zeros(it.shape, it.dtype) for it in layout}
        return {n: self._random(n, a).astype(a.dtype) for n, a in arrays.items()}

    def _random(self, name: str, like: NDArray[Any], *, size: float = 1.0) -> NDArray[Any]:
        """Return random numbers of an array's shape, complex if it is; 0 for other types."""
        draw = np.random.default_rng([self.seed, *name.encode()])
        if not is_differentiable(like):
            return np.zeros(like.shape, like.dtype)
        size = 2.0 ** round(math.log2(size))  # with few digits, x + h d is exact in single precision
        values: NDArray[Any] = size / 64 * np.round(64 * draw.standard_normal(like.shape))
        if np.iscomplexobj(like):
            values = values + 1j * size / 64 * np.round(64 * draw.standard_normal(like.shape))
        return values

    def _reverse(self, model: Any, i: int, seed: Arrays) -> Arrays:
        """Return the adjoint before step i, for a given one after it."""
        _load(model, Key(Kind.RESTART, i), self.states[i])
        model.record(i, i + 1)
        _load(model, Key(Kind.ADJOINT, i + 1), seed)
        model.reverse(i, i + 1)
        return _save(model, Key(Kind.ADJOINT, i))

    def _tape(self, model: Any, i: int) -> Arrays:
        _load(model, Key(Kind.RESTART, i), self.states[i])
        model.record(i, i + 1)
        return _save(model, Key(Kind.TAPE, i))

    # Derivatives

    def _derivatives(self, steps: Sequence[int]) -> None:
        for i in _some(steps):
            self._derivative(i)

    def _derivative(self, i: int) -> None:
        """Compare all terms of the derivative of one step."""
        self.at = ("derivative", i)
        model = self.make()
        if (zeros := self._random_adjoint(model, i + 1)) is None:
            return
        zeros = {name: np.zeros_like(array) for name, array in zeros.items()}
        state, after, control = self.states[i], self.states[i + 1], _controls(model)
        bars, gradients, others = _pairs(list(zeros), list(state), list(model.control))
        if lost := [n for n, a in state.items() if is_differentiable(a) and n not in bars]:
            self.untested.append(f"the adjoint of {lost} alone: {list(zeros)} has no such names")
        inputs = {n: a for n, a in state.items() if n in bars and is_differentiable(a)}
        by_control = (
            list(model.control) if not i else [n for n in gradients if not others and n in control]
        )
        directions = {name: self._direction(name, i) for name in inputs}
        directions |= {
            f"control {n}": self._random(n, a, size=_size(a))
            for n in by_control
            if is_differentiable(a := model.control[n])
        }
        tangents = {}
        for by, d in directions.items():
            run = self._of_control if by not in inputs else self._of_state
            tangents[by] = _tangents(lambda h, run=run, by=by, d=d: run(i, by, h * d))  # type: ignore[misc]

        def back(seed: Arrays) -> Arrays:
            found = self._reverse(model, i, zeros | seed)
            results = {n: found[bars[n]] for n in inputs}
            for n in by_control:
                results[f"control {n}"] = np.array(found[gradients[n]] if i else model.gradient[n])
            return results

        base = back({})  # not zero, if the adjoint takes adjoint["J"] to be 1
        for of in (name for name in after if name in bars and is_differentiable(after[name])):
            w = np.ones_like(after[of]) if of == "J" else self._random(f"w{of}", after[of])
            w = np.where(_moving(self.states, of), w, 0) if of != "J" else w
            adjoint = back({bars[of]: w.astype(zeros[bars[of]].dtype)})
            if of != "J":
                adjoint = {by: array - base[by] for by, array in adjoint.items()}
            whole_of = max((_norm(t[of][0]) for t in tangents.values() if of in t), default=0.0)
            for by, d in directions.items():
                if of in tangents[by]:
                    tangent, error = tangents[by][of]
                    self._judge((i, i + 1), of, by, (w, tangent, error), (adjoint[by], d), whole_of)

    def _direction(self, name: str, i: int) -> NDArray[Any]:
        """Return a direction for an array of the state, in the elements that steps change.

        Elements that stay, such as walls and land, may be outside of what the model defines.
        """
        array = self.states[i][name]
        size = _size(array, self.states[i + 1][name])
        return np.where(_moving(self.states, name), self._random(name, array, size=size), 0)

    def _of_state(self, i: int, by: str, change: NDArray[Any]) -> Arrays:
        model = self._shared
        state = self.states[i]
        changed = {by: (state[by] + change).astype(state[by].dtype)}
        _load(model, Key(Kind.RESTART, i), state | changed)
        return self._step(model, i)

    def _of_control(self, i: int, by: str, change: NDArray[Any]) -> Arrays:
        model = self.make()
        _change(model, by.removeprefix("control "), change)
        if i:
            _load(model, Key(Kind.RESTART, i), self.states[i])
        return self._step(model, i)

    def _step(self, model: Any, i: int) -> Arrays:
        reached("advance", model.advance(i, i + 1), i + 1, i + 1)
        return _save(model, Key(Kind.RESTART, i + 1))

    @property
    def _shared(self) -> Any:
        """One model for all steps from changed states."""
        if not hasattr(self, "_model"):
            self._model = self.make()
        return self._model

    def _judge(
        self,
        steps: tuple[int, int],
        of: str,
        by: str,
        forward: tuple[Any, Any, float],
        adjoint: tuple[Any, Any],
        whole: float,
    ) -> None:
        """Compare <w, F' d> with <F'ᵀ w, d>; `whole` is the size of the largest such term."""
        (w, tangent, error), (bar, d) = forward, adjoint
        eps = max(map(_eps, (*self.states[0].values(), np.asarray(bar), np.asarray(w))))
        t, a = _dot(w, tangent), _dot(bar, d)
        terms = _norm(tangent) + _norm(np.asarray(bar) * d)
        accuracy = 4 * error + eps * (256 * terms + 16 * whole)
        found = Derivative(steps, of, by, t, a, accuracy)
        self.derivatives.append(found)
        if not found.is_right:
            text = f"by differences {t:.6g}, by the adjoint {a:.6g}"
            if np.iscomplexobj(d) or np.iscomplexobj(w):
                pair = _dot(np.conj(w), tangent), _dot(np.conj(bar), d)
                text += "; it is the complex conjugate of the right one" * (
                    abs(pair[0] - pair[1]) <= accuracy
                )
            self._fault(by, f"the derivative of {of} by {by} is wrong in {_row_span(steps)}: {text}")
        elif accuracy > max(0.02 * _norm(tangent), 1e3 * eps * whole) and terms:
            self.untested.append(
                f"the derivative of {of} by {by} in {_row_span(steps)}: differences are accurate to"
                f" {accuracy:.1e} of {_norm(tangent):.1e} only, because a part is computed in lower"
                " precision, or has no derivative there"
            )

    # The gradient of all steps

    def _gradient(self, steps: Sequence[int]) -> None:
        """Compare the gradient of all steps; if it is wrong, find where."""
        n = len(steps)
        self.at = ("gradient", n)
        whole, stepwise = self._gradient_of(n), self._stepwise(n)
        self._compare(stepwise, whole, "in the gradient depends on the checkpoints")
        tested = bool(self.derivatives)
        self._compare_gradient(n, whole)
        if not self.faults:
            return
        if not tested:
            for m in range(1, n):
                self.at = ("gradient", m)
                self._compare_gradient(m, self._gradient_of(m))
            return
        found = self.faults
        self.faults = []
        for i in set(steps) - set(_some(steps)):
            self._derivative(i)
        if not self.faults:
            self._seed(n - 1)
        if not self.faults:
            self.faults = [
                Fault(it.check, it.step, it.array, f"{it.reason}; single steps and J at the end are"
                      " right: look at `start` and `adjoint_start`")  # fmt: skip
                for it in found
            ]

    def _gradient_of(self, n: int) -> Arrays:
        model = self.make()
        reached("record", model.record(0, n), n, n)
        model.reverse(0, n)
        return {name: np.array(array) for name, array in model.gradient.items()}

    def _stepwise(self, n: int) -> Arrays:
        """Return the gradient, with every step recorded and reversed alone."""
        model = self.make()
        model.advance(0, n)
        for i in reversed(range(n)):
            _load(model, Key(Kind.RESTART, i), self.states[i])
            model.record(i, i + 1)
            model.reverse(i, i + 1)
        return {name: np.array(array) for name, array in model.gradient.items()}

    def _compare_gradient(self, n: int, gradient: Arrays) -> None:
        for name, array in self.make().control.items():
            if name not in gradient or gradient[name].shape != array.shape:
                self._fault(name, f"the gradient has no {name!r} of shape {array.shape}")
                continue
            d = self._random(name, array, size=_size(array))

            def run(h: float, name: str = name, d: NDArray[Any] = d) -> Arrays:
                model = self.make()
                _change(model, name, h * d)
                reached("advance", model.advance(0, n), n, n)
                return {"J": np.array(float(functional_of(model)))}

            if "J" in (found := _tangents(run)):
                one = np.ones(()), *found["J"]
                self._judge((0, n), "J", f"control {name}", one, (gradient[name], d), 0.0)

    def _seed(self, i: int) -> None:
        """Compare J, after one more step, with the adjoint that starts there."""
        self.at = ("gradient", i + 1)
        model = self.make()
        _load(model, Key(Kind.RESTART, i), self.states[i])
        model.record(i, i + 1)
        model.reverse(i, i + 1)
        found = _save(model, Key(Kind.ADJOINT, i))
        bars, _, _ = _pairs(list(found), list(self.states[i]), list(model.control))
        for by in (n for n in bars if is_differentiable(self.states[i][n])):
            d = self._direction(by, i)

            def run(h: float, by: str = by, d: NDArray[Any] = d) -> Arrays:
                model = self.make()
                changed = {by: (self.states[i][by] + h * d).astype(self.states[i][by].dtype)}
                _load(model, Key(Kind.RESTART, i), self.states[i] | changed)
                model.advance(i, i + 1)
                return {"J": np.array(float(functional_of(model)))}

            if "J" in (tangent := _tangents(run)):
                one = np.ones(()), *tangent["J"]
                self._judge((i, i + 1), "J at the end", by, one, (found[bars[by]], d), 0.0)


class _Interrupted(Exception):
    """Raised in place of an error while a checkpoint is read."""


class _Found(Exception):
    """Raised when a fault was found that later tests would only repeat."""


def _some(steps: Sequence[int]) -> list[int]:
    """Return the steps whose derivatives are tested: the first two are often special."""
    return sorted({*steps[:2], steps[-1]})


def _save(model: Differentiable, key: Key) -> Arrays:
    """Return copies of the arrays of a checkpoint."""
    layout = layout_of(model, key)
    return {
        field.name: np.ndarray(field.shape, field.dtype, bytearray(data))
        for field, data in zip(layout, model.dump(key), strict=True)
    }


def _load(model: Differentiable, key: Key, arrays: Arrays) -> None:
    with model.load(key, layout_of(model, key)) as buffers:
        for buffer, array in zip(buffers, arrays.values(), strict=True):
            buffer[:] = as_bytes(np.ascontiguousarray(array))


def _controls(model: Differentiable) -> Arrays:
    """Return copies of the controls, except those whose memory is the state itself."""
    state = [np.frombuffer(data, np.uint8) for data in model.dump(Key(Kind.RESTART, 0))]
    return {
        name: np.array(array)
        for name, array in model.control.items()
        if not any(np.may_share_memory(np.asarray(array), data) for data in state)
    }


def _change(model: Differentiable, name: str, change: NDArray[Any]) -> None:
    control: Any = model.control[name]
    control[...] = control + change


def _overwritten(model: Any) -> frozenset[str]:
    """Return the arrays of the state that adjoint steps are declared to overwrite."""
    variables = getattr(model, "variables", None)
    if variables is None:
        return frozenset()
    return frozenset().union(*(it.reverse.out | it.restored for it in variables.different))


def _pairs(
    fields: list[str], state: list[str], control: list[str]
) -> tuple[dict[str, str], dict[str, str], list[str]]:
    """Find, by name, the adjoint of each array and the gradient of each control.

    >>> _pairs(["adjoint_u", "adjoint_J", "gradient_u", "functional"], ["u", "J"], ["u"])
    ({'u': 'adjoint_u', 'J': 'adjoint_J'}, {'u': 'gradient_u'}, [])
    >>> _pairs(["J", "bar.x.u", "bar.k", "of_map"], ["x.u"], ["x.u", "k"])
    ({'x.u': 'bar.x.u'}, {'k': 'bar.k'}, ['of_map'])
    """
    bars, gradients, others = dict[str, str](), dict[str, str](), list[str]()
    for field in sorted(fields, key=lambda it: it in state):  # `adjoint J` before a J alone
        names = [(state, bars), (control, gradients)]
        for known, into in names[::-1] if field.startswith("grad") else names:
            ends = [n for n in known if n not in into and _ends_with(field, n)]
            if ends:
                into[max(ends, key=len)] = field
                break
        else:
            others.append(field)
    return bars, gradients, [it for it in others if "functional" not in it and it != "J"]


def _ends_with(field: str, name: str) -> bool:
    before = field.removesuffix(name)
    return field.endswith(name) and not before[-1:].isalnum() and "functional" not in before


def _tangents(run: Callable[[float], Arrays]) -> dict[str, tuple[NDArray[Any], float]]:
    """Return the derivative of each array that `run(h)` returns, at h = 0, with its error.

    An error is of order h² until rounding prevails, which grows as 1/h: the distance is taken at
    which neighbouring results agree best.
    """
    found: list[dict[str, tuple[NDArray[Any], float]]] = []
    for h in _DISTANCES:
        try:
            plus, minus = run(h), run(-h)
        except Exception:  # the step may refuse values that are too far away
            found.append({})
            continue
        found.append({name: _quotient(plus[name], minus[name], h) for name in plus})
    best: dict[str, tuple[NDArray[Any], float]] = {}
    for wide, middle, narrow in zip(found, found[1:], found[2:], strict=False):
        for name in wide.keys() & middle.keys() & narrow.keys():
            tangent, rounding = middle[name]
            error = _norm(tangent - narrow[name][0]) + _norm(wide[name][0] - tangent) / 63
            error += rounding
            if math.isfinite(error) and (name not in best or error < best[name][1]):
                best[name] = tangent, error
    return best


def _quotient(plus: NDArray[Any], minus: NDArray[Any], h: float) -> tuple[NDArray[Any], float]:
    """Return a central difference, and its rounding error."""
    wide = np.result_type(plus, np.float64) if is_differentiable(plus) else np.float64
    difference = (plus.astype(wide) - minus.astype(wide)) / (2 * h)
    if not np.any(difference):
        return difference, 0.0
    return difference, _eps(plus) * _norm(plus) / h


def _dot(one: Any, other: Any) -> float:
    """Return the real inner product. That of complex numbers has a conjugate in it."""
    return float(np.sum(np.real(np.conj(one) * other)))


def _norm(array: Any) -> float:
    return float(np.sqrt(np.sum(np.abs(array) ** 2)))


def _eps(array: NDArray[Any]) -> float:
    """Return the relative rounding error of an array's type; 0 for integers."""
    return float(np.finfo(array.dtype).eps) if is_differentiable(array) else 0.0


def _size(*arrays: NDArray[Any]) -> float:
    """Return the largest root mean square of arrays; 1 if it is 0 or infinite."""
    sizes = (_norm(array) / math.sqrt(max(1, array.size)) for array in arrays)
    size = max(sizes)
    return size if 0 < size < math.inf else 1.0


def _moving(states: list[Arrays], name: str) -> Any:
    """Return the elements that some step changes; all, if no step changes any."""
    moved = np.logical_or.reduce([state[name] != states[0][name] for state in states[1:]])
    return moved if np.any(moved) else np.ones_like(moved)


def _same(one: Arrays, other: Arrays) -> bool:
    return all(_bits(array) == _bits(other.get(name)) for name, array in one.items())


def _bits(array: NDArray[Any] | None) -> tuple[Any, ...]:
    return () if array is None else (array.dtype.str, array.shape, array.tobytes())


def _distance(found: NDArray[Any] | None, right: NDArray[Any]) -> float:
    """Return the distance between two arrays, as a part of the size of the second."""
    if found is None or found.shape != right.shape or not is_differentiable(right):
        return math.inf
    return _norm(found - right) / (_norm(right) or 1.0)


def _row_span(steps: tuple[int, int]) -> str:
    begin, end = steps
    return f"step {begin}" if end == begin + 1 else f"{end} steps"


def _surroundings(model: Any) -> dict[str, bytes]:
    """Return digests of data on which steps may depend, and which are not in the state.

    They are the attributes of the model, except those of ckio's classes and the state's arrays;
    the variables of its modules and functions that its own methods name; and the generators of
    random numbers of Python and NumPy.
    """
    values: dict[str, Any] = {"random": random.getstate(), "numpy.random": np.random.get_state()}
    own: set[str] = set()
    for kind in type(model).__mro__:
        for code in (it for it in vars(kind).values() if isinstance(it, types.FunctionType)):
            if re.match(r"ckio\.(?!models\b)", kind.__module__):
                own |= {*code.__code__.co_names}
                continue
            inner = dict(zip(code.__code__.co_freevars, code.__closure__ or (), strict=False))
            values |= {name: cell.cell_contents for name, cell in inner.items()}
            names = code.__code__.co_names
            values |= {n: code.__globals__[n] for n in names if n in code.__globals__}
    state = [np.frombuffer(data, np.uint8) for data in model.dump(Key(Kind.RESTART, 0))]
    for name, value in getattr(model, "__dict__", {}).items():
        array = isinstance(value, np.ndarray)
        if name not in own and not (array and any(np.may_share_memory(value, s) for s in state)):
            values[f"self.{name}"] = value
    return dict(_digests(values))


def _digests(values: Mapping[str, Any]) -> Iterator[tuple[str, bytes]]:
    for name, value in values.items():
        if isinstance(value, type | types.FunctionType | types.ModuleType):
            continue
        with suppress(Exception):  # not everything can be pickled
            yield name, xxhash.xxh3_128_digest(pickle.dumps(value))
