"""The frame of an HTML page: its style, its script, its tables and its figures.

The script shows the value under the pointer and zooms by pointer and keys. A page needs no other
file and no network.
"""

from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import Final

from ckio.report.pictures.svg import COLUMNS, LEFT, STYLE, WIDTH, WORDED


def document(title: str, body: Iterable[str], /) -> str:
    """Return a page. The parts of `body` are HTML; `title` is plain text."""
    return _DOCUMENT.format(
        title=escape(title),
        style=STYLE + Path(__file__).with_name("page.css").read_text(encoding="utf-8"),
        body="\n".join(body),
        script=SCRIPT,
    )


def table(rows: Sequence[Sequence[str]], /, *, css: str = "wide") -> str:
    """Return rows of plain text as an HTML table of a class. The first row is the heading."""
    head, *body = rows
    lines = ["".join(f"<td>{escape(cell)}</td>" for cell in row) for row in body]
    return (
        f'<div class="{css}"><table>\n<thead><tr>'
        + "".join(f'<th scope="col">{escape(cell)}</th>' for cell in head)
        + "</tr></thead>\n<tbody>\n"
        + "\n".join(f"<tr>{line}</tr>" for line in lines)
        + "\n</tbody></table></div>"
    )


def figure(heading: str, caption: str, pictures: Iterable[str], *, lead: str = "") -> str:
    """Return a heading, the sentence `lead`, pictures, and below them their caption; all HTML."""
    return (
        f"<figure>\n<h2>{heading}</h2>\n"
        + (f"<p>{lead}</p>\n" if lead else "")
        + "\n".join(pictures)
        + f"\n<figcaption>{caption}</figcaption>\n</figure>"
    )


HELP: Final = """\
<p id="help" hidden>Point at a shape to see its name and times. Drag across a picture to enlarge
that part, and double-click to see the whole picture again. Ctrl and the wheel also zoom, and Shift
and the wheel move; in a picture that has the focus, so do the keys + &minus; &larr; &rarr; and 0.
All pictures with a time axis zoom together.</p>"""
"""Instructions for the reader. The script makes them visible, so they are hidden without it."""

_DOCUMENT: Final = """\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>{title}</title>
<link rel="icon" href="data:,">
<style>
{style}</style>
</head>
<body>
{body}
<div id="hair" hidden><span></span></div>
<div id="chosen" hidden></div>
<script>
{script}</script>
</body>
</html>
"""

_SIZES: Final = {"WIDTH": WIDTH, "LEFT": LEFT, "COLUMNS": COLUMNS, "WORDED": WORDED}

SCRIPT: Final = "".join(f"const {name} = {value};\n" for name, value in _SIZES.items()) + Path(
    __file__
).with_name("page.js").read_text(encoding="utf-8")
"""The script of the page, which loads nothing."""
