"""Three pictures with time on the horizontal axis: activity, storage and steps over time.

`resources` has a lane for computing and one for each level. With overlap, the lanes of far levels
show their transfers, and the lane "waiting" shows when the program itself copies data or waits for
a transfer. Discards that take less than 1 % of the time are in the track of the reads, because most
of them follow a read. `storage` shows the bytes on each level. In `sweeps` the forward run climbs
to the last step, the adjoint descends, and a horizontal line is a checkpoint while it is stored.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from ckio.actions.columns import DISCARD, READ, REVERSE, VERBS, WRITE
from ckio.platform import Platform, memory_level
from ckio.platform.chain import Chain
from ckio.platform.readable import bytes_text, seconds_text
from ckio.report import NOTICED
from ckio.report.pictures import legend
from ckio.report.pictures.lines import (
    covered,
    is_tape,
    runs,
    seconds_of_stays,
    stay_titles,
    strokes,
    tooltip,
    whole_stays,
)
from ckio.report.pictures.svg import (
    COLUMNS,
    DISTINCT,
    FOOT,
    LEFT,
    LEVELS,
    RIGHT,
    Floats,
    Ints,
    Picture,
    PlotAxis,
    group,
    line_css,
    name,
    number,
    path,
    plot,
    rect,
    round_numbers,
    text,
)
from ckio.report.staging import staged
from ckio.schedule.occupancy import Occupancy, accesses, occupancies, waits
from ckio.schedule.timeline import Timeline

TRACK: Final = 15
"""Height of one action's track in a lane."""
THIN: Final = 2.5
"""Least height of a merged box, so that a small share of time is visible."""
BLOCKS: Final = 48
"""The number of tooltips across a merged track."""
HIGH, GAP = 62, 16
"""Height of the chart of one level, and of the gap between two charts."""
FAR: Final = 4
"""A capacity of more than this many times the peak is not drawn; it is given in words only."""
ON_ITS_WAY: Final = "on its way"
"""The name of the memory between the model and the far levels."""
TOP, DEEP = 22, 256
"""Top and height of the plot of `sweeps`."""
BOTTOM: Final = TOP + DEEP

_EMPTY: Final = 18
"""Height of the chart of a level on which nothing is stored."""


def slow_discards(timelines: Iterable[Timeline], platform: Platform, /) -> frozenset[int]:
    """Return the levels whose discards take a notable part of the time in one of the timelines."""
    slow: set[int] = set()
    for timeline in timelines:
        for events in (timeline, timeline.transfers):
            rows = np.flatnonzero(events.actions.op == DISCARD)
            seconds = np.bincount(events.actions.level[rows], (events.stop - events.start)[rows])
            slow.update(np.flatnonzero(seconds > NOTICED * timeline.makespan).tolist())
    return frozenset(slow) & frozenset(range(len(platform.levels)))


_Lane = tuple[str, tuple[tuple[int, ...], ...], Timeline]
"""A name, the kinds of action of each track (the last one names it), and the events."""


def resources(
    timeline: Timeline,
    platform: Platform,
    axis: PlotAxis,
    /,
    *,
    discards: frozenset[int] | None = None,
) -> Picture:
    """Return activity over time: each lane has one track for each kind of action.

    A box means that the action is in progress. `discards` are the levels whose discards have a
    track, by default those of `slow_discards`.
    """
    y = 4.0
    slow = slow_discards([timeline], platform) if discards is None else discards
    below: list[str] = []
    bars: list[str] = []
    words: list[str] = []
    for lane, tracks, events in _lanes(timeline, platform, slow):
        below.append(rect(LEFT, y, COLUMNS, TRACK * max(1, len(tracks)), css="lane"))
        words.append(name(y + 11, lane))
        if not tracks:
            words.append(text(LEFT + 6, y + 11, "not used", "faint"))
        for ops in tracks:
            words.append(text(LEFT - 8, y + 11, VERBS[ops[-1]], "faint right"))
            for op in ops:
                places = np.flatnonzero(events.actions.op == op)
                drawn = _bars(events, places, axis, y + 1, VERBS[op])
                bars.append(group(f"bar {VERBS[op]}", drawn))
            y += TRACK
        y += 8 + TRACK * (not tracks)
    bottom = y - 4
    frame = axis.draw(4, bottom, end=timeline.makespan)
    parts = (*below, frame, plot("time", (4, bottom), bars), *words)
    return Picture(bottom + FOOT, parts, "Activity over time")


