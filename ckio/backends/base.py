"""The interface of a storage level: reserve, write, read, discard, and list its keys."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ckio.actions import Buffers, Key, Layout
from ckio.backends.files import is_locked
from ckio.errors import BadInput, StorageError

if TYPE_CHECKING:
    from ckio.backends.contents import Damaged, Stored


class Backend(ABC):
    """One open storage level: it stores bytes under keys, and knows nothing of schedules.

    (`ckio.platform.Level` is the description of a level: its capacity and its costs.)

    A key is written once: writing it again before it is discarded raises StorageError. After an
    error the level stores the same checkpoints as before the call, and it can still be used. Only
    one thread at a time may call it.

    The methods `reserve`, `write`, `layout`, `read`, `discard`, `keys` and `close` are required. A
    backend with further abilities sets the attributes below, and overrides the other methods.

    If a class overrides `for_run` and accepts an option `run`, it receives the RunId of the run for
    which the level is opened. It stores the RunId in its files. If the files are of another run, it
    raises ForeignLevel and changes nothing.

    Attributes
    ----------
    durable : bool
        Whether checkpoints outlive the process.
    lossless : bool
        Whether the bytes that are read are bitwise the bytes that were written.
    cached : bool
        Whether its files may be in the page cache, from which `evict` drops them.
    keeps : bool
        Whether it can store a checkpoint without a copy, by the methods `slot`, `keep` and `kept`.
    space : object
        The memory in which it takes buffers, equal to the attribute `space` of a model that
        computes there; None is the memory of the host.
    """

    durable: bool = False
    lossless: bool = True
    cached: bool = False
    keeps: bool = False
    space: object = None

    @abstractmethod
    def reserve(self, sizes: Mapping[int, int], /) -> None:
        """Allocate slots before a run; call it once.

        `sizes` gives the number of checkpoints for each size in bytes: `{bytes: number}`. The
        memory or disk space of the slots is also touched, so that the run does not spend this time.

        Raises LevelFull if the slots do not fit, so that this error comes before the run and not
        during it.
        """

    @abstractmethod
    def write(self, key: Key, layout: Layout, data: Buffers, /) -> int:
        """Store a checkpoint and return the number of bytes that were written to the level.

        `layout` describes the fields of the checkpoint; `data` has one buffer for each field.

        Raises LevelFull if the checkpoint does not fit, because the capacity is reached or the disk
        or memory has no free space; raises StorageError if the key is already stored.
        """

    @abstractmethod
    def layout(self, key: Key, /) -> Layout:
        """Return the layout of a stored checkpoint; raises MissingCheckpoint if there is none."""

    @abstractmethod
    def read(self, key: Key, into: Buffers, /) -> int:
        """Copy a checkpoint into the buffers `into`; return the bytes read from the level.

        The buffers must have the sizes of the fields.

        Raises MissingCheckpoint if the key is not stored, CorruptCheckpoint if its bytes are
        damaged, and StorageError if the sizes differ. After an error the contents of `into` are
        unspecified. This is safe, because a model uses them only if its `load` succeeds.
        """

    @abstractmethod
    def discard(self, key: Key, /) -> None:
        """Remove a checkpoint; raises MissingCheckpoint if it is not stored."""

    @abstractmethod
    def keys(self) -> Iterable[Key]:
        """Return the keys of all stored checkpoints; incomplete checkpoints are not listed."""

    @abstractmethod
    def close(self) -> None:
        """Release the level; the checkpoints of a durable level stay on the disk.

        It may be called twice. Every other call to a closed level raises StorageError.
        """

    def prepare(self, key: Key, layout: Layout, count: int, /) -> None:  # noqa: B027
        """Make slots for `count` checkpoints with this key's kind and this layout.

        It adds to `reserve`, which knows only the number of bytes. Raises LevelFull.
        """

    def evict(self) -> None:  # noqa: B027
        """Drop the files of the level from the page cache, if it has any there (`cached`)."""

    def remove(self) -> None:
        """Close the level and delete its files, if it has any."""
        self.close()

    # Checkpoints without a copy, in the model's own buffers (`keeps`)
    #
    # Such a checkpoint counts against the capacity like one that was written. Its bytes must not
    # change until it is discarded. The memory stays allocated as long as any object refers to it:
    # therefore a model may continue to use a checkpoint that the level has already discarded.

    def slot(self, nbytes: int, /) -> memoryview:
        """Return memory for a later checkpoint; it does not count until `keep` stores it.

        The memory returns to the level when no object refers to it any more. Raises LevelFull if
        the level has no memory for it.
        """
        raise NotImplementedError

    def keep(self, key: Key, layout: Layout, data: Buffers, /) -> int:
        """Store a checkpoint as `write` does, but without a copy: the level refers to `data`."""
        raise NotImplementedError

    def kept(self, key: Key, /) -> Buffers | None:
        """Return the verified buffers of a checkpoint that `keep` stored, or None for any other.

        Raises MissingCheckpoint if the key is not stored, CorruptCheckpoint if it is damaged.
        """
        raise NotImplementedError

    # The files of levels, which are asked for without opening a level

    @classmethod
    def for_run(cls, path: Path, run: str, /) -> Path | None:
        """Return the path for the files of one run, or None if runs have no files of their own.

        `path` is the option `path` of the level.
        """
        return None

    @classmethod
    def contents(cls, path: Path, /) -> "list[Stored | Damaged]":
        """List the checkpoints in the files at this path (see module `contents`).

        No file is locked, created or changed. Raises BadInput if this is not possible.
        """
        raise BadInput(f"{path}: backend {cls.__name__!r} cannot list what it stores")

    @classmethod
    def levels_at(cls, path: Path, /) -> list[Path]:
        """Return the levels at a path or below it."""
        return [path]

    @classmethod
    def in_use(cls, path: Path, /) -> bool:
        """Return whether a live process uses a level; raises OSError."""
        return is_locked(path)

    @classmethod
    def remove_files(cls, path: Path, /) -> None:
        """Remove a level while it has the lock that opening the level needs.

        By default the level is opened and removed. Raises LevelInUse or BlockingIOError if the
        level is in use, other OSErrors if a file cannot be deleted, and StorageError if some file
        is perhaps not part of the level.
        """
        if cls.remove is Backend.remove:
            raise StorageError(
                f"{path} is left: backend {cls.__name__!r} cannot remove what it stored"
            )
        cls(path).remove()  # type: ignore[call-arg]  # a level with files has the option `path`
