"""Curves as SVG, the same bytes from the same numbers."""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple


class Curve(NamedTuple):
    """Where it is, along and up."""

    x: list[float]
    y: list[float]


_WIDE, _HIGH = 4.2, 2.9
_DASHES = "-", "--", "-.", ":"
_STYLE = {
    "svg.hashsalt": "ckio",
    "svg.fonttype": "none",
    "font.size": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
}


def save(
    path: Path,
    panels: Mapping[str, Mapping[str, Curve]],
    /,
    *,
    along: str,
    up: str,
    logarithmic: bool = False,
) -> None:
    """One panel beside the other, two in a row, each with a legend of its curves."""
    import matplotlib as mpl
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    rows = -(-len(panels) // 2)
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(2 * _WIDE, rows * _HIGH), layout="constrained")
        FigureCanvasSVG(figure)
        grid = figure.subplots(rows, 2, squeeze=False).flat
        for axes, (title, curves) in zip(grid, panels.items(), strict=False):
            for number, (name, curve) in enumerate(curves.items()):
                dash = _DASHES[number % len(_DASHES)]
                axes.plot(*curve, label=name, linewidth=1.2, linestyle=dash)
            axes.set(title=title, xlabel=along, ylabel=up)
            if logarithmic:
                axes.set_xscale("log")
            axes.legend(fontsize=7)
        for axes in list(figure.axes)[len(panels) :]:
            axes.remove()
        figure.savefig(path, format="svg", metadata={"Date": None, "Creator": None})
