"""The journal of a run: a line of JSON for each event, written during the run.

    {"ckio_journal": 1, "steps": 100, "planner": "hrevolve"}
    {"action": "write x 12", "level": "nvme", "start": 0.5, "stop": 0.625, "nbytes": 4096}
    {"action": "advance 12 20", "level": null, "start": 0.625, "stop": 8.75, "nbytes": 0}

The first line describes the run. Actions are written as in the text of a schedule, and a level by
its name. Times are in seconds from the start of the run, with all digits. A resumed run may append
to the same file; it begins with another first line.
"""

import json
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TextIO
from urllib.parse import quote

from ckio.actions.columns import ACCESSES
from ckio.errors import BadInput
from ckio.schedule.timeline import Event

FORMAT: Final = 1


class Journal:
    """A function that writes a line for each event. It is the `watch` of a run.

    Each complete line is written to the operating system immediately, so that `tail -f` shows it
    and no line is lost if the process is killed. If a line cannot be written, for example because
    the disk is full, the journal ends, and the run continues.

    Parameters
    ----------
    to
        A path, to which lines are appended, or an open text file, which is not closed.
    about
        The entries of the first line: steps, planner.
    levels
        The names of the levels, by number.
    warn
        Called once with a sentence if the journal ends before the run.

    Raises
    ------
    BadInput
        If the path cannot be opened for writing.
    """

    def __init__(
        self,
        to: Path | TextIO,
        about: Mapping[str, Any],
        /,
        *,
        levels: Sequence[str] = (),
        warn: Callable[[str], object] = warnings.warn,
    ) -> None:
        self._levels, self._warn = levels, warn
        self._owned = isinstance(to, Path)
        self._file: TextIO | None = _opened(to) if isinstance(to, Path) else to
        self._put(json.dumps({"ckio_journal": FORMAT, **about}))

    def __call__(self, event: Event, /) -> None:
        """Write a line. This has no effect after a failed write, or after `close`."""
        if self._file is None:
            return
        action, level = event.action, None
        words = type(action).__name__.lower()
        if isinstance(action, ACCESSES):
            key, number = action.key, action.level
            name = f" {quote(key.name, safe='')}" if key.name else ""
            words += f" {key.kind.value} {key.step}{name}"
            level = self._levels[number] if number < len(self._levels) else str(number)
        else:
            words += f" {action.begin} {action.end}"
        times = {"start": float(event.start), "stop": float(event.stop)}
        line = {"action": words, "level": level, **times, "nbytes": int(event.nbytes)}
        self._put(json.dumps(line))

    def close(self) -> None:
        """End the journal. It may be called twice."""
        file, self._file = self._file, None
        if self._owned and file is not None:
            with suppress(OSError):  # all lines are written already
                file.close()

    def __enter__(self) -> "Journal":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _put(self, line: str) -> None:
        if self._file is None:
            return
        try:
            self._file.write(f"{line}\n")
            self._file.flush()
        except (OSError, ValueError) as error:  # a closed file raises ValueError
            name = getattr(self._file, "name", "the file")
            self.close()
            why = getattr(error, "strerror", None) or error
            self._warn(f"{name}: the journal ends here, and the run continues: {why}")


def _opened(path: Path) -> TextIO:
    """Open a journal to append to it. A line that a kill has cut off is ended first."""
    try:
        torn = path.is_file() and path.stat().st_size > 0
        if torn:
            with path.open("rb") as before:
                before.seek(-1, os.SEEK_END)
                torn = before.read() != b"\n"
        file = path.open("a", encoding="utf-8")
    except OSError as error:
        raise BadInput(f"{path}: cannot hold a journal: {error.strerror}") from None
    if torn:
        file.write("\n")  # flushed together with the first line
    return file
