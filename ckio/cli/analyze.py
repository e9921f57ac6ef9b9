"""`ckio analyze`: what checkpoints of a model have to hold, and what that saves."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from textwrap import fill
from typing import Any, Final

import click

from ckio.analysis.model_arrays import WATCHED, WHY
from ckio.cli import console
from ckio.cli.options import json_option, option, planner_options, settings_option, with_example
from ckio.errors import BadInput, RunFailed
from ckio.jobs.analyzing import model_figures, step_figures
from ckio.jobs.models import Settings
from ckio.model.gradient import UNCHANGED
from ckio.platform.readable import bytes_text, seconds_text

_STORED: Final = {
    "always": "in every checkpoint",
    "versions": "when it changed",
    "dead": "never: dead",
    "unread": "never: not read",
    "in place": "never: stays in place",
    "computed": "never: computed again",
}
"""Where an array is stored, by why it is."""

_PLANS: Final = {
    "whole": "whole states",
    "needed": "what is needed of them",
    "by array": "array by array",
}

_KINDS: Final = {"restart": "restart data", "tape": "tapes"}

_MOST_SPANS, _MOST_COLUMNS, _WIDTH = 2, 42, 100


@with_example("ckio analyze burgers --steps 200 --platform platform.toml")
@click.argument("model")
@settings_option
@option(
    "--watch", "watched", type=click.IntRange(1), metavar="N", default=WATCHED, show_default=True,
    help="how many of the first steps are watched",
)  # fmt: skip
@option(
    "--state", metavar="STATE",
    help="MODEL is one step, in JAX or a StraightLine: MODULE:ATTRIBUTE or FILE.py:ATTRIBUTE of the"
    " arrays that it starts from, by name, or of a function that makes them",
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
    """Find out what checkpoints of MODEL have to hold, and what need not be stored.

    MODEL is MODULE:ATTRIBUTE, FILE.py:ATTRIBUTE, FILE.py with one model in it, or a name that
    `ckio calibrate --help` lists. What its steps use and overwrite is what it declares (`flow`);
    the first steps are done, a few times on altered copies, to see what they really do. Where they
    do what is not declared, the exit status is 1: gradients would be wrong.

    With a --platform it is said where it is less to compute an array again than to store it, and
    with --steps as well, what a plan then stores and what it takes: with whole states, with
    checkpoints of what is needed, and array by array. Beside that stands what the lazy, the eager
    and the cheapest snapshots of the steps store.

    Of one step, with --state or as a graph of values in FILE.toml, it is said which values its tape
    stores and which are computed again: with the fewest bytes, and on each level of a --platform in
    the fewest seconds.
    """
    display = console.display(quiet=as_json)
    if state is not None or model.endswith(".toml"):
        for name, value in {**options, "set": settings or None}.items():
            if value is not None:
                raise BadInput(f"--{name} is about a model, and {model} is one step")
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
            f"model {model!r} declares too little of what its steps do: {wrong[0]}"
            f"{f' (and {len(wrong) - 1} more)' if len(wrong) > 1 else ''}; correct its flow, or"
            " its gradient will be wrong"
        )


def _show(figures: dict[str, Any], /) -> None:
    """Print the whole answer, but for what is raised in the end."""
    _say_source(figures)
    wrong = bool(figures["contradictions"])
    _show_arrays(figures["arrays"], "As it is declared:" if wrong else "")
    if not wrong:
        _say_sizes(figures)
    _show_snapshots(figures["snapshots"])
    for entry in figures["recompute"]:
        _show_recompute(entry, figures["checkpoints"]["needed"])
    if figures["declaration"] is not None:
        does = (
            "What was observed is declared by"
            if wrong
            else "It is declared, and no more is stored than that, by"
        )
        _say_declaration(figures["declaration"], does)
    if figures["plan"] is not None:
        _show_plan(figures["plan"], declared=figures["source"] == "declared")


def _say_source(figures: dict[str, Any]) -> None:
    """Say where the sets come from, in a sentence, and how they fit together."""
    watched, declared = figures["watched"], figures["source"] == "declared"
    steps = "step was" if watched == 1 else f"{watched} steps were"
    wrong, notes = figures["contradictions"], figures["notes"]
    if not declared:
        sentence = (
            f"declares nothing, so its first {steps} observed: all of this holds if the later ones"
            " do the same"
        )
    elif not watched:
        sentence = "declares what its steps use and overwrite; they could not be watched"
    elif wrong:
        sentence = (
            f"declares what its steps use and overwrite; the first {steps} observed and DIFFER"
        )
    else:
        sentence = (
            f"declares what its steps use and overwrite; the first {steps} observed and do"
            f" {'no more' if notes else 'just that'}"
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
    header = ["array", "size", "step", "adjoint", "functional", "overwritten by", "stored"]
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
        words["in part"] = "some of what it held is kept, or counts for what it holds then"
    if any(row["adjoint"] == "tape" for row in arrays):
        words["tape"] = "the adjoint of a step reads it as it was before the step, on the tape"
    width = max(map(len, words), default=0)
    for word, meaning in words.items():
        console.echo(f"{word:{width}}  {meaning}")
    console.echo()


def _overwritten(row: dict[str, Any]) -> str:
    spans = row["overwritten"]
    if spans == []:
        return "no step"
    part = "" if row["in_whole"] else ", in part"
    if spans is None:
        return f"every step{part}"
    if len(spans) > _MOST_SPANS:
        return f"{sum(end - begin for begin, end in spans)} of the steps{part}"
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
    """Return a table with words, from this column on, to the left."""
    columns = list(zip(header, *rows, strict=True))
    for number in range(first, len(columns)):
        width = max(map(len, columns[number]))
        columns[number] = tuple(cell.ljust(width) for cell in columns[number])
    padded = [list(row) for row in zip(*columns, strict=True)]
    return padded[0], padded[1:]


def _say(text: str, *, bold: bool | None = None) -> None:
    """Print a paragraph."""
    ends = "\n" if text.endswith("\n") else ""
    paragraph = fill(text, width=_WIDTH, break_long_words=False, break_on_hyphens=False)
    console.echo(f"{paragraph}{ends}", bold=bold)


def _say_sizes(figures: dict[str, Any]) -> None:
    whole, needed = figures["checkpoints"]["whole"], figures["checkpoints"]["needed"]
    for kind, what in (("restart", "a restart checkpoint"), ("tape", "the tape of a step")):
        console.echo(
            f"{what + ':':22}{bytes_text(whole[kind])} with all there is ->"
            f" {bytes_text(needed[kind])} has to be stored ({_change(whole[kind], needed[kind])})"
        )
    few = [row for row in figures["arrays"] if row["why"] == "versions"]
    if few:
        shared = sum(row["nbytes"] for row in few)
        once = sum(row["nbytes"] * row["versions"] for row in few)
        _say(
            f"array by array:       {bytes_text(needed['restart'] - shared)} for each restart"
            f" checkpoint; all versions of {_and([row['name'] for row in few])}, which checkpoints"
            f" share, are {bytes_text(once)}"
        )
    console.echo()


def _show_snapshots(entries: Sequence[dict[str, Any]]) -> None:
    """Print the snapshots of successive checkpoints; policies that store the same share a row."""
    if not entries:
        return
    priced = ["seconds"] if entries[0]["level"] is not None else []
    alike: dict[tuple[str, ...], list[str]] = {}
    for entry in entries:
        row = (
            entry["level"] or "",
            bytes_text(entry["stored"]),
            bytes_text(entry["taped"]),
            *([seconds_text(entry["seconds"])] if priced else []),
            _names(entry["arrays"], none="nothing"),
        )
        alike.setdefault(row, []).append(entry["policy"])
    header = ["snapshots", "in snapshots", "on tapes", *priced, "arrays"]
    rows = [[", ".join([*names, *row[:1]]).rstrip(", "), *row[1:]] for row, names in alike.items()]
    title = f"A checkpoint before each of {entries[0]['steps']} steps but the last:"
    console.print_table(title, *_left(header, rows, first=len(header) - 1))


def _show_values(figures: dict[str, Any], /) -> None:
    """Print the values of one step that are stored, and those that are computed again."""
    required = figures["required"]
    _say(
        f"{figures['step']}: {figures['values']} values, of which its adjoint reads"
        f" {required['values']} ({bytes_text(required['bytes'])}). Its tape, with the fewest bytes"
        " and on each level in the fewest seconds:\n"
    )
    header = ["", "tape", "to store", "to compute again", "computed again", "stored"]
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
    """Return by how much something has changed, in whole per cents of what it was."""
    if before == after:
        return "all of it" if before else "nothing"
    return f"{100 * (after - before) / before:+.0f} %"


def _show_recompute(entry: dict[str, Any], needed: dict[str, int]) -> None:
    name, saved = entry["name"], entry["saved"]
    kinds = {"restart": "a checkpoint", "tape": "a step's tape"}
    smaller = [
        f"{what} {_less(saved[kind])} ({_change(needed[kind], needed[kind] - saved[kind])})"
        for kind, what in kinds.items()
        if saved[kind]
    ]
    when = "after a checkpoint is read"
    if saved["tape"]:
        when += ", and for the adjoint of each step"
    _say(
        f"{name} can be computed again from {_and(entry['from'])}: that makes"
        f" {' and '.join(smaller)}. It takes {seconds_text(entry['seconds'])} (the median of"
        f" {entry['calls']} calls) {when}."
    )
    console.echo()
    if entry["levels"]:
        rows = [
            [level["name"], seconds_text(level["seconds"]), _advice(level["less"])]
            for level in entry["levels"]
        ]
        header = ["level", f"to write and read {name}", "which is less"]
        console.print_table("", *_left(header, rows, first=2))
    else:
        console.echo("With a --platform it is said what levels take to write and read it instead.")
    if entry["option"] is not None:
        console.echo(f"To leave it out: {entry['option']}")
    else:
        console.echo(f"To leave it out, hand recompute=[{json.dumps(name)}] to ArrayModel.")
    console.echo()


def _less(nbytes: int) -> str:
    return f"{bytes_text(abs(nbytes))} {'smaller' if nbytes > 0 else 'larger'}"


def _advice(less: str) -> str:
    return "to compute it again" if less == "recompute" else "to store it"


def _say_declaration(text: str, does: str) -> None:
    console.echo(f"{does} handing this to ArrayModel:\n")
    console.echo("    from ckio import Flow, Step\n")
    console.echo("".join(f"    {line}\n" for line in text.splitlines()))


def _show_plan(plan: dict[str, Any], *, declared: bool) -> None:
    """Print what each way of storing takes, and what is stored, and where."""
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
    needs = "" if declared else ", once the model declares it"
    console.echo(f"`ckio run` stores what is needed{needs}; with --by-variable, array by array.")


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
    """Return the names of what is stored as one, as far as a column has space."""
    shown, every = list[str](), list(names)
    for name in every:
        if shown and len(", ".join([*shown, name])) > _MOST_COLUMNS:
            return f"{', '.join(shown)} and {len(every) - len(shown)} more"
        shown.append(name)
    return ", ".join(shown) or none
