"""A codec that is not believed: it may be anybody's, and what it says decides over memory."""

from operator import index
from typing import Any

from ckio.compression.base import Block, Codec
from ckio.errors import BadInput, CkioError, StorageError


class Checked:
    """A codec held to its protocol: what it does else, or raises, is a StorageError.

    Raises BadInput where it does not say what it is.
    """

    def __init__(self, codec: Codec, /) -> None:
        name, lossless = getattr(codec, "name", None), getattr(codec, "lossless", None)
        if not (isinstance(name, str) and name and isinstance(lossless, bool)):
            raise BadInput(
                f"codec {type(codec).__name__}: name = {name!r}, lossless = {lossless!r};"
                " they must be a text, and True or False"
            )
        self.name, self.lossless, self._codec = name, lossless, codec

    def bound(self, nbytes: int, /) -> int:
        try:
            bound = index(self._codec.bound(nbytes))
        except Exception as error:
            raise self._failed(error) from error
        if bound < 1:
            raise StorageError(f"codec {self.name} needs {bound} bytes for a block of {nbytes}")
        return bound

    def encode(self, block: Block, into: memoryview, /) -> int:
        try:
            size = index(self._codec.encode(block, into))
        except Exception as error:
            raise self._failed(error) from error
        if not 0 < size <= into.nbytes:
            raise StorageError(
                f"codec {self.name} gave {size} bytes for a block; its bound is {into.nbytes}"
            )
        return size

    def decode(self, data: memoryview, into: Block, /) -> None:
        try:
            self._codec.decode(data, into)
        except Exception as error:
            raise self._failed(error) from error

    def _failed(self, error: Exception) -> Any:
        """An error of ckio's own: this one, or one that tells of it."""
        if isinstance(error, CkioError):
            return error
        return StorageError(f"codec {self.name} failed: {type(error).__name__}: {error}")
