"""Burgers' equation with a time step that depends on the flow, with an adjoint written by hand.

    ∂u/∂t = -∂(u²/2)/∂x + ν ∂²u/∂x²,     u = 0 on the walls x = 0 and x = L

is solved up to a time T in steps of the largest stable length,

    dt = C / (max|u| / h + 2 ν / h²),     and the last step ends exactly at T,

so that the number of steps is not known in advance. dt is computed from the state, and its
derivative is part of the gradient: with respect to u at the point of the largest |u|, to ν, and in
the last step to the time at which it begins. The gradient is that of the discrete J. This J has no
derivative if two points have the same largest |u|, or if a small change of u_0 changes the number
of steps; then the gradient is that for a fixed point and a fixed number of steps.

In space, the fluxes between points conserve energy, apart from ν. In time, a step has the three
stages u + dt/3 F(u), u + dt/2 F(.), u + dt F(.) of Wicker and Skamarock (2002).
"""

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ckio.actions.variables import Flow, Step
from ckio.errors import BadInput, RunFailed
from ckio.model.arraymodel import ArrayModel
from ckio.model.arrays import Arrays
from ckio.models.options import check_real, check_whole

Values = NDArray[np.float64]

INSIDE: Final = slice(1, -1)
"""The points of a field that are not walls."""

STAGES: Final = (1 / 3, 1 / 2, 1.0)
"""The fraction of dt by which each stage multiplies the rate of change of the stage before."""

WAVES: Final = 8
"""The random flows are sums of sines with at most this number of half waves."""

_ALL: Final = ("u", "t", "J")
FLOW: Final = Step(Flow(use=_ALL, out=_ALL), record=Flow(use=("u", "t"), out=_ALL))
"""Every step reads and writes all arrays of the state. Its tape does not contain J."""

UNITS: Final = {"u": "m s-1", "t": "s", "J": "m2 s-2", "viscosity": "m2 s-1"}


