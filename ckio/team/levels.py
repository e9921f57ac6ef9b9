"""A level of which every rank has its part: a checkpoint is there if every rank has its own."""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from ckio.actions import Buffers, Key, Layout
from ckio.backends.base import Backend
from ckio.errors import StorageError
from ckio.team import Team


class Agreed:
    """The same level on all ranks of a team, as one level that all of them see alike.

    Every call is made by all ranks, in the same order. What fails on one rank fails on all, with an
    error that names it; what the others have written for it is discarded. `keys` lists what every
    rank holds. Bytes that are returned are this rank's own.

    What some ranks hold and others do not, as a job left it that was killed, is discarded first.

    Parameters
    ----------
    backend : Backend
        This rank's part, which is closed with it.
    team : Team

    Raises
    ------
    StorageError
        On all ranks, where one cannot say what it holds.
    """

    def __init__(self, backend: Backend, team: Team, /) -> None:
        self._backend, self._team = backend, team
        self.durable = backend.durable
        held = team.each(lambda: set(backend.keys()))
        common = set[Key].intersection(*team.comm.gather(held))
        for key in sorted(held - common, key=str):
            with suppress(StorageError):  # it takes room, and is not listed
                backend.discard(key)

    def reserve(self, sizes: Mapping[int, int], /) -> None:
        self._team.each(lambda: self._backend.reserve(sizes))

    def write(self, key: Key, layout: Layout, data: Buffers, /) -> int:
        return self._team.each(
            lambda: self._backend.write(key, layout, data),
            undo=lambda _: self._backend.discard(key),
        )

    def layout(self, key: Key, /) -> Layout:
        return self._team.each(lambda: self._backend.layout(key))

    def read(self, key: Key, into: Buffers, /) -> int:
        return self._team.each(lambda: self._backend.read(key, into))

    def discard(self, key: Key, /) -> None:
        self._team.each(lambda: self._backend.discard(key))

    def keys(self) -> Iterable[Key]:
        held = self._team.each(lambda: set(self._backend.keys()))
        return sorted(set[Key].intersection(*self._team.comm.gather(held)), key=str)

    def close(self) -> None:
        self._backend.close()

    def __getattr__(self, name: str) -> Any:
        """What some levels offer beside, where this one does: see Backend."""
        if name not in ("prepare", "evict", "remove"):
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        offered = getattr(self._backend, name)
        if name == "remove":  # of its own files
            return offered
        return lambda *given: self._team.each(lambda: offered(*given))
