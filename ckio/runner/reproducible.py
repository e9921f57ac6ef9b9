"""The replay check: a state that is computed twice must have the same bytes both times.

A plan computes most states more than once. A few states of the first sweep are hashed, and compared
when a later sweep arrives at them. If a step depends on anything but the state, its number and the
controls, such a state differs, and the run ends before its wrong gradient is used.
"""

from bisect import bisect_right, insort
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar, cast

import numpy as np
import xxhash
from numpy.typing import NDArray

from ckio.actions import Buffers, Key, Kind, Layout
from ckio.errors import RunFailed
from ckio.model import Differentiable, ForwardingModel, optional, reached
from ckio.platform.clock import Clock, WallClock
from ckio.platform.readable import option
from ckio.runner.space import MemorySpace, host_copy

SHARE: Final = 0.006
"""Maximum time of the check, as a fraction of the time of the run."""

FREE: Final = 0.002
"""Seconds that it may take in addition for each model, so that short runs have a check, too."""

_RATE: Final = 4e9
"""Bytes per second of a hash, as assumed before the first one is measured."""

_LEAST: Final = 3e-5
"""Seconds of the hash of a state of a few bytes, as assumed then."""

_PAUSE: Final = 60.0
"""Maximum seconds between two readings of the clock that count as time of the run."""

_MOST_SKIPPED: Final = 63
"""Maximum number of new states that are passed without reading the clock."""

_SLOWER: Final = 8
"""A hash counts as at most so many times the one before, because it may have been interrupted."""

MOST: Final = 4096
"""Maximum number of states whose hashes are in memory: some megabytes."""

SAMPLE: Final = 16
"""Number of values of each array that are kept, to tell by how much a state differs."""

ROUNDING: Final = 1000
"""Two values differ by rounding if they differ by at most so many units of their precision."""

_REMEDY: Final = (
    "Steps may depend only on the state, their number and the controls. Look for random numbers,"
    " the time, an attribute, a global variable or a cached value that is not in the state, memory"
    " that was not set, and an array or a pointer that is kept from another step; put what changes"
    " into the state, or compute it from the number of the step"
)

_EARLIER: Final = (
    "An earlier process of this run has computed it: if data, code or the environment of the model"
    " have changed since, begin a new run in another directory. "
)

M = TypeVar("M")


