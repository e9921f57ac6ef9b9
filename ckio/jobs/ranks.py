"""The ranks of a run: started by mpiexec or srun, or this process alone."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from ckio.errors import BadInput, CkioError, RankFailed
from ckio.jobs.directory import MANIFEST, SCHEDULE, RunDirectory
from ckio.jobs.levels import left_by
from ckio.jobs.request import Manifest
from ckio.model.comm import Comm, launched
from ckio.parallel.team import ALONE, Team
from ckio.platform import Platform

T = TypeVar("T")


@contextmanager
def all_ranks(comm: Comm | None = None) -> Iterator[Team]:
    """Give the ranks of this job, or of a communicator; what one of them raises all raise."""
    found = launched()
    if comm is None and (found is None or found[1] == 1):
        yield ALONE
        return
    if comm is None:
        from ckio.adapters.mpi import world

        comm = world()
    if comm.size == 1:
        yield ALONE
        return
    team = _Ranks(comm)
    try:
        with team.together():
            yield team
    except CkioError as error:
        if not error.shared:
            raise
        with suppress(RankFailed):  # of one that is gone
            team.leave(error)
        cause = error.__cause__
        if isinstance(cause, KeyboardInterrupt):
            raise cause from None  # which has an exit status of its own
        if isinstance(cause, CkioError):  # it says the same; what is behind it may say more
            error.__cause__, error.__suppress_context__ = cause.__cause__, False
        raise


def check_alike(team: Team, given: Mapping[str, Any], /) -> None:
    """Raise BadInput where ranks were started with other words than the first one."""
    every = team.gather({name: str(value) for name, value in given.items()})
    for rank, words in enumerate(every):
        for name in (name for name in words if words[name] != every[0][name]):
            raise BadInput(
                f"the ranks were started with different words: {name} is {words[name]} on rank"
                f" {rank}, and {every[0][name]} on rank 0"
            )


class _Ranks(Team):
    """The ranks that a command runs on.

    Attributes
    ----------
    directory : SharedDirectory or None
        That of a run of which nothing came on this rank.
    """

    directory: "SharedDirectory | None" = None

    def leave(self, error: CkioError, /) -> None:
        """Hear what all have left, when all are done; the first tells what it has not itself.

        Where it is nothing, the directory of the run goes.
        """
        every = self.comm.gather(left_by(error))
        if not any(every):
            if self.directory is not None:
                self.directory.remove()
        elif not every[0]:
            rank = next(rank for rank, notes in enumerate(every) if notes)
            error.add_note(f"{'; '.join(every[rank])} (rank {rank})")


def run_directory(path: Path, team: Team, /, *, resume: bool = False) -> RunDirectory:
    """The directory of a run, which its first rank has for all of them."""
    if team.is_alone:
        return RunDirectory(path, resume=resume)
    return SharedDirectory(path, team, resume=resume)


class SharedDirectory(RunDirectory):
    """The directory of a run of many ranks: the first one reads and writes it, and tells the rest.

    All ranks make it and call its methods together, but for `clear` and `release`, with which a
    rank may leave alone: what is to be cleared goes if it is on all ranks, when all have left.
    """

    def __init__(self, path: Path, team: Team, /, *, resume: bool) -> None:
        self.path, self._team = path, team
        self._own: RunDirectory | None = None

        def made() -> tuple[str, str]:
            self._own = own = RunDirectory(path, resume=resume)
            return own.id, "" if own.manifest is None else own.manifest.dumps()

        self.id, said = team.once(made)
        self.manifest = self._read(said) if said else None

    @property
    def has_ended(self) -> bool:
        return self._once(lambda own: own.has_ended)

    def begin(self, manifest: Manifest, /) -> None:
        def begun(own: RunDirectory) -> str:
            own.begin(manifest)
            assert own.manifest is not None
            return own.manifest.dumps()

        self.manifest = self._read(self._once(begun))

    def write(self, name: str, content: str | bytes, /) -> None:
        self._once(lambda own: own.write(name, content))

    def write_plan(self, schedule: str, predicted: str, /) -> None:
        self._once(lambda own: own.write_plan(schedule, predicted))

    def platform(self) -> Platform:
        text = self._once(lambda own: own.platform().dumps())
        return Platform.loads(text, source=str(self.path / SCHEDULE))

    def read(self, name: str, /) -> str:
        return self._once(lambda own: own.read(name))

    def clear(self) -> None:
        if isinstance(self._team, _Ranks):
            self._team.directory = self

    def release(self) -> None:
        # What may yet be removed is kept from others until this process ends.
        if self._own is not None and getattr(self._team, "directory", None) is not self:
            self._own.release()

    def remove(self) -> None:
        """Leave everything as it was before, and let others have it."""
        if self._own is not None:
            self._own.clear()
            self._own.release()

    def _read(self, said: str) -> Manifest:
        return Manifest.loads(said, source=str(self.path / MANIFEST))

    def _once(self, do: Callable[[RunDirectory], T]) -> T:
        own: Any = self._own
        return self._team.once(lambda: do(own))
