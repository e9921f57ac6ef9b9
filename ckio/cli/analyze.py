"""The command `ckio analyze`: find the arrays that the checkpoints of a model must contain."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from textwrap import fill
from typing import Any, Final

import click

from ckio.analysis.model_arrays import WATCHED, WHY
from ckio.cli import console
from ckio.cli.options import (
    argument,
    json_option,
    option,
    planner_options,
    settings_option,
    with_example,
)
from ckio.errors import BadInput, RunFailed
from ckio.jobs.analyzing import model_figures, step_figures
from ckio.jobs.models import Settings
from ckio.model.gradient import UNCHANGED
from ckio.platform.readable import bytes_text, seconds_text

_STORED: Final = {
    "always": "always",
    "versions": "when it changed",
    "dead": "never: dead",
    "unread": "never: not read",
    "in place": "never: stays in place",
    "computed": "never: computed again",
}
"""When an array is stored, by the reason for it."""

_PLANS: Final = {
    "whole": "whole states",
    "needed": "only needed arrays",
    "by array": "array by array",
}

_KINDS: Final = {"restart": "restart data", "tape": "tapes"}

_MOST_SPANS, _MOST_COLUMNS, _WIDTH = 2, 42, 80


@with_example("ckio analyze burgers --steps 200 --platform platform.toml")
@argument("model", "Model to analyze, or one step (a graph of values in FILE.toml).")
@settings_option
@option(
    "--watch", "watched", type=click.IntRange(1), metavar="N", default=WATCHED, show_default=True,
    help="Number of time steps that are executed and observed.",
)  # fmt: skip
@option(
    "--state", metavar="STATE",
    help="Analyze MODEL as one step, in JAX or a StraightLine. STATE is the arrays with which it"
    " starts, or a function that returns them, as FILE.py:ATTRIBUTE or MODULE:ATTRIBUTE.",
)  # fmt: skip
@planner_options
@json_option
def command(
    *,
    model: str,
    settings: Settings,
    watched: int,
    state: str | None,
    platform: Path | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Find out which arrays the checkpoints of MODEL must contain, and which need not be stored.

    Use it to make checkpoints smaller, and to test what a model declares. MODEL is
    FILE.py:ATTRIBUTE, MODULE:ATTRIBUTE, FILE.py with one model in it, or a name that `ckio
    calibrate --help` lists. A model declares in `flow` which arrays its steps use and overwrite.
    The first steps are executed several times, also on changed copies of the state, to observe what
    they really do. If they use or overwrite more than is declared, gradients are wrong, and the
    exit status is 1.

    With --platform and --steps, three plans are compared: with whole states, with only the needed
    arrays, and with each array stored separately. Another table compares lazy and eager snapshots;
    see Dauvergne & Hascoet (2006).

    With --state, or if MODEL is a graph of values in FILE.toml, one step is analyzed: which values
    its tape stores and which are computed again, for the fewest bytes, and for the least time on
    each level of --platform.
    """
    display = console.display(quiet=as_json)
    if state is not None or model.endswith(".toml"):
        for name, value in {**options, "set": settings or None}.items():
            if value is not None:
                raise BadInput(
                    f"--{name} is for a model, but {model} is one step; leave out --{name}"
                )
        figures = step_figures(model, state, platform, display=display)
        console.print_json(figures) if as_json else _show_values(figures)
        return
    figures = model_figures(
        model, settings=settings, watched=watched, platform=platform, display=display, **options
    )
    if as_json:
        console.print_json(figures)
    else:
        _show(figures)
        console.say_lossy(figures["lossy"])
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
    _show_snapshots(figures["snapshots"])
    if figures["declaration"] is not None:
        aim = (
            "To declare what was observed"
            if wrong
            else "To declare this, so that only the needed arrays are stored"
        )
        _say_declaration(figures["declaration"], aim)
    if figures["plan"] is not None:
        _show_plan(figures["plan"], declared=figures["source"] == "declared")


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
        console.echo()


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
        console.echo(f"{word:{width}}  {meaning}")
    console.echo()


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
    console.echo(f"{paragraph}{ends}", bold=bold)


