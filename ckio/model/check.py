"""Test a model on its first steps: checkpoints, steps that are computed again, and derivatives.

A gradient by checkpoints is right if a few properties of single steps hold. Each is tested alone,
so that a fault is found at one step and in one array. The derivative of a step F is tested by the
dot-product test: for random w and d, <F'(x)ᵀ w, d> by the adjoint step equals <w, F'(x) d> by
central differences (F(x + h d) - F(x - h d)) / 2h. With d in one array and w in another, it tests
one term of the adjoint.
"""

import math
import pickle
import random
import re
import types
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Final

import numpy as np
import xxhash
from numpy.typing import NDArray

from ckio.actions import Key, Kind
from ckio.errors import BadInput, RunFailed, UnsupportedKind
from ckio.model import as_bytes, functional_of, layout_of, reached
from ckio.model.arrays import is_differentiable
from ckio.model.gradient import UNCHANGED
from ckio.platform.readable import Printed, Sheet

Array = NDArray[Any]
Arrays = dict[str, Array]

CHECKS: Final = ("steps", "checkpoints", "controls", "adjoint", "derivative", "gradient")
"""What is tested. If a test fails, later ones that depend on it are left out."""

NO_FUNCTION: Final = (
    "a step has to be a function of the state and the controls; perhaps an array is missing in the"
    " state, or the step draws random numbers, counts its calls, or swaps pointers"
)

_MOST: Final = 12
"""The most faults, and rows of derivatives, that are printed."""

_DISTANCES: Final = tuple(8.0**-k for k in range(1, 7))
"""Distances h of the differences, for directions as large as the values themselves."""

