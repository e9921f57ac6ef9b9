"""A level around another level, with which one changes some of its calls."""

from collections.abc import Iterable, Mapping

from ckio.actions import Buffers, Key, Layout
from ckio.backends.base import Backend


class Wrapper(Backend):
    """A level that passes each call on to the level underneath; a subclass changes some calls.

    It has the abilities of the level underneath.

    Attributes
    ----------
    backend : Backend
        The level underneath.
    """

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.durable, self.lossless = backend.durable, backend.lossless
        self.cached, self.keeps, self.space = backend.cached, backend.keeps, backend.space

    def reserve(self, sizes: Mapping[int, int], /) -> None:
        self.backend.reserve(sizes)

    def write(self, key: Key, layout: Layout, data: Buffers, /) -> int:
        return self.backend.write(key, layout, data)

    def layout(self, key: Key, /) -> Layout:
        return self.backend.layout(key)

    def read(self, key: Key, into: Buffers, /) -> int:
        return self.backend.read(key, into)

    def discard(self, key: Key, /) -> None:
        self.backend.discard(key)

    def keys(self) -> Iterable[Key]:
        return self.backend.keys()

    def close(self) -> None:
        self.backend.close()

    def prepare(self, key: Key, layout: Layout, count: int, /) -> None:
        self.backend.prepare(key, layout, count)

    def evict(self) -> None:
        self.backend.evict()

    def remove(self) -> None:
        self.backend.remove()

    def slot(self, nbytes: int, /) -> memoryview:
        return self.backend.slot(nbytes)

    def keep(self, key: Key, layout: Layout, data: Buffers, /) -> int:
        return self.backend.keep(key, layout, data)

    def kept(self, key: Key, /) -> Buffers | None:
        return self.backend.kept(key)


def unwrapped(level: Backend, /) -> Backend:
    """Return the level underneath all wrappers."""
    while isinstance(level, Wrapper):
        level = level.backend
    return level
