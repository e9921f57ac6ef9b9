"""A level whose checkpoints are copied to another place, in case this one is lost.

The disk of a node is fast, and lost to the run if the next job is on another node. `Copied` writes
to the disk, and copies what has changed since the last copy to a shared directory: after a write,
if some minutes have passed, and at the end of the process. If the disk has no checkpoints when the
level is opened, those of the last copy are read back.

A copy is a level in a directory, with checksums. New checkpoints are written before old ones are
discarded there, so that a process which is killed while it copies leaves a copy that can be used.
"""

import logging
import time
from collections.abc import Callable
from contextlib import suppress

from ckio.actions import Buffers, Key, Kind, Layout, field_nbytes
from ckio.backends.base import Backend
from ckio.backends.wrapper import Wrapper
from ckio.errors import BadInput, CorruptCheckpoint, StorageError

log = logging.getLogger("ckio")


class Copied(Wrapper):
    """A durable level with copies of its checkpoints.

    Parameters
    ----------
    backend : Backend
        The level. It is closed or removed with this one, and so are the copies.
    copies : Backend
        The level for the copies, in a place that outlives that of `backend`.
    every : float
        Seconds from one copy to the next, if something was written. The transfer takes its time in
        the thread that writes: with overlap, that is not the thread of the steps.
    name : str
        What messages call the level.

    Raises
    ------
    BadInput
        If the checkpoints of `backend` are lost with its process in any case.
    StorageError
        If the copies cannot be read back.
    """

    def __init__(
        self,
        backend: Backend,
        copies: Backend,
        /,
        *,
        every: float,
        name: str = "level",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(backend)
        if not backend.durable:
            raise BadInput(f"{name}: only files can be copied; leave out copies")
        self._copies, self._every, self._name, self._clock = copies, every, name, clock
        self._last, self._is_closed, self._has_failed = clock(), False, False
        if not list(backend.keys()):
            _transfer(copies, backend)
            if count := len(list(backend.keys())):
                log.warning("%s: %d checkpoints were read back from their copies", name, count)

    def write(self, key: Key, layout: Layout, data: Buffers, /) -> int:
        nbytes = super().write(key, layout, data)
        if self._clock() - self._last >= self._every:
            self.copy()
        return nbytes

    def copy(self) -> None:
        """Make the copies equal to what is stored; if that is not possible, warn once."""
        try:
            _transfer(self.backend, self._copies)
            there = set(self.backend.keys())
            for key in set(self._copies.keys()) - there:
                self._copies.discard(key)
        except StorageError as error:
            if not self._has_failed:
                log.warning("%s: its checkpoints are not copied any more: %s", self._name, error)
            self._has_failed = True
        else:
            self._has_failed = False
        self._last = self._clock()

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self.copy()
        self._copies.close()
        super().close()

    def remove(self) -> None:
        self._is_closed = True
        super().remove()
        self._copies.remove()


def _newest_first(key: Key) -> tuple[bool, int]:
    """Return the order of copies: first the adjoint of the smallest step, then states in order.

    Without it a resumed run would reverse all steps again.
    """
    return key.kind is not Kind.ADJOINT, key.step


def _transfer(source: Backend, target: Backend) -> None:
    """Write the checkpoints of one level that another has not."""
    for key in sorted(set(source.keys()) - set(target.keys()), key=_newest_first):
        layout = source.layout(key)
        data = [memoryview(bytearray(field_nbytes(field))) for field in layout]
        with suppress(CorruptCheckpoint):  # a run that needs it says so
            source.read(key, data)
            target.write(key, layout, data)
