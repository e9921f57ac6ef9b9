"""The directory of a run: its identity, its plan, and its result.

    manifest.json     the identity of the run, with the data for resuming it: see `Manifest`
    control.h5        the controls, if any were given
    states.txt        hashes of states that a later process compares: see `ckio.jobs.states`
    platform.toml     the platform, if the run calibrated it itself
    schedule.txt      the schedule of the last process, with the platform
    schedule-1.txt    the schedule of the first process, if there were several; then schedule-2, ...
    predicted.txt     the simulated timeline of schedule.txt
    gradient.h5       functional, controls and gradient: see `ckio.jobs.gradients`
    result.json       the entries that `ckio run --json` prints, after the run has ended
    measured.txt      the measured timeline; missing if the disk was full after the result

The last four are written in this order. The space of the gradient and of the result is reserved
when the run begins, in the temporary files with which they are written (see `write_whole`).
The first plan is written before the manifest, and the manifest before any checkpoint. A directory
without a manifest therefore has no run that could be resumed. Checkpoints are not stored in the
directory: they are on the levels, under the run's id.

Each text ends with its checksum, which is verified when the text is read. In JSON it is the last
entry, and otherwise a comment on a separate line. Nothing is read or written through a symbolic
link.
"""

import errno
import fcntl
import json
import os
import re
import secrets
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import count, takewhile
from pathlib import Path
from typing import Any, Final, TypeVar

import xxhash

from ckio.backends.files import (
    OTHER,
    lock_by,
    locking,
    missing_folders,
    part_of,
    reserve,
    user_of,
    write_whole,
)
from ckio.errors import BadInput, CkioError, LevelInUse, RankFailed
from ckio.jobs.levels import left_by
from ckio.jobs.request import FORMAT, Manifest
from ckio.model.comm import Comm, launched
from ckio.parallel.group import ALONE, RankGroup
from ckio.platform import Platform

T = TypeVar("T")

MANIFEST, SCHEDULE, RESULT = "manifest.json", "schedule.txt", "result.json"
PREDICTED, MEASURED = "predicted.txt", "measured.txt"
CONTROL, GRADIENT, PLATFORM = "control.h5", "gradient.h5", "platform.toml"
STATES = "states.txt"

_NAMES: Final = (
    r"(manifest|result)\.json|(schedule|predicted|measured)(-\d+)?\.txt|states\.txt"
    r"|(control|gradient)\.h5|platform\.toml"
)
WHOLE: Final = re.compile(_NAMES)
HALF: Final = re.compile(rf"\.({_NAMES})\.part")
"""The names of a run's files: complete files, and partly written ones."""

_MOST: Final = 1 << 32
"""The most bytes of a text in a run's directory: a schedule of a hundred million actions."""

_SEAL_OF_TEXT: Final = re.compile(r"## xxh3_128 ([0-9a-f]{32})\n\Z")
_SEAL_OF_JSON: Final = re.compile(r',\s*"checksum": "([0-9a-f]{32})"\s*\}\s*\Z')


class NewDirectory:
    """A new or empty directory for the files of one task.

    Raises BadInput if it is not empty or cannot be written.
    """

    def __init__(self, path: Path, /, *, what: str = "results") -> None:
        self.path = path
        self._written = list[str]()
        self._made = missing_folders(path)
        try:
            path.mkdir(parents=True, exist_ok=True)
            held = self._in_the_way()
        except OSError as error:
            self._remove_folders()
            raise BadInput(
                f"{path}: cannot hold {what}: {error.strerror}; choose another directory"
            ) from None
        _check_empty(path, held, what)
        if not os.access(path, os.W_OK | os.X_OK):
            raise BadInput(f"{path}: cannot hold {what}: not writable; choose another directory")

    def write(self, name: str, content: str | bytes, /) -> None:
        """Write a file completely or not at all. It is on the disk when the method returns."""
        self._written.append(name)
        try:
            write_whole(self.path / name, content)
        except OSError as error:
            raise BadInput(f"{self.path / name}: cannot be written: {error.strerror}") from None

    def clear(self) -> None:
        """Remove the files that were written, the last first, and the directory if it is empty."""
        for name in reversed(self._written):
            with suppress(OSError):
                (self.path / name).unlink(missing_ok=True)
        self._remove_folders()

    def _in_the_way(self) -> list[str]:
        """Return the names in the directory that should not be there; raises OSError."""
        return sorted(entry.name for entry in self.path.iterdir())

    def _remove_folders(self) -> None:
        with suppress(OSError):
            for folder in self._made:
                folder.rmdir()


