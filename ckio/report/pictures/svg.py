"""The drawing layer: axes, marks and shapes with tooltips, as SVG with one style sheet."""

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ckio.actions.columns import RECORD, VERBS
from ckio.platform.readable import time_unit

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

WIDTH: Final = 960
LEFT, RIGHT = 136, 944
"""The left and the right end of the horizontal axis."""
COLUMNS: Final = RIGHT - LEFT
"""The number of columns of a plot. A column is one unit of the picture, about one pixel."""
FOOT: Final = 22
"""Height below a picture for the labels of its time axis."""
WORDED: Final = 66
"""Width at the end of an axis that is reserved for its name, so that numbers do not overlap it."""
DISTINCT: Final = 250
"""The largest number of shapes of one class that are drawn one by one."""

STYLE: Final = Path(__file__).with_name("picture.css").read_text(encoding="utf-8")
"""Colours near those of Okabe and Ito, which colour-blind people can distinguish.

In grey, brightness, width, shape or position distinguishes them. A colour means a kind of action in
every picture. Lanes, shapes and dashes distinguish levels.
"""
LIGHT, DARK = re.findall(r"\.picture \{\n(  --.*?)\n\}", STYLE, re.DOTALL)
"""The colours on paper, and on a dark screen."""
LEVELS: Final = 4
"""The number of levels with different shapes and dashes. Further levels repeat them."""


@dataclass(frozen=True, slots=True)
class Picture:
    """A drawing WIDTH units wide. `label` is its description for screen readers."""

    height: float
    parts: tuple[str, ...]
    label: str

    def element(self) -> str:
        """Return the <svg> element, for a page."""
        return self._element(f'viewBox="0 0 {WIDTH} {number(self.height)}"')

    def nested(self, y: float, /) -> str:
        """Return the element at height `y` of a larger picture."""
        return self._element(f'y="{number(y)}" width="{WIDTH}" height="{number(self.height)}"')

    def file(self) -> str:
        """Return the text of an SVG file, with style, margin and background."""
        margin = 16
        x, y, width, height = -margin, -margin, WIDTH + 2 * margin, self.height + 2 * margin
        return self._element(
            f'viewBox="{x} {y} {width} {number(height)}"',
            f"<style>\n{STYLE}</style>",
            rect(x, y, width, height, css="paper"),
        )

    def _element(self, size: str, *first: str) -> str:
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" class="picture" {size}'
            f' role="img" aria-label="{escape(self.label)}">\n'
            + "\n".join([*first, *self.parts])
            + "\n</svg>"
        )


@dataclass(frozen=True, slots=True)
class PlotAxis:
    """A horizontal axis of time: 0 at LEFT, `until` seconds at RIGHT."""

    until: float

    @property
    def seconds(self) -> float:
        """The seconds that the axis spans; one second if `until` is 0."""
        return self.until or 1.0

    def x(self, seconds: Floats, /) -> Floats:
        """Return the horizontal positions of times."""
        place: Floats = LEFT + COLUMNS * (seconds / self.seconds)
        return place

    def column(self, seconds: Floats, /) -> Ints:
        """Return the columns of times, from 0."""
        column: Ints = np.clip((self.x(seconds) - LEFT).astype(np.int64), 0, COLUMNS - 1)
        return column

    def edges(self) -> Floats:
        """Return the times at the edges of the columns."""
        return np.linspace(0.0, self.seconds, COLUMNS + 1)

    def draw(self, top: float, bottom: float, /, *, end: float) -> str:
        """Return lines at round times with labels, and a dashed line at the end of the run."""
        unit, sign = time_unit(self.seconds)
        ticks = round_numbers(self.seconds / unit, about=8)
        places = self.x(np.array(ticks) * unit).tolist()
        finish = self.x(np.array([end]))[0]
        line = path(f"M{number(finish)} {top}V{bottom}", css="end", title="the end of the run")
        marks = list(zip(places, ticks, strict=True))
        return ruler(
            *("time", marks, (top, bottom)),
            until=self.seconds / unit,
            base=bottom + 15,
            words=f"time ({sign})",
        ) + plot("time", (top, bottom), [line])


def ruler(
    along: str,
    marks: Iterable[tuple[float, float]],
    across: tuple[float, float],
    /,
    *,
    until: float,
    base: float,
    words: str,
) -> str:
    """Return grid lines from top to bottom at `marks`, (place, number) each, with labels at `base`.

    The element stores its last number `until` and its position, so that the page's script can draw
    it again after a zoom. The script does not change `words`, the name of the axis.
    """
    top, bottom = map(number, across)
    marks = list(marks)
    lines = "".join(f"M{number(x)} {top}V{bottom}" for x, _ in marks)
    labels = "".join(
        text(x, base, f"{value:,.10g}", "faint middle") for x, value in marks if x < RIGHT - WORDED
    )
    return (
        f'<g class="ruler" data-axis="{along}" data-until="{until!r}" data-top="{top}"'
        f' data-bottom="{bottom}" data-base="{number(base)}">{path(lines, css="grid")}{labels}</g>'
        + text(RIGHT, base, words, "faint right")
    )


def plot(along: str, across: tuple[float, float], parts: Iterable[str], /) -> str:
    """Return the part of a picture along an axis ("time" or "step") that a page can zoom."""
    top, height = number(across[0]), number(across[1] - across[0])
    return (
        f'<svg class="plot" data-axis="{along}" x="{LEFT}" y="{top}" width="{COLUMNS}"'
        f' height="{height}" viewBox="{LEFT} {top} {COLUMNS} {height}"'
        f' preserveAspectRatio="none">{"".join(parts)}</svg>'
    )


