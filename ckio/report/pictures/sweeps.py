"""The picture of the two sweeps: the usual picture of a schedule, with time across.

The forward climbs, the adjoint comes down; a level line is a checkpoint, as long as it is stored.
"""

from typing import Final

import numpy as np

from ckio.actions import Kind
from ckio.actions.columns import ADVANCE, KIND_CODE, RECORD, REVERSE
from ckio.platform import Platform
from ckio.platform.chain import Chain
from ckio.report.pictures.lines import Places, covered, members, of_program, runs
from ckio.report.pictures.svg import (
    COLUMNS,
    DISTINCT,
    FOOT,
    LEFT,
    RIGHT,
    Floats,
    Ints,
    Picture,
    PlotAxis,
    group,
    legend,
    line_css,
    number,
    path,
    plot,
    rect,
    text,
)
from ckio.report.pictures.words import WORDS, round_numbers, stays_told, together, tooltip
from ckio.schedule.occupancy import Lifetimes, accesses
from ckio.schedule.timeline import Timeline

TOP, DEEP = 22, 256
"""Where the picture begins, and how high it is."""
BOTTOM: Final = TOP + DEEP
RUNS: Final = 6000
"""The most strokes of a merged class; beyond, they are merged more coarsely."""


def sweeps(timeline: Timeline, chain: Chain, platform: Platform, axis: PlotAxis, /) -> Picture:
    """Time across, steps up."""
    names, scale = [level.name for level in platform.levels], DEEP / chain.length
    by_level = [accesses(timeline, platform, place) for place in range(len(names))]
    used = [place for place, events in enumerate(by_level) if len(events)]
    places = Places.of(timeline.actions)
    stand = {place: places.take(of_program(by_level[place], timeline, place)) for place in used}
    entries = [(WORDS[op], WORDS[op]) for op in (ADVANCE, RECORD, REVERSE)]
    entries += [(f"level{place % 4}", f"on {names[place]}") for place in used]
    parts = [
        legend(14, entries),
        rect(LEFT, TOP, COLUMNS, DEEP, css="lane"),
        axis.draw(TOP, BOTTOM, end=timeline.makespan),
        _steps(chain.length, scale),
    ]
    lines = [
        group(
            f"line level{place % 4}",
            _stays(
                by_level[place], stand[place], axis, scale, names[place], until=timeline.makespan
            ),
        )
        for place in used
    ]
    lines += [
        group(line_css(op), _moves(timeline, op, axis, scale)) for op in (ADVANCE, RECORD, REVERSE)
    ]
    parts.append(plot("time", (TOP, BOTTOM), lines))
    return Picture(BOTTOM + FOOT, tuple(parts), "Where the forward and the adjoint stand")


def _steps(length: int, scale: float) -> str:
    """The axis at the left."""
    ticks = [tick for tick in round_numbers(length, about=6) if tick == int(tick)]
    lines = "".join(f"M{LEFT} {number(BOTTOM - tick * scale)}H{RIGHT}" for tick in ticks)
    return (
        text(0, TOP + 12, "step", "name")
        + path(lines, css="grid")
        + "".join(
            text(LEFT - 8, BOTTOM - tick * scale + 4, f"{tick:,.0f}", "faint right")
            for tick in ticks
        )
    )


def _moves(timeline: Timeline, op: int, axis: PlotAxis, scale: float) -> list[str]:
    """The slanted lines of one action."""
    actions = timeline.actions
    places = np.flatnonzero(actions.op == op)
    left, right = axis.x(timeline.start[places]), axis.x(timeline.stop[places])
    begin, end = (
        scale * column[places].astype(np.float64) for column in (actions.begin, actions.end)
    )
    enter, leave = (end, begin) if op == REVERSE else (begin, end)
    if len(places) > DISTINCT:
        title = f"{len(places)} × {WORDS[op]}"
        return [path(_merged(left - LEFT, right - LEFT, enter, leave), title=title)]
    lines = zip(*(a.tolist() for a in (places, left, enter, right, leave)), strict=True)
    return [
        path(
            f"M{number(a)} {number(BOTTOM - y)}L{number(b)} {number(BOTTOM - z)}",
            title=tooltip(timeline[place]),
        )
        for place, a, y, b, z in lines
    ]


