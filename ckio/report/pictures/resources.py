"""The picture of who works when: a lane for computing and one for each level.

With overlap the far levels' lanes show their transfers, and another shows what the program itself
copies or waits for.
"""

from typing import Final

import numpy as np

from ckio.actions.columns import ADVANCE, DISCARD, READ, RECORD, REVERSE, WRITE
from ckio.platform import Platform
from ckio.platform.readable import seconds_text
from ckio.report.pictures.svg import (
    COLUMNS,
    DISTINCT,
    FOOT,
    LEFT,
    Floats,
    Ints,
    Picture,
    PlotAxis,
    group,
    name,
    path,
    plot,
    rect,
    skyline,
    text,
)
from ckio.report.pictures.words import WORDS, tooltip
from ckio.schedule.occupancy import accesses, waits
from ckio.schedule.timeline import Timeline

TRACK: Final = 15
"""Height of one action's track in a lane."""
THIN: Final = 2.5
"""Height of what is hardly there, so that it is seen at all."""
BLOCKS: Final = 48
"""Tooltips across a merged track."""


def resources(timeline: Timeline, platform: Platform, axis: PlotAxis, /) -> Picture:
    """Time across; in each lane one track for each action, busy where it is filled."""
    y = 4.0
    lanes: list[tuple[str, tuple[int, ...], Timeline]]
    lanes = [("computing", (ADVANCE, RECORD, REVERSE), timeline)]
    if len(timeline.transfers):
        lanes.append(("waiting", (WRITE, READ), waits(timeline, platform)))
    lanes += [
        (level.name, (WRITE, READ, DISCARD), accesses(timeline, platform, place))
        for place, level in enumerate(platform.levels)
    ]
    below: list[str] = []
    bars: list[str] = []
    words: list[str] = []
    for lane, ops, events in lanes:
        below.append(rect(LEFT, y, COLUMNS, TRACK * len(ops), css="lane"))
        words.append(name(y + 11, lane))
        for op in ops:
            places = np.flatnonzero(events.actions.op == op)
            words.append(text(LEFT - 8, y + 11, WORDS[op], "faint right"))
            bars.append(group(f"bar {WORDS[op]}", _bars(events, places, axis, y + 1, WORDS[op])))
            y += TRACK
        y += 8
    bottom = y - 4
    frame = axis.draw(4, bottom, end=timeline.makespan)
    parts = (*below, frame, plot("time", (4, bottom), bars), *words)
    return Picture(bottom + FOOT, parts, "Who works when")


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
    """In each column, a box as high as the share of the time in which this action was going on."""
    edges = axis.edges()
    busy = np.diff(_seconds_since(start, edges) - _seconds_since(stop, edges))
    share = np.clip(busy / (edges[1] - edges[0]), 0.0, 1.0)
    begun = np.bincount(axis.column(start), minlength=COLUMNS)
    tops = np.where((share > 1e-6) | (begun > 0), y + (height - THIN) * (1 - share), np.nan)
    return [
        path(
            skyline(tops[block], LEFT + int(block[0]), y + height),
            title=f"{begun[block].sum()} × {word}, {share[block].mean():.0%} of the time from"
            f" {seconds_text(edges[block[0]])} to {seconds_text(edges[block[-1] + 1])}",
        )
        for block in np.array_split(np.arange(COLUMNS), BLOCKS)
    ]


def _seconds_since(times: Floats, edges: Floats) -> Floats:
    """At each edge, the seconds since each of the times before it, summed."""
    ordered = np.sort(times)
    count = np.searchsorted(ordered, edges)
    total: Floats = count * edges - np.concatenate(([0.0], np.cumsum(ordered)))[count]
    return total
