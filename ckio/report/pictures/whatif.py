"""The picture of a sweep: makespans over one axis, and below it memory against makespan.

The first axis goes across. The second has a line for each of its values; where there are more, each
line is the least over them.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from math import inf
from typing import Final

from ckio.errors import BadInput
from ckio.platform.readable import bytes_text, seconds_text, time_unit
from ckio.report.pictures.svg import (
    COLUMNS,
    LEFT,
    RIGHT,
    Picture,
    group,
    legend,
    number,
    path,
    rect,
    round_numbers,
    text,
)
from ckio.sim.sweep import Answer, Axis, Value

_TIMES: Final = ((86400, "d"), (3600, "h"), (60, "min"))


def value_text(axis: Axis, value: Value, /) -> str:
    """A value of an axis, with its unit."""
    if value is None or isinstance(value, str):
        return value or axis.endless
    match axis.knob.rpartition(".")[2]:
        case "capacity" | "working_memory" | "restart" | "tape" | "adjoint":
            return bytes_text(int(value))
        case "bandwidth":
            return _rate_text(int(value))
        case "latency" | "advance" | "record" | "reverse":
            return seconds_text(value)
        case "mtbf":
            return _time_text(value)
        case _:
            return str(value) if isinstance(value, int) else f"{value:.4g}"


def _rate_text(rate: int) -> str:
    """Bytes per second in the units in which drives are sold, powers of 1000."""
    power = min(4, (len(str(rate)) - 1) // 3)
    return f"{rate / 1000**power:.3g} {('B', 'kB', 'MB', 'GB', 'TB')[power]}/s"


def _time_text(seconds: float) -> str:
    """A long time in the unit in which it is easy to read, up to days."""
    for unit, sign in _TIMES:
        if seconds >= unit:
            return f"{seconds / unit:.4g} {sign}"
    return seconds_text(seconds)


HIGH: Final = 260
"""Of each of the two panels."""
_TOP: Final = 44
_BELOW: Final = 84
"""Room for labels between the panels."""
_COLOURS: Final = (
    "reverse", "write", "read", "level0", "record", "advance", "level2", "discard", "level3",
    "level1",
)  # fmt: skip
DRAWN: Final = len(_COLOURS)
"""The most lines."""
_DECADE: Final = 8
"""A range this many times its least number is drawn in logarithms."""
_LETTERS: Final = 132
"""As many fit into the row of a legend."""


@dataclass(frozen=True, slots=True)
class _ColorScale:
    """Numbers from `low` to `high` along `length` units, evenly or by their logarithms."""

    low: float
    high: float
    length: float
    logarithmic: bool = False

    @staticmethod
    def over(numbers: Sequence[float], length: float) -> "_ColorScale":
        """One that shows all of these."""
        low, high = min(numbers), max(numbers)
        if low > 0 and high > _DECADE * low:
            return _ColorScale(low, high, length, True)
        return _ColorScale(low, high if high > low else low + (abs(low) or 1.0), length)

    def at(self, value: float) -> float:
        """How far along a number is."""
        bend: Callable[[float], float] = math.log if self.logarithmic else float
        low = bend(self.low)
        return self.length * (bend(value) - low) / (bend(self.high) - low)

    def ticks(self, unit: float = 1.0) -> list[float]:
        """Some round multiples of the unit."""
        if self.logarithmic:
            powers = range(
                math.floor(math.log10(self.low / unit)), math.ceil(math.log10(self.high / unit)) + 1
            )
            few = self.high < 100 * self.low
            ticks = [
                m * 10.0**power * unit for power in powers for m in ((1, 2, 5) if few else (1,))
            ]
        else:
            apart = round_numbers((self.high - self.low) / unit, about=6)[1] * unit
            ticks = [apart * k for k in range(math.ceil(self.high / apart) + 1)]
        return [tick for tick in ticks if self.low <= tick <= self.high]


def draw(
    axes: Sequence[Axis], answers: Sequence[Answer], front: Sequence[bool], memory: str, /
) -> str:
    """Both panels, as the text of one SVG file.

    Parameters
    ----------
    answers : sequence of Answer
        Of all points, the last axis fastest.
    front : sequence of bool
        Which of them are on the Pareto front.
    memory : str
        The level whose bytes are the memory.

    Raises BadInput where there is nothing to draw, and for more than `DRAWN` lines.
    """
    if not any(not answer.reason for answer in answers):
        raise BadInput(f"there is nothing to draw: {answers[0].reason}")
    check(axes)
    return Picture(
        2 * (_TOP + HIGH) + _BELOW + 50,
        (
            *_makespans(axes, _lines(axes, answers), _TOP, name=_name(answers)),
            *_memories(answers, front, memory, 2 * _TOP + HIGH + _BELOW),
        ),
        f"What {' and '.join(axis.name for axis in axes)} do to the makespan",
    ).file()


def _name(answers: Sequence[Answer]) -> str:
    mean = any(answer.error for answer in answers)
    return f"{'expected ' * mean}makespan (not from 0)"


def check(axes: Sequence[Axis], /) -> None:
    """Raise BadInput where the second axis has more values than a picture has lines."""
    if len(axes) > 1 and len(axes[1].values) > DRAWN:
        raise BadInput(
            f"axis {axes[1].name} has {len(axes[1].values)} values; a picture has {DRAWN} lines at"
            " the most: give a shorter axis second"
        )


def _lines(axes: Sequence[Axis], answers: Sequence[Answer]) -> list[list[float]]:
    """For each value of the second axis, the least makespan at each value of the first."""
    lines = [[inf] * len(axes[0].values) for _ in (axes[1].values if len(axes) > 1 else (None,))]
    places = product(*(range(len(axis.values)) for axis in axes))
    for place, answer in zip(places, answers, strict=True):
        if not answer.reason:
            line = lines[place[1] if len(place) > 1 else 0]
            line[place[0]] = min(line[place[0]], answer.makespan)
    return lines


def _makespans(
    axes: Sequence[Axis], lines: Sequence[Sequence[float]], top: float, *, name: str
) -> list[str]:
    across, bottom = _across(axes[0]), top + HIGH
    known = [seconds for line in lines for seconds in line if seconds < inf]
    up = _ColorScale.over(known, HIGH - 16)
    parts = [
        rect(LEFT, top, COLUMNS, HIGH, css="lane"),
        text(0, top - 26, name, "name"),
    ]
    if len(axes) > 1:
        parts += _legend(axes[1], top - 10)
    parts += [*_seconds_up(up, bottom), *_values_across(axes[0], across, top, bottom)]
    for at, line in enumerate(lines):
        places = [
            (x, bottom - 8 - up.at(seconds), value, seconds)
            for x, value, seconds in zip(across, axes[0].values, line, strict=True)
            if seconds < inf
        ]
        if axes[0].is_ordered:
            places.sort(key=lambda place: place[0])
            stroke = "L".join(f"{number(x)} {number(y)}" for x, y, *_ in places)
            d = f"M{stroke}" if len(places) > 1 else ""
            parts.append(group(f"line {_COLOURS[at]}", [path(d)]))
        label = (
            "" if len(axes) == 1 else f"{axes[1].name} {value_text(axes[1], axes[1].values[at])}\n"
        )
        marks = [
            _mark(x, y, 3, f"{label}{axes[0].name} {value_text(axes[0], value)}: {seconds_text(s)}")
            for x, y, value, s in places
        ]
        parts.append(group(f"bar {_COLOURS[at]}", marks))
    return parts


def _across(axis: Axis) -> list[float]:
    """Where each value of the first axis is; words stand side by side, and so does `unlimited`."""
    numbers = [value for value in axis.values if isinstance(value, int | float)]
    if not axis.is_ordered or not numbers:
        count = len(axis.values)
        return [LEFT + COLUMNS * (at + 0.5) / count for at in range(count)]
    scale = _ColorScale.over(numbers, COLUMNS - (120 if None in axis.values else 60))
    return [
        RIGHT - 30 if not isinstance(value, int | float) else LEFT + 30 + scale.at(value)
        for value in axis.values
    ]


def _values_across(axis: Axis, across: Sequence[float], top: float, bottom: float) -> list[str]:
    """Lines at the values, with as many labels as have room."""
    parts, free = [], -inf
    for x, value in sorted(zip(across, axis.values, strict=True), key=lambda pair: pair[0]):
        label = value_text(axis, value)
        if x - 3.2 * len(label) < free:
            continue
        free = x + 3.2 * len(label) + 8
        parts.append(path(f"M{number(x)} {number(top)}V{number(bottom)}", css="grid"))
        parts.append(text(x, bottom + 15, label, "faint middle"))
    return [*parts, text(RIGHT, bottom + 32, axis.name, "faint right")]


def _legend(axis: Axis, y: float) -> list[str]:
    """The lines' values, in one row or, where they are too long for it, shortened."""
    words = [value_text(axis, value) for value in axis.values]
    most = max(4, (_LETTERS - 6 * len(words)) // len(words))
    shown = [word if len(word) <= most else f"{word[: most - 1]}…" for word in words]
    return [text(0, y, axis.name, "faint"), legend(y, list(zip(_COLOURS, shown, strict=False)))]


def _seconds_up(scale: _ColorScale, bottom: float) -> list[str]:
    """Lines at round times with their labels at the left."""
    unit, sign = time_unit(scale.high)
    ticks = [(tick, bottom - 8 - scale.at(tick)) for tick in scale.ticks(unit)]
    grid = "".join(f"M{LEFT} {number(y)}H{RIGHT}" for _, y in ticks)
    labels = [
        text(LEFT - 8, y + 4, f"{tick / unit:.6g} {sign}", "faint right") for tick, y in ticks
    ]
    return [path(grid, css="grid"), *labels]


def _memories(
    answers: Sequence[Answer], front: Sequence[bool], memory: str, top: float
) -> list[str]:
    """A mark for each point, and a staircase through those that no other one beats."""
    bottom = top + HIGH
    known = [
        (answer.memory, answer.makespan, best)
        for answer, best in zip(answers, front, strict=True)
        if not answer.reason and answer.memory is not None
    ]
    name = f"makespan over memory: bytes of checkpoints on {memory}, at most at one time"
    parts = [
        rect(LEFT, top, COLUMNS, HIGH, css="lane"),
        text(0, top - 26, name, "name"),
        legend(top - 10, [("write", "the Pareto front"), ("discard", "other points")]),
    ]
    if not known:
        return [*parts, text(LEFT + 12, top + 24, "not known of any point", "faint")]
    # Nothing stored has no logarithm; it stands to the left of the least that is stored.
    nothing = min((room for room, *_ in known if room), default=2) / 2
    right = _ColorScale.over([room or nothing for room, *_ in known], COLUMNS - 60)
    up = _ColorScale.over([seconds for _, seconds, _ in known], HIGH - 16)
    places = {
        (room, seconds): (LEFT + 30 + right.at(room or nothing), bottom - 8 - up.at(seconds), best)
        for room, seconds, best in known
    }
    parts += _seconds_up(up, bottom)
    parts += _bytes_across(right, bottom, least=nothing)
    for css, chosen, radius in (("discard pale", False, 2.5), ("write", True, 4)):
        marks = [
            _mark(x, y, radius, f"{bytes_text(room)}: {seconds_text(seconds)}")
            for (room, seconds), (x, y, best) in places.items()
            if best is chosen
        ]
        parts.append(group(f"bar {css}", marks))
    stairs = sorted((x, y) for x, y, best in places.values() if best)
    d = f"M{number(stairs[0][0])} {number(stairs[0][1])}" + "".join(
        f"H{number(x)}V{number(y)}" for x, y in stairs[1:]
    )
    return [*parts, group("line write", [path(f"{d}H{RIGHT}")])]


def _bytes_across(scale: _ColorScale, bottom: float, *, least: float) -> list[str]:
    """Labels at powers of two; 0 where less than `least`, which stands for it, is shown."""
    first, last = math.floor(math.log2(scale.low)), math.ceil(math.log2(scale.high))
    if scale.logarithmic:
        ticks = [2.0**power for power in range(first, last + 1, max(1, (last - first) // 8))]
    else:
        ticks = [k * 2.0 ** (last - 3) for k in range(1, 9)]
    shown = [tick for tick in ticks if max(scale.low, least * 1.5) <= tick <= scale.high]
    labels = {tick: bytes_text(int(tick)) for tick in shown} or {
        scale.low: bytes_text(int(scale.low))
    }
    if scale.low == least:
        labels[least] = "0 B"
    return [
        text(LEFT + 30 + scale.at(tick), bottom + 15, label, "faint middle")
        for tick, label in labels.items()
    ]


def _mark(x: float, y: float, radius: float, title: str) -> str:
    side = 2 * radius
    return rect(x - radius, y - radius, side, side, title=title)