def _lanes(timeline: Timeline, platform: Platform, slow: frozenset[int]) -> Iterator[_Lane]:
    yield "computing", tuple((op,) for op in legend.COMPUTE), timeline
    if len(timeline.transfers):
        yield "waiting", ((WRITE,), (READ,)), waits(timeline, platform)
    for place, level in enumerate(platform.levels):
        events = accesses(timeline, platform, place)
        tracks = ((WRITE,), (READ,), (DISCARD,)) if place in slow else ((WRITE,), (DISCARD, READ))
        yield level.name, tracks if len(events) else (), events


def _bars(timeline: Timeline, places: Ints, axis: PlotAxis, y: float, word: str) -> list[str]:
    start, stop, height = timeline.start[places], timeline.stop[places], TRACK - 2
    if len(places) > DISTINCT:
        return _shares(start, stop, axis, y=y, height=height, word=word)
    return [
        rect(a, y, max(b - a, 0.8), height, title=tooltip(timeline[place]))
        for place, a, b in zip(
            places.tolist(), axis.x(start).tolist(), axis.x(stop).tolist(), strict=True
        )
    ]


def _shares(
    start: Floats, stop: Floats, axis: PlotAxis, *, y: float, height: float, word: str
) -> list[str]:
    """Return merged boxes: in each column the height is the action's share of that time."""
    edges = axis.edges()
    busy = np.diff(_seconds_since(start, edges) - _seconds_since(stop, edges))
    share = np.clip(busy / (edges[1] - edges[0]), 0.0, 1.0)
    begun = np.bincount(axis.column(start), minlength=COLUMNS)
    tops = np.where((share > 1e-6) | (begun > 0), y + (height - THIN) * (1 - share), np.nan)
    return [
        path(
            skyline(tops[block], LEFT + int(block[0]), y + height),
            title=f"{begun[block].sum():,} × {word}, {share[block].mean():.0%} of the time from"
            f" {seconds_text(edges[block[0]])} to {seconds_text(edges[block[-1] + 1])}",
        )
        for block in np.array_split(np.arange(COLUMNS), BLOCKS)
    ]


def _seconds_since(times: Floats, edges: Floats) -> Floats:
    """Return for each edge the sum of the seconds since each earlier time."""
    ordered = np.sort(times)
    count = np.searchsorted(ordered, edges)
    total: Floats = count * edges - np.concatenate(([0.0], np.cumsum(ordered)))[count]
    return total


def skyline(tops: Floats, x: int, base: float, /) -> str:
    """Return the outline of columns one unit wide above `base`; a column with nan is left out."""
    _, begin, end = runs(~np.isnan(tops)[np.newaxis])
    return "".join(
        f"M{x + a} {number(base)}"
        + "".join(f"V{number(tops[k])}H{x + k + 1}" for k in range(a, b))
        + f"V{number(base)}Z"
        for a, b in zip(begin.tolist(), end.tolist(), strict=True)
    )


def storage(timeline: Timeline, chain: Chain, platform: Platform, axis: PlotAxis, /) -> Picture:
    """Return storage over time: the bytes on each level. A dashed line is the capacity."""
    charts = _charts(timeline, chain, platform)
    heights = [HIGH if chart.occupancy.peak_checkpoints else _EMPTY for chart in charts]
    tops = [4.0 + sum(heights[:place]) + place * GAP for place in range(len(charts))]
    bottom = tops[-1] + heights[-1] if tops else 4.0
    parts = [rect(LEFT, *spot, css="lane") for spot in _spots(tops, heights)]
    parts.append(axis.draw(4, bottom, end=timeline.makespan))
    fills: list[str] = []
    for top, chart in zip(tops, charts, strict=True):
        parts.append(name(top + 12, chart.name, letters=18))
        peak = chart.occupancy.peak_checkpoints
        if not peak:
            parts.append(text(LEFT + 6, top + 13, "not used", "faint"))
            continue
        lines = (
            f"peak {bytes_text(chart.occupancy.peak_bytes)}",
            chart.limit,
            f"{peak:,} {_stored_as(chain, peak)}",
        )
        parts += [
            text(0, top + HIGH - 34 + 14 * row, line, "faint") for row, line in enumerate(lines)
        ]
        fills += _fill(chart, axis, top + HIGH, chain)
    parts.append(plot("time", (4, bottom), fills))
    return Picture(bottom + FOOT, tuple(parts), "Storage over time")


