"""A level of which every rank has its part: a checkpoint is there if every rank has its own."""

from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from ckio.actions import Buffers, Key, Layout
from ckio.backends.base import Backend, Keeping
from ckio.backends.ram import Ram
from ckio.errors import RunFailed, StorageError
from ckio.parallel.team import Team


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

    Attributes
    ----------
    own : Backend
        This rank's part.

    Raises
    ------
    StorageError
        On all ranks, where one cannot say what it holds.
    """

    def __init__(self, backend: Backend, team: Team, /) -> None:
        self.own, self._team = backend, team
        self.durable = backend.durable
        held = team.each(lambda: set(backend.keys()))
        common = set[Key].intersection(*team.gather(held))
        for key in sorted(held - common, key=str):
            with suppress(StorageError):  # it takes room, and is not listed
                backend.discard(key)
        if isinstance(backend, Keeping):
            self.slot, self.keep, self.kept = backend.slot, self._keep, self._kept
            self._keeping: Keeping = backend

    def reserve(self, sizes: Mapping[int, int], /) -> None:
        self._team.each(lambda: self.own.reserve(sizes))

    def write(self, key: Key, layout: Layout, data: Buffers, /) -> int:
        return self._team.each(
            lambda: self.own.write(key, layout, data),
            undo=lambda _: self.own.discard(key),
        )

    def layout(self, key: Key, /) -> Layout:
        return self._team.each(lambda: self.own.layout(key))

    def read(self, key: Key, into: Buffers, /) -> int:
        return self._team.each(lambda: self.own.read(key, into))

    def discard(self, key: Key, /) -> None:
        self._team.each(lambda: self.own.discard(key))

    def keys(self) -> Iterable[Key]:
        held = self._team.each(lambda: set(self.own.keys()))
        return sorted(set[Key].intersection(*self._team.gather(held)), key=str)

    def close(self) -> None:
        self.own.close()

    def _keep(self, key: Key, layout: Layout, data: Buffers, /) -> int:
        return self._team.each(
            lambda: self._keeping.keep(key, layout, data),
            undo=lambda _: self.own.discard(key),
        )

    def _kept(self, key: Key, /) -> Buffers | None:
        return self._team.each(lambda: self._keeping.kept(key))

    def __getattr__(self, name: str) -> Any:
        """What some levels offer beside, where this one does: see Backend."""
        if name not in ("prepare", "evict", "remove"):
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        offered = getattr(self.own, name)
        if name == "remove":  # of its own files
            return offered
        return lambda *given: self._team.each(lambda: offered(*given))


class Widest(Agreed):
    """The same, for those who measure: what is written takes what it does where it takes most."""

    def __init__(self, level: Backend, team: Team, /) -> None:
        super().__init__(level.own if isinstance(level, Agreed) else level, team)

    def write(self, key: Key, layout: Layout, data: Buffers, /) -> int:
        return max(self._team.gather(super().write(key, layout, data)))


def behind(level: Backend, /) -> Backend:
    """What a rank reaches a level by that goes on behind its own computation."""
    match level:
        case Agreed(own=Ram() as memory):
            return memory  # which lends room to what is on its way
        case Agreed():
            return Behind(level)
        case _:
            return level


class Behind:
    """A level that each rank reaches behind its own computation, when it comes to it.

    There ranks have no order that they share, so they agree on nothing but the beginning. What
    fails on one rank ends the run there, as RunFailed, and the others hear of it at their next
    step; what all ranks hold is found out when the level is opened again.
    """

    def __init__(self, level: Agreed, /) -> None:
        self._level, self._own = level, level.own
        self.durable, self.lossless = level.durable, getattr(level.own, "lossless", True)
        self.reserve, self.close = level.reserve, level.close

    def write(self, key: Key, layout: Layout, data: Buffers, /) -> int:
        with self._final():
            return self._own.write(key, layout, data)

    def layout(self, key: Key, /) -> Layout:
        with self._final():
            return self._own.layout(key)

    def read(self, key: Key, into: Buffers, /) -> int:
        with self._final():
            return self._own.read(key, into)

    def discard(self, key: Key, /) -> None:
        with self._final():
            self._own.discard(key)

    def keys(self) -> Iterable[Key]:
        with self._final():
            return list(self._own.keys())

    def __getattr__(self, name: str) -> Any:
        if name != "prepare":
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        return self._level.prepare

    @contextmanager
    def _final(self) -> Generator[None]:
        try:
            yield
        except StorageError as error:
            raise RunFailed(f"{error}; resume the run when that is mended") from error
