"""The picture of what is stored: how full each level is over time."""

from typing import Final

import numpy as np

from ckio.chain import Chain
from ckio.occupancy import Occupancy, occupancies
from ckio.pictures.svg import (
    COLUMNS,
    DISTINCT,
    FOOT,
    LEFT,
    RIGHT,
    Axis,
    Floats,
    Picture,
    group,
    name,
    number,
    path,
    rect,
    skyline,
    text,
)
from ckio.pictures.words import bytes_text, seconds_text
from ckio.platforms import Level, Platform
from ckio.timeline import Timeline

FLOOR, GAP = 62, 16
"""Heights: of one level, and between two."""
FAR: Final = 4
"""A capacity this many times the peak is left out of the picture, and told in words only."""


def storage(timeline: Timeline, chain: Chain, platform: Platform, axis: Axis, /) -> Picture:
    """Time across, bytes up; a dashed line is the capacity."""
    tops = [4.0 + place * (FLOOR + GAP) for place in range(len(platform.levels))]
    bottom = tops[-1] + FLOOR if tops else 4.0
    parts = [rect(LEFT, top, COLUMNS, FLOOR, css="lane") for top in tops]
    parts.append(axis.draw(4, bottom, end=timeline.makespan))
    for place, occupancy in enumerate(occupancies(timeline, chain, platform)):
        level, base = platform.levels[place], tops[place] + FLOOR
        parts += [name(tops[place] + 12, level.name, room=18), *_words(occupancy, level, base)]
        parts += _fill(occupancy, level, f"level{place % 4}", axis, base)
    return Picture(bottom + FOOT, tuple(parts), "How full each level is")


def _words(occupancy: Occupancy, level: Level, base: float) -> list[str]:
    lines = (
        f"at most {bytes_text(occupancy.peak_bytes)}",
        "never fills" if level.capacity is None else f"of {bytes_text(level.capacity)}",
        f"{occupancy.peak_checkpoints:,} checkpoints",
    )
    return [text(0, base - 34 + 14 * row, line, "faint") for row, line in enumerate(lines)]


def _fill(occupancy: Occupancy, level: Level, css: str, axis: Axis, base: float) -> list[str]:
    """The staircase step by step; or, merged, its highest and its lowest in each column."""
    peak, capacity = occupancy.peak_bytes, level.capacity
    limit = capacity if capacity is not None and capacity <= FAR * peak else None
    scale = FLOOR / (1.1 * max(1, peak if limit is None else limit))
    height: Floats = scale * occupancy.nbytes.astype(np.float64)
    if len(height) <= DISTINCT:
        x = axis.x(np.append(occupancy.times, axis.until))
        parts = [
            group(f"bar {css}", [path(_staircase(x, base - height, base))]),
            group("bar hint", _hints(occupancy, axis, base)),
        ]
    else:
        title = f"{bytes_text(peak)} at most"
        high, low = (
            path(skyline(np.where(edge > 0, base - edge, np.nan), LEFT, base), title=title)
            for edge in _extremes(occupancy, height, axis)
        )
        parts = [group(f"bar {css} pale", [high]), group(f"bar {css}", [low])]
    return parts if limit is None else [*parts, _limit(base - limit * scale)]


def _extremes(occupancy: Occupancy, height: Floats, axis: Axis) -> tuple[Floats, Floats]:
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


def _hints(occupancy: Occupancy, axis: Axis, base: float) -> list[str]:
    """What lies there at each time, for the pointer; unseen otherwise."""
    times = np.append(occupancy.times, axis.until)
    x = axis.x(times).tolist()
    return [
        rect(
            x[k],
            base - FLOOR,
            x[k + 1] - x[k],
            FLOOR,
            title=f"{count} checkpoints, {bytes_text(nbytes)}\n"
            f"{seconds_text(times[k])} to {seconds_text(times[k + 1])}",
        )
        for k, (nbytes, count) in enumerate(
            zip(occupancy.nbytes.tolist(), occupancy.checkpoints.tolist(), strict=True)
        )
        if x[k + 1] - x[k] >= 0.1
    ]
