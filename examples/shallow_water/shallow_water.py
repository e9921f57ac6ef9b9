"""Rotating shallow water in a closed basin on an Arakawa C grid, its adjoint written by hand.

With M a mean and D a difference of two neighbours along x or y, and M' and D' their transposes,

    U = M_x h u,   V = M_y h v,   q = (f + (D_x v - D_y u) / dx) / M_y M_x h,
    B = g (h - depth) + (M_x' u² + M_y' v²) / 2,

    ∂u/∂t =  M_y' (q M_x V) - D_x B / dx - r u,
    ∂v/∂t = -M_x' (q M_y U) - D_y B / dx - r v,
    ∂h/∂t =  (D_x' U + D_y' V) / dx

keep E = mean of (U u + V v + g (h - depth)²) / 2, the energy, but for drag [Sadourny 1975]: U, V, B
are its derivatives by u, v and h. h lies in cells, u and v between two of them, q between four.

In time it is a leapfrog with Asselin's filter: a state holds two time levels,

    new = old + 2 dt (rate of now),     old <- now + γ (old - 2 now + new),     now <- new,

drag is that of `old`, and step 0 has dt in place of 2 dt, and no filter. What a step diagnoses, U,
V, q and B, it leaves in the state for those who look on; the next one overwrites it unseen.

Walls have no point in an array that lies between cells; on them it is 0, so that a transpose
reaches no further than the cells. With <a, b> = Σ a b it is the L' for which <c, L a> = <L' c, a>.
"""

import math
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ckio import ArrayModel, Flow, Step
from ckio.errors import BadInput, RunFailed
from ckio.model.arrays import Arrays
from ckio.models.options import check_real, check_whole

Values = NDArray[Any]
Fields = Mapping[str, Values]

X: Final = 1
Y: Final = 0
"""The axes are those of numpy: `X` runs along a row."""

WAVES: Final = 6
"""Random fields have up to this many half waves along each side."""

GRAVITY: Final = 9.81
"""In m s-2."""


class Along(NamedTuple):
    """Names of what flows along one axis, of the transport along the other, and how this turns."""

    speed: str
    old: str
    flow: str
    other: str
    axis: int
    turn: float


ALONG: Final = Along("u", "u_old", "U", "V", X, 1.0), Along("v", "v_old", "V", "U", Y, -1.0)

NOW: Final = ("u", "v", "h")
OLD: Final = ("u_old", "v_old", "h_old")
DIAGNOSED: Final = ("U", "V", "q", "B")
TAPED: Final = (*NOW, "u_old", "v_old", "depth")

_OVERWRITTEN: Final = {*NOW, *OLD, *DIAGNOSED, "J"}

FLOW: Final = Step(
    Flow(use={*NOW, *OLD, "depth", "J"}, out=_OVERWRITTEN, kill=_OVERWRITTEN),
    record=Flow(use=TAPED, out=_OVERWRITTEN, kill=_OVERWRITTEN),
)
"""Every step: the diagnosed arrays are dead in every x_i, and `depth` stays."""

UNITS: Final = {
    **dict.fromkeys(("u", "v", "u_old", "v_old"), "m s-1"),
    **dict.fromkeys(("h", "h_old", "depth"), "m"),
    **dict.fromkeys(("U", "V"), "m2 s-1"),
    "q": "m-1 s-1",
    "B": "m2 s-2",
    "drag": "s-1",
    "J": "m3 s-2",
}


