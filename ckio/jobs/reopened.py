"""The levels of a run that is resumed: whether it is the same run, and what of it survived."""

import logging
import shlex
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from ckio.actions import Key, nbytes_of
from ckio.adapters import registry
from ckio.backends.base import Backend
from ckio.backends.contents import Damaged, verified
from ckio.backends.ram import Ram
from ckio.backends.runid import of_rank
from ckio.errors import BadInput, LevelInUse, StorageError
from ckio.jobs import leftovers
from ckio.jobs.directory import RunDirectory
from ckio.jobs.leftovers import holdings
from ckio.jobs.levels import called, opened
from ckio.jobs.planning import with_room
from ckio.jobs.process import Process
from ckio.jobs.request import Manifest
from ckio.parallel.team import Team
from ckio.platform import Level, Platform

log = logging.getLogger("ckio")

_SHOWN: Final = 3
"""How many things that are damaged are told of a level."""


def check_same(given: Platform | None, manifest: Manifest, platform: Platform, /) -> Iterator[str]:
    """Say what differs between a platform that is given and that of the run."""
    if given is None or given.digest() == manifest.platform:
        return
    if with_room(given, manifest.chain).digest() != manifest.platform:
        yield f"--platform differs ({', '.join(_other_parts(given, platform))})"


def resume_line(into: Path, ranks: int, model: str | None = None, /) -> str:
    """Return the command that resumes a run of so many ranks.

    A model that is not installed with ckio or another package is named in it, as nothing is
    imported that a file alone names.
    """
    job = f"mpiexec -n {ranks} " if ranks > 1 else ""
    named = model is not None and model not in registry.names("models")
    words = f"{shlex.quote(model)} " if model and named else ""
    return f"{job}ckio run {words}--resume --into {shlex.quote(str(into))}"


def from_there(manifest: Manifest, into: Path, /, *, elsewhere: bool = False) -> str:
    """Return that line, with the way to the directory where the run was begun, if it is another.

    With `elsewhere` it is "" where that is the current directory.
    """
    model, here = manifest.request.model, Path(manifest.here).resolve()
    if not manifest.here or not here.is_dir() or here == Path.cwd():
        return "" if elsewhere else resume_line(into, manifest.ranks, model)
    there = into.resolve()
    near = there.relative_to(here) if there.is_relative_to(here) else there
    return f"cd {shlex.quote(str(here))} && {resume_line(near, manifest.ranks, model)}"


def check_here(manifest: Manifest, platform: Platform, into: Path, /) -> None:
    """Raise BadInput where a level is found only from the directory in which the run was begun."""
    line = from_there(manifest, into, elsewhere=True)
    first = manifest.run if manifest.ranks == 1 else of_rank(manifest.run, 0)
    for level in platform.levels if line else ():
        where = registry.place(level, first)
        if where is not None and not where.exists() and (Path(manifest.here) / where).exists():
            raise BadInput(
                f"{into} was begun in another directory, from which its level {level.name} is"
                f" {where}; go on with: {line}"
            )


