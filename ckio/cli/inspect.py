"""The command `ckio inspect`: list the checkpoints that runs have stored, verify or remove them."""

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import click

from ckio.actions import Kind
from ckio.cli import console
from ckio.cli.files import FILE
from ckio.cli.options import json_option, with_example
from ckio.errors import BadInput, RunFailed
from ckio.jobs.directory import is_run_directory
from ckio.jobs.leftovers import (
    Checkpoint,
    Found,
    expected,
    find,
    removable,
    remove_all,
)
from ckio.platform.readable import age_text, bytes_text, counted

_KINDS: Final = {Kind.RESTART: "restart data", Kind.TAPE: "tape", Kind.ADJOINT: "adjoint"}

_HEADER: Final = ("key", "stored", "original", "codec", "age", "checksum", "file")


@with_example("ckio inspect ckio-run --verify")
@click.argument("place", help="Directory of a run or of a level, or an HDF5 archive.", type=FILE)
@click.option("--verify", is_flag=True, help="Read all checkpoints and verify their checksums.")
@click.option("--remove", is_flag=True, help="Remove the checkpoints of abandoned runs.")
@click.option("--yes", is_flag=True, help="With --remove, do not ask for confirmation.")
@json_option
def command(*, place: Path, verify: bool, remove: bool, yes: bool, as_json: bool) -> None:
    """List the checkpoints in PLACE, with their sizes, ages, codecs and checksums.

    Use it to see what a killed run has stored, whether it is damaged, and to free its disk space.
    PLACE is the directory of a run (`ckio run --into`), the directory of a level, the directory of
    a run within it, or an HDF5 archive. Without --remove nothing is changed, also if the run is
    active.

    With --verify, the exit status is 1 if a checkpoint or a file is damaged.

    With --remove, the checkpoints are removed, except those that an active process has open. If the
    run is resumed later, it begins with its first step. Its directory, with its results, remains.
    """
    if remove:
        if verify:
            raise BadInput("--verify reads checkpoints and --remove removes them; leave out one")
        _remove(place, yes=yes, as_json=as_json)
        return
    if yes:
        raise BadInput("--yes is for a removal; give --remove as well")
    levels = find(place)
    if verify:
        nbytes = sum(level.nbytes for level in levels)
        display = console.display(quiet=as_json)
        with display.progress("verifying", nbytes, unit="bytes") as tick:
            levels = [level.verified(tick) for level in levels]
    if as_json:
        console.print_json(figures(place, levels))
    else:
        for level in levels:
            _show(level)
        click.echo(_totals(place, levels))
    damaged = sum(len(level.damaged) for level in levels)
    if verify and damaged:
        raise RunFailed(f"{place}: {counted(damaged, 'damaged part')} found")


# Removing


def _remove(place: Path, *, yes: bool, as_json: bool) -> None:
    if as_json and not yes:
        raise BadInput("--json does not ask for confirmation; give --yes as well")
    levels = removable(place)
    free = [level for level in levels if not level.in_use]
    used = [str(level.path) for level in levels if level.in_use]
    nbytes = [level.nbytes_on_disk() for level in free]
    if free and not yes and (sys.stdin is None or not sys.stdin.isatty()):
        raise BadInput(
            "stdin is not a terminal, so that nobody can confirm the removal; give --yes"
        )
    if not as_json:
        for level, size in zip(free, nbytes, strict=True):
            what = f"{_count(level.checkpoints)}, {bytes_text(size)} on disk"
            click.echo(f"{_title(level)}: {what}")
        for path in used:
            click.echo(f"{path} is in use, and is not removed")
        if not levels:
            click.echo(f"there is nothing to remove in {place}{_expected_text(place)}")
    if free and not yes:
        count = _count([each for level in free for each in level.checkpoints])
        click.confirm(f"Remove {count}? A run cannot be resumed without them.", abort=True)
    remove_all(free)
    if as_json:
        removed = [
            {
                "path": str(level.path),
                "backend": level.backend,
                "runs": level.runs,
                "checkpoints": len(level.checkpoints),
                "bytes": size,
            }
            for level, size in zip(free, nbytes, strict=True)
        ]
        console.print_json(
            {"place": str(place), "removed": removed, "in_use": used, "bytes": sum(nbytes)}
        )
    elif free:
        click.echo(f"removed: {bytes_text(sum(nbytes))} are free again")


