"""How large tapes become, and how much is run: whoever asks is told by whoever does it."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass
class Meter:
    """The largest tape so far, and the way.

    Attributes
    ----------
    nodes : int
        Operations on it.
    nbytes : int
        What they keep.
    ticks : int
        Run forward in all, with a tape or without.
    """

    nodes: int = 0
    nbytes: int = 0
    ticks: int = 0


_METERS: ContextVar[tuple[Meter, ...]] = ContextVar("meters", default=())


@contextmanager
def metered() -> Iterator[Meter]:
    """Measure all that is run within."""
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


def passed(ticks: int, /) -> None:
    """Say that so many ticks have been run."""
    for meter in _METERS.get():
        meter.ticks += ticks
