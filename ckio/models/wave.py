"""Acoustic waves in a layered earth, as seismic inversion has them, its adjoint written by hand.

    m (∂²u/∂t² + σ ∂u/∂t) = ∇²u + s(t) δ(x - x_s),     m = 1 / c²,     u = 0 on the walls

is a pressure u that a source s makes, and that a border of damping σ keeps from coming back. In
time it is a leapfrog, which is written with the change of u over a step, du: with the coefficients

    keep = (1 - σ dt / 2) / (1 + σ dt / 2),     response = (dt / h)² / 12 m (1 + σ dt / 2)

and L = 12 h² ∇²,

    du <- keep du + response (L u + 12 s δ),     u <- u + du.

Of this, the derivative by m needs u and no more: the tape of a step is one field. Back, L stands
for its own transpose:

    of du += of u,     of response += of du (L u + 12 s δ),
    of u += L (response of du),     of du *= keep.

A field is in strips of rows, one strip a rank. Outside the square it is the negative of its mirror
image, with 0 in between, on walls that are one cell beyond the first and last points. So the
Laplacian of fourth order keeps its order at the walls, and is its own transpose: back as well as
forward, neighbours send each other the two rows that are theirs at the edge, and every point is
computed by the same sums in the same order, however many ranks there are.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ckio.actions.variables import Flow, Step
from ckio.errors import BadInput, RunFailed
from ckio.model.arraymodel import ArrayModel
from ckio.model.arrays import Array, Arrays
from ckio.model.comm import SOLO, Comm, share
from ckio.models.options import check_real, check_whole

Values = NDArray[Any]

HALO: Final = 2
"""Rows and columns around a strip that the Laplacian reads."""

INSIDE: Final = slice(HALO, -HALO), slice(HALO, -HALO)
"""The points of a field that are this rank's own; around them is the halo."""

STIFFEST: Final = 128
"""No eigenvalue of minus `Strip.laplacian` is above this: 2 x 64, along each axis."""

AT_ONCE: Final = 1 << 15
"""Points to work on at a time: a few arrays of so many stay in a core's second cache."""

DELAY: Final = 1.5
"""Periods of the peak frequency from the start to the middle of a wavelet: 2e-8 is cut off."""

LOST: Final = 3.0
"""A wave that crosses a border head on, to the wall and back, is left with exp(-LOST) of itself.

More of it, and a wave is thrown back where the border begins: this is the least of both together.
"""

RADIUS: Final = 1 / 8
"""Of the anomaly, as a part of the grid."""

_NODES: Final = 24
"""Intervals of the integral that a trace is."""

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


