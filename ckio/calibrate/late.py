"""The last checkpoints that a probe comes to: what codecs make of them is nearest to the rule.

A model often starts from rest, or from something smooth; its first states shrink as none later do.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress

from ckio.actions import Buffers, Key, Kind, Layout
from ckio.backends.base import Backend
from ckio.calibrate.probe import x
from ckio.calibrate.steps import MakeModel
from ckio.errors import LevelFull, UnsupportedKind
from ckio.model import Model


def late_checkpoints(make: MakeModel, steps: int, /) -> Iterator[tuple[Key, Layout, Buffers]]:
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


def worst_ratios(
    backends: Mapping[str, Backend], make: MakeModel, steps: int, /
) -> dict[str, float]:
    """Bytes that reach each level per byte of a late checkpoint, the worst of them."""
    worst = dict.fromkeys(backends, 0.0)
    for key, layout, data in late_checkpoints(make, steps):
        nbytes = sum(map(len, data))
        for name, backend in backends.items():
            with suppress(LevelFull):  # a tape may be more than the level can ever hold
                stored = backend.write(key, layout, data)
                backend.discard(key)
                worst[name] = max(worst[name], stored / nbytes if nbytes else 1.0)
    return worst


def _dumped(model: Model, key: Key) -> tuple[Key, Layout, Buffers]:
    return key, model.layout(key), model.dump(key)
