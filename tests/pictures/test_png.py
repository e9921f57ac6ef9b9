"""PNG shows what SVG does: the same colours at the same places."""

import io
import sys
from xml.etree import ElementTree

import numpy as np
import pytest

from ckio.actions import Advance, Key, Kind, Record, Reverse, Write
from ckio.errors import BadInput
from ckio.platform import Level, Platform
from ckio.platform.chain import Chain
from ckio.report.pictures import draw
from ckio.report.pictures.svg import SHARP, Picture, plot, png, rect
from ckio.schedule import Schedule
from ckio.sim.engine import simulate

SVG = "{http://www.w3.org/2000/svg}"
CHAIN = Chain(steps=3, advance=1.0, record=1.5, reverse=2.5, restart=10, tape=7, adjoint=3)
PLATFORM = Platform((Level(name="ram", capacity=12), Level(name="disk")))
SCHEDULE = Schedule(
    CHAIN, [Write(Key(Kind.RESTART, 0), 0), Advance(0, 2), Record(2, 3), Reverse(2, 3)]
)
DRAWN = draw(simulate(SCHEDULE, PLATFORM), CHAIN, PLATFORM)


def pixels(svg: str) -> "np.ndarray[tuple[int, ...], np.dtype[np.uint8]]":
    pytest.importorskip("cairosvg")
    image = pytest.importorskip("PIL.Image")
    return np.asarray(image.open(io.BytesIO(png(svg))).convert("RGB"))


def colour(image: "np.ndarray[tuple[int, ...], np.dtype[np.uint8]]", x: float, y: float) -> str:
    """The colour at a place of the picture, which has a margin of 16 units."""
    row, column = int((y + 16) * SHARP), int((x + 16) * SHARP)
    return "#" + image[row, column].tobytes().hex()


def test_it_is_as_large_as_the_picture_and_each_bar_has_its_colour() -> None:
    image, root = pixels(DRAWN), ElementTree.fromstring(DRAWN)
    _, _, width, height = map(float, root.get("viewBox", "").split())
    assert image.shape[:2] == (int(SHARP * height), int(SHARP * width))
    assert colour(image, -8, -8) == "#ffffff"
    gantt = next(p for p in root.findall(f"{SVG}svg") if p.get("aria-label") == "Who works when")
    down, seen = float(gantt.get("y", "")), 0
    for css, expected in (("advance", "#3d9bdb"), ("record", "#d98e00"), ("reverse", "#004f8a")):
        for g in gantt.iter(f"{SVG}g"):
            if g.get("class") == f"bar {css}":
                for bar in g.findall(f"{SVG}rect"):
                    x, y, w, h = (float(bar.get(a, "")) for a in ("x", "y", "width", "height"))
                    assert colour(image, x + w / 2, down + y + h / 2) == expected
                    seen += 1
    assert seen == 3


def test_what_is_nested_lies_where_it_does_in_svg_and_the_unseen_is_not_drawn() -> None:
    inner = Picture(20, (plot("time", (0, 20), [rect(200, 5, 10, 10, css="paper")]),), "inner")
    lane = rect(136, 0, 808, 100, css="lane")
    hint = f'<g class="bar hint">{rect(300, 40, 20, 20)}</g>'
    image = pixels(Picture(100, (lane, inner.nested(60), hint), "outer").file())
    assert colour(image, 205, 70) == "#ffffff"
    assert colour(image, 205, 10) == colour(image, 310, 50) == "#f3f4f6"


def test_two_of_the_same_are_the_same_bytes() -> None:
    pytest.importorskip("cairosvg")
    assert png(DRAWN) == png(DRAWN)


def test_without_cairosvg_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cairosvg", None)
    with pytest.raises(BadInput, match=r"pip install 'ckio\[png\]'"):
        png(DRAWN)
