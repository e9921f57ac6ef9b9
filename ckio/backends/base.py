"""The interface of a storage level: reserve, write, read, discard, and list its keys."""

from collections.abc import Iterable, Mapping
from typing import Protocol, runtime_checkable

from ckio.actions import Buffers, Key, Layout


@runtime_checkable
class Backend(Protocol):
    """One open storage level: it stores bytes under keys, and knows nothing of schedules.

    A key is written once: writing it again before it is discarded raises StorageError. After an
    error the level stores the same checkpoints as before the call, and it can still be used. Only
    one thread at a time may call it.

    The methods below are required. A backend may have more methods; the caller tests whether they
    exist before it uses them.

    Optional methods of an open level:

    * `prepare(key, layout, count)` makes slots for `count` checkpoints with this key's kind and
      this layout. It adds to `reserve`, which knows only the number of bytes.
    * `evict()` drops the files of the level from the page cache.
    * `remove()` closes the level and deletes its files.

    Optional methods of the class, which open no level:

    * `for_run(path, run)` returns the path for the files of one run.
    * `contents(path)` lists the checkpoints in the files at this path (see module `contents`).
    * `levels_at(path)` returns the levels at a path or below it.
    * `drafts_at(path)` returns the incomplete files that killed runs left there, each with the path
      of the level that it was meant to become.
    * `in_use(path)` returns whether a live process uses a level. It is needed only if
      `files.is_locked` does not see the lock of this level.
    * `remove_files(path)` removes a level while it has the lock that opening the level needs. It
      raises BlockingIOError if the level is in use, other OSErrors if a file cannot be deleted, and
      StorageError if some file is perhaps not part of the level. If the method is missing, the
      level is opened and its `remove()` is called.

    If a class has `for_run` and accepts an option `run`, it receives the RunId of the run for which
    the level is opened. It stores the RunId in its files. If the files are of another run, it
    raises ForeignLevel and changes nothing.

    Attributes
    ----------
    durable : bool
        Whether checkpoints outlive the process.
    """

    durable: bool

    def reserve(self, sizes: Mapping[int, int], /) -> None:
        """Allocate slots before a run; call it once.

        `sizes` gives the number of checkpoints for each size in bytes: `{bytes: number}`. The
        memory or disk space of the slots is also touched, so that the run does not spend this time.

        Raises LevelFull if the slots do not fit, so that this error comes before the run and not
        during it.
        """

    def write(self, key: Key, layout: Layout, data: Buffers, /) -> int:
        """Store a checkpoint and return the number of bytes that were written to the level.

        `layout` describes the fields of the checkpoint; `data` has one buffer for each field.

        Raises LevelFull if the checkpoint does not fit, because the capacity is reached or the disk
        or memory has no free space; raises StorageError if the key is already stored.
        """

    def layout(self, key: Key, /) -> Layout:
        """Return the layout of a stored checkpoint; raises MissingCheckpoint if there is none."""

    def read(self, key: Key, into: Buffers, /) -> int:
        """Copy a checkpoint into the buffers `into`; return the bytes read from the level.

        The buffers must have the sizes of the fields.

        Raises MissingCheckpoint if the key is not stored, CorruptCheckpoint if its bytes are
        damaged, and StorageError if the sizes differ. After an error the contents of `into` are
        unspecified. This is safe, because a model uses them only if its `load` succeeds.
        """

    def discard(self, key: Key, /) -> None:
        """Remove a checkpoint; raises MissingCheckpoint if it is not stored."""

    def keys(self) -> Iterable[Key]:
        """Return the keys of all stored checkpoints; incomplete checkpoints are not listed."""

    def close(self) -> None:
        """Release the level; the checkpoints of a durable level stay on the disk.

        It may be called twice. Every other call to a closed level raises StorageError.
        """


@runtime_checkable
class Keeping(Protocol):
    """A level in memory that can store a checkpoint without a copy, in the model's own buffers.

    Such a checkpoint counts against the capacity like one that was written. Its bytes must not
    change until it is discarded. The memory stays allocated as long as any object refers to it:
    therefore a model may continue to use a checkpoint that the level has already discarded.
    """

    def slot(self, nbytes: int, /) -> memoryview:
        """Return memory for a later checkpoint; it does not count until `keep` stores it.

        The memory returns to the level when no object refers to it any more. Raises LevelFull if
        the level has no memory for it.
        """

    def keep(self, key: Key, layout: Layout, data: Buffers, /) -> int:
        """Store a checkpoint as `write` does, but without a copy: the level refers to `data`."""

    def kept(self, key: Key, /) -> Buffers | None:
        """Return the verified buffers of a checkpoint that `keep` stored, or None for any other.

        Raises MissingCheckpoint if the key is not stored, CorruptCheckpoint if it is damaged.
        """
