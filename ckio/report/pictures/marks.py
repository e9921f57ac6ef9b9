"""The marks of checkpoints: strokes about a point, and the legend that explains them."""

from collections.abc import Sequence
from typing import Final

from ckio.report.pictures.svg import LEFT, RIGHT, number, path, text

Shape = tuple[tuple[float, float, float, float], ...]
"""Strokes, each from one point to another, about (0, 0); 1 is the radius of the mark."""

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
"""Restart data on levels 0 to 3, and again from 4 on: told apart by shape, not only by colour."""
TAPE: Final[Shape] = ((-1.0, 0.0, 1.0, 0.0), (-1.0, -0.8, -1.0, 0.8), (1.0, -0.8, 1.0, 0.8))
ADJOINT: Final[Shape] = (
    *((0.0, -1.3, 1.3, 0.0), (1.3, 0.0, 0.0, 1.3)),
    *((0.0, 1.3, -1.3, 0.0), (-1.3, 0.0, 0.0, -1.3)),
)
BOX: Final[Shape] = (
    *((-1.5, -1.5, 1.5, -1.5), (1.5, -1.5, 1.5, 1.5)),
    *((1.5, 1.5, -1.5, 1.5), (-1.5, 1.5, -1.5, -1.5)),
)
"""Around what is read."""


def drawn(
    shape: Shape, x: float, y: float, radius: float, /, *, wide: float = 0.0, title: str = ""
) -> str:
    """A mark at a point; `wide` is its radius across where that is another."""
    across = wide or radius
    return path(
        "".join(
            f"M{number(x + across * a)} {number(y + radius * b)}"
            f"L{number(x + across * c)} {number(y + radius * d)}"
            for a, b, c, d in shape
        ),
        title=title,
    )


def key(y: float, entries: Sequence[tuple[str, str, Shape | None]], /) -> tuple[str, float]:
    """A legend of marks (class, words, mark) in rows from `y` on, and the height of its last row.

    What has no mark is a line.
    """
    parts, x = [], float(LEFT)
    for css, words, shape in entries:
        width = 22 + 6 * len(words) + 14
        if x > LEFT and x + width > RIGHT:
            x, y = float(LEFT), y + 16
        sample = path(f"M{number(x)} {number(y - 4)}h14") if shape is None else None
        parts.append(
            f'<g class="{css}">{sample or drawn(shape or (), x + 7, y - 4, 3.5)}</g>'
            + text(x + 20, y, words, "faint")
        )
        x += width
    return "".join(parts), y