def check_new(path: Path, /, *, what: str = "a run") -> None:
    """Raise BadInput if a directory is not empty.

    This is called before long work whose results go to the directory. Other errors are found when
    the directory is created.
    """
    with suppress(OSError):
        _check_empty(path, sorted(entry.name for entry in path.iterdir()), what)


def _check_empty(path: Path, held: list[str], what: str) -> None:
    if held:
        run = MANIFEST in held
        holds = "already holds a run" if run else f"is not empty ({held[0]})"
        hint = "resume it by --resume, or " if run else ""
        raise BadInput(f"{path}: it {holds}; {hint}choose another directory for {what}")


class RunDirectory(NewDirectory):
    """The directory of a run. One process at a time locks it, until `release` or its end.

    Parameters
    ----------
    path
        The directory.
    resume
        Whether the directory may have a run, which is then resumed. In this case, files of a
        process that was killed before it wrote the manifest are removed.

    Attributes
    ----------
    id : str
        The name of the run on every level: eight hexadecimal digits.
    manifest : Manifest or None
        The manifest; None until it is written.

    Raises
    ------
    BadInput
        If the directory has other files, or a run although `resume` is false, or cannot be used.
    LevelInUse
        If another process works on the same run.
    """

    manifest: Manifest | None = None

    def __init__(self, path: Path, /, *, resume: bool = False) -> None:
        self._resume, self._fd = resume, -1
        try:
            super().__init__(path, what="a run")
        except BaseException:
            self.release()
            raise
        self.id = secrets.token_hex(4) if self.manifest is None else self.manifest.run

    @property
    def has_ended(self) -> bool:
        """Whether the directory has a result."""
        return os.path.lexists(self.path / RESULT)

    def write(self, name: str, content: str | bytes, /) -> None:
        super().write(name, sealed(content) if isinstance(content, str) else content)

    def append(self, name: str, line: str, /) -> None:
        """Add a line to an existing file, if this is possible; only the first rank does it."""
        with suppress(OSError):
            fd = os.open(self.path / name, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC)
            with os.fdopen(fd, "wb") as file:
                file.write(line.encode())

    def begin(self, manifest: Manifest, /) -> None:
        """Write the manifest, with the current directory. From now on the run can be resumed."""
        begun = replace(manifest, here=str(Path.cwd()))
        self.write(MANIFEST, begun.dumps())
        self.manifest = begun

    def reserve(self, sizes: Mapping[str, int], /) -> None:
        """Reserve space for files that are written at the end; raises BadInput if the disk is full.

        `sizes` gives the bytes of each file.
        """
        for name, nbytes in sizes.items():
            self._written.append(part_of(self.path / name).name)
            try:
                reserve(self.path / name, nbytes)
            except OSError as error:
                raise BadInput(
                    f"{self.path}: the {nbytes} bytes of {name} cannot be reserved:"
                    f" {error.strerror}; free space, or choose another directory"
                ) from None

    def write_plan(self, schedule: str, predicted: str, /) -> None:
        """Write the texts of this process's plan, and keep the earlier schedule under a number."""
        last = self.path / SCHEDULE
        if last.exists():
            names = (f"schedule-{number}.txt" for number in count(1))
            name = next(name for name in names if not os.path.lexists(self.path / name))
            with suppress(OSError):  # without links, only the last schedule is kept
                os.link(last, self.path / name, follow_symlinks=False)
                self._written.append(name)
        self.write(SCHEDULE, schedule)
        self.write(PREDICTED, predicted)

    def platform(self) -> Platform:
        """Return the platform that schedule.txt was made for; raises BadInput."""
        return sound_platform_in(self.path)

    def read(self, name: str, /) -> str:
        """Return the text of a file of the run, without its checksum.

        Raises BadInput if the file cannot be read, is a symbolic link, or was changed.
        """
        return unsealed(read_text(self.path / name), self.path / name)

    def clear(self) -> None:
        """Remove the files that were written, and the directory if it is empty.

        Nothing is removed if the gradient was written. If the process is killed meanwhile, the run
        can still be resumed, or a new one be begun.
        """
        if not os.path.lexists(self.path / GRADIENT):
            super().clear()

    def release(self) -> None:
        """Unlock the directory for other processes. It may be called twice."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)

    def _in_the_way(self) -> list[str]:
        self._fd = _locked(self.path)
        held = super()._in_the_way()
        if not self._resume:
            return held
        if MANIFEST in held:
            self.manifest = manifest_in(self.path)
            return []
        others = [name for name in held if not self._is_left(name)]
        for name in held if not others else ():
            (self.path / name).unlink()
        return others

    def _is_left(self, name: str) -> bool:
        """Return whether a process left this file that was killed before it wrote the manifest.

        The texts of ckio have a checksum, so that a platform file of the user is not one of them.
        The controls have none; they are written after the plan.
        """
        if HALF.fullmatch(name):
            return True
        text = SCHEDULE if name in (CONTROL, STATES) else name
        if text not in (PLATFORM, SCHEDULE, PREDICTED):
            return False
        try:
            self.read(text)
        except BadInput:
            return False
        return True


def _locked(path: Path) -> int:
    """Return the open, locked directory; without a lock if its file system has none."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with locking(path):
            lock_by(lambda: fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB))
    except BlockingIOError:
        ours = user_of(fd) != OTHER
        os.close(fd)
        who = "this process works on it already" if ours else "another process works on this run"
        raise LevelInUse(f"{path}: {who}; wait for its end") from None
    return fd