class Burgers(ArrayModel):
    """Waves that steepen to fronts and decay. The controls are the initial flow and the viscosity.

    The functional is J = (mean of E(u) over time) + E(u(T) - u*), in m2 s-2. E is the mean kinetic
    energy over x, and u* is a target flow. The mean over time is the sum of dt E(u) / T over the
    steps, with E(u) at the beginning of each step. The controls are `u`, the flow in x_0, whose
    values on the walls have no effect, and the number `viscosity`.

    The model finishes at T, after a number of steps that depends on the flow. A step that begins at
    T changes nothing.

    Parameters
    ----------
    grid : int
        Cells between the walls, at least 4.
    viscosity : float
        ν in m2 s-1. The width of a front is about 4 ν / |u|; if it is less than two cells, ripples
        appear.
    time : float
        T, in s.
    length : float
        L, in m.
    speed : float
        The root mean square speed of the flow in x_0, and of the target, in m s-1.
    courant : float
        C, above 0 and at most 1, the limit of stability.
    seed : int
        The seed of the random flows.

    Raises
    ------
    BadInput
        If an option is out of range.
    RunFailed
        In a forward or adjoint step in which the time would not increase, because the flow is not
        finite or is so fast that t + dt is rounded to t.
    """

    records_late = True  # an adjoint step reads its tape only

    def __init__(
        self,
        *,
        grid: int = 256,
        viscosity: float = 2e-3,
        time: float = 1.0,
        length: float = 1.0,
        speed: float = 0.5,
        courant: float = 0.5,
        seed: int = 0,
    ) -> None:
        check_whole("burgers", grid=grid, least=4)
        check_whole("burgers", seed=seed, least=0)
        positive = {"viscosity": viscosity, "time": time, "length": length, "speed": speed}
        check_real("burgers", above=0.0, **positive, courant=courant)
        if courant > 1:
            raise BadInput(
                f"burgers: courant = {courant:g}; a step is stable up to 1; give a smaller value"
            )
        self._cells, self._spacing = grid, length / grid
        self._end, self._courant = time, courant
        random = np.random.default_rng(seed)
        u = _waves(grid, random, speed=speed)
        self._target = _waves(grid, random, speed=speed)

        self._stages = tuple(_Stage(grid) for _ in STAGES)
        self._after = np.empty(grid - 1)
        self._cotangent, self._work = np.zeros((2, grid + 1))  # the walls of the first stay 0
        super().__init__(
            {"u": u, "t": 0.0, "J": 0.0},
            control={"u": u, "viscosity": viscosity},
            tape=("u", "t"),
            units=UNITS,
            flow=FLOW,
            seed=("u", "J"),
        )

    def start(self, state: Arrays, /) -> None:
        """Set u_0 to the control inside the walls."""
        state["u"][INSIDE] = self.control["u"][INSIDE]

    def adjoint_start(self, adjoint: Arrays, /) -> None:
        gradient = self.gradient["u"][INSIDE]
        gradient += adjoint["u"][INSIDE]

    def finished(self, state: Arrays, i: int, /) -> bool:
        """Return whether T has been reached."""
        return bool(state["t"] >= self._end)

    def step(self, state: Arrays, i: int, /) -> None:
        """Add dt E(u_i) / T to J; compute u_{i+1} from u_i, and t_{i+1} = t_i + dt, or T."""
        u, t = state["u"], float(state["t"])
        dt, last, _ = self._time_step(u, t, i)
        state["J"] += dt / self._end * self._energy(u)
        u[INSIDE] = self._march(u, dt)
        state["t"][...] = self._end if last else t + dt

    def adjoint_step(self, adjoint: Arrays, tape: Arrays, i: int, /) -> None:
        """Apply the transposes of the parts of `step`, in reverse order."""
        u, t = tape["u"], float(tape["t"])
        of_u, of_t, of_mean = adjoint["u"], adjoint["t"], float(adjoint["J"]) / self._end
        dt, last, fastest = self._time_step(u, t, i)
        self._march(u, dt)
        of_dt = self._adjoint_march(of_u, dt) + of_mean * self._energy(u)
        self._adjoint_energy(u, of_mean * dt, of_u)
        if last:  # dt = T - t, and the step ends at T for every t
            of_t[...] = -of_dt
        else:
            of_dt += float(of_t)
            of_u[fastest] += self._adjoint_time_step(dt, of_dt) * np.sign(u[fastest])

    def adjoint_seed(self, state: Arrays, adjoint: Arrays, n: int, /) -> float:
        """Return J = (sum of the dt E(u_i)) / T + E(u_n - u*), and set its derivative."""
        away = np.subtract(state["u"], self._target, out=self._cotangent)
        self._adjoint_energy(away, 1.0, adjoint["u"])
        return self._energy(away)

    def _time_step(self, u: Values, t: float, i: int) -> tuple[float, bool, int]:
        """Return dt in s, whether the step is the last one, and the index of the largest |u|."""
        fastest = int(np.abs(u, out=self._work).argmax())
        speed, viscosity = float(self._work[fastest]), float(self.control["viscosity"])
        rate = speed / self._spacing + 2 * viscosity / self._spacing**2
        dt, left = self._courant / rate, self._end - t
        if not t + dt > t:
            raise RunFailed(
                f"burgers: at step {i}, t = {t:g} s, the speed of the flow is {speed:g} m s-1; the"
                " stable time step is too small to increase t; start from a slower flow"
            )
        return (dt, False, fastest) if dt < left else (left, True, fastest)

    def _adjoint_time_step(self, dt: float, of_dt: float) -> float:
        """Return dJ/d(largest speed) through dt, in a step that is not the last one."""
        of_rate = -of_dt * dt**2 / self._courant
        self.gradient["viscosity"] += of_rate * 2 / self._spacing**2
        return of_rate / self._spacing

    def _march(self, u: Values, dt: float) -> Values:
        """Return the flow inside after dt. `_adjoint_march` uses the values in the stages."""
        stiffness = 6 * float(self.control["viscosity"]) / self._spacing
        first, after = self._stages[0].inside, self._after
        np.copyto(first, u[INSIDE])
        ends = *(stage.inside for stage in self._stages[1:]), after
        for stage, part, end in zip(self._stages, STAGES, ends, strict=True):
            np.add(first, stage.change(part * dt / (6 * self._spacing), stiffness), out=end)
        return after

    def _adjoint_march(self, of_u: Values, dt: float) -> float:
        """Apply the adjoint of the last march to `of_u`; return dJ/d(dt)."""
        stiffness = 6 * float(self.control["viscosity"]) / self._spacing
        of_stage, of_time, of_stiffness = self._cotangent, 0.0, 0.0
        of_stage[INSIDE] = of_u[INSIDE]
        of_u[...] = 0
        for stage, part in zip(reversed(self._stages), reversed(STAGES), strict=True):
            of_u += of_stage
            factor = part / (6 * self._spacing)
            of_factor, stiffer = stage.adjoint_change(of_stage, factor * dt, stiffness)
            of_time += factor * of_factor
            of_stiffness += stiffer
        of_u += of_stage
        self.gradient["viscosity"] += of_stiffness * 6 / self._spacing
        return of_time

    def _energy(self, u: Values) -> float:
        """Return E(u) = mean of u²/2."""
        np.square(u, out=self._work)
        return float(np.add.reduce(self._work)) / (2 * self._cells)

    def _adjoint_energy(self, u: Values, of_energy: float, of_u: Values) -> None:
        of_u += np.multiply(u, of_energy / self._cells, out=self._work)


