"""The directory of a run: what it is, what was planned, and what came of it.

    manifest.json     what identifies the run: model, options, steps, platform, measured costs
    schedule.txt      the schedule, with its platform
    predicted.txt     the simulated timeline
    measured.txt      the measured one, once the schedule has been performed
    result.json       what `ckio run --json` prints, likewise

Checkpoints are not in it: each level keeps its own, under the run's id.
"""

import json
import os
import secrets
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from ckio.errors import BadInput

FORMAT: Final = 1
MANIFEST, SCHEDULE, RESULT = "manifest.json", "schedule.txt", "result.json"
PREDICTED, MEASURED = "predicted.txt", "measured.txt"


class NewDirectory:
    """A directory that was not there, or was empty, for the files of one piece of work.

    Raises BadInput where it holds anything already or cannot be written.
    """

    def __init__(self, path: Path, /, *, what: str = "results") -> None:
        self.path = path
        self._made = missing_folders(path)
        try:
            path.mkdir(parents=True, exist_ok=True)
            held = sorted(entry.name for entry in path.iterdir())
        except OSError as error:
            self._remove_folders()
            raise BadInput(f"{path}: cannot hold {what}: {error.strerror}") from None
        if held:
            holds = "already holds a run" if MANIFEST in held else f"is not empty ({held[0]})"
            raise BadInput(f"{path}: it {holds}; choose another directory for {what}")
        if not os.access(path, os.W_OK | os.X_OK):
            raise BadInput(f"{path}: cannot hold {what}: not writable")

    def write(self, name: str, text: str, /) -> None:
        """Write a file whole or not at all; it is on the disk when this returns."""
        try:
            write_whole(self.path / name, text)
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

    def _remove_folders(self) -> None:
        with suppress(OSError):
            for folder in self._made:
                folder.rmdir()


class RunDirectory(NewDirectory):
    """A new run's directory; `id` names the run on every level."""

    def __init__(self, path: Path, /) -> None:
        super().__init__(path, what="a run")
        self.id = secrets.token_hex(4)

    def write_manifest(self, manifest: Mapping[str, Any], /) -> None:
        """Say what the run is; the directory counts as taken from then on."""
        self.write(MANIFEST, json.dumps({"format": FORMAT, "run": self.id, **manifest}, indent=2))


def missing_folders(path: Path, /) -> list[Path]:
    """What has to be made for `path` to be a directory, the innermost first."""
    return [folder for folder in (path, *path.parents) if not os.path.lexists(folder)]


def write_whole(path: Path, text: str, /) -> None:
    """Write a file whole or not at all, and on the disk when this returns; raises OSError."""
    part = path.with_name(f".{path.name}.part")
    try:
        with part.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except BaseException:
        with suppress(OSError):
            part.unlink(missing_ok=True)
        raise
