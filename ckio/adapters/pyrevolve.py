"""Checkpoints of pyrevolve's revolvers, which Devito uses, on ckio's levels."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pyrevolve.storage import Storage

from ckio.actions import Key
from ckio.adapters.scratch import Scratch
from ckio.errors import BadInput, LevelFull, MissingCheckpoint
from ckio.platform import Platform


class CkioStorage(Storage):  # type: ignore[misc]  # which ships no types
    """One level of a platform as a `Storage` of pyrevolve.

    A checkpoint is a list of arrays, each with its own shape and dtype. They are filled in place
    and verified when it is loaded. Its costs are the level's measured prices in seconds.

    Parameters
    ----------
    scratch : Scratch
        The open levels, which several storages may share. This class does not close them.
    level : int
        Number of the level.
    nbytes : int
        Bytes of one checkpoint, the sum of all its arrays: `Checkpoint.nbytes`.
    most : int
        Largest number of slots, for example the number of steps for a level without a limit.
    profiler : Profiler, optional
        A revolver gives its own.

    Attributes
    ----------
    saves, loads : int
        Number of writes and reads of checkpoints.
    """

    def __init__(
        self, scratch: Scratch, level: int, nbytes: int, most: int, /, *, profiler: Any = None
    ) -> None:
        place = scratch.platform.levels[level]
        super().__init__(
            nbytes,
            place.slots(nbytes, most),
            np.uint8,
            profiler,
            wd=place.write(nbytes),
            rd=place.read(nbytes),
            name=place.name,
        )
        self.saves = self.loads = 0
        self._scratch, self._level = scratch, level
        self._keys: dict[int, Key] = {}

    def save(self, key: int, data_pointers: Sequence[NDArray[Any]]) -> None:
        """Store a checkpoint in slot `key`, and replace the previous one.

        Raises LevelFull for a slot that the level does not have, BadInput for more bytes than were
        announced, and the errors of the level.
        """
        if not 0 <= key < self.n_ckp:
            raise LevelFull(
                f"level {self.name!r} holds {self.n_ckp} checkpoints of {self.size_ckp} bytes;"
                f" there is no slot {key}"
            )
        nbytes = sum(array.nbytes for array in data_pointers)
        if nbytes > self.size_ckp:
            raise BadInput(f"a checkpoint has {nbytes} bytes; {self.size_ckp} were announced")
        with self._timed("save"):
            if key in self._keys:
                self._scratch.drop(self._level, self._keys.pop(key))
            self._keys[key] = self._scratch.put(self._level, _named(data_pointers))
        self.saves += 1

    def load(self, key: int, locations: Sequence[NDArray[Any]]) -> None:
        """Fill these arrays with the checkpoint in slot `key`, which remains stored.

        Raises MissingCheckpoint, CorruptCheckpoint, and BadInput if shapes or dtypes are not those
        that were stored.
        """
        if key not in self._keys:
            raise MissingCheckpoint(f"level {self.name!r} has no checkpoint in slot {key}")
        arrays = _named(locations)
        whole = {
            name: array if array.flags.forc else np.empty(array.shape, array.dtype)
            for name, array in arrays.items()
        }
        with self._timed("load"):
            self._scratch.get(self._level, self._keys[key], whole)
            for name, array in arrays.items():
                if whole[name] is not array:
                    array[...] = whole[name]
        self.loads += 1

    def push(self, data_pointers: Sequence[NDArray[Any]]) -> None:
        """Store a checkpoint on top of the stack; raises LevelFull.

        pyrevolve's own storages create an error but do not raise it. The checkpoint is then lost,
        and the gradient is wrong.
        """
        self.save(len(self._keys), data_pointers)

    def peek(self, locations: Sequence[NDArray[Any]]) -> None:
        """Load the checkpoint on top of the stack; raises MissingCheckpoint if it is empty."""
        self.load(len(self._keys) - 1, locations)

    def pop(self, locations: Sequence[NDArray[Any]]) -> None:
        """Load the checkpoint on top of the stack, and discard it."""
        self.peek(locations)
        self._scratch.drop(self._level, self._keys.pop(len(self._keys) - 1))

    def isFull(self) -> bool:  # noqa: N802  # their name
        return bool(len(self._keys) >= self.n_ckp)

    def isEmpty(self) -> bool:  # noqa: N802
        return not self._keys

    def _timed(self, action: str) -> AbstractContextManager[Any]:
        timer: AbstractContextManager[Any]
        timer = nullcontext() if self.profiler is None else self.profiler.get_timer("ckio", action)
        return timer


def storages(levels: Platform | Scratch, nbytes: int, steps: int, /) -> list[CkioStorage]:
    """Return a storage for each level that can hold a checkpoint, nearest first.

    Parameters
    ----------
    levels : Platform or Scratch
        The levels of a platform are opened. Their files are removed when none of these storages is
        used any more, or when the process ends. Files of a Scratch are removed when it is closed.
    nbytes : int
        Bytes of one checkpoint: `Checkpoint.nbytes`.
    steps : int
        Steps of the run, which limit the number of slots.

    Raises
    ------
    BadInput
        No level can hold a checkpoint.
    StorageError
        A level cannot be opened.
    """
    scratch = levels if isinstance(levels, Scratch) else Scratch(levels)
    numbers = range(len(scratch.platform.levels))
    every = [CkioStorage(scratch, number, nbytes, steps) for number in numbers]
    if not (useful := [storage for storage in every if storage.n_ckp]):
        raise BadInput(f"no level of the platform can hold a checkpoint of {nbytes} bytes")
    return useful


def _named(arrays: Sequence[NDArray[Any]]) -> dict[str, NDArray[Any]]:
    return {str(number): array for number, array in enumerate(arrays)}
