"""What a storage level can do: reserve, write, read, discard, and list what it holds."""

from collections.abc import Iterable, Mapping
from typing import Protocol, runtime_checkable

from ckio.actions import Buffers, Key, Layout


@runtime_checkable
class Backend(Protocol):
    """One open storage level. It knows keys and bytes, and nothing of schedules.

    A key is written once: writing it again before it is discarded raises StorageError. After any
    error the backend holds what it held before and can go on. It serves one thread at a time.

    Some offer more, and who can use it asks for it: `prepare(key, layout, count)` makes room for so
    many checkpoints like this one, of which `reserve` knows the bytes alone; `evict()` drops its
    files from the page cache; `remove()` closes it and deletes its files. Of the class, without
    opening anything: `for_run(path, run)` is where the files of one run go, and `contents(path)`
    lists what lies there (see `contents`). One that has `for_run` and takes an option `run` is told
    the RunId that it is opened for: it keeps that in its files, and raises ForeignLevel, with
    nothing changed, where they are of another run.

    Of what killed runs left, the class may answer `levels_at(path)`: the levels at a path or below
    it; `drafts_at(path)`: what was half made there, with the level that it was to become;
    `in_use(path)`: whether a live process has a level, where its lock is none that `is_locked`
    (`locks`) sees; and `remove_files(path)`: remove a level under the lock that opening it needs.
    The last raises OSError, BlockingIOError where it is in use, and StorageError where something is
    not certainly its own. Without it, the level is opened and its `remove()` called.

    Attributes
    ----------
    durable : bool
        Whether checkpoints outlive the process.
    """

    durable: bool

    def reserve(self, sizes: Mapping[int, int], /) -> None:
        """Make room for `{bytes of a checkpoint: how many}`, once before a run.

        Allocates and touches, so that the run does not; raises LevelFull now rather than later.
        """

    def write(self, key: Key, layout: Layout, data: Buffers, /) -> int:
        """Store `data`; returns the bytes that reached the level.

        Raises LevelFull where they do not fit: capacity reached, or no space left underneath.
        """

    def layout(self, key: Key, /) -> Layout:
        """What the buffers of a stored checkpoint are; raises MissingCheckpoint."""

    def read(self, key: Key, into: Buffers, /) -> int:
        """Fill `into` exactly; returns the bytes that left the level.

        Raises MissingCheckpoint, CorruptCheckpoint, or StorageError where the sizes differ; `into`
        is then unspecified, which is safe because a model adopts it only when `load` ends well.
        """

    def discard(self, key: Key, /) -> None:
        """Remove a checkpoint; raises MissingCheckpoint."""

    def keys(self) -> Iterable[Key]:
        """The keys that are stored; one is listed only once it is complete."""

    def close(self) -> None:
        """Release the level; what is durable stays.

        May be called twice; anything else asked of a closed level raises StorageError.
        """


@runtime_checkable
class Keeping(Protocol):
    """A level in memory that keeps a checkpoint in the memory in which the model has it.

    What it keeps counts as if it were written. The bytes of it must not change until it is
    discarded, and the memory is held for as long as anybody refers to it: so a model may go on with
    what it has read after the level has discarded it.
    """

    def slot(self, nbytes: int, /) -> memoryview:
        """Memory for a checkpoint to come, which counts as nothing as long as it is not kept.

        It is the level's again when nobody refers to it. Raises LevelFull where there is none.
        """

    def keep(self, key: Key, layout: Layout, data: Buffers, /) -> int:
        """Store `data` as `write` does, but without a copy: it is what is stored from now on."""

    def kept(self, key: Key, /) -> Buffers | None:
        """The bytes of a checkpoint that `keep` stored, verified as `read` would; None for others.

        Raises MissingCheckpoint or CorruptCheckpoint.
        """