def manifest_in(path: Path, /) -> Manifest:
    """Read the manifest in the directory of a run; raises BadInput if it is damaged."""
    file = path / MANIFEST
    text = read_text(file)
    said: object = None
    with suppress(ValueError, RecursionError):
        said = json.loads(text)
    if isinstance(said, dict) and said.get("format") not in (None, FORMAT):
        return Manifest.loads(text, source=f"{file}")  # raises BadInput for another format
    return Manifest.loads(unsealed(text, file), source=f"{file}")


def sound_platform_in(path: Path, /) -> Platform:
    """Read the platform in schedule.txt of the directory of a run.

    Raises BadInput if the file was changed.
    """
    text = unsealed(read_text(path / SCHEDULE), path / SCHEDULE)
    return _platform_of(iter(text.splitlines(keepends=True)), path / SCHEDULE)


def platform_in(schedule: Path, /) -> Platform:
    """Read the platform in the headers of a file with a schedule; raises BadInput."""
    with reading(schedule) as fd, os.fdopen(fd, encoding="utf-8", closefd=False) as file:
        return _platform_of(file, schedule)


def _platform_of(lines: Iterator[str], schedule: Path) -> Platform:
    headers = takewhile(lambda line: line.startswith("#"), lines)
    toml = [line[2:].strip("\n") for line in headers if line.startswith("#|")]
    return Platform.loads("\n".join(toml), source=f"{schedule}, its platform")


def read_text(path: Path, /) -> str:
    """Return the text of a regular file; raises BadInput, also for a symbolic link."""
    with reading(path) as fd:
        if (size := os.fstat(fd).st_size) > _MOST:
            raise BadInput(
                f"{path} has {size} bytes; a file of a run has at most {_MOST}; restore the file"
            )
        with os.fdopen(fd, encoding="utf-8", closefd=False, newline="") as file:
            return file.read()


@contextmanager
def reading(path: Path, /) -> Iterator[int]:
    """Open a regular file; raises BadInput for every failure, also for a symbolic link."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise BadInput(f"{path} cannot be read: it is no regular file")
            yield fd
        finally:
            os.close(fd)
    except UnicodeDecodeError:
        raise BadInput(f"{path}: not text") from None
    except OSError as error:
        is_link = error.errno == errno.ELOOP
        why = "it is a symbolic link, which is not followed" if is_link else error.strerror
        raise BadInput(f"{path} cannot be read: {why}") from None


def sealed(text: str, /) -> str:
    """Return a text with its checksum at the end: an entry in JSON, and otherwise a comment."""
    body = text.rstrip()
    if body.startswith("{"):
        body = body.removesuffix("}").rstrip()
        return f'{body}, "checksum": "{checksum_of(body.encode())}"}}\n'
    text = text if not text or text.endswith("\n") else f"{text}\n"
    return f"{text}## xxh3_128 {checksum_of(text.encode())}\n"


def unsealed(text: str, source: object, /) -> str:
    """Return a text without its checksum; raises BadInput if the checksum does not match."""
    is_json = text.startswith("{")
    seal = (_SEAL_OF_JSON if is_json else _SEAL_OF_TEXT).search(text, max(0, len(text) - 256))
    body = text[: seal.start()] if seal else ""
    if seal is None or checksum_of(body.encode()) != seal[1]:
        raise BadInput(
            f"{source} is damaged: it is not as ckio wrote it (its checksum differs); restore it,"
            " or begin a new run in another directory"
        )
    return f"{body}}}" if is_json else body


def checksum_of(data: bytes, /) -> str:
    """Return the checksum of a file's bytes."""
    return xxhash.xxh3_128(data).hexdigest()


