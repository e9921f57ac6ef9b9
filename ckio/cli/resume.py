"""Going on with a run: whether it is the same one, and what of it is still there."""

import logging
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from ckio import leftovers, registry
from ckio.actions import Key
from ckio.backends.base import Backend
from ckio.backends.contents import Damaged
from ckio.backends.ram import Ram
from ckio.backends.runid import of_rank
from ckio.backends.verified import verified
from ckio.cli import console
from ckio.cli.job import How
from ckio.cli.levels import Keep, called, opened
from ckio.cli.models import Settings, identity
from ckio.errors import BadInput, LevelInUse, StorageError
from ckio.layout import nbytes_of
from ckio.leftovers import holdings
from ckio.overlap import Policy
from ckio.platforms import Level, Platform
from ckio.rundir import Manifest, RunDirectory
from ckio.team import ALONE, Team

log = logging.getLogger("ckio")

_SHOWN: Final = 3
"""How many things that are damaged are told of a level."""


@dataclass(frozen=True, kw_only=True)
class Given:
    """What a command line says of a run; None, and no entry, where it does not say it."""

    model: str | None
    settings: Settings
    steps: int | None
    platform: Platform | None
    planner: str | None
    options: Mapping[str, Any]
    overlap: Policy | None = None
    effort: int | None = None
    mtbf: float | None = None


def check_same(
    given: Given,
    manifest: Manifest,
    platform: Platform,
    control: str | None,
    where: object,
    /,
    *,
    by_variable: bool = False,
) -> None:
    """Raise BadInput, which names all differences, where this is not the run that was begun.

    `platform` is that of the run, and `control` the digest of the model's controls as they are now.
    With `by_variable`, it is one that stores single variables; without, it may be.
    """
    found = list(_differences(given, manifest, platform))
    if control != manifest.control:
        found.append("the controls of the model are others")
    if by_variable and not manifest.by_variable:
        found.append("--by-variable is given, the run stores whole checkpoints")
    if found:
        raise BadInput(
            f"{where} holds another run: {'; '.join(found)}. Resume it as it was begun, or choose"
            " another directory"
        )


def again(into: Path, ranks: int, /) -> str:
    """The line that goes on with a run of so many ranks."""
    job = f"mpiexec -n {ranks} " if ranks > 1 else ""
    return f"{job}ckio run --resume --into {shlex.quote(str(into))}"


def from_there(manifest: Manifest, into: Path, /) -> str:
    """That line with the way to where the run was begun, where that is another directory; or ""."""
    here = Path(manifest.here).resolve()
    if not manifest.here or not here.is_dir() or here == Path.cwd():
        return ""
    there = into.resolve()
    near = there.relative_to(here) if there.is_relative_to(here) else there
    return f"cd {shlex.quote(str(here))} && {again(near, manifest.ranks)}"


def check_here(manifest: Manifest, platform: Platform, into: Path, /) -> None:
    """Raise BadInput where a level is found only from the directory in which the run was begun."""
    line = from_there(manifest, into)
    first = manifest.run if manifest.ranks == 1 else of_rank(manifest.run, 0)
    for level in platform.levels if line else ():
        where = registry.place(level, first)
        if where is not None and not where.exists() and (Path(manifest.here) / where).exists():
            raise BadInput(
                f"{into} was begun in another directory, from which its level {level.name} is"
                f" {where}; go on with: {line}"
            )


def check_ranks(manifest: Manifest, where: object, how: How, /) -> None:
    """Raise BadInput where the run has another number of ranks: each of them has its own part."""
    if manifest.ranks != how.team.size:
        begun, now = (f"{n} rank{'s' * (n > 1)}" for n in (manifest.ranks, how.team.size))
        raise BadInput(
            f"{where} holds a run of {begun}, and this job has {now}: what a rank stored is its"
            f" own part of the state; resume it on {begun}"
        )


def _differences(given: Given, manifest: Manifest, platform: Platform) -> Iterator[str]:
    chain = manifest.chain
    if given.model not in (None, manifest.model):
        yield f"the model is {given.model}, that of the run {manifest.model}"
    for name, value in given.settings.items():
        there = manifest.settings.get(name)
        if identity("", {name: value}) != identity("", {} if there is None else {name: there}):
            was = "was not given" if there is None else f"is {there}"
            yield f"--set {name} is {value}, in the run it {was}"
    if given.steps not in (None, chain.steps):
        has = "was begun without" if chain.steps is None else f"has {chain.steps}"
        yield f"--steps is {given.steps}, the run {has}"
    if given.planner not in (None, manifest.planner):
        yield f"--planner is {given.planner}, that of the run {manifest.planner}"
    for name, value in given.options.items():
        if value is not None and value != (there := manifest.options.get(name)):
            was = "was not given" if there is None else f"is {there}"
            yield f"--{name} is {value}, in the run it {was}"
    if given.platform is not None and given.platform.digest() != manifest.platform:
        yield f"--platform differs ({', '.join(_other_parts(given.platform, platform))})"


def _other_parts(given: Platform, there: Platform) -> Iterator[str]:
    """What differs between two platforms, in words."""
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
class Found:
    """What a process that goes on finds.

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

    def full(self, number: int, nbytes: int, damage: Sequence[str], /) -> "Found":
        """The same with a damaged level, which gets no more than the bytes that are sound on it.

        Its files may not grow any more, and what is damaged takes room of its own.
        """
        levels = list(self.platform.levels)
        level = levels[number]
        levels[number] = replace(level, capacity=nbytes)
        shown = "; ".join([*damage[:_SHOWN], *["..."] * (len(damage) > _SHOWN)])
        self.lost.append(f"level {level.name} is damaged and gets no more than it has: {shown}")
        platform = replace(self.platform, levels=tuple(levels))
        return replace(self, platform=platform, damaged=self.damaged | {number})

    def without(self, numbers: Iterable[int], why: str, /) -> "Found":
        """The same without these levels: what lies there is lost, and nothing is stored there."""
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
def reopened(
    platform: Platform, run: str, /, *, keep: Keep, quiet: bool, team: Team = ALONE
) -> Iterator[Found]:
    """The levels of a run open again, with what survived on them; closed as `opened` does.

    A corrupt checkpoint is discarded, and so is one that some rank of the team has not. A level
    that does not open, or does not let go of a corrupt checkpoint, is not used. Raises LevelInUse
    where another process has a level.
    """
    count = len(platform.levels)
    found = Found(
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
                (backend,) = stack.enter_context(opened([level], run, keep=keep, team=team))
                if not backend.durable:
                    found.backends[number] = backend
                    continue
                with console.progress(f"verifying {level.name}", quiet=quiet):
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
    """What any rank has to say, the first of them with its number."""
    if team.is_alone:
        return words
    team.meet()
    every = [(rank, text) for rank, texts in enumerate(team.gather(words)) for text in texts]
    if len(every) <= _SHOWN:
        return [f"{text} (rank {rank})" for rank, text in every]
    rank, text = every[0]
    return [f"{text} (rank {rank}), and {len(every) - 1} more like this"]


def _damage(level: Level, where: Path | None) -> list[str]:
    """What was stored on a level and can no longer be told, in words."""
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
