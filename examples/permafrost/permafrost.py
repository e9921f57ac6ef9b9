"""Heat in frozen ground, whose conductivity is known until it thaws; its adjoint written by hand.

    C ∂T/∂t = ∂/∂x (K_x ∂T/∂x) + ∂/∂y (K_y ∂T/∂y)

in a section of ground under a surface of given temperature, with no flux through its other sides.
K is what a survey found, and stays, until the thaw: from step `change` on and for `thaw` steps each
step computes all of it anew from the temperature that it starts from,

    K = rock (1 + ice (1 - tanh(T / WIDTH)) / 2),

since ground conducts better where it is frozen; the last of them stays to the end. So all
checkpoints before the thaw share one K, and a checkpoint in the thaw needs none.

A flux lies between two cells, in an array shorter by one. With <a, b> = Σ a b, the transpose of an
operator L is the L' for which <c, L a> = <L' c, a>.
"""

import math
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ckio import ArrayModel, Flow, Step
from ckio.errors import BadInput, RunFailed
from ckio.model.arrays import Arrays
from ckio.models.options import check_real, check_whole

Values = NDArray[Any]

X: Final = 1
Y: Final = 0
"""The axes are those of numpy: `X` runs along a row."""

WAVES: Final = 6
"""Random fields have up to this many half waves along each side."""

WIDTH: Final = 1.0
"""K by which ground is warmer or colder than 0 °C where most of it has thawed or not."""

ROCK: Final = {Y: 1.0, X: 1.5}
"""Conductivity of thawed ground across its layers and along them, in W m-1 K-1."""

TOO_HOT: Final = 1e4
"""In K; no ground is."""

CONDUCT: Final = Step(
    Flow(use={"T", "K", "J"}, out={"T", "J"}, kill={"T", "J"}),
    record=Flow(use={"T", "K"}, out={"T", "J"}, kill={"T", "J"}),
)
"""A step before the thaw or after it: K is used and stays."""

THAW: Final = Step(
    Flow(use={"T", "J"}, out={"T", "K", "J"}, kill={"T", "K", "J"}),
    record=Flow(use={"T"}, out={"T", "K", "J"}, kill={"T", "K", "J"}),
)
"""A step of the thaw: K is overwritten before it is used."""

UNITS: Final = {"T": "degC", "K": "W m-1 K-1", "J": "K2"}