def _other_parts(given: Platform, there: Platform) -> Iterator[str]:
    """Say what differs between two platforms."""
    if given.working_memory != there.working_memory:
        yield f"working_memory {given.working_memory} for {there.working_memory}"
    mine, theirs = ({level.name: level for level in found.levels} for found in (given, there))
    if list(mine) != list(theirs):
        yield f"levels {', '.join(mine)} for {', '.join(theirs)}"
        return
    for name, level in mine.items():
        yield from (
            f"{name}: {part} {getattr(level, part)} for {getattr(theirs[name], part)}"
            for part in ("capacity", "backend", "options", "write", "read", "discard", "ratio")
            if getattr(level, part) != getattr(theirs[name], part)
        )


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

        Its files may not grow any more, and what is damaged takes room of its own.
        """
        levels = list(self.platform.levels)
        level = levels[number]
        levels[number] = replace(level, capacity=nbytes)
        shown = "; ".join([*damage[:_SHOWN], *["..."] * (len(damage) > _SHOWN)])
        self.lost.append(f"level {level.name} is damaged and gets no more than it has: {shown}")
        platform = replace(self.platform, levels=tuple(levels))
        return replace(self, platform=platform, damaged=self.damaged | {number})

    def without(self, numbers: Iterable[int], why: str, /) -> "Reopened":
        """Return this without these levels: what lies there is lost, and no more is stored."""
        found = replace(
            self,
            backends=list(self.backends),
            survivors=list(self.survivors),
            damaged=self.damaged.difference(numbers),
            lost=list(self.lost),
        )
        levels = list(self.platform.levels)
        for number in numbers:
            found.lost.append(f"level {levels[number].name} is not used: {why}")
            found.backends[number], found.survivors[number] = Ram(capacity=0), set()
            levels[number] = replace(levels[number], capacity=0)
        return replace(found, platform=replace(self.platform, levels=tuple(levels)))


@contextmanager
def reopened(process: Process, manifest: Manifest, /) -> Iterator[Reopened]:
    """Open the levels of a run again, with what survived on them; closed as `opened` does.

    A corrupt checkpoint is discarded, and so is one that some rank of the team has not. A level
    that does not open, or does not let go of a corrupt checkpoint, is not used. Raises LevelInUse
    where another process has a level.
    """
    platform, team, run = process.platform, process.team, manifest.run
    count = len(platform.levels)
    found = Reopened(
        platform, [Ram(capacity=0)] * count, [set() for _ in range(count)], frozenset(), []
    )
    with ExitStack() as stack:
        for number, level in enumerate(platform.levels):
            where = registry.place(level, called(run, team))
            try:
                damage = _of_all(team, _damage(level, where))
                gone = [str(where)] if where is not None and not where.exists() else []
                for path in _of_all(team, gone):
                    found.lost.append(f"level {level.name}: {path} is not there, nor what it held")
                there = opened(
                    [level], run, keep=process.keeps, team=team, identity=manifest.identity
                )
                (backend,) = stack.enter_context(there)
                if not backend.durable:
                    found.backends[number] = backend
                    continue
                with process.display.progress(f"verifying {level.name}"):
                    sound, corrupt = verified(backend)
                held = sum(
                    level.stored(nbytes_of(backend.layout(key))) for key in sorted(sound, key=str)
                )
                held = max(team.gather(held))
            except LevelInUse:
                raise
            except (StorageError, BadInput) as error:
                found = found.without([number], str(error))
                continue
            found.backends[number], found.survivors[number] = backend, sound
            found.lost.extend(f"level {level.name}: {what}" for what in corrupt)
            if damage:
                found = found.full(number, held, damage)
        yield found


def _of_all(team: Team, words: list[str], /) -> list[str]:
    """Return what any rank has to say, the first of them with its number."""
    if team.is_alone:
        return words
    team.meet()
    every = [(rank, text) for rank, texts in enumerate(team.gather(words)) for text in texts]
    if len(every) <= _SHOWN:
        return [f"{text} (rank {rank})" for rank, text in every]
    rank, text = every[0]
    return [f"{text} (rank {rank}), and {len(every) - 1} more like this"]


def _damage(level: Level, where: Path | None) -> list[str]:
    """Say what was stored on a level and can no longer be told."""
    look = getattr(registry.find("backends", level.backend), "contents", None)
    if where is None or look is None or not where.exists():
        return []
    try:
        held = look(where)
    except BadInput:  # a process was killed before it stored anything, or opening it says more
        return []
    return [
        f"{item.path.name}, byte {item.offset}: {item.what}"
        for item in held
        if isinstance(item, Damaged)
    ]


def remove_left(directory: RunDirectory, platform: Platform, team: Team, /) -> None:
    """Remove the checkpoints that a process left which was killed after it wrote its result."""
    if not team.is_alone:
        _remove_parts(directory.id, platform, team)
        return
    for holding in holdings(directory.path):
        try:
            leftovers.remove(holding)
        except StorageError as error:
            log.warning("%s", error)


def _remove_parts(run: str, platform: Platform, team: Team) -> None:
    """What each rank has left where it sees it; nothing is made where nothing is."""
    own = called(run, team)
    places = [registry.place(level, own) for level in platform.levels]
    if any(team.gather(any(where is not None and where.exists() for where in places))):
        with opened(platform.levels, run, keep="nothing", team=team):
            pass
