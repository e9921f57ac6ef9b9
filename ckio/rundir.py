"""The directory of a run: what it is, what was planned, and what came of it.

    manifest.json     what identifies the run, and what resuming it needs: see `Manifest`
    schedule.txt      the schedule of the process that worked on it last, with the platform
    schedule-1.txt    that of the first process where there were more, then of the second, ...
    predicted.txt     the simulated timeline of schedule.txt
    measured.txt      the measured one, once the schedule has been performed
    result.json       what `ckio run --json` prints, once the run has ended

The first plan is written before the manifest, and the manifest before any checkpoint: of what has
no manifest, nothing came. Checkpoints are not in it: each level keeps its own, under the run's id.
"""

import errno
import fcntl
import json
import os
import re
import secrets
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import count, takewhile
from pathlib import Path
from typing import Any, Final

from ckio.actions import Kind
from ckio.chain import COSTS, Chain
from ckio.errors import BadInput, CkioError, LevelInUse
from ckio.perstep import PerStep
from ckio.platforms import Option, Platform

FORMAT: Final = 1
MANIFEST, SCHEDULE, RESULT = "manifest.json", "schedule.txt", "result.json"
PREDICTED, MEASURED = "predicted.txt", "measured.txt"

_NAMES: Final = r"(manifest|result)\.json|(schedule|predicted|measured)(-\d+)?\.txt"
WHOLE: Final = re.compile(_NAMES)
HALF: Final = re.compile(rf"\.({_NAMES})\.part")
"""The names of a run's files, whole and half written."""


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """What identifies a run, and what a later process needs to go on with it.

    Attributes
    ----------
    run : str
        What the run is called on its levels.
    ckio : str
        The version that began it.
    model, settings
        The model and its options.
    control : str or None
        The digest of its controls at the start; None where it has none to show.
    planner, options
        The planner and its own options.
    chain : Chain
        Steps, and all costs as they were first known: a resumed run does not measure again. There
        are no steps as long as a run of unknown length goes forward.
    platform : str
        The digest of the platform, which itself is in schedule.txt.
    adjoints : str or None
        The name of the level for adjoint checkpoints; None where no level can keep them.
    every : float
        Seconds of predicted work between two of them.
    keep : bool
        Whether checkpoints stay when the run has ended.
    by_variable : bool
        Whether checkpoints are stored variable by variable.
    overlap : str
        The policy that it was begun with, in words; "" where nothing overlaps.
    here : str
        The directory in which it was begun, from which relative paths of levels count; "" where
        that is not known.
    ranks : int
        How many ranks it has, each with its part of the state and of the levels.
    """

    run: str
    ckio: str
    model: str
    settings: Mapping[str, Option]
    control: str | None
    planner: str
    options: Mapping[str, Any]
    chain: Chain
    platform: str
    adjoints: str | None
    every: float
    keep: bool
    by_variable: bool = False
    overlap: str = ""
    here: str = ""
    ranks: int = 1

    def dumps(self) -> str:
        """As JSON; `loads` reads it back, equal."""
        costs = {name: getattr(self.chain, name) for name in COSTS}
        chain = {
            "steps": self.chain.steps,
            **{name: list(c) if isinstance(c, PerStep) else c for name, c in costs.items()},
        }
        if self.chain.handed:
            chain["handed"] = sorted(kind.value for kind in self.chain.handed)
        said = {name: getattr(self, name) for name in self.__dataclass_fields__}
        said |= {"settings": dict(self.settings), "options": dict(self.options), "chain": chain}
        return json.dumps({"format": FORMAT, **said}, indent=2)

    @staticmethod
    def loads(text: str, /, *, source: str) -> "Manifest":
        """Read it; raises BadInput where it is of another format, or is not whole."""
        try:
            said = json.loads(text)
            version = said.pop("format")
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
            raise BadInput(f"{source} is damaged: it does not say which run this is") from None
        if version != FORMAT:
            raise BadInput(f"{source} has format {version!r:.20}; this ckio reads format {FORMAT}")
        try:
            costs = dict(said["chain"])
            handed = frozenset(map(Kind, costs.pop("handed", ())))
            return Manifest(**{**said, "chain": Chain(**costs, handed=handed)})
        except (CkioError, TypeError, ValueError, LookupError) as error:
            raise BadInput(f"{source} is damaged: {error}") from None


class NewDirectory:
    """A directory that was not there, or was empty, for the files of one piece of work.

    Raises BadInput where it holds anything already or cannot be written.
    """

    def __init__(self, path: Path, /, *, what: str = "results") -> None:
        self.path = path
        self._made = missing_folders(path)
        try:
            path.mkdir(parents=True, exist_ok=True)
            held = self._in_the_way()
        except OSError as error:
            self._remove_folders()
            raise BadInput(f"{path}: cannot hold {what}: {error.strerror}") from None
        _check_empty(path, held, what)
        if not os.access(path, os.W_OK | os.X_OK):
            raise BadInput(f"{path}: cannot hold {what}: not writable")

    def write(self, name: str, content: str | bytes, /) -> None:
        """Write a file whole or not at all; it is on the disk when this returns."""
        try:
            write_whole(self.path / name, content)
        except OSError as error:
            raise BadInput(f"{self.path / name}: cannot be written: {error.strerror}") from None

    def clear(self) -> None:
        """Leave everything as it was before: nothing came of it."""
        with suppress(OSError):
            for entry in self.path.iterdir():
                if entry.is_dir() and not entry.is_symlink():
                    shutil.rmtree(entry)
                else:
                    entry.unlink()
        self._remove_folders()

    def _in_the_way(self) -> list[str]:
        """What it holds and should not; raises OSError."""
        return sorted(entry.name for entry in self.path.iterdir())

    def _remove_folders(self) -> None:
        with suppress(OSError):
            for folder in self._made:
                folder.rmdir()


