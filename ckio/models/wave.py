"""Acoustic waves in a layered earth, for seismic inversion, with an adjoint written by hand.

    m (∂²u/∂t² + σ ∂u/∂t) = ∇²u + s(t) δ(x - x_s),     m = 1 / c²,     u = 0 on the walls

The pressure u is excited by a source s. At the border the damping σ absorbs waves, so that they are
not reflected. The time scheme is a leapfrog, written with the change of u over a step, du. With the
coefficients

    keep = (1 - σ dt / 2) / (1 + σ dt / 2),     response = (dt / h)² / (12 m (1 + σ dt / 2))

and L = 12 h² ∇², a step is

    du <- keep du + response (L u + 12 s δ),     u <- u + du.

The derivative of a step with respect to m needs u only, so that the tape of a step is one field.
L is its own transpose. With `of x` for dJ/dx, the adjoint step is

    of du += of u,     of response += of du (L u + 12 s δ),
    of u += L (response of du),     of du *= keep.

Each rank has a strip of rows of each field. The walls are one cell beyond the first and last
points. Beyond a wall, a field is the negative of its mirror image, and on the wall it is 0. So the
Laplacian is of fourth order also at the walls, and is its own transpose. In the forward and in the
adjoint, neighbouring ranks send each other two rows at the edge of their strips. Each point is
computed by the same sums in the same order for any number of ranks.
"""

import math
from collections.abc import Iterator, Mapping
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
"""The number of rows and columns around a strip that the Laplacian reads."""

INSIDE: Final = slice(HALO, -HALO), slice(HALO, -HALO)
"""The points of a field that are this rank's own; around them is the halo."""

STIFFEST: Final = 128
"""An upper bound of the eigenvalues of minus `Strip.laplacian`: 64 along each of the two axes."""

AT_ONCE: Final = 1 << 15
"""Points per block of work. A few arrays of this size fit into the second-level cache of a core."""

DELAY: Final = 1.5
"""The time from the start of a wavelet to its middle, in periods of the peak frequency.

The amplitude that is cut off at the start is below 2e-8.
"""

LOST: Final = 3.0
"""A wave at normal incidence that crosses the border and returns has exp(-LOST) of its amplitude.

More damping reflects a wave at the inner edge of the border. This value gives the smallest sum of
both reflections.
"""

RADIUS: Final = 1 / 8
"""The radius of the anomaly, as a fraction of the grid."""

_NODES: Final = 24
"""Intervals of the quadrature that computes a trace."""

BORDER: Final = 20
"""Points of the border at each side; in a small grid, a quarter of the grid if that is less.

If a wave is 15 points long, the border reflects less than 6% of its amplitude at normal incidence,
and less than 10% at any other angle.
"""

RECEIVERS: Final = 32
"""The number of receivers, or the number of columns between the borders if that is less.

They are spaced evenly in the first row below the upper border.
"""

SOURCE_BELOW: Final = 4
"""Rows from the receivers, which are in the first row below the border, down to the source."""

LONGEST: Final = math.sqrt(48 / STIFFEST)
"""The leapfrog is stable if no wave travels farther than this fraction of h in a step."""

ROUNDING: Final = 1e-9
"""The relative amount by which rounding may exceed that limit."""

FEWEST: Final = 4
"""The least number of points per wavelength at the peak of the spectrum."""

_CHANGED: Final = ("u", "du", "J")
FLOW: Final = Step(
    Flow(use=(*_CHANGED, "response"), out=_CHANGED),
    record=Flow(use=("u", "response"), out=_CHANGED),
)
"""Every step changes u, du and J. `response` never changes, so that the stored tape is u alone."""

UNITS: Final = {"u": "Pa", "du": "Pa", "J": "Pa2 s", "m": "s2 m-2"}


