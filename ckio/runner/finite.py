"""A model that ends a run soon after one of its values becomes infinite or NaN."""

import math
from contextlib import AbstractContextManager
from typing import Final

import numpy as np
from numpy.typing import ArrayLike

from ckio.actions import Buffers, Key, Kind, Layout
from ckio.errors import RunFailed
from ckio.model import Differentiable, ForwardingModel, functional_of, optional, reached
from ckio.platform.clock import Clock, WallClock

SHARE: Final = 0.01
"""Maximum time of the checks, as a fraction of all other time."""

_CHUNK: Final = 1 << 15
"""Number of values per check, so that the boolean results stay in the fastest cache."""

_NAMED: Final = 3
"""Maximum number of arrays that an error names."""


class Finite(ForwardingModel):
    """A model that raises RunFailed if its state, adjoint, gradient or J is not finite.

    States are checked after `advance` and `record`, tapes after `record`, and adjoints after
    `reverse`, if the time of all checks does not exceed `share` times all other time so far.
    The first span of each kind is always checked, J before the first `reverse`, and also the end,
    when the adjoint has reached step 0. Therefore infinite values and NaN are found soon after they
    occur, and at the latest at the end of the sweep in which they do. Only floating-point values in
    the model's checkpoints are checked.

    All other calls, and optional attributes, are passed to the model. In a parallel run this class
    must be inside `AgreedModel`, through which all ranks agree on the error of one rank.

    Parameters
    ----------
    model : Differentiable
        A model whose arrays of restart data are finite in every state.
    share : float
        Maximum time of the checks, as a fraction of all other time. With 0, only the first spans
        and the end are checked.
    advice : str
        Text at the end of every error: the remedy for such values.
    clock : Clock, optional
        The clock for these times.
    """

    def __init__(
        self,
        model: Differentiable,
        /,
        *,
        share: float = SHARE,
        advice: str = "",
        clock: Clock | None = None,
    ) -> None:
        super().__init__(model)
        self._share, self._advice = share, advice
        self._now = (clock or WallClock()).now
        self._begun, self._looked = self._now(), 0.0
        self._took = dict.fromkeys(Kind, 0.0)  # seconds of the last check of each kind
        self._finite = dict.fromkeys(Kind, -1)  # the last step at which it was finite
        self._late = optional(model).records_late  # then a recorded state is not computed yet
        self._turned = False  # whether the adjoint is on its way, here or in an earlier process

    def advance(self, begin: int, end: int, /) -> int:
        step = reached("advance", self._model.advance(begin, end), begin, end)
        if step > begin:
            self._look(Kind.RESTART, step)
        return step

    def record(self, begin: int, end: int, /) -> int:
        step = reached("record", self._model.record(begin, end), begin, end)
        if step > begin and not self._late:
            self._look(Kind.RESTART, step)
        for i in range(begin, step):
            self._look(Kind.TAPE, i)
        return step

    def load(self, key: Key, layout: Layout, /) -> AbstractContextManager[Buffers]:
        self._turned = self._turned or key.kind is Kind.ADJOINT
        return super().load(key, layout)

    def reverse(self, begin: int, end: int, /) -> None:
        if not self._turned:
            self._turned = True
            self._check_forward(end)
        self._model.reverse(begin, end)
        self._look(Kind.ADJOINT, begin)
        if begin == 0:
            self._check_gradient()

    @property
    def functional(self) -> float:
        value = functional_of(self._model)
        if not math.isfinite(value):
            raise self._failed(f"the functional is {float(value)}")
        return value

    def _look(self, kind: Kind, step: int) -> None:
        """Check the state or the adjoint at this step, if the limit on time permits it."""
        took, start = self._took.get(kind), self._now()
        others = start - self._begun - self._looked
        if took is None or (took and self._looked + took > self._share * others):
            return
        names = self._not_finite(Key(kind, step))
        self._took[kind] = self._now() - start
        self._looked += self._took[kind]
        if names is None:
            del self._took[kind]
            return
        if names:
            raise self._failed(f"{_listed(names)} not finite in {self._where(kind, step)}")
        self._finite[kind] = step

    def _where(self, kind: Kind, step: int) -> str:
        """Return a checkpoint in words, with the last one of its kind that was finite."""
        last = self._finite[kind]
        match kind:
            case Kind.RESTART:
                before = f"; x_{last} was finite" if last >= 0 else ""
                return f"x_{step}, the state after {step} step{'s' * (step != 1)}{before}"
            case Kind.TAPE:
                before = f"; that of step {last} was finite" if last >= 0 else ""
                return f"the tape of step {step}{before}"
            case _:
                return f"the adjoint of x_{step}"

    def _check_forward(self, end: int) -> None:
        """Check J at x_end, where the forward sweep has ended, before adjoints inherit its NaN."""
        value = functional_of(self._model)
        if not math.isfinite(value):
            names = self._not_finite(Key(Kind.RESTART, end))
            what = f"{_listed(names)} not finite" if names else f"the functional is {float(value)}"
            raise self._failed(f"{what} in {self._where(Kind.RESTART, end)}")

    def _not_finite(self, key: Key) -> list[str] | None:
        """Return the arrays that are not finite; None if the checkpoint has nothing to check."""
        look = optional(self._model).not_finite
        try:
            if look is not None:
                return look(key)
            layout, buffers = self._model.layout(key), self._model.dump(key)
        except Exception:  # the action that needs this checkpoint raises the same error
            return None
        values = [
            (field.name, np.frombuffer(data, field.dtype))
            for field, data in zip(layout, buffers, strict=True)
            if np.dtype(field.dtype).kind in "fc" and data.nbytes
        ]
        return [name for name, array in values if not is_finite(array)] if values else None

    def _check_gradient(self) -> None:
        names = [name for name, array in self._model.gradient.items() if not is_finite(array)]
        if names:
            raise self._failed(f"the gradient of {_listed(names)} not finite")
        _ = self.functional

    def _failed(self, what: str) -> RunFailed:
        return RunFailed(f"{what}{f'; {self._advice}' if self._advice else ''}")


def is_finite(values: ArrayLike, /) -> bool:
    """Return whether all values are finite; values that are not floating-point count as finite.

    >>> is_finite([1.0, 2.0]), is_finite([1.0, float("inf")]), is_finite(["a"])
    (True, False, True)
    """
    array = np.asarray(values)
    if array.dtype.kind not in "fc":
        return True
    flat = array.reshape(-1, order="A")
    return all(
        bool(np.isfinite(flat[begin : begin + _CHUNK]).all())
        for begin in range(0, flat.size, _CHUNK)
    )


def _listed(names: list[str]) -> str:
    """Return names with the verb "is" or "are", as the beginning of a sentence."""
    more = len(names) - _NAMED
    words = [*map(repr, names[:_NAMED]), *([f"{more} more"] if more > 0 else [])]
    *others, last = words
    return f"{', '.join(others)} and {last} are" if others else f"{last} is"
