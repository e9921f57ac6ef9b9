"""Levels and models of which each rank has a part. A call succeeds on all ranks, or on none.

A checkpoint is stored if every rank has stored its part.
"""

import math
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Final, TypeVar

from ckio.actions import Buffers, Key, Layout
from ckio.backends.base import Backend
from ckio.backends.ram import Ram
from ckio.backends.wrapper import Wrapper
from ckio.errors import RunFailed, StorageError
from ckio.model import (
    Differentiable,
    ForwardingModel,
    Sizes,
    functional_of,
    optional,
    reached,
    sizes_of,
)
from ckio.parallel.group import RankGroup

_ROUNDING: Final = 1e-5
"""The relative difference of sums over the ranks in single precision, in another order."""


class AgreedLevel(Wrapper):
    """One level of many ranks. Each rank stores its part of a checkpoint on a backend of its own.

    The methods except `slot`, `close` and `remove` are collective calls: all ranks make each of
    them, in the same order. If a call fails on one rank, it fails on all, with an error that names
    this rank, and the other ranks discard the part that they have written. `keys` lists the
    checkpoints that every rank has. The number of bytes that a method returns is that of this rank.

    A job that was killed may leave a checkpoint on some ranks only. The constructor discards it.

    Parameters
    ----------
    backend : Backend
        The backend of this rank. `close` closes it.
    ranks : RankGroup
        The ranks of the job.

    Attributes
    ----------
    backend : Backend
        The backend of this rank.

    Raises
    ------
    StorageError
        On all ranks, if one rank cannot list its checkpoints.
    """

    def __init__(self, backend: Backend, ranks: RankGroup, /) -> None:
        super().__init__(backend)
        self._ranks = ranks
        keys = ranks.each(lambda: set(backend.keys()))
        common = set[Key].intersection(*ranks.gather(keys))
        for key in sorted(keys - common, key=str):
            with suppress(StorageError):  # then it only takes space, because it is not listed
                backend.discard(key)

    def reserve(self, sizes: Mapping[int, int], /) -> None:
        self._ranks.each(lambda: self.backend.reserve(sizes))

    def write(self, key: Key, layout: Layout, data: Buffers, /) -> int:
        return self._ranks.each(
            lambda: self.backend.write(key, layout, data),
            undo=lambda _: self.backend.discard(key),
        )

    def layout(self, key: Key, /) -> Layout:
        return self._ranks.each(lambda: self.backend.layout(key))

    def read(self, key: Key, into: Buffers, /) -> int:
        return self._ranks.each(lambda: self.backend.read(key, into))

    def discard(self, key: Key, /) -> None:
        self._ranks.each(lambda: self.backend.discard(key))

    def keys(self) -> Iterable[Key]:
        keys = self._ranks.each(lambda: set(self.backend.keys()))
        return sorted(set[Key].intersection(*self._ranks.gather(keys)), key=str)

    def prepare(self, key: Key, layout: Layout, count: int, /) -> None:
        self._ranks.each(lambda: self.backend.prepare(key, layout, count))

    def evict(self) -> None:
        self._ranks.each(self.backend.evict)

    def keep(self, key: Key, layout: Layout, data: Buffers, /) -> int:
        return self._ranks.each(
            lambda: self.backend.keep(key, layout, data),
            undo=lambda _: self.backend.discard(key),
        )

    def kept(self, key: Key, /) -> Buffers | None:
        return self._ranks.each(lambda: self.backend.kept(key))


class LargestWrites(AgreedLevel):
    """A level of many ranks. A write returns the bytes of the rank that stores the most."""

    def __init__(self, level: Backend, ranks: RankGroup, /) -> None:
        super().__init__(level.backend if isinstance(level, AgreedLevel) else level, ranks)

    def write(self, key: Key, layout: Layout, data: Buffers, /) -> int:
        return max(self._ranks.gather(super().write(key, layout, data)))


def in_background(level: Backend, /) -> Backend:
    """Return the level that a rank uses for transfers in the background of its computation."""
    match level:
        case AgreedLevel(backend=Ram() as memory):
            return memory  # transfers use its slots directly
        case AgreedLevel():
            return BackgroundLevel(level)
        case _:
            return level


class BackgroundLevel(Wrapper):
    """A level that each rank uses in the background of its computation, at times of its own.

    In the background the ranks have no common order of calls. Therefore only the beginning
    (`reserve` and `prepare`) is collective. If a later call fails on one rank, the run ends on that
    rank with RunFailed, and the other ranks learn of it at their next step. When the level is
    opened again, the ranks determine which checkpoints all of them have.
    """

    def __init__(self, level: AgreedLevel, /) -> None:
        super().__init__(level)
        self._own, self.keeps = level.backend, False

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

    @contextmanager
    def _final(self) -> Generator[None]:
        try:
            yield
        except StorageError as error:
            raise RunFailed(f"{error}; correct this, and resume the run") from error


T = TypeVar("T")


class AgreedModel(ForwardingModel):
    """The part of a model that one rank computes. Each step succeeds on all ranks, or on none.

    If a rank fails in the middle of a step, it cancels the step on all ranks, so that no rank waits
    for its halo. Ranks may have parts of different sizes; plans are made for the largest.

    Parameters
    ----------
    model : Differentiable
        The model of this rank.
    ranks : RankGroup
        The ranks of the job.

    Attributes
    ----------
    largest_sizes : Sizes
        Bytes of a checkpoint of each kind, on the rank where it is largest.
    unequal : bool
        Whether the sizes differ between ranks.
    estimated : bool
        Whether the sizes differ between ranks, or are not known in advance.
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
        self.estimated = self.unequal or optional(model).estimated

    def put_inside(self, wrap: Callable[[Any], Any], /) -> None:
        """Put the part of this rank within a wrapper, whose errors all ranks then raise."""
        self._model = wrap(self._model)

    def advance(self, begin: int, end: int, /) -> int:
        return self._stepped("advance", self._model.advance, begin, end)

    def record(self, begin: int, end: int, /) -> int:
        return self._stepped("record", self._model.record, begin, end)

    def reverse(self, begin: int, end: int, /) -> None:
        self._on_all(lambda: self._model.reverse(begin, end))

    @property
    def functional(self) -> float:
        """The J of the first rank; raises RunFailed if that of another is not the same."""
        every = self._ranks.gather(self._on_all(lambda: functional_of(self._model)))
        if any(map(math.isnan, every)):
            return math.nan
        if not all(math.isclose(other, every[0], rel_tol=_ROUNDING) for other in every):
            values = ", ".join(f"{value:g}" for value in every[:8])
            different = RunFailed(
                f"the ranks have different functionals: {values}; let `functional` return the sum"
                " over the ranks on each of them, for example sum(comm.gather(part))"
            )
            different.shared = True
            raise different
        return every[0]

    def _stepped(self, name: str, run: Callable[[int, int], int], begin: int, end: int) -> int:
        """Run steps on all ranks, and return the step that they have reached."""
        return self._on_all(lambda: reached(name, run(begin, end), begin, end), number=int)

    def _on_all(self, call: Callable[[], T], *, number: Callable[[T], int] | None = None) -> T:
        """Call on all ranks; if one rank fails, no other rank waits for its halo."""
        return self._ranks.each(call, number=number, calls_off=True)