_CONTROL: Final = "control "
"""Prefix of the names of controls, because an array of the state may have the same name."""


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
    """The derivative of an array after some steps by an array before them, in two ways.

    Attributes
    ----------
    steps : (int, int)
        The first step, and the one after the last.
    of, by : str
        An array after these steps, or J; and an array before them, or "control" and its name.
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
        return abs(self.forward - self.adjoint) <= self.accuracy  # false for NaN


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
            return f"WRONG: {self.faults[0]}"
        left = ", but not all was tested" if self.untested else ""
        return f"{'no fault' if left else 'verified'} in {self.steps} steps{left}"

    def _sheet(self) -> Sheet:
        """Show the derivatives that are wrong, and those of J by the controls."""
        rows = [
            [
                f"{it.of} by {it.by}, {_span(it.steps)}",
                *(f"{x:.3e}" for x in (it.forward, it.adjoint, abs(it.forward - it.adjoint))),
            ]
            for it in self.derivatives
            if not it.is_right or it.steps == (0, self.steps)
        ]
        header = ["derivative", "by differences", "by the adjoint", "difference"]
        notes = [f"also: {fault}" for fault in self.faults[1:_MOST]]
        notes += [f"not tested: {reason}" for reason in self.untested]
        return Sheet(self.summary(), header, rows[:_MOST], notes)


def check_model(make: Callable[[], Any], /, *, steps: int = 5) -> ModelCheck:
    """Test a model on its first steps, without a level or a plan.

    Parameters
    ----------
    make : callable
        Returns a fresh model; all must be equal. Use a small grid: each control takes about a dozen
        models and runs, and each array of the state three dozen steps.
    steps : int
        The number of steps. All are computed again. The derivatives of the first two and of the
        last are tested, and those of the others if the gradient of all steps is wrong.

    Raises
    ------
    BadInput
        If steps < 1, or the model's arrays are not in the memory of the host.
    """
    if steps < 1:
        raise BadInput(f"check: steps = {steps}; it must be at least 1")
    check = _Check(make)
    with np.errstate(all="ignore"):
        check.run(steps)
    faults, untested = sorted(check.faults, key=lambda it: it.step), dict.fromkeys(check.untested)
    n = len(check.states) - 1
    return ModelCheck(n, tuple(faults), tuple(untested), tuple(check.derivatives))


class _Found(Exception):
    """Raised when a fault was found that later tests would only repeat."""


class _Interrupted(Exception):
    """Raised in place of an error while a checkpoint is read."""


class _Check:
    """The tests, and what they found so far.

    Attributes
    ----------
    states : list of dict
        The restart data x_0, x_1, ... of a run from the start.
    around : list of dict
        After each step of that run, digests of the data outside the state.
    live : set of str
        The arrays of the adjoint that are not zero in all steps.
    """

    def __init__(self, make: Callable[[], Any]) -> None:
        self.make = make
        self.faults: list[Fault] = []
        self.untested: list[str] = []
        self.derivatives: list[Derivative] = []
        self.states: list[Arrays] = []
        self.around: list[dict[str, bytes]] = []
        self.live: set[str] = set()
        self.eps = 0.0  # the rounding error of the coarsest type
        self.at = ("steps", 0)

    def run(self, steps: int) -> None:
        tests = self._forward, self._again, self._adjoints, self._derivatives, self._gradient
        for test in tests:
            try:
                test(range(steps))
            except _Found:
                return
            except Exception as error:  # the methods of the model may raise anything
                if isinstance(error, BadInput) and not self.states:
                    raise
                text = " ".join([f"{type(error).__name__}: {error}", *_notes(error)])
                self._fault("", f"step {self.at[1]} ({self.at[0]}) raises {text}")
            if self.faults:
                return
            steps = len(self.states) - 1

    def _fault(self, array: str, reason: str) -> None:
        self.faults.append(Fault(*self.at, array, reason))

    def _compare(self, found: Arrays, right: Arrays, what: str, rerun: Any = None) -> None:
        """Report all arrays that differ, and raise _Found; `rerun` is a model that ran a step."""
        wrong = [name for name, array in right.items() if not _same(array, found.get(name))]
        if not wrong:
            return
        why = "" if rerun is None else f"; {NO_FUNCTION}{self._hidden(rerun)}"
        for name in wrong:
            apart = _apart(found.get(name), right[name])
            if why and apart <= 64 * _eps(right[name]):
                why = "; equal up to rounding: perhaps threads add in another order each time"
            size = f" (by {apart:.1e} of its size)" if math.isfinite(apart) else ""
            self._fault(name, f"{name!r} {what}{size}{why}")
        raise _Found

    def _hidden(self, model: Any) -> str:
        """Return what differs outside of the state after the same step."""
        before, now = self.around[self.at[1]], _surroundings(model)
        hidden = [name for name, digest in now.items() if digest != before.get(name, digest)]
        return f"; outside of it, {', '.join(hidden)} differ" if hidden else ""

    def _rerun(self, model: Any, i: int) -> Arrays:
        """Return the state after step i, from the checkpoint before it."""
        _load(model, Key(Kind.RESTART, i), self.states[i])
        reached("advance", model.advance(i, i + 1), i, i + 1)
        return _save(model, Key(Kind.RESTART, i + 1))

    # Steps, and the checkpoints of states

    def _forward(self, steps: Sequence[int]) -> None:
        """Run from the start. All later tests compare with these states."""
        model = self.make()
        if getattr(model, "estimated", False):
            raise BadInput(
                "check: the checkpoints of a program differ in size, and have no arrays of its"
                " adjoint; check its gradient with check_gradient"
            )
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
        first, *later = self.states
        if all(_same(first[name], x.get(name)) for x in later for name in first):
            self._fault("", f"{UNCHANGED}; or `dump` returns an old copy")
            raise _Found
        what = "of x_0 differs in a new model: all models that are made must be equal"
        self._compare(_save(self.make(), Key(Kind.RESTART, 0)), first, what)
        self.eps = max(map(_eps, (*first.values(), *controls[0].values())))
        finest = min(map(_eps, controls[0].values()), default=1.0)
        if "J" in first and _eps(first["J"]) > finest:
            self._fault("J", f"'J' is summed in {first['J'].dtype}, coarser than a control:"
                        " small parts of the sum are lost; make J float64")  # fmt: skip
        for i, (before, now) in enumerate(pairwise(controls)):
            self.at = ("controls", i)
            self._compare(now, before, f"is changed by step {i}")

    def _again(self, steps: Sequence[int]) -> None:
        """Run each step again in another model, the last step first, from its checkpoint."""
        model = self.make()
        for i in reversed(steps):
            key, state, after = Key(Kind.RESTART, i), self.states[i], self.states[i + 1]
            self.at = ("checkpoints", i)
            _load(model, key, state)
            self._compare(_save(model, key), state, f"of x_{i} is not what was loaded")
            with suppress(_Interrupted), model.load(key, layout_of(model, key)) as buffers:
                for buffer in buffers:
                    buffer[:] = b"\x55" * len(buffer)
                raise _Interrupted
            what = (
                "changes if a load fails: `load` has to fill other memory, and adopt it at its end"
            )
            self._compare(_save(model, key), state, what)
            self.at = ("steps", i)
            for again in ("from its checkpoint", "twice from one state"):
                found = self._rerun(model, i)
                self._compare(found, after, f"differs if step {i} runs {again}", model)
            _load(model, key, state)
            reached("record", model.record(i, i + 1), i, i + 1)
            found = _save(model, Key(Kind.RESTART, i + 1))
            self._compare(found, after, f"after `record` of step {i} is not as after `advance`")

    # The adjoint, and the checkpoints of tapes and adjoints

    def _adjoints(self, steps: Sequence[int]) -> None:
        """Reverse steps twice, and from a stored tape, and see what else changes."""
        model = self.make()
        control = _controls(model)
        for i in _some(steps):
            self.at = ("adjoint", i)
            before, key, end = Key(Kind.ADJOINT, i), Key(Kind.ADJOINT, i + 1), self.states[i + 1]
            if (zeros := self._zeros(model, i + 1)) is None:
                return
            seed = {n: self._random(n, a).astype(a.dtype) for n, a in zeros.items()}
            right = self._reverse(model, i, seed)
            now = _controls(model)
            self.at = ("controls", i)
            self._compare(
                now, {n: control[n] for n in now}, f"is changed by the adjoint of step {i}"
            )
            self.at = ("adjoint", i)
            if not _restores(model):
                found = _save(model, Key(Kind.RESTART, i + 1))
                self._compare(found, end, f"of the state is changed by the adjoint of step {i}")
            self._compare(
                self._reverse(model, i, seed), right, f"differs if step {i} is reversed twice"
            )
            _load(model, before, right)
            self._compare(
                _save(model, before), right, f"of the adjoint at {i} is not what was loaded"
            )
            with suppress(UnsupportedKind):
                tape = self._tape(model, i)
                self._rerun(model, 0)  # the adjoint must not depend on the state
                _load(model, key, seed)
                model.reverse(i, i + 1)
                what = f"differs if step {i} is reversed from a stored tape, in another state: the"
                what += " tape does not have all that it reads"
                self._compare(_save(model, before), right, what)
                for name in tape.keys() & self.states[i].keys():
                    if _eps(tape[name]) > _eps(self.states[i][name]):
                        kinds = f"{tape[name].dtype} on the tape, {self.states[i][name].dtype} in"
                        self._fault(name, f"{name!r} is {kinds} the state: its adjoint is inexact")
            what = f"differs if step {i} runs after its adjoint"
            self._compare(self._rerun(model, i), end, what)

    def _tape(self, model: Any, i: int) -> Arrays:
        """Record a step, run another, and load the tape again."""
        key = Key(Kind.TAPE, i)
        layout_of(model, key)
        _load(model, Key(Kind.RESTART, i), self.states[i])
        model.record(i, i + 1)
        tape = _save(model, key)
        _load(model, Key(Kind.RESTART, 0), self.states[0])
        model.record(0, 1)
        _load(model, key, tape)
        self._rerun(model, 0)
        self._compare(_save(model, key), tape, f"of the tape of step {i} is not what was loaded")
        return tape

    def _zeros(self, model: Any, step: int) -> Arrays | None:
        """Return an adjoint checkpoint of zeros; None if the model has no such checkpoints."""
        try:
            layout = layout_of(model, Key(Kind.ADJOINT, step))
        except UnsupportedKind:
            self.untested.append("the adjoint of single steps: the model has no adjoint checkpoint")
            return None
        return {it.name: np.zeros(it.shape, it.dtype) for it in layout}

    def _reverse(self, model: Any, i: int, seed: Arrays) -> Arrays:
        """Return the adjoint before step i, for a given one after it."""
        _load(model, Key(Kind.RESTART, i), self.states[i])
        model.record(i, i + 1)
        _load(model, Key(Kind.ADJOINT, i + 1), seed)
        model.reverse(i, i + 1)
        return _save(model, Key(Kind.ADJOINT, i))

    # Derivatives

    def _random(self, name: str, like: Array, size: float = 1.0) -> Array:
        """Return random numbers of an array's shape, complex if it is; 0 for other types.

        None is small, which would hide an error in its element. They have few digits, and so has
        the size: x + h d is then exact in single precision, too.
        """
        draw = np.random.default_rng([*name.encode()])
        parts = (
            draw.integers(32, 96, (2, *like.shape)) / 64 * draw.choice([-1, 1], (2, *like.shape))
        )
        if not is_differentiable(like):
            return np.zeros(like.shape)
        values = parts[0] + 1j * parts[1] if np.iscomplexobj(like) else parts[0]
        return np.asarray(2.0 ** round(math.log2(size)) * values)

    def _direction(self, by: str, i: int) -> Array:
        """Return a direction: in a control, or in the elements of the state that steps change.

        Elements that stay, such as walls and land, may be outside of what the model defines.
        """
        if by.startswith(_CONTROL):
            array = self.make().control[by.removeprefix(_CONTROL)]
            return self._random(by, array, _size(array))
        size = _size(self.states[i][by], self.states[i + 1][by])
        return np.where(self._moving(by), self._random(by, self.states[i][by], size), 0)

    def _moving(self, name: str) -> Any:
        """Return the elements that some step changes; all, if no step changes any."""
        first, *later = (state[name] for state in self.states if name in state)
        moved = np.logical_or.reduce([array != first for array in later])
        return moved if np.any(moved) else np.ones_like(moved)

    def _moved(self, model: Any, by: str, change: Array, steps: tuple[int, int]) -> Any:
        """Return the model after these steps, with one array before them or one control changed."""
        begin, end = steps
        state, own = self.states[begin], by.startswith(_CONTROL)
        if own:
            control = model.control[by.removeprefix(_CONTROL)]
            control[...] = control + change
        else:
            state = state | {by: (state[by] + change).astype(state[by].dtype)}
        if begin or not own:
            _load(model, Key(Kind.RESTART, begin), state)
        reached("advance", model.advance(begin, end), end, end)
        return model

    def _derivatives(self, steps: Sequence[int]) -> None:
        self._stepwise(len(steps))
        for i in _some(steps):
            self._derivative(i)

    def _derivative(self, i: int) -> None:
        """Compare all terms of the derivative of one step."""
        self.at = ("derivative", i)
        model, state, after = self.make(), self.states[i], self.states[i + 1]
        if (zeros := self._zeros(model, i + 1)) is None:
            return
        bars, gradients, others = _pairs(zeros, state, model.control)
        if lost := [n for n, a in state.items() if is_differentiable(a) and n not in bars]:
            self.untested.append(f"the adjoint of {lost} alone: {list(zeros)} has no such names")
        # A control acts on x_0 through `start`; later on steps only, unless arrays that no step
        # changes depend on it.
        controls = list(model.control if not i else () if others else gradients)
        every = [n for n in bars if is_differentiable(state[n])]
        every += [_CONTROL + n for n in controls if is_differentiable(model.control[n])]
        directions = {by: self._direction(by, i) for by in every}
        tangents = {}
        for by, d in directions.items():

            def run(h: float, by: str = by, d: Array = d) -> Arrays:
                fresh = self.make() if by.startswith(_CONTROL) else model
                moved = self._moved(fresh, by, h * d, (i, i + 1))
                return _save(moved, Key(Kind.RESTART, i + 1))

            tangents[by] = _tangents(run, self.eps)

        def back(seed: Arrays) -> Arrays:
            found = self._reverse(model, i, zeros | seed)
            by_control = {n: found[gradients[n]] if i else model.gradient[n] for n in controls}
            named = {_CONTROL + n: np.array(array) for n, array in by_control.items()}
            return {n: found[bars[n]] for n in bars} | named

        base = back({})  # not zero, if the adjoint takes adjoint["J"] to be 1
        for of in (n for n in after if bars.get(n) in self.live and is_differentiable(after[n])):
            w = np.where(self._moving(of), self._random(f"w {of}", after[of]), 0)
            w = np.ones_like(after[of]) if of == "J" else w
            adjoint = back({bars[of]: w.astype(zeros[bars[of]].dtype)})
            if of != "J":
                adjoint = {by: array - base[by] for by, array in adjoint.items()}
            whole = max((_norm(t[of][0]) for t in tangents.values() if of in t), default=0.0)
            for by, d in directions.items():
                what = (i, i + 1), of, by
                self._judge(what, (w, tangents[by].get(of)), (adjoint[by], d), whole)

    def _judge(
        self,
        what: tuple[tuple[int, int], str, str],
        forward: tuple[Any, tuple[Array, float] | None],
        adjoint: tuple[Any, Any],
        whole: float = 0.0,
    ) -> None:
        """Compare <w, F' d> with <F'ᵀ w, d>; `whole` is the size of the largest such term."""
        (steps, of, by), (w, difference), (bar, d) = what, forward, adjoint
        about, where = f"the derivative of {of} by {by}", f"in {_span(steps)}"
        if difference is None:
            self.untested.append(f"{about} {where}: the changed steps fail, however near")
            return
        tangent, error = difference
        eps = self.eps
        t, a = _dot(w, tangent), _dot(bar, d)
        terms = _norm(tangent) + _norm(np.asarray(bar) * d)
        accuracy = 4 * error + eps * (256 * terms + 16 * whole)
        if np.size(tangent) == 1:  # results of one number may agree by chance
            accuracy += 12 * error + eps ** (1 / 3) * _norm(tangent)
        found = Derivative(steps, of, by, t, a, accuracy)
        self.derivatives.append(found)
        if not found.is_right:
            text = f"by differences {t:.6g}, by the adjoint {a:.6g}"
            other = _dot(np.conj(w), tangent) - _dot(np.conj(bar), d)
            if (np.iscomplexobj(w) or np.iscomplexobj(d)) and abs(other) <= accuracy:
                text += "; it is the complex conjugate of the right one"
            self._fault(by, f"{about} is wrong {where}: {text}")
        elif terms and accuracy > max(0.05 * _norm(tangent), 1e3 * eps * whole):
            self.untested.append(
                f"{about} {where}: differences are accurate to {accuracy:.1e} of"
                f" {_norm(tangent):.1e} only, because a part is computed in lower precision, or has"
                " no derivative there"
            )

    # The gradient of all steps

    def _gradient(self, steps: Sequence[int]) -> None:
        """Compare the gradient of all steps; if it is wrong, find where."""
        n, tested = len(steps), bool(self.derivatives)
        self.at = ("gradient", n)
        whole = self._gradient_of(n)
        self._compare(self._stepwise(n), whole, "in the gradient depends on the checkpoints")
        self._of_j((0, n), {_CONTROL + name: array for name, array in whole.items()})
        if not (found := self.faults):
            return
        if not tested:  # the first number of steps for which it is wrong
            for m in range(1, n):
                self.at, self.faults = ("gradient", m), []
                self._of_j((0, m), {_CONTROL + c: x for c, x in self._gradient_of(m).items()})
                if self.faults:
                    return
            self.faults = found
            return
        self.faults = []
        for i in set(steps) - set(_some(steps)):
            self._derivative(i)
        if not self.faults:
            self.at = ("gradient", n)
            model = self.make()
            _load(model, Key(Kind.RESTART, n - 1), self.states[n - 1])
            model.record(n - 1, n)
            model.reverse(n - 1, n)
            bar = _save(model, Key(Kind.ADJOINT, n - 1))
            bars, _, _ = _pairs(bar, self.states[n - 1], model.control)
            self._of_j((n - 1, n), {name: bar[bars[name]] for name in bars}, "J at the end")
        if not self.faults:
            more = "; single steps, and J at the end, are right: look at `adjoint_start`"
            self.faults = [replace(it, reason=f"{it.reason}{more}") for it in found]

    def _of_j(self, steps: tuple[int, int], gradient: Arrays, of: str = "J") -> None:
        """Compare dJ by each control, or by each array before the last step."""
        begin = steps[0]
        shapes = {_CONTROL + n: np.shape(array) for n, array in self.make().control.items()}
        for by, array in gradient.items():
            if by in shapes and shapes.pop(by) != array.shape:
                self._fault(by, f"the gradient by {by} has shape {array.shape}, not its control's")
                continue
            d = self._direction(by, begin)

            def run(h: float, by: str = by, d: Array = d) -> Arrays:
                model = self._moved(self.make(), by, h * d, steps)
                return {"J": np.array(float(functional_of(model)))}

            if is_differentiable(array):
                self._judge(
                    (steps, of, by), (np.ones(()), _tangents(run, self.eps).get("J")), (array, d)
                )
        for by in shapes if begin == 0 else ():
            self._fault(by, f"the gradient has nothing for {by}")

    def _gradient_of(self, n: int) -> Arrays:
        model = self.make()
        reached("record", model.record(0, n), n, n)
        model.reverse(0, n)
        return {name: np.array(array) for name, array in model.gradient.items()}

    def _stepwise(self, n: int) -> Arrays:
        """Return the gradient, with every step recorded and reversed alone."""
        model = self.make()
        model.advance(0, n)
        for i in reversed(range(-1, n)):
            with suppress(UnsupportedKind):
                adjoint = _save(model, Key(Kind.ADJOINT, i + 1))
                self.live |= {name for name, array in adjoint.items() if np.any(array)}
            if i >= 0:
                _load(model, Key(Kind.RESTART, i), self.states[i])
                model.record(i, i + 1)
                model.reverse(i, i + 1)
        return {name: np.array(array) for name, array in model.gradient.items()}


def _some(steps: Sequence[int]) -> list[int]:
    """Return the steps whose derivatives are tested: the first two are often special."""
    return sorted({*steps[:2], steps[-1]})


def _notes(error: Exception) -> list[str]:
    return getattr(error, "__notes__", [])


def _save(model: Any, key: Key) -> Arrays:
    """Return copies of the arrays of a checkpoint."""
    layout = layout_of(model, key)
    return {
        field.name: np.ndarray(field.shape, field.dtype, bytearray(data))
        for field, data in zip(layout, model.dump(key), strict=True)
    }


def _load(model: Any, key: Key, arrays: Arrays) -> None:
    with model.load(key, layout_of(model, key)) as buffers:
        for buffer, array in zip(buffers, arrays.values(), strict=True):
            buffer[:] = as_bytes(np.ascontiguousarray(array))


def _is_state(model: Any, array: Any) -> bool:
    """Return whether an array is in the memory of the state."""
    state = [np.frombuffer(data, np.uint8) for data in model.dump(Key(Kind.RESTART, 0))]
    return isinstance(array, np.ndarray) and any(np.may_share_memory(array, x) for x in state)


def _controls(model: Any) -> Arrays:
    """Return copies of the controls, except those that are arrays of the state itself."""
    every = model.control.items()
    return {name: np.array(array) for name, array in every if not _is_state(model, array)}


def _restores(model: Any) -> bool:
    """Return whether adjoint steps are declared to overwrite arrays of the state."""
    variables = getattr(model, "variables", None)
    return variables is not None and any(it.reverse.out | it.restored for it in variables.different)


def _pairs(
    fields: Iterable[str], state: Iterable[str], control: Iterable[str]
) -> tuple[dict[str, str], dict[str, str], list[str]]:
    """Find, by name, the adjoint of each array and the gradient of each control.

    >>> _pairs(["adjoint_u", "adjoint_J", "gradient_u", "functional"], ["u", "J"], ["u"])
    ({'u': 'adjoint_u', 'J': 'adjoint_J'}, {'u': 'gradient_u'}, [])
    >>> _pairs(["J", "bar.x.u", "bar.k", "of_map"], ["x.u"], ["x.u", "k"])
    ({'x.u': 'bar.x.u'}, {'k': 'bar.k'}, ['of_map'])
    """
    bars, gradients, others = dict[str, str](), dict[str, str](), list[str]()
    state, control = list(state), list(control)
    for field in sorted(fields, key=lambda it: it in state):  # `adjoint J` before a J alone
        groups = [(state, bars), (control, gradients)]
        for known, into in groups[::-1] if field.startswith("grad") else groups:
            ends = [
                n
                for n in known
                if n not in into and re.search(rf"(?<![^\W_]){re.escape(n)}$", field)
            ]
            if ends and "functional" not in field.removesuffix(max(ends, key=len)):
                into[max(ends, key=len)] = field
                break
        else:
            others.append(field)
    return bars, gradients, [it for it in others if "functional" not in it and it != "J"]


def _tangents(run: Callable[[float], Arrays], eps: float) -> dict[str, tuple[Array, float]]:
    """Return the derivative of each array that `run(h)` returns, at h = 0, with its error.

    An error is of order h² until rounding prevails, which grows as 1/h: the distance is taken at
    which neighbouring results agree best. Half the difference of the two one-sided quotients is of
    order h, but does not decrease at a kink, where it is a part of the error. If no distance
    changes an array, the rounding at the largest one bounds its derivative.
    """
    found: list[dict[str, tuple[Array, Array, float]]] = []
    start, moved = run(0.0), set[str]()
    for h in _DISTANCES:
        found.append({})
        with suppress(Exception):  # the step may refuse values that are too far away
            plus, minus = run(h), run(-h)
            for name, x in start.items():
                rounding = eps * _norm(plus[name]) / h
                if not _same(x, plus[name]) or not _same(x, minus[name]):
                    moved.add(name)  # at a smaller h, rounding may hide the change
                kind = np.result_type(x, np.float64)
                after, at, before = (it.astype(kind) for it in (plus[name], x, minus[name]))
                bend = after - 2 * at + before
                found[-1][name] = (after - before) / (2 * h), bend / (2 * h), rounding
    best: dict[str, tuple[Array, float]] = {}
    first = {name: rounding for it in reversed(found) for name, (*_, rounding) in it.items()}
    for wide, middle, narrow in zip(found, found[1:], found[2:], strict=False):
        for name in wide.keys() & middle.keys() & narrow.keys():
            tangent, bend, rounding = middle[name]
            error = _norm(tangent - narrow[name][0]) + _norm(wide[name][0] - tangent) / 63
            error += _norm(8 * bend - wide[name][1]) / 7
            error += rounding if name in moved else first[name]
            if math.isfinite(error) and (name not in best or error < best[name][1]):
                best[name] = tangent, error
    return best


def _dot(one: Any, other: Any) -> float:
    """Return the real inner product. That of complex numbers has a conjugate in it."""
    return float(np.sum(np.real(np.conj(one) * other)))


def _norm(array: Any) -> float:
    return float(np.sqrt(np.sum(np.abs(array) ** 2)))


def _eps(array: Array) -> float:
    """Return the relative rounding error of an array's type; 0 for integers."""
    return float(np.finfo(array.dtype).eps) if is_differentiable(array) else 0.0


