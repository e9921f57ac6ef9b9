"""The legend that all pictures share.

A colour means a kind of action. The shape of a mark, and the dashes of the line that lasts as long
as a checkpoint is stored, mean a level. If each level has a lane or a chart of its own, its name is
there, and stored data are grey.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

import numpy as np

from ckio.actions import Kind
from ckio.actions.columns import (
    ADVANCE,
    KIND_CODE,
    READ,
    RECORD,
    REVERSE,
    VERBS,
    WRITE,
    Actions,
)
from ckio.platform import Platform
from ckio.report.pictures.svg import (
    ADJOINT,
    BOX,
    CROSSES,
    LEFT,
    LEVELS,
    RIGHT,
    TAPE,
    Shape,
    drawn,
    group,
    line_css,
    number,
    path,
    rect,
    text,
)

COMPUTE: Final = (ADVANCE, RECORD, REVERSE)

Sample = Callable[[float, float], str]
"""A function that draws a sample of the legend, 14 units wide, to the right of (x, y)."""
Entry = tuple[str, Sample]


def key(y: float, entries: Iterable[Entry], /) -> tuple[str, float]:
    """Return a legend in rows, the first at height `y`, and the height of its last row."""
    parts, x = [], float(LEFT)
    for words, sample in entries:
        width = 22 + 6 * len(words) + 14
        if x > LEFT and x + width > RIGHT:
            x, y = float(LEFT), y + 16
        parts.append(sample(x, y - 4) + text(x + 20, y, words, "faint"))
        x += width
    return "".join(parts), y


def steps(actions: Actions, /) -> list[Entry]:
    """Return the entries of those kinds of action that compute steps and occur."""
    return [(VERBS[op], _line(line_css(op))) for op in COMPUTE if bool((actions.op == op).any())]


def accesses(actions: Actions, /) -> list[Entry]:
    """Return the entries of Writes and Reads, and of the shapes of tapes and adjoints."""
    entries: list[Entry] = []
    if (actions.op == WRITE).any():
        entries.append((VERBS[WRITE], _swatch(VERBS[WRITE])))
    if (actions.op == READ).any():
        entries.append((f"{VERBS[READ]} (in a box)", _boxed(VERBS[READ])))
    kinds = np.unique(actions.kind[actions.op >= WRITE]).tolist()
    entries += [
        (word, _mark(shape))
        for kind, word, shape in ((Kind.TAPE, "tape", TAPE), (Kind.ADJOINT, "adjoint", ADJOINT))
        if KIND_CODE[kind] in kinds
    ]
    return entries


def levels(numbers: Sequence[int], platform: Platform, /, *, marked: bool) -> list[Entry]:
    """Return the entries of levels: the dashes of each, and if `marked` the shape of its marks."""
    names = [level.name for level in platform.levels]
    return [(f"on {names[place]}", _stay(place % LEVELS, marked=marked)) for place in numbers]


def _line(css: str) -> Sample:
    return lambda x, y: group(css, [path(f"M{number(x)} {number(y)}h14")])


def _swatch(css: str) -> Sample:
    return lambda x, y: rect(x + 2, y - 4, 9, 9, css=f"bar {css}")


def _boxed(css: str) -> Sample:
    return lambda x, y: (
        rect(x + 4, y - 2, 5, 5, css=f"bar {css}")
        + group(f"line mark {css}", [drawn(BOX, x + 6.5, y + 0.5, 3.5)])
    )


def _mark(shape: Shape) -> Sample:
    return lambda x, y: group("line mark ink", [drawn(shape, x + 7, y, 3.5)])


def _stay(level: int, *, marked: bool) -> Sample:
    def sample(x: float, y: float) -> str:
        line = group(f"line stay stored level{level}", [path(f"M{number(x - 2)} {number(y)}h18")])
        return line + (_mark(CROSSES[level])(x, y) if marked else "")

    return sample
