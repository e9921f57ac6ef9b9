"""The command `ckio inspect`: list stored checkpoints, and verify their checksums."""

import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from ckio.actions import Kind
from ckio.backends.contents import Damaged
from ckio.cli import console
from ckio.cli.files import FILE
from ckio.cli.options import argument, json_option, option, with_example
from ckio.errors import RunFailed
from ckio.jobs.leftovers import (
    Checkpoint,
    Listing,
    age,
    is_run_directory,
    listing,
    looked_for,
    stored_by,
)
from ckio.platform.readable import age_text, bytes_text, counted, shown

_KINDS: Final = {Kind.RESTART: "restart data", Kind.TAPE: "tape", Kind.ADJOINT: "adjoint"}

_HEADER: Final = ("key", "stored", "original", "codec", "age", "checksum", "file @ offset")


@with_example("ckio inspect ckio-run --verify")
@argument("place", "Directory of a run or of a level, or an HDF5 archive.", type=FILE)
@option("--verify", is_flag=True, help="Read all checkpoints and verify their checksums.")
@json_option
def command(*, place: Path, verify: bool, as_json: bool) -> None:
    """List the checkpoints in PLACE, with their sizes, ages, codecs and checksums.

    Use it to see what a killed run has stored, and whether it is damaged. PLACE is the directory of
    a run (`ckio run --into`), the directory of a level, the directory of a run within it, or an
    HDF5 archive. Nothing is changed, also if the run is active.

    With --verify, the exit status is 1 if a checkpoint or a file is damaged.
    """
    listings = listing(place)
    if verify:
        listings = _verified(listings, quiet=as_json)
    now = time.time()
    damaged = sum(len(level.damaged) for level in listings)
    if as_json:
        console.print_json(figures(place, listings, now=now))
    else:
        for level in listings:
            _show(level, now=now)
        console.echo(_totals(place, listings))
    if verify and damaged:
        raise RunFailed(f"{place}: {counted(damaged, 'damaged part')} found")


def _verified(listings: Sequence[Listing], *, quiet: bool) -> list[Listing]:
    nbytes = sum(level.nbytes for level in listings)
    with console.display(quiet=quiet).progress("verifying", nbytes, unit="bytes") as tick:
        return [level.verified(tick) for level in listings]


# JSON


def figures(place: Path, listings: Sequence[Listing], /, *, now: float) -> dict[str, Any]:
    """Return the figures for `--json`."""
    return {
        "place": str(place),
        "in_use": [str(level.holding.path) for level in listings if level.in_use],
        "foreign": [str(level.holding.path) for level in listings if level.others],
        "checkpoints": [
            _figures(checkpoint, now) for level in listings for checkpoint in level.checkpoints
        ],
        "damaged": [
            {
                "file": str(damage.path),
                "offset": damage.offset,
                "nbytes": damage.nbytes,
                "what": damage.what,
            }
            for damage in _damaged(listings)
        ],
        "bytes": sum(level.nbytes for level in listings),
    }


def _figures(checkpoint: Checkpoint, now: float) -> dict[str, Any]:
    stored = checkpoint.stored
    return {
        "key": str(stored.key),
        "kind": stored.key.kind.name.lower(),
        "step": stored.key.step,
        "name": stored.key.name,
        "run": stored.run,
        "file": str(stored.path),
        "offset": _offset(checkpoint),
        "spans": [list(span) for span in stored.spans],
        "nbytes": stored.nbytes,
        "original": checkpoint.original,
        "written": stored.written,
        "age": age(stored.written, now),
        "codec": checkpoint.codec or None,
        "lossless": checkpoint.lossless,
        "layout": [
            [field.name, field.dtype, list(field.shape), field.unit] for field in checkpoint.layout
        ],
        "checksum": bool(stored.digest),
        "sound": checkpoint.sound,
    }


# Text


def _show(level: Listing, /, *, now: float) -> None:
    """Print the checkpoints of one run on one level."""
    holding = level.holding
    runs = stored_by(checkpoint.stored for checkpoint in level.checkpoints)
    of = "".join(f", run {shown(run)}" for run in runs if run)
    used = ", in use" if level.in_use else ""
    foreign = f": NOT OF RUN {shown(holding.run)}, which cannot read it" if level.others else ""
    title = f"{shown(holding.path)} ({holding.backend}{of}{used}){foreign}"
    if not level.checkpoints:
        console.echo(title, bold=True)
        return
    rows = [_row(checkpoint, now) for checkpoint in level.checkpoints]
    bad = [n for n, checkpoint in enumerate(level.checkpoints) if checkpoint.sound is False]
    console.print_table(title, _HEADER, rows, bold=bad)


def _row(checkpoint: Checkpoint, now: float) -> list[str]:
    stored = checkpoint.stored
    lossy = "" if checkpoint.lossless else " LOSSY"
    return [
        shown(stored.key),
        bytes_text(stored.nbytes),
        bytes_text(checkpoint.original) if checkpoint.codec else "",
        checkpoint.codec + lossy,
        age_text(age(stored.written, now)),
        _checksum(checkpoint),
        f"{shown(stored.path.name)} @ {_offset(checkpoint)}",
    ]


def _checksum(checkpoint: Checkpoint) -> str:
    match checkpoint.sound, checkpoint.stored.digest:
        case _, b"":
            return "none"
        case None, _:
            return "not verified"
        case True, _:
            return "sound"
        case _:
            return "DAMAGED"


def _totals(place: Path, listings: Sequence[Listing]) -> str:
    """Return the number and the bytes of the checkpoints of each kind, and all damages."""
    checkpoints = [checkpoint for level in listings for checkpoint in level.checkpoints]
    lines = []
    for kind, name in _KINDS.items():
        these = [checkpoint for checkpoint in checkpoints if checkpoint.stored.key.kind is kind]
        if these:
            stored = sum(checkpoint.stored.nbytes for checkpoint in these)
            what = "array" if any(it.stored.key.name for it in these) else "checkpoint"
            lines.append(f"{name}: {counted(len(these), what)}, {bytes_text(stored)}")
    lines += [f"DAMAGED: {_where(damage)}: {shown(damage.what)}" for damage in _damaged(listings)]
    known = listings or is_run_directory(place)
    nothing = "no checkpoint is stored" if known else "no file of ckio was found"
    return "\n".join(lines) or f"{nothing} in {place}{looked_for(place)}"


def _where(damage: Damaged) -> str:
    return f"{shown(damage.path)} @ {damage.offset}, {bytes_text(damage.nbytes)}"


def _damaged(listings: Iterable[Listing]) -> list[Damaged]:
    return [damage for level in listings for damage in level.damaged]


def _offset(checkpoint: Checkpoint) -> int:
    """Return the offset of the first byte of a checkpoint in its file."""
    spans = checkpoint.stored.spans
    return next((begin for begin, nbytes in spans if nbytes), spans[0][0] if spans else 0)
