"""Small images of a model's arrays, for the report: a field as a PNG, a line as SVG.

An array is sampled at regular distances, so that an image has at most `MOST` points in each
direction. Each value gets one of 255 colours between the least and the greatest value. If these
two have different signs, the colours are symmetric around zero: white is zero, red is positive and
blue is negative. Values that are not finite are grey. As JSON, an image is a name, numbers, and its
points in base64. The reader checks all of it.
"""

import base64
import math
import struct
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from html import escape
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ckio.errors import BadInput

MOST: Final = 160
"""The largest number of points in each direction, and of pixels on the page."""
MOST_IMAGES: Final = 12
"""The largest number of images of one run."""
WHOLE: Final = 10_000_000
"""Up to this many values, the range is that of all values; beyond, of the sampled ones."""
_LETTERS: Final = 80
_LINE_HEIGHT: Final = 80

_GREY, _FIRST, _LAST = 0, 1, 255
"""The points of a value that is not finite, of the least value, and of the greatest value."""
_SIGNED: Final = (0x2166AC, 0x92C5DE, 0xF7F7F7, 0xF4A582, 0xB2182B)
_PLAIN: Final = (0x440154, 0x3B528B, 0x21918C, 0x5EC962, 0xFDE725)
"""Colours from the least to the greatest value, at regular distances."""
_MISSING: Final = b"\x9a\xa0\xa6"


