"""The levels of a platform for temporary use, whose files are removed at the end."""

import secrets
import threading
import weakref
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from ckio.actions import Field, Key, Kind, Layout
from ckio.adapters import registry
from ckio.backends.base import Backend
from ckio.errors import BadInput, StorageError
from ckio.model.arrays import as_bytes, copy, empty
from ckio.platform import Platform

_NATIVE: Final = "biufc"
"""The kinds of NumPy's dtypes that are plain numbers."""


class Scratch:
    """Open levels whose files are temporary.

    The files are removed when the Scratch is closed or deleted, or when the process exits. A
    framework stores its arrays on a level under a new key, and reads them by this key. Several
    threads may use one Scratch.

    >>> from ckio import Level, Platform
    >>> with Scratch(Platform((Level(name="ram"),))) as scratch:
    ...     key = scratch.put(0, {"u": np.arange(3.0)})
    ...     scratch.get(0, key)
    {'u': array([0., 1., 2.])}

    Parameters
    ----------
    platform : Platform
        The levels to open.

    Attributes
    ----------
    platform : Platform
    backends : sequence of Backend
        The open levels, in the order of the platform. Do not use them directly if you use `put`.

    Raises
    ------
    BadInput, StorageError
        A level cannot be opened. Then all levels are closed.
    """

    def __init__(self, platform: Platform, /) -> None:
        self.platform = platform
        self._locks = [threading.Lock() for _ in platform.levels]
        self._numbers, self._number_lock = 0, threading.Lock()
        run = secrets.token_hex(4)
        with ExitStack() as stack:
            backends: list[Backend] = []
            for level in platform.levels:
                backends.append(registry.open_level(level, run=run))
                stack.callback(backends[-1].remove)
            self.backends: Sequence[Backend] = tuple(backends)
            self._close = weakref.finalize(self, _closed, stack.pop_all())

    def put(self, level: int, arrays: Mapping[str, NDArray[Any]], /) -> Key:
        """Store named arrays on a level, and return their new key.

        `level` is the number of the level. Raises LevelFull and other StorageErrors, and BadInput
        if an array does not consist of plain numbers.
        """
        whole = {name: _contiguous(name, array) for name, array in arrays.items()}
        layout = tuple(_field(name, array) for name, array in whole.items())
        with self._number_lock:
            key = Key(Kind.RESTART, self._numbers)
            self._numbers += 1
        with self._locks[level]:
            self.backends[level].write(key, layout, [as_bytes(array) for array in whole.values()])
        return key

    def get(
        self, level: int, key: Key, into: Mapping[str, NDArray[Any]] | None = None, /
    ) -> dict[str, NDArray[Any]]:
        """Return the arrays of a key, in new memory or in the arrays `into`.

        Raises MissingCheckpoint and CorruptCheckpoint. Raises BadInput if the names, shapes or
        dtypes of `into` differ from the stored ones.
        """
        with self._locks[level]:
            layout = self.backends[level].layout(key)
            arrays = dict(into) if into is not None else _empty(layout)
            if tuple(_field(name, array) for name, array in arrays.items()) != layout:
                raise BadInput(
                    f"{key} does not fit these arrays; give arrays with the names, shapes and"
                    " dtypes that were stored"
                )
            self.backends[level].read(key, [as_bytes(array) for array in arrays.values()])
        return arrays

    def drop(self, level: int, key: Key, /) -> None:
        """Discard the arrays of a key; raises MissingCheckpoint."""
        with self._locks[level]:
            self.backends[level].discard(key)

    def close(self) -> None:
        """Close all levels and remove their files. A second call has no effect."""
        self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: object, error: BaseException | None, *__: object) -> None:
        with suppress(StorageError) if error is not None else ExitStack():
            self.close()


def _closed(stack: ExitStack) -> None:
    stack.close()


def _contiguous(name: str, array: NDArray[Any]) -> NDArray[Any]:
    """Return the array, or a copy in C order if it is not contiguous.

    Raises BadInput if its dtype contains objects or named fields, or is not a plain number.
    """
    kind = array.dtype
    if kind.hasobject or kind.names is not None or kind.kind not in _NATIVE + "V":
        raise BadInput(f"array {name!r} has dtype {kind}; give an array of plain numbers")
    return array if array.flags.forc else copy(array)


def _field(name: str, array: NDArray[Any]) -> Field:
    """Return the field of an array. The shape of an array in Fortran order is reversed."""
    shape = array.shape if array.flags.c_contiguous else array.shape[::-1]
    return Field(name, array.dtype.str, shape)


def _empty(layout: Layout) -> dict[str, NDArray[Any]]:
    return {field.name: empty(field.shape, np.dtype(field.dtype)) for field in layout}