def _spots(tops: Sequence[float], heights: Sequence[float]) -> Iterator[tuple[float, float, float]]:
    """Yield the top, the width and the height of each chart."""
    return ((top, COLUMNS, height) for top, height in zip(tops, heights, strict=True))


@dataclass(frozen=True, slots=True)
class _OccupancyChart:
    """The bytes on one level, or on their way in memory; `limit` is the capacity in words."""

    name: str
    occupancy: Occupancy
    capacity: int | None
    limit: str


def _charts(timeline: Timeline, chain: Chain, platform: Platform) -> list[_OccupancyChart]:
    """Return a chart for each level, and with overlap one for data on its way in memory."""
    charts = [
        _OccupancyChart(
            level.name,
            occupancy,
            level.capacity,
            "never fills" if level.capacity is None else f"capacity {bytes_text(level.capacity)}",
        )
        for level, occupancy in zip(
            platform.levels, occupancies(timeline, chain, platform), strict=True
        )
    ]
    if len(timeline.transfers):
        memory = memory_level(platform)
        limit = "in free memory" if memory is None else f"in {platform.levels[memory].name}"
        staging = staged(timeline, chain, platform)
        charts.append(_OccupancyChart(ON_ITS_WAY, staging, None, limit))
    return charts


def _stored_as(chain: Chain, count: int) -> str:
    """Return the noun for stored items: checkpoints, or arrays where these are single variables."""
    word = "checkpoint" if chain.variables is None else "array"
    return word if count == 1 else f"{word}s"


def _fill(chart: _OccupancyChart, axis: PlotAxis, base: float, chain: Chain) -> list[str]:
    """Return the bytes over time; if merged, the largest and the least value in each column."""
    occupancy, capacity = chart.occupancy, chart.capacity
    peak = occupancy.peak_bytes
    limit = capacity if capacity is not None and capacity <= FAR * peak else None
    scale = HIGH / (1.1 * max(1, peak if limit is None else limit))
    height: Floats = scale * occupancy.nbytes.astype(np.float64)
    if len(height) <= DISTINCT:
        x = axis.x(np.append(occupancy.times, axis.until))
        parts = [
            group("bar stored", [path(_staircase(x, base - height, base))]),
            group("bar hint", _hints(occupancy, axis, base, chain)),
        ]
    else:
        title = f"peak {bytes_text(peak)}"
        high, low = (
            path(skyline(np.where(edge > 0, base - edge, np.nan), LEFT, base), title=title)
            for edge in _extremes(occupancy, height, axis)
        )
        parts = [group("bar stored pale", [high]), group("bar stored", [low])]
    if limit is not None:
        line = f"M{LEFT} {number(base - limit * scale)}H{RIGHT}"
        parts.append(path(line, css="limit", title="capacity"))
    return parts


def _extremes(occupancy: Occupancy, height: Floats, axis: PlotAxis) -> tuple[Floats, Floats]:
    """Return the largest and the least value in each column."""
    entering = np.searchsorted(occupancy.times, axis.edges()[:-1], side="right") - 1
    high, low = height[entering], height[entering]
    column = axis.column(occupancy.times)
    np.maximum.at(high, column, height)
    np.minimum.at(low, column, height)
    return high, low


def _staircase(x: Floats, tops: Floats, base: float) -> str:
    stairs = "".join(
        f"V{number(y)}H{number(end)}" for y, end in zip(tops.tolist(), x[1:].tolist(), strict=True)
    )
    return f"M{LEFT} {number(base)}{stairs}V{number(base)}Z"


def _hints(occupancy: Occupancy, axis: PlotAxis, base: float, chain: Chain) -> list[str]:
    """Return invisible shapes whose tooltips give the number and bytes of checkpoints."""
    times = np.append(occupancy.times, axis.until)
    x = axis.x(times).tolist()
    return [
        rect(
            x[k],
            base - HIGH,
            x[k + 1] - x[k],
            HIGH,
            title=f"{count} {_stored_as(chain, count)}, {bytes_text(nbytes)}\n"
            f"{seconds_text(times[k])} to {seconds_text(times[k + 1])}",
        )
        for k, (nbytes, count) in enumerate(
            zip(occupancy.nbytes.tolist(), occupancy.checkpoints.tolist(), strict=True)
        )
        if x[k + 1] - x[k] >= 0.1
    ]


