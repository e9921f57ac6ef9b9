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
entry, and otherwise a comment on a separate line.
"""

import errno
import os
import re
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import count, takewhile
from pathlib import Path
from typing import Any, Final

import xxhash

from ckio.backends.files import (
    lock_directory,
    missing_folders,
    part_of,
    remove_directories,
    reserve,
    write_whole,
)
from ckio.errors import BadInput, CkioError
from ckio.jobs.request import Manifest
from ckio.model.comm import Comm, launched
from ckio.parallel.group import ALONE, RankGroup
from ckio.platform import Platform
from ckio.platform.readable import option, path_of

MANIFEST, SCHEDULE, RESULT = "manifest.json", "schedule.txt", "result.json"
PREDICTED, MEASURED = "predicted.txt", "measured.txt"
CONTROL, GRADIENT, PLATFORM = "control.h5", "gradient.h5", "platform.toml"
STATES = "states.txt"

_FIRST: Final = (PLATFORM, SCHEDULE, PREDICTED, CONTROL, STATES)
"""The files that are written before the manifest."""

_PATHS: Final = ("path", "copies")
"""The options of a level that are paths."""

_SEAL_OF_TEXT: Final = re.compile(r"## xxh3_128 ([0-9a-f]{32})\n\Z")
_SEAL_OF_JSON: Final = re.compile(r',\s*"checksum": "([0-9a-f]{32})"\s*\}\s*\Z')


class RunDirectory:
    """The directory of a run. One process at a time locks it, until `release` or its end.

    With many ranks, the first one reads and writes the files for all. The constructor and the
    methods are collective calls, except `append`, `clear` and `release`.

    Parameters
    ----------
    path
        The directory.
    ranks
        The ranks of the job.
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

    def __init__(self, path: Path, ranks: RankGroup = ALONE, /, *, resume: bool = False) -> None:
        self.path, self.ranks, self._fd = path, ranks, -1
        self._written, self._made = list[str](), missing_folders(path)

        def opened() -> Manifest | str:
            try:
                path.mkdir(parents=True, exist_ok=True)
                return self._open(resume=resume) or secrets.token_hex(4)
            except OSError as error:
                self.release()
                remove_directories(self._made)
                raise BadInput(
                    f"{path}: cannot hold a run: {error.strerror}; choose another directory:"
                    f" {option('directory', 'DIR')}"
                ) from None
            except BaseException:
                self.release()
                raise

        found = ranks.once(opened)
        self.manifest = found if isinstance(found, Manifest) else None
        self.id = found.run if isinstance(found, Manifest) else found

    def _open(self, *, resume: bool) -> Manifest | None:
        """Lock the directory, and return the manifest of the run that is resumed, if any.

        Files that a process left which was killed before it wrote the manifest are removed.
        """
        self._fd = lock_directory(self.path)
        held = sorted(entry.name for entry in self.path.iterdir())
        if resume and MANIFEST in held:
            return manifest_in(self.path)
        if others := [name for name in held if not (resume and self._is_left(name))]:
            is_run = MANIFEST in others
            holds = "already holds a run" if is_run else f"is not empty ({others[0]})"
            hint = f"resume it by {option('resume')}, or " if is_run else ""
            raise BadInput(
                f"{self.path}: it {holds}; {hint}choose another directory for a run:"
                f" {option('directory', 'DIR')}"
            )
        for name in held:
            (self.path / name).unlink()
        if not os.access(self.path, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, "not writable")
        return None

    @property
    def has_ended(self) -> bool:
        """Whether the directory has a result."""
        return self.ranks.once(lambda: os.path.lexists(self.path / RESULT))

    def write(self, name: str, content: str | bytes, /) -> None:
        """Write a file completely or not at all. It is on the disk when the method returns."""
        self.ranks.once(lambda: self._write(name, content))

    def _write(self, name: str, content: str | bytes) -> None:
        self._written.append(name)
        try:
            write_whole(self.path / name, sealed(content) if isinstance(content, str) else content)
        except OSError as error:
            raise BadInput(f"{self.path / name}: cannot be written: {error.strerror}") from None

    def append(self, name: str, line: str, /) -> None:
        """Add a line to an existing file, if this is possible; only the first rank does it."""
        if not self.ranks.rank and (self.path / name).exists():
            with suppress(OSError), (self.path / name).open("ab") as file:
                file.write(line.encode())

    def begin(self, manifest: Manifest, /) -> None:
        """Write the manifest. From now on the run can be resumed.

        The first process of a run determines from where relative paths are found.
        """
        if not manifest.here:
            here = self.ranks.once(lambda: os.path.relpath(Path.cwd(), self.path.resolve()))
            manifest = replace(manifest, here=here)
        self.manifest = manifest
        self.write(MANIFEST, self.manifest.dumps())

    def reserve(self, sizes: Mapping[str, int], /) -> None:
        """Reserve space for files that are written at the end; raises BadInput if the disk is full.

        `sizes` gives the bytes of each file.
        """

        def reserved() -> None:
            for name, nbytes in sizes.items():
                self._written.append(part_of(self.path / name).name)
                try:
                    reserve(self.path / name, nbytes)
                except OSError as error:
                    raise BadInput(
                        f"{self.path}: the {nbytes} bytes of {name} cannot be reserved:"
                        f" {error.strerror}; free space, or choose another directory"
                    ) from None

        self.ranks.once(reserved)

    def write_plan(self, schedule: str, predicted: str, /) -> None:
        """Write the texts of this process's plan, and keep the earlier schedule under a number."""

        def written() -> None:
            last = self.path / SCHEDULE
            if last.exists():
                names = (f"schedule-{number}.txt" for number in count(1))
                name = next(name for name in names if not os.path.lexists(self.path / name))
                with suppress(OSError):  # without links, only the last schedule is kept
                    os.link(last, self.path / name)
                    self._written.append(name)
            self._write(SCHEDULE, schedule)
            self._write(PREDICTED, predicted)

        self.ranks.once(written)

    def platform(self) -> Platform:
        """Return the platform that schedule.txt was made for; raises BadInput."""
        return self.ranks.once(lambda: platform_in(self.path / SCHEDULE))

    def read(self, name: str, /) -> str:
        """Return the text of a file of the run, without its checksum.

        Raises BadInput if the file cannot be read or was changed.
        """
        return self.ranks.once(lambda: read_sealed(self.path / name))

    def clear(self) -> None:
        """Remove the files that were written, and the directory if it is empty.

        Nothing is removed if the gradient was written. If the process is killed meanwhile, the run
        can still be resumed, or a new one be begun.
        """
        if self.ranks.rank or os.path.lexists(self.path / GRADIENT):
            return
        for name in reversed(self._written):
            with suppress(OSError):
                (self.path / name).unlink(missing_ok=True)
        remove_directories(self._made)

    def release(self) -> None:
        """Unlock the directory for other processes. It may be called twice."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)

    def _is_left(self, name: str) -> bool:
        """Return whether a process left this file that was killed before it wrote the manifest.

        The texts of ckio have a checksum, so that a platform file of the user is not one of them.
        The controls and the states have none; they are written after the plan.
        """
        if name not in _FIRST:
            parts = (part_of(Path(it)).name for it in (*_FIRST, MANIFEST, GRADIENT, RESULT))
            return name in parts
        try:
            read_sealed(self.path / (SCHEDULE if name in (CONTROL, STATES) else name))
        except BadInput:
            return False
        return True


def is_run_directory(path: Path, /) -> bool:
    """Return whether a path is the directory of a run, made by `ckio run --into`."""
    return (path / MANIFEST).is_file()


def no_run(path: Path, /) -> BadInput:
    """Return the error for a directory in which no run was begun."""
    return BadInput(
        f"{path}: not the directory of a run, because it has no {MANIFEST}; give the directory that"
        " `ckio run --into` wrote"
    )


def manifest_in(path: Path, /) -> Manifest:
    """Read the manifest in the directory of a run; raises BadInput if it is damaged."""
    file = path / MANIFEST
    return Manifest.loads(read_sealed(file), source=f"{file}")


def platform_in(schedule: Path, /) -> Platform:
    """Read the platform in the headers of schedule.txt; raises BadInput if it was changed."""
    lines = read_sealed(schedule).splitlines()
    headers = takewhile(lambda line: line.startswith("#"), lines)
    toml = [line[2:] for line in headers if line.startswith("#|")]
    return Platform.loads("\n".join(toml), source=f"{schedule}, its platform")


def with_paths(platform: Platform, path: Path, manifest: Manifest, /) -> Platform:
    """Return the platform of a run in this directory with paths that are right from here.

    Relative paths of levels refer to the directory in which the run was begun. They are found from
    that of the run, so that both can be moved together, and the run be resumed from any directory.
    """
    base = (path / manifest.here).resolve()
    if base == Path.cwd():
        return platform
    levels = []
    for level in platform.levels:
        paths = {name: level.options[name] for name in _PATHS if name in level.options}
        here = {name: str(base / path_of(str(path))) for name, path in paths.items()}
        levels.append(replace(level, options={**level.options, **here}))
    return replace(platform, levels=tuple(levels))


def read_sealed(path: Path, /) -> str:
    """Return a text of a run without its checksum; raises BadInput if it was changed."""
    return unsealed(read_text(path), path)


def read_text(path: Path, /) -> str:
    """Return the text of a file; raises BadInput."""
    try:
        return path.read_bytes().decode()
    except UnicodeDecodeError:
        raise BadInput(f"{path}: not text") from None
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror}") from None


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
    if comm is not None and not isinstance(comm, Comm):
        raise BadInput(
            f"comm = {comm!r:.80}; give what ckio.adapters.mpi.of returns for a communicator of"
            " mpi4py"
        )
    if comm is None and (launched() or (0, 1))[1] > 1:
        from ckio.adapters.mpi import world

        comm = own = world()
    if comm is None or comm.size == 1:
        yield ALONE
        return
    ranks = RankGroup(comm)
    try:
        with ranks.together():
            yield ranks
        if own is not None:
            own.free()
    except CkioError as error:
        if not error.shared:
            raise
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