class ShallowWater(ArrayModel):
    """Waves and eddies over a bank, to be brought to a target surface.

    The functional is J = mean over the steps of E + mean of g (h_n - h*)² / 2, in m3 s-2: energy on
    the way, and that of the distance to a target h* in the end. The controls are `u`, `v` and `h`
    in x_0, `depth`, the water at rest, which no step changes, and the number `drag`.

    Parameters
    ----------
    grid : int
        Cells along each side of the basin, at least 3.
    dt : float, optional
        Seconds of a step; by default half of what is stable.
    length, depth : float
        Size of the basin, in m.
    bank : float
        Part of the depth that a bank in the basin takes, from 0 to below 1.
    coriolis, drag : float
        f and r, in s-1.
    asselin : float
        γ, from 0 to below 0.5.
    surface, speed : float
        Root mean square of elevation and flow in x_0, in m and m s-1.
    seed : int
        Which random waves.

    Raises
    ------
    BadInput
        Where an option is out of range, `dt` is not stable, or the bank is dry in x_0.
    RunFailed
        From a forward step, where cells run dry or the flow has become unstable nevertheless.
    """

    records_late = True  # an adjoint step reads its tape only

    def __init__(
        self,
        *,
        grid: int = 128,
        dt: float | None = None,
        length: float = 1e6,
        depth: float = 100.0,
        bank: float = 0.5,
        coriolis: float = 1e-4,
        drag: float = 1e-6,
        asselin: float = 0.05,
        surface: float = 0.5,
        speed: float = 0.1,
        seed: int = 0,
    ) -> None:
        check_whole("shallow_water", grid=grid, least=3)
        check_whole("shallow_water", seed=seed, least=0)
        check_real("shallow_water", length=length, depth=depth, above=0.0)
        check_real("shallow_water", drag=drag, surface=surface, speed=speed, least=0.0)
        check_real("shallow_water", bank=bank, least=0.0, below=1.0)
        check_real("shallow_water", asselin=asselin, least=0.0, below=0.5)
        check_real("shallow_water", coriolis=coriolis)
        self._per_spacing, self._coriolis, self._asselin = grid / length, coriolis, asselin
        random = np.random.default_rng(seed)
        floor = _bathymetry(grid, depth=depth, bank=bank)
        h, self._target = (floor + random_surface(grid, random, size=surface) for _ in range(2))
        u, v = random_eddies(grid, random, speed=speed)
        if not h.min() > 0:
            raise BadInput(f"shallow_water: surface = {surface:g} m leaves parts of the basin dry")
        wave = math.sqrt(8 * GRAVITY * float(h.max())) * self._per_spacing
        damped = math.hypot(coriolis, wave) + 2 * drag
        self._dt = _stable_step(dt, limit=(1 - asselin) / damped)
        self._too_much = 0.5 * depth / (self._dt * self._per_spacing) ** 2

        still = {"U": u * 0, "V": v * 0, "q": np.zeros((grid - 1, grid - 1)), "B": h * 0}
        self._again, self._of, self._work = (
            {name: np.empty_like(x) for name, x in still.items()} for _ in range(3)
        )
        self._rate = {name: np.empty_like(x) for name, x in zip(NOW, (u, v, h), strict=True)}
        self._corners = np.empty((2, *still["q"].shape))
        super().__init__(
            {"u": u, "v": v, "h": h, "u_old": u, "v_old": v, "h_old": h}
            | {"depth": floor, **still, "J": 0.0},
            control={"u": u, "v": v, "h": h, "depth": floor, "drag": drag},
            tape=TAPED,
            units=UNITS,
            flow=FLOW,
            seed=("h", "J"),
        )

    @property
    def dt(self) -> float:
        """Seconds of a step."""
        return self._dt

    def start(self, state: Arrays, /) -> None:
        """Both time levels are the controls."""
        super().start(state)
        for now, old in zip(NOW, OLD, strict=True):
            state[old][...] = state[now]

    def adjoint_start(self, adjoint: Arrays, /) -> None:
        super().adjoint_start(adjoint)
        for now, old in zip(NOW, OLD, strict=True):
            self.gradient[now][...] += adjoint[old]

    def step(self, state: Arrays, i: int, /) -> None:
        """Diagnose x_i; J += E; then the leap."""
        if not state["h"].min() > 0:
            raise RunFailed(f"shallow_water: at step {i} a cell has run dry; h must stay above 0")
        self._diagnose(state, state)
        energy = self._energy(state)
        if not energy < self._too_much:
            raise RunFailed(
                f"shallow_water: at step {i} the flow crosses a cell in one step of {self._dt:g} s;"
                " give a smaller dt"
            )
        state["J"] += energy
        self._compute_rates(state)
        leap, asselin = self._weights(i)
        for now, old in zip(NOW, OLD, strict=True):
            _march(state[now], state[old], self._rate[now], leap=leap, asselin=asselin)

    def adjoint_step(self, adjoint: Arrays, tape: Arrays, i: int, /) -> None:
        """The transposes of what `step` does, last first."""
        self._diagnose(tape, self._again)
        leap, asselin = self._weights(i)
        for now, old in zip(NOW, OLD, strict=True):
            _adjoint_march(adjoint[now], adjoint[old], self._rate[now], leap=leap, asselin=asselin)
        self._adjoint_rates(tape, adjoint)
        self._adjoint_energy(tape, float(adjoint["J"]), adjoint)
        self._adjoint_diagnose(tape, adjoint)

    def adjoint_seed(self, state: Arrays, adjoint: Arrays, n: int, /) -> float:
        """J = (sum of the E) / n + mean of g (h_n - h*)² / 2, and its derivative."""
        away = np.subtract(state["h"], self._target, out=self._work["B"])
        np.multiply(away, GRAVITY / away.size, out=adjoint["h"])
        adjoint["J"][...] = 1 / max(n, 1)
        return 0.5 * inner(away, adjoint["h"], self._of["B"])

    def _weights(self, i: int) -> tuple[float, float]:
        """Seconds that the leap takes, and γ."""
        return (2 * self._dt, self._asselin) if i else (self._dt, 0.0)

    def _diagnose(self, of: Fields, into: Fields) -> None:
        """U, V, q and B of the flow at one time."""
        h, q, (thickness, difference) = of["h"], into["q"], self._corners
        potential = np.subtract(h, of["depth"], out=into["B"])
        potential *= GRAVITY
        q[...] = self._coriolis
        for speed, _, flow, _, axis, turn in ALONG:
            np.multiply(mean(h, axis, self._work[flow]), of[speed], out=into[flow])
            spread(np.square(of[speed], out=self._work[flow]), 0.5, axis, potential)
            q -= slope(of[speed], turn * self._per_spacing, 1 - axis, difference)
        q /= self._thickness(h, thickness)

    def _adjoint_diagnose(self, tape: Arrays, adjoint: Arrays) -> None:
        """Takes what `_of` has of U, V, q and B, and spends it."""
        h, of_h, of, work = tape["h"], adjoint["h"], self._of, self._work
        of_q, (of_thickness, of_vorticity) = of["q"], self._corners
        of_q /= self._thickness(h, of_thickness)
        np.multiply(of_q, self._again["q"], out=of_thickness)
        work["U"][...] = 0
        spread(of_thickness, -1.0, Y, work["U"])
        spread(work["U"], 1.0, X, of_h)
        for speed, _, flow, _, axis, turn in ALONG:
            of_speed = adjoint[speed]
            np.copyto(of_vorticity, of_q)
            gather(of_vorticity, -turn * self._per_spacing, 1 - axis, of_speed)
            for factor, field in ((tape[speed], of["B"]), (of[flow], h)):
                of_speed += np.multiply(mean(field, axis, work[flow]), factor, out=work[flow])
            of[flow] *= tape[speed]
            spread(of[flow], 1.0, axis, of_h)
        of["B"] *= GRAVITY
        of_h += of["B"]
        of_depth = adjoint["depth"]
        of_depth -= of["B"]

    def _thickness(self, h: Values, out: Values) -> Values:
        """M_y M_x h."""
        return mean(mean(h, X, self._work["U"]), Y, out)

    def _compute_rates(self, state: Arrays) -> None:
        """The rates of u, v and h, from what is diagnosed; drag is that of the older flow."""
        rate, work, corner = self._rate, self._work, self._corners[0]
        drag = float(self.control["drag"])
        rate["h"][...] = 0
        for speed, old, flow, other, axis, turn in ALONG:
            np.multiply(state[old], -drag, out=rate[speed])
            mean(state[other], axis, corner)
            corner *= state["q"]
            spread(corner, turn, 1 - axis, rate[speed])
            rate[speed] -= slope(state["B"], self._per_spacing, axis, work[flow])
            np.copyto(work[flow], state[flow])
            gather(work[flow], self._per_spacing, axis, rate["h"])

    def _adjoint_rates(self, tape: Arrays, adjoint: Arrays) -> None:
        """Takes what `_rate` has of the rates, and spends it, to `_of` what is diagnosed."""
        rate, work, of, q = self._rate, self._work, self._of, self._again["q"]
        drag, (corner, other_mean) = float(self.control["drag"]), self._corners
        of["q"][...] = of["B"][...] = 0
        for it in ALONG:
            slope(rate["h"], self._per_spacing, it.axis, of[it.flow])
        for speed, old, flow, other, axis, turn in ALONG:
            of_rate, of_old = rate[speed], adjoint[old]
            self.gradient["drag"][...] -= inner(of_rate, tape[old], work[flow])
            of_old -= np.multiply(of_rate, drag, out=work[flow])
            mean(of_rate, 1 - axis, corner)
            corner *= turn
            mean(self._again[other], axis, other_mean)
            other_mean *= corner
            of["q"] += other_mean
            corner *= q
            spread(corner, 1.0, axis, of[other])
            gather(of_rate, -self._per_spacing, axis, of["B"])

    def _energy(self, state: Arrays) -> float:
        """E, of the flow and what is diagnosed of it."""
        surface = np.subtract(state["h"], state["depth"], out=self._work["B"])
        total = GRAVITY * inner(surface, surface, surface)
        for it in ALONG:
            total += inner(state[it.speed], state[it.flow], self._work[it.flow])
        return total / (2 * state["h"].size)

    def _adjoint_energy(self, tape: Arrays, of_energy: float, adjoint: Arrays) -> None:
        """U, V and B are the derivatives, and g (depth - h)."""
        factor, work = of_energy / tape["h"].size, self._work
        for name, flow in zip(NOW, ("U", "V", "B"), strict=True):
            of_name = adjoint[name]
            of_name += np.multiply(self._again[flow], factor, out=work[flow])
        surface = np.subtract(tape["h"], tape["depth"], out=work["B"])
        surface *= factor * GRAVITY
        of_depth = adjoint["depth"]
        of_depth -= surface


