"""The usual picture of a schedule: steps across, one line for each sweep, the first at the top.

Arrows to the right are forward steps, arrows to the left are adjoint steps. A cross between two
steps is a state, a bar with two ends is a tape, and a diamond is an adjoint. A mark in a box is
read, a mark without a box is written. The thin line below a mark lasts as long as the checkpoint is
stored. Lines are in the order of time but all have the same height, so the axis gives the number of
each sweep and its start time.
"""

from dataclasses import dataclass
from math import ceil
from typing import Final

import numpy as np

from ckio.actions import Kind
from ckio.actions.columns import (
    DISCARD,
    KIND_CODE,
    KINDS,
    READ,
    REVERSE,
    VERBS,
    WRITE,
    Actions,
)
from ckio.platform import Platform
from ckio.platform.chain import Chain
from ckio.platform.readable import time_unit
from ckio.report.pictures import legend
from ckio.report.pictures.lines import (
    covered,
    is_tape,
    lines,
    runs,
    stay_titles,
    strokes,
    tooltip,
    whole,
    whole_stays,
)
from ckio.report.pictures.svg import (
    ADJOINT,
    BOX,
    COLUMNS,
    CROSSES,
    DISTINCT,
    LEFT,
    LEVELS,
    RIGHT,
    TAPE,
    Floats,
    Ints,
    Picture,
    drawn,
    group,
    line_css,
    number,
    path,
    plot,
    rect,
    round_numbers,
    ruler,
    short,
    text,
)
from ckio.schedule.occupancy import BEFORE, Lifetimes
from ckio.schedule.timeline import Timeline

MOST: Final = 120
"""The largest number of lines. If there are more sweeps, several share one line."""
TALLEST, DEEP = 18.0, 480.0
"""The largest height of one line, and of all lines, so that verdict and picture fit a screen."""
APART: Final = 13
"""The least vertical distance of two labels."""

BEGINS: Final = 76
"""The right end of the labels that give the start times of sweeps."""
_NEGLIGIBLE: Final = 1e-3
"""If the first label is below this part of the makespan, it is 0: 1.2e-05 says no more."""


