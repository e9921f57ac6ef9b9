"""The command `ckio show`: draw a schedule or a timeline."""

import gzip
import shutil
from pathlib import Path

import click

from ckio.adapters.registry import lossy
from ckio.cli import console
from ckio.cli.files import (
    INPUT,
    out,
    platform_for,
    print_written,
    read_document,
    write_file,
)
from ckio.cli.options import with_example
from ckio.jobs.directory import MEASURED, RESULT, SCHEDULE, is_run_directory, no_run
from ckio.jobs.planning import naming_file
from ckio.jobs.result import stored_run, verdict
from ckio.platform import Platform
from ckio.report import compare
from ckio.report.render import render
from ckio.schedule.text import Document
from ckio.schedule.timeline import Timeline


@with_example("ckio show plan.txt --svg plan.svg")
@click.argument(
    "file",
    help="Schedule of `ckio plan -o`, a timeline, or the directory of a run; - is stdin.",
    type=INPUT,
)
@out("--svg", metavar="OUT", help="Write the pictures to this SVG file; - is stdout.")
@out("--html", metavar="OUT", help="Write an HTML page with the pictures.")
@out(
    "--perfetto",
    metavar="OUT",
    help="Write a trace for the viewer Perfetto (ui.perfetto.dev); OUT.gz is compressed.",
)
def command(
    *,
    file: Path,
    svg: Path | None,
    html: Path | None,
    perfetto: Path | None,
) -> None:
    """Draw the schedule or the timeline in FILE, as text or as files.

    Use it to see which steps are stored, read and computed again. FILE was written by `ckio plan
    -o`, `ckio simulate -o` or `ckio run`; of the directory of a run, it is the measured timeline.
    Without further options, a picture in text is printed. One of the files OUT may be -, which is
    stdout.

    Pictures and traces show the actions over time. Therefore a schedule is simulated first. For a
    measured timeline, the HTML page shows the simulated timeline as well.
    """
    if is_run_directory(file):
        file /= MEASURED if (file / MEASURED).exists() else SCHEDULE
    elif file.is_dir():
        raise no_run(file)
    found = read_document(file)
    files = [path for path in (svg, html, perfetto) if path is not None]
    if not files:
        columns = shutil.get_terminal_size((100, 24)).columns
        click.echo(render(found.timeline or found.schedule, width=max(40, columns)))
        console.print_lossy(lossy(found.platform or Platform(())))
        return
    machine = platform_for(found, file)
    from ckio.sim.engine import simulate

    with naming_file(file):
        predicted = simulate(found.schedule, machine)
    chain, how = found.schedule.chain, ""
    timeline = found.timeline or predicted
    if svg is not None:
        from ckio.report.pictures import draw

        write_file(svg, draw(timeline, chain, machine))
    if html is not None:
        write_file(html, _page(file, found, predicted, machine))
    if perfetto is not None:
        from ckio.report.trace import HOW_TO_OPEN, trace

        how = HOW_TO_OPEN
        _write_trace(perfetto, trace(timeline, chain, machine))
    for written in files:
        print_written(written, how if written == perfetto else "")


def _write_trace(path: Path, text: str) -> None:
    if path.suffix == ".gz":
        write_file(path, gzip.compress(text.encode(), compresslevel=4, mtime=0))
    else:
        write_file(path, text)


def _page(file: Path, found: Document, predicted: Timeline, platform: Platform) -> str:
    from ckio.report.page import page

    measured = None if found.timeline == predicted else found.timeline
    names = [level.name for level in platform.levels]
    report = compare(predicted, measured or predicted, names=names, lossy=lossy(platform))
    steps, actions = found.schedule.chain.length, len(predicted)
    facts = [("steps", f"{steps}"), ("actions", f"{actions}")]
    if report.rounding:
        facts.append(("rounded", report.rounding))
    if found.schedule.overlap:
        facts.append(("overlap", str(found.schedule.overlap)))
    is_run = measured is not None and file.name == MEASURED
    has_result = is_run and (file.parent / RESULT).is_file()
    return page(
        title=file.name,
        facts=facts,
        platform=platform,
        chain=found.schedule.chain,
        predicted=predicted,
        measured=measured,
        verdict=verdict(stored_run(file.parent)) if has_result else "",
        report=None if measured is None else report,
        origin=console.origin(),
    )
