"""The command `ckio compare`: compare two runs, or a prediction with its run."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from ckio.cli import console
from ckio.cli.files import FILE, out, print_written, write_file
from ckio.cli.options import json_option, with_example
from ckio.errors import BadInput
from ckio.report import HEADER, Report, behind, table, verdict


@with_example("ckio compare ckio-run")
@click.argument("first", type=FILE, metavar="A", help="Directory of a run.")
@click.argument("second", type=FILE, required=False, metavar="[B]", help="That of another run.")
@out("--html", metavar="OUT", help="Write a page with the pictures of two runs to this file.")
@json_option
def command(*, first: Path, second: Path | None, html: Path | None, as_json: bool) -> None:
    """Compare two runs, or compare the predicted with the measured times of one run.

    Two directories A and B of `ckio run` are compared as runs, for example with different
    planners, machines or versions: which run took less time, and where.

    One directory is compared by class of action and in total. This shows which class (record,
    reverse, reads and writes of each level) took longer than predicted.
    """
    from ckio.jobs.comparing import report_of  # `ckio run` needs only `show`

    if second is not None:
        _compare_runs(first, second, html, as_json=as_json)
        return
    if html is not None:
        raise BadInput("--html is for two runs: give two directories of `ckio run`")
    report = report_of(first)
    if as_json:
        console.print_json(figures(report))
    else:
        show(report)
        if report.rounding:
            click.echo(report.rounding)


def _compare_runs(first: Path, second: Path, html: Path | None, *, as_json: bool) -> None:
    """Lay two runs next to each other."""
    from ckio.jobs.comparing import sides_of
    from ckio.report.two_runs import comparison_figures, comparison_page, run_table
    from ckio.report.two_runs import verdict as between_runs

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


def figures(report: Report, /) -> dict[str, Any]:
    """Return the figures of a comparison for `--json`."""
    return {
        **asdict(report),
        "error": report.error,
        "culprit": report.culprit.name,
        "culprit_share": report.share,
        "waiting": dict(zip(("predicted", "measured"), report.waiting, strict=True)),
    }


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
