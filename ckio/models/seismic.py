"""What a seismic survey has: a wavelet, its traces in the simplest earth, layers, and a border."""

import math
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Field = NDArray[Any]

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

    def at(self, time: Field, /) -> Field:
        """Its values at these times, in s."""
        phase = np.square(math.pi * (self.frequency * time - DELAY))
        values: Field = (1 - 2 * phase) * np.exp(-phase)
        return values

    def traces(self, time: float, travel: Field, /) -> Field:
        """What arrives in a medium of one speed c, at distances of c x `travel` seconds.

        This is the u(`time`) of ∂²u/∂t² / c² - ∇²u = wavelet(t) δ(x) in an endless plane,

            u(t) = ∫ wavelet(t - travel cosh θ) dθ / 2π,     θ from 0 to infinity:

        in two dimensions a wave has a tail. What is integrated is smooth, even in θ, and 0 where
        the wavelet has not begun or is over, so the trapezoidal rule needs few points.
        """
        first, last = (np.arccosh(np.maximum(t / travel, 1)) for t in (time - self.end, time))
        part = np.arange(_NODES + 1)[:, None] / _NODES
        values = self.at(time - travel * np.cosh(first + part * (last - first)))
        values[[0, -1]] *= 0.5
        total: Field = np.add.reduce(values, axis=0) * (last - first)
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

    def speeds(self, rows: range, /) -> Field:
        """Of waves, in m s-1, at the points of these rows."""
        depth, across = np.array(rows), np.arange(self.grid)
        layer = (depth - self.border) * self.layers // (self.grid - 2 * self.border)
        part = np.clip(layer, 0, self.layers - 1) / max(self.layers - 1, 1)
        middle = (self.grid - 1) / 2
        away = np.hypot.outer(depth - middle, across - middle) / (RADIUS * self.grid)
        lens = 1 + self.anomaly * np.exp(-np.square(away))
        speeds: Field = (self.top + (self.bottom - self.top) * part)[:, None] * lens
        return speeds

    def damping(self, rows: range, spacing: float, /) -> Field:
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

    def _into_border(self, i: Field) -> Field:
        """How far points are into it: 0 inside, 1 at the last point before the wall."""
        away = np.abs(i - (self.grid - 1) / 2) - (self.grid - 1) / 2 + self.border
        into: Field = np.maximum(away, 0) / max(self.border, 1)
        return into
