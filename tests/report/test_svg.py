"""The drawing layer: everybody can tell its colours apart, and read its axes."""

import math
import re
from itertools import combinations, pairwise
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckio.actions import Advance, Key, Kind, Record, Reverse, Write
from ckio.actions.columns import VERBS
from ckio.platform import Level, Platform
from ckio.platform.chain import Chain
from ckio.platform.readable import bytes_text
from ckio.report.pictures import draw
from ckio.report.pictures.svg import (
    CROSSES,
    DARK,
    LEVELS,
    LIGHT,
    STYLE,
    PlotAxis,
    round_bytes,
)
from ckio.schedule import Schedule
from ckio.sim.engine import simulate

SVG = "{http://www.w3.org/2000/svg}"
CHAIN = Chain(steps=3, advance=1.0, record=1.5, reverse=2.5, restart=10, tape=7, adjoint=3)
PLATFORM = Platform((Level(name="ram", capacity=12), Level(name="disk")))
SCHEDULE = Schedule(
    CHAIN, [Write(Key(Kind.RESTART, 0), 0), Advance(0, 2), Record(2, 3), Reverse(2, 3)]
)
DRAWN = draw(simulate(SCHEDULE, PLATFORM), CHAIN, PLATFORM)


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
def test_everybody_tells_kinds_of_action_apart(theme: str, eyes: str) -> None:
    def seen(name: str) -> "np.ndarray[tuple[int, ...], np.dtype[np.float64]]":
        light = np.clip(np.array(EYES[eyes]) @ colours(theme)[name], 0, 1)
        place: np.ndarray[tuple[int, ...], np.dtype[np.float64]] = np.array(LAB) @ np.cbrt(
            np.array(LMS) @ light
        )
        return place

    for least, names in (
        (0.15, ("advance", "record", "reverse")),
        (0.09, ("advance", "record", "reverse", "write", "read")),
        (0.09, ("discard", "stored")),
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
        for name in ("reverse", "write", "read", "discard", "stored"):
            assert contrast(name, behind) >= 3.0


def test_a_colour_means_a_kind_of_action_and_never_a_level() -> None:
    styled = re.findall(r"\.picture ([^{]+) \{ (?:fill|stroke): var\(--(\w+)\); \}", STYLE)
    assert len(styled) > 10
    assert not [css for css, _ in styled if "level" in css]
    dashes = re.findall(r"\.stay\.level\d \{ stroke-dasharray: ([^;]+); \}", STYLE)
    assert len({"", *dashes}) == len(set(CROSSES)) == LEVELS
    used = set(re.findall(r'class="[^"]*\b(level\d)', DRAWN))
    assert used == {"level0"}


def test_all_pictures_of_a_timeline_have_the_same_legend() -> None:
    root = ElementTree.fromstring(DRAWN)
    legends = []
    for picture in root.findall(f"{SVG}svg"):
        samples = {}
        for sample, words in pairwise(picture):
            if sample.tag == f"{SVG}g" and words.tag == f"{SVG}text" and words.text in VERBS:
                samples[words.text] = sample.get("class")
        legends.append(samples)
    steps, work, stored, sweeps = legends
    assert (
        steps
        == sweeps
        == {
            "advance": "line move advance",
            "record": "line move thick record",
            "reverse": "line move reverse",
        }
    )
    assert work == stored == {}


@pytest.mark.parametrize("until", [0.3, 7.0, 1.1e-6, 123456.789])
def test_axes_have_round_labels_in_units_that_are_easy_to_read(until: float) -> None:
    words = re.findall(r">([^<]*)</text>", PlotAxis(until).draw(0, 10, end=until))
    *labels, unit = words
    assert re.fullmatch(r"time \((s|ms|µs|ns)\)", unit)
    assert 2 <= len(labels) <= 11
    assert all(len(label.replace(",", "")) <= 6 for label in labels)


@given(st.floats(1.0, 1e10), st.floats(1.0, 1e5))
def test_round_bytes_are_easy_to_read(low: float, factor: float) -> None:
    sizes = round_bytes(low, low * factor)
    assert all(low <= size <= low * factor for size in sizes)
    assert all(re.fullmatch(r"(1|2|5|10|20|50|100|200|500) \w+", bytes_text(s)) for s in sizes)
    assert len(sizes) >= math.floor(math.log(factor, 3))