def spacetime(timeline: Timeline, chain: Chain, platform: Platform, /) -> Picture:
    """Return the picture of a schedule. Each line is a sweep, with its number and start time."""
    actions = timeline.actions
    sweep = lines(actions)
    count = int(sweep.max(initial=-1)) + 1
    fold = ceil(count / MOST) or 1
    entries = _entries(actions, platform)
    words, below = legend.key(14, entries)
    grid = _Cells.of(chain.length, ceil(count / fold), below + 24, folded=fold > 1)
    parts = [
        words,
        rect(LEFT, grid.top, COLUMNS, grid.bottom - grid.top, css="lane"),
        _steps(grid),
        plot("step", (grid.top, grid.bottom), _layers(timeline, sweep // fold, grid, platform)),
        *_sweeps(timeline, sweep, fold, grid),
    ]
    foot = grid.bottom + 4
    if fold > 1:
        foot += 14
        parts.append(text(LEFT, foot - 2, f"one line is {fold} of {count:,} sweeps", "faint"))
    return Picture(foot, tuple(parts), "The schedule: steps across, sweeps down")


@dataclass(frozen=True, slots=True)
class _Cells:
    """The grid of steps and lines.

    Attributes
    ----------
    steps, lines : int
        The number of steps, and of lines.
    top, pitch : float
        The upper end of the first line, and the height of each line.
    folded : bool
        Whether each line shows several sweeps. Then forward steps are in its upper half, and
        adjoint steps in its lower half.
    """

    steps: int
    lines: int
    top: float
    pitch: float
    folded: bool

    @staticmethod
    def of(steps: int, lines: int, top: float, /, *, folded: bool) -> "_Cells":
        return _Cells(steps, lines, top, min(TALLEST, DEEP / max(1, lines)), folded)

    @property
    def bottom(self) -> float:
        return self.top + self.pitch * max(1, self.lines)

    @property
    def cell(self) -> float:
        """The width of a step."""
        return COLUMNS / self.steps

    @property
    def radius(self) -> float:
        """The radius of a mark."""
        return max(1.2, min(4.5, 0.3 * self.pitch, 0.3 * self.cell))

    def x(self, step: Ints | Floats, /) -> Floats:
        """Return the horizontal position of the state x_step."""
        place: Floats = LEFT + self.cell * np.asarray(step, np.float64)
        return place

    def y(self, line: Ints, /, *, lower: float = 0.5) -> Floats:
        """Return the vertical position of a line: its middle, or the part `lower` of its height."""
        place: Floats = self.top + self.pitch * (line.astype(np.float64) + lower)
        return place

    def column(self, step: Ints, /) -> Ints:
        """Return the column to the right of the state x_step."""
        return step * COLUMNS // self.steps


def _entries(actions: Actions, platform: Platform) -> list[legend.Entry]:
    """Return the entries of the legend for the actions and levels that occur."""
    marked = actions.take(np.flatnonzero(whole(actions)))
    used = np.unique(marked.level).tolist()
    return [
        *legend.steps(actions),
        *legend.accesses(marked),
        *legend.levels(used, platform, marked=True),
    ]


def _steps(grid: _Cells) -> str:
    """Return the axis of steps, above the lines."""
    ticks = [tick for tick in round_numbers(grid.steps, about=10) if tick == int(tick)]
    marks = [(LEFT + grid.cell * tick, tick) for tick in ticks]
    across = (grid.top, grid.bottom)
    return ruler("step", marks, across, until=float(grid.steps), base=grid.top - 6, words="step")


def _sweeps(timeline: Timeline, line: Ints, fold: int, grid: _Cells) -> list[str]:
    """Return the axis at the left: the numbers of sweeps and their start times."""
    unit, sign = time_unit(timeline.makespan)
    first = np.flatnonzero(np.diff(line, prepend=-1))
    apart = APART * fold / grid.pitch
    stride = next(n * 10**p for p in range(12) for n in (1, 2, 5) if n * 10**p >= apart)
    labels = []
    for sweep in range(stride, len(first) + 1, stride):
        y = float(grid.y(np.array((sweep - 1) // fold))) + 4
        begins = float(timeline.start[first[sweep - 1]])
        if sweep == stride and begins < _NEGLIGIBLE * timeline.makespan:
            begins = 0.0
        labels += [
            text(LEFT - 8, y, f"{sweep:,}", "faint right"),
            text(BEGINS, y, short(begins / unit), "faint right"),
        ]
    above = grid.top - 6
    heads = [text(0, above, f"start ({sign})", "name"), text(LEFT - 8, above, "sweep", "right")]
    return [*heads, *labels]


def _layers(timeline: Timeline, line: Ints, grid: _Cells, platform: Platform) -> list[str]:
    """Return the shapes to draw, the most important last."""
    actions = timeline.actions
    names = [level.name for level in platform.levels]
    stays = whole_stays(actions)
    layers = []
    for level in np.unique(stays.named.level).tolist():
        stored = stays.take(stays.named.level == level)
        shapes = _stays(timeline, stored, names[level], line, grid)
        layers.append(group(f"line stay stored level{level % LEVELS}", shapes))
    for op in legend.COMPUTE:
        layers += _arrows(timeline, op, line, grid)
    marked = whole(actions) & (actions.op != DISCARD)
    for level in np.unique(actions.level[marked]).tolist():
        for op in (WRITE, READ):
            rows = np.flatnonzero(marked & (actions.op == op) & (actions.level == level))
            if len(rows):
                layers += _marks(timeline, rows, line, grid, names[level])
    return layers


def _arrows(timeline: Timeline, op: int, line: Ints, grid: _Cells) -> list[str]:
    """Return the arrows of one kind of action: first their shafts, then their heads."""
    actions, word, back = timeline.actions, VERBS[op], op == REVERSE
    places = np.flatnonzero(actions.op == op)
    lines = line[places]
    begin, end = actions.begin[places], actions.end[places]
    lower = 0.5 if not grid.folded else 0.75 if back else 0.3
    if len(places) > DISTINCT:
        spans = grid.column(begin), np.maximum(grid.column(end), grid.column(begin) + 1)
        title = f"{len(places):,} × {word}"
        return [_merged(line_css(op), lines, spans, grid, lower=lower, title=title)]
    left, right, y = grid.x(begin).tolist(), grid.x(end).tolist(), grid.y(lines, lower=lower)
    shafts, heads = [], []
    size = 0.7 * grid.radius
    for place, a, b, at in zip(places.tolist(), left, right, y.tolist(), strict=True):
        tail, tip, behind = (b, a, size) if back else (a, b, -size)
        shafts.append(
            path(f"M{number(tail)} {number(at)}H{number(tip)}", title=tooltip(timeline[place]))
        )
        up, down = number(at - size), number(at + size)
        edge = number(tip + behind)
        heads.append(path(f"M{edge} {up}L{number(tip)} {number(at)}L{edge} {down}"))
    side = "to-left" if back else "to-right"
    return [group(line_css(op), shafts), group(f"line move tip {side} {word}", heads)]


def _marks(timeline: Timeline, here: Ints, line: Ints, grid: _Cells, level: str) -> list[str]:
    """Return the marks of the Writes or the Reads of one level."""
    actions = timeline.actions.take(here)
    step, level_number, read = actions.begin, int(actions.level[0]), int(actions.op[0]) == READ
    css = f"line mark {VERBS[READ if read else WRITE]} level{level_number % LEVELS}"
    way, box = f"{'from' if read else 'to'} {level}", BOX if read else ()
    if len(here) > DISTINCT:
        begin = np.minimum(grid.column(step), COLUMNS - 1)
        title = f"{len(here):,} checkpoints {'read' if read else 'written'} {way}"
        return [_merged(css, line[here], (begin, begin + 1), grid, lower=0.5, title=title)]
    tape = actions.kind == KIND_CODE[Kind.TAPE]
    x, y = grid.x(step + 0.5 * tape).tolist(), grid.y(line[here]).tolist()
    cross = CROSSES[level_number % LEVELS]
    points, bars = [], []
    for row, a, b, code in zip(here.tolist(), x, y, actions.kind.tolist(), strict=True):
        words = tooltip(timeline[row], f"{way}, ")
        kind: Kind = KINDS[code]
        match kind:
            case Kind.RESTART:
                points.append(drawn(cross + box, a, b, grid.radius, title=words))
            case Kind.ADJOINT:
                points.append(drawn(ADJOINT + box, a, b, grid.radius, title=words))
            case Kind.TAPE:
                half = 0.4 * grid.cell
                at = b + 0.3 * grid.pitch
                bars.append(drawn(TAPE, a, at, grid.radius, wide=half, title=words))
                if read:
                    bars.append(drawn(BOX, a, at, 0.6 * grid.radius, wide=0.75 * half))
    return [group(f"{css} point", points), group(css, bars)]


def _stays(timeline: Timeline, stays: Lifetimes, level: str, line: Ints, grid: _Cells) -> list[str]:
    """Return for each checkpoint a line down from its Write to its Discard."""
    step, tape = stays.named.begin, is_tape(stays)
    begin = np.where(stays.written == BEFORE, 0, np.append(line, 0)[stays.written])
    end = np.append(line, max(0, grid.lines - 1))[stays.discarded]
    if len(step) > DISTINCT:
        column = np.minimum(grid.column(step), COLUMNS - 1)
        cells = covered(column, begin, end + 1, lines=COLUMNS, length=grid.lines)
        tops = [number(y) for y in grid.y(np.arange(grid.lines + 1), lower=0.0).tolist()]
        spans = zip(*(each.tolist() for each in runs(cells)), strict=True)
        d = "".join(f"M{LEFT + x}.5 {tops[a]}V{tops[b]}" for x, a, b in spans)
        return [group("pale", [path(d, title=f"{len(step):,} checkpoints on {level}")])]
    lower = 0.5 + 0.3 * tape
    from_start = (stays.written == BEFORE) * lower
    to_end = (stays.discarded == len(timeline)) * (1 - lower)
    tops = grid.y(begin) + grid.pitch * (lower - 0.5 - from_start)
    bottoms = grid.y(end) + grid.pitch * (lower - 0.5 + to_end)
    columns = (column.tolist() for column in (grid.x(step + 0.5 * tape), tops, bottoms))
    titles = stay_titles(stays, level, timeline, timeline.makespan)
    return [
        path(f"M{number(x)} {number(a)}V{number(b)}", title=title)
        for title, x, a, b in zip(titles, *columns, strict=True)
    ]


def _merged(
    css: str, line: Ints, span: tuple[Ints, Ints], grid: _Cells, /, *, lower: float, title: str
) -> str:
    """Return spans of columns as one path, merged within each line."""
    y = [number(at) for at in grid.y(np.arange(grid.lines), lower=lower).tolist()]
    d = "".join(
        f"M{LEFT + a} {y[k]}H{min(RIGHT, LEFT + b)}"
        for k, a, b in strokes(line, *span, lines=grid.lines, length=COLUMNS)
    )
    return group(css, [path(d, title=title)])
