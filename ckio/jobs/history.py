"""Earlier runs: their predicted and measured makespans.

Every run that ends is one line of JSON in a file of the user, by default
`~/.local/state/ckio/history.jsonl` (or below `XDG_STATE_HOME`). The variable CKIO_HISTORY names
another file, and `off` turns the history off. From three runs of the same kind on (the same model
on the same host, with overlap or without), `run` and `simulate` say how far these were from their
predictions.
"""

import json
import os
import platform as host
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from ckio.platform.readable import path_of

RECENT: Final = 12
"""The number of the latest runs that count, because machines change."""

_FEW: Final = 3
"""The least number of runs of which ckio says anything."""

_MOST_BYTES: Final = 1 << 20
"""The bytes from which on the next run begins a new file: about 6000 runs."""


@dataclass(frozen=True, slots=True)
class PastRun:
    """A run that has ended: its kind, its makespans in seconds, and its time since 1970."""

    model: str
    host: str
    overlap: bool
    predicted: float
    measured: float
    when: float = 0.0


def earlier(model: str, /, *, overlap: bool) -> str:
    """Return a sentence on the last runs of this model on this host; "" if they are too few."""
    kind = (_plain(model), host.node(), overlap)
    past = [run for run in read() if (run.model, run.host, run.overlap) == kind][-RECENT:]
    return "" if len(past) < _FEW else text([run.measured / run.predicted for run in past])


def text(ratios: Sequence[float], /) -> str:
    """Return the sentence for the measured over the predicted makespans of some runs.

    >>> text([1.0, 0.93, 1.11])
    'the last 3 runs of this kind took between 0.93 and 1.11 of the prediction'
    """
    between = f"between {min(ratios):.2f} and {max(ratios):.2f} of the prediction"
    return f"the last {len(ratios)} runs of this kind took {between}"


def add(model: str, /, *, overlap: bool, predicted: float, measured: float) -> None:
    """Add a run that has just ended; a history that cannot be written does not fail the run."""
    file = path()
    if file is None or predicted <= 0:
        return
    run = PastRun(_plain(model), host.node(), overlap, predicted, measured, time.time())
    with suppress(OSError):
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if file.exists() and file.stat().st_size > _MOST_BYTES:
            file.replace(file.with_name(f"{file.name}.1"))
        with file.open("ab", buffering=0) as stream:
            stream.write(f"{json.dumps(asdict(run))}\n".encode())  # at once, as others append, too


def read() -> list[PastRun]:
    """Return the runs of the history, the earliest first; lines that are no record are skipped."""
    runs, file = list[PastRun](), path()
    with suppress(OSError):
        for line in [] if file is None else file.read_bytes().splitlines():
            with suppress(ValueError, TypeError):  # a line that a full disk has cut off
                runs.append(PastRun(**json.loads(line)))
    return runs


def path() -> Path | None:
    """Return the file of the history; None if it is turned off."""
    own = "XDG_STATE_HOME", "~/.local/state", "ckio/history.jsonl"
    return path_of_user("CKIO_HISTORY", *own)


def path_of_user(variable: str, base: str, default: str, name: str, /) -> Path | None:
    """Return the path that an environment variable names; None if it is "off".

    Without it, the path is `name` below the directory in the variable `base`, or below `default`.
    """
    match os.environ.get(variable, ""):
        case "off":
            return None
        case "":
            with suppress(RuntimeError):  # raised if the user has no home directory
                return path_of(os.environ.get(base) or default) / name
            return None
        case given:
            return path_of(given)


def _plain(model: str) -> str:
    """Return the name of a model without its settings."""
    return model.split(" ", maxsplit=1)[0]
