"""Barotropic vorticity in a closed ocean basin on a beta plane, with an adjoint written by hand.

    ∂ζ/∂t = Q - J(ψ, ζ) - β ∂ψ/∂x - r ζ + ν ∇²ζ,     ∇²ψ = ζ,     ψ = ζ = 0 on the walls

is the time-dependent Stommel-Munk problem of Maddison (2024), section 2. A wind of curl Q drives
gyres, which are balanced by bottom drag r and viscosity ν. With ζ = 0, water slips freely along the
walls. Each part of a step is followed by its transpose, which consists of the transposes that
`Basin` states.
"""

import math
from typing import ClassVar

import numpy as np
import scipy.fft
from numpy.typing import NDArray

from ckio.actions.variables import Flow, Step
from ckio.errors import BadInput, RunFailed
from ckio.model.arraymodel import ArrayModel
from ckio.model.arrays import Arrays
from ckio.models.options import check_real, check_whole

Values = NDArray[np.float64]

INSIDE = slice(1, -1), slice(1, -1)
"""The points of a field that are not on a wall."""

ADAMS_BASHFORTH = (1.0, 0.0, 0.0), (3 / 2, -1 / 2, 0.0), (23 / 12, -16 / 12, 5 / 12)
"""Weights of the tendencies of this step and of the two before, in steps 0, 1, and 2 or later."""

DAMPING_LIMIT = 6 / 11
"""Adams-Bashforth of third order is stable if dt times the rate of damping is below this."""

WAVE_LIMIT = 0.72
"""Adams-Bashforth of third order is stable if dt times the frequency of a wave is below this."""

DENSITY = 1000.0
"""The density of water, in kg m-3."""

EDDIES = 8
"""The random eddies are sums of sines with at most this number of half waves along each side."""

_ALL = ("zeta", "psi", "F_1", "F_2", "J")
FLOW = Step(Flow(use=_ALL, out=_ALL), record=Flow(use=("zeta", "psi"), out=_ALL))
"""Every step reads and writes all arrays of the state, but its tape needs only ζ and ψ.

A step does not overwrite the walls, which are always zero, so that `kill` is empty. This makes no
difference here, because the step reads each array before it overwrites it.
"""

UNITS = {
    "zeta": "s-1",
    "psi": "m2 s-1",
    "F_1": "s-2",
    "F_2": "s-2",
    "Q": "s-2",
    "J": "m2 s-2",
}


