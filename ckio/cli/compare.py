"""`ckio compare`: where a prediction was right, and what explains the rest."""

from pathlib import Path
from typing import Any

import click

from ckio.cli import console
from ckio.cli.options import FILE, read_text
from ckio.errors import BadInput
from ckio.report import Report, compare
from ckio.texts import Document, loads
from ckio.timeline import Timeline


@click.command(short_help="Line up a predicted and a measured timeline.")
@click.argument("predicted", type=FILE)
@click.argument("measured", type=FILE)
@click.option("--json", "as_json", is_flag=True, help="print one JSON object")
def command(*, predicted: Path, measured: Path, as_json: bool) -> None:
    """Compare two timelines of one schedule, by class of action and in total.

    `ckio run` leaves both in its directory: DIR/predicted.txt and DIR/measured.txt.
    """
    plan, expected = _timeline(predicted)
    real, happened = _timeline(measured)
    if plan.schedule.chain != real.schedule.chain or plan.platform != real.platform:
        raise BadInput(f"{predicted} and {measured} are for different chains or platforms")
    levels = plan.platform.levels if plan.platform else ()
    report = compare(expected, happened, names=[level.name for level in levels])
    if as_json:
        console.print_json(figures(report))
    else:
        show(report)


def _timeline(path: Path) -> tuple[Document, Timeline]:
    found = loads(read_text(path), source=str(path))
    if found.timeline is None:
        raise BadInput(f"{path}: a schedule, not a timeline; `ckio simulate -o` makes one")
    return found, found.timeline


def figures(report: Report, /) -> dict[str, Any]:
    """What `--json` says of a comparison."""
    return {
        "predicted": report.predicted,
        "measured": report.measured,
        "error": report.error,
        "culprit": report.culprit.name,
        "culprit_share": report.share,
        "rows": [
            {
                "name": row.name,
                "actions": row.actions,
                "predicted": row.predicted,
                "measured": row.measured,
                "nbytes": row.nbytes,
            }
            for row in report.rows
        ],
    }


HEADER = [
    "class of action",
    "actions",
    "steps",
    "predicted s",
    "measured s",
    "difference s",
    "bytes",
]


def table(report: Report, /) -> list[list[str]]:
    """The rows of a comparison as text, the total last."""
    rows = [
        [
            row.name,
            f"{row.actions}",
            f"{row.steps}" if row.steps else "",
            f"{row.predicted:.4f}",
            f"{row.measured:.4f}",
            f"{row.difference:+.4f}",
            console.nbytes(row.nbytes) if row.nbytes else "",
        ]
        for row in report.rows
    ]
    whole = (report.predicted, report.measured, report.measured - report.predicted)
    total = ["total", str(sum(row.actions for row in report.rows)), ""]
    return [*rows, [*total, f"{whole[0]:.4f}", f"{whole[1]:.4f}", f"{whole[2]:+.4f}", ""]]


def verdict(report: Report, /) -> str:
    """One sentence: how far off, and why."""
    if not report.measured:
        return "nothing was measured"
    text = f"the prediction is {abs(report.error):.1%} {'above' if report.error > 0 else 'below'}"
    text += " the measured makespan"
    if report.share:
        text += f"; {report.culprit.name!r} explains {report.share:.0%} of the differences"
    return text


def show(report: Report, /) -> None:
    """The comparison as a person reads it."""
    rows = table(report)
    console.print_table("predicted and measured", HEADER, rows, bold=[len(rows) - 1])
    click.echo(verdict(report))