@contextmanager
def all_ranks(comm: Comm | None = None) -> Iterator[RankGroup]:
    """Return a context with the ranks of this job, or of `comm`. All raise an error of any rank."""
    own: Any = None
    if comm is None and (launched() or (0, 1))[1] > 1:
        from ckio.adapters.mpi import world

        comm = own = world()
    if comm is None or comm.size == 1:
        yield ALONE
        return
    ranks = _Ranks(comm)
    try:
        with ranks.together():
            yield ranks
        if own is not None:
            own.free()
    except CkioError as error:
        if not error.shared:
            raise
        with suppress(RankFailed):  # of a rank that has ended
            ranks.leave(error)
        cause = error.__cause__
        if isinstance(cause, KeyboardInterrupt):
            raise cause from None  # because it has an exit status of its own
        if isinstance(cause, CkioError):  # has the same text, but its own cause may have more
            error.__cause__, error.__suppress_context__ = cause.__cause__, False
        raise


def check_alike(ranks: RankGroup, given: Mapping[str, Any], /) -> None:
    """Raise BadInput if a rank was started with other options than the first one."""
    every = ranks.gather({name: str(value) for name, value in given.items()})
    for rank, words in enumerate(every):
        for name in (name for name in words if words[name] != every[0][name]):
            raise BadInput(
                f"the ranks were started with different options: {name} is {words[name]} on rank"
                f" {rank}, and {every[0][name]} on rank 0; start all ranks with the same options"
            )


class _Ranks(RankGroup):
    """The ranks on which a command runs.

    Attributes
    ----------
    directory : SharedDirectory or None
        The directory of a run that failed without a checkpoint on this rank.
    """

    directory: "SharedDirectory | None" = None

    def leave(self, error: CkioError, /) -> None:
        """Gather the checkpoints that an error leaves on all ranks, after all have finished.

        If there are none, the directory of the run is removed. If the first rank has none, the
        error gets a note about those of another rank, because only the first rank prints it.
        """
        every = self.comm.gather(left_by(error))
        if not any(every):
            if self.directory is not None:
                self.directory.remove()
        elif not every[0]:
            rank = next(rank for rank, notes in enumerate(every) if notes)
            error.add_note(f"{'; '.join(every[rank])} (rank {rank})")


def run_directory(path: Path, ranks: RankGroup, /, *, resume: bool = False) -> RunDirectory:
    """Return the directory of a run. With several ranks, the first rank accesses it for all."""
    if ranks.is_alone:
        return RunDirectory(path, resume=resume)
    return SharedDirectory(path, ranks, resume=resume)


class SharedDirectory(RunDirectory):
    """The directory of a run of many ranks. The first rank reads and writes it for all.

    The constructor and the methods are collective calls, except `clear` and `release`, which a rank
    may call alone. The files are removed only if all ranks have called `clear`, after the last one.
    """

    def __init__(self, path: Path, ranks: RankGroup, /, *, resume: bool) -> None:
        self.path, self._ranks = path, ranks
        self._own: RunDirectory | None = None

        def opened() -> tuple[str, Manifest | None]:
            self._own = RunDirectory(path, resume=resume)
            return self._own.id, self._own.manifest

        self.id, self.manifest = ranks.once(opened)

    @property
    def has_ended(self) -> bool:
        return self._once(lambda own: own.has_ended)

    def begin(self, manifest: Manifest, /) -> None:
        def begun(own: RunDirectory) -> Manifest | None:
            own.begin(manifest)
            return own.manifest

        self.manifest = self._once(begun)

    def write(self, name: str, content: str | bytes, /) -> None:
        self._once(lambda own: own.write(name, content))

    def reserve(self, sizes: Mapping[str, int], /) -> None:
        self._once(lambda own: own.reserve(sizes))

    def append(self, name: str, line: str, /) -> None:
        if self._own is not None:
            self._own.append(name, line)

    def write_plan(self, schedule: str, predicted: str, /) -> None:
        self._once(lambda own: own.write_plan(schedule, predicted))

    def platform(self) -> Platform:
        return self._once(lambda own: own.platform())

    def read(self, name: str, /) -> str:
        return self._once(lambda own: own.read(name))

    def clear(self) -> None:
        if isinstance(self._ranks, _Ranks):
            self._ranks.directory = self

    def release(self) -> None:
        # A directory that may still be removed stays locked until this process ends.
        if self._own is not None and getattr(self._ranks, "directory", None) is not self:
            self._own.release()

    def remove(self) -> None:
        """Remove the files of the run, and unlock the directory."""
        if self._own is not None:
            self._own.clear()
            self._own.release()

    def _once(self, do: Callable[[RunDirectory], T]) -> T:
        own: Any = self._own
        return self._ranks.once(lambda: do(own))
