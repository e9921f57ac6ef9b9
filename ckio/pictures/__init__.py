"""A timeline as pictures: the schedule, who works when, what is stored, where the sweeps stand.

The first has steps across and time down. The others have time across on one axis, so that they can
be read one below another. Up to a few hundred shapes of one class are drawn one by one, each with
its tooltip; more are merged into the picture's columns, so that a picture of a million events is
about as large as one of a thousand.
"""

from ckio.chain import Chain
from ckio.pictures.resources import resources
from ckio.pictures.spacetime import spacetime
from ckio.pictures.storage import storage
from ckio.pictures.svg import STYLE, Axis, Picture
from ckio.pictures.sweeps import sweeps
from ckio.platforms import Platform
from ckio.timeline import Timeline

__all__ = ["STYLE", "Axis", "Picture", "draw", "resources", "spacetime", "storage", "sweeps"]

_GAP = 16


def draw(timeline: Timeline, chain: Chain, platform: Platform, /) -> str:
    """The pictures, one below another, as the text of one SVG file."""
    axis = Axis(timeline.makespan)
    y, parts = 0.0, []
    for picture in (
        spacetime(timeline, chain, platform),
        resources(timeline, platform, axis),
        storage(timeline, chain, platform, axis),
        sweeps(timeline, chain, platform, axis),
    ):
        parts.append(picture.nested(y))
        y += picture.height + _GAP
    return Picture(y - _GAP, tuple(parts), "A timeline").file()
