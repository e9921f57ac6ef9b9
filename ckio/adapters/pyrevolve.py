"""Checkpoints of pyrevolve's revolvers, and so of Devito's, on ckio's levels."""

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

    A checkpoint is any list of arrays, each with its own shape and dtype; they are filled in place,
    and checked, when it is loaded. It costs what the level's measured prices say, in seconds.

    Parameters
    ----------
    scratch : Scratch
        The open levels, which several storages may share; whoever opened it closes it.
    level : int
        Which one.
    nbytes : int
        Bytes of one checkpoint, all its arrays together: `Checkpoint.nbytes`.
    most : int
        How many checkpoints to plan with at most: the steps of the run do for a level that never
        fills.
    profiler : Profiler, optional
        A revolver gives its own.

    Attributes
    ----------
    saves, loads : int
        How often a checkpoint was written and read.
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
        """Store a checkpoint in slot `key`, in place of what is there.

        Raises LevelFull for a slot that the level does not have, BadInput for more bytes than were
        announced, and what the level raises.
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
        """Fill these arrays with the checkpoint in slot `key`; it stays there.

        Raises MissingCheckpoint, CorruptCheckpoint, and BadInput where they are not like those that
        were stored.
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

        Theirs make an error and let it go: the checkpoint is lost, and the gradient is wrong.
        """
        self.save(len(self._keys), data_pointers)

    def peek(self, locations: Sequence[NDArray[Any]]) -> None:
        """Load the checkpoint on top of the stack; raises MissingCheckpoint where there is none."""
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
        A platform is opened; its files go once none of these storages is used any more, or the
        process ends. Those of a Scratch go when it is closed.
    nbytes : int
        Bytes of one checkpoint: `Checkpoint.nbytes`.
    steps : int
        Of the run: no more checkpoints are planned with.

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
