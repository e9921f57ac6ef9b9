"""Earlier runs: their predicted and measured makespans.

Every run that ends is one line of JSON in a file of the user, by default
`~/.local/state/ckio/history.jsonl` (or below `XDG_STATE_HOME`). The variable CKIO_HISTORY names
another file, or is `off`. The same record is in `result.json` of the run.

From three runs of the same kind on (the same model on the same host, with overlap or without), the
next one is told how far they were from their predictions.
"""

import json
import os
import platform as host
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from ckio.platform import Platform
from ckio.platform.readable import path_of
from ckio.report import Report

RECENT: Final = 12
"""The number of the latest runs that count, because machines change."""

_FEW: Final = 3
"""The least number of runs of which ckio says anything."""

_MOST_BYTES: Final = 1 << 20
"""The most bytes of the file. The next run begins a new file, and only the end is read."""


@dataclass(frozen=True, slots=True)
class PastRun:
    """A run that has ended.

    Attributes
    ----------
    model, host : str
        The model without its settings, and the name of the machine.
    overlap : bool
        Whether I/O overlapped with computation.
    predicted, measured : float
        Makespans, in seconds.
    when : float
        Seconds since 1970.
    load : float
        The load of the machine when the run began.
    planner : str
    steps : int
    classes : mapping of str to (float, float)
        By class of action: predicted and measured seconds.
    """

    model: str
    host: str
    overlap: bool
    predicted: float
    measured: float
    when: float = 0.0
    load: float = 0.0
    planner: str = ""
    steps: int = 0
    classes: Mapping[str, Sequence[float]] | None = None


@dataclass(frozen=True, slots=True)
class EarlierRuns:
    """The least and the largest of measured over predicted makespan, in some earlier runs."""

    low: float
    high: float
    runs: int

    def text(self) -> str:
        """Return these as a sentence.

        >>> EarlierRuns(0.93, 1.11, 12).text()
        'the last 12 runs of this kind took between 0.93 and 1.11 of the prediction'
        """
        between = f"between {self.low:.2f} and {self.high:.2f} of the prediction"
        return f"the last {self.runs} runs of this kind took {between}"


def earlier(model: str | None, platform: Platform, /, *, overlap: bool) -> EarlierRuns | None:
    """Return the last runs of this model on this host; None if they are too few.

    Without a name, the model is the first one of the platform.
    """
    model = model or next(iter(platform.models), "")
    kind = (_plain(model), host.node(), overlap)
    past = [run for run in read() if (run.model, run.host, run.overlap) == kind][-RECENT:]
    if len(past) < _FEW:
        return None
    ratios = [run.measured / run.predicted for run in past]
    return EarlierRuns(min(ratios), max(ratios), len(past))


def record_of(
    report: Report, /, *, model: str, planner: str, steps: int, overlap: bool, load: float
) -> PastRun:
    """Return the record of a run that has just ended."""
    classes = {row.name: (row.predicted, row.measured) for row in report.rows}
    return PastRun(
        _plain(model),
        host.node(),
        overlap,
        report.predicted,
        report.measured,
        when=time.time(),
        load=load,
        planner=planner,
        steps=steps,
        classes=classes,
    )


def path() -> Path | None:
    """Return the file of the history; None if it is turned off."""
    match os.environ.get("CKIO_HISTORY", ""):
        case "off":
            return None
        case "":
            state = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
            with suppress(RuntimeError):  # raised if the user has no home directory
                return path_of(state) / "ckio" / "history.jsonl"
            return None
        case name:
            return path_of(name)


def append(run: PastRun, /) -> None:
    """Add a run to the history; a history that cannot be written does not fail the run."""
    file = path()
    if file is None or not _is_sound(run):
        return
    with suppress(OSError):
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if file.exists() and file.stat().st_size > _MOST_BYTES:
            file.replace(file.with_name(f"{file.name}.1"))
        line = json.dumps(asdict(run)) + "\n"
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
        descriptor = os.open(file, flags, 0o600)
        try:
            os.write(descriptor, line.encode())  # in one call, because other processes append, too
        finally:
            os.close(descriptor)


def read() -> list[PastRun]:
    """Return the runs of the history, the earliest first; lines that are no record are skipped."""
    file = path()
    if file is None:
        return []
    try:
        with file.open("rb") as stream:
            stream.seek(max(0, file.stat().st_size - _MOST_BYTES))
            lines = stream.read(_MOST_BYTES).splitlines()
    except OSError:
        return []
    return [run for run in map(_parsed, lines) if run is not None]


def _parsed(line: bytes) -> PastRun | None:
    try:
        data: Any = json.loads(line)
        known = {name: data[name] for name in ("model", "host", "overlap", "predicted", "measured")}
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    run = PastRun(**known)  # the other entries are only for people who read the file
    return run if _is_sound(run) else None


def _is_sound(run: Any) -> bool:
    words = isinstance(run.model, str) and isinstance(run.host, str)
    seconds = (run.predicted, run.measured)
    numbers = all(isinstance(each, int | float) and 1e-99 < each < 1e99 for each in seconds)
    return words and isinstance(run.overlap, bool) and numbers


def _plain(model: str) -> str:
    """Return the name of a model without its settings."""
    return model.split(" ", maxsplit=1)[0]
