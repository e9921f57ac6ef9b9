"""An ocean whose program holds everything in its state, as a code that was never tuned does.

The program has seven fields. Only five of them are needed to go on from x_i, four of these change,
and the adjoint of a step reads two; but a checkpoint of it holds all seven, and so does a tape.
Which could be left out, nothing here says: that is for others to find.
"""

from typing import Any

import numpy as np

from ckio import ArrayModel
from ckio.errors import BadInput
from ckio.model.arrays import Arrays
from ckio.models.vorticity import UNITS, Vorticity

FIELDS = ("zeta", "psi", "zeta_prev", "F_0", "F_1", "F_2", "Q")
"""Vorticity now, its stream function, the vorticity one step ago, its tendency in the last step
and those that the next one takes for one and two steps ago; and the curl of the wind."""


class Ocean(ArrayModel):
    """The flow, the functional, the controls and, to the last bit, the gradient of `Vorticity`.

    Here `Q` is an array of the state that no step changes: as a control it is its value in x_0, and
    what steps add to its gradient is summed up in the adjoint.

    Parameters
    ----------
    **options
        As in Vorticity, whose errors are raised here, too; but there is nothing to recompute.
    """

    records_late = True  # an adjoint step reads its tape only

    def __init__(self, **options: Any) -> None:
        if recompute := options.get("recompute"):
            raise BadInput(f"ocean: recompute = {recompute!r}; here everything is stored")
        self._vorticity = model = Vorticity(**options)
        rest = np.zeros_like(model.control["zeta"])
        super().__init__(
            {**dict.fromkeys(FIELDS, rest), **model.control, "J": 0.0},
            control=model.control,
            units={**UNITS, "zeta_prev": UNITS["zeta"], "F_0": UNITS["F_1"]},
        )

    @property
    def dt(self) -> float:
        """Seconds of a step."""
        return self._vorticity.dt

    def start(self, state: Arrays, /) -> None:
        """Start as `Vorticity` does; the wind is put into the state."""
        self._vorticity.control["zeta"][...] = self.control["zeta"]
        self._vorticity.start(state)
        state["Q"][...] = self.control["Q"]

    def adjoint_start(self, adjoint: Arrays, /) -> None:
        of_start = self._vorticity.gradient["zeta"]
        of_start[...] = 0
        self._vorticity.adjoint_start(adjoint)
        self.gradient["zeta"][...] += of_start
        self.gradient["Q"][...] += adjoint["Q"]

    def step(self, state: Arrays, i: int, /) -> None:
        """Step as `Vorticity` does, with the wind of the state; ζ and its tendency are copied."""
        self._vorticity.control["Q"][...] = state["Q"]
        state["zeta_prev"][...] = state["zeta"]
        self._vorticity.step(state, i)
        state["F_0"][...] = state["F_1"]

    def adjoint_step(self, adjoint: Arrays, tape: Arrays, i: int, /) -> None:
        """Step back as `Vorticity` does; the derivative by the wind goes to the adjoint of Q."""
        of_wind = self._vorticity.gradient["Q"]
        of_wind[...] = 0
        self._vorticity.adjoint_step(adjoint, tape, i)
        adjoint["Q"][...] += of_wind

    def adjoint_seed(self, state: Arrays, adjoint: Arrays, n: int, /) -> float:
        return self._vorticity.adjoint_seed(state, adjoint, n)