class Strip:
    """The rows of this rank, and fields on them: arrays [row, column] with a halo around.

    Point by point a field is worked on flat, with the halo at both ends of each row: NumPy does one
    long row three times as fast as many that lie apart.

    Parameters
    ----------
    grid : int
        Points along each side of the square.
    comm : Comm
        The ranks that share its rows.

    Attributes
    ----------
    grid : int
        As given.
    rows : range
        Which of the rows are this rank's; the same count on every rank, or one more.

    Raises
    ------
    BadInput
        Where a rank would get fewer rows than its neighbours read of it.
    """

    def __init__(self, grid: int, comm: Comm) -> None:
        if grid < HALO * comm.size:
            raise BadInput(
                f"{grid} rows are too few for {comm.size} ranks, each of which needs {HALO}; take"
                f" a larger grid, or {grid // HALO} ranks"
            )
        self._comm = comm
        self.grid = grid
        self.rows = share(grid, comm)
        self._width = grid + 2 * HALO
        self._at_once = min(max(1, AT_ONCE // self._width), len(self.rows))
        self._laplacian = np.empty(self._at_once * self._width)

    def field(self, inside: Values | float = 0.0, /) -> Values:
        """A new one with these values inside, and a halo of zeros."""
        field = np.zeros((len(self.rows) + 2 * HALO, self._width))
        field[INSIDE] = inside
        return field

    def blocks(self) -> Iterator[slice]:
        """All of the rows, some at a time, with both ends: where they lie in a flat field."""
        begin, end = HALO, HALO + len(self.rows)
        for row in range(begin, end, self._at_once):
            yield slice(row * self._width, min(row + self._at_once, end) * self._width)

    def fill_halo(self, field: Values, /) -> None:
        """Fill the halo with rows of neighbours, and mirror images beyond the walls; collective."""
        np.negative(field[:, HALO], out=field[:, 0])
        np.negative(field[:, -1 - HALO], out=field[:, -1])
        before, after = self._comm.rank - 1, self._comm.rank + 1
        send, into = {}, {}
        if before >= 0:
            send[before], into[before] = field[HALO : 2 * HALO], field[:HALO]
        else:
            np.negative(field[HALO], out=field[0])
        if after < self._comm.size:
            send[after], into[after] = field[-2 * HALO : -HALO], field[-HALO:]
        else:
            np.negative(field[-1 - HALO], out=field[-1])
        self._comm.exchange(send, into)

    def laplacian(self, flat: Values, block: slice, /) -> Values:
        """12 h² ∇² of a flat field whose halo is filled, in a block; 0 at both ends of rows.

        Of 4th order: 16 times the four points around less the four behind them, less 60 times the
        point. Its own transpose. In work memory, which the next call overwrites.
        """
        out = self._laplacian[: block.stop - block.start]

        def shifted(by: int) -> Values:
            return flat[block.start + by : block.stop + by]

        np.multiply(flat[block], -60 / 16, out=out)
        for by in (-self._width, self._width, -1, 1):
            out += shifted(by)
        out *= 16
        for by in (-2 * self._width, 2 * self._width, -2, 2):
            out -= shifted(by)
        rows = out.reshape(-1, self._width)
        rows[:, :HALO] = rows[:, -HALO:] = 0
        return out


@dataclass(frozen=True, slots=True)
class Wavelet:
    """A Ricker wavelet of amplitude 1, all of it between 0 and `end` but for rounding.

    Attributes
    ----------
    frequency : float
        At which its spectrum has the peak, in Hz.
    """

    frequency: float

    @property
    def end(self) -> float:
        """In s."""
        return 2 * DELAY / self.frequency

    def at(self, time: Values, /) -> Values:
        """Its values at these times, in s."""
        phase = np.square(math.pi * (self.frequency * time - DELAY))
        values: Values = (1 - 2 * phase) * np.exp(-phase)
        return values

    def traces(self, time: float, travel: Values, /) -> Values:
        """Return the signal in a medium of one speed c, at distances of c x `travel` seconds.

        This is the u(`time`) of ∂²u/∂t² / c² - ∇²u = wavelet(t) δ(x) in an endless plane,

            u(t) = ∫ wavelet(t - travel cosh θ) dθ / 2π,     θ from 0 to infinity:

        in two dimensions a wave has a tail. What is integrated is smooth, even in θ, and 0 where
        the wavelet has not begun or is over, so the trapezoidal rule needs few points.
        """
        first, last = (np.arccosh(np.maximum(t / travel, 1)) for t in (time - self.end, time))
        part = np.arange(_NODES + 1)[:, None] / _NODES
        values = self.at(time - travel * np.cosh(first + part * (last - first)))
        values[[0, -1]] *= 0.5
        total: Values = np.add.reduce(values, axis=0) * (last - first)
        return total / (2 * math.pi * _NODES)


@dataclass(frozen=True, slots=True)
class Earth:
    """Flat layers, one faster than the other, with a round anomaly in their middle.

    Attributes
    ----------
    grid, border : int
        Points along each side, and how many of them at each end damp waves.
    top, bottom : float
        Speed of waves in the first and last layer, in m s-1; of one layer, in the first.
    layers : int
        How many; all are as thick, but that those at the ends go on through the border.
    anomaly : float
        By what part of it the speed differs in the middle of the anomaly.
    """

    grid: int
    border: int
    top: float
    bottom: float
    layers: int
    anomaly: float

    @property
    def slowest(self) -> float:
        """No speed is below this, in m s-1."""
        return min(self._ends) * (1 + min(self.anomaly, 0))

    @property
    def fastest(self) -> float:
        """No speed is above this, in m s-1."""
        return max(self._ends) * (1 + max(self.anomaly, 0))

    def speeds(self, rows: range, /) -> Values:
        """Of waves, in m s-1, at the points of these rows."""
        depth, across = np.array(rows), np.arange(self.grid)
        layer = (depth - self.border) * self.layers // (self.grid - 2 * self.border)
        part = np.clip(layer, 0, self.layers - 1) / max(self.layers - 1, 1)
        middle = (self.grid - 1) / 2
        away = np.hypot.outer(depth - middle, across - middle) / (RADIUS * self.grid)
        lens = 1 + self.anomaly * np.exp(-np.square(away))
        speeds: Values = (self.top + (self.bottom - self.top) * part)[:, None] * lens
        return speeds

    def damping(self, rows: range, spacing: float, /) -> Values:
        """The σ of the border, in s-1: at its inner edge 0, and from there like depth squared."""
        deep, aside = (self._into_border(np.array(i)) for i in (rows, range(self.grid)))
        if not self.border:
            return np.zeros((len(deep), len(aside)))
        per_crossing = 3 * LOST / (self.border * spacing)
        return self.speeds(rows) * np.add.outer(np.square(deep), np.square(aside)) * per_crossing

    @property
    def _ends(self) -> tuple[float, float]:
        """Speeds in the first layer and in the last one."""
        return self.top, self.bottom if self.layers > 1 else self.top

    def _into_border(self, i: Values) -> Values:
        """Return the depth of points in the border: 0 inside, 1 at the last one before the wall."""
        away = np.abs(i - (self.grid - 1) / 2) - (self.grid - 1) / 2 + self.border
        into: Values = np.maximum(away, 0) / max(self.border, 1)
        return into


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

    def images(self) -> dict[str, Array]:
        """The wave field, without its halo; the surface is above."""
        return {"u": super().images()["u"][INSIDE]}

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
        """Return whether all of `time` is recorded."""
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

    def _place(self, border: int, columns: Values) -> None:
        """Place the receivers in these columns, and the source, if in the strip of this rank."""
        rows, middle = self._strip.rows, self._strip.grid // 2
        at, below, down = border, border + SOURCE_BELOW, HALO - rows.start
        self._receivers = (at + down, HALO + columns) if at in rows else None
        self._source = (below + down, HALO + middle) if below in rows else None
        self._distance = np.hypot(columns - middle, SOURCE_BELOW)

    def _shot(self, i: int) -> float:
        """12 s, in step i."""
        return 12 * float(self._wavelet.at(np.array(i * self._dt)))

    def _residual(self, u: Values, i: int) -> Values:
        """Return r - d of step i."""
        residual: Values = u[self._receivers]
        return residual - self._wavelet.traces(i * self._dt, self._travel)

    def _check_stable(self, m: Values) -> None:
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


def _receivers(count: int | None, grid: int, border: int) -> Values:
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


def _flat(arrays: Arrays, *names: str) -> Iterator[Values]:
    """Views of arrays as one long row."""
    return (arrays[name].reshape(-1) for name in names)
