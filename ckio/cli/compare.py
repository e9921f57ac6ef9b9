"""`ckio compare`: two runs next to each other, or what was predicted and what was measured."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from ckio.adapters.registry import lossy
from ckio.cli import console
from ckio.cli.files import INPUT, out, read_document, tell_written, write_text
from ckio.cli.options import json_option, with_example
from ckio.errors import BadInput
from ckio.jobs.comparing import sides_of
from ckio.jobs.directory import MEASURED, PREDICTED
from ckio.jobs.leftovers import is_run_directory
from ckio.platform import Platform
from ckio.platform.readable import shown
from ckio.report import HEADER, Report, ReportRow, behind, compare, table, verdict
from ckio.report.two_runs import comparison_figures, comparison_page, run_table
from ckio.report.two_runs import verdict as between_runs
from ckio.schedule.text import Document
from ckio.schedule.timeline import Timeline

log = logging.getLogger("ckio")


@with_example("ckio compare ckio-run")
@click.argument("predicted", type=INPUT, metavar="A|PREDICTED")
@click.argument("measured", type=INPUT, required=False, metavar="[B|MEASURED]")
@out("--html", metavar="OUT", help="write a page with the pictures of two runs")
@json_option
def command(*, predicted: Path, measured: Path | None, html: Path | None, as_json: bool) -> None:
    """Compare two runs, or what was predicted for one run with what was measured.

    Two directories A and B of `ckio run` are compared as runs, for example with different planners,
    machines or versions: which took less time, and why. One directory, or two files PREDICTED and
    MEASURED with timelines of one schedule, is compared by class of action and in total: in a
    directory they are predicted.txt and measured.txt. Timelines in the other order are put right.
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
            "%s is measured and %s is predicted: they are compared in that order",
            shown(predicted),
            shown(measured),
        )
        predicted, measured = measured, predicted
        (plan, expected), (real, happened) = (real, happened), (plan, expected)
    elif plan.origin and plan.origin == real.origin:
        log.warning("both timelines are %s", plan.origin)
    if plan.schedule.chain != real.schedule.chain or plan.platform != real.platform:
        raise BadInput(f"{predicted} and {measured} are for different chains or platforms")
    platform = plan.platform or Platform(())
    names = [level.name for level in platform.levels]
    report = compare(expected, happened, names=names, lossy=lossy(platform))
    if as_json:
        console.print_json(figures(report))
    else:
        show(report)
        if report.rounding:
            console.echo(report.rounding)


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
        write_text(html, comparison_page(one, two, origin=console.origin()))
    if as_json:
        console.print_json(comparison_figures(one, two))
        return
    console.echo(between_runs(one, two))
    header, *rows = run_table(one, two)
    console.print_table("both runs", header, rows)
    if html is not None:
        tell_written(html)


def _timelines_of(directory: Path) -> tuple[Path, Path]:
    """Return the two timelines of a run; raises BadInput where they are not both there."""
    if not is_run_directory(directory):
        raise BadInput(f"{directory}: not the directory of a run; give PREDICTED and MEASURED")
    timelines = directory / PREDICTED, directory / MEASURED
    for timeline in timelines:
        if not timeline.is_file():
            raise BadInput(f"{directory}: its run has not ended, there is no {timeline.name} yet")
    return timelines


def _timeline(path: Path) -> tuple[Document, Timeline]:
    document = read_document(path)
    if document.timeline is None:
        raise BadInput(f"{path}: a schedule, not a timeline; `ckio simulate -o` makes one")
    return document, document.timeline


def figures(report: Report, /) -> dict[str, Any]:
    """Return what `--json` prints of a comparison."""
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
    """Print the comparison for a person."""
    rows = table(report)
    console.print_table("predicted and measured", HEADER, rows, bold=[len(rows) - 1])
    if report.transfers:
        console.print_table("transfers behind it", ["transfer", *HEADER[1:]], behind(report))
        plan, real = report.waiting
        console.echo(f"the program is at storage for {plan:.4g} s predicted, {real:.4g} s measured")
    console.echo(verdict(report))
