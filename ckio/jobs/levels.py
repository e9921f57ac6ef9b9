"""The levels of a run: opening them, opening them again after a kill, and closing them.

`opened` removes the checkpoints of a run that has succeeded. `reopened` determines which
checkpoints of an earlier process are intact. It discards corrupt checkpoints, and does not use
levels that cannot be opened.
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

from ckio.actions import Key
from ckio.adapters.registry import backend_of, copies_at, is_shared, open_level, place
from ckio.backends.base import Backend
from ckio.backends.contents import Damaged, verified
from ckio.backends.ram import Ram
from ckio.backends.runid import of_rank, rank_of
from ckio.errors import BadInput, LevelInUse, StorageError
from ckio.jobs.display import Display
from ckio.parallel.agreed import AgreedLevel
from ckio.parallel.group import ALONE, RankGroup
from ckio.platform import Level, Platform

log = logging.getLogger("ckio")

_LEFT: Final = "ckio_left"
"""The attribute of an error with the texts about checkpoints that it leaves on levels."""

_SHOWN: Final = 3
"""The number of damaged items of a level that a message names."""


@contextmanager
def opened(
    levels: Sequence[Level],
    run: str,
    /,
    *,
    temporary: bool = False,
    ranks: RankGroup = ALONE,
    identity: str = "",
) -> Iterator[list[Backend]]:
    """Open levels for a run, and close them at the end.

    If the work has succeeded, its checkpoints are removed. A level that cannot be closed or removed
    then causes only a warning, because the result does not need it any more. After an error, the
    checkpoints remain, and the error gets a note with their location.

    Parameters
    ----------
    levels : sequence of Level
        The levels. Each rank has its own part of a level, or all ranks share it.
    run : str
        The name of the run on the levels.
    temporary : bool
        Whether the checkpoints are removed after an error, too.
    ranks : RankGroup
        The ranks of the job.
    identity : str
        The digest of the computation, which is stored with each checkpoint. A checkpoint with
        another identity is refused.
    """
    with ExitStack() as stack:
        backends: list[Backend] = []
        for level in levels:
            stack.callback(_remove_empty_folders, level, called(run, ranks))
            backends.append(stack.enter_context(_opened(level, run, temporary, ranks, identity)))
        yield backends


def left_by(error: BaseException, /) -> list[str]:
    """Return the texts about checkpoints that an error leaves on levels."""
    return list(getattr(error, _LEFT, ()))


def called(run: str, ranks: RankGroup, /) -> str:
    """Return the name of a run on the levels of this rank."""
    return run if ranks.is_alone else of_rank(run, ranks.rank)


@contextmanager
def _opened(
    level: Level, run: str, temporary: bool, ranks: RankGroup, identity: str
) -> Iterator[Backend]:
    own = called(run, ranks)
    open_ours = partial(open_level, level, run=own, ranks=ranks, identity=identity)
    backend = ranks.each(open_ours, undo=_left_as_it_was)
    try:
        yield backend if ranks.is_alone or is_shared(level) else AgreedLevel(backend, ranks)
    except BaseException as error:
        left = len(list(backend.keys())) if backend.durable and not temporary else 0
        with suppress(StorageError):  # the error that is being raised is more important
            backend.close() if left else backend.remove()
        if left:
            are = "checkpoint is" if left == 1 else "checkpoints are"
            text = f"{left} {are} left in {place(level, own) or level.name}"
            error.add_note(text)
            setattr(error, _LEFT, [*left_by(error), text])
        raise
    else:
        try:
            backend.remove()
        except (StorageError, OSError) as error:
            where = place(level, own) or level.name
            log.warning("the files of level %s remain (%s): %s", level.name, where, error)


def _remove_empty_folders(level: Level, run: str) -> None:
    """Remove the folder of a run on a level, and then that of all its ranks, if they are empty."""
    where, common = place(level, run), rank_of(run)[0]
    for folder in () if where is None else (where, where.parent):
        if common in (folder.name, folder.parent.name):
            with suppress(OSError):
                folder.rmdir()


def _left_as_it_was(backend: Backend) -> None:
    """Close a level that another rank could not open, and remove it if it has no checkpoints."""
    backend.close() if list(backend.keys()) else backend.remove()


@dataclass(frozen=True, slots=True)
class LevelsFound:
    """The levels of a run, as the process that resumes it opens them.

    Attributes
    ----------
    platform : Platform
        The platform; levels that are not used have the capacity 0.
    backends : list of Backend
        The open levels; an empty one stands for a level that is not used.
    survivors : list of set of Key
        The checkpoints on each level that were read and are intact.
    lost : list of str
        Texts about the checkpoints that are lost.
    """

    platform: Platform
    backends: list[Backend]
    survivors: list[set[Key]]
    lost: list[str]


@contextmanager
def reopened(
    platform: Platform,
    run: str,
    /,
    *,
    ranks: RankGroup,
    identity: str,
    display: Display,
) -> Iterator[LevelsFound]:
    """Open the levels of a run again, with the checkpoints that are intact; close like `opened`.

    A checkpoint that is corrupt, or that is missing on some rank, is discarded. A level that cannot
    be opened, cannot discard a corrupt checkpoint, or is damaged without an intact checkpoint is
    not used. Raises LevelInUse if another process has opened a level.
    """
    levels, lost = list(platform.levels), list[str]()
    backends: list[Backend] = [Ram(capacity=0) for _ in levels]
    survivors = [set[Key]() for _ in levels]
    with ExitStack() as stack:
        for number, level in enumerate(platform.levels):
            where = place(level, called(run, ranks))
            try:
                if damage := _of_all(ranks, _damage(level, where)):
                    shown = "; ".join([*damage[:_SHOWN], *["..."] * (len(damage) > _SHOWN)])
                    lost.append(f"level {level.name} is damaged: {shown}")
                missing = [str(where)] if where is not None and not may_exist(where) else []
                if (copies := copies_at(level, called(run, ranks))) is not None:
                    missing = missing if missing and not may_exist(copies) else []
                for path in _of_all(ranks, missing):
                    lost.append(f"level {level.name}: {path} and its checkpoints are missing")
                (backend,) = stack.enter_context(
                    opened([level], run, ranks=ranks, identity=identity)
                )
                sound, corrupt = set[Key](), list[str]()
                if backend.durable:
                    with display.progress(f"verifying {level.name}"):
                        sound, corrupt = verified(backend)
            except LevelInUse:
                raise
            except (StorageError, BadInput) as error:
                levels[number] = replace(level, capacity=0)
                lost.append(f"level {level.name} is not used: {error}")
                continue
            lost.extend(f"level {level.name}: {what}" for what in corrupt)
            if damage and not sound:  # its files may not grow any more
                levels[number] = replace(level, capacity=0)
                lost.append(f"level {level.name} is not used: none of its checkpoints is intact")
                continue
            backends[number], survivors[number] = backend, sound
        yield LevelsFound(replace(platform, levels=tuple(levels)), backends, survivors, lost)


def may_exist(path: Path, /) -> bool:
    """Return whether a path exists; true also if its disk has died, or is closed to this user.

    Then it is opened, and the error is that of the level.
    """
    try:
        return path.exists()
    except OSError:
        return True


def _of_all(ranks: RankGroup, words: list[str], /) -> list[str]:
    """Return the texts of all ranks with the numbers of the ranks, or the first and a count."""
    if ranks.is_alone:
        return words
    ranks.agree()
    every = [(rank, text) for rank, texts in enumerate(ranks.gather(words)) for text in texts]
    if len(every) <= _SHOWN:
        return [f"{text} (rank {rank})" for rank, text in every]
    rank, text = every[0]
    return [f"{text} (rank {rank}), and {len(every) - 1} more like this"]


def _damage(level: Level, where: Path | None) -> list[str]:
    """Return a text for each stored item of a level that can no longer be read."""
    if where is None or not may_exist(where):
        return []
    try:
        items = backend_of(level).contents(where)
    except (BadInput, OSError):  # nothing was stored yet, or opening it raises a better error
        return []
    return [
        f"{item.path.name}, byte {item.offset}: {item.what}"
        for item in items
        if isinstance(item, Damaged)
    ]