class Basin:
    """A square of cells x cells. Its fields are arrays [y, x] of all points, zero on the walls.

    The operators are finite differences and the Poisson solver. An operator returns its values
    inside the walls, in memory that the next call of the same operator overwrites. With
    <a, b> = Σ a b over all points, the transpose of an operator L is the operator L' with
    <c, L(a)> = <L'(c), a>. It is written c -> L'(c) below.
    """

    def __init__(self, *, cells: int, spacing: float) -> None:
        inside = cells - 1
        self.spacing = spacing
        self._differences = np.empty((inside, cells + 1)), np.empty((cells + 1, inside))
        self._edges = np.empty((inside, cells)), np.empty((cells, inside))
        self._corners = np.empty((cells, cells)), np.empty((cells, cells))
        work = np.empty((6, inside, inside))
        self._jacobian, self._term, self._slope, self._scaled, self._curvature, self._inverse = work
        wave = 2 * np.cos(np.pi * np.arange(1, cells) / cells) - 2
        # A sine transform of type I is its own inverse, apart from the last factor.
        self._inverse_eigenvalues = spacing**2 / (wave[:, None] + wave) / (2 * cells) ** 2
        self.energy_factor = -0.5 / cells**2

    def jacobian(self, a: Values, b: Values, /) -> Values:
        """Return J(a, b) = ∂a/∂x ∂b/∂y - ∂a/∂y ∂b/∂x on nine points, by Arakawa (1966).

        At a point p it is the sum of w_d(p) b(p+d) - w_d(p-d) b(p-d) over the neighbours
        d = E, N, NE, NW. The weights w_d are computed from a, midway between two points.

        Transpose: c -> J(b, c) for a, and c -> J(c, a) for b, because <c, J(a, b)> does not change
        if a, b and c are permuted cyclically. It is 0 if c = a or c = b, so that energy and
        enstrophy are conserved.
        """
        across, along = self._differences
        (east, north), (northeast, northwest) = self._edges, self._corners
        np.subtract(a[:-2], a[2:], out=across)
        np.add(across[:, 1:], across[:, :-1], out=east)
        np.subtract(a[:, 2:], a[:, :-2], out=along)
        np.add(along[1:], along[:-1], out=north)
        np.subtract(a[:-1, 1:], a[1:, :-1], out=northeast)
        np.subtract(a[1:, 1:], a[:-1, :-1], out=northwest)

        out, term = self._jacobian, self._term
        np.multiply(east[:, 1:], b[1:-1, 2:], out=out)
        out -= np.multiply(east[:, :-1], b[1:-1, :-2], out=term)
        out += np.multiply(north[1:], b[2:, 1:-1], out=term)
        out -= np.multiply(north[:-1], b[:-2, 1:-1], out=term)
        out += np.multiply(northeast[1:, 1:], b[2:, 2:], out=term)
        out -= np.multiply(northeast[:-1, :-1], b[:-2, :-2], out=term)
        out += np.multiply(northwest[1:, :-1], b[2:, :-2], out=term)
        out -= np.multiply(northwest[:-1, 1:], b[:-2, 2:], out=term)
        out *= 1 / (12 * self.spacing**2)
        return out

    def slope(self, a: Values, factor: float, /) -> Values:
        """Return the slope along x, factor ∂a/∂x. Transpose: c -> -factor ∂c/∂x."""
        np.subtract(a[1:-1, 2:], a[1:-1, :-2], out=self._slope)
        self._slope *= factor / (2 * self.spacing)
        return self._slope

    def curvature(self, a: Values, factor: float, /) -> Values:
        """Return the five-point Laplacian, factor ∇²a. Transpose: itself."""
        np.multiply(a[INSIDE], -4.0, out=self._curvature)
        for neighbour in (a[1:-1, 2:], a[1:-1, :-2], a[2:, 1:-1], a[:-2, 1:-1]):
            self._curvature += neighbour
        self._curvature *= factor / self.spacing**2
        return self._curvature

    def scaled(self, a: Values, factor: float, /) -> Values:
        """Return factor a. Transpose: itself."""
        return np.multiply(a[INSIDE], factor, out=self._scaled)

    def inverse(self, a: Values, /) -> Values:
        """Return b with ∇²b = a, by sine transforms in one thread. Transpose: itself."""
        np.copyto(self._inverse, a[INSIDE])
        waves = scipy.fft.dstn(self._inverse, type=1, overwrite_x=True, workers=1)
        waves *= self._inverse_eigenvalues
        self._inverse = scipy.fft.dstn(waves, type=1, overwrite_x=True, workers=1)
        return self._inverse

    def energy(self, psi: Values, zeta: Values, /) -> float:
        """Return E(ψ, ζ) = mean of |∇ψ|²/2 = mean of -ψ ζ/2, after integration by parts.

        Transpose: c -> `energy_factor` c ζ for ψ, and c -> `energy_factor` c ψ for ζ.
        """
        np.multiply(psi[INSIDE], zeta[INSIDE], out=self._term)
        return float(np.add.reduce(self._term, axis=None)) * self.energy_factor

    def sines(self, amplitudes: Values, /) -> Values:
        """Return Σ amplitudes[l-1, k-1] sin(l π y) sin(k π x), for x and y in [0, 1]."""
        waves = np.zeros_like(self._inverse)
        shown = amplitudes[: len(waves), : len(waves)]  # this grid does not resolve shorter waves
        waves[: len(shown), : len(shown)] = shown
        return np.pad(scipy.fft.dstn(waves, type=1, workers=1) / 4, 1)


