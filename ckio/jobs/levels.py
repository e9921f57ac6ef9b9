"""The levels of a run: opened for one piece of work, opened again after a kill, and closed.

`opened` leaves on them what is to be kept. `reopened` says what survived of an earlier process: a
checkpoint that is corrupt is discarded, and a level that does not open is not used any more.
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final, Literal

from ckio.actions import Key, nbytes_of
from ckio.adapters.registry import close, find, is_shared, open_level, place
from ckio.backends.base import Backend
from ckio.backends.contents import Damaged, verified
from ckio.backends.files import missing_folders
from ckio.backends.ram import Ram
from ckio.backends.runid import of_rank, rank_of
from ckio.errors import BadInput, LevelInUse, StorageError
from ckio.jobs.display import Display
from ckio.parallel.agreed import AgreedLevel
from ckio.parallel.group import ALONE, RankGroup
from ckio.platform import Level, Platform

log = logging.getLogger("ckio")

Keep = Literal["nothing", "after errors", "everything"]
"""Which checkpoints stay on the levels: none, those of a failed run, or whatever is there."""

_LEFT: Final = "ckio_left"
"""The attribute of an error that says what it leaves on levels."""

_SHOWN: Final = 3
"""How many things that are damaged are told of a level."""


@contextmanager
def opened(
    levels: Sequence[Level],
    run: str,
    /,
    *,
    keep: Keep,
    ranks: RankGroup = ALONE,
    identity: str = "",
) -> Iterator[list[Backend]]:
    """Open levels for the run called `run`; what is not kept on them is removed in the end.

    Each rank has its own part of each, or all ranks share it. What they store says that it is
    of this `identity`, and what says otherwise is refused. An error that leaves checkpoints on a
    level gets a note that says where. After work that ended well, a level that cannot be closed or
    removed is a warning: nothing that was achieved depends on it any more.
    """
    with ExitStack() as stack:
        backends: list[Backend] = []
        for level in levels:
            stack.enter_context(_no_new_folders(level, called(run, ranks)))
            ranks.agree()  # before one of them makes what another would then find
            backends.append(stack.enter_context(_opened(level, run, keep, ranks, identity)))
        yield backends


def left_by(error: BaseException, /) -> list[str]:
    """Return what an error leaves on levels, in words."""
    return list(getattr(error, _LEFT, ()))


def called(run: str, ranks: RankGroup, /) -> str:
    """Return the name of a run on the levels of this rank."""
    return run if ranks.is_alone else of_rank(run, ranks.rank)


@contextmanager
def _opened(
    level: Level, run: str, keep: Keep, ranks: RankGroup, identity: str
) -> Iterator[Backend]:
    own = called(run, ranks)
    open_ours = partial(open_level, level, run=own, ranks=ranks, identity=identity)
    backend = ranks.each(open_ours, undo=_left_as_it_was)
    try:
        yield backend if ranks.is_alone or is_shared(level) else AgreedLevel(backend, ranks)
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


@dataclass(frozen=True)
class Reopened:
    """The levels of a run as the process that resumes it finds them.

    Attributes
    ----------
    platform : Platform
        The platform, on which levels that are not used have no capacity.
    backends : list of Backend
        The open levels; in the place of one that is not used, one that holds nothing.
    survivors : list of set of Key
        What is stored on each level and was read and found sound.
    damaged : frozenset of int
        The levels on which something is no longer sound of which it is not known what it was.
    lost : list of str
        What does not survive, in words.
    """

    platform: Platform
    backends: list[Backend]
    survivors: list[set[Key]]
    damaged: frozenset[int]
    lost: list[str]

    def full(self, number: int, nbytes: int, damage: Sequence[str], /) -> "Reopened":
        """Return this with a damaged level, which gets no more than the bytes that are sound on it.

        Its files may not grow any more, and what is damaged takes space of its own.
        """
        shown = "; ".join([*damage[:_SHOWN], *["..."] * (len(damage) > _SHOWN)])
        name = self.platform.levels[number].name
        line = f"level {name} is damaged and gets no more than it has: {shown}"
        smaller = self._with_capacity(number, nbytes, line)
        return replace(smaller, damaged=self.damaged | {number})

    def without(self, number: int, why: str, /) -> "Reopened":
        """Return this without a level: what lies there is lost, and no more is stored."""
        line = f"level {self.platform.levels[number].name} is not used: {why}"
        smaller = self._with_capacity(number, 0, line)
        smaller.backends[number], smaller.survivors[number] = Ram(capacity=0), set()
        return replace(smaller, damaged=self.damaged - {number})

    def _with_capacity(self, number: int, nbytes: int, line: str) -> "Reopened":
        """Return a copy in which a level has this capacity, and why is said in a line."""
        levels = list(self.platform.levels)
        levels[number] = replace(levels[number], capacity=nbytes)
        return replace(
            self,
            platform=replace(self.platform, levels=tuple(levels)),
            backends=list(self.backends),
            survivors=list(self.survivors),
            lost=[*self.lost, line],
        )


@contextmanager
def reopened(
    platform: Platform,
    run: str,
    /,
    *,
    keep: Keep,
    ranks: RankGroup,
    identity: str,
    display: Display,
) -> Iterator[Reopened]:
    """Open the levels of a run again, with what survived on them; closed as `opened` does.

    A corrupt checkpoint is discarded, and so is one that is missing on some rank. A level
    that does not open, or does not let go of a corrupt checkpoint, is not used. Raises LevelInUse
    where another process has a level.
    """
    count = len(platform.levels)
    state = Reopened(
        platform, [Ram(capacity=0)] * count, [set() for _ in range(count)], frozenset(), []
    )
    with ExitStack() as stack:
        for number, level in enumerate(platform.levels):
            where = place(level, called(run, ranks))
            try:
                damage = _of_all(ranks, _damage(level, where))
                missing = [str(where)] if where is not None and not where.exists() else []
                for path in _of_all(ranks, missing):
                    state.lost.append(f"level {level.name}: {path} is not there, nor what it held")
                (backend,) = stack.enter_context(
                    opened([level], run, keep=keep, ranks=ranks, identity=identity)
                )
                if not backend.durable:
                    state.backends[number] = backend
                    continue
                with display.progress(f"verifying {level.name}"):
                    sound, corrupt = verified(backend)
                keys = sorted(sound, key=str)
                nbytes = sum(level.stored(nbytes_of(backend.layout(key))) for key in keys)
                nbytes = max(ranks.gather(nbytes))
            except LevelInUse:
                raise
            except (StorageError, BadInput) as error:
                state = state.without(number, str(error))
                continue
            state.backends[number], state.survivors[number] = backend, sound
            state.lost.extend(f"level {level.name}: {what}" for what in corrupt)
            if damage:
                state = state.full(number, nbytes, damage)
        yield state


def _of_all(ranks: RankGroup, words: list[str], /) -> list[str]:
    """Return what any rank has to say, the first of them with its number."""
    if ranks.is_alone:
        return words
    ranks.agree()
    every = [(rank, text) for rank, texts in enumerate(ranks.gather(words)) for text in texts]
    if len(every) <= _SHOWN:
        return [f"{text} (rank {rank})" for rank, text in every]
    rank, text = every[0]
    return [f"{text} (rank {rank}), and {len(every) - 1} more like this"]


def _damage(level: Level, where: Path | None) -> list[str]:
    """Say what was stored on a level and can no longer be read."""
    look = getattr(find("backends", level.backend), "contents", None)
    if where is None or look is None or not where.exists():
        return []
    try:
        items = look(where)
    except BadInput:  # a process was killed before it stored anything, or opening it says more
        return []
    return [
        f"{item.path.name}, byte {item.offset}: {item.what}"
        for item in items
        if isinstance(item, Damaged)
    ]