class Strip:
    """The rows of this rank, and the operations on their fields.

    A field is an array [row, column] with a halo. Pointwise operations use it as a flat array,
    which includes the halo at both ends of each row, because NumPy processes one long row three
    times as fast as many separate rows.

    Parameters
    ----------
    grid : int
        Points along each side of the square.
    comm : Comm
        The ranks that share the rows.

    Attributes
    ----------
    grid : int
        Points along each side of the square.
    rows : range
        The rows of this rank. The numbers of rows on two ranks differ by one at most.

    Raises
    ------
    BadInput
        If a rank would have fewer rows than its neighbours read from it.
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
        """Return a new field with these values inside, and a halo of zeros."""
        field = np.zeros((len(self.rows) + 2 * HALO, self._width))
        field[INSIDE] = inside
        return field

    def blocks(self) -> Iterator[slice]:
        """Yield blocks of whole rows, with their halo at both ends, as slices of a flat field."""
        begin, end = HALO, HALO + len(self.rows)
        for row in range(begin, end, self._at_once):
            yield slice(row * self._width, min(row + self._at_once, end) * self._width)

    def fill_halo(self, field: Values, /) -> None:
        """Fill the halo with rows of the neighbours, and with mirror images beyond the walls.

        This is a collective call.
        """
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
        """Return 12 h² ∇² of a flat field in a block; 0 in the halo at both ends of each row.

        The halo of the field must be filled. The scheme is of fourth order: 16 times the sum of the
        four nearest points, minus the sum of the four points at distance 2, minus 60 times the
        point itself. It is its own transpose. The next call overwrites the result.
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
    """A Ricker wavelet of amplitude 1. Outside of 0 to `end` it is 0, apart from rounding.

    Attributes
    ----------
    frequency : float
        The frequency of the peak of its spectrum, in Hz.
    """

    frequency: float

    @property
    def end(self) -> float:
        """The time at which the wavelet is over, in s."""
        return 2 * DELAY / self.frequency

    def at(self, time: Values, /) -> Values:
        """Return the values of the wavelet at these times, which are in s."""
        phase = np.square(math.pi * (self.frequency * time - DELAY))
        values: Values = (1 - 2 * phase) * np.exp(-phase)
        return values

    def traces(self, time: float, travel: Values, /) -> Values:
        """Return the signal at `time` in a medium of uniform speed c, at distances c x `travel`.

        `time` and `travel` are in s. The signal is the solution u(`time`) of
        ∂²u/∂t² / c² - ∇²u = wavelet(t) δ(x) in an infinite plane,

            u(t) = ∫ wavelet(t - travel cosh θ) dθ / 2π,     θ from 0 to infinity.

        In two dimensions a wave has a tail. The integrand is smooth, even in θ, and 0 before the
        wavelet begins and after it ends. Therefore the trapezoidal rule needs few points.
        """
        first, last = (np.arccosh(np.maximum(t / travel, 1)) for t in (time - self.end, time))
        part = np.arange(_NODES + 1)[:, None] / _NODES
        values = self.at(time - travel * np.cosh(first + part * (last - first)))
        values[[0, -1]] *= 0.5
        total: Values = np.add.reduce(values, axis=0) * (last - first)
        return total / (2 * math.pi * _NODES)


