"""A picture as PNG: its SVG, by its own style sheet, drawn with matplotlib (extra `plot`)."""

import io
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final
from xml.etree import ElementTree

from ckio.errors import BadInput
from ckio.report.pictures.svg import LIGHT, STYLE

SHARP: Final = 2
"""Pixels of one unit of the picture."""

Style = Mapping[str, str]

_CHUNK: Final = 5000
"""Points of a long line that are drawn at once."""
_RULES: Final = {
    css: dict(re.findall(r"([-\w]+): ([^;]+);", body))
    for css, body in re.findall(r"^\.picture \.(\w+) \{(.*)\}$", STYLE, re.MULTILINE)
}
_BASE: Final = {"font-size": "12px", "fill": "var(--ink)", "opacity": "1", "stroke": "none"}
_COLOURS: Final[Style] = dict(re.findall(r"--(\w+): ([^;]+);", LIGHT))


def drawable() -> bool:
    """Whether what draws is installed."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        return False
    return True


def needs() -> None:
    """Raise BadInput, which says what to install, where that is missing."""
    if not drawable():
        raise BadInput("PNG needs matplotlib; install it: pip install 'ckio[plot]'")


def png(svg: str, /) -> bytes:
    """The PNG file of what `draw` or `Picture.file` gives, on paper's colours.

    Raises BadInput where matplotlib is not installed.
    """
    needs()
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    root = ElementTree.fromstring(svg)
    left, top, width, height = map(float, root.attrib["viewBox"].split())
    point = 72  # a unit of the picture is a point of the figure
    with rc_context({"agg.path.chunksize": _CHUNK}):
        figure = Figure(figsize=(width / point, height / point), dpi=SHARP * point)
        FigureCanvasAgg(figure)
        axes = figure.add_axes((0, 0, 1, 1), frameon=False)
        axes.set(xlim=(left, left + width), ylim=(top + height, top), xticks=[], yticks=[])
        _paint(axes, root, _BASE, 0.0)
        file = io.BytesIO()
        figure.savefig(file, format="png", dpi="figure")
    return file.getvalue()


def _paint(axes: Any, element: ElementTree.Element, outer: Style, down: float) -> None:
    """Draw what lies in an element: shapes of one style that follow one another, at once."""
    shapes: list[tuple[Style, str]] = []
    for child in element:
        style = _style(child, outer)
        match child.tag.rpartition("}")[2]:
            case "rect":
                x, y, width, height = (child.attrib[a] for a in ("x", "y", "width", "height"))
                shapes.append((style, f"M{x} {y}h{width}v{height}h-{width}Z"))
            case "path":
                shapes.append((style, child.attrib["d"]))
            case "g":
                _fill(axes, shapes, down)
                _paint(axes, child, style, down)
            case "svg":
                _fill(axes, shapes, down)
                moved = 0.0 if child.get("class") == "plot" else float(child.get("y", 0))
                _paint(axes, child, style, down + moved)
            case "text":
                _write(axes, child, style, down)
            case _:
                pass  # its style and its tooltips
    _fill(axes, shapes, down)


def _style(element: ElementTree.Element, outer: Style) -> Style:
    """The style of an element in another: rules in the order of the style sheet, as CSS has it."""
    own = element.get("class", "").split()
    rules = [rule for css, rule in _RULES.items() if css in own]
    style = dict(outer)
    for rule in rules:
        style |= rule | {"opacity": outer["opacity"]}
    for rule in rules:
        style["opacity"] = str(float(style["opacity"]) * float(rule.get("opacity", "1")))
    return style


def _colour(style: Style, name: str) -> str:
    """A colour, through the variables of the style sheet."""
    value = style.get(name, "none")
    while variable := re.fullmatch(r"var\(--(\w+)\)", value):
        named = variable[1]
        value = style["--colour"] if named == "colour" else _COLOURS[named]
    return value


def _fill(axes: Any, shapes: list[tuple[Style, str]], down: float) -> None:
    """Draw shapes, and forget them."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    while shapes:
        style = shapes[0][0]
        same = [d for other, d in shapes if other == style]
        shapes[:] = [(other, d) for other, d in shapes if other != style]
        if float(style["opacity"]) == 0:
            continue
        points, codes = _points("".join(same), down)
        dashes = [float(length) for length in style.get("stroke-dasharray", "").split()]
        patch = PathPatch(
            Path(points, codes),
            facecolor=_colour(style, "fill"),
            edgecolor=_colour(style, "stroke"),
            linewidth=float(style.get("stroke-width", "1")),
            linestyle=(0, dashes) if dashes else "-",
            capstyle=style.get("stroke-linecap", "butt"),
            joinstyle="miter",
            alpha=float(style["opacity"]),
        )
        axes.add_artist(patch)


def _points(d: str, down: float) -> tuple[Sequence[tuple[float, float]], Sequence[int]]:
    """The points of a path, and matplotlib's codes for how each is reached."""
    points: list[tuple[float, float]] = []
    codes: list[int] = []
    x = y = 0.0
    first = (x, y)
    for letter, numbers in _commands(d):
        code = 2
        match letter, numbers:
            case "M", (x, y):
                code, first = 1, (x, y)
            case "L", (x, y):
                pass
            case "H", (x,):
                pass
            case "V", (y,):
                pass
            case "h", (by,):
                x += by
            case "v", (by,):
                y += by
            case "Z", ():
                code, (x, y) = 79, first
            case _:
                raise AssertionError(f"a path with {letter} {numbers}")
        points.append((x, y + down))
        codes.append(code)
    return points, codes


def _commands(d: str) -> Iterator[tuple[str, tuple[float, ...]]]:
    for letter, numbers in re.findall(r"([A-Za-z])([^A-Za-z]*)", d):
        yield letter, tuple(map(float, numbers.split()))


def _write(axes: Any, element: ElementTree.Element, style: Style, down: float) -> None:
    words = "".join(element.itertext()) if len(element) == 0 else element[-1].tail or ""
    axes.text(
        float(element.attrib["x"]),
        float(element.attrib["y"]) + down,
        words.replace("$", r"\$"),
        color=_colour(style, "fill"),
        fontsize=float(style["font-size"].removesuffix("px")),
        fontweight="bold" if style.get("font-weight") else "normal",
        ha={"end": "right", "middle": "center"}.get(style.get("text-anchor", ""), "left"),
        va="baseline",
    )
