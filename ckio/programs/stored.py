"""A checkpoint of a program: its arrays, after one of JSON that says what they are."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ckio.actions import Field, Layout
from ckio.programs.protocol import Json

Data = dict[str, NDArray[Any]]

Stored = tuple[Layout, list[NDArray[Any]]]
"""What the arrays of a checkpoint are, and the arrays."""

META: Final = "meta"
"""The name of the first field: JSON, as bytes."""


def stored(data: Mapping[str, NDArray[Any]], about: Mapping[str, Json], /) -> Stored:
    """The checkpoint of these arrays.

    The JSON also has the names, which files may not be able to have, and dtypes of other libraries.
    """
    others = {name: a.dtype.name for name, a in data.items() if np.dtype(a.dtype.str) != a.dtype}
    text = json.dumps({"names": list(data), "dtypes": others, **about}).encode()
    arrays = [np.frombuffer(text, np.uint8), *(np.asarray(a, order="C") for a in data.values())]
    fields = [
        Field(_file_name(name, number), array.dtype.str, array.shape)
        for number, (name, array) in enumerate(zip((META, *data), arrays, strict=True))
    ]
    return tuple(fields), arrays


def taken(arrays: Sequence[NDArray[Any]], /) -> tuple[Data, dict[str, Json]]:
    """The arrays by their names, and what else was said of them."""
    meta = json.loads(arrays[0].tobytes())
    data = dict(zip(meta["names"], arrays[1:], strict=True))
    data |= {name: data[name].view(np.dtype(of)) for name, of in meta["dtypes"].items()}
    return data, meta


def _file_name(name: str, number: int) -> str:
    plain = name.replace(".", "").replace("_", "").isalnum() and name.isascii()
    return name if plain else f"array{number}"
