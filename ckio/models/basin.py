"""A square basin on a grid: finite differences and the Poisson solver, each with its transpose.

With <a, b> = Σ a b over all points, the transpose of an operator L is the L' for which
<c, L(a)> = <L'(c), a>; below it is written c -> L'(c).
"""

import numpy as np
import scipy.fft
from numpy.typing import NDArray

Field = NDArray[np.float64]

INSIDE = slice(1, -1), slice(1, -1)
"""The points of a field that do not lie on a wall."""


class Basin:
    """A square of cells x cells; its fields are arrays [y, x] of all points, zero on the walls.

    An operator returns its values inside the walls, in work memory that the next call of the same
    operator overwrites.
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
        # A sine transform of type I is its own inverse, but for the last factor.
        self._inverse_eigenvalues = spacing**2 / (wave[:, None] + wave) / (2 * cells) ** 2
        self.energy_factor = -0.5 / cells**2

    def jacobian(self, a: Field, b: Field, /) -> Field:
        """J(a, b) = ∂a/∂x ∂b/∂y - ∂a/∂y ∂b/∂x on nine points [Arakawa 1966].

        As Σ_d w_d(p) b(p+d) - w_d(p-d) b(p-d) over the neighbours d = E, N, NE, NW of a point p,
        with weights w_d made of a that lie between two points.

        Transpose: c -> J(b, c) for a, and c -> J(c, a) for b: <c, J(a, b)> stays the same when a, b
        and c rotate. With c = a or c = b it is 0, and so energy and enstrophy are conserved.
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

    def slope(self, a: Field, factor: float, /) -> Field:
        """Slope along x, factor ∂a/∂x. Transpose: c -> -factor ∂c/∂x."""
        np.subtract(a[1:-1, 2:], a[1:-1, :-2], out=self._slope)
        self._slope *= factor / (2 * self.spacing)
        return self._slope

    def curvature(self, a: Field, factor: float, /) -> Field:
        """Five-point Laplacian, factor ∇²a. Transpose: itself."""
        np.multiply(a[INSIDE], -4.0, out=self._curvature)
        for neighbour in (a[1:-1, 2:], a[1:-1, :-2], a[2:, 1:-1], a[:-2, 1:-1]):
            self._curvature += neighbour
        self._curvature *= factor / self.spacing**2
        return self._curvature

    def scaled(self, a: Field, factor: float, /) -> Field:
        """Just factor a. Transpose: itself."""
        return np.multiply(a[INSIDE], factor, out=self._scaled)

    def inverse(self, a: Field, /) -> Field:
        """The b of which a is ∇²b, by sine transforms in this thread. Transpose: itself."""
        np.copyto(self._inverse, a[INSIDE])
        waves = scipy.fft.dstn(self._inverse, type=1, overwrite_x=True, workers=1)
        waves *= self._inverse_eigenvalues
        self._inverse = scipy.fft.dstn(waves, type=1, overwrite_x=True, workers=1)
        return self._inverse

    def energy(self, psi: Field, zeta: Field, /) -> float:
        """E(ψ, ζ) = mean of |∇ψ|²/2 = mean of -ψ ζ/2, by parts.

        Transpose: c -> `energy_factor` c ζ for ψ, and c -> `energy_factor` c ψ for ζ.
        """
        np.multiply(psi[INSIDE], zeta[INSIDE], out=self._term)
        return float(np.add.reduce(self._term, axis=None)) * self.energy_factor

    def sines(self, amplitudes: Field, /) -> Field:
        """Σ amplitudes[l-1, k-1] sin(l π y) sin(k π x), for x and y in [0, 1]."""
        waves = np.zeros_like(self._inverse)
        held = amplitudes[: len(waves), : len(waves)]  # shorter ones do not show on this grid
        waves[: len(held), : len(held)] = held
        return np.pad(scipy.fft.dstn(waves, type=1, workers=1) / 4, 1)
