"""What the methods of a model depend on, each done again on copies."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ckio.actions.variables import Flow, Names
from ckio.analysis.recorded.poison import OTHER, Results, flow_of, poison
from ckio.model.arraymodel import ArrayModel
from ckio.model.arrays import Arrays, copies

_ENDED = ""
"""The name of what `finished` says, among what a step computes; no array has it."""


class Methods:
    """A model's own methods, as they are before others take their places.

    Whatever is asked here, the model's state and gradient stay as they are. All may raise RunFailed
    as `flow_of` does.
    """

    def __init__(self, model: ArrayModel) -> None:
        self._model = model
        self.start, self.step, self.finished = model.start, model.step, model.finished
        self.adjoint_step, self.adjoint_seed = model.adjoint_step, model.adjoint_seed

    def ends_by(self, state: Arrays, i: int, /) -> Names:
        """The arrays that it depends on whether the program ends at x_i."""
        return flow_of(lambda state: self._ended(state, i), state).use

    def forward(self, state: Arrays, i: int, /) -> Flow:
        """What a step does, with the question before it whether there is one."""

        def does(state: Arrays) -> Results:
            ended = self._ended(state, i)
            if not ended[_ENDED]:
                self.step(state, i)
            return {**dict(dict.items(state)), **ended}

        return flow_of(does, state)

    def reads(self, adjoint: Arrays, tape: Arrays, i: int, /) -> Names:
        """The arrays of its tape that the adjoint of a step depends on."""
        any_cotangent = copies("adjoint", adjoint)  # zeros would hide what they are multiplied with
        for array in any_cotangent.values():
            poison(array, OTHER)

        def does(tape: Arrays) -> Results:
            cotangent = copies("adjoint", any_cotangent)
            return self._derivatives(cotangent, lambda: self.adjoint_step(cotangent, tape, i))

        return flow_of(does, tape).use

    def seeds(self, state: Arrays, adjoint: Arrays, n: int, /) -> Names:
        """The arrays of x_n that J and the start of the adjoint depend on."""

        def does(state: Arrays) -> Results:
            cotangent = Arrays({name: np.zeros_like(x) for name, x in adjoint.items()})
            return self._derivatives(cotangent, lambda: self.adjoint_seed(state, cotangent, n))

        return flow_of(does, state).use

    def _ended(self, state: Arrays, i: int) -> dict[str, NDArray[Any]]:
        return {_ENDED: np.array(self.finished(state, i))}

    def _derivatives(self, cotangent: Arrays, does: Callable[[], float | None]) -> Results:
        """What some code of the adjoint computes."""
        gradient = self._model.gradient
        before = copies("gradient", gradient)
        for array in gradient.values():
            array[...] = 0
        try:
            value = does()
            results: dict[str, NDArray[Any]] = {"value of J": np.array(value or 0.0)}
            results |= {f"cotangent of {name}": x for name, x in cotangent.items()}
            results |= {f"gradient of {name}": x.copy() for name, x in gradient.items()}
        finally:
            for name, array in before.items():
                gradient[name][...] = array
        return results