@dataclass(frozen=True, slots=True)
class Thumbnail:
    """A small image of one array.

    Attributes
    ----------
    name : str
        The name of the array.
    what : str
        The origin of the array, for example "state at step 60".
    points : uint8 array
        [row, column], from 1 for the least value to 255 for the greatest. 0 is a value that is not
        finite. The image of an array of one dimension has one row.
    low, high : float
        The least and the greatest finite value; nan if there is no finite value.
    shape : tuple of int
        The shape of the array before it was sampled.
    """

    name: str
    what: str
    points: NDArray[np.uint8]
    low: float
    high: float
    shape: tuple[int, ...]

    @property
    def is_signed(self) -> bool:
        """Whether values have both signs, so that the colours are symmetric around zero."""
        return self.low < 0 < self.high

    def html(self) -> str:
        """Return the image and its caption as HTML."""
        caption = (
            f"<b>{escape(self.name)}</b>, {escape(self.what)}<br>"
            f"{_number(self.low)} to {_number(self.high)}"
        )
        if (self.points == _GREY).any():
            caption += "<br>grey: not finite"
        drawn = self._line() if len(self.shape) == 1 else self._field()
        return f'<div class="thumbnail">{drawn}<p>{caption}</p></div>'

    def _field(self) -> str:
        height, width = self.points.shape
        across, down = (max(1, MOST * n // max(height, width)) for n in (width, height))
        data = base64.b64encode(png(self.points, signed=self.is_signed)).decode()
        return (
            f'<img src="data:image/png;base64,{data}" width="{across}" height="{down}"'
            f' alt="{escape(self.name)}">'
        )

    def _line(self) -> str:
        """Return the values as a line, with gaps at values that are not finite."""
        values, last = self.points[0], max(1, self.points.shape[1] - 1)
        y = 2 + (_LINE_HEIGHT - 4) * (_LAST - values.astype(np.float64)) / (_LAST - _FIRST)
        d, pen = "", "M"
        for place, (value, height) in enumerate(zip(values.tolist(), y.tolist(), strict=True)):
            if value == _GREY:
                pen = "M"
                continue
            d += f"{pen}{MOST * place / last:.1f} {height:.1f}"
            pen = "L"
        zero = ""
        if self.is_signed:
            at = 2 + (_LINE_HEIGHT - 4) * self.high / (self.high - self.low)
            zero = f'<path class="grid" d="M0 {at:.1f}H{MOST}"/>'
        return (
            f'<svg class="picture line-image" viewBox="0 0 {MOST} {_LINE_HEIGHT}" width="{MOST}"'
            f' height="{_LINE_HEIGHT}" role="img" aria-label="{escape(self.name)}">{zero}'
            f'<g class="line ink"><path d="{d}"/></g></svg>'
        )

    def data(self) -> dict[str, Any]:
        """Return the image as data for JSON."""
        return {
            "name": self.name,
            "what": self.what,
            "size": list(self.points.shape),
            "points": base64.b64encode(self.points.tobytes()).decode(),
            "low": self.low if math.isfinite(self.low) else None,
            "high": self.high if math.isfinite(self.high) else None,
            "shape": list(self.shape),
        }


def thumbnail(name: str, what: str, array: Any, /) -> Thumbnail:
    """Return the image of an array of real numbers with one or two dimensions.

    Raises BadInput for any other array.
    """
    values = np.asarray(array)
    if values.ndim not in (1, 2) or not values.size:
        raise BadInput(
            f"image {name!r:.40} has shape {values.shape}; an image has one or two dimensions, and"
            " at least one value"
        )
    if values.dtype.kind not in "biuf":
        raise BadInput(f"image {name!r:.40} has dtype {values.dtype}; an image is of real numbers")
    steps = tuple(slice(None, None, -(-size // MOST)) for size in values.shape)
    sample = values[steps].astype(np.float64)
    low, high = _range(values if values.size <= WHOLE else sample)
    points = _points(sample, low, high)
    return Thumbnail(
        str(name)[:_LETTERS],
        what,
        np.atleast_2d(points),
        low,
        high,
        values.shape,
    )


def _range(values: NDArray[Any]) -> tuple[float, float]:
    """Return the least and the greatest finite value."""
    if values.dtype.kind != "f":
        return float(values.min()), float(values.max())
    finite = np.isfinite(values)
    if not finite.any():
        return math.nan, math.nan
    return (
        float(values.min(where=finite, initial=math.inf)),
        float(values.max(where=finite, initial=-math.inf)),
    )


def _points(sample: NDArray[np.float64], low: float, high: float) -> NDArray[np.uint8]:
    """Return the number of each value's colour, symmetric around zero for a field of both signs."""
    if sample.ndim == 2 and low < 0 < high:
        low, high = -max(-low, high), max(-low, high)
    finite = np.isfinite(sample)
    share = np.full(sample.shape, 0.5)
    if high > low:
        share[finite] = (sample[finite] / 2 - low / 2) / (high / 2 - low / 2)  # never overflows
    points = np.rint(_FIRST + (_LAST - _FIRST) * np.clip(share, 0, 1))
    return np.where(finite, points, _GREY).astype(np.uint8)


def read_thumbnails(entries: object, /) -> list[Thumbnail]:
    """Return the images from the results of `data`; raise BadInput if they are damaged."""
    if not isinstance(entries, list) or len(entries) > MOST_IMAGES:
        raise BadInput(
            f"the images of a run are damaged: they are not a list of at most {MOST_IMAGES} images"
        )
    return [_read(entry) for entry in entries]


def _read(entry: object) -> Thumbnail:
    try:
        assert isinstance(entry, Mapping)
        rows, columns = map(int, entry["size"])
        shape = tuple(map(int, entry["shape"]))
        data = base64.b64decode(str(entry["points"]), validate=True)
        low, high = (math.nan if entry[n] is None else float(entry[n]) for n in ("low", "high"))
        name, what = (str(entry[key])[:_LETTERS] for key in ("name", "what"))
    except (AssertionError, ValueError, TypeError, LookupError, OverflowError) as error:
        raise BadInput(f"the images of a run are damaged: {error}") from None
    fits = 0 < rows <= MOST and 0 < columns <= MOST and len(data) == rows * columns
    if not fits or len(shape) not in (1, 2) or (len(shape) == 1 and rows != 1):
        raise BadInput(
            f"the images of a run are damaged: {len(data)} points for {rows} x {columns}"
        )
    points = np.frombuffer(data, np.uint8).reshape(rows, columns)
    return Thumbnail(name, what, points, low, high, shape)


def gallery(images: Iterable[Thumbnail], /) -> str:
    """Return the images next to one another as HTML."""
    return f'<div class="gallery">{"".join(image.html() for image in images)}</div>'


def png(points: NDArray[np.uint8], /, *, signed: bool) -> bytes:
    """Return points as a PNG file with a palette."""
    height, width = points.shape
    rows = np.zeros((height, width + 1), np.uint8)  # each row begins with 0: no filter
    rows[:, 1:] = points
    header = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"PLTE", _palette(_SIGNED if signed else _PLAIN)))
    body = (*chunks, (b"IDAT", zlib.compress(rows.tobytes(), 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in body
    )


def _palette(colours: tuple[int, ...]) -> bytes:
    places = np.linspace(0.0, len(colours) - 1.0, _LAST - _FIRST + 1)
    channels = [
        np.interp(places, range(len(colours)), [colour >> shift & 255 for colour in colours])
        for shift in (16, 8, 0)
    ]
    return _MISSING + np.rint(np.stack(channels, axis=1)).astype(np.uint8).tobytes()


def _number(value: float) -> str:
    return "no finite value" if math.isnan(value) else f"{value:.4g}"
