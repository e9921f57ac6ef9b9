"""Test a model on its first steps: checkpoints, steps that are computed again, and derivatives.

A gradient by checkpoints is right if a few properties of single steps hold. Each is tested alone,
so that a fault is found at one step and in one array. The derivative of a step F is tested by the
dot-product test: for random w and d, <F'(x)ᵀ w, d> by the adjoint step equals <w, F'(x) d> by
differences: a polynomial in t is fitted to F(x + t d), as in `check_gradient`. With d in one array
and w in another, it tests one term of the adjoint.
"""

import inspect
import math
import pickle
import random
import re
import traceback
import types
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np
import xxhash
from numpy.typing import NDArray

from ckio.actions import Key, Kind
from ckio.errors import BadInput, CkioError, RunFailed, UnsupportedKind
from ckio.model import as_bytes, functional_of, layout_of, optional, reached
from ckio.model.arrays import is_differentiable
from ckio.model.directional import fit, real_product
from ckio.model.gradient import no_factory
from ckio.platform.readable import sheet_text

Array = NDArray[Any]
Arrays = dict[str, Array]

_ROWS: Final = 12
"""The most derivatives that are printed."""

UNCHANGED: Final = (
    "no step changes an array of the state: `step` has to write into its arrays, as in"
    " x[...] = 2 * x; the statement x = 2 * x makes a new array, which is lost"
)

_CONTROL: Final = "control "
"""Prefix of the names of controls, because an array of the state may have the same name."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One failed test of a model.

    Attributes
    ----------
    check : {"steps", "checkpoints", "controls", "adjoint", "derivative", "gradient"}
        The test that failed.
    step : int
        The step at which it failed.
    array : str
        The name of the array that is wrong; "" if it is not known.
    reason : str
        What is wrong, as a sentence.
    """

    check: str
    step: int
    array: str
    reason: str