class Permafrost(ArrayModel):
    """Temperature to be brought to what a borehole measures, and to a target in the end.

    The functional is J = mean over the steps of b(T_i) + m(T_n - T*), in K2: b is half the mean
    square of T in the borehole, a column of cells, less what was measured there, and m half the
    mean square over all cells. The controls are `T` in degC and `K` in W m-1 K-1 in x_0, and the
    number `ice`. K is an array of two fields, K_y and K_x: two thirds of the state.

    Parameters
    ----------
    grid : int
        Cells along each side, at least 3.
    steps : int
        Of the program, which then is finished; at least 1.
    change : int, optional
        The step with which the thaw begins; by default after three quarters of the steps.
    thaw : int, optional
        Its length in steps; by default an eighth of all. 0 is no thaw.
    dt : float, optional
        Seconds of a step; by default half of what is stable.
    depth : float
        Size of the section, in m.
    heat : float
        C, the heat capacity in J m-3 K-1.
    ice : float
        By which part frozen ground conducts better.
    contrast : float
        Root mean square by which the logarithm of the conductivity of rock varies.
    temperature, variation : float
        Of the ground in x_0 and in the target: mean in degC, and root mean square of what varies.
    surface : float
        Temperature above the ground, in degC.
    seed : int
        Which random ground.

    Raises
    ------
    BadInput
        Where an option is out of range, or `dt` is not stable.
    RunFailed
        From a forward step, where the temperature has become unstable nevertheless.
    """

    records_late = True  # an adjoint step reads its tape only

    def __init__(
        self,
        *,
        grid: int = 192,
        steps: int = 200,
        change: int | None = None,
        thaw: int | None = None,
        dt: float | None = None,
        depth: float = 20.0,
        heat: float = 2e6,
        ice: float = 1.0,
        contrast: float = 0.3,
        temperature: float = -1.0,
        variation: float = 2.0,
        surface: float = 10.0,
        seed: int = 0,
    ) -> None:
        check_whole("permafrost", grid=grid, least=3)
        check_whole("permafrost", steps=steps, least=1)
        check_whole("permafrost", seed=seed, least=0)
        check_real("permafrost", depth=depth, heat=heat, above=0.0)
        check_real("permafrost", ice=ice, contrast=contrast, variation=variation, least=0.0)
        check_real("permafrost", temperature=temperature, surface=surface)
        self._steps, self._thaw = steps, _thaw(steps, change, thaw)
        self._surface, self._middle = surface, grid // 2

        random = np.random.default_rng(seed)
        layers = np.exp(random_surface(grid, random, size=contrast))
        self._rock = np.stack([ROCK[axis] * layers for axis in (Y, X)])
        start, self._target, measured = (
            temperature + random_surface(grid, random, size=variation) for _ in range(3)
        )
        self._measured = measured[:, self._middle].copy()
        frozen = self._rock * (1 + ice)
        spread_by = (2 * frozen[X].max() + 3 * frozen[Y].max()) * (grid / depth) ** 2 / heat
        self._dt = _stable_step(dt, limit=1 / float(spread_by))
        self._factor = self._dt / heat * (grid / depth) ** 2

        self._conductivity = np.empty_like(frozen)
        self._rate, self._work, self._frozen = np.empty((3, grid, grid))
        shapes = (grid - 1, grid), (grid, grid - 1)
        self._faces = tuple(np.empty((3, *shape)) for shape in shapes)
        super().__init__(
            {"T": start, "K": frozen, "J": 0.0},
            control={"T": start, "K": frozen, "ice": ice},
            tape=("T", "K"),
            units=UNITS,
            flow=[THAW if i in self._thaw else CONDUCT for i in range(steps)],
            seed=("T", "J"),
        )

    @property
    def dt(self) -> float:
        """Seconds of a step."""
        return self._dt

    @property
    def thaw(self) -> range:
        """The steps in which K follows T."""
        return self._thaw

    def finished(self, state: Arrays, i: int, /) -> bool:
        """Return whether all steps are done."""
        return i >= self._steps

    def step(self, state: Arrays, i: int, /) -> None:
        """J += b(T_i); in the thaw K_{i+1} from T_i; T_{i+1} from T_i and K_{i+1}."""
        heat, conductivity = state["T"], state["K"]
        if not inner(heat, heat, self._work) < TOO_HOT**2:
            raise RunFailed(
                f"permafrost: at step {i} the ground is hotter than any in steps of {self._dt:g} s;"
                " give a smaller dt"
            )
        state["J"] += self._borehole(heat)
        if i in self._thaw:
            self._conduct(heat, conductivity)
        self._rate[...] = 0
        for axis, (flux, across, _) in zip((Y, X), self._faces, strict=True):
            mean(conductivity[axis], axis, flux)
            np.multiply(flux, slope(heat, -self._factor, axis, across), out=flux)
            gather(flux, 1.0, axis, self._rate)
        self._rate[0] += 2 * self._factor * conductivity[Y, 0] * (self._surface - heat[0])
        heat += self._rate

    def adjoint_step(self, adjoint: Arrays, tape: Arrays, i: int, /) -> None:
        """The transposes of what `step` does, last first."""
        heat, of_heat, conductivity = tape["T"], adjoint["T"], tape["K"]
        if i in self._thaw:
            conductivity = self._conductivity
            self._conduct(heat, conductivity)
        self._adjoint_rate(heat, conductivity, adjoint)
        if i in self._thaw:
            self._adjoint_conduct(heat, adjoint)
        of_column = of_heat[:, self._middle]
        of_column += (heat[:, self._middle] - self._measured) * (float(adjoint["J"]) / len(heat))

    def adjoint_seed(self, state: Arrays, adjoint: Arrays, n: int, /) -> float:
        """J = (sum of the b(T_i)) / n + m(T_n - T*), and its derivative."""
        away = np.subtract(state["T"], self._target, out=self._rate)
        np.divide(away, away.size, out=adjoint["T"])
        adjoint["J"][...] = 1 / max(n, 1)
        return 0.5 * inner(away, adjoint["T"], self._work)

    def _adjoint_rate(self, heat: Values, conductivity: Values, adjoint: Arrays) -> None:
        """The transpose of the last lines of `step`, where the rate is added to T."""
        of_heat, of_conductivity, c = adjoint["T"], adjoint["K"], self._rate
        np.multiply(of_heat, self._factor, out=c)
        for axis, (of_flux, across, product) in zip((Y, X), self._faces, strict=True):
            slope(c, -1.0, axis, of_flux)
            np.multiply(of_flux, slope(heat, 1.0, axis, across), out=product)
            spread(product, 1.0, axis, of_conductivity[axis])
            np.multiply(of_flux, mean(conductivity[axis], axis, across), out=product)
            gather(product, 1.0, axis, of_heat)
        of_conductivity[Y, 0] += 2 * c[0] * (self._surface - heat[0])
        of_heat[0] -= 2 * c[0] * conductivity[Y, 0]

    def _conduct(self, heat: Values, conductivity: Values) -> None:
        """Compute K of ground of this temperature."""
        factor = self._part_frozen(heat)
        factor *= float(self.control["ice"])
        factor += 1
        np.multiply(self._rock, factor, out=conductivity)

    def _adjoint_conduct(self, heat: Values, adjoint: Arrays) -> None:
        """Take the derivative of J by K to T and to `ice`; K before the step adds nothing."""
        of_conductivity, of_heat, work = adjoint["K"], adjoint["T"], self._work
        of_conductivity *= self._rock
        of_factor = np.add(of_conductivity[Y], of_conductivity[X], out=self._rate)
        of_conductivity[...] = 0
        frozen = self._part_frozen(heat)
        self.gradient["ice"][...] += inner(of_factor, frozen, work)
        # The derivative of y = (1 - tanh z) / 2 is 2 y (y - 1).
        np.subtract(frozen, 1, out=work)
        work *= frozen
        work *= 2 / WIDTH * float(self.control["ice"])
        work *= of_factor
        of_heat += work

    def _part_frozen(self, heat: Values) -> Values:
        """(1 - tanh(T / WIDTH)) / 2."""
        frozen = np.multiply(heat, 1 / WIDTH, out=self._frozen)
        np.tanh(frozen, out=frozen)
        frozen *= -0.5
        frozen += 0.5
        return frozen

    def _borehole(self, heat: Values) -> float:
        """b: half the mean square of what is measured amiss."""
        away = heat[:, self._middle] - self._measured
        return 0.5 * inner(away, away, away) / len(away)


def _thaw(steps: int, change: int | None, thaw: int | None) -> range:
    """The steps of the thaw; by default an eighth of all, after three quarters."""
    first = 3 * steps // 4 if change is None else change
    check_whole("permafrost", change=first, least=0)
    length = max(0, min(math.ceil(steps / 8), steps - first)) if thaw is None else thaw
    check_whole("permafrost", thaw=length, least=0)
    if first + length > steps:
        raise BadInput(
            f"permafrost: change = {first} and thaw = {length} go beyond the end; there are"
            f" {steps} steps"
        )
    return range(first, first + length)


def _stable_step(dt: float | None, *, limit: float) -> float:
    """`dt`, or half of the limit, in seconds."""
    if dt is None:
        return limit / 2
    check_real("permafrost", dt=dt, above=0.0)
    if dt > limit:
        raise BadInput(
            f"permafrost: dt = {dt:g} s; conduction on this grid needs at most {limit:.4g} s"
        )
    return dt


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