@dataclass(frozen=True, slots=True)
class Earth:
    """Horizontal layers, whose speeds have equal differences, with a round anomaly in the middle.

    Attributes
    ----------
    grid, border : int
        Points along each side, and the number of them at each end that damp waves.
    top, bottom : float
        The speed of waves in the first and in the last layer, in m s-1. If there is one layer, its
        speed is `top`.
    layers : int
        The number of layers. All have the same thickness between the borders; the first and the
        last layer continue through the border.
    anomaly : float
        The relative change of the speed in the middle of the anomaly.
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
        """Return the speed of waves, in m s-1, at the points of these rows."""
        depth, across = np.array(rows), np.arange(self.grid)
        layer = (depth - self.border) * self.layers // (self.grid - 2 * self.border)
        part = np.clip(layer, 0, self.layers - 1) / max(self.layers - 1, 1)
        middle = (self.grid - 1) / 2
        away = np.hypot.outer(depth - middle, across - middle) / (RADIUS * self.grid)
        lens = 1 + self.anomaly * np.exp(-np.square(away))
        speeds: Values = (self.top + (self.bottom - self.top) * part)[:, None] * lens
        return speeds

    def damping(self, rows: range, spacing: float, /) -> Values:
        """Return σ, in s-1: 0 inside, and in the border proportional to the depth squared."""
        deep, aside = (self._into_border(np.array(i)) for i in (rows, range(self.grid)))
        if not self.border:
            return np.zeros((len(deep), len(aside)))
        per_crossing = 3 * LOST / (self.border * spacing)
        return self.speeds(rows) * np.add.outer(np.square(deep), np.square(aside)) * per_crossing

    @property
    def _ends(self) -> tuple[float, float]:
        """The speeds in the first layer and in the last one."""
        return self.top, self.bottom if self.layers > 1 else self.top

    def _into_border(self, i: Values) -> Values:
        """Return the depth of points in the border: 0 inside, 1 at the last one before the wall."""
        away = np.abs(i - (self.grid - 1) / 2) - (self.grid - 1) / 2 + self.border
        into: Values = np.maximum(away, 0) / max(self.border, 1)
        return into


class Wave(ArrayModel):
    """Traces of a seismic shot over layers and an anomaly, compared with observed traces.

    The functional is J = 1/2 Σ dt |r - d|², in Pa² s, summed over all steps. Here r is u at the
    receivers at the beginning of the step, and d is the observed pressure. The control is `m`, the
    squared slowness 1 / c² in s2 m-2.

    The observed traces are those of the shot in an earth without layers or anomaly, with the speed
    of the first layer. They are known exactly at any time and for any number of steps, and are not
    computed by the scheme of the model. So d needs neither a second field in the state nor an
    additional forward run, and J is almost 0 for the right m.

    With a `comm` of several ranks, each rank has a strip of rows of the state, the control and the
    gradient. All ranks make the same calls in the same order. `functional` is that of all ranks; u,
    du and the gradient have the same bits as on one rank.

    Parameters
    ----------
    grid : int
        Points along each side, including the border. All points of a row have the same depth.
    spacing : float
        The distance h of the points, in m.
    dt : float, optional
        The time step, in s; by default 0.8 of the largest stable step.
    frequency : float
        The frequency of the peak of the source's spectrum, in Hz.
    speed, deep : float
        The speed of waves in the first and in the last layer, in m s-1.
    layers : int
        The number of layers.
    anomaly : float
        The relative increase of the speed in the middle of the anomaly, above -1.
    border : int, optional
        Points at each side that damp waves; by default 20, or a quarter of the grid if less.
    comm : Comm
        The ranks of the job, in a separate communicator for the model, made by `Comm.duplicate`.

    Raises
    ------
    BadInput
        If an option is out of range, `dt` is not stable, the grid does not resolve the source, or
        the grid has too few rows for the ranks.
    RunFailed
        In the first step, on all ranks, if the control was changed to unstable values.
    """

    records_late = True  # an adjoint step reads its tape only

    def __init__(
        self,
        *,
        grid: int = 128,
        spacing: float = 10.0,
        dt: float | None = None,
        frequency: float = 10.0,
        speed: float = 1500.0,
        deep: float = 2500.0,
        layers: int = 3,
        anomaly: float = -0.1,
        border: int | None = None,
        comm: Comm = SOLO,
    ) -> None:
        check_whole("wave", grid=grid, least=8)
        check_whole("wave", layers=layers, least=1)
        check_real("wave", above=0.0, spacing=spacing, frequency=frequency, speed=speed, deep=deep)
        check_real("wave", above=-1.0, anomaly=anomaly)
        border = _border(border, grid)
        earth = Earth(grid, border, speed, deep, layers, anomaly)
        _check_resolved(earth, spacing, frequency)
        self._dt = _stable_step(dt, limit=LONGEST * spacing / earth.fastest)
        self._per_spacing = self._dt / spacing
        self._comm, self._strip = comm, Strip(grid, comm)
        self._wavelet = Wavelet(frequency)
        self._place(border, _receivers(grid - 2 * border) + border)
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
        )

    @property
    def dt(self) -> float:
        """The time step, in s."""
        return self._dt

    def gathered(self, name: str, array: Array, /) -> Array:
        """Return the whole of a state array, control or gradient, from the parts of all ranks.

        This is a collective call, and every rank gets the same result. Fields are returned without
        their halos. For "J" the result is the sum over the ranks.
        """
        if name == "J":
            return np.array(sum(self._comm.gather(float(array.item()))))
        own = array if name in self.control else array[INSIDE]
        return np.concatenate(self._comm.gather(own))

    def start(self, state: Arrays, /) -> None:
        """Set `response` from the control m; u and du are 0 at the start."""
        m = self.control["m"]
        self._check_stable(m)
        state["response"][INSIDE] = self._ready / m

    def adjoint_start(self, adjoint: Arrays, /) -> None:
        m = self.control["m"]
        self.gradient["m"] -= adjoint["response"][INSIDE] * self._ready / np.square(m)

    def step(self, state: Arrays, i: int, /) -> None:
        """Add the part of u_i to J; then compute du, u_{i+1}, and its halo."""
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
        self.complete(state)

    def complete(self, arrays: Mapping[str, Any], /) -> None:
        """Fill the halo of u, which repeats the rows of neighbours and mirror images."""
        self._strip.fill_halo(arrays["u"])

    def adjoint_step(self, adjoint: Arrays, tape: Arrays, i: int, /) -> None:
        """Apply the transposes of the parts of `step`, in reverse order."""
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

    @property
    def functional(self) -> float:
        """J, summed over the ranks. `state["J"]` has the part of this rank's receivers."""
        return float(self.gathered("J", np.array(super().functional)))

    def _place(self, border: int, columns: Values) -> None:
        """Set the indices of receivers and source; None for those in the strip of another rank."""
        rows, middle = self._strip.rows, self._strip.grid // 2
        at, below, down = border, border + SOURCE_BELOW, HALO - rows.start
        self._receivers = (at + down, HALO + columns) if at in rows else None
        self._source = (below + down, HALO + middle) if below in rows else None
        self._distance = np.hypot(columns - middle, SOURCE_BELOW)

    def _shot(self, i: int) -> float:
        """Return 12 s for step i."""
        return 12 * float(self._wavelet.at(np.array(i * self._dt)))

    def _residual(self, u: Values, i: int) -> Values:
        """Return r - d of step i."""
        residual: Values = u[self._receivers]
        return residual - self._wavelet.traces(i * self._dt, self._travel)

    def _check_stable(self, m: Values) -> None:
        """Raise RunFailed on all ranks if m is too small, or not a number, on any rank."""
        least = STIFFEST / 48 * self._per_spacing**2
        stable = bool(np.all(m >= (1 - ROUNDING) * least))  # false if m has a NaN
        if self._comm.largest(np.array(0 if stable else 1)):
            raise RunFailed(
                f"wave: steps of {self._dt:g} s need m >= {least:.4g} s2 m-2, and the control is"
                " smaller, or NaN, at some point; give a smaller dt"
            )


