"""Numbers and events in words, for tooltips and tables."""

import math
from collections.abc import Sequence
from typing import Final, assert_never

import numpy as np
from numpy.typing import NDArray

from ckio.actions import Advance, Discard, Read, Record, Reverse, Write
from ckio.actions.columns import ADVANCE, DISCARD, READ, RECORD, REVERSE, WRITE
from ckio.platform.chain import Chain
from ckio.platform.readable import bytes_text, seconds_text
from ckio.schedule.occupancy import Lifetimes
from ckio.schedule.timeline import Event

__all__ = [
    "WORDS",
    "bytes_text",
    "round_numbers",
    "seconds_text",
    "stays_told",
    "stored_as",
    "together",
    "tooltip",
    "what",
]

WORDS: Final = {
    ADVANCE: "advance",
    RECORD: "record",
    REVERSE: "reverse",
    WRITE: "write",
    READ: "read",
    DISCARD: "discard",
}
"""What the codes in column `op` are called."""


MOST: Final = 8
"""Titles of one shape; of more, the first are given."""


def together(titles: Sequence[str], /) -> str:
    """The title of a shape that stands for several things.

    >>> together([f"x_{i}" for i in range(10)]).splitlines()[-2:]
    ['x_7', 'and 2 more']
    """
    more = len(titles) - MOST
    return "\n".join([*titles[:MOST], *([f"and {more} more"] if more > 0 else [])])


def stored_as(chain: Chain, count: int = 2, /) -> str:
    """Return the noun for stored items: checkpoints, or arrays where these are single variables.

    >>> chain = Chain(steps=2, advance=1.0, record=1.0, reverse=1.0, restart=1, tape=1, adjoint=1)
    >>> stored_as(chain, 1), stored_as(chain)
    ('checkpoint', 'checkpoints')
    """
    word = "checkpoint" if chain.variables is None else "array"
    return word if count == 1 else f"{word}s"


def tooltip(event: Event, /) -> str:
    """Return a tooltip: the action, its time, and its seconds."""
    when = f"{seconds_text(event.start)} to {seconds_text(event.stop)}"
    return f"{what(event)}\n{when}: {seconds_text(event.stop - event.start)}"


def stays_told(
    stays: Lifetimes, start: NDArray[np.float64], stop: NDArray[np.float64], level: str, /
) -> list[str]:
    """Return a tooltip of each stay: the checkpoint, its level, and its time there."""
    keys = [stays.named.key(row) for row in stays.named.rows()]
    return [
        f"{key} on {level}\n{seconds_text(begin)} to {seconds_text(end)}"
        for key, begin, end in zip(keys, start.tolist(), stop.tolist(), strict=True)
    ]


def what(event: Event, /) -> str:
    """One action in words."""
    match event.action:
        case Advance(begin, end) | Record(begin, end) | Reverse(begin, end):
            steps = f"step {begin}" if end == begin + 1 else f"steps {begin} to {end - 1}"
            return f"{type(event.action).__name__.lower()} {steps}"
        case Write(key, _) | Read(key, _) | Discard(key, _):
            size = f", {bytes_text(event.nbytes)}" if event.nbytes else ""
            return f"{type(event.action).__name__.lower()} {key}{size}"
        case _:
            assert_never(event.action)


def round_numbers(until: float, /, *, about: int) -> list[float]:
    """Multiples of 1, 2 or 5 times a power of ten from 0 to `until`, some `about` of them.

    >>> round_numbers(11.0, about=4)
    [0.0, 5.0, 10.0]
    """
    apart = until / about
    power = 10.0 ** math.floor(math.log10(apart))
    stride = next(nice * power for nice in (1, 2, 5, 10) if nice * power >= apart * 0.999)
    return [stride * k for k in range(math.floor(until / stride * (1 + 1e-9)) + 1)]