def sweeps(timeline: Timeline, chain: Chain, platform: Platform, axis: PlotAxis, /) -> Picture:
    """Return steps over time: the step of the forward run, of the adjoint, and of checkpoints."""
    scale = DEEP / chain.length
    entries, lines = legend.steps(timeline.actions), []
    for place, level in enumerate(platform.levels):
        events = accesses(timeline, platform, place)
        if not len(events):
            continue
        entries += legend.levels([place], platform, marked=False)
        css = f"line stay stored level{place % LEVELS}"
        lines.append(group(css, _stays(events, level.name, axis, scale, timeline.makespan)))
    lines += [group(line_css(op), _moves(timeline, op, axis, scale)) for op in legend.COMPUTE]
    parts = (
        legend.key(14, entries)[0],
        rect(LEFT, TOP, COLUMNS, DEEP, css="lane"),
        axis.draw(TOP, BOTTOM, end=timeline.makespan),
        _steps(chain.length, scale),
        plot("time", (TOP, BOTTOM), lines),
    )
    return Picture(BOTTOM + FOOT, parts, "Steps over time")


def _steps(length: int, scale: float) -> str:
    """Return the axis of steps, at the left."""
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
    """Return the slanted lines of one kind of action."""
    actions = timeline.actions
    places = np.flatnonzero(actions.op == op)
    left, right = axis.x(timeline.start[places]), axis.x(timeline.stop[places])
    begin, end = (
        scale * column[places].astype(np.float64) for column in (actions.begin, actions.end)
    )
    enter, leave = (end, begin) if op == REVERSE else (begin, end)
    if len(places) > DISTINCT:
        title = f"{len(places):,} × {VERBS[op]}"
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
    """Return slanted lines, cut at the columns and merged within each, as vertical strokes."""
    line, column = _cut(left, right)
    width = np.maximum(right - left, 1e-9)[line]
    begin, end = (np.clip((column + k - left[line]) / width, 0.0, 1.0) for k in (0, 1))
    climb = (leave - enter)[line]
    sides = enter[line] + climb * begin, enter[line] + climb * end
    low, high = np.minimum(*sides), np.maximum(*sides)
    spans = strokes(
        column,
        low.astype(np.int64),
        high.astype(np.int64) + 1,
        lines=COLUMNS,
        length=DEEP + 2,
    )
    return "".join(f"M{LEFT + x}.5 {BOTTOM - y}V{max(TOP, BOTTOM - z)}" for x, y, z in spans)


def _cut(left: Floats, right: Floats) -> tuple[Ints, Ints]:
    """Return (line, column) for each line and each column that it crosses."""
    first = np.clip(left.astype(np.int64), 0, COLUMNS - 1)
    last = np.clip(np.ceil(right).astype(np.int64) - 1, first, COLUMNS - 1)
    pieces = last - first + 1
    line = np.repeat(np.arange(len(left)), pieces)
    before = np.cumsum(pieces) - pieces
    return line, first[line] + np.arange(len(line)) - before[line]


def _stays(events: Timeline, level: str, axis: PlotAxis, scale: float, until: float) -> list[str]:
    """Return a horizontal line for each checkpoint, with a tick where it is written."""
    stays = whole_stays(events.actions)
    start, stop = seconds_of_stays(stays, events, until)
    height = (stays.named.begin + 0.5 * is_tape(stays)) * scale
    if len(start) > DISTINCT:
        left, right = axis.column(start), axis.column(stop) + 1
        cells = covered(height.astype(np.int64), left, right, lines=DEEP + 1, length=COLUMNS)
        spans = zip(*(each.tolist() for each in runs(cells)), strict=True)
        d = "".join(f"M{LEFT + a} {BOTTOM - y}H{LEFT + b}" for y, a, b in spans)
        return [group("pale", [path(d, title=f"{len(start):,} checkpoints on {level}")])]
    columns = axis.x(start), BOTTOM - height, axis.x(stop)
    titles = stay_titles(stays, level, events, until)
    return [
        path(f"M{number(a)} {number(b - 3)}v6M{number(a)} {number(b)}H{number(c)}", title=title)
        for title, a, b, c in zip(titles, *(column.tolist() for column in columns), strict=True)
    ]
