"""The levels that commands work on: given in words, opened for one piece of work, and left."""

import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Literal

from ckio.backends.base import Backend
from ckio.backends.runid import of_rank, rank_of
from ckio.cli import console
from ckio.cli.options import typed
from ckio.errors import BadInput, StorageError
from ckio.platforms import Level, Option, Platform, size
from ckio.registry import close, is_shared, lossy, open_level, place
from ckio.rundir import missing_folders
from ckio.team import ALONE, Team
from ckio.team.levels import Agreed

Keep = Literal["nothing", "after errors", "everything"]
"""Which checkpoints stay on the levels: none, those of a failed run, or whatever is there."""


def parse_level(text: str, /, *, here: Path) -> Level:
    """A level from `NAME=BACKEND[:PLACE][,option=value]...`; a relative PLACE is made absolute.

    `capacity` is a size; everything else is an option of the backend, or of its codec
    (`codec=zstd`, `codec_level=3`).
    """
    match = re.fullmatch(r"([^=,]+)=([^:,]+)(?::([^,]*))?((?:,.*)?)", text)
    if not match:
        raise BadInput(f"--level {text!r} is not NAME=BACKEND[:PLACE][,option=value]...")
    name, backend, where, rest = match.groups()
    given: dict[str, str] = {}
    for part in filter(None, rest.split(",")):
        option, equals, value = part.partition("=")
        if not equals:
            raise BadInput(f"--level {text!r}: {part!r} is not option=value")
        given[option] = value
    capacity, channel = given.pop("capacity", None), given.pop("channel", "")
    options: dict[str, Option] = {option: typed(value) for option, value in given.items()}
    if where:
        options = {"path": str((here / _home(where)).absolute()), **options}
    try:
        nbytes = None if capacity is None else size(capacity)
        return Level(name=name, backend=backend, capacity=nbytes, channel=channel, options=options)
    except BadInput as error:
        raise BadInput(f"--level {text!r}: {error}") from None


def say_lossy(platform: Platform, /) -> None:
    """A line for each level that does not give back the very bytes it got."""
    for name, codec in lossy(platform).items():
        console.echo(f"level {name}: LOSSY, by {codec}")


def _home(where: str) -> Path:
    """A shell leaves a ~ in the middle of a word as it is."""
    try:
        return Path(where).expanduser()
    except RuntimeError as error:
        raise BadInput(f"{where}: {error}") from None


@contextmanager
def opened(
    levels: Sequence[Level], run: str, /, *, keep: Keep, team: Team = ALONE
) -> Iterator[list[Backend]]:
    """Levels open for the run called `run`; what is not kept on them is removed in the end.

    Each rank of a team has its own part of each, or all share it. An error that leaves checkpoints
    on a level gets a note that says where.
    """
    with ExitStack() as stack:
        backends: list[Backend] = []
        for level in levels:
            stack.enter_context(_no_new_folders(level, called(run, team)))
            team.meet()  # before one of them makes what another would then find
            backends.append(stack.enter_context(_opened(level, run, keep, team)))
        yield backends


def called(run: str, team: Team, /) -> str:
    """What a run is called on the levels of this rank."""
    return run if team.is_alone else of_rank(run, team.rank)


@contextmanager
def _opened(level: Level, run: str, keep: Keep, team: Team) -> Iterator[Backend]:
    own = called(run, team)
    open_ours = partial(open_level, level, run=own, team=team)
    backend = team.each(open_ours, undo=_left_as_it_was)
    try:
        yield backend if team.is_alone or is_shared(level) else Agreed(backend, team)
    except BaseException as error:
        left = len(list(backend.keys())) if backend.durable and keep != "nothing" else 0
        with suppress(StorageError):  # the error that is on its way says more
            _close(backend, level, own, remove=not left)
        if left:
            are = "checkpoint is" if left == 1 else "checkpoints are"
            error.add_note(f"{left} {are} left in {place(level, own) or level.name}")
        raise
    else:
        _close(backend, level, own, remove=keep != "everything")


def _close(backend: Backend, level: Level, run: str, /, *, remove: bool) -> None:
    """Close a level; with `remove`, its folder goes too, also where a killed process emptied it."""
    close(backend, remove=remove)
    where = place(level, run)
    if remove and where is not None and rank_of(run)[0] in (where.name, where.parent.name):
        with suppress(OSError):
            where.rmdir()


def _left_as_it_was(backend: Backend) -> None:
    """Close a level that others could not open; where nothing is stored nothing stays."""
    close(backend, remove=not list(backend.keys()))


@contextmanager
def _no_new_folders(level: Level, run: str) -> Iterator[None]:
    """Remove the folders above a level's files that were not there before, if they end up empty.

    What the ranks of a run have in common is removed by the last of them, whenever it was made.
    """
    where = place(level, run)
    new = [] if where is None else missing_folders(where.parent)
    if where is not None and where.parent.name == rank_of(run)[0]:
        new = list(dict.fromkeys([where.parent, *new]))
    try:
        yield
    finally:
        with suppress(OSError):
            for folder in new:
                if folder.exists():
                    folder.rmdir()
