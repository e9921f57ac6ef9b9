"""How large tapes become: whoever asks is told by whoever writes one."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass
class Meter:
    """The largest tape so far.

    Attributes
    ----------
    nodes : int
        Operations on it.
    nbytes : int
        What they keep.
    """

    nodes: int = 0
    nbytes: int = 0


_METERS: ContextVar[tuple[Meter, ...]] = ContextVar("meters", default=())


@contextmanager
def metered() -> Iterator[Meter]:
    """Measure the tapes of all pullbacks within."""
    meter = Meter()
    token = _METERS.set((*_METERS.get(), meter))
    try:
        yield meter
    finally:
        _METERS.reset(token)


def taped(nodes: int, nbytes: int, /) -> None:
    """Say that a tape of so many nodes and bytes is complete."""
    for meter in _METERS.get():
        meter.nodes = max(meter.nodes, nodes)
        meter.nbytes = max(meter.nbytes, nbytes)
