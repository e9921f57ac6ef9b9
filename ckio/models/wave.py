"""Acoustic waves in a layered earth, as seismic inversion has them, its adjoint written by hand.

    m (∂²u/∂t² + σ ∂u/∂t) = ∇²u + s(t) δ(x - x_s),     m = 1 / c²,     u = 0 on the walls

is a pressure u that a source s makes, and that a border of damping σ keeps from coming back. In
time it is a leapfrog, which is written with the change of u over a step, du: with the coefficients

    keep = (1 - σ dt / 2) / (1 + σ dt / 2),     response = (dt / h)² / 12 m (1 + σ dt / 2)

and L = 12 h² ∇² as `halo.py` has it,

    du <- keep du + response (L u + 12 s δ),     u <- u + du.

Of this, the derivative by m needs u and no more: the tape of a step is one field. Back, L stands
for its own transpose:

    of du += of u,     of response += of du (L u + 12 s δ),
    of u += L (response of du),     of du *= keep.
"""

import math
from collections.abc import Callable, Iterator
from typing import Final

import numpy as np

from ckio.actions.variables import Flow, Step
from ckio.errors import BadInput, RunFailed
from ckio.model.arraymodel import ArrayModel
from ckio.model.arrays import Array, Arrays
from ckio.model.comm import SOLO, Comm
from ckio.models.halo import HALO, INSIDE, STIFFEST, Field, Strip
from ckio.models.options import check_real, check_whole
from ckio.models.seismic import Earth, Wavelet

BORDER: Final = 20
"""Points of the border at each side, unless a grid is so small that it is a quarter of it.

Where a wave is 15 points long, less than 6% of its amplitude come back from them if it comes head
on, and less than 10% in any other way.
"""

RECEIVERS: Final = 32
"""Unless between the borders there are fewer columns."""

SOURCE_BELOW: Final = 4
"""Rows from the receivers, which are in the first one below the border, down to the source."""

LONGEST: Final = math.sqrt(48 / STIFFEST)
"""A leapfrog is stable where no wave crosses this part of h in a step,"""
ROUNDING: Final = 1e-9
"""and also where this is but for rounding."""

FEWEST: Final = 4
"""Points that the wavelength at the peak of the spectrum needs."""

_CHANGED: Final = ("u", "du", "J")
FLOW: Final = Step(
    Flow(use=(*_CHANGED, "response"), out=_CHANGED),
    record=Flow(use=("u", "response"), out=_CHANGED),
)
"""Every step changes u, du and J; `response` stays, and but for it the tape is u alone."""

UNITS: Final = {"u": "Pa", "du": "Pa", "J": "Pa2 s", "m": "s2 m-2"}


