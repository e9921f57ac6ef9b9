"""Pictures of a timeline: the schedule, activity over time, storage over time, steps over time.

The schedule has steps on the horizontal axis and sweeps below one another. The other pictures share
one time axis, so that they can be read one below another. Each colour is one kind of action in all
of them (see `legend`). Up to 250 shapes of one class are drawn one by one, each with its tooltip.
More shapes are merged into the picture's columns, so that a picture of a million events is about as
large as one of a thousand.
"""

from collections.abc import Iterable

import numpy as np

from ckio.actions.columns import WRITE, Actions
from ckio.platform import Level, Platform
from ckio.platform.chain import Chain
from ckio.report.pictures.memory import MemoryCurve, over_memory
from ckio.report.pictures.spacetime import spacetime
from ckio.report.pictures.svg import STYLE, Picture, PlotAxis
from ckio.report.pictures.timelines import resources, slow_discards, storage, sweeps
from ckio.schedule import Schedule, seconds_of
from ckio.schedule.timeline import Timeline

__all__ = [
    "STYLE",
    "MemoryCurve",
    "Picture",
    "PlotAxis",
    "draw",
    "draw_schedule",
    "draw_timeline",
    "over_memory",
    "resources",
    "slow_discards",
    "spacetime",
    "storage",
    "sweeps",
]

_GAP = 16


def draw(timeline: Timeline, chain: Chain, platform: Platform, /) -> str:
    """Return the four pictures, one below another, as the text of one SVG file."""
    axis = PlotAxis(timeline.makespan)
    pictures = (
        spacetime(timeline, chain, platform),
        resources(timeline, platform, axis),
        storage(timeline, chain, platform, axis),
        sweeps(timeline, chain, platform, axis),
    )
    return _stacked(pictures, "A timeline")


def draw_schedule(schedule: Schedule, /) -> str:
    """Return the picture of a schedule as SVG. Its levels cost nothing."""
    platform = _numbered(schedule.actions)
    stop = np.cumsum(seconds_of(schedule, platform))
    start = np.concatenate(([0.0], stop[:-1])) if len(stop) else stop
    timeline = Timeline(schedule.actions, start, stop, np.zeros(len(stop), np.int64))
    return _stacked([spacetime(timeline, schedule.chain, platform)], "A schedule")


def draw_timeline(timeline: Timeline, /) -> str:
    """Return the schedule and the activity over time of a timeline as SVG."""
    platform, actions = _numbered(timeline.actions), timeline.actions
    last = int(max(actions.end.max(initial=1), actions.begin.max(initial=0) + 1))
    chain = Chain(steps=last, advance=0, record=0, reverse=0, restart=0, tape=0, adjoint=0)
    axis = PlotAxis(timeline.makespan)
    return _stacked(
        [spacetime(timeline, chain, platform), resources(timeline, platform, axis)], "A timeline"
    )


def _numbered(actions: Actions) -> Platform:
    """Return a platform with the levels that the actions use, named by their numbers."""
    last = int(actions.level[actions.op >= WRITE].max(initial=-1))
    return Platform(tuple(Level(name=f"level{number}") for number in range(last + 1)))


def _stacked(pictures: Iterable[Picture], label: str) -> str:
    """Return pictures, one below another, as the text of one SVG file."""
    y, parts = 0.0, []
    for picture in pictures:
        parts.append(picture.nested(y))
        y += picture.height + _GAP
    return Picture(y - _GAP, tuple(parts), label).file()
