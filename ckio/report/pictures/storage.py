"""The picture of what is stored: how full each level is over time."""

from dataclasses import dataclass
from typing import Final

import numpy as np

from ckio.platform import Level, Platform, memory_level
from ckio.platform.chain import Chain
from ckio.platform.readable import bytes_text, seconds_text
from ckio.report.pictures.staging import staged
from ckio.report.pictures.svg import (
    COLUMNS,
    DISTINCT,
    FOOT,
    LEFT,
    RIGHT,
    Floats,
    Picture,
    PlotAxis,
    group,
    name,
    number,
    path,
    plot,
    rect,
    skyline,
    text,
)
from ckio.report.pictures.words import stored_as
from ckio.schedule.occupancy import Occupancy, occupancies
from ckio.schedule.timeline import Timeline

FLOOR, GAP = 62, 16
"""Heights: of one level, and between two."""
FAR: Final = 4
"""A capacity this many times the peak is left out of the picture, and told in words only."""
ON_ITS_WAY: Final = "on its way"
"""What memory between the model and the far levels is called."""


def storage(timeline: Timeline, chain: Chain, platform: Platform, axis: PlotAxis, /) -> Picture:
    """Time across, bytes up; a dashed line is the capacity."""
    floors = _floors(timeline, chain, platform)
    tops = [4.0 + place * (FLOOR + GAP) for place in range(len(floors))]
    bottom = tops[-1] + FLOOR if tops else 4.0
    parts = [rect(LEFT, top, COLUMNS, FLOOR, css="lane") for top in tops]
    parts.append(axis.draw(4, bottom, end=timeline.makespan))
    fills: list[str] = []
    for top, floor in zip(tops, floors, strict=True):
        parts += [name(top + 12, floor.name, room=18), *_words(floor, top + FLOOR, chain)]
        fills += _fill(floor, axis, top + FLOOR, chain)
    parts.append(plot("time", (4, bottom), fills))
    return Picture(bottom + FOOT, tuple(parts), "How full each level is")


@dataclass(frozen=True, slots=True)
class _Floor:
    """One level, or what is on its way: its name, how full it is, and its capacity in words."""

    name: str
    occupancy: Occupancy
    capacity: int | None
    room: str
    css: str


def _floors(timeline: Timeline, chain: Chain, platform: Platform) -> list[_Floor]:
    """The levels, and with overlap the memory between them and the model."""
    floors = [
        _Floor(level.name, occupancy, level.capacity, _room(level), f"level{place % 4}")
        for place, (level, occupancy) in enumerate(
            zip(platform.levels, occupancies(timeline, chain, platform), strict=True)
        )
    ]
    if len(timeline.transfers):
        memory = memory_level(platform)
        room = "of free memory" if memory is None else f"in {platform.levels[memory].name}"
        floors.append(_Floor(ON_ITS_WAY, staged(timeline, chain, platform), None, room, "way"))
    return floors


def _room(level: Level) -> str:
    return "never fills" if level.capacity is None else f"of {bytes_text(level.capacity)}"


def _words(floor: _Floor, base: float, chain: Chain) -> list[str]:
    most = floor.occupancy.peak_checkpoints
    lines = (
        f"at most {bytes_text(floor.occupancy.peak_bytes)}",
        floor.room,
        f"{most:,} {stored_as(chain, most)}",
    )
    return [text(0, base - 34 + 14 * row, line, "faint") for row, line in enumerate(lines)]


def _fill(floor: _Floor, axis: PlotAxis, base: float, chain: Chain) -> list[str]:
    """The staircase step by step; or, merged, its highest and its lowest in each column."""
    occupancy, css, capacity = floor.occupancy, floor.css, floor.capacity
    peak = occupancy.peak_bytes
    limit = capacity if capacity is not None and capacity <= FAR * peak else None
    scale = FLOOR / (1.1 * max(1, peak if limit is None else limit))
    height: Floats = scale * occupancy.nbytes.astype(np.float64)
    if len(height) <= DISTINCT:
        x = axis.x(np.append(occupancy.times, axis.until))
        parts = [
            group(f"bar {css}", [path(_staircase(x, base - height, base))]),
            group("bar hint", _hints(occupancy, axis, base, chain)),
        ]
    else:
        title = f"{bytes_text(peak)} at most"
        high, low = (
            path(skyline(np.where(edge > 0, base - edge, np.nan), LEFT, base), title=title)
            for edge in _extremes(occupancy, height, axis)
        )
        parts = [group(f"bar {css} pale", [high]), group(f"bar {css}", [low])]
    return parts if limit is None else [*parts, _limit(base - limit * scale)]


def _extremes(occupancy: Occupancy, height: Floats, axis: PlotAxis) -> tuple[Floats, Floats]:
    """The highest and the lowest in each column."""
    entering = np.searchsorted(occupancy.times, axis.edges()[:-1], side="right") - 1
    high, low = height[entering], height[entering]
    column = axis.column(occupancy.times)
    np.maximum.at(high, column, height)
    np.minimum.at(low, column, height)
    return high, low


def _limit(y: float) -> str:
    return path(f"M{LEFT} {number(y)}H{RIGHT}", css="limit", title="capacity")


def _staircase(x: Floats, tops: Floats, base: float) -> str:
    stairs = "".join(
        f"V{number(y)}H{number(end)}" for y, end in zip(tops.tolist(), x[1:].tolist(), strict=True)
    )
    return f"M{LEFT} {number(base)}{stairs}V{number(base)}Z"


def _hints(occupancy: Occupancy, axis: PlotAxis, base: float, chain: Chain) -> list[str]:
    """Return invisible shapes whose tooltips give the contents of a level at each time."""
    times = np.append(occupancy.times, axis.until)
    x = axis.x(times).tolist()
    return [
        rect(
            x[k],
            base - FLOOR,
            x[k + 1] - x[k],
            FLOOR,
            title=f"{count} {stored_as(chain, count)}, {bytes_text(nbytes)}\n"
            f"{seconds_text(times[k])} to {seconds_text(times[k + 1])}",
        )
        for k, (nbytes, count) in enumerate(
            zip(occupancy.nbytes.tolist(), occupancy.checkpoints.tolist(), strict=True)
        )
        if x[k + 1] - x[k] >= 0.1
    ]