class Mark(NamedTuple):
    """The data kept of an array, to tell whether another one is the same, and how it differs.

    Attributes
    ----------
    digest : int
        The hash of all bytes.
    values : array
        At most `SAMPLE` values, evenly spaced.
    squares : float
        The sum of the squares of all values; NaN if it was not computed.
    """

    digest: int
    values: NDArray[Any]
    squares: float = np.nan

    @staticmethod
    def of(data: memoryview, dtype: str, *, squares: bool = False) -> "Mark":
        """Return the mark of an array of this dtype, given as bytes."""
        array = np.frombuffer(data, dtype) if data.nbytes else np.empty(0, dtype)
        total = np.vdot(array, array).real if squares and array.dtype.kind in "fc" else np.nan
        stride = -(-max(1, array.size) // SAMPLE)
        return Mark(xxhash.xxh3_64_intdigest(data), array[::stride].copy(), float(total))

    def distance(self, other: "Mark", /) -> float:
        """Return the largest difference of two values, relative to the largest value.

        It is infinite if it cannot be given, and 0 if only values differ that are not remembered.
        """
        a, b = self.values, other.values
        if a.dtype != b.dtype or a.shape != b.shape or a.dtype.kind not in "biufc":
            return np.inf
        if a.tobytes() == b.tobytes():
            with np.errstate(invalid="ignore"):
                return abs(self.squares - other.squares) / (self.squares or 1.0)
        a, b = (np.asarray(it, complex if it.dtype.kind == "c" else float) for it in (a, b))
        with np.errstate(invalid="ignore", over="ignore"):
            distance = np.abs(a - b).max() / max(np.abs(a).max(), np.abs(b).max(), 1e-300)
        return float(distance) if np.isfinite(distance) else np.inf


Marks = Mapping[str, Mark]
"""The marks of the arrays of a state, by name."""


class Difference(NamedTuple):
    """How two states differ that should be the same."""

    text: str
    is_rounding: bool


def difference(before: Marks, now: Marks, /) -> Difference | None:
    """Return how two states differ; None if all arrays have the same bytes."""
    parts, is_rounding = list[str](), True
    for name in dict.fromkeys((*before, *now)):
        if name not in before or name not in now:
            parts.append(f"{name!r} is in one of them only")
            is_rounding = False
        elif before[name].digest != now[name].digest:
            values, by = now[name].values, before[name].distance(now[name])
            epsilon = np.finfo(values.dtype).eps if values.dtype.kind in "fc" else 0.0
            # nan: the sampled values are equal, and the others were not summed
            is_rounding = is_rounding and bool(by <= ROUNDING * epsilon)
            sizes = f"by {by:.1e} of its largest value" if 0 < by < np.inf else "in some values"
            parts.append(f"{name!r} {sizes}")
    return Difference(", ".join(parts), is_rounding) if parts else None


class ReplayCheck:
    """The states that a run has computed, as far as they were hashed, and the time of the check.

    All models of one run share it, also those that are made after a level has failed. A state is
    hashed only if there is time to hash it a second time, for the comparison.

    Parameters
    ----------
    allow_rounding : bool
        Whether a state may differ by rounding when it is computed again.
    share : float
        Maximum time of the check, as a fraction of the time of the run; with infinity, all states
        are hashed.
    clock : Clock, optional
        The clock for these times.

    Attributes
    ----------
    marks : dict
        The marks of each state, by step.
    earlier : set of int
        The steps of the states that an earlier process of the run has hashed.
    waiting : list of int
        The steps of the states that have not been compared yet, in ascending order.
    skip : int
        How many new states to pass, before it is worth while to read the clock again.
    note : callable or None
        A function that is called with the step and the marks of each state that is hashed.
    """

    def __init__(
        self, *, allow_rounding: bool = False, share: float = SHARE, clock: Clock | None = None
    ) -> None:
        self.allow_rounding, self.now = allow_rounding, (clock or WallClock()).now
        self.marks = dict[int, Marks]()
        self.earlier = frozenset[int]()
        self.waiting = list[int]()
        self.skip = 0
        self.note: Callable[[int, Marks], object] | None = None
        self.controls: Mapping[str, int] | None = None  # those of the first model
        self._share, self._spent, self._took = share, 0.0, 0.0
        self._seconds, self._last, self._offers, self._free = 0.0, self.now(), 1, FREE

    def stop(self) -> None:
        """Check no more, because states are rounded on purpose."""
        self._share = -np.inf
        self.marks.clear()
        self.waiting.clear()

    def begin(self, controls: Mapping[str, int], /) -> bool:
        """Begin with a fresh model; return whether it has the controls of the first one."""
        if self.controls is None:
            self.controls = controls
        elif controls == self.controls:
            self.waiting[:], self.skip = sorted(self.marks), 0
            self._free += FREE
        return controls == self.controls

    def between(self, begin: int, end: int, /) -> int | None:
        """Return the first step after `begin` and before `end` whose state waits for comparison."""
        at = bisect_right(self.waiting, begin)
        return self.waiting[at] if at < len(self.waiting) and self.waiting[at] < end else None

    def passed(self, step: int, /) -> None:
        """Note that the adjoint has reached a step: no later state is computed again."""
        while self.waiting and self.waiting[-1] > step:
            self.waiting.pop()

    def may(self, step: int, /) -> bool:
        """Return whether there is time for the state of this step."""
        now = self.now()
        # The pause of a caller who does something else between two steps is not a part of the run.
        self._seconds, self._last = self._seconds + min(now - self._last, _PAUSE), now
        is_new = step not in self.marks
        self._offers += is_new
        needed = self._spent + self._took * (2 + len(self.waiting) if is_new else 1) - self._free
        if needed <= self._share * self._seconds:
            return True
        if is_new and self._share > 0:
            late = needed / self._share - self._seconds
            self.skip = int(min(_MOST_SKIPPED, late * self._offers / max(self._seconds, 1e-9) / 2))
            self._offers += self.skip
        return False

    def look(
        self,
        step: int,
        state: Callable[[], Iterable[tuple[str, str, memoryview]]],
        /,
        *,
        since: int,
        cause: Callable[[], str] = str,
    ) -> bool:
        """Compare x_step with an earlier one, or remember it; call it only if `may` returns True.

        Parameters
        ----------
        step : int
            The step at which the model has arrived.
        state : callable
            Returns name, dtype and bytes of each array of the state.
        since : int
            The step from which the model came.
        cause : callable, optional
            Returns what is known of the cause of a difference.

        Returns
        -------
        bool
            Whether the state was compared, and is the same.

        Raises
        ------
        RunFailed
            The state is not the same.
        """
        begun = self.now()
        arrays = list(state())
        if not arrays:  # the model cannot give them
            return False
        if not self._took:  # nothing is known of the time yet
            self._took = _LEAST + sum(data.nbytes for *_, data in arrays) / _RATE
            if not self.may(step):
                self._spent += self.now() - begun
                return False
        squares = self.allow_rounding
        marks = {name: Mark.of(data, dtype, squares=squares) for name, dtype, data in arrays}
        known = self.marks.get(step)
        if known is None:
            self._remember(step, marks)
        # Another process that takes the core meanwhile must not end the check.
        self._took = min(self.now() - begun, _SLOWER * self._took)
        self._spent += self._took
        if known is None:
            return False
        if step in self.waiting:
            self.waiting.remove(step)
        if (found := difference(known, marks)) is None:
            return True
        if found.is_rounding and self.allow_rounding:
            return False
        steps = f"steps {since} to {step - 1} are" if step - since > 1 else f"step {since} is"
        what = f"x_{step} is not the same when {steps} computed again: {found.text}"
        if found.is_rounding:
            raise RunFailed(
                f"{what}; it is reproducible up to rounding only, as sums are that threads, atomic"
                " operations or ranks add in varying order; fix the order, or allow such"
                f" differences by {option('allow_rounding')}"
            )
        earlier = _EARLIER if step in self.earlier else ""
        raise RunFailed(f"{what}; the gradient may be wrong. {earlier}{cause()}{_REMEDY}")

    def _remember(self, step: int, marks: Marks) -> None:
        if len(self.marks) >= MOST:
            kept = {*self.waiting, max(self.marks)}
            self.marks = {at: self.marks[at] for at in self.marks if at in kept}
        if len(self.marks) < MOST:
            self.marks[step] = marks
            insort(self.waiting, step)
            if self.note is not None:
                self.note(step, marks)


class Reproducible(ForwardingModel):
    """A model that raises RunFailed if it computes the same state twice with different bytes.

    The check takes at most `SHARE` of the time of the run, and `FREE` seconds. An Advance over a
    state that is to be compared is made in two parts. All other calls, and optional attributes, are
    passed to the model. In a parallel run this class must be inside `AgreedModel`. The runner puts
    each model that is in none within one.

    The check ends if single arrays are read, or none at all before steps that do not follow the
    last ones, because then the others may have any values. Arrays that a model names in an
    attribute `kept_records` are not compared: they are not a function of the step, because a record
    of all steps keeps its later rows when an earlier state is read.

    Parameters
    ----------
    model : Differentiable
        If its `records_late` is true, the last state of a Record is not known yet and is not looked
        at.
    replay : ReplayCheck, optional
        The states of the run, for models that share them.
    allow_rounding : bool
        Whether a state may differ by rounding, without `replay`.
    is_alone : bool
        False for one rank of many, which computes no step that the others do not compute.
    """

    def __init__(
        self,
        model: Differentiable,
        replay: ReplayCheck | None = None,
        /,
        *,
        allow_rounding: bool = False,
        is_alone: bool = True,
    ) -> None:
        super().__init__(model)
        self.layout, self.dump = model.layout, model.dump  # type: ignore[method-assign]
        self.replay_check = self._seen = replay or ReplayCheck(allow_rounding=allow_rounding)
        self._is_on = True
        self._late, self._restarts = optional(model).records_late, optional(model).tape_restarts
        # A program compares the states that it computes again itself.
        self._computes = self._late and not optional(model).estimated
        self._has_continued = not is_alone  # whether a record was compared
        self._turned = False  # whether a step was reversed here, or the adjoint was read
        self._at: int | None = None  # the step of the state; None after it was read
        self._since = 0  # the state x_since is known to be right
        self._controls: Mapping[str, int] | None = None
        if hasattr(self, "take"):
            self.take = self._take

    def advance(self, begin: int, end: int, /) -> int:
        if begin != self._at:
            self._depart(begin)
        is_one = begin + 1 == end
        while True:
            to = self._stop_within(begin, end) if self._late or self._seen.waiting else end
            step = self._model.advance(begin, to)
            if step is not to:
                step = reached("advance", step, begin, to)
            self._at = step
            if step < to:
                return step
            if to < end or not self._late or to in self._seen.marks or (is_one and self._computes):
                self._offer(to)
            if to == end:
                return end
            begin = to

    def record(self, begin: int, end: int, /) -> int:
        if begin != self._at:
            self._depart(begin)
        step = self._model.record(begin, end)
        if step is not end:
            step = reached("record", step, begin, end)
        self._at = step
        if begin < step and (not self._late or self._continues(step)):
            self._offer(step)
        return step

    def _continues(self, step: int) -> bool:
        """Return whether this is the first recorded state that an earlier process has hashed.

        A model that records late computes it for the comparison: the rest of a run may compute no
        other state a second time, although data or code have changed.
        """
        if step not in self._seen.earlier or self._has_continued:
            return False
        self._has_continued = True
        return True

    def reverse(self, begin: int, end: int, /) -> None:
        if not self._turned and self._at == end and self._computes:
            self._offer(end)  # the adjoint starts from x_n, which is computed for it
        self._turned = True
        self._model.reverse(begin, end)
        if self._seen.waiting:
            self._seen.passed(begin)

    def load(self, key: Key, layout: Layout, /) -> AbstractContextManager[Buffers]:
        self._leave(key)
        return self._model.load(key, layout)

    def _take(self, key: Key, layout: Layout, data: Buffers, /) -> None:
        self._leave(key)
        cast("Any", self._model).take(key, layout, data)

    def _stop_within(self, begin: int, end: int) -> int:
        """Return the step before the next look.

        If the model records late, a later sweep arrives at the last step before the end of an
        Advance, but not at the end itself.
        """
        if (known := self._seen.between(begin, end)) is not None:
            return known
        if not self._late or begin + 1 == end:
            return end
        if self._seen.skip:
            self._seen.skip -= 1
            return end
        return end - 1 if self._is_on and self._seen.may(end - 1) else end

    def _depart(self, begin: int) -> None:
        """Before steps that do not follow the last ones; without a read, arrays are left over."""
        self._is_on = self._is_on and self._at is None
        self._since = begin
        if self._controls is None:
            self._begin()

    def _leave(self, key: Key) -> None:
        if self._controls is None:
            self._begin()
        if key.kind is Kind.ADJOINT:
            self._turned = True
        if key.kind is Kind.RESTART or (key.kind is Kind.TAPE and self._restarts):
            self._at = None
            self._is_on = self._is_on and not key.name

    def _begin(self) -> None:
        """Before the first step: compare nothing if this model has other controls."""
        self._controls = _digests(optional(self._model).control)
        self._is_on = self._seen.begin(self._controls) and self._is_on

    def _offer(self, step: int) -> None:
        """Look at the state, if there is time; the clock is not read at each new state."""
        seen = self._seen
        if seen.skip and step not in seen.marks:
            seen.skip -= 1
        elif self._is_on and seen.may(step):
            state, cause = partial(self._arrays, step), self._changed
            if seen.look(step, state, since=self._since, cause=cause):
                self._since = step

    def _arrays(self, step: int) -> list[tuple[str, str, memoryview]]:
        arrays = arrays_of(self._model, step)
        self._is_on = arrays is not None
        return arrays or []

    def _changed(self) -> str:
        before, now = self._controls or {}, _digests(optional(self._model).control)
        state = {field.name for field in self._model.layout(Key(Kind.RESTART, 0))}
        names = [name for name in now if now[name] != before.get(name) and name not in state]
        return f"Control {names[0]!r} has changed since the first step. " if names else ""


def arrays_of(model: Any, step: int, /) -> list[tuple[str, str, memoryview]] | None:
    """Return name, dtype and bytes of each array of x_step; None if the model cannot give them."""
    key = Key(Kind.RESTART, step)
    try:
        layout, buffers = model.layout(key), model.dump(key)
        space: MemorySpace | None = optional(model).space
        if space is not None:
            buffers = host_copy(space, key, layout, buffers)
        left = optional(model).kept_records
        return [
            (field.name, field.dtype, memoryview(data))
            for field, data in zip(layout, buffers, strict=True)
            if field.name not in left
        ]
    except Exception:  # the action that needs this checkpoint raises the same error
        return None


def checked(model: M, replay: ReplayCheck | None = None, /) -> M:
    """Return the model with the replay check, unless it has it already."""
    if optional(model).replay_check is not None:
        return model
    if (
        inside := optional(model).put_inside
    ) is not None:  # of a parallel model, because all ranks must agree on errors
        inside(lambda own: Reproducible(own, replay, is_alone=False))
        return model
    return cast("M", Reproducible(cast("Any", model), replay))


def unchecked(model: M, /) -> M:
    """Return a model without the replay check, for measurements of its steps."""
    replay = ReplayCheck()
    replay.stop()
    return cast("M", Reproducible(cast("Any", model), replay))


def _digests(control: Mapping[str, Any] | None) -> dict[str, int]:
    """Return a hash of each control."""
    arrays = {name: np.ascontiguousarray(array) for name, array in (control or {}).items()}
    return {
        name: xxhash.xxh3_64_intdigest(array.reshape(-1).view(np.uint8).data)
        for name, array in arrays.items()
        if not array.dtype.hasobject
    }
