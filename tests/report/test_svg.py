"""The drawing layer: PNG shows what SVG does, and everybody can tell its colours apart."""

import io
import re
import sys
from itertools import combinations
from xml.etree import ElementTree

import numpy as np
import pytest

from ckio.actions import Advance, Key, Kind, Record, Reverse, Write
from ckio.errors import BadInput
from ckio.platform import Level, Platform
from ckio.platform.chain import Chain
from ckio.report.pictures import draw
from ckio.report.pictures.svg import DARK, LIGHT, SHARP, Picture, plot, png, rect
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


# How eyes without one kind of cone see (linear RGB to linear RGB; Machado and others, 2009).
EYES = {
    "all cones": np.eye(3),
    "no long": [[0.1523, 1.0526, -0.2049], [0.1145, 0.7863, 0.0992], [-0.0039, -0.0481, 1.0520]],
    "no medium": [[0.3673, 0.8606, -0.2280], [0.2801, 0.6725, 0.0474], [-0.0118, 0.0429, 0.9689]],
    "no short": [[1.2555, -0.0767, -0.1788], [-0.0784, 0.9308, 0.1476], [0.0047, 0.6914, 0.3039]],
}
LMS = [[0.41222, 0.53633, 0.05145], [0.21190, 0.68070, 0.10740], [0.08830, 0.28172, 0.62998]]
LAB = [[0.21045, 0.79362, -0.00407], [1.97800, -2.42859, 0.45059], [0.02590, 0.78277, -0.80868]]
THEMES = {"paper": LIGHT, "dark": DARK}


def linear(text: str) -> "np.ndarray[tuple[int, ...], np.dtype[np.float64]]":
    digits = text.strip("#")
    digits = digits if len(digits) == 6 else "".join(2 * digit for digit in digits)
    parts = np.array([int(digits[k : k + 2], 16) for k in (0, 2, 4)]) / 255
    return np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)


def colours(theme: str) -> dict[str, "np.ndarray[tuple[int, ...], np.dtype[np.float64]]"]:
    return {name: linear(text) for name, text in re.findall(r"--(\w+): ([^;]+);", THEMES[theme])}


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("eyes", EYES)
def test_everybody_tells_actions_and_levels_apart(theme: str, eyes: str) -> None:
    def seen(name: str) -> "np.ndarray[tuple[int, ...], np.dtype[np.float64]]":
        light = np.clip(np.array(EYES[eyes]) @ colours(theme)[name], 0, 1)
        place: np.ndarray[tuple[int, ...], np.dtype[np.float64]] = np.array(LAB) @ np.cbrt(
            np.array(LMS) @ light
        )
        return place

    for least, names in (
        (0.15, ("advance", "record", "reverse")),
        (0.07, ("level0", "level1", "level2", "level3")),
    ):
        for one, other in combinations(names, 2):
            assert np.linalg.norm(seen(one) - seen(other)) > least, (one, other)


@pytest.mark.parametrize("theme", THEMES)
def test_words_and_lines_stand_out_from_what_is_behind(theme: str) -> None:
    found = colours(theme)
    light = {name: float(rgb @ (0.2126, 0.7152, 0.0722)) + 0.05 for name, rgb in found.items()}

    def contrast(one: str, other: str) -> float:
        return max(light[one], light[other]) / min(light[one], light[other])

    for behind in ("paper", "lane"):
        for name in ("ink", "faint"):
            assert contrast(name, behind) >= 4.5
        for name in ("reverse", "write", "read", "discard", "level0", "level1", "level2"):
            assert contrast(name, behind) >= 3.0