class Vorticity(ArrayModel):
    """Eddies and a double gyre. The controls are the initial vorticity and the wind.

    The functional is J = (mean of E(ψ_i) over the steps i) + E(ψ_n - ψ*), in m2 s-2: the kinetic
    energy during the run, and that of the difference to a target flow ψ* at the end. The controls
    are `zeta`, the vorticity in x_0, and `Q`, the curl of the wind. Their values on the walls have
    no effect.

    Parameters
    ----------
    grid : int
        Cells along each side of the basin, at least 4. Sine transforms are fastest for powers of
        two.
    dt : float, optional
        The time step, in s. By default, a flow of `speed` crosses a tenth of a cell in a step, or
        dt is half of the limit of stability for damping and Rossby waves, if that is less.
    length, depth : float
        The size of the basin, in m.
    beta : float
        The gradient of the planetary vorticity, in m-1 s-1.
    drag, viscosity : float
        r in s-1, and ν in m2 s-1.
    wind : float
        The amplitude of the wind stress, in N m-2.
    speed : float
        The root mean square speed of the eddies in x_0, and of those in the target, in m s-1.
    seed : int
        The seed of the random eddies.
    recompute : str
        Names, separated by commas, of the arrays that checkpoints leave out: "psi", for which a
        Poisson problem is solved after each read, or nothing.

    Raises
    ------
    BadInput
        If an option is out of range, or `dt` is not stable.
    RunFailed
        In a forward step, if the flow has become unstable although `dt` is within the limits.
    """

    derived: ClassVar = {"psi": ("zeta",)}

    records_late = True  # an adjoint step reads its tape only

    def __init__(
        self,
        *,
        grid: int = 128,
        dt: float | None = None,
        length: float = 1e6,
        depth: float = 1e3,
        beta: float = 2e-11,
        drag: float = 1e-7,
        viscosity: float = 100.0,
        wind: float = 0.1,
        speed: float = 0.3,
        seed: int = 0,
        recompute: str = "",
    ) -> None:
        check_whole("vorticity", grid=grid, least=4)
        check_whole("vorticity", seed=seed, least=0)
        check_real("vorticity", above=0.0, length=length, depth=depth, speed=speed)
        check_real("vorticity", least=0.0, beta=beta, drag=drag, viscosity=viscosity, wind=wind)
        spacing = length / grid
        self._basin = Basin(cells=grid, spacing=spacing)
        self._beta, self._drag, self._viscosity = beta, drag, viscosity
        self._dt = _stable_step(
            dt,
            damping=drag + 8 * viscosity / spacing**2,
            frequency=beta * length / (math.pi * math.sqrt(8)),
            default=0.1 * spacing / speed,
        )
        self._too_fast = 0.5 * (spacing / self._dt) ** 2

        random = np.random.default_rng(seed)
        zeta = _eddies(self._basin, random, speed=speed)
        self._target = _eddies(self._basin, random, speed=speed)
        self._target_psi = np.pad(self._basin.inverse(self._target), 1)
        y = np.linspace(0, 2 * np.pi, grid + 1)
        curl = -2 * np.pi * wind / (DENSITY * depth * length) * np.sin(y)
        # Work fields, whose walls stay zero.
        self._tendency, self._cotangent, *self._distance = np.zeros((4, grid + 1, grid + 1))
        rest = np.zeros_like(zeta)
        super().__init__(
            {"zeta": zeta, "psi": rest, "F_1": rest, "F_2": rest, "J": 0.0},
            control={"zeta": zeta, "Q": np.repeat(curl[:, None], grid + 1, axis=1)},
            tape=("zeta", "psi"),
            units=UNITS,
            flow=FLOW,
            seed=("zeta", "psi", "J"),
            recompute=_names(recompute),
        )

    @property
    def dt(self) -> float:
        """The time step, in s."""
        return self._dt

    def start(self, state: Arrays, /) -> None:
        """Set ζ_0 to the control inside the walls, and compute ψ_0 from it."""
        state["zeta"][INSIDE] = self.control["zeta"][INSIDE]
        self.derive("psi", state)

    def derive(self, name: str, arrays: Arrays, /) -> None:
        """Compute ψ from ζ."""
        arrays[name][INSIDE] = self._basin.inverse(arrays["zeta"])

    def adjoint_start(self, adjoint: Arrays, /) -> None:
        gradient = self.gradient["zeta"][INSIDE]
        gradient += self._basin.inverse(adjoint["psi"])
        gradient += adjoint["zeta"][INSIDE]

    def step(self, state: Arrays, i: int, /) -> None:
        """Add E(ψ_i) to J; compute ζ_{i+1} from ζ_i and the tendencies, and then ψ_{i+1}."""
        energy = self._basin.energy(state["psi"], state["zeta"])
        if not energy < self._too_fast:
            raise RunFailed(
                f"vorticity: at step {i} the flow crosses a cell in one step of {self._dt:g} s;"
                " give a smaller dt"
            )
        state["J"] += energy
        self._compute_tendency(state["psi"], state["zeta"])
        self._march(state, i)
        self.derive("psi", state)

    def adjoint_step(self, adjoint: Arrays, tape: Arrays, i: int, /) -> None:
        """Apply the transposes of the parts of `step`, in reverse order."""
        of_zeta, of_psi = adjoint["zeta"][INSIDE], adjoint["psi"][INSIDE]
        of_zeta += self._basin.inverse(adjoint["psi"])
        of_psi[...] = 0
        self._adjoint_march(adjoint, i)
        self._adjoint_tendency(tape["psi"], tape["zeta"], adjoint)
        self._adjoint_energy(tape["psi"], tape["zeta"], float(adjoint["J"]), adjoint)

    def _compute_tendency(self, psi: Values, zeta: Values) -> None:
        """Compute F = Q - J(ψ, ζ) - β ∂ψ/∂x - r ζ + ν ∇²ζ."""
        basin, tendency = self._basin, self._tendency[INSIDE]
        tendency[...] = self.control["Q"][INSIDE]
        tendency -= basin.jacobian(psi, zeta)
        tendency -= basin.slope(psi, self._beta)
        tendency -= basin.scaled(zeta, self._drag)
        tendency += basin.curvature(zeta, self._viscosity)

    def _adjoint_tendency(self, psi: Values, zeta: Values, adjoint: Arrays) -> None:
        basin, cotangent = self._basin, self._cotangent
        of_zeta, of_psi = adjoint["zeta"][INSIDE], adjoint["psi"][INSIDE]
        of_wind = self.gradient["Q"][INSIDE]
        of_wind += cotangent[INSIDE]
        of_psi -= basin.jacobian(zeta, cotangent)
        of_zeta -= basin.jacobian(cotangent, psi)
        of_psi += basin.slope(cotangent, self._beta)
        of_zeta -= basin.scaled(cotangent, self._drag)
        of_zeta += basin.curvature(cotangent, self._viscosity)

    def _march(self, state: Arrays, i: int) -> None:
        """Add dt (w_0 F + w_1 F_1 + w_2 F_2) to ζ; then set F_2 = F_1 and F_1 = F."""
        zeta = state["zeta"][INSIDE]
        tendencies = self._tendency, state["F_1"], state["F_2"]
        for tendency, weight in zip(tendencies, ADAMS_BASHFORTH[min(i, 2)], strict=True):
            zeta += self._basin.scaled(tendency, self._dt * weight)
        state["F_2"][INSIDE] = state["F_1"][INSIDE]
        state["F_1"][INSIDE] = self._tendency[INSIDE]

    def _adjoint_march(self, adjoint: Arrays, i: int) -> None:
        now, one_ago, two_ago = (self._dt * weight for weight in ADAMS_BASHFORTH[min(i, 2)])
        scaled, zeta = self._basin.scaled, adjoint["zeta"]
        of_f_1, of_f_2 = adjoint["F_1"][INSIDE], adjoint["F_2"][INSIDE]
        np.add(of_f_1, scaled(zeta, now), out=self._cotangent[INSIDE])
        np.add(of_f_2, scaled(zeta, one_ago), out=of_f_1)
        of_f_2[...] = scaled(zeta, two_ago)

    def _adjoint_energy(self, psi: Values, zeta: Values, of_energy: float, adjoint: Arrays) -> None:
        of_zeta, of_psi = adjoint["zeta"][INSIDE], adjoint["psi"][INSIDE]
        factor = self._basin.energy_factor * of_energy
        of_psi += self._basin.scaled(zeta, factor)
        of_zeta += self._basin.scaled(psi, factor)

    def adjoint_seed(self, state: Arrays, adjoint: Arrays, n: int, /) -> float:
        """Return J = (sum of the E(ψ_i)) / n + E(ψ_n - ψ*), and set its derivative."""
        psi, zeta = self._distance
        np.subtract(state["psi"], self._target_psi, out=psi)
        np.subtract(state["zeta"], self._target, out=zeta)
        self._adjoint_energy(psi, zeta, 1.0, adjoint)
        adjoint["J"][...] = 1 / max(n, 1)
        return self._basin.energy(psi, zeta)