def _say_sizes(figures: dict[str, Any]) -> None:
    whole, needed = figures["checkpoints"]["whole"], figures["checkpoints"]["needed"]
    for kind, what in (("restart", "a restart checkpoint"), ("tape", "the tape of a step")):
        console.echo(
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
    console.echo()


def _show_snapshots(entries: Sequence[dict[str, Any]]) -> None:
    """Print what snapshots before all steps store; policies that store the same share a row."""
    if not entries:
        return
    alike: dict[tuple[str, ...], list[str]] = {}
    for entry in entries:
        row = (
            bytes_text(entry["stored"]),
            bytes_text(entry["taped"]),
            _names(entry["arrays"], none="nothing"),
        )
        alike.setdefault(row, []).append(entry["policy"])
    header = ["snapshots", "in snapshots", "on tapes", "arrays"]
    rows = [[", ".join(names), *row] for row, names in alike.items()]
    title = f"Snapshots before each of {entries[0]['steps']} steps except the last:"
    console.print_table(title, *_left(header, rows, first=len(header) - 1))


def _show_values(figures: dict[str, Any], /) -> None:
    """Print which values of one step are stored, and which are computed again."""
    required = figures["required"]
    _say(
        f"{figures['step']}: {figures['values']} values, of which its adjoint reads"
        f" {required['values']} ({bytes_text(required['bytes'])}). The tape with the fewest bytes,"
        " and the fastest tape on each level:\n"
    )
    header = ["", "tape", "store time", "recompute time", "recomputed", "stored"]
    rows = [
        [
            choice["level"] or "fewest bytes",
            bytes_text(choice["tape"]),
            "-" if choice["storing"] is None else seconds_text(choice["storing"]),
            seconds_text(choice["recomputing"]),
            f"{len(choice['recomputed'])} values",
            _names([*choice["saved"], *choice["stored"]], none="nothing"),
        ]
        for choice in figures["choices"]
    ]
    console.print_table("", *_left(header, rows, first=5))
    _show_snapshots(figures["snapshots"])


def _change(before: int, after: int) -> str:
    """Return the change in per cent of the value before."""
    if before == after:
        return "no change" if before else "nothing"
    return f"{100 * (after - before) / before:+.0f} %"


def _say_declaration(text: str, aim: str) -> None:
    console.echo(f"{aim}, give this to ArrayModel:\n")
    console.echo("    from ckio import Flow, Step\n")
    console.echo("".join(f"    {line}\n" for line in text.splitlines()))


def _show_plan(plan: dict[str, Any], *, declared: bool) -> None:
    """Print the makespan of each way of storing, and which arrays are stored on which level."""
    header = [
        f"{plan['planner']}, {plan['steps']} steps", "checkpoint", "tape", "written",
        "forward steps", "makespan",
    ]  # fmt: skip
    console.print_table("", header, [_plan_row(row) for row in plan["rows"]])
    for row in plan["rows"]:
        if row["refused"] is not None:
            _say(f"{_PLANS[row['what']]}: no schedule: {row['refused']}\n")
    rows = [
        [
            _names(entry["names"]),
            _KINDS.get(entry["kind"], entry["kind"]),
            entry["level"],
            str(entry["writes"]),
            str(entry["reads"]),
            bytes_text(entry["written"]),
        ]
        for entry in plan["arrays"]
    ]
    if rows:
        header = ["array by array", "of", "level", "writes", "reads", "written"]
        console.print_table("", header, rows)
    needs = "" if declared else ", if the model declares them"
    console.echo(
        f"`ckio run` stores only the needed arrays{needs}; with --by-variable, each one separately."
    )


def _plan_row(row: dict[str, Any]) -> list[str]:
    sizes = ["-" if row[kind] is None else bytes_text(row[kind]) for kind in ("restart", "tape")]
    if row["refused"] is not None:
        return [_PLANS[row["what"]], *sizes, "-", "-", "-"]
    written, steps, makespan = row["written"], row["forward_steps"], row["makespan"]
    return [
        _PLANS[row["what"]], *sizes, bytes_text(written), str(steps), seconds_text(makespan)
    ]  # fmt: skip


def _and(names: Sequence[str]) -> str:
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last


def _names(names: Iterable[str], *, none: str = "whole") -> str:
    """Return the names of arrays that are stored together, as far as they fit into the column."""
    shown, every = list[str](), list(names)
    for name in every:
        if shown and len(", ".join([*shown, name])) > _MOST_COLUMNS:
            return f"{', '.join(shown)} and {len(every) - len(shown)} more"
        shown.append(name)
    return ", ".join(shown) or none
