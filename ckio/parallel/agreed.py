"""A level and a model of which every rank has its part: all ranks agree on each call.

A checkpoint is stored if every rank has stored its part.
"""

from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from ckio.actions import Buffers, Key, Layout
from ckio.backends.base import Backend, Keeping
from ckio.backends.ram import Ram
from ckio.errors import RunFailed, StorageError
from ckio.model import Differentiable, ForwardingModel, Sizes, reached, sizes_of
from ckio.parallel.group import RankGroup


class AgreedLevel:
    """One level of many ranks, each of which has its part.

    Every call is made by all ranks, in the same order. What fails on one rank fails on all, with an
    error that names it; what the others have written for it is discarded. `keys` lists what every
    rank holds. Bytes that are returned are this rank's own.

    What some ranks hold and others do not, as a job left it that was killed, is discarded first.

    Parameters
    ----------
    backend : Backend
        This rank's part, which is closed with it.
    ranks : RankGroup

    Attributes
    ----------
    own : Backend
        This rank's part.

    Raises
    ------
    StorageError
        On all ranks, where one cannot say what it holds.
    """

    def __init__(self, backend: Backend, ranks: RankGroup, /) -> None:
        self.own, self._ranks = backend, ranks
        self.durable = backend.durable
        keys = ranks.each(lambda: set(backend.keys()))
        common = set[Key].intersection(*ranks.gather(keys))
        for key in sorted(keys - common, key=str):
            with suppress(StorageError):  # it takes space, and is not listed
                backend.discard(key)
        if isinstance(backend, Keeping):
            self.slot, self.keep, self.kept = backend.slot, self._keep, self._kept
            self._keeping: Keeping = backend

    def reserve(self, sizes: Mapping[int, int], /) -> None:
        self._ranks.each(lambda: self.own.reserve(sizes))

    def write(self, key: Key, layout: Layout, data: Buffers, /) -> int:
        return self._ranks.each(
            lambda: self.own.write(key, layout, data),
            undo=lambda _: self.own.discard(key),
        )

    def layout(self, key: Key, /) -> Layout:
        return self._ranks.each(lambda: self.own.layout(key))

    def read(self, key: Key, into: Buffers, /) -> int:
        return self._ranks.each(lambda: self.own.read(key, into))

    def discard(self, key: Key, /) -> None:
        self._ranks.each(lambda: self.own.discard(key))

    def keys(self) -> Iterable[Key]:
        keys = self._ranks.each(lambda: set(self.own.keys()))
        return sorted(set[Key].intersection(*self._ranks.gather(keys)), key=str)

    def close(self) -> None:
        self.own.close()

    def _keep(self, key: Key, layout: Layout, data: Buffers, /) -> int:
        return self._ranks.each(
            lambda: self._keeping.keep(key, layout, data),
            undo=lambda _: self.own.discard(key),
        )

    def _kept(self, key: Key, /) -> Buffers | None:
        return self._ranks.each(lambda: self._keeping.kept(key))

    def __getattr__(self, name: str) -> Any:
        """Return an optional method of the level, where it has one: see Backend."""
        if name not in ("prepare", "evict", "remove"):
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        offered = getattr(self.own, name)
        if name == "remove":  # of its own files
            return offered
        return lambda *given: self._ranks.each(lambda: offered(*given))


class LargestWrites(AgreedLevel):
    """A level of many ranks whose writes return the bytes of the rank that stores most."""

    def __init__(self, level: Backend, ranks: RankGroup, /) -> None:
        super().__init__(level.own if isinstance(level, AgreedLevel) else level, ranks)

    def write(self, key: Key, layout: Layout, data: Buffers, /) -> int:
        return max(self._ranks.gather(super().write(key, layout, data)))


def in_background(level: Backend, /) -> Backend:
    """Return a level as a rank uses it in the background of its computation."""
    match level:
        case AgreedLevel(own=Ram() as memory):
            return memory  # which lends space to transfers
        case AgreedLevel():
            return BackgroundLevel(level)
        case _:
            return level


class BackgroundLevel:
    """A level that each rank uses in the background, at times of its own.

    There ranks have no order that they share, so they agree on nothing but the beginning. What
    fails on one rank ends the run there, as RunFailed, and the others hear of it at their next
    step; what all ranks hold is found out when the level is opened again.
    """

    def __init__(self, level: AgreedLevel, /) -> None:
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


T = TypeVar("T")


class AgreedModel(ForwardingModel):
    """A rank's part of a model: each call succeeds on all ranks or on none.

    A rank that fails in the middle of a step calls it off, so that none waits for its halo. Ranks
    may have parts of different size: what is planned is for the largest.

    Parameters
    ----------
    model : Differentiable
    ranks : RankGroup

    Attributes
    ----------
    largest_sizes : Sizes
        Bytes of a checkpoint of each kind on the rank where they are largest.
    unequal : bool
        Whether they are smaller on other ranks.
    estimated : bool
        Whether they are, or are not known beforehand.
    """

    def __init__(self, model: Differentiable, ranks: RankGroup, /) -> None:
        super().__init__(model)
        self._ranks = ranks
        mine = ranks.each(lambda: sizes_of(model))
        every = ranks.gather(mine)
        self.largest_sizes = Sizes(
            restart=max(sizes["restart"] for sizes in every),
            tape=max(sizes["tape"] for sizes in every),
            adjoint=max(sizes["adjoint"] for sizes in every),
        )
        self.unequal = any(sizes != mine for sizes in every)
        self.estimated = self.unequal or bool(getattr(model, "estimated", False))

    def advance(self, begin: int, end: int, /) -> int:
        return self._stepped("advance", self._model.advance, begin, end)

    def record(self, begin: int, end: int, /) -> int:
        return self._stepped("record", self._model.record, begin, end)

    def reverse(self, begin: int, end: int, /) -> None:
        self._moved(lambda: self._model.reverse(begin, end))

    @property
    def functional(self) -> float:
        return self._moved(lambda: self._model.functional)

    def _stepped(self, name: str, move: Callable[[int, int], int], begin: int, end: int) -> int:
        """The step that all ranks came to."""
        return self._moved(lambda: reached(name, move(begin, end), begin, end), number=int)

    def _moved(self, move: Callable[[], T], *, number: Callable[[T], int] | None = None) -> T:
        """Move on all ranks; one that fails leaves nobody waiting for its halo."""
        return self._ranks.each(move, number=number, calls_off=True)