def check_new(path: Path, /, *, what: str = "a run") -> None:
    """Raise BadInput at once where a directory is not empty, before the work that is to fill it.

    What else is wrong with it is found when it is made.
    """
    with suppress(OSError):
        _check_empty(path, sorted(entry.name for entry in path.iterdir()), what)


def _check_empty(path: Path, held: list[str], what: str) -> None:
    if held:
        run = MANIFEST in held
        holds = "already holds a run" if run else f"is not empty ({held[0]})"
        hint = "go on with that by --resume, or " if run else ""
        raise BadInput(f"{path}: it {holds}; {hint}choose another directory for {what}")


class RunDirectory(NewDirectory):
    """The directory of a run, which one process has at a time: until `release`, or its end.

    Parameters
    ----------
    path
    resume
        Whether it may hold a run already, to go on with. What a process left that was killed before
        its manifest is then removed.

    Attributes
    ----------
    id : str
        What the run is called on every level.
    manifest : Manifest or None
        What the run is; None until that is written.

    Raises
    ------
    BadInput
        It holds something else, or a run that is not to be resumed, or cannot be used.
    LevelInUse
        Another process works on the same run.
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
        """Whether it holds a result."""
        return (self.path / RESULT).exists()

    def begin(self, manifest: Manifest, /) -> None:
        """Say what the run is, and where it is begun; the directory is taken from then on."""
        begun = replace(manifest, here=str(Path.cwd()))
        self.write(MANIFEST, begun.dumps())
        self.manifest = begun

    def write_plan(self, schedule: str, predicted: str, /) -> None:
        """Keep the texts of this process's plan, and the earlier schedule under a number."""
        there = self.path / SCHEDULE
        if there.exists():
            names = (self.path / f"schedule-{number}.txt" for number in count(1))
            with suppress(OSError):  # where nothing can be linked, the last one alone is kept
                os.link(there, next(name for name in names if not os.path.lexists(name)))
        self.write(SCHEDULE, schedule)
        self.write(PREDICTED, predicted)

    def platform(self) -> Platform:
        """The platform that schedule.txt was made for; raises BadInput."""
        return platform_in(self.path / SCHEDULE)

    def read(self, name: str, /) -> str:
        """The text of one of its files; raises BadInput where it cannot be read."""
        try:
            return (self.path / name).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            what = getattr(error, "strerror", "not text")
            raise BadInput(f"{self.path / name} cannot be read: {what}") from None

    def clear(self) -> None:
        """Leave everything as it was before; without the manifest first, it is a run no more."""
        with suppress(OSError):
            (self.path / MANIFEST).unlink(missing_ok=True)
        super().clear()

    def release(self) -> None:
        """Let other processes have it; may be called twice."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)

    def _in_the_way(self) -> list[str]:
        self._fd = _locked(self.path)
        held = super()._in_the_way()
        if not self._resume:
            return held
        if MANIFEST in held:
            self.manifest = Manifest.loads(self.read(MANIFEST), source=f"{self.path / MANIFEST}")
            return []
        ours = [name for name in held if WHOLE.fullmatch(name) or HALF.fullmatch(name)]
        for name in ours:
            (self.path / name).unlink()
        return [name for name in held if name not in ours]


def _locked(path: Path) -> int:
    """The open directory with a lock on it; -1 where its file system has none."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        raise LevelInUse(f"{path}: another process works on this run; wait for its end") from None
    except OSError:  # the levels have locks of their own
        os.close(fd)
        return -1
    return fd


def platform_in(schedule: Path, /) -> Platform:
    """The platform in the headers of a file with a schedule; raises BadInput."""
    try:
        with schedule.open(encoding="utf-8") as file:
            headers = list(takewhile(lambda line: line.startswith("#"), file))
    except UnicodeDecodeError:
        raise BadInput(f"{schedule}: not text") from None
    except OSError as error:
        raise BadInput(f"{schedule} cannot be read: {error.strerror}") from None
    toml = [line[2:].strip("\n") for line in headers if line.startswith("#|")]
    return Platform.loads("\n".join(toml), source=f"{schedule}, its platform")


def missing_folders(path: Path, /) -> list[Path]:
    """What has to be made for `path` to be a directory, the innermost first."""
    return [folder for folder in (path, *path.parents) if not os.path.lexists(folder)]


def write_whole(path: Path, content: str | bytes, /) -> None:
    """Write a file whole or not at all, and on the disk when this returns; raises OSError."""
    part = path.with_name(f".{path.name}.part")
    try:
        with part.open("wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
        _sync_folder(path.parent)
    except BaseException:
        with suppress(OSError):
            part.unlink(missing_ok=True)
        raise


def _sync_folder(path: Path) -> None:
    """Have the names in a directory on the disk, where its file system can; raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno not in {errno.EINVAL, errno.EBADF, errno.ENOTSUP}:
            raise
    finally:
        os.close(fd)