@dataclass(frozen=True, slots=True)
class Derivative:
    """The derivative of an array after some steps by one before them, in two ways.

    `of` may be J, and `by` "control" and its name. `forward` is <w, F'(x) d> by differences, and
    `adjoint` is <F'(x)ᵀ w, d>; they may differ by `accuracy`. `steps` are the first step, and the
    one after the last.
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
class ModelCheck:
    """The result of `check_model`.

    Attributes
    ----------
    steps : int
        The number of steps that were run.
    faults : tuple of Fault
        What is wrong, by the first test that fails.
    untested : tuple of str
        What could not be tested, with reasons.
    derivatives : tuple of Derivative
        All comparisons of derivatives.
    may_record_late : bool
        Whether the model is an `ArrayModel` whose `records_late` may be True, because its adjoint
        reads its tape only.
    """

    steps: int
    faults: tuple[Fault, ...]
    untested: tuple[str, ...]
    derivatives: tuple[Derivative, ...]
    may_record_late: bool = False

    @property
    def verified(self) -> bool:
        """Whether everything was tested, and is right."""
        return not self.faults and not self.untested

    def summary(self) -> str:
        """Return the verdict in one line."""
        if self.faults:
            return f"WRONG: {self.faults[0].reason}"
        left = ", but not all was tested" if self.untested else ""
        return f"{'no fault' if left else 'verified'} in {self.steps} steps{left}"

    def __str__(self) -> str:
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
        others = [it for it in self.faults[1:] if it.check != "derivative"]  # those are rows
        notes = [f"also: {it.reason}" for it in others]
        notes += [f"not tested: {reason}" for reason in self.untested]
        if self.may_record_late:
            notes.append(
                "the adjoint reads its tape only: with `records_late = True` in the class, a step"
                " that is reversed next is not computed"
            )
        return sheet_text(self.summary(), header, rows[:_ROWS], notes)


def check_model(make: Callable[[], Any], /, *, steps: int = 5) -> ModelCheck:
    """Test a model on its first steps, without a level or a plan.

    Parameters
    ----------
    make : callable
        Returns a fresh model; all must be equal. Use a small grid: each step takes about a dozen
        models for each control, and a dozen steps for each array of the state.
    steps : int
        The number of steps.

    Raises
    ------
    BadInput
        If `make` is a model itself, if steps < 1, or if the model's arrays are on a device.
    """
    if not callable(make):
        raise BadInput(f"check_model: {no_factory(make)}")
    if steps < 1:
        raise BadInput(f"check_model: steps = {steps}; it must be at least 1")
    check = _Check(make, steps)
    with np.errstate(all="ignore"):
        check.run()
    untested = tuple(dict.fromkeys(check.untested))
    model = make()
    may_record_late = hasattr(model, "adjoint_step") and not optional(model).records_late
    return ModelCheck(
        check.n,
        tuple(check.faults),
        untested,
        tuple(check.derivatives),
        may_record_late and not check.faults and not untested,
    )


class _Found(Exception):
    """Raised when a fault was found that later tests would only repeat."""


class _Check:
    """The tests, and what they found so far.

    Attributes
    ----------
    n : int
        The number of steps.
    states : list of dict
        The restart data x_0, x_1, ... of a run from the start.
    around : list of dict
        After each step of that run, digests of the data outside the state.
    at : (str, int)
        The test and the step that are under way.
    """

    def __init__(self, make: Callable[[], Any], steps: int) -> None:
        self.make = make
        self.n = steps
        self.faults: list[Fault] = []
        self.untested: list[str] = []
        self.derivatives: list[Derivative] = []
        self.states: list[Arrays] = []
        self.around: list[dict[str, bytes]] = []
        self.last: Arrays = {}  # the adjoint before the last step
        self.complete: Callable[[Arrays], object] | None = None
        self.free: dict[str, Array] = {}  # for each array, the elements that `complete` leaves
        self.eps = 0.0  # the rounding error of the coarsest type
        self.at = ("steps", 0)

    def run(self) -> None:
        """Run the tests, from the simple to the difficult, until one fails."""
        tests = self._forward, self._rerun_steps, self._adjoints, self._derivatives, self._gradient
        for test in tests:
            try:
                test()
            except _Found:
                pass
            except UnsupportedKind as error:
                self.untested.append(f"the adjoint of single steps: {error}")
            except Exception as error:  # the methods of the model may raise anything
                if isinstance(error, BadInput) and not self.states:
                    raise
                self._fault("", _describe(error, *self.at))
            if self.faults:
                if test == self._derivatives and self.complete is None:
                    self._doubt()
                return

    def _doubt(self) -> None:
        """Say what may be the reason if a term is wrong, but the gradient of all steps right."""
        (fault, *others), rows = self.faults, list(self.derivatives)
        self.faults = []
        try:
            self._gradient()
        except Exception:  # the methods of the model may raise anything
            self.faults = [fault]
        if not self.faults:
            why = "; the gradient of all steps is right nevertheless: if elements of an array"
            why += " repeat others, as a halo does, define the model's method `complete`"
            fault = replace(fault, reason=f"{fault.reason}{why}")
        self.faults, self.derivatives = [fault, *others], rows

    def _fault(self, array: str, reason: str) -> None:
        self.faults.append(Fault(*self.at, array, reason))

    def _compare(self, found: Arrays, right: Arrays, what: str, why: str = "") -> None:
        """Report all arrays that differ, and raise _Found."""
        for name, array in right.items():
            if _same(array, found.get(name)):
                continue
            apart = _apart(found.get(name), array)
            size = f" (by {apart:.1e} of its size)" if math.isfinite(apart) else ""
            if self.at[0] == "steps" and apart <= 64 * _eps(array):
                why = ", equal up to rounding: perhaps threads add in another order each time"
            self._fault(name, f"{name!r} {what}{size}{why}")
        if self.faults:
            raise _Found

    def _rerun(self, model: Any, i: int, what: str) -> None:
        """Run step i from the checkpoint before it, and compare the state after it."""
        _load(model, Key(Kind.RESTART, i), self.states[i])
        reached("advance", model.advance(i, i + 1), i, i + 1)
        before, now = self.around[i], _surroundings(model)
        if hidden := [name for name, digest in now.items() if digest != before.get(name, digest)]:
            why = (
                f", and outside of the state {', '.join(hidden)}: put what changes into the state,"
            )
            why += " or compute it from the number of the step"
        else:
            why = ": perhaps an array is missing in the state, or the step draws random numbers,"
            why += " counts its calls, or swaps pointers"
        self._compare(_save(model, Key(Kind.RESTART, i + 1)), self.states[i + 1], what, why)

    # Steps, and the checkpoints of states

    def _forward(self) -> None:
        """Run from the start. All later tests compare with these states."""
        model = self.make()
        if optional(model).estimated:
            raise BadInput(
                "check: the checkpoints of a program differ in size, and have no arrays of its"
                " adjoint; check its gradient with check_gradient"
            )
        if optional(model).space is not None:
            raise BadInput("check: the model's arrays are on a device; check it on the CPU")
        self.states.append(_save(model, Key(Kind.RESTART, 0)))
        if (complete := optional(model).complete) is not None:
            self.complete = complete
            numbers = {n: a for n, a in self.states[0].items() if is_differentiable(a)}
            moved = {n: a + _random(n, a).astype(a.dtype) for n, a in numbers.items()}
            full = self._completed(self.states[0] | moved)
            self.free = {name: full[name] == moved[name] for name in moved}
        controls = [_controls(model)]
        for i in range(self.n):
            self.at = ("steps", i)
            if reached("advance", model.advance(i, i + 1), i, i + 1) == i:
                break
            self.states.append(_save(model, Key(Kind.RESTART, i + 1)))
            self.around.append(_surroundings(model))
            controls.append(_controls(model))
        self.n = len(self.states) - 1
        if self.n == 0:
            raise RunFailed("the model has finished at x_0; there is no step to check")
        self.at = ("steps", 0)
        first = self.states[0]
        if not any(map(self._changes, first)):
            self._fault("", f"{UNCHANGED}; or `dump` returns an old copy")
            raise _Found
        what = "of x_0 differs in a new model: all models that are made must be new and equal"
        self._compare(_save(self.make(), Key(Kind.RESTART, 0)), first, what)
        self.eps = max(map(_eps, (*first.values(), *controls[0].values())))
        if "J" in first and _eps(first["J"]) > min(map(_eps, controls[0].values()), default=1.0):
            what = f"'J' is summed in {first['J'].dtype}, coarser than a control: small parts of"
            self._fault("J", f"{what} the sum are lost; make J float64")
        for i, (before, now) in enumerate(pairwise(controls)):
            self.at = ("controls", i)
            self._compare(now, before, f"is changed by step {i}: copy it, and change the copy")

    def _changes(self, name: str) -> bool:
        """Return whether any step changes an array of the state."""
        return any(not _same(self.states[0][name], state.get(name)) for state in self.states[1:])

    def _rerun_steps(self) -> None:
        """Run each step again in another model, the last step first, from its checkpoint."""
        model = self.make()
        for i in reversed(range(self.n)):
            key, state, after = Key(Kind.RESTART, i), self.states[i], self.states[i + 1]
            self.at = ("checkpoints", i)
            _load(model, key, state)
            self._compare(_save(model, key), state, f"of x_{i} is not what was loaded")
            with suppress(_Found), model.load(key, layout_of(model, key)) as buffers:
                for buffer in buffers:
                    buffer[:] = b"\x55" * len(buffer)
                raise _Found  # as an error would while a checkpoint is read
            what = "changes if a load fails: `load` must fill other memory, and adopt it at its end"
            self._compare(_save(model, key), state, what)
            self.at = ("steps", i)
            self._rerun(model, i, f"differs if step {i} runs from its checkpoint")
            self._rerun(model, i, f"differs if step {i} runs twice from one state")
            _load(model, key, state)
            reached("record", model.record(i, i + 1), i, i + 1)
            found = _save(model, Key(Kind.RESTART, i + 1))
            self._compare(found, after, f"after `record` of step {i} is not as after `advance`")

    # The adjoint, and the checkpoints of tapes and adjoints

    def _adjoints(self) -> None:
        """Reverse each step twice, and from a stored tape, and see what else changes."""
        model = self.make()
        control = _controls(model)
        variables = optional(model).variables
        restores = variables and any(it.reverse.out | it.restored for it in variables.different)
        for i in range(self.n):
            self.at = ("adjoint", i)
            before, changed = Key(Kind.ADJOINT, i), f"is changed by the adjoint of step {i}"
            seed = {n: _random(n, a).astype(a.dtype) for n, a in _zeros(model, i + 1).items()}
            right = self._reverse(model, i, seed)
            self.at = ("controls", i)
            now = _controls(model)
            self._compare(now, {n: control[n] for n in now}, changed)
            self.at = ("adjoint", i)
            if not restores:
                found = _save(model, Key(Kind.RESTART, i + 1))
                self._compare(found, self.states[i + 1], f"of the state {changed}")
            what = f"differs if step {i} is reversed twice: is all else that it adds to set to 0?"
            self._compare(self._reverse(model, i, seed), right, what)
            _load(model, before, right)
            what = f"of the adjoint at {i} is not what was loaded"
            self._compare(_save(model, before), right, what)
            with suppress(UnsupportedKind):
                layout_of(model, Key(Kind.TAPE, i))
                found = self._reverse(model, i, seed, stored=True)
                what = "in another state: the tape does not have all that it reads"
                what = f"differs if step {i} is reversed from a stored tape, {what}"
                self._compare(found, right, what)
            self._rerun(model, i, f"differs if step {i} runs after its adjoint")

    def _reverse(self, model: Any, i: int, seed: Arrays, *, stored: bool = False) -> Arrays:
        """Return the adjoint before step i, for one after it; of a stored tape, from x_0."""
        _load(model, Key(Kind.RESTART, i), self.states[i])
        model.record(i, i + 1)
        if stored:
            key, start = Key(Kind.TAPE, i), Key(Kind.RESTART, 0)
            tape = _save(model, key)
            _load(model, start, self.states[0])
            model.record(0, 1)
            _load(model, key, tape)
            if optional(model).tape_restarts:
                what = f"is not that of x_{i + 1} after the tape of step {i} is read, although the"
                what += " model says that the forward restarts from there (`tape_restarts`)"
                self._compare(_save(model, Key(Kind.RESTART, i + 1)), self.states[i + 1], what)
            _load(model, start, self.states[0])
            what = f"of the tape of step {i} is not what was loaded"
            self._compare(_save(model, key), tape, what)
            for name in tape.keys() & self.states[i].keys():
                if _eps(tape[name]) > _eps(self.states[i][name]):
                    kinds = f"{tape[name].dtype} on the tape, {self.states[i][name].dtype} in"
                    self._fault(name, f"{name!r} is {kinds} the state: its adjoint is inexact")
        _load(model, Key(Kind.ADJOINT, i + 1), seed)
        model.reverse(i, i + 1)
        return _save(model, Key(Kind.ADJOINT, i))

    # Derivatives

    def _derivatives(self) -> None:
        """Test the derivative of one step after the other, until one is wrong."""
        live = set[str]()  # the arrays of the adjoint that are not 0 in all steps
        model = self.make()
        model.advance(0, self.n)
        for i in reversed(range(self.n + 1)):
            if i < self.n:
                _load(model, Key(Kind.RESTART, i), self.states[i])
                model.record(i, i + 1)
                model.reverse(i, i + 1)
            adjoint = _save(model, Key(Kind.ADJOINT, i))
            live |= {name for name, array in adjoint.items() if np.any(array)}
            if i == self.n - 1:
                self.last = adjoint
        for i in range(self.n):
            self.at = ("derivative", i)
            self._derivative(i, live)
            if self.faults:
                return

    def _derivative(self, i: int, live: set[str]) -> None:
        """Compare all terms of the derivative of one step, but of arrays that are not `live`."""
        model, state, after = self.make(), self.states[i], self.states[i + 1]
        zeros = _zeros(model, i + 1)
        bars, gradients, others = _pairs(zeros, state, model.control)
        if lost := [n for n, a in state.items() if is_differentiable(a) and n not in bars]:
            self.untested.append(f"the adjoint of {lost} alone: {list(zeros)} has no such names")
        # A control acts on x_0 through `start`; later on steps only, unless arrays that no step
        # changes depend on it.
        controls = list(model.control if not i else () if others else gradients)
        every = [n for n in bars if is_differentiable(state[n])]
        every += [_CONTROL + n for n in controls if is_differentiable(model.control[n])]
        directions = {by: self._direction(by, i) for by in every}
        tangents = {by: self._tangents(by, d, (i, i + 1), model) for by, d in directions.items()}

        def back(seed: Arrays) -> Arrays:
            found = self._reverse(model, i, zeros | seed)
            by_control = {n: found[gradients[n]] if i else model.gradient[n] for n in controls}
            named = {_CONTROL + n: np.array(array) for n, array in by_control.items()}
            return {n: found[bars[n]] for n in bars} | named

        base = back({})  # not zero, if the adjoint takes adjoint["J"] to be 1
        for of in (n for n in after if bars.get(n) in live and is_differentiable(after[n])):
            w = np.where(self._moving(of), _random(f"w {of}", after[of]), 0)
            w = np.ones_like(after[of]) if of == "J" else w
            adjoint = back({bars[of]: w.astype(zeros[bars[of]].dtype)})
            if of != "J":
                adjoint = {by: array - base[by] for by, array in adjoint.items()}
            whole = max(np.linalg.norm(tangents[by][of][0]) for by in every)
            for by, d in directions.items():
                what = (i, i + 1), of, by
                self._judge(what, (w, d), tangents[by][of], adjoint[by], float(whole))

    def _tangents(
        self, by: str, d: Array, steps: tuple[int, int], model: Any = None
    ) -> dict[str, tuple[Array, float]]:
        """Return derivatives with errors, along a direction: of J, or of the state of a model."""
        begin, end = steps
        key, after = Key(Kind.RESTART, begin), Key(Kind.RESTART, end)
        state, control = self.states[begin], by.startswith(_CONTROL)

        def run(t: float) -> Arrays:
            moved = self.make() if control or model is None else model
            if control:
                array = moved.control[by.removeprefix(_CONTROL)]
                array[...] += t * d
            if begin or not control:
                changed = {} if control else {by: (state[by] + t * d).astype(state[by].dtype)}
                _load(moved, key, self._completed(state | changed))
            reached("advance", moved.advance(begin, end), end, end)
            arrays = (
                {"J": np.array(float(functional_of(moved)))}
                if model is None
                else _save(moved, after)
            )
            real = {n: a for n, a in arrays.items() if is_differentiable(a)}
            return {n: np.where(np.isfinite(a), a, 0) for n, a in real.items()}  # land may be NaN

        h = 2.0 ** round(math.log2(self.eps**0.2))
        values = {t: run(t) for k in range(6) for t in (h / 2**k, -h / 2**k)}
        return {
            name: fit({t: it[name] for t, it in values.items()}, start, self.eps)[:2]
            for name, start in run(0.0).items()
        }

    def _direction(self, by: str, i: int) -> Array:
        """Return a direction as large as the values: in a control, or what moves of the state."""
        if by.startswith(_CONTROL):
            array = self.make().control[by.removeprefix(_CONTROL)]
            values, moving = array, np.isfinite(array)
        else:
            array, moving = self.states[i][by], self._moving(by)
            values = np.stack([array, self.states[i + 1][by]])  # the first may be 0
        values = values[np.isfinite(values)]
        size = float(np.linalg.norm(values)) / math.sqrt(max(1, values.size)) or 1.0
        return np.where(moving, size * _random(by, array), 0)

    def _moving(self, name: str) -> Array:
        """Return the elements that some step changes; all, if no step changes any.

        Elements that stay, such as walls and land, may be outside of what the model defines, and
        those that repeat others, such as a halo, have no derivative of their own.
        """
        first, *later = (state[name] for state in self.states)
        moved: Array = np.logical_or.reduce([array != first for array in later])
        return (moved | (not np.any(moved))) & np.isfinite(first) & self.free.get(name, True)

    def _completed(self, state: Arrays) -> Arrays:
        """Return the state with the elements that repeat others computed from those."""
        if self.complete is None:
            return state
        copies = {name: np.array(array) for name, array in state.items()}
        self.complete(copies)
        return copies

    def _judge(
        self,
        what: tuple[tuple[int, int], str, str],
        directions: tuple[Array, Array],
        tangent: tuple[Array, float],
        bar: Array,
        whole: float = 0.0,
    ) -> None:
        """Compare <w, F' d> with <F'ᵀ w, d>; `whole` is the size of the largest such term."""
        (steps, of, by), (w, d), (difference, error) = what, directions, tangent
        t, a = real_product(w, difference), real_product(bar, d)
        size = float(np.linalg.norm(difference) + np.linalg.norm(np.where(d == 0, 0, bar * d)))
        # An error of the norm of the difference is one of its product with w, whose elements are
        # about 1 and have random signs: at kinks, by one standard deviation of the sum.
        accuracy = 4 * error + self.eps * (256 * size + 16 * whole)
        found = Derivative(steps, of, by, t, a, accuracy)
        self.derivatives.append(found)
        about = f"the derivative of {of} by {by}"
        if found.is_right:
            if size and found.accuracy > max(0.05 * size, 1e3 * self.eps * whole):
                self.untested.append(
                    f"{about} in {_span(steps)}: it is about {size:.1e}, and differences cannot"
                    f" resolve {found.accuracy:.1e} there, because a part is computed in lower"
                    " precision, or has a kink as abs, max and limiters have"
                )
            return
        text = f"by differences {t:.6g}, by the adjoint {a:.6g}"
        if a and t:
            off = abs(a / t - 1)
            text += f" ({a / t:.4g} times)" if off > 1e-3 else f" (apart by {off:.1e} of it)"
        other = real_product(np.conj(w), difference) - real_product(np.conj(bar), d)
        if abs(other) <= found.accuracy and np.iscomplexobj(bar):
            text += "; it is the complex conjugate of the right one"
        elif of in self.states[0] and not self._changes(of):
            text += f"; no step changes {of!r}: `step` has to write into its array"
        elif not a:
            text += f"; the adjoint step adds nothing for {by}, or not in place"
        self._fault(by, f"{about} is wrong in {_span(steps)}: {text}")

    # The gradient of all steps

    def _gradient(self) -> None:
        """Compare the gradient of all steps; if only that is wrong, its end or start is."""
        n = self.n
        self.at = ("gradient", n)
        model = self.make()
        reached("record", model.record(0, n), n, n)
        model.reverse(0, n)
        for name, control in model.control.items():
            by, array = _CONTROL + name, np.array(model.gradient.get(name, None))
            if array.shape != np.shape(control):
                what = f"has shape {array.shape}, not that of the control, {np.shape(control)}"
                self._fault(by, f"the gradient by {by} {what}")
            elif is_differentiable(control):
                self._of_j((0, n), by, array)
        if not (found := self.faults) or not self.last:
            return
        self.faults = []
        for name, field in _pairs(self.last, self.states[0], model.control)[0].items():
            self._of_j((n - 1, n), name, self.last[field], "J at the end")
        more = "; single steps, and J at the end, are right: look at `adjoint_start`"
        self.faults = self.faults or [replace(it, reason=f"{it.reason}{more}") for it in found]

    def _of_j(self, steps: tuple[int, int], by: str, bar: Array, of: str = "J") -> None:
        """Compare dJ by a control, or by an array before the last step."""
        if is_differentiable(bar):
            d = self._direction(by, steps[0])
            tangent = self._tangents(by, d, steps)["J"]
            self._judge((steps, of, by), (np.ones(()), d), tangent, bar)


def _describe(error: Exception, test: str, step: int) -> str:
    """Return an error of the model as text, with the line of the user's file that raised it."""
    text = str(error) if isinstance(error, CkioError) else f"{type(error).__name__}: {error}"
    frames, ckio = traceback.extract_tb(error.__traceback__), str(Path(__file__).parents[1])
    own = [it for it in frames if ckio not in it.filename and "site-packages" not in it.filename]
    text += f", at {Path(own[-1].filename).name}:{own[-1].lineno}" if own else ""
    notes = [it for it in getattr(error, "__notes__", ()) if it.startswith("(")]  # those of ckio
    return " ".join([text, *(notes or [f"(step {step}, test of the {test})"])])


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


