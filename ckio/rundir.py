"""The directory of a run: what it is, what was planned, and what came of it.

    manifest.json     what identifies the run: model, options, steps, platform, measured costs
    schedule.txt      the schedule, with its platform
    predicted.txt     the simulated timeline
    measured.txt      the measured one, once the run has ended well
    result.json       what `ckio run --json` prints, likewise

Checkpoints are not in it: each level keeps its own, under the run's id.
"""

import json
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from ckio.errors import BadInput

FORMAT: Final = 1
MANIFEST, SCHEDULE, RESULT = "manifest.json", "schedule.txt", "result.json"
PREDICTED, MEASURED = "predicted.txt", "measured.txt"


class RunDirectory:
    """A new run's directory; `id` names the run on every level.

    Raises BadInput where the directory holds anything already or cannot be written.
    """

    def __init__(self, path: Path, /) -> None:
        self.path = path
        self.id = secrets.token_hex(4)
        try:
            path.mkdir(parents=True, exist_ok=True)
            held = sorted(entry.name for entry in path.iterdir())
        except OSError as error:
            raise BadInput(f"{path}: cannot hold a run: {error.strerror}") from None
        if held:
            what = "already holds a run" if MANIFEST in held else f"is not empty ({held[0]})"
            raise BadInput(f"{path}: it {what}; choose another directory for this one")
        if not os.access(path, os.W_OK | os.X_OK):
            raise BadInput(f"{path}: cannot hold a run: not writable")

    def write_manifest(self, manifest: Mapping[str, Any], /) -> None:
        """Say what the run is; the directory counts as taken from then on."""
        self.write(MANIFEST, json.dumps({"format": FORMAT, "run": self.id, **manifest}, indent=2))

    def write(self, name: str, text: str, /) -> None:
        """Write a file of the run, whole or not at all, and on the disk when this returns."""
        part = self.path / f".{name}.part"
        try:
            with part.open("w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            part.replace(self.path / name)
        except OSError as error:
            part.unlink(missing_ok=True)
            raise BadInput(f"{self.path / name}: cannot be written: {error.strerror}") from None
