"""The curves of a sweep, drawn by matplotlib: makespan over one axis, and makespan over memory.

The first axis is the horizontal axis of the upper panel. The second axis has one line for each of
its values. If there are more axes, each line shows the least makespan over them.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from io import BytesIO
from itertools import product
from typing import Any, Final

from ckio.errors import BadInput
from ckio.platform.readable import bytes_text, time_unit
from ckio.report.pictures.svg import COLOURS, round_bytes, round_numbers

_LINES: Final = (
    "#004f8a", "#d55e00", "#009e73", "#d0699f", "#d98e00", "#3d9bdb", "#7a4f00", "#7b7f86",
    "#22252a", "#00806c",
)  # fmt: skip
"""The colours of the lines. In grey, the markers distinguish them."""
_MARKERS: Final = "os^Dv<>Ph*"
MOST_LINES: Final = len(_LINES)
_MOST_LABELS: Final = 9
_DECADE: Final = 8
"""An axis is logarithmic if its largest number is more than this many times its least."""
_STYLE: Final[Any] = {
    "svg.hashsalt": "ckio",  # the same bytes from the same numbers
    "svg.fonttype": "none",
    "text.parse_math": False,  # a level may be called $1
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": COLOURS["grid"],
    "legend.frameon": False,
}


@dataclass(frozen=True, slots=True)
class CurveAxis:
    """One parameter that varies: the labels of its values, and their numbers if it has an order.

    The number of a value without a limit is None. `said` returns the label of any number on the
    axis. `base` is the ratio of two units: 1024 for bytes, otherwise 1000.
    """

    name: str
    labels: tuple[str, ...]
    numbers: tuple[float | None, ...] | None = None
    said: Callable[[float], str] = "{:g}".format
    base: int = 1000

    def ticks(self, *, is_log: bool) -> list[tuple[float, str]]:
        """Return the places of labels, and the labels.

        Labels are at the values, if these are few and round. Otherwise they are at 1, 2 and 5 times
        powers of ten, in the units of the axis.

        >>> CurveAxis("ram.slots", ("2", "4"), (2, 4)).ticks(is_log=False)
        [(2, '2'), (4, '4')]
        >>> CurveAxis("steps", ("17.31", "96.42"), (17.31, 96.42)).ticks(is_log=True)
        [(20.0, '20'), (50.0, '50')]
        """
        known = [number for number in self.numbers or () if number is not None]
        if len(known) <= _MOST_LABELS and all(_is_round(number, self.base) for number in known):
            return [(number, self.said(number)) for number in known]
        low, high = min(known), max(known)
        round_ones = (
            _round_in_logarithms(low, high, self.base)
            if is_log
            else [tick for tick in round_numbers(high, about=6) if low <= tick]
        )
        return [(tick, self.said(tick)) for tick in round_ones or (low, high)]


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """The makespan of one point, its bytes of memory if known, and if it is on the Pareto front."""

    makespan: float
    memory: int | None
    best: bool


def check_curves(suffix: str, /) -> None:
    """Raise BadInput if no file with this suffix can be drawn."""
    if suffix not in (".svg", ".png"):
        raise BadInput(f"{suffix or 'no suffix'}: pictures are written as .svg and .png")
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise BadInput("curves need matplotlib; pip install 'ckio[plot]'") from None


def check_axes(axes: Sequence[CurveAxis], /) -> None:
    """Raise BadInput if the second axis has more than `MOST_LINES` values."""
    if len(axes) > 1 and len(axes[1].labels) > MOST_LINES:
        raise BadInput(
            f"axis {axes[1].name} has {len(axes[1].labels)} values; a picture has {MOST_LINES}"
            " lines at the most; make an axis with fewer values the second one"
        )


def draw_curves(
    axes: Sequence[CurveAxis],
    points: Sequence[CurvePoint | None],
    /,
    *,
    memory: str,
    makespan: str = "makespan",
    suffix: str = ".svg",
) -> bytes:
    """Return both panels as the bytes of one file.

    Parameters
    ----------
    points : sequence of CurvePoint or None
        One point for each combination of values; the last axis varies fastest. None means that
        there is no schedule.
    memory : str
        The name of the level whose bytes are on the axis of the lower panel.
    makespan : str
        The label of the seconds.
    suffix : str
        ".svg" or ".png".

    Raises BadInput for more than `MOST_LINES` lines, if no point has a schedule, and if matplotlib
    is not installed.
    """
    check_curves(suffix)
    check_axes(axes)
    known = [point.makespan for point in points if point is not None]
    if not known:
        raise BadInput("there is nothing to draw: no point has a schedule")
    import matplotlib as mpl
    from matplotlib.figure import Figure

    unit, sign = time_unit(max(known))
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(9, 7.5), layout="constrained")
        upper, lower = figure.subplots(2)
        _draw_makespans(upper, axes, points, unit)
        _draw_memories(lower, points, unit)
        for panel in (upper, lower):
            panel.set_ylabel(f"{makespan} ({sign})")
        lower.set_xlabel(f"peak bytes of checkpoints on {memory}")
        file = BytesIO()
        form = suffix.removeprefix(".")
        metadata = {"Date": None} if form == "svg" else {}
        figure.savefig(file, format=form, dpi=150, metadata=metadata)
    return file.getvalue()


def _draw_makespans(
    panel: Any, axes: Sequence[CurveAxis], points: Sequence[CurvePoint | None], unit: float
) -> None:
    across, lines = axes[0], axes[1] if len(axes) > 1 else CurveAxis("", ("",))
    least: dict[tuple[int, int], float] = {}
    for at, point in zip(product(*(range(len(it.labels)) for it in axes)), points, strict=True):
        if point is not None:
            spot = at[0], at[1] if len(at) > 1 else 0
            least[spot] = min(least.get(spot, point.makespan), point.makespan)
    places, is_log = _places(across)
    if across.numbers is None:
        ticks = list(zip(places, across.labels, strict=True))
    else:
        ticks = across.ticks(is_log=is_log) if set(across.numbers) != {None} else []
        ticks += [
            (place, label)
            for place, label, number in zip(places, across.labels, across.numbers, strict=True)
            if number is None
        ]
    order = sorted(range(len(places)), key=places.__getitem__)
    for number, label in enumerate(lines.labels):
        shown = [at for at in order if (at, number) in least]
        panel.plot(
            [places[at] for at in shown],
            [least[at, number] / unit for at in shown],
            marker=_MARKERS[number],
            linestyle="none" if across.numbers is None else "-",
            color=_LINES[number],
            label=label,
            gid=f"makespan-{number}",
        )
    ticks = ticks[:: -(-len(ticks) // _MOST_LABELS)]
    panel.set(xlabel=across.name, xscale="log" if is_log else "linear")
    panel.set_xticks([place for place, _ in ticks], [label for _, label in ticks])
    panel.set_xticks([], minor=True)
    if _is_wide(list(least.values())):
        panel.set_yscale("log")
    if len(axes) > 1:
        panel.legend(title=lines.name, fontsize=8)


def _places(axis: CurveAxis) -> tuple[list[float], bool]:
    """Return the place of each value, the one without a limit last, and if they are logarithms."""
    if axis.numbers is None:
        return list(map(float, range(len(axis.labels)))), False
    known = [number for number in axis.numbers if number is not None] or [1.0]
    low, high, is_log = min(known), max(known), _is_wide(known)
    beyond = high * (high / low) ** 0.2 if is_log else high + (0.2 * (high - low) or 1.0)
    return [beyond if number is None else number for number in axis.numbers], is_log


def _draw_memories(panel: Any, points: Sequence[CurvePoint | None], unit: float) -> None:
    """Draw a mark for each point, and a staircase through the points of the Pareto front."""
    known = {
        (point.memory, point.makespan / unit, point.best)
        for point in points
        if point is not None and point.memory is not None
    }
    if not known:
        panel.text(0.02, 0.9, "the memory of no point is known", transform=panel.transAxes)
        return
    best = sorted((bytes_, seconds) for bytes_, seconds, is_best in known if is_best)
    others = sorted((bytes_, seconds) for bytes_, seconds, is_best in known if not is_best)
    if others:
        panel.plot(
            *zip(*others, strict=True),
            ".",
            c=COLOURS["stored"],
            label="other points",
            gid="others",
        )
    named = {"label": "Pareto front", "gid": "front"}
    panel.step(*zip(*best, strict=True), "o-", where="post", c=_LINES[1], **named)
    sizes = [bytes_ for bytes_, _, _ in known if bytes_]
    if _is_wide([*sizes, 1.0] if len(sizes) < len(known) else sizes):
        panel.set_xscale("symlog", base=2, linthresh=min(sizes) / 2)  # the axis includes 0
    panel.xaxis.set_major_formatter(lambda size, _: bytes_text(round(size)))
    panel.legend(fontsize=8)


def _is_round(number: float, base: int) -> bool:
    """Return whether a number has at most three digits in one of its units.

    >>> _is_round(3 << 20, 1024), _is_round(1.4e9, 1000), _is_round(0.1 + 0.2, 1000)
    (True, True, True)
    >>> _is_round(1234567, 1024), _is_round(1448, 1000)
    (False, False)
    """
    if not number:
        return True
    value = abs(number) / base ** math.floor(math.log(abs(number) * (1 + 1e-9), base))
    digits = 10 ** (2 - math.floor(math.log10(value)))
    return math.isclose(value * digits, round(value * digits), rel_tol=1e-9)


def _round_in_logarithms(low: float, high: float, base: int) -> list[float]:
    """Return 1, 2 and 5 times powers of ten between two numbers, in units with ratio `base`."""
    if base == 1024:
        return list(map(float, round_bytes(low, high)))
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    every = [float(f"{nice}e{power}") for power in powers for nice in (1, 2, 5)]
    return [tick for tick in every if low <= tick <= high]


def _is_wide(numbers: Sequence[float]) -> bool:
    return min(numbers, default=0.0) > 0 and max(numbers) > _DECADE * min(numbers)
