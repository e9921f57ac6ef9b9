"""The form of a checkpoint: its layout, the sizes of its buffers, and the text of its layout."""

import json
from dataclasses import dataclass
from functools import lru_cache
from operator import attrgetter

import numpy as np

from ckio.actions import Buffers, Field, Layout, field_nbytes
from ckio.actions.checks import check_line
from ckio.errors import BadInput, CorruptCheckpoint, StorageError

_bytes_in = attrgetter("nbytes")

_DIMENSIONS = 64
_MOST = 1 << 63
"""Each length in a shape must be smaller than this; numpy has the same limit."""


@dataclass(frozen=True, slots=True, eq=False)
class Form:
    """A layout, the sizes of its buffers in bytes, and its text.

    Attributes
    ----------
    layout : Layout
    sizes : list of int
        Bytes of each buffer.
    nbytes : int
        Bytes of all buffers together.
    text : bytes
        The layout as JSON: [[name, dtype, [shape], unit], ...], in ASCII.
    """

    layout: Layout
    sizes: list[int]
    nbytes: int
    text: bytes

    def fits(self, data: Buffers, /) -> bool:
        """Return whether `data` are views of bytes with the sizes of this form."""
        return list(map(len, data)) == self.sizes == list(map(_bytes_in, data))

    def mismatch(self, data: Buffers, /) -> str:
        """Return the reason why `data` does not have this form; "" if it does."""
        if self.fits(data):
            return ""
        sizes = [view.nbytes for view in data]
        if sizes == self.sizes:
            return 'these are no views of bytes: give each as memoryview(array).cast("B")'
        return (
            f"its layout has {len(self.sizes)} fields of {_brief(self.sizes)} bytes,"
            f" these are {len(sizes)} views of {_brief(sizes)}"
        )


@lru_cache(256)
def form_of(layout: Layout, /) -> Form:
    """Return the form of a layout; raises StorageError if a field cannot be stored as bytes."""
    sizes = list(map(_nbytes, layout))
    try:
        for field in layout:
            check_line("the name of a field", field.name)
            check_line(f"field {field.name!r}: unit", field.unit)
    except BadInput as error:
        raise StorageError(str(error)) from None
    rows = [(field.name, field.dtype, list(map(int, field.shape)), field.unit) for field in layout]
    return Form(layout, sizes, sum(sizes), json.dumps(rows, separators=(",", ":")).encode())


@lru_cache(256)
def form_from(text: bytes, /) -> Form:
    """Return the form with this text; raises CorruptCheckpoint if the text describes no layout."""
    try:
        rows = json.loads(text)
        return form_of(
            tuple(Field(name, dtype, tuple(shape), unit) for name, dtype, shape, unit in rows)
        )
    except (StorageError, ValueError, TypeError):
        raise CorruptCheckpoint("the stored layout makes no sense") from None


def _nbytes(field: Field) -> int:
    try:
        if _is_plain(field):
            return field_nbytes(field)
    except (ValueError, TypeError, OverflowError, SyntaxError, MemoryError, RecursionError):
        pass
    raise StorageError(
        f"field {field.name!r}: {field.dtype!r} of shape {field.shape} are no plain bytes;"
        " name a dtype that numpy knows, without objects in it"
    )


def _is_plain(field: Field) -> bool:
    """Return whether the field can be stored as bytes and its description can be read back."""
    texts, shape = (field.name, field.dtype, field.unit), field.shape
    return (
        all(isinstance(text, str) for text in texts)
        and len(shape) <= _DIMENSIONS
        and all(0 <= n < _MOST for n in shape)
        and not np.dtype(field.dtype).hasobject
    )


def _brief(sizes: list[int]) -> str:
    return ", ".join(map(str, sizes[:4])) + (", ..." if len(sizes) > 4 else "") or "no"
