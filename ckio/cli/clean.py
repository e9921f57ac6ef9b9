"""`ckio clean`: what abandoned runs left in a place, removed."""

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click

from ckio import leftovers
from ckio.backends.contents import Stored
from ckio.cli import console
from ckio.cli.files import FILE
from ckio.cli.options import json_option
from ckio.cli.stored import age, age_text, counted, looked_for, shown
from ckio.errors import BadInput, LevelInUse, StorageError
from ckio.pictures.words import bytes_text
from ckio.places import Holding, holdings, in_use, is_run_directory, stored_by
from ckio.rundir import RESULT

_HEADER: Final = ("what", "level", "run", "checkpoints", "on disk", "newest")


@dataclass(frozen=True, slots=True)
class Leftover:
    """What an abandoned run keeps on a level.

    Attributes
    ----------
    holding : Holding
    runs : list of str
        The runs whose checkpoints these are.
    checkpoints : int
    nbytes : int
        Bytes that its files have on the disk.
    newest : float or None
        When its newest checkpoint was written, in seconds since 1970.
    """

    holding: Holding
    runs: Sequence[str]
    checkpoints: int
    nbytes: int
    newest: float | None


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be removed: leftovers, half-written files, perhaps the directory of the run."""

    left: Sequence[Leftover]
    scraps: Sequence[Path]
    results: Path | None

    def __bool__(self) -> bool:
        return bool(self.left or self.scraps or self.results)


@click.command()
@click.argument("place", type=FILE)
@click.option("--yes", is_flag=True, help="do not ask")
@click.option("--results", is_flag=True, help="of a run's directory: remove that too")
@json_option
def command(*, place: Path, yes: bool, results: bool, as_json: bool) -> None:
    """Remove what abandoned runs left in PLACE: checkpoints, and what was half written.

    PLACE is the directory of a run (--into), the place of a level, the directory that a run has
    there, or an archive. What a live process has open stays. A run whose checkpoints are removed
    cannot be resumed; its directory is kept, unless --results is given.
    """
    _check(place, yes=yes, results=results, as_json=as_json)
    plan, used = _survey(place, results=results)
    if plan and not yes and (sys.stdin is None or not sys.stdin.isatty()):
        raise BadInput("nobody is there to be asked before anything is removed; give --yes")
    if not as_json:
        _show(place, plan, used, now=time.time())
    if plan and not yes:
        click.confirm(shown(_question(place, plan)), abort=True)
    removed, refused = _perform(plan)
    used += [path for path, error in refused.items() if isinstance(error, LevelInUse)]
    if as_json:
        console.print_json(figures(place, removed, used, refused, now=time.time()))
    else:
        if removed:
            freed = sum(left.nbytes for left in removed)
            console.echo(f"removed: {bytes_text(freed)} are free again")
        if plan.results is not None and not refused:
            console.echo(f"removed: the results in {plan.results}")
    if refused:
        raise StorageError("; ".join(map(str, refused.values())))


def _check(place: Path, *, yes: bool, results: bool, as_json: bool) -> None:
    if place.is_symlink():
        raise BadInput(f"{place} is a symbolic link, which is not followed; name what it points to")
    if results and not is_run_directory(place):
        raise BadInput(f"{place} is not the directory of a run; leave --results out")
    if as_json and not yes:
        raise BadInput("--json asks nothing; give --yes too")


def _survey(place: Path, *, results: bool) -> tuple[Plan, list[Path]]:
    """What can be removed, and what is in use."""
    found = holdings(place)
    used = [holding.path for holding in found if holding.in_use()]
    if is_run_directory(place) and (used or in_use(place)):  # the run goes on
        return Plan((), (), None), used or [place]
    left = [_leftover(holding) for holding in found if holding.path not in used]
    return Plan(left, leftovers.scraps(place), place if results else None), used


def _leftover(holding: Holding) -> Leftover:
    try:
        stored = [found for found in holding.contents() if isinstance(found, Stored)]
    except StorageError:  # damaged all over: nobody reads what is in it
        stored = []
    newest = max((found.written for found in stored), default=None)
    runs = [run for run in stored_by(stored) if run]
    return Leftover(holding, runs, len(stored), leftovers.nbytes_on_disk(holding), newest)


def _show(place: Path, plan: Plan, used: Sequence[Path], *, now: float) -> None:
    if plan.left:
        rows = [
            [
                str(left.holding.path),
                left.holding.backend,
                ", ".join(map(shown, left.runs)),
                str(left.checkpoints),
                bytes_text(left.nbytes),
                "" if left.newest is None else age_text(age(left.newest, now)),
            ]
            for left in plan.left
        ]
        console.print_table("", _HEADER, rows)
    for path in plan.scraps:
        console.echo(f"{path} was never finished")
    for path in used:
        console.echo(f"{path} is in use and stays")
    if not plan:
        where = "" if used else looked_for(place)
        console.echo(f"nothing is left in {place} that could be removed{where}")


def _question(place: Path, plan: Plan) -> str:
    count = sum(left.checkpoints for left in plan.left)
    files = counted(len(plan.scraps), "unfinished file")
    parts = [
        *([f"{counted(count, 'checkpoint')}"] if plan.left else []),
        *([files] if plan.scraps else []),
        *([f"the directory {plan.results} with its results"] if plan.results else []),
    ]
    unfinished = is_run_directory(place) and not (place / RESULT).exists()
    whose = f"The run of {place}, which has not ended," if unfinished else "A run"
    warning = f" {whose} cannot be resumed without its checkpoints." if count else ""
    return f"Remove {' and '.join(parts)}?{warning}"


def _perform(plan: Plan) -> tuple[list[Leftover], dict[Path, StorageError]]:
    """Remove all that can be removed; returns what is gone, and what was refused."""
    removed: list[Leftover] = []
    refused: dict[Path, StorageError] = {}
    for left in plan.left:
        try:
            leftovers.remove(left.holding)
            removed.append(left)
        except StorageError as error:
            refused[left.holding.path] = error
    for path in plan.scraps:
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            refused[path] = StorageError(f"{path} cannot be removed: {error.strerror}")
    if plan.results is not None and not refused:
        leftovers.remove_results(plan.results)
    return removed, refused


def figures(
    place: Path,
    removed: Sequence[Leftover],
    used: Sequence[Path],
    refused: Mapping[Path, StorageError],
    /,
    *,
    now: float,
) -> dict[str, Any]:
    """What `--json` says."""
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
            for left in removed
        ],
        "in_use": list(map(str, used)),
        "refused": {str(path): str(error) for path, error in refused.items()},
        "bytes": sum(left.nbytes for left in removed),
    }
