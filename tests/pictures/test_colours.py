"""Colours that are told apart by everybody, on paper and on a dark screen."""

import re
from itertools import combinations

import numpy as np
import pytest

from ckio.report.pictures.svg import DARK, LIGHT

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
