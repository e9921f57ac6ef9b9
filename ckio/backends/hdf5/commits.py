"""How an archive's checkpoints become valid, and stop being so.

When a commit begins, the payload is in its slot, and so are the entries of its views. Behind them
comes the row; who is killed leaves all of what one call writes within a page, or nothing of it.
Where a failing machine matters, too, or a row lies across two pages, it comes with a state that
still says that the slot is free; and then the state alone. Where the level syncs, there is a sync
before the state, and one behind it.
"""

import errno
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from ckio.backends.files import Files
from ckio.backends.hdf5.group import Group
from ckio.backends.hdf5.rows import FREE, STORED, Row
from ckio.backends.hdf5.start import PAGE

_STORED: Final = memoryview(STORED)
_FREE: Final = memoryview(FREE)


class Commits:
    """Commits to an archive.

    Parameters
    ----------
    files, fd
        The archive.
    free
        The free slots of each group; those of commits that failed come back to it.
    sync
        Whether it syncs.

    Attributes
    ----------
    number : int
        That of the last commit.
    """

    def __init__(
        self, files: Files, fd: int, free: Mapping[Group, list[int]], /, *, sync: bool
    ) -> None:
        self.number = 0
        self._files, self._fd, self._free, self._sync = files, fd, free, sync
        self._stuck: list[tuple[Group, int]] = []

    def commit(self, group: Group, row: Row, /) -> None:
        """Write a row behind its payload, and behind both the state that makes it valid."""
        data, at = memoryview(row.pack(group.seed)), group.row(row.slot)
        if self._sync or at // PAGE < (at + len(data) - 1) // PAGE:
            self._put(data[len(FREE) :], at + len(FREE))
            data = data[: len(FREE)]
        if self._sync:
            self._files.sync(self._fd)
        if not self._files.is_named(self._fd):
            raise OSError(errno.ESTALE, "its file was deleted")
        self._put_synced(data, at)

    def discard(self, group: Group, slot: int, /) -> None:
        """Make a row invalid; where that fails, `keep` it."""
        self.withdraw()
        self._put_state(group, slot, _FREE)

    def keep(self, group: Group, slot: int, /) -> None:
        """Make a row valid again, as it was before `discard`; now, if that is possible."""
        with suppress(OSError):
            self._put_state(group, slot, _STORED)

    def give_up(self, group: Group, slot: int, /) -> None:
        """Free a slot whose commit failed; now, if that is possible."""
        self._stuck.append((group, slot))
        with suppress(OSError):
            self.withdraw()

    def withdraw(self) -> None:
        """Free the slots whose commits failed, before anything else is done.

        A row that reached the disk all the same must not outlive the discard of its key.
        """
        while self._stuck:
            group, slot = self._stuck[-1]
            self._put_state(group, slot, _FREE)
            self._free[group].append(slot)
            self._stuck.pop()

    def _put_state(self, group: Group, slot: int, state: memoryview) -> None:
        self._put_synced(state, group.row(slot))

    def _put_synced(self, data: memoryview, at: int) -> None:
        self._put(data, at)
        if self._sync:
            self._files.sync(self._fd)

    def _put(self, data: memoryview, at: int) -> None:
        if self._files.pwritev(self._fd, (data,), at) != len(data):
            self._files.write(self._fd, (data,), at)
