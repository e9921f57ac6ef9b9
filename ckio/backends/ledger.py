"""The ledger of a level: its keys, their layouts, and their bytes counted against the capacity.

The ledger does the bookkeeping that all levels share. Each level itself knows where its bytes are.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from ckio.actions import Buffers, Key, Layout
from ckio.backends.forms import Form, form_of
from ckio.errors import CorruptCheckpoint, LevelFull, MissingCheckpoint, StorageError

Place = TypeVar("Place")

_REMEMBERED = 64
"""Number of layouts that are recognised by identity; a run has one or two for each kind."""


class _ForkMark:
    """An object that a fork replaces, so that a fork is noticed without a system call."""

    mark = object()

    @classmethod
    def renew(cls) -> None:
        cls.mark = object()


os.register_at_fork(after_in_child=_ForkMark.renew)


@dataclass(slots=True)
class Entry(Generic[Place]):
    """A stored checkpoint: its form, its place, and the digest of its bytes (b"" if none).

    The place is an object of the level, for example a slot.
    """

    form: Form
    place: Place
    digest: bytes


class Ledger(Generic[Place]):
    """The checkpoints on a level.

    Attributes
    ----------
    name : str
        Name of the level in errors.
    capacity : int or None
        Maximum number of payload bytes; None means no limit.
    used : int
        Payload bytes of the stored checkpoints.
    damaged : list of str
        Descriptions of damaged parts of the level. A damaged part may have stored any key.
    """

    def __init__(self, name: str, capacity: int | None) -> None:
        self.name = name
        self.capacity = capacity
        self.used = 0
        self.damaged: list[str] = []
        self._owner: object | None = _ForkMark.mark
        self._entries: dict[Key, Entry[Place]] = {}
        self._forms: dict[int, Form] = {}

    def admit(self, key: Key, layout: Layout, data: Buffers, /) -> Form:
        """Return the form of a checkpoint that may be written; raises StorageError or LevelFull."""
        # The test of `check_open` is repeated here to save a call in every access.
        if self._owner is not _ForkMark.mark:
            self.check_open()
        if key in self._entries:
            raise StorageError(
                f"{self.name} holds {key} already; discard it before writing it again"
            )
        # A run uses the same few layout objects again and again: recognise them by identity.
        form = self._forms.get(id(layout)) or self._remember(layout)
        if not form.fits(data):
            raise StorageError(f"{self.name} cannot take {key}: {form.mismatch(data)}")
        if self.capacity is not None and self.used + form.nbytes > self.capacity:
            raise LevelFull(
                f"{self.name} has no space for {key}: it needs {form.nbytes} bytes, but only"
                f" {self.capacity - self.used} of {self.capacity} are free;"
                " discard a checkpoint first"
            )
        return form

    def enter(self, key: Key, entry: Entry[Place], /) -> None:
        """Enter a complete checkpoint."""
        self._entries[key] = entry
        self.used += entry.form.nbytes

    def find(self, key: Key, /) -> Entry[Place]:
        """Return the entry of a checkpoint.

        Raises MissingCheckpoint if it is not stored; CorruptCheckpoint if it is not stored but the
        level has a damaged part, which may have been this checkpoint.
        """
        if self._owner is not _ForkMark.mark:
            self.check_open()
        entry = self._entries.get(key)
        if entry is not None:
            return entry
        if self.damaged:
            raise CorruptCheckpoint(
                f"{self.name} holds no sound {key}, and a damaged part may have been it:"
                f" {'; '.join(self.damaged[:3])}{'; ...' if len(self.damaged) > 3 else ''}"
            )
        raise MissingCheckpoint(f"{self.name} holds no {key}; it holds {self._listed()}")

    def find_for(self, key: Key, into: Buffers, /, *, verify: bool) -> Entry[Place]:
        """Return the entry of a checkpoint for a read into `into`.

        Raises StorageError if the buffers do not have the sizes of its fields. With `verify`, also
        raises StorageError if it has no checksum, because a caller that asks for verified reads
        must not get unverified bytes.
        """
        entry = self.find(key)
        if verify and not entry.digest:
            raise StorageError(
                f"{self.name}: {key} was written without a checksum and cannot be verified;"
                " open the level with checksum=False to read it"
            )
        if not entry.form.fits(into):
            raise StorageError(f"{self.name} cannot give {key}: {entry.form.mismatch(into)}")
        return entry

    def strike(self, key: Key, /) -> None:
        """Remove the entry of a stored checkpoint."""
        self.used -= self._entries.pop(key).form.nbytes

    def restore(self, key: Key, entry: Entry[Place] | None, /) -> None:
        """Undo an interrupted `enter` or `strike`: set the entry (or None) from before it."""
        if entry is None:
            self._entries.pop(key, None)
        else:
            self._entries[key] = entry
        self.used = sum(entry.form.nbytes for entry in self._entries.values())

    def check_reservation(self, sizes: Mapping[int, int], /) -> None:
        """Raise LevelFull if a reservation `{bytes: number}` is larger than the capacity."""
        self.check_open()
        needed = sum(nbytes * count for nbytes, count in sizes.items())
        if self.capacity is not None and needed > self.capacity:
            raise LevelFull(
                f"{self.name} cannot reserve {needed} bytes; its capacity is {self.capacity}"
            )

    def keys(self) -> list[Key]:
        """Return the keys that are stored."""
        self.check_open()
        return list(self._entries)

    def check_open(self) -> None:
        """Raise StorageError unless the level is open and was opened by this process.

        A fork of that process shares its files and would change them without its knowledge.
        """
        if self._owner is _ForkMark.mark:
            return
        if self._owner is not None:
            raise StorageError(f"{self.name} belongs to the process that opened it, not to a fork")
        raise StorageError(f"{self.name} is closed; open it again")

    def close(self) -> None:
        """Forget all entries; every later call raises StorageError."""
        self._owner = None
        self._entries.clear()
        self._forms.clear()
        self.used = 0

    def _remember(self, layout: Layout) -> Form:
        if len(self._forms) >= _REMEMBERED:
            self._forms.clear()
        # `form_of` is cached and may return a form with an equal layout object. The form that is
        # remembered keeps this very object alive, so that its id stays valid.
        form = self._forms[id(layout)] = replace(form_of(layout), layout=layout)
        return form

    def _listed(self) -> str:
        keys = [str(key) for key in self._entries]
        return ", ".join(sorted(keys)[:6]) + (", ..." if len(keys) > 6 else "") or "nothing"