def _size(*arrays: Array) -> float:
    """Return the largest root mean square of arrays; 1 if it is 0 or infinite."""
    size = max(_norm(array) / math.sqrt(max(1, array.size)) for array in arrays)
    return size if 0 < size < math.inf else 1.0


def _same(one: Array, other: Array | None) -> bool:
    return other is not None and one.dtype == other.dtype and one.tobytes() == other.tobytes()


def _apart(found: Array | None, right: Array) -> float:
    """Return the distance between two arrays, as a part of the size of the second."""
    if found is None or found.shape != right.shape or not is_differentiable(right):
        return math.inf
    return _norm(found - right) / (_norm(right) or 1.0)


def _span(steps: tuple[int, int]) -> str:
    begin, end = steps
    return f"step {begin}" if end == begin + 1 else f"{end} steps"


def _surroundings(model: Any) -> dict[str, bytes]:
    """Return digests of data on which steps may depend, and which are not in the state.

    They are the attributes of the model, except those of ckio's classes and the state's arrays;
    the variables of its modules and functions that its own methods name; and the generators of
    random numbers of Python and NumPy.
    """
    values: dict[str, Any] = {"random": random.getstate(), "numpy.random": np.random.get_state()}
    ckios: set[str] = set()
    for kind in type(model).__mro__:
        for code in (it for it in vars(kind).values() if isinstance(it, types.FunctionType)):
            names = code.__code__.co_names
            if re.match(r"ckio\.(?!models\b)", kind.__module__):
                ckios.update(names)
                continue
            cells = zip(code.__code__.co_freevars, code.__closure__ or (), strict=False)
            values |= {name: cell.cell_contents for name, cell in cells}
            values |= {n: code.__globals__[n] for n in names if n in code.__globals__}
    for name, value in getattr(model, "__dict__", {}).items():
        if name not in ckios and not _is_state(model, value):
            values[f"self.{name}"] = value
    digests = {}
    for name, value in values.items():
        with suppress(Exception):  # not everything can be pickled
            if not isinstance(value, type | types.FunctionType | types.ModuleType):
                digests[name] = xxhash.xxh3_128_digest(pickle.dumps(value))
    return digests