class _Stage:
    """The flow at one stage of a step: its values, 0 on the walls, and the fluxes between points.

    Let l and r be the values to the left and right of a flux, and the stiffness be 6 ν / h. Then

        6 flux = l² + l r + r² - stiffness (r - l).
    """

    def __init__(self, cells: int) -> None:
        points = np.zeros(cells + 1)
        self._left, self.inside, self._right = points[:-1], points[INSIDE], points[1:]
        self._flux, self._sum, self._difference, self._of_flux, self._work = np.empty((5, cells))
        self._change = np.empty(cells - 1)

    def change(self, factor: float, stiffness: float, /) -> Values:
        """Return factor (6 flux from the left - 6 flux to the right), at the points inside."""
        left, right, flux, work = self._left, self._right, self._flux, self._work
        np.add(left, right, out=self._sum)
        np.subtract(right, left, out=self._difference)
        np.square(self._sum, out=flux)
        flux -= np.multiply(left, right, out=work)
        flux -= np.multiply(self._difference, stiffness, out=work)
        np.subtract(flux[:-1], flux[1:], out=self._change)
        self._change *= factor
        return self._change

    def adjoint_change(self, c: Values, factor: float, stiffness: float, /) -> tuple[float, float]:
        """Apply the adjoint of the last `change` to `c`, which is 0 on the walls, in place.

        Return dJ/d(factor) and dJ/d(stiffness).
        """
        of_flux, inside, work, other = self._of_flux, c[INSIDE], self._work, self._sum
        np.subtract(c[1:], c[:-1], out=of_flux)
        of_factor = float(np.add.reduce(np.multiply(of_flux, self._flux, out=work)))
        of_flux *= factor
        stiffer = -float(np.add.reduce(np.multiply(of_flux, self._difference, out=work)))
        np.subtract(of_flux[1:], of_flux[:-1], out=inside)
        inside *= stiffness
        np.add(self._sum, self._left, out=work)
        work *= of_flux
        inside += work[1:]
        other += self._right
        other *= of_flux
        inside += other[:-1]
        return of_factor, stiffer


def _waves(cells: int, random: np.random.Generator, *, speed: float) -> Values:
    """Return a random flow, which is the same function of x on every grid."""
    wave = np.arange(1, WAVES + 1)
    amplitudes = random.standard_normal(WAVES) / wave
    amplitudes *= speed / math.sqrt(np.sum(amplitudes**2) / 2)
    u: Values = amplitudes @ np.sin(np.pi / cells * np.outer(wave, np.arange(cells + 1)))
    u[[0, -1]] = 0
    return u
