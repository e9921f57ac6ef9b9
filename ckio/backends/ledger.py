"""The ledger of a level: its keys, their layouts, and their bytes counted against the capacity.

Pure bookkeeping with the rules that all levels share; each level knows where its bytes are.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from ckio.actions import Buffers, Key, Layout
from ckio.backends.forms import Form, form_of
from ckio.errors import CorruptCheckpoint, LevelFull, MissingCheckpoint, StorageError

Place = TypeVar("Place")

_REMEMBERED = 64
"""How many layouts are recognised by identity; a run has one or two for each kind."""


class _ForkMark:
    """A mark of this process that a fork replaces: to look at it takes no system call."""

    mark = object()

    @classmethod
    def renew(cls) -> None:
        cls.mark = object()


os.register_at_fork(after_in_child=_ForkMark.renew)


@dataclass(slots=True)
class Entry(Generic[Place]):
    """One stored checkpoint: its form, where it is, and the digest of its bytes (b"" if none)."""

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
        Payload bytes that it may hold; None never fills.
    used : int
        Payload bytes that it holds.
    damaged : list of str
        Parts of it that had been committed and are no longer sound; they may have been any key.
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
        if self._owner is not _ForkMark.mark:  # here, too: this is on the path of every access
            self.check_open()
        if key in self._entries:
            raise StorageError(
                f"{self.name} holds {key} already; discard it before writing it again"
            )
        # The buffers of a run come with the same few layout objects: recognise them by identity.
        form = self._forms.get(id(layout)) or self._remember(layout)
        if not form.fits(data):
            raise StorageError(f"{self.name} cannot take {key}: {form.mismatch(data)}")
        if self.capacity is not None and self.used + form.nbytes > self.capacity:
            raise LevelFull(
                f"{self.name} has no room for {key}: it needs {form.nbytes} bytes where"
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

        Raises MissingCheckpoint, or CorruptCheckpoint where something damaged may have been it.
        """
        if self._owner is not _ForkMark.mark:
            self.check_open()
        entry = self._entries.get(key)
        if entry is not None:
            return entry
        if self.damaged:
            raise CorruptCheckpoint(
                f"{self.name} holds no sound {key}, and what is damaged may have been it:"
                f" {'; '.join(self.damaged[:3])}{'; ...' if len(self.damaged) > 3 else ''}"
            )
        raise MissingCheckpoint(f"{self.name} holds no {key}; it holds {self._listed()}")

    def find_for(self, key: Key, into: Buffers, /, *, verify: bool) -> Entry[Place]:
        """Return the entry of a checkpoint; raises StorageError unless it fills `into` exactly.

        With `verify`, also if it has no checksum: bytes must not look verified that are not.
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
        """Forget a checkpoint that `find` found."""
        self.used -= self._entries.pop(key).form.nbytes

    def restore(self, key: Key, entry: Entry[Place] | None, /) -> None:
        """Restore the entry before an `enter` or a `strike` that was interrupted."""
        if entry is None:
            self._entries.pop(key, None)
        else:
            self._entries[key] = entry
        self.used = sum(entry.form.nbytes for entry in self._entries.values())

    def check_reservation(self, sizes: Mapping[int, int], /) -> None:
        """Raise LevelFull if `{bytes: how many}` is more than the capacity."""
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
        """Raise StorageError unless the level is open, and in the process that opened it.

        A fork of that process shares its files, and would write behind its back.
        """
        if self._owner is _ForkMark.mark:
            return
        if self._owner is not None:
            raise StorageError(f"{self.name} belongs to the process that opened it, not to a fork")
        raise StorageError(f"{self.name} is closed; open it again")

    def close(self) -> None:
        """Forget everything; nothing may be asked of it from now on."""
        self._owner = None
        self._entries.clear()
        self._forms.clear()
        self.used = 0

    def _remember(self, layout: Layout) -> Form:
        if len(self._forms) >= _REMEMBERED:
            self._forms.clear()
        # The form keeps a layout of its own, perhaps an equal one: remember only what stays alive.
        form = form_of(layout)
        if form.layout is layout:
            self._forms[id(layout)] = form
        return form

    def _listed(self) -> str:
        keys = [str(key) for key in self._entries]
        return ", ".join(sorted(keys)[:6]) + (", ..." if len(keys) > 6 else "") or "nothing"