def _border(border: int | None, grid: int) -> int:
    """Return the number of border points at each side."""
    if border is None:
        return min(BORDER, grid // 4)
    check_whole("wave", border=border, least=0)
    if grid - 2 * border <= SOURCE_BELOW:
        raise BadInput(
            f"wave: border = {border} at each side leaves no rows for source and receivers, because"
            f" the grid has {grid} rows; it may be at most"
            f" {max(0, (grid - SOURCE_BELOW - 1) // 2)}"
        )
    return border


def _receivers(columns: int) -> Values:
    """Return the columns of the receivers among those between the borders, spaced evenly."""
    count = min(RECEIVERS, columns)
    return (2 * np.arange(count) + 1) * columns // (2 * count)


def _check_resolved(earth: Earth, spacing: float, frequency: float) -> None:
    highest = earth.slowest / (FEWEST * spacing)
    if frequency > highest:
        raise BadInput(
            f"wave: frequency = {frequency:g} Hz; points at a distance of {spacing:g} m resolve at"
            f" most {highest:.4g} Hz, with {FEWEST} points per wavelength; give a lower frequency"
            " or a smaller spacing"
        )


def _stable_step(dt: float | None, *, limit: float) -> float:
    """Return `dt`, or 0.8 of the limit if it is None; in s."""
    if dt is None:
        return 0.8 * limit
    check_real("wave", above=0.0, dt=dt)
    if dt > limit:
        raise BadInput(
            f"wave: dt = {dt:g} s; the scheme is stable on this grid up to {limit:.4g} s; give a"
            " smaller dt"
        )
    return dt


def _flat(arrays: Arrays, *names: str) -> Iterator[Values]:
    """Yield flat views of the arrays with these names."""
    return (arrays[name].reshape(-1) for name in names)
