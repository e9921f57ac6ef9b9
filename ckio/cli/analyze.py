"""The command `ckio analyze`: find the arrays that the checkpoints of a model must contain."""

from collections.abc import Sequence
from textwrap import fill
from typing import Any, Final

import click

from ckio.analysis.model_arrays import WHY
from ckio.cli import console
from ckio.cli.options import (
    json_option,
    settings_option,
    with_example,
)
from ckio.errors import RunFailed
from ckio.jobs.analyzing import model_figures
from ckio.jobs.models import Settings
from ckio.model.check import UNCHANGED
from ckio.platform.readable import bytes_text

_STORED: Final = {
    "always": "always",
    "versions": "when it changed",
    "dead": "never: dead",
    "unread": "never: not read",
    "in place": "never: stays in place",
    "computed": "never: computed again",
}
"""When an array is stored, by the reason for it."""

_MOST_SPANS, _WIDTH = 2, 80


@with_example("ckio analyze burgers")
@click.argument("model", help="Model to analyze.")
@settings_option
@click.option(
    "--steps", type=int, metavar="N", help="Number of time steps, if fewer than are declared."
)
@json_option
def command(*, model: str, settings: Settings, steps: int | None, as_json: bool) -> None:
    """Find out which arrays the checkpoints of MODEL must contain, and which need not be stored.

    Use it to make checkpoints smaller, and to test what a model declares. MODEL is
    FILE.py:ATTRIBUTE, MODULE:ATTRIBUTE, FILE.py with one model in it, or a name that `ckio
    calibrate --help` lists. A model declares in `flow` which arrays its steps use and overwrite.
    The first steps are executed several times, also on changed copies of the state, to observe what
    they really do. If they use or overwrite more than is declared, gradients are wrong, and the
    exit status is 1.

    `ckio plan --model MODEL` plans with only the needed arrays of a declaration, and --by-variable
    with each array stored separately.
    """
    display = console.display(quiet=as_json)
    figures = model_figures(model, settings=settings, steps=steps, display=display)
    if as_json:
        console.print_json(figures)
    else:
        _show(figures)
    if wrong := figures["contradictions"]:
        raise RunFailed(
            f"model {model!r} declares less than its steps do: {wrong[0]}"
            f"{f' (and {len(wrong) - 1} more)' if len(wrong) > 1 else ''}; correct its flow,"
            " because otherwise its gradient is wrong"
        )


def _show(figures: dict[str, Any], /) -> None:
    """Print all results, except the error for a wrong declaration."""
    _say_source(figures)
    wrong = bool(figures["contradictions"])
    _show_arrays(figures["arrays"], "According to the declaration:" if wrong else "")
    if not wrong:
        _say_sizes(figures)
    if figures["declaration"] is not None:
        aim = (
            "To declare what was observed"
            if wrong
            else "To declare this, so that only the needed arrays are stored"
        )
        _say_declaration(figures["declaration"], aim)


def _say_source(figures: dict[str, Any]) -> None:
    """Print whether the sets of arrays are declared or observed, and whether both agree."""
    watched, declared = figures["watched"], figures["source"] == "declared"
    steps = "step was" if watched == 1 else f"{watched} steps were"
    wrong, notes = figures["contradictions"], figures["notes"]
    if not declared:
        sentence = (
            f"declares nothing; therefore its first {steps} observed. The results hold if all"
            " later steps use and overwrite the same arrays"
        )
    elif not watched:
        sentence = "declares what its steps use and overwrite; they could not be observed"
    elif wrong:
        sentence = (
            f"declares what its steps use and overwrite; the first {steps} observed, and DIFFER"
        )
    else:
        sentence = (
            f"declares what its steps use and overwrite; the first {steps} observed, and use and"
            f" overwrite {'no other arrays' if notes else 'exactly these arrays'}"
        )
    _say(f"{figures['model']} {sentence}.\n")
    if figures["unchanged"]:
        _say(f"warning: {UNCHANGED}", bold=True)
    for sentence in wrong:
        _say(f"warning: {sentence}", bold=True)
    for sentence in notes:
        _say(f"note: {sentence}")
    if wrong or notes or figures["unchanged"]:
        click.echo()


