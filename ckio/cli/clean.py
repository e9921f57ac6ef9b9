"""The command `ckio clean`: remove checkpoints and unfinished files of abandoned runs."""

import sys
import time
from pathlib import Path
from typing import Any, Final

import click

from ckio.cli import console
from ckio.cli.files import FILE
from ckio.cli.options import argument, json_option, option, with_example
from ckio.errors import BadInput, StorageError
from ckio.jobs.directory import RESULT
from ckio.jobs.leftovers import Cleaned, Cleaning, age, is_run_directory, looked_for, survey
from ckio.platform.readable import age_text, bytes_text, counted, shown

_HEADER: Final = ("path", "backend", "run", "checkpoints", "on disk", "newest")


@with_example("ckio clean ckio-run --yes")
@argument("place", "Directory of a run or of a level, or an HDF5 archive.", type=FILE)
@option("--yes", is_flag=True, help="Remove without asking for confirmation.")
@option("--results", is_flag=True, help="Also remove the directory of the run, with its results.")
@json_option
def command(*, place: Path, yes: bool, results: bool, as_json: bool) -> None:
    """Remove the checkpoints and the unfinished files of abandoned runs in PLACE.

    Use it to free disk space after runs that were killed and will not be resumed: a run whose
    checkpoints are removed cannot be resumed. PLACE is the directory of a run (`ckio run --into`),
    the directory of a level, the directory of a run within it, or an HDF5 archive. Files that an
    active process has open are not removed. The directory of a run, with its results, is removed
    only with --results.
    """
    if as_json and not yes:
        raise BadInput("--json does not ask for confirmation; give --yes as well")
    cleaning = survey(place, results=results)
    if cleaning and not yes and (sys.stdin is None or not sys.stdin.isatty()):
        raise BadInput(
            "stdin is not a terminal, so that nobody can confirm the removal; give --yes"
        )
    if not as_json:
        _show(place, cleaning, now=time.time())
    if cleaning and not yes:
        click.confirm(_question(place, cleaning), abort=True)
    cleaned = cleaning.perform()
    if as_json:
        console.print_json(figures(place, cleaned, now=time.time()))
    else:
        if cleaned.removed:
            freed = sum(left.nbytes for left in cleaned.removed)
            console.echo(f"removed: {bytes_text(freed)} are free again")
        if cleaning.results is not None and not cleaned.refused:
            console.echo(f"removed: the results in {cleaning.results}")
    if cleaned.refused:
        raise StorageError("; ".join(map(str, cleaned.refused.values())))


def _show(place: Path, cleaning: Cleaning, *, now: float) -> None:
    if cleaning.left:
        rows = [
            [
                shown(left.holding.path),
                left.holding.backend,
                ", ".join(map(shown, left.runs)),
                str(left.checkpoints),
                bytes_text(left.nbytes),
                "" if left.newest is None else age_text(age(left.newest, now)),
            ]
            for left in cleaning.left
        ]
        console.print_table("", _HEADER, rows)
    for path in cleaning.half_made:
        console.echo(f"{shown(path)} is unfinished")
    for path in cleaning.in_use:
        console.echo(f"{shown(path)} is in use, and is not removed")
    if not cleaning:
        where = "" if cleaning.in_use else looked_for(place)
        console.echo(f"there is nothing to remove in {place}{where}")


def _question(place: Path, cleaning: Cleaning) -> str:
    count = sum(left.checkpoints for left in cleaning.left)
    files = counted(len(cleaning.half_made), "unfinished file")
    parts = [
        *([f"{counted(count, 'checkpoint')}"] if cleaning.left else []),
        *([files] if cleaning.half_made else []),
        *([f"the directory {shown(place)} with its results"] if cleaning.results else []),
    ]
    unfinished = is_run_directory(place) and not (place / RESULT).exists()
    whose = f"The run of {shown(place)}, which has not ended," if unfinished else "A run"
    warning = f" {whose} cannot be resumed without its checkpoints." if count else ""
    return f"Remove {' and '.join(parts)}?{warning}"


def figures(place: Path, cleaned: Cleaned, /, *, now: float) -> dict[str, Any]:
    """Return the figures for `--json`."""
    return {
        "place": str(place),
        "removed": [
            {
                "path": str(left.holding.path),
                "backend": left.holding.backend,
                "runs": list(left.runs),
                "checkpoints": left.checkpoints,
                "bytes": left.nbytes,
                "age": None if left.newest is None else age(left.newest, now),
            }
            for left in cleaned.removed
        ],
        "in_use": list(map(str, cleaned.in_use)),
        "refused": {str(path): str(error) for path, error in cleaned.refused.items()},
        "bytes": sum(left.nbytes for left in cleaned.removed),
    }
