"""The table of predicted and measured seconds as HTML, with a bar for each difference."""

from collections.abc import Sequence
from html import escape
from typing import Final

from ckio.actions.columns import VERBS
from ckio.platform.readable import seconds_text
from ckio.report import HEADER, Report, ReportRow, behind, shown_rows, table, verdict
from ckio.report.pictures.svg import number, path, rect

HALF, HIGH = 64, 14
"""Width of the longest bar to each side, and height of a row of bars."""
_LEAST: Final = 0.5
"""Least width of a bar if the difference is not zero."""


def largest_difference(report: Report, /) -> str:
    """Return one sentence that names the class of action with the largest difference."""
    if not report.share:
        return "Every class of action took as long as predicted."
    row, share = report.culprit, report.share
    side = "longer" if row.difference > 0 else "shorter"
    return (
        f"The largest difference is that of {row.name}: {seconds_text(row.measured)} instead of"
        f" {seconds_text(row.predicted)}, {seconds_text(abs(row.difference))} {side} than"
        f" predicted. It explains {share:.0%} of all differences."
    )


def difference_table(report: Report, /) -> str:
    """Return two sentences and the table, and with overlap a second table for the transfers."""
    rows = shown_rows(report)
    words = verdict(report).partition(";")[0]
    parts = [
        f"<p>{escape(words[:1].upper() + words[1:])}.</p>",
        f'<p class="largest">{escape(largest_difference(report))}</p>',
        _html(HEADER, table(report), rows, report.culprit.name if report.share else "", "summed"),
    ]
    if report.transfers:
        parts.append("<p>Transfers in the background; their seconds are not part of the total:</p>")
        header = ["transfer", *HEADER[1:]]
        parts.append(_html(header, behind(report), report.transfers, "", ""))
    return "\n".join(parts)


def _html(
    header: Sequence[str],
    cells: Sequence[Sequence[str]],
    rows: Sequence[ReportRow],
    largest: str,
    css: str,
) -> str:
    """Return a table. Cells without a row in `rows`, for example the total, have no bar."""
    scale = max((abs(row.difference) for row in rows), default=0.0)
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in header)
    lines = []
    for place, texts in enumerate(cells):
        row = rows[place] if place < len(rows) else None
        bar = "" if row is None else _bar(row, scale)
        marked = row is not None and _stands_for(row, largest)
        line = "".join(f"<td>{escape(text)}</td>" for text in texts)
        sign = ' class="largest"' if marked else ""
        words = " largest" if marked else ""
        lines.append(f"<tr{sign}>{line}<td>{bar}{words}</td></tr>")
    return (
        f'<div class="wide {css}"><table class="differences">\n<thead><tr>{head}'
        '<th scope="col">shorter | longer</th></tr></thead>\n<tbody>\n'
        + "\n".join(lines)
        + "\n</tbody></table></div>"
    )


def _stands_for(row: ReportRow, largest: str) -> bool:
    """Return whether a row belongs to this class of action, alone or with another class."""
    return bool(largest) and (row.name == largest or largest in _parts(row.name))


def _parts(name: str) -> list[str]:
    """Return the classes of a row: "read, discard ram" has "read ram" and "discard ram"."""
    verbs, _, level = name.rpartition(" ")
    return [f"{verb} {level}" for verb in verbs.split(", ")]


def _bar(row: ReportRow, scale: float) -> str:
    """Return a bar from the middle: to the right if the class took longer than predicted."""
    verb = row.name.partition(" ")[0].rstrip(",")
    css = f"bar {verb if verb in VERBS else 'ink'}"
    share = row.difference / scale if scale else 0.0
    width = max(_LEAST, HALF * abs(share)) if share else 0.0
    box = (
        rect(-width if share < 0 else 0.0, 2 - HIGH / 2, width, HIGH - 4, css=css) if width else ""
    )
    middle = path(f"M0 {number(-HIGH / 2)}v{HIGH}", css="grid")
    return (
        f'<svg class="picture difference" viewBox="{-HALF} {-HIGH // 2} {2 * HALF} {HIGH}"'
        f' width="{2 * HALF}" height="{HIGH}" aria-hidden="true">{middle}{box}</svg>'
    )
