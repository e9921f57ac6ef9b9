"""The last checkpoints that a probe comes to: what codecs make of them is nearest to the rule.

A model often starts from rest, or from something smooth; its first states shrink as none later do.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TypeAlias

import xxhash

from ckio.actions import Buffers, Key, Kind, Layout
from ckio.backends.base import Backend
from ckio.calibrate.probe import x
from ckio.calibrate.steps import MakeModel
from ckio.errors import LevelFull, UnsupportedKind
from ckio.model import Model

Checkpoint: TypeAlias = tuple[Key, Layout, Buffers]


def late_checkpoints(make: MakeModel, steps: int, /) -> Iterator[Checkpoint]:
    """Restart data and then, where the model has one, a tape: of the last of so many steps.

    Each is valid until the next is asked for.
    """
    model, last = make(), steps - 1
    if last:
        model.advance(0, last)
    yield _dumped(model, x(last))
    model.record(last, steps)
    with suppress(UnsupportedKind):
        yield _dumped(model, Key(Kind.TAPE, last))


def kept(checkpoints: Iterable[Checkpoint], /) -> list[Checkpoint]:
    """Copies, which stay valid."""
    return [
        (key, layout, [memoryview(bytearray(view)) for view in data])
        for key, layout, data in checkpoints
    ]


def worst_ratios(
    backends: Mapping[str, Backend], checkpoints: Iterable[Checkpoint], /
) -> dict[str, float]:
    """Bytes that reach each level per byte of a checkpoint, the worst of them."""
    worst = dict.fromkeys(backends, 0.0)
    for key, layout, data in checkpoints:
        nbytes = sum(map(len, data))
        for name, backend in backends.items():
            with suppress(LevelFull):  # a tape may be more than the level can ever hold
                stored = backend.write(key, layout, data)
                backend.discard(key)
                worst[name] = max(worst[name], stored / nbytes if nbytes else 1.0)
    return worst


def _dumped(model: Model, key: Key) -> Checkpoint:
    return key, model.layout(key), model.dump(key)


class Still:
    """A model that stays as it was at one checkpoint: what tries a level in no time of its own.

    It may be `estimated`: planned for more bytes, as the part of another rank has.
    """

    def __init__(self, checkpoint: Checkpoint, *, estimated: bool = False) -> None:
        _, self._layout, self._data = checkpoint
        self.estimated = estimated

    def layout(self, key: Key, /) -> Layout:
        del key
        return self._layout

    def advance(self, begin: int, end: int, /) -> int:
        del begin
        for view in self._data:  # all of it, so that the caches are as after a step
            xxhash.xxh3_64_intdigest(view)
        return end

    def record(self, begin: int, end: int, /) -> int:
        return self.advance(begin, end)

    def reverse(self, begin: int, end: int, /) -> None: ...

    def dump(self, key: Key, /) -> Buffers:
        del key
        return self._data

    @contextmanager
    def load(self, key: Key, layout: Layout, /) -> Iterator[Buffers]:
        del layout
        yield self.dump(key)
