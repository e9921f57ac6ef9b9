"""The command `ckio compare`: compare two runs, or a prediction with its run."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from ckio.adapters.registry import lossy
from ckio.cli import console
from ckio.cli.files import INPUT, out, print_written, read_document, write_file
from ckio.cli.options import json_option, with_example
from ckio.errors import BadInput
from ckio.jobs.comparing import sides_of
from ckio.jobs.directory import MEASURED, PREDICTED
from ckio.jobs.leftovers import is_run_directory
from ckio.platform import Platform
from ckio.report import HEADER, Report, ReportRow, behind, compare, table, verdict
from ckio.report.two_runs import comparison_figures, comparison_page, run_table
from ckio.report.two_runs import verdict as between_runs
from ckio.schedule.text import Document
from ckio.schedule.timeline import Timeline

log = logging.getLogger("ckio")


@with_example("ckio compare ckio-run")
@click.argument(
    "predicted", type=INPUT, metavar="A|PREDICTED", help="A run, or a predicted timeline."
)
@click.argument(
    "measured", type=INPUT, required=False, metavar="[B|MEASURED]",
    help="Another run, or the measured timeline.",
)  # fmt: skip
@out("--html", metavar="OUT", help="Write a page with the pictures of two runs to this file.")
@json_option
def command(*, predicted: Path, measured: Path | None, html: Path | None, as_json: bool) -> None:
    """Compare two runs, or compare the predicted with the measured timeline of one run.

    Two directories A and B of `ckio run` are compared as runs, for example with different
    planners, machines or versions: which run took less time, and why.

    One directory is compared by class of action and in total. This shows which class (record,
    reverse, reads and writes of each level) took longer than predicted. Two files PREDICTED and
    MEASURED with timelines of the same schedule are compared in the same way; a run stores them as
    DIR/predicted.txt and DIR/measured.txt. If they are given in the other order, they are
    exchanged.
    """
    if measured is not None and (predicted.is_dir() or measured.is_dir()):
        _compare_runs(predicted, measured, html, as_json=as_json)
        return
    if html is not None:
        raise BadInput("--html is for two runs: give two directories of `ckio run`")
    if measured is None:
        predicted, measured = _timelines_of(predicted)
    plan, expected = _timeline(predicted)
    real, happened = _timeline(measured)
    if (plan.origin, real.origin) == ("measured", "predicted"):
        log.warning(
            "%s is measured and %s is predicted: their order is exchanged",
            predicted,
            measured,
        )
        predicted, measured = measured, predicted
        (plan, expected), (real, happened) = (real, happened), (plan, expected)
    elif plan.origin and plan.origin == real.origin:
        log.warning("both timelines are %s", plan.origin)
    if plan.schedule.chain != real.schedule.chain or plan.platform != real.platform:
        raise BadInput(
            f"{predicted} and {measured} are for different chains or platforms;"
            " give those of one run"
        )
    platform = plan.platform or Platform(())
    names = [level.name for level in platform.levels]
    report = compare(expected, happened, names=names, lossy=lossy(platform))
    if as_json:
        console.print_json(figures(report))
    else:
        show(report)
        if report.rounding:
            click.echo(report.rounding)


def _compare_runs(first: Path, second: Path, html: Path | None, *, as_json: bool) -> None:
    """Lay two runs next to each other."""
    for path, other in ((first, second), (second, first)):
        if not path.is_dir():
            raise BadInput(
                f"{path} is no directory and {other} is one: give two directories of runs, or two"
                " files of timelines"
            )
    one, two = sides_of(first, second)
    if html is not None:
        write_file(html, comparison_page(one, two, origin=console.origin()))
    if as_json:
        console.print_json(comparison_figures(one, two))
        return
    click.echo(between_runs(one, two))
    header, *rows = run_table(one, two)
    console.print_table("both runs", header, rows)
    if html is not None:
        print_written(html)


def _timelines_of(directory: Path) -> tuple[Path, Path]:
    """Return the paths of the timelines of a run; raises BadInput if one of them is missing."""
    if not is_run_directory(directory):
        raise BadInput(f"{directory}: not the directory of a run; give PREDICTED and MEASURED")
    timelines = directory / PREDICTED, directory / MEASURED
    for timeline in timelines:
        if not timeline.is_file():
            raise BadInput(f"{directory}: its run has not ended; there is no {timeline.name} yet")
    return timelines


def _timeline(path: Path) -> tuple[Document, Timeline]:
    document = read_document(path)
    if document.timeline is None:
        raise BadInput(
            f"{path}: a schedule, not a timeline; write its timeline with `ckio simulate -o`"
        )
    return document, document.timeline


def figures(report: Report, /) -> dict[str, Any]:
    """Return the figures of a comparison for `--json`."""
    return {
        "predicted": report.predicted,
        "measured": report.measured,
        "error": report.error,
        "culprit": report.culprit.name,
        "culprit_share": report.share,
        "lossy": dict(report.lossy),
        "rows": _rows(report.rows),
        "waiting": dict(zip(("predicted", "measured"), report.waiting, strict=True)),
        "transfers": _rows(report.transfers),
    }


def _rows(rows: Sequence[ReportRow]) -> list[dict[str, Any]]:
    return [
        {
            "name": row.name,
            "actions": row.actions,
            "predicted": row.predicted,
            "measured": row.measured,
            "nbytes": row.nbytes,
        }
        for row in rows
    ]


def show(report: Report, /) -> None:
    """Print the comparison as tables and a sentence."""
    rows = table(report)
    console.print_table("predicted and measured", HEADER, rows, bold=[len(rows) - 1])
    if report.transfers:
        console.print_table(
            "transfers in the background", ["transfer", *HEADER[1:]], behind(report)
        )
        plan, real = report.waiting
        click.echo(
            f"the computation waits for storage: {plan:.4g} s predicted, {real:.4g} s measured"
        )
    click.echo(verdict(report))
