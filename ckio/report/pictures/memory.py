"""Makespan over the capacity of a level: the time that more saves, and that less costs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import log2
from typing import Final

from ckio.platform.readable import bytes_text, seconds_text, time_unit
from ckio.report.pictures.svg import (
    BOX,
    LEFT,
    RIGHT,
    Picture,
    drawn,
    number,
    path,
    round_bytes,
    round_numbers,
    text,
)

TOP, BOTTOM, FOOT = 24.0, 264.0, 38.0
_LABEL: Final = 78
"""Width of the label of an amount of memory."""


@dataclass(frozen=True, slots=True)
class MemoryCurve:
    """The makespans of one chain with different amounts of memory, or capacities of a level.

    Attributes
    ----------
    points : sequence of (int, float)
        Bytes above 0, in increasing order, and the makespan in seconds.
    present : int or None
        The bytes of the machine; None without a limit.
    everything : (int, float)
        The bytes and the makespan if every tape is stored in memory.
    nothing : float
        The makespan if only x_0 is stored.
    what : str
        The name of the quantity.
    """

    points: Sequence[tuple[int, float]]
    present: int | None
    everything: tuple[int, float]
    nothing: float
    what: str = "memory"

    def changes(self) -> str:
        """Return one sentence on the makespan with twice and with half; "" if neither is known.

        >>> MemoryCurve([(1, 40.0), (2, 30.0), (4, 24.0)], 2, (8, 20.0), 90.0).changes()
        'Twice the memory would save 20%; half would cost 33%.'
        """
        seconds, present = dict(self.points), self.present or 0
        now, more, less = (seconds.get(it) for it in (present, 2 * present, present // 2))
        parts = []
        if now and more is not None:
            parts.append(f"twice the {self.what} would {_changed('save', 1 - more / now)}")
        if now and less is not None:
            parts.append(f"half would {_changed('cost', less / now - 1)}")
        sentence = "; ".join(parts)
        return f"{sentence[0].upper()}{sentence[1:]}." if parts else ""

    def text(self) -> str:
        """Return `changes`, or else what it takes to store everything."""
        nbytes, least = self.everything
        stored = f"Storing everything takes {bytes_text(nbytes)}, {seconds_text(least)}."
        return self.changes() or stored


def _changed(verb: str, share: float) -> str:
    return f"{verb} {share:.0%}" if round(share, 2) > 0 else f"{verb} nothing"


def over_memory(curve: MemoryCurve, /) -> Picture:
    """Return the picture of a curve: memory across in powers of two, seconds upwards from 0."""
    nbytes, least = curve.everything
    known = [*(it for it, _ in curve.points), *([curve.present] if curve.present else []), nbytes]
    low, high = min(known), max(known)
    most = max(seconds for _, seconds in curve.points)
    shown = curve.nothing <= 1.5 * most
    until = 1.08 * max(most, curve.nothing if shown else 0.0, least)

    def x(memory: float) -> float:
        return LEFT + 30 + (RIGHT - LEFT - 60) * log2(memory / low) / (log2(high / low) or 1.0)

    def y(seconds: float) -> float:
        return BOTTOM - (BOTTOM - TOP) * seconds / until

    unit, sign = time_unit(until)
    parts = [
        text(0, TOP + 12, "makespan", "name"),
        text(0, TOP + 28, f"predicted, {sign}", "faint"),
    ]
    for tick in round_numbers(until / unit, about=5):
        parts.append(path(f"M{LEFT} {number(y(tick * unit))}H{RIGHT}", css="grid"))
        parts.append(text(LEFT - 8, y(tick * unit) + 4, f"{tick:,.10g}", "faint right"))
    parts += _labels(round_bytes(low, high) or [curve.points[0][0], curve.points[-1][0]], x)
    stored = f"store everything: {bytes_text(nbytes)}, {seconds_text(least)}"
    parts += _limit(y(least), stored, below=True)  # the curve is above it
    if shown:
        parts += _limit(y(curve.nothing), f"recompute everything: {seconds_text(curve.nothing)}")
    if curve.present:
        place, now = x(curve.present), f"this platform: {bytes_text(curve.present)}"
        parts.append(path(f"M{number(place)} {TOP}V{BOTTOM}", css="end", title="this platform"))
        parts.append(text(place + 5, TOP + 8, now, "faint"))
    places = [(x(memory), y(seconds)) for memory, seconds in curve.points]
    line = "L".join(f"{number(a)} {number(b)}" for a, b in places)
    marks = "".join(
        drawn(BOX, a, b, 2.5, title=f"{bytes_text(memory)}: {seconds_text(seconds)}")
        for (a, b), (memory, seconds) in zip(places, curve.points, strict=True)
    )
    parts.append(f'<g class="line move ink">{path(f"M{line}")}{marks}</g>')
    parts.append(text(RIGHT, BOTTOM + 34, f"{curve.what} for checkpoints", "faint right"))
    return Picture(BOTTOM + FOOT, tuple(parts), f"Makespan over {curve.what}. {curve.text()}")


def _labels(memories: Sequence[int], x: Callable[[float], float]) -> list[str]:
    """Return labels of round amounts of memory that do not overlap."""
    parts, end = [], float(LEFT)
    for memory in memories:
        place = x(memory)
        parts.append(path(f"M{number(place)} {BOTTOM}v4", css="grid"))
        if place >= end:
            parts.append(text(place, BOTTOM + 17, bytes_text(memory), "faint middle"))
            end = place + _LABEL
    return parts


def _limit(y: float, words: str, *, below: bool = False) -> list[str]:
    line = path(f"M{LEFT} {number(y)}H{RIGHT}", css="limit")
    return [line, text(RIGHT, y + (13 if below else -5), words, "faint right")]
