"""The interface of a storage level: reserve, write, read, discard, and list its keys."""

from collections.abc import Iterable, Mapping
from typing import Protocol, runtime_checkable

from ckio.actions import Buffers, Key, Layout


@runtime_checkable
class Backend(Protocol):
    """One open storage level. It knows keys and bytes, and nothing of schedules.

    A key is written once: writing it again before it is discarded raises StorageError. After any
    error the backend holds what it held before and can go on. It serves one thread at a time.

    Some offer more, and who can use it asks for it: `prepare(key, layout, count)` makes slots for
    so many checkpoints like this one, of which `reserve` knows the bytes alone; `evict()` drops its
    files from the page cache; `remove()` closes it and deletes its files. Of the class, without
    opening anything: `for_run(path, run)` is where the files of one run go, and `contents(path)`
    lists what lies there (see `contents`). One that has `for_run` and takes an option `run` is told
    the RunId that it is opened for: it keeps that in its files, and raises ForeignLevel, with
    nothing changed, where they are of another run.

    Of the files that killed runs left, the class may answer `levels_at(path)`: the levels at a path
    or below it; `drafts_at(path)`: the files half made there, each with the level that it was to
    become; `in_use(path)`: whether a live process has a level, where its lock is none that
    `files.is_locked` sees; and `remove_files(path)`: remove a level under the lock that opening it
    needs. The last raises OSError, BlockingIOError where it is in use, and StorageError where
    something is not certainly its own. Without it, the level is opened and its `remove()` called.

    Attributes
    ----------
    durable : bool
        Whether checkpoints outlive the process.
    """

    durable: bool

    def reserve(self, sizes: Mapping[int, int], /) -> None:
        """Allocate slots for `{bytes of a checkpoint: how many}`, once before a run.

        Touches them, too, so that the run does not; raises LevelFull now rather than later.
        """

    def write(self, key: Key, layout: Layout, data: Buffers, /) -> int:
        """Store `data`; returns the bytes that reached the level.

        Raises LevelFull where they do not fit: capacity reached, or no space left underneath.
        """

    def layout(self, key: Key, /) -> Layout:
        """Return the layout of a stored checkpoint; raises MissingCheckpoint."""

    def read(self, key: Key, into: Buffers, /) -> int:
        """Fill `into` exactly; returns the bytes that left the level.

        Raises MissingCheckpoint, CorruptCheckpoint, or StorageError where the sizes differ; `into`
        is then unspecified, which is safe because a model adopts it only when `load` ends well.
        """

    def discard(self, key: Key, /) -> None:
        """Remove a checkpoint; raises MissingCheckpoint."""

    def keys(self) -> Iterable[Key]:
        """Return the keys that are stored; one is listed only once it is complete."""

    def close(self) -> None:
        """Release the level; durable checkpoints stay.

        May be called twice; anything else asked of a closed level raises StorageError.
        """


@runtime_checkable
class Keeping(Protocol):
    """A level in memory that keeps a checkpoint in the memory in which the model has it.

    A checkpoint that it keeps counts as if it were written. The bytes of it must not change until
    it is discarded, and the memory is held for as long as anybody refers to it: so a model may go
    on with a checkpoint that it has read after the level has discarded it.
    """

    def slot(self, nbytes: int, /) -> memoryview:
        """Return memory for a checkpoint to come, which counts as nothing until it is kept.

        It is the level's again when nobody refers to it. Raises LevelFull where it has none.
        """

    def keep(self, key: Key, layout: Layout, data: Buffers, /) -> int:
        """Store `data` as `write` does, but without a copy: it is what is stored from now on."""

    def kept(self, key: Key, /) -> Buffers | None:
        """Return the bytes of a checkpoint that `keep` stored, verified; None for others.

        Raises MissingCheckpoint or CorruptCheckpoint.
        """