def _zeros(model: Any, step: int) -> Arrays:
    """Return an adjoint checkpoint of zeros."""
    layout = layout_of(model, Key(Kind.ADJOINT, step))
    return {it.name: np.zeros(it.shape, it.dtype) for it in layout}


def _controls(model: Any) -> Arrays:
    """Return copies of the controls, except those that are arrays of the state itself."""
    every = model.control.items()
    return {name: np.array(array) for name, array in every if not _is_state(model, array)}


def _is_state(model: Any, array: Any) -> bool:
    """Return whether an array is in the memory of the state."""
    state = [np.frombuffer(data, np.uint8) for data in model.dump(Key(Kind.RESTART, 0))]
    return isinstance(array, np.ndarray) and any(np.may_share_memory(array, x) for x in state)


def _random(name: str, like: Array) -> Array:
    """Return random numbers of an array's shape, complex if it is; 0 for other types.

    None is small, which would hide an error in its element.
    """
    if not is_differentiable(like):
        return np.zeros(like.shape)
    draw, shape = np.random.default_rng([*name.encode()]), (2, *like.shape)
    parts = draw.uniform(0.5, 1.5, shape) * draw.choice([-1, 1], shape)
    return np.asarray(parts[0] + 1j * parts[1] if np.iscomplexobj(like) else parts[0])