def _show_arrays(arrays: Sequence[dict[str, Any]], title: str) -> None:
    header = ["array", "size", "step", "adjoint", "cost J", "overwritten by", "stored"]
    rows = [
        [
            row["name"],
            bytes_text(row["nbytes"]),
            "reads" if row["forward"] else "-",
            row["adjoint"] or "-",
            "reads" if row["functional"] else "-",
            _overwritten(row),
            _stored(row),
        ]
        for row in arrays
    ]
    console.print_table(title, *_left(header, rows, first=2))
    reasons = dict.fromkeys(row["why"] for row in arrays)
    words = {_STORED[why].removeprefix("never: "): WHY[why] for why in WHY if why in reasons}
    if any(row["overwritten"] != [] and not row["in_whole"] for row in arrays):
        words["part"] = "some old values remain, or the new values depend on the old ones"
    if any(row["adjoint"] == "tape" for row in arrays):
        words["tape"] = "the adjoint of a step reads its values before the step, from the tape"
    width = max(map(len, words), default=0)
    for word, meaning in words.items():
        click.echo(f"{word:{width}}  {meaning}")
    click.echo()


def _overwritten(row: dict[str, Any]) -> str:
    spans = row["overwritten"]
    if spans == []:
        return "no step"
    part = "" if row["in_whole"] else ", part"
    if spans is None:
        return f"each step{part}"
    if len(spans) > _MOST_SPANS:
        return f"{sum(end - begin for begin, end in spans)} steps{part}"
    return f"{' and '.join(map(_span, spans))}{part}"


def _span(span: Sequence[int]) -> str:
    begin, end = span
    return f"step {begin}" if end == begin + 1 else f"steps {begin}-{end - 1}"


def _stored(row: dict[str, Any]) -> str:
    count = row["versions"]
    versions = "" if count is None else f", {count} version{'' if count == 1 else 's'}"
    return f"{_STORED[row['why']]}{versions}"


def _left(
    header: list[str], rows: list[list[str]], *, first: int
) -> tuple[list[str], list[list[str]]]:
    """Return a table with the columns from number `first` on aligned left."""
    columns = list(zip(header, *rows, strict=True))
    for number in range(first, len(columns)):
        width = max(map(len, columns[number]))
        columns[number] = tuple(cell.ljust(width) for cell in columns[number])
    padded = [list(row) for row in zip(*columns, strict=True)]
    return padded[0], padded[1:]


def _say(text: str, *, bold: bool | None = None) -> None:
    """Print a text, broken into lines."""
    ends = "\n" if text.endswith("\n") else ""
    paragraph = fill(text, width=_WIDTH, break_long_words=False, break_on_hyphens=False)
    click.secho(f"{paragraph}{ends}", bold=bold)


def _say_sizes(figures: dict[str, Any]) -> None:
    whole, needed = figures["checkpoints"]["whole"], figures["checkpoints"]["needed"]
    for kind, what in (("restart", "a restart checkpoint"), ("tape", "the tape of a step")):
        click.echo(
            f"{what + ':':22}{bytes_text(whole[kind])} with all arrays,"
            f" {bytes_text(needed[kind])} needed ({_change(whole[kind], needed[kind])})"
        )
    few = [row for row in figures["arrays"] if row["why"] == "versions"]
    if few:
        shared = sum(row["nbytes"] for row in few)
        once = sum(row["nbytes"] * row["versions"] for row in few)
        _say(
            f"array by array:       {bytes_text(needed['restart'] - shared)} for each restart"
            f" checkpoint, and {bytes_text(once)} for all versions of"
            f" {_and([row['name'] for row in few])}, which several checkpoints share"
        )
    click.echo()


def _change(before: int, after: int) -> str:
    """Return the change in per cent of the value before."""
    if before == after:
        return "no change" if before else "nothing"
    return f"{100 * (after - before) / before:+.0f} %"


def _say_declaration(text: str, aim: str) -> None:
    click.echo(f"{aim}, give this to ArrayModel:\n")
    click.echo("    from ckio import Flow, Step\n")
    click.echo("".join(f"    {line}\n" for line in text.splitlines()))


def _and(names: Sequence[str]) -> str:
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last