def _march(now: Values, old: Values, rate: Values, *, leap: float, asselin: float) -> None:
    """Take now to old + leap rate, and old to now + γ (old - 2 now + new). Spends the rate."""
    rate *= leap
    rate += old
    old += rate
    old *= asselin
    now *= 1 - 2 * asselin
    old += now
    now[...] = rate


def _adjoint_march(now: Values, old: Values, rate: Values, *, leap: float, asselin: float) -> None:
    """The transpose; `rate` becomes what the rate adds to J."""
    np.multiply(old, asselin, out=rate)
    rate += now
    np.multiply(old, 1 - 2 * asselin, out=now)
    old *= asselin
    old += rate
    rate *= leap


def _stable_step(dt: float | None, *, limit: float) -> float:
    """`dt`, or half of the limit, in seconds."""
    if dt is None:
        return limit / 2
    check_real("shallow_water", dt=dt, above=0.0)
    if dt > limit:
        raise BadInput(
            f"shallow_water: dt = {dt:g} s; gravity waves on this grid need at most {limit:.4g} s"
        )
    return dt


def _bathymetry(cells: int, *, depth: float, bank: float) -> Values:
    """A basin of one depth, and a round bank off its middle."""
    x = (np.arange(cells) + 0.5) / cells
    away = (x[:, None] - 0.4) ** 2 + (x - 0.6) ** 2
    return depth * (1 - bank * np.exp(-away / 0.045))


