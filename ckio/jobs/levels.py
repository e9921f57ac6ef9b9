"""The levels of a run: opened for one piece of work, and left as they are to be found."""

import logging
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import Final, Literal

from ckio.adapters.registry import close, is_shared, open_level, place
from ckio.backends.base import Backend
from ckio.backends.files import missing_folders
from ckio.backends.runid import of_rank, rank_of
from ckio.errors import StorageError
from ckio.parallel.agreed import AgreedLevel
from ckio.parallel.team import ALONE, Team
from ckio.platform import Level

log = logging.getLogger("ckio")

Keep = Literal["nothing", "after errors", "everything"]
"""Which checkpoints stay on the levels: none, those of a failed run, or whatever is there."""


_LEFT: Final = "ckio_left"
"""The attribute of an error that says what it leaves on levels."""


@contextmanager
def opened(
    levels: Sequence[Level], run: str, /, *, keep: Keep, team: Team = ALONE, identity: str = ""
) -> Iterator[list[Backend]]:
    """Open levels for the run called `run`; what is not kept on them is removed in the end.

    Each rank of a team has its own part of each, or all share it. What they store says that it is
    of this `identity`, and what says otherwise is refused. An error that leaves checkpoints on a
    level gets a note that says where. After work that ended well, a level that cannot be closed or
    removed is a warning: nothing that was achieved depends on it any more.
    """
    with ExitStack() as stack:
        backends: list[Backend] = []
        for level in levels:
            stack.enter_context(_no_new_folders(level, called(run, team)))
            team.meet()  # before one of them makes what another would then find
            backends.append(stack.enter_context(_opened(level, run, keep, team, identity)))
        yield backends


def left_by(error: BaseException, /) -> list[str]:
    """Return what an error leaves on levels, in words."""
    return list(getattr(error, _LEFT, ()))


def called(run: str, team: Team, /) -> str:
    """Return the name of a run on the levels of this rank."""
    return run if team.is_alone else of_rank(run, team.rank)


@contextmanager
def _opened(level: Level, run: str, keep: Keep, team: Team, identity: str) -> Iterator[Backend]:
    own = called(run, team)
    open_ours = partial(open_level, level, run=own, team=team, identity=identity)
    backend = team.each(open_ours, undo=_left_as_it_was)
    try:
        yield backend if team.is_alone or is_shared(level) else AgreedLevel(backend, team)
    except BaseException as error:
        left = len(list(backend.keys())) if backend.durable and keep != "nothing" else 0
        with suppress(StorageError):  # the error that is on its way says more
            _close(backend, level, own, remove=not left)
        if left:
            are = "checkpoint is" if left == 1 else "checkpoints are"
            text = f"{left} {are} left in {place(level, own) or level.name}"
            error.add_note(text)
            setattr(error, _LEFT, [*left_by(error), text])
        raise
    else:
        try:
            _close(backend, level, own, remove=keep != "everything")
        except (StorageError, OSError) as error:
            where = place(level, own) or level.name
            log.warning("what is on level %s stays there (%s): %s", level.name, where, error)


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