class Wave(ArrayModel):
    """Traces of a shot over layers and an anomaly, to be brought to those that were observed.

    The functional is J = 1/2 Σ dt |r - d|², in Pa² s, over all steps: r is u at the receivers where
    the step begins, d what was observed. The control is `m`, squared slowness in s2 m-2.

    Observed was the shot in an earth without layers or anomaly, with the speed of the first layer
    throughout: that is known exactly at any time, whatever the number of steps, and is not made by
    the scheme that is to explain it. So d costs neither a second field in the state nor a forward
    run ahead of each run, and J is almost 0 for the right m.

    With a `comm` of several ranks, each has a strip of rows: of the state, the control and the
    gradient. All ranks do the same moves in the same order. `functional` is that of all of them; u,
    du and the gradient have the same bits as on one rank.

    Parameters
    ----------
    grid : int
        Points along each side, those of the border among them; a row is what has one depth.
    spacing : float
        h, in m.
    dt : float, optional
        Seconds of a step; by default 0.8 of what is stable.
    time : float, optional
        What is recorded, in s: then the program ends after as many steps as that takes.
    frequency : float
        At which the spectrum of the source has its peak, in Hz.
    speed, deep : float
        Of waves in the first and in the last layer, in m s-1.
    layers : int
        How many.
    anomaly : float
        By what part of it the speed is larger in the middle of the anomaly, above -1.
    receivers : int, optional
        How many, evenly between the borders, in the first row below the upper one; by default 32,
        or one in each column where these are less.
    border : int, optional
        Points at each side that damp waves; by default 20, or a quarter of a small grid.
    comm : Comm
        The ranks of the job, in a conversation that is the model's: `Comm.apart` makes one.
    on_step : callable, optional
        As in ArrayModel.

    Raises
    ------
    BadInput
        Where an option is out of range, `dt` is not stable, the grid does not resolve the source or
        has too few rows for its ranks.
    RunFailed
        From the first step, on all ranks, where the control was changed to what is not stable.
    """

    def __init__(
        self,
        *,
        grid: int = 128,
        spacing: float = 10.0,
        dt: float | None = None,
        time: float | None = None,
        frequency: float = 10.0,
        speed: float = 1500.0,
        deep: float = 2500.0,
        layers: int = 3,
        anomaly: float = -0.1,
        receivers: int | None = None,
        border: int | None = None,
        comm: Comm = SOLO,
        on_step: Callable[[int], None] | None = None,
    ) -> None:
        check_whole("wave", grid=grid, least=8)
        check_whole("wave", layers=layers, least=1)
        check_real("wave", above=0.0, spacing=spacing, frequency=frequency, speed=speed, deep=deep)
        check_real("wave", above=-1.0, anomaly=anomaly)
        border = _border(border, grid)
        earth = Earth(grid, border, speed, deep, layers, anomaly)
        _check_resolved(earth, spacing, frequency)
        self._dt = _stable_step(dt, limit=LONGEST * spacing / earth.fastest)
        self._steps = _steps(time, self._dt)
        self._per_spacing = self._dt / spacing
        self._comm, self._strip = comm, Strip(grid, comm)
        self._wavelet = Wavelet(frequency)
        self._place(border, _receivers(receivers, grid, border))
        self._travel = self._distance * spacing / speed

        rows = self._strip.rows
        braked = earth.damping(rows, spacing) * self._dt / 2
        self._keep = self._strip.field((1 - braked) / (1 + braked)).reshape(-1)
        self._ready = self._per_spacing**2 / (12 * (1 + braked))
        self._pull = rest = self._strip.field()
        super().__init__(
            {"u": rest, "du": rest, "response": rest, "J": 0.0},
            control={"m": earth.speeds(rows) ** -2.0},
            tape=("u", "response"),
            units=UNITS,
            flow=FLOW,
            seed=("J",),
            on_step=on_step,
        )

    @property
    def dt(self) -> float:
        """Seconds of a step."""
        return self._dt

    @property
    def steps(self) -> int | None:
        """After how many the program ends; None where no `time` is given."""
        return self._steps

    def gathered(self, name: str, array: Array, /) -> Array:
        """All of a state array, control or gradient, of which each rank has a part; collective.

        Fields come without their halos; of "J", it is the sum. The same on every rank.
        """
        if name == "J":
            return np.array(sum(self._comm.gather(float(array.item()))))
        own = array if name in self.control else array[INSIDE]
        return np.concatenate(self._comm.gather(own))

    def start(self, state: Arrays, /) -> None:
        """Nothing moves; the response is that of the control."""
        m = self.control["m"]
        self._check_stable(m)
        state["response"][INSIDE] = self._ready / m

    def adjoint_start(self, adjoint: Arrays, /) -> None:
        m = self.control["m"]
        self.gradient["m"] -= adjoint["response"][INSIDE] * self._ready / np.square(m)

    def finished(self, state: Arrays, i: int, /) -> bool:
        """Whether all of `time` is recorded."""
        return self._steps is not None and i >= self._steps

    def step(self, state: Arrays, i: int, /) -> None:
        """J of u_i; du; u_{i+1}, and its halo."""
        u, du, response = _flat(state, "u", "du", "response")
        if self._receivers:
            residual = self._residual(state["u"], i)
            state["J"] += 0.5 * self._dt * float(np.add.reduce(np.square(residual)))
        for block in self._strip.blocks():
            push = self._strip.laplacian(u, block)
            push *= response[block]
            du[block] *= self._keep[block]
            du[block] += push
        if self._source:
            state["du"][self._source] += state["response"][self._source] * self._shot(i)
        u += du
        self._strip.fill_halo(state["u"])

    def adjoint_step(self, adjoint: Arrays, tape: Arrays, i: int, /) -> None:
        """The transposes of what `step` does, last first."""
        u, response = _flat(tape, "u", "response")
        of_u, of_du, of_response = _flat(adjoint, "u", "du", "response")
        pull = self._pull.reshape(-1)
        of_du += of_u
        for block in self._strip.blocks():
            np.multiply(of_du[block], response[block], out=pull[block])
        self._strip.fill_halo(self._pull)
        if self._source:
            adjoint["response"][self._source] += adjoint["du"][self._source] * self._shot(i)
        for block in self._strip.blocks():
            of_u[block] += self._strip.laplacian(pull, block)
            push = self._strip.laplacian(u, block)
            push *= of_du[block]
            of_response[block] += push
            of_du[block] *= self._keep[block]
        if self._receivers:
            weight = self._dt * float(adjoint["J"])
            adjoint["u"][self._receivers] += weight * self._residual(tape["u"], i)

    def adjoint_seed(self, state: Arrays, adjoint: Arrays, n: int, /) -> float:
        """J of all ranks, each of which has summed up that of its own receivers."""
        adjoint["J"][...] = 1
        return float(self.gathered("J", state["J"]))

    def _place(self, border: int, columns: Field) -> None:
        """Where the receivers in these columns and the source are, if in the strip of this rank."""
        rows, middle = self._strip.rows, self._strip.grid // 2
        at, below, down = border, border + SOURCE_BELOW, HALO - rows.start
        self._receivers = (at + down, HALO + columns) if at in rows else None
        self._source = (below + down, HALO + middle) if below in rows else None
        self._distance = np.hypot(columns - middle, SOURCE_BELOW)

    def _shot(self, i: int) -> float:
        """12 s, in step i."""
        return 12 * float(self._wavelet.at(np.array(i * self._dt)))

    def _residual(self, u: Field, i: int) -> Field:
        """What r - d is in step i."""
        residual: Field = u[self._receivers]
        return residual - self._wavelet.traces(i * self._dt, self._travel)

    def _check_stable(self, m: Field) -> None:
        """Raises RunFailed on all ranks, wherever it is that m is too small, or no number."""
        least = STIFFEST / 48 * self._per_spacing**2
        stable = bool(np.all(m >= (1 - ROUNDING) * least))  # which no NaN is
        if self._comm.largest(np.array(0 if stable else 1)):
            raise RunFailed(
                f"wave: steps of {self._dt:g} s need m >= {least:.4g} s2 m-2, and the control has"
                " less at some point; give a smaller dt"
            )


