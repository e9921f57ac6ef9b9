"""Numbers and events in words, for tooltips and tables."""

import math
from typing import Final, assert_never

from ckio.actions import Advance, Discard, Read, Record, Reverse, Write
from ckio.columns import ADVANCE, DISCARD, READ, RECORD, REVERSE, WRITE
from ckio.timeline import Event

WORDS: Final = {
    ADVANCE: "advance",
    RECORD: "record",
    REVERSE: "reverse",
    WRITE: "write",
    READ: "read",
    DISCARD: "discard",
}
"""What the codes in column `op` are called."""


def tooltip(event: Event, /) -> str:
    """What happened, when, and how long it took."""
    when = f"{seconds_text(event.start)} to {seconds_text(event.stop)}"
    return f"{what(event)}\n{when}: {seconds_text(event.stop - event.start)}"


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


def time_unit(seconds: float, /) -> tuple[float, str]:
    """The unit (in seconds) in which a time is easy to read, and its sign."""
    for unit, sign in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if seconds >= unit:
            return unit, sign
    return (1e-9, "ns") if seconds else (1.0, "s")


def seconds_text(seconds: float, /) -> str:
    """Seconds with four digits and a unit: 1.25 s, 310 ms.

    >>> seconds_text(1.25), seconds_text(0.31), seconds_text(34567.8), seconds_text(0.0)
    ('1.25 s', '310 ms', '34568 s', '0 s')
    """
    unit, sign = time_unit(seconds)
    value = seconds / unit
    return f"{value:.0f} {sign}" if value >= 1000 else f"{value:.4g} {sign}"


def bytes_text(nbytes: int, /) -> str:
    """Bytes with three digits and a unit.

    >>> bytes_text(640), bytes_text(1536), bytes_text(1023 << 20)
    ('640 B', '1.5 KiB', '1023 MiB')
    """
    power = min(5, max(0, nbytes.bit_length() - 1) // 10)
    value = nbytes / 1024**power
    digits = 3 if value < 1000 else 4
    return f"{value:.{digits}g} {('B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB')[power]}"


def round_numbers(until: float, /, *, about: int) -> list[float]:
    """Multiples of 1, 2 or 5 times a power of ten from 0 to `until`, some `about` of them.

    >>> round_numbers(11.0, about=4)
    [0.0, 5.0, 10.0]
    """
    apart = until / about
    power = 10.0 ** math.floor(math.log10(apart))
    stride = next(nice * power for nice in (1, 2, 5, 10) if nice * power >= apart * 0.999)
    return [stride * k for k in range(math.floor(until / stride * (1 + 1e-9)) + 1)]
