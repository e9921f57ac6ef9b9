"""Makespan over memory: the time that more memory saves and that less memory costs."""

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
    """The makespans of one chain with different amounts of memory for checkpoints.

    Attributes
    ----------
    points : sequence of (int, float)
        Bytes of memory, in increasing order, and the makespan in seconds.
    present : int
        The bytes of the machine.
    everything : (int, float)
        The bytes and the makespan if every tape is stored in memory.
    nothing : float
        The makespan if only x_0 is stored.
    """

    points: Sequence[tuple[int, float]]
    present: int
    everything: tuple[int, float]
    nothing: float

    def said(self) -> str:
        """Return one sentence on the makespan with twice and with half the memory.

        >>> MemoryCurve([(1, 40.0), (2, 30.0), (4, 24.0)], 2, (8, 20.0), 90.0).said()
        'Twice the memory would save 20%; half would cost 33%.'
        """
        seconds = dict(self.points)
        now = seconds.get(self.present)
        parts = []
        if now:
            more, less = seconds.get(2 * self.present), seconds.get(self.present // 2)
            if more is not None:
                saved = 1 - more / now
                parts.append(f"twice the memory would {_changed('save', saved)}")
            if less is not None:
                parts.append(f"half would {_changed('cost', less / now - 1)}")
        if not parts:
            nbytes, least = self.everything
            parts.append(f"storing everything takes {bytes_text(nbytes)}, {seconds_text(least)}")
        sentence = "; ".join(parts)
        return f"{sentence[0].upper()}{sentence[1:]}."


def _changed(verb: str, share: float) -> str:
    return f"{verb} {share:.0%}" if round(share, 2) > 0 else f"{verb} nothing"


def over_memory(curve: MemoryCurve, /) -> Picture:
    """Return the picture of a curve: memory across in powers of two, seconds upwards from 0."""
    nbytes, least = curve.everything
    low = min(curve.points[0][0], curve.present, nbytes)
    high = max(curve.points[-1][0], curve.present, nbytes)
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
    place = number(x(curve.present))
    parts.append(path(f"M{place} {TOP}V{BOTTOM}", css="end", title="the memory of this plan"))
    parts.append(
        text(x(curve.present) + 5, TOP + 8, f"this plan: {bytes_text(curve.present)}", "faint")
    )
    places = [(x(memory), y(seconds)) for memory, seconds in curve.points]
    line = "L".join(f"{number(a)} {number(b)}" for a, b in places)
    marks = "".join(
        drawn(BOX, a, b, 2.5, title=f"{bytes_text(memory)}: {seconds_text(seconds)}")
        for (a, b), (memory, seconds) in zip(places, curve.points, strict=True)
    )
    parts.append(f'<g class="line move ink">{path(f"M{line}")}{marks}</g>')
    parts.append(
        text(RIGHT, BOTTOM + 34, "memory for checkpoints (the first level)", "faint right")
    )
    return Picture(BOTTOM + FOOT, tuple(parts), f"Makespan over memory. {curve.said()}")


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