def _border(border: int | None, grid: int) -> int:
    """Points at each side."""
    if border is None:
        return min(BORDER, grid // 4)
    check_whole("wave", border=border, least=0)
    if grid - 2 * border <= SOURCE_BELOW:
        raise BadInput(
            f"wave: border = {border} at each side leaves no room for source and receivers in"
            f" {grid} rows; {max(0, (grid - SOURCE_BELOW - 1) // 2)} does"
        )
    return border


def _receivers(count: int | None, grid: int, border: int) -> Field:
    """The columns that they are in."""
    inside = grid - 2 * border
    if count is None:
        count = min(RECEIVERS, inside)
    check_whole("wave", receivers=count, least=1)
    if count > inside:
        raise BadInput(f"wave: receivers = {count}; between the borders there are {inside} columns")
    return border + (2 * np.arange(count) + 1) * inside // (2 * count)


def _check_resolved(earth: Earth, spacing: float, frequency: float) -> None:
    highest = earth.slowest / (FEWEST * spacing)
    if frequency > highest:
        raise BadInput(
            f"wave: frequency = {frequency:g} Hz; points {spacing:g} m apart resolve at most"
            f" {highest:.4g} Hz, {FEWEST} of them in a wavelength"
        )


def _stable_step(dt: float | None, *, limit: float) -> float:
    """`dt`, or 0.8 of the limit, in seconds."""
    if dt is None:
        return 0.8 * limit
    check_real("wave", above=0.0, dt=dt)
    if dt > limit:
        raise BadInput(f"wave: dt = {dt:g} s; waves on this grid need at most {limit:.4g} s")
    return dt


def _steps(time: float | None, dt: float) -> int | None:
    if time is None:
        return None
    check_real("wave", above=0.0, time=time)
    return math.ceil(time / dt)


def _flat(arrays: Arrays, *names: str) -> Iterator[Field]:
    """Views of arrays as one long row."""
    return (arrays[name].reshape(-1) for name in names)