def _eddies(basin: Basin, random: np.random.Generator, *, speed: float) -> Values:
    """Return the vorticity of random eddies, which is the same on every grid that resolves them."""
    waves = np.arange(1, EDDIES + 1)
    wave = np.hypot(waves[:, None], waves)
    amplitudes = wave**2 * np.exp(-((wave / 5) ** 2)) * random.standard_normal(wave.shape)
    zeta = basin.sines(amplitudes)
    psi = np.pad(basin.inverse(zeta), 1)
    zeta *= speed / math.sqrt(2 * basin.energy(psi, zeta))
    return zeta


def _stable_step(dt: float | None, *, damping: float, frequency: float, default: float) -> float:
    """Return `dt`, or by default a step within the stability limits of Adams-Bashforth; in s."""
    limit = min(
        DAMPING_LIMIT / damping if damping else math.inf,
        WAVE_LIMIT / frequency if frequency else math.inf,
    )
    if dt is None:
        return min(default, limit / 2)
    check_real("vorticity", above=0.0, dt=dt)
    if dt > limit:
        raise BadInput(
            f"vorticity: dt = {dt:g} s; for damping and Rossby waves, the scheme is stable on this"
            f" grid up to {limit:.4g} s; give a smaller dt"
        )
    return dt


def _names(recompute: str) -> list[str]:
    if not isinstance(recompute, str):
        raise BadInput(
            f"vorticity: recompute = {recompute!r}; it must be text: names separated by commas"
        )
    return [name for name in recompute.split(",") if name]
