"""The curves of a sweep: labels are round numbers in units that are easy to read."""

import re

import pytest

from ckio.platform.readable import bytes_text, seconds_text
from ckio.report.curves import CurveAxis, CurvePoint, draw_curves


def sizes(*numbers: float) -> CurveAxis:
    labels = tuple(bytes_text(int(number)) for number in numbers)
    return CurveAxis("ram.capacity", labels, numbers, lambda size: bytes_text(int(size)), 1024)


def test_values_that_are_few_and_round_are_labelled_themselves() -> None:
    axis = sizes(64 << 20, 128 << 20, 1 << 30)
    assert [label for _, label in axis.ticks(is_log=True)] == ["64 MiB", "128 MiB", "1 GiB"]


def test_values_that_are_not_round_have_round_labels_between_them() -> None:
    axis = sizes(1234567, 2345678, 45678901)
    assert [label for _, label in axis.ticks(is_log=True)] == [
        *("2 MiB", "5 MiB", "10 MiB", "20 MiB"),
    ]
    seconds = (0.1 + 0.2, 0.123456, 0.7)
    axis = CurveAxis("advance", tuple(map(seconds_text, seconds)), seconds, seconds_text)
    assert [label for _, label in axis.ticks(is_log=False)] == [
        *("200 ms", "400 ms", "600 ms"),
    ]


def test_a_picture_has_these_labels_and_that_of_no_limit() -> None:
    pytest.importorskip("matplotlib")
    axis = sizes(1234567, 2345678, 45678901)
    endless = CurveAxis(
        axis.name, (*axis.labels, "never fills"), (*(axis.numbers or ()), None), axis.said, 1024
    )
    points = [CurvePoint(seconds, None, False) for seconds in (4.0, 3.0, 2.0, 1.0)]
    drawn = draw_curves([endless], points, memory="ram").decode()
    words = re.findall(r">([^<>]*)</text>", drawn)
    for label in ("2 MiB", "20 MiB", "never fills"):
        assert label in words
    assert not set(axis.labels) & set(words)


def test_words_lie_at_equal_distances_and_makespans_of_many_sizes_on_a_logarithmic_axis() -> None:
    pytest.importorskip("matplotlib")
    axis = CurveAxis("planner", ("revolve", "mixed", "periodic"), None)
    points = [CurvePoint(seconds, None, False) for seconds in (1.0, 50.0, 2500.0)]
    drawn = draw_curves([axis], points, memory="ram").decode()
    assert set(axis.labels) <= set(re.findall(r">([^<>]*)</text>", drawn))
    marked = drawn.partition('id="makespan-0"')[2].partition("</g>")[0]
    places = [(float(x), float(y)) for x, y in re.findall(r' x="([\d.]+)" y="([\d.]+)"', marked)]
    (x0, y0), (x1, y1), (x2, y2) = places
    assert x2 - x1 == pytest.approx(x1 - x0)
    assert y2 - y1 == pytest.approx(y1 - y0)