def round_numbers(until: float, /, *, about: int) -> list[float]:
    """Return about `about` multiples of 1, 2 or 5 times a power of ten, from 0 to `until`.

    >>> round_numbers(11.0, about=4)
    [0.0, 5.0, 10.0]
    """
    apart = until / about
    power = 10.0 ** math.floor(math.log10(apart))
    stride = next(nice * power for nice in (1, 2, 5, 10) if nice * power >= apart * 0.999)
    return [stride * k for k in range(math.floor(until / stride * (1 + 1e-9)) + 1)]


def round_bytes(low: float, high: float, /) -> list[int]:
    """Return 1, 2 and 5 times powers of ten of B, KiB, MiB, ... that are in a range.

    >>> round_bytes(300, 3000), round_bytes(90 << 20, 1 << 30)
    ([500, 1024, 2048], [104857600, 209715200, 524288000, 1073741824])
    """
    sizes = (
        nice * ten * 1024**power for power in range(6) for ten in (1, 10, 100) for nice in (1, 2, 5)
    )
    return [size for size in sizes if low <= size <= high]


def short(value: float, /) -> str:
    """Return a number of an axis in at most three digits, or without a fraction.

    >>> short(0.0735691), short(49.153), short(1234.5)
    ('0.0736', '49.2', '1,234')
    """
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def line_css(op: int, /) -> str:
    """Return the class of an action's lines; record is thicker than advance, also in grey."""
    return f"line move {'thick ' if op == RECORD else ''}{VERBS[op]}"


def group(css: str, parts: Iterable[str], /) -> str:
    """Return shapes of one class as a group."""
    return f'<g class="{css}">{"".join(parts)}</g>'


def rect(
    x: float, y: float, width: float, height: float, /, *, title: str = "", css: str = ""
) -> str:
    """Return a box. `title` is its tooltip."""
    size = f'x="{number(x)}" y="{number(y)}" width="{number(width)}" height="{number(height)}"'
    return f"<rect{_css(css)} {size}>{_title(title)}</rect>"


def path(d: str, /, *, title: str = "", css: str = "") -> str:
    """Return a path. `title` is its tooltip."""
    return f'<path{_css(css)} d="{d}">{_title(title)}</path>' if d else ""


def text(x: float, y: float, words: str, css: str = "", /) -> str:
    """Return words whose base line begins at (x, y), or ends there with the class `right`."""
    return f'<text{_css(css)} x="{number(x)}" y="{number(y)}">{escape(words)}</text>'


def name(y: float, words: str, /, *, letters: int = 11) -> str:
    """Return the name of a lane, at its left, with at most `letters` letters."""
    shown = words if len(words) <= letters else words[: letters - 1] + "…"
    return f'<text class="name" x="0" y="{number(y)}">{_title(words)}{escape(shown)}</text>'


def number(value: float, /) -> str:
    """Return a coordinate as text, rounded to a tenth of a unit."""
    return f"{value:.1f}".removesuffix(".0")


def _css(css: str) -> str:
    return f' class="{css}"' if css else ""


def _title(words: str) -> str:
    return f"<title>{escape(words)}</title>" if words else ""


Shape = tuple[tuple[float, float, float, float], ...]
"""Strokes (x, y, x, y) around (0, 0), in units of the radius of the mark."""

_FALLING: Final = (-1.0, -1.0, 1.0, 1.0)
_RISING: Final = (-1.0, 1.0, 1.0, -1.0)
_ACROSS: Final = (-1.2, 0.0, 1.2, 0.0)
_DOWN: Final = (0.0, -1.2, 0.0, 1.2)

CROSSES: Final[tuple[Shape, ...]] = (
    (_FALLING, _RISING),
    (_ACROSS, _DOWN),
    (_FALLING, _RISING, _DOWN),
    (_FALLING, _RISING, _ACROSS, _DOWN),
)
"""The marks of states on levels 0 to 3. Level 4 has the mark of level 0, and so on."""
TAPE: Final[Shape] = ((-1.0, 0.0, 1.0, 0.0), (-1.0, -0.8, -1.0, 0.8), (1.0, -0.8, 1.0, 0.8))
ADJOINT: Final[Shape] = (
    *((0.0, -1.3, 1.3, 0.0), (1.3, 0.0, 0.0, 1.3)),
    *((0.0, 1.3, -1.3, 0.0), (-1.3, 0.0, 0.0, -1.3)),
)
BOX: Final[Shape] = (
    *((-1.5, -1.5, 1.5, -1.5), (1.5, -1.5, 1.5, 1.5)),
    *((1.5, 1.5, -1.5, 1.5), (-1.5, 1.5, -1.5, -1.5)),
)
"""The box around a mark that is read."""


def drawn(
    shape: Shape, x: float, y: float, radius: float, /, *, wide: float = 0.0, title: str = ""
) -> str:
    """Return a mark at a point. `wide` is its horizontal radius, if that differs."""
    across = wide or radius
    return path(
        "".join(
            f"M{number(x + across * a)} {number(y + radius * b)}"
            f"L{number(x + across * c)} {number(y + radius * d)}"
            for a, b, c, d in shape
        ),
        title=title,
    )
