"""Earlier runs: their predicted and measured makespans, and the interval for the next run.

Every run that ends is one line of JSON in a file of the user, by default
`~/.local/state/ckio/history.jsonl` (or below `XDG_STATE_HOME`). The variable CKIO_HISTORY names
another file, or is `off`. The same record is in `result.json` of the run.

An interval contains nine of ten runs of the same kind: the same model on the same host, with
overlap or without. It is computed from the ratios of measured to predicted makespan:

* 19 runs or more: split conformal prediction (Vovk, Gammerman & Shafer 2005; Lei et al. 2018,
  Section 2). The interval is between the ratios of ranks k and n + 1 - k of the n sorted ratios,
  with k = floor(0.05 (n + 1)). If the next run is exchangeable with them, its ratio is in the
  interval with a probability of 0.9 or more.
* 3 to 18 runs: the prediction interval of Student's t for the logarithms of the ratios, because
  so few runs have no quantile of 5 %.
* fewer runs: the variation of runs during calibration, which no run has confirmed yet.

Worked example: 19 runs with ratios 1.01, 1.02, ..., 1.19 and k = floor(0.05 * 20) = 1 give the
interval from 1.01 to 1.19 times the prediction.
"""

import json
import math
import os
import platform as host
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from ckio.platform import Platform
from ckio.platform.profile import Quantiles
from ckio.platform.readable import seconds_text
from ckio.report import Report

MISS: Final = 0.1
"""The share of runs that may be outside of an interval."""

RECENT: Final = 100
"""The number of the latest runs that count, because machines change."""

_FEW: Final = 3
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
class Interval:
    """The seconds between which nine of ten runs are, and the number of runs that support this."""

    low: float
    high: float
    runs: int

    def said(self) -> str:
        """Return the interval and its source in words.

        >>> Interval(1.66, 2.05, 14).said()
        'nine in ten between 1.66 s and 2.05 s (from 14 earlier runs)'
        """
        between = f"nine in ten between {seconds_text(self.low)} and {seconds_text(self.high)}"
        if not self.runs:
            return f"{between} (from one calibration; not yet checked by runs)"
        return f"{between} (from {self.runs} earlier runs)"


def interval_of(predicted: float, ratios: Sequence[float], platform: Platform) -> Interval | None:
    """Return the interval of a predicted makespan; None if the variation of runs is not known.

    Parameters
    ----------
    predicted : float
        The predicted makespan, in seconds.
    ratios : sequence of float
        Measured over predicted makespan of earlier runs of this kind, in the order of time.
    platform : Platform
        Its drift is used if there are too few runs.
    """
    recent = np.sort(np.asarray(ratios[-RECENT:], np.float64))
    count = len(recent)
    rank = math.floor(MISS / 2 * (count + 1))
    if rank:
        low, high = float(recent[rank - 1]), float(recent[count - rank])
    elif count >= _FEW:
        from scipy.special import stdtrit

        logs = np.log(recent)
        reach = stdtrit(count - 1, 1 - MISS / 2) * logs.std(ddof=1) * math.sqrt(1 + 1 / count)
        low, high = (math.exp(logs.mean() + sign * reach) for sign in (-1, 1))
    else:
        factors = platform.drift.factors if isinstance(platform.drift, Quantiles) else ()
        if not factors:
            return None
        low, high = (float(np.quantile(factors, part)) for part in (MISS / 2, 1 - MISS / 2))
        count = 0
    return Interval(low * predicted, high * predicted, count)


def expected(
    predicted: float, model: str | None, platform: Platform, /, *, overlap: bool
) -> Interval | None:
    """Return the interval of a run of this model on this host, by the history of the user.

    Without a name, the model is the first one of the platform.
    """
    model = model or next(iter(platform.models), "")
    kind = (_plain(model), host.node(), overlap)
    past = [run for run in read() if (run.model, run.host, run.overlap) == kind]
    return interval_of(predicted, [run.measured / run.predicted for run in past], platform)


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
                return Path(state).expanduser() / "ckio" / "history.jsonl"
            return None
        case name:
            return Path(name)


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