# JSON


def figures(place: Path, levels: Sequence[Found], /) -> dict[str, Any]:
    """Return the figures for `--json`."""
    return {
        "place": str(place),
        "in_use": [str(level.path) for level in levels if level.in_use],
        "foreign": [str(level.path) for level in levels if level.others],
        "checkpoints": [_figures(each) for level in levels for each in level.checkpoints],
        "damaged": [
            {"file": str(damage.path), "offset": damage.offset}
            | {"nbytes": damage.nbytes, "what": damage.what}
            for level in levels
            for damage in level.damaged
        ],
        "bytes": sum(level.nbytes for level in levels),
    }


def _figures(checkpoint: Checkpoint) -> dict[str, Any]:
    stored = checkpoint.stored
    return {
        "key": str(stored.key),
        "kind": stored.key.kind.name.lower(),
        "step": stored.key.step,
        "name": stored.key.name,
        "run": stored.run,
        "file": str(stored.path),
        "offset": next((begin for begin, nbytes in stored.spans if nbytes), None),
        "nbytes": stored.nbytes,
        "original": checkpoint.original,
        "written": stored.written,
        "codec": checkpoint.codec or None,
        "lossless": checkpoint.lossless,
        "layout": [
            [field.name, field.dtype, list(field.shape), field.unit] for field in checkpoint.layout
        ],
        "checksum": bool(stored.digest),
        "sound": checkpoint.sound,
    }


# Text


def _title(level: Found) -> str:
    of = "".join(f", run {run}" for run in level.runs)
    used = ", in use" if level.in_use else ""
    foreign = f": NOT OF RUN {level.run}, which cannot read it" if level.others else ""
    return f"{level.path} ({level.backend}{of}{used}){foreign}"


def _show(level: Found, /) -> None:
    """Print the checkpoints of one run on one level."""
    if not level.checkpoints:
        click.secho(_title(level), bold=True)
        return
    rows = [_row(checkpoint) for checkpoint in level.checkpoints]
    bad = [n for n, checkpoint in enumerate(level.checkpoints) if checkpoint.sound is False]
    console.print_table(_title(level), _HEADER, rows, bold=bad)


def _row(checkpoint: Checkpoint) -> list[str]:
    stored = checkpoint.stored
    checksum = {None: "not verified", True: "sound", False: "DAMAGED"}[checkpoint.sound]
    return [
        str(stored.key),
        bytes_text(stored.nbytes),
        bytes_text(checkpoint.original) if checkpoint.codec else "",
        checkpoint.codec + ("" if checkpoint.lossless else " LOSSY"),
        age_text(max(0.0, time.time() - stored.written)),
        checksum if stored.digest else "none",
        stored.path.name,
    ]


def _count(checkpoints: Sequence[Checkpoint]) -> str:
    what = "array" if any(each.stored.key.name for each in checkpoints) else "checkpoint"
    return counted(len(checkpoints), what)


def _totals(place: Path, levels: Sequence[Found]) -> str:
    """Return the number and the bytes of the checkpoints of each kind, and all damages."""
    lines = []
    for kind, name in _KINDS.items():
        these = [
            each for level in levels for each in level.checkpoints if each.stored.key.kind is kind
        ]
        if these:
            nbytes = sum(each.stored.nbytes for each in these)
            lines.append(f"{name}: {_count(these)}, {bytes_text(nbytes)}")
    for level in levels:
        lines += [f"DAMAGED: {damage.path}: {damage.what}" for damage in level.damaged]
    known = levels or is_run_directory(place)
    nothing = "no checkpoint is stored" if known else "no file of ckio was found"
    return "\n".join(lines) or f"{nothing} in {place}{_expected_text(place)}"


def _expected_text(place: Path) -> str:
    """Return where the levels of a run were looked for; "" for a path that is not a run."""
    levels = expected(place) if is_run_directory(place) else []
    names = ", ".join(str(each.path.absolute()) for each in levels)
    return f" (looked for in {names})" if names else ""