def _merged(left: Floats, right: Floats, enter: Floats, leave: Floats) -> str:
    """Slanted lines cut at the columns and merged within each, as upright strokes."""
    line, column = _cut(left, right)
    width = np.maximum(right - left, 1e-9)[line]
    begin, end = (np.clip((column + k - left[line]) / width, 0.0, 1.0) for k in (0, 1))
    climb = (leave - enter)[line]
    sides = enter[line] + climb * begin, enter[line] + climb * end
    low, high = np.minimum(*sides), np.maximum(*sides)
    unit, strokes = 1, _strokes(column, low, high, 1)
    while len(strokes[0]) > RUNS:
        unit *= 2
        strokes = _strokes(column, low, high, unit)
    return "".join(
        f"M{LEFT + x}.5 {BOTTOM - y * unit}V{max(TOP, BOTTOM - z * unit)}"
        for x, y, z in zip(*(a.tolist() for a in strokes), strict=True)
    )


def _cut(left: Floats, right: Floats) -> tuple[Ints, Ints]:
    """Each line once for every column that it crosses: (line, column)."""
    first = np.clip(left.astype(np.int64), 0, COLUMNS - 1)
    last = np.clip(np.ceil(right).astype(np.int64) - 1, first, COLUMNS - 1)
    pieces = last - first + 1
    line = np.repeat(np.arange(len(left)), pieces)
    before = np.cumsum(pieces) - pieces
    return line, first[line] + np.arange(len(line)) - before[line]


def _strokes(column: Ints, low: Floats, high: Floats, unit: int) -> tuple[Ints, Ints, Ints]:
    begin, end = (low // unit).astype(np.int64), (high // unit).astype(np.int64) + 1
    return runs(covered(column, begin, end, lines=COLUMNS, length=DEEP // unit + 2))


def _stays(
    timeline: Timeline, places: Places, axis: PlotAxis, scale: float, level: str, *, until: float
) -> list[str]:
    """A level line for each checkpoint, with a tick where it is written.

    There is one line for all variables that are written at one step.
    """
    each = Lifetimes.of(timeline.actions)
    stays, which = places.together(each)
    start, stop = _seconds(stays, timeline, until)
    inside = 0.5 * (stays.named.kind == KIND_CODE[Kind.TAPE])
    height = (places.of_stays(stays) + inside) * scale
    if len(start) > DISTINCT:
        columns = axis.column(start), axis.column(stop) + 1
        grid = covered(height.astype(np.int64), *columns, lines=DEEP + 1, length=COLUMNS)
        strokes = zip(*(a.tolist() for a in runs(grid)), strict=True)
        d = "".join(f"M{LEFT + a} {BOTTOM - y}H{LEFT + b}" for y, a, b in strokes)
        what = "checkpoints" if len(start) == len(each.written) else "variables"
        return [group("pale", [path(d, title=f"{len(each.written)} {what} on {level}")])]
    tooltips = stays_told(each, *_seconds(each, timeline, until), level)
    y = BOTTOM - height
    x = axis.x(start), axis.x(stop)
    return [
        path(
            f"M{number(a)} {number(b - 3)}v6M{number(a)} {number(b)}H{number(c)}",
            title=together([tooltips[k] for k in these]),
        )
        for these, a, b, c in zip(
            members(which), *(column.tolist() for column in (x[0], y, x[1])), strict=True
        )
    ]


def _seconds(stays: Lifetimes, timeline: Timeline, until: float) -> tuple[Floats, Floats]:
    """When each begins and ends; what stays does so to the end of the picture."""
    start, stop = stays.seconds(timeline)
    stop[stays.discarded == len(timeline)] = until
    return start, stop