def mean(a: Values, axis: int, out: Values, /) -> Values:
    """Return M a, the mean of neighbours, between them."""
    np.add(_lower(a, axis), _upper(a, axis), out=out)
    out *= 0.5
    return out


def spread(c: Values, factor: float, axis: int, onto: Values, /) -> None:
    """Add factor M' c, half of it to each neighbour. Overwrites c."""
    c *= 0.5 * factor
    lower, upper = _lower(onto, axis), _upper(onto, axis)
    lower += c
    upper += c


def slope(a: Values, factor: float, axis: int, out: Values, /) -> Values:
    """Return factor D a, the difference of neighbours, between them."""
    np.subtract(_upper(a, axis), _lower(a, axis), out=out)
    out *= factor
    return out


def gather(c: Values, factor: float, axis: int, onto: Values, /) -> None:
    """Add factor D' c: a flux is taken from one cell and given to the next. Overwrites c.

    This is minus the divergence of a flux c through walls that let nothing pass.
    """
    c *= factor
    lower, upper = _lower(onto, axis), _upper(onto, axis)
    lower -= c
    upper += c


def inner(a: Values, b: Values, work: Values, /) -> float:
    """Return <a, b>, by a sum that does not depend on where the arrays lie."""
    return float(np.add.reduce(np.multiply(a, b, out=work), axis=None))


def random_surface(cells: int, random: np.random.Generator, /, *, size: float) -> Values:
    """Return a random field of mean 0 and this root mean square, the same on every grid."""
    x = (np.arange(cells) + 0.5) / cells
    return _waves(np.cos(np.pi * np.outer(np.arange(WAVES + 1), x)), random, size=size)


def random_eddies(
    cells: int, random: np.random.Generator, /, *, speed: float
) -> tuple[Values, Values]:
    """Return a random flow u = D_y' ψ, v = -D_x' ψ without divergence, the same on every grid."""
    x = np.arange(1, cells) / cells
    psi = _waves(np.sin(np.pi * np.outer(np.arange(WAVES + 1), x)), random, size=1.0)
    u, v = np.zeros((cells, cells - 1)), np.zeros((cells - 1, cells))
    gather(psi.copy(), 1.0, Y, u)
    gather(psi, -1.0, X, v)
    factor = speed * cells / math.sqrt(np.sum(u**2) + np.sum(v**2))
    return factor * u, factor * v


def _waves(shapes: Values, random: np.random.Generator, *, size: float) -> Values:
    """Return a random sum of products of shapes, longer ones larger, of this root mean square."""
    wave = np.arange(len(shapes))
    amplitudes = random.standard_normal((len(shapes), len(shapes)))
    amplitudes *= np.exp(-(wave[:, None] ** 2 + wave**2) / 9.0)
    amplitudes[0, 0] = 0
    field: Values = np.einsum("lk,ly,kx->yx", amplitudes, shapes, shapes)
    return field * (size / math.sqrt(np.mean(field**2)))


def _lower(a: Values, axis: int) -> Values:
    return a[:-1] if axis == Y else a[:, :-1]


def _upper(a: Values, axis: int) -> Values:
    return a[1:] if axis == Y else a[:, 1:]
