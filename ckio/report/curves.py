"""The curves of a sweep, by matplotlib: makespans over one axis, and over the memory they take.

The first axis goes across the upper panel. The second has a line for each of its values; where
there are more axes, each line is the least over them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from itertools import product
from typing import Any, Final

from ckio.errors import BadInput
from ckio.platform.readable import bytes_text, time_unit
from ckio.report.pictures.svg import COLOURS

_LINES: Final = (
    "reverse", "write", "read", "level0", "record", "advance", "level2", "discard", "level3",
    "level1",
)  # fmt: skip
"""The colours of the lines; their markers tell them apart in grey."""
_MARKERS: Final = "os^Dv<>Ph*"
MOST_LINES: Final = len(_LINES)
_MOST_LABELS: Final = 9
_DECADE: Final = 8
"""A range this many times its least number is drawn in logarithms."""
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
    """One thing that varies: the words for its values, and their numbers where it has an order.

    The number of a value without a limit is None.
    """

    name: str
    labels: tuple[str, ...]
    numbers: tuple[float | None, ...] | None = None


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """The makespan of one point, its bytes of memory if they are known, and whether it is best."""

    makespan: float
    memory: int | None
    best: bool


def check_curves(suffix: str, /) -> None:
    """Raise BadInput, which says what is possible, where no file with this suffix can be drawn."""
    if suffix not in (".svg", ".png"):
        raise BadInput(f"{suffix or 'no suffix'}: pictures are written as .svg and .png")
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise BadInput("curves need matplotlib; pip install 'ckio[plot]'") from None


def check_axes(axes: Sequence[CurveAxis], /) -> None:
    """Raise BadInput where the second axis has more values than a picture has lines."""
    if len(axes) > 1 and len(axes[1].labels) > MOST_LINES:
        raise BadInput(
            f"axis {axes[1].name} has {len(axes[1].labels)} values; a picture has {MOST_LINES}"
            " lines at the most: give a shorter axis second"
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
    """Both panels, as the bytes of one file.

    Parameters
    ----------
    points : sequence of CurvePoint or None
        Of all combinations of values, the last axis fastest; None where there is no schedule.
    memory : str
        The level whose bytes are the memory.
    makespan : str
        The name of the seconds.
    suffix : str
        ".svg" or ".png".

    Raises BadInput for more than `MOST_LINES` lines, where no point has a schedule, and where
    matplotlib is not installed.
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
        lower.set_xlabel(f"bytes of checkpoints on {memory}, at most at one time")
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
    order = sorted(range(len(places)), key=places.__getitem__)
    for number, label in enumerate(lines.labels):
        shown = [at for at in order if (at, number) in least]
        panel.plot(
            [places[at] for at in shown],
            [least[at, number] / unit for at in shown],
            marker=_MARKERS[number],
            linestyle="none" if across.numbers is None else "-",
            color=COLOURS[_LINES[number]],
            label=label,
            gid=f"makespan-{number}",
        )
    labelled = order[:: -(-len(order) // _MOST_LABELS)]
    panel.set(xlabel=across.name, xscale="log" if is_log else "linear")
    panel.set_xticks([places[at] for at in labelled], [across.labels[at] for at in labelled])
    panel.set_xticks([], minor=True)
    if _is_wide(list(least.values())):
        panel.set_yscale("log")
    if len(axes) > 1:
        panel.legend(title=lines.name, fontsize=8)


def _places(axis: CurveAxis) -> tuple[list[float], bool]:
    """The place of each value across, and whether they are by logarithms: no limit is the last."""
    if axis.numbers is None:
        return list(map(float, range(len(axis.labels)))), False
    known = [number for number in axis.numbers if number is not None] or [1.0]
    low, high, is_log = min(known), max(known), _is_wide(known)
    beyond = high * (high / low) ** 0.2 if is_log else high + (0.2 * (high - low) or 1.0)
    return [beyond if number is None else number for number in axis.numbers], is_log


def _draw_memories(panel: Any, points: Sequence[CurvePoint | None], unit: float) -> None:
    """A mark for each point, and a staircase through those that no other one beats."""
    known = {
        (point.memory, point.makespan / unit, point.best)
        for point in points
        if point is not None and point.memory is not None
    }
    if not known:
        panel.text(0.02, 0.9, "not known of any point", transform=panel.transAxes)
        return
    best = sorted((bytes_, seconds) for bytes_, seconds, is_best in known if is_best)
    others = sorted((bytes_, seconds) for bytes_, seconds, is_best in known if not is_best)
    if others:
        panel.plot(
            *zip(*others, strict=True),
            ".",
            c=COLOURS["discard"],
            label="other points",
            gid="others",
        )
    named = {"label": "the Pareto front", "gid": "front"}
    panel.step(*zip(*best, strict=True), "o-", where="post", c=COLOURS["write"], **named)
    sizes = [bytes_ for bytes_, _, _ in known if bytes_]
    if _is_wide([*sizes, 1.0] if len(sizes) < len(known) else sizes):
        panel.set_xscale("symlog", base=2, linthresh=min(sizes) / 2)  # 0 is on it, too
    panel.xaxis.set_major_formatter(lambda size, _: bytes_text(round(size)))
    panel.legend(fontsize=8)


def _is_wide(numbers: Sequence[float]) -> bool:
    return min(numbers, default=0.0) > 0 and max(numbers) > _DECADE * min(numbers)
