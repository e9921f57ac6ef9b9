"""Checkpoints of pyrevolve's revolvers, which Devito uses, on ckio's levels."""

import weakref
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pyrevolve.storage import Storage

from ckio.actions import Key
from ckio.adapters.scratch import Scratch
from ckio.errors import BadInput, LevelFull, MissingCheckpoint, StorageError
from ckio.platform import Platform


class CkioStorage(Storage):  # type: ignore[misc]  # which ships no types
    """One level of a platform as a `Storage` of pyrevolve.

    A checkpoint is a list of arrays, each with its own shape and dtype. When a checkpoint is
    loaded, it is verified, and the given arrays are filled in place. The costs of a write and a
    read, `wd` and `rd`, are the level's measured costs in seconds.

    A revolver leaves its first checkpoints in its storages. They are discarded when another
    `MultiLevelRevolver` gets the storage, or when no object refers to the storage any more.

    Parameters
    ----------
    scratch : Scratch
        The open levels. Several storages may share them, and no storage closes them.
    level : int
        Number of the level.
    nbytes : int
        Bytes of one checkpoint, the sum of all its arrays: `Checkpoint.nbytes`.
    most : int
        Largest number of slots. A level without a limit has this number, for example the number of
        steps.

    Attributes
    ----------
    saves, loads : int
        Number of writes and reads of checkpoints.
    """

    def __init__(self, scratch: Scratch, level: int, nbytes: int, most: int, /) -> None:
        place = scratch.platform.levels[level]
        self.saves = self.loads = 0
        self._scratch, self._level = scratch, level
        self._keys: dict[int, Key] = {}
        self._end = weakref.finalize(self, _discard, scratch, level, self._keys)
        super().__init__(
            nbytes,
            place.slots(nbytes, most),
            np.uint8,
            None,
            wd=place.write(nbytes),
            rd=place.read(nbytes),
            name=place.name,
        )

    @property
    def profiler(self) -> Any:
        """The profiler of the revolver that uses this storage, which is empty at first."""
        return self._profiler

    @profiler.setter
    def profiler(self, profiler: Any) -> None:
        self._profiler = profiler
        self.clear()

    def clear(self) -> None:
        """Discard all checkpoints."""
        _discard(self._scratch, self._level, self._keys)

    def save(self, key: int, data_pointers: Sequence[NDArray[Any]]) -> None:
        """Store a checkpoint in slot `key`, and replace the previous one.

        Raises LevelFull if the level has no such slot, BadInput if the checkpoint has more than
        `nbytes` bytes, and the errors of the level.
        """
        if not 0 <= key < self.n_ckp:
            raise LevelFull(
                f"level {self.name!r} can store {self.n_ckp} checkpoints of {self.size_ckp} bytes;"
                f" it has no slot {key}: use a larger capacity, or fewer checkpoints; clear()"
                " discards those of an earlier gradient"
            )
        nbytes = sum(array.nbytes for array in data_pointers)
        if nbytes > self.size_ckp:
            raise BadInput(
                f"a checkpoint has {nbytes} bytes, but a slot has {self.size_ckp}; open the storage"
                " with the size of the largest checkpoint, Checkpoint.nbytes"
            )
        if key in self._keys:
            self._scratch.drop(self._level, self._keys.pop(key))
        self._keys[key] = self._scratch.put(self._level, _named(data_pointers))
        self.saves += 1

    def load(self, key: int, locations: Sequence[NDArray[Any]]) -> None:
        """Fill these arrays with the checkpoint in slot `key`, which remains stored.

        Raises MissingCheckpoint, CorruptCheckpoint, and BadInput if the shapes or dtypes differ
        from the stored ones.
        """
        if key not in self._keys:
            raise MissingCheckpoint(
                f"level {self.name!r} has no checkpoint in slot {key}; save one before"
            )
        arrays = _named(locations)
        whole = {
            name: array if array.flags.forc else np.empty(array.shape, array.dtype)
            for name, array in arrays.items()
        }
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


def storages(levels: Platform | Scratch, nbytes: int, steps: int, /) -> list[CkioStorage]:
    """Return a storage for each level that can store a checkpoint, nearest first.

    Parameters
    ----------
    levels : Platform or Scratch
        The levels of a platform are opened. Their files are removed when no object refers to these
        storages, or when the process ends. The files of a Scratch are removed when it is closed.
    nbytes : int
        Bytes of one checkpoint: `Checkpoint.nbytes`.
    steps : int
        Number of time steps of the run. No level has more slots than this.

    Raises
    ------
    BadInput
        No level can store a checkpoint.
    StorageError
        A level cannot be opened.
    """
    scratch = levels if isinstance(levels, Scratch) else Scratch(levels)
    numbers = range(len(scratch.platform.levels))
    every = [CkioStorage(scratch, number, nbytes, steps) for number in numbers]
    if not (useful := [storage for storage in every if storage.n_ckp]):
        raise BadInput(
            f"no level of the platform can store a checkpoint of {nbytes} bytes; give a level a"
            " larger capacity"
        )
    return useful


def _discard(scratch: Scratch, level: int, keys: dict[int, Key]) -> None:
    """Discard the checkpoints of a storage, unless its levels are closed."""
    while keys:
        _, key = keys.popitem()
        with suppress(StorageError):
            scratch.drop(level, key)


def _named(arrays: Sequence[NDArray[Any]]) -> dict[str, NDArray[Any]]:
    return {str(number): array for number, array in enumerate(arrays)}
