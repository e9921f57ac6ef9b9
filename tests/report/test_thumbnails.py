"""Images of arrays: whatever a model gives, they are small, safe and say what they show."""

import base64
import io
import json
import math
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from ckio.errors import BadInput
from ckio.report.thumbnails import MOST, MOST_IMAGES, png, read_thumbnails, thumbnail


def image(array: Any) -> Any:
    return thumbnail("u", "state at step 3", np.asarray(array))


def test_a_field_with_both_signs_is_symmetric_around_zero() -> None:
    drawn = image([[-1.0, 0.0, 4.0], [4.0, -4.0, np.nan]])
    assert drawn.is_signed
    assert drawn.points.tolist() == [[96, 128, 255], [255, 1, 0]]
    assert (drawn.low, drawn.high) == (-4.0, 4.0)
    lopsided = image([[-1.0, 0.0, 4.0]])
    assert lopsided.points.tolist() == [[96, 128, 255]]
    assert "-1 to 4" in lopsided.html()


def test_a_field_of_one_sign_goes_from_the_least_to_the_greatest() -> None:
    drawn = image([[2.0, 3.0], [4.0, 2.0]])
    assert not drawn.is_signed
    assert drawn.points.tolist() == [[1, 128], [255, 1]]


def test_the_png_has_the_colours_of_the_values() -> None:
    pillow = pytest.importorskip("PIL.Image")
    drawn = image([[-4.0, 0.0, 4.0, np.inf]])
    seen = np.asarray(pillow.open(io.BytesIO(png(drawn.points, signed=True))).convert("RGB"))
    assert seen.shape == (1, 4, 3)
    negative, zero, positive, missing = seen[0].tolist()
    assert negative[2] > negative[0]
    assert positive[0] > positive[2]
    assert min(zero) > 240
    assert missing == [0x9A, 0xA0, 0xA6]
    assert "grey: not finite" in drawn.html()


def test_a_huge_array_is_sampled_and_its_range_is_said() -> None:
    drawn = image(np.broadcast_to(np.arange(100_000.0), (40_000, 100_000)))
    assert drawn.points.shape == (MOST, MOST)
    assert drawn.shape == (40_000, 100_000)
    assert len(drawn.html()) < 10_000
    assert image(np.arange(1000)).points.shape == (1, 143)
    tall = image(np.zeros((500, 2))).html()
    assert re.search(r'width="(\d+)" height="(\d+)"', tall)
    assert all(int(n) <= MOST for n in re.findall(r'(?:width|height)="(\d+)"', tall))


def test_a_line_is_drawn_with_gaps_where_it_is_not_finite() -> None:
    drawn = image([1.0, 2.0, np.nan, 2.0, -1.0]).html()
    assert drawn.count("M") >= 3  # two pieces, and zero
    assert "<img" not in drawn


@pytest.mark.parametrize(
    "array",
    [np.zeros(()), np.zeros((2, 2, 2)), np.zeros((0, 3)), np.zeros(3, complex), np.array(["a"])],
)
def test_what_has_no_image_is_refused(array: Any) -> None:
    with pytest.raises(BadInput, match=r"image 'u' has (shape|dtype)"):
        image(array)


@given(
    arrays.arrays(
        st.sampled_from([np.float64, np.float32, np.int64, np.bool_]),
        arrays.array_shapes(min_dims=1, max_dims=2, max_side=9),
    )
)
def test_every_real_array_has_an_image_that_is_read_back(array: Any) -> None:
    drawn = image(array)
    (back,) = read_thumbnails(json.loads(json.dumps([drawn.data()])))
    assert back.html() == drawn.html()
    assert (drawn.points > 0).sum() == np.isfinite(array.astype(float)).sum()
    assert math.isnan(drawn.low) or drawn.low <= drawn.high


def test_names_are_escaped() -> None:
    nasty = '<script>alert("&")</script>'
    for array in (np.zeros(3), np.zeros((3, 3))):
        assert "<script>" not in thumbnail(nasty, nasty, array).html()


@pytest.mark.parametrize(
    "change",
    [
        {"size": [1000, 1000]},
        {"size": [2, 2], "points": base64.b64encode(b"abc").decode()},
        {"points": "no base64"},
        {"shape": [1, 2, 3]},
        {"shape": [4], "size": [2, 2]},
        {"low": "x"},
        {"size": 3},
        {"name": None, "shape": None},
    ],
)
def test_images_from_outside_are_checked(change: dict[str, Any]) -> None:
    entry = image(np.ones((2, 2))).data()
    assert len(read_thumbnails([entry])) == 1
    with pytest.raises(BadInput, match="images of a run are damaged"):
        read_thumbnails([entry | change])
    for entries in ([1], {"a": 1}, None, [entry] * (MOST_IMAGES + 1)):
        with pytest.raises(BadInput, match="images of a run are damaged"):
            read_thumbnails(entries)
