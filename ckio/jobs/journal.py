"""The journal of a run: a line of JSON for each event, while it goes on.

    {"ckio_journal": 1, "steps": 100, "planner": "hrevolve"}
    {"action": "write x 12", "level": "nvme", "start": 0.5, "stop": 0.625, "nbytes": 4096}
    {"action": "advance 12 20", "level": null, "start": 0.625, "stop": 8.75, "nbytes": 0}

The first line says what is run. Actions are spelled as in the text of a schedule, their level by
its name; seconds count from the start of the run and come back to the last bit. A run that was
resumed may go on in the same file: it begins with a first line of its own.
"""

import json
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final, TextIO
from urllib.parse import quote

from ckio.actions import Action, Discard, Read, Write
from ckio.errors import BadInput
from ckio.schedule.timeline import Event

FORMAT: Final = 1


class Journal:
    """Writes each event that it is called with: the `watch` of a run.

    Every line is given to the system at once, whole: `tail -f` shows it, and a process that is
    killed loses none. Nothing is kept in memory. Once a line cannot be written, on a full disk
    say, the journal ends there, and the run does not.

    Parameters
    ----------
    to
        A path, to which it is appended, or an open text file, which stays open.
    about
        What the first line says of the run, in what JSON has: its steps, its planner.
    levels
        The names of the levels, by number.
    warn
        Told once, in a sentence, that the journal ends before the run.

    Raises
    ------
    BadInput
        The path cannot be opened for writing, or JSON has no words for `about`.
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
        self._levels, self._warn = [json.dumps(name) for name in levels], warn
        first = _first(about)
        self._owned = isinstance(to, Path)
        self._file: TextIO | None = _opened(to) if isinstance(to, Path) else to
        self._put(first)

    def __call__(self, event: Event, /) -> None:
        """Write a line; does nothing once one could not be written, or after `close`."""
        if self._file is None:
            return
        text, level = _words(event.action)
        # By hand: json takes longer than the write, and the words of an action need no escapes.
        self._put(
            f'{{"action": "{text}", "level": {"null" if level is None else self._name(level)},'
            f' "start": {float(event.start)!r}, "stop": {float(event.stop)!r},'
            f' "nbytes": {event.nbytes}}}'
        )

    def close(self) -> None:
        """End the journal; may be called twice."""
        file, self._file = self._file, None
        if self._owned and file is not None:
            with suppress(OSError):  # every line was written before
                file.close()

    def __enter__(self) -> "Journal":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _name(self, level: int) -> str:
        """Return the level as JSON."""
        return self._levels[level] if level < len(self._levels) else f'"{level}"'

    def _put(self, line: str) -> None:
        if self._file is None:
            return
        try:
            self._file.write(f"{line}\n")
            self._file.flush()
        except (OSError, ValueError) as error:  # it is also a ValueError that a file is closed
            name = getattr(self._file, "name", "the file")
            self.close()
            why = getattr(error, "strerror", None) or error
            self._warn(f"{name}: the journal ends here, and the run goes on: {why}")


def _first(about: Mapping[str, Any]) -> str:
    try:
        return json.dumps({"ckio_journal": FORMAT, **about}, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise BadInput(f"a journal can say only what JSON has: {error}") from None


def _opened(path: Path) -> TextIO:
    """Open a journal to append to it; a line that was cut short by a kill is ended first."""
    try:
        torn = path.is_file() and path.stat().st_size > 0 and _last_byte(path) != b"\n"
        file = path.open("a", encoding="utf-8")
    except OSError as error:
        raise BadInput(f"{path}: cannot hold a journal: {error.strerror}") from None
    if torn:
        file.write("\n")  # it goes out with the first line
    return file


def _last_byte(path: Path) -> bytes:
    with path.open("rb") as file:
        file.seek(-1, 2)
        return file.read(1)


def _words(action: Action) -> tuple[str, int | None]:
    """Return an action as the text of a schedule has it, without its level, and the level."""
    verb = type(action).__name__.lower()
    if isinstance(action, Write | Read | Discard):
        key = action.key
        name = f" {quote(key.name, safe='')}" if key.name else ""
        return f"{verb} {key.kind.value} {key.step}{name}", action.level
    return f"{verb} {action.begin} {action.end}", None