def _pairs(
    fields: Iterable[str], state: Iterable[str], control: Iterable[str]
) -> tuple[dict[str, str], dict[str, str], list[str]]:
    """Find, by their ends, the adjoint of each array and the gradient of each control.

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
            ends = [n for n in known if re.search(rf"(?<![^\W_]){re.escape(n)}$", field)]
            name = max((n for n in ends if n not in into), key=len, default=None)
            if name is not None and "functional" not in field.removesuffix(name):
                into[name] = field
                break
        else:
            others.append(field)
    return bars, gradients, [it for it in others if "functional" not in it and it != "J"]


def _eps(array: Array) -> float:
    """Return the relative rounding error of an array's type; 0 for integers."""
    return float(np.finfo(array.dtype).eps) if is_differentiable(array) else 0.0


def _same(one: Array, other: Array | None) -> bool:
    return other is not None and one.dtype == other.dtype and one.tobytes() == other.tobytes()


def _apart(found: Array | None, right: Array) -> float:
    """Return the distance between two arrays, as a part of the size of the second."""
    if found is None or found.shape != right.shape or not is_differentiable(right):
        return math.inf
    return float(np.linalg.norm(found - right) / (np.linalg.norm(right) or 1.0))


def _span(steps: tuple[int, int]) -> str:
    begin, end = steps
    return f"step {begin}" if end == begin + 1 else f"{end} steps"


def _surroundings(model: Any) -> dict[str, bytes]:
    """Return digests of data on which steps may depend, and which are not in the state.

    They are the attributes of the model, except those of ckio's classes and the state's arrays;
    what its own methods name in their modules and functions; and the generators of random numbers.
    """
    values: dict[str, Any] = {"random": random.getstate(), "numpy.random": np.random.get_state()}
    ckios: set[str] = set()
    for kind in type(model).__mro__:
        for method in (it for it in vars(kind).values() if isinstance(it, types.FunctionType)):
            if re.match(r"ckio\.(?!models\b)", kind.__module__):
                ckios.update(method.__code__.co_names)
                continue
            named = inspect.getclosurevars(method)
            values |= {**named.globals, **named.nonlocals}
    for name, value in getattr(model, "__dict__", {}).items():
        if name not in ckios and not _is_state(model, value):
            values[f"self.{name}"] = value
    digests = {}
    for name, value in values.items():
        with suppress(Exception):  # not everything can be pickled
            if not isinstance(value, type | types.FunctionType | types.ModuleType):
                digests[name] = xxhash.xxh3_128_digest(pickle.dumps(value))
    return digests
