"""The states of a run that later processes must compute again: the file `states.txt`.

When a run begins, a fresh model makes one step. The marks of x_0, of x_1 and of J at x_1 are
written, on each rank. Later the first rank adds the states that the replay check hashes. A process
that resumes the run, or reads its result with a model, makes the same step and compares. Thus data
that are in no option (observations, files, global variables, code) cannot change without a word.

Each line is JSON and ends with its own checksum. A line that a kill has cut is ignored.
"""

import base64
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import numpy as np
import xxhash

from ckio.jobs.directory import STATES, RunDirectory, read_text
from ckio.model import functional_of, reached
from ckio.parallel.group import RankGroup
from ckio.platform.readable import option
from ckio.runner.reproducible import Mark, Marks, arrays_of, difference

MOST_LINES: Final = 256
"""The most states that a run writes after the first step."""

J: Final = "J of the first step"
"""The name of the functional at x_1 among the arrays."""

States = Mapping[int, Marks]
"""The marks of states, by step."""


def first_states(model: Any, /) -> dict[int, dict[str, Mark]]:
    """Return the marks of x_0, and of x_1 with J, as far as a fresh model can compute them."""
    states = dict[int, dict[str, Mark]]()
    with suppress(Exception):  # the run itself raises the same error, and can tell the action
        states[0] = _marks(model, 0)
        if reached("advance", model.advance(0, 1), 0, 1) == 1:
            states[1] = _marks(model, 1)
            j = np.array([functional_of(model)], float)
            states[1][J] = Mark.of(j.data.cast("B"), j.dtype.str, squares=True)
    return states


def _marks(model: Any, step: int) -> dict[str, Mark]:
    arrays = arrays_of(model, step) or ()
    return {name: Mark.of(data, dtype, squares=True) for name, dtype, data in arrays}


def write_states(directory: RunDirectory, mine: States, ranks: RankGroup, /) -> None:
    """Write the first states of all ranks."""
    lines = [
        _line(_entry(rank, step, marks))
        for rank, states in enumerate(ranks.gather(dict(mine)))
        for step, marks in states.items()
    ]
    directory.write(STATES, "".join(lines).encode())


def adding_to(directory: RunDirectory, /) -> Callable[[int, Marks], None]:
    """Return a function that adds the marks of a state of the first rank to the file."""
    left = MOST_LINES

    def add(step: int, marks: Marks) -> None:
        nonlocal left
        if left > 0 and J not in marks:
            left -= 1
            directory.append(STATES, _line(_entry(0, step, marks)))

    return add


def read_states(path: Path, /) -> dict[int, dict[int, Marks]]:
    """Return the states of each rank; none if there is no file, as in a run of earlier versions."""
    ranks = dict[int, dict[int, Marks]]()
    file = path / STATES
    for entry in _sound(read_text(file)) if file.exists() else ():
        marks = {name: _mark(*values) for name, values in entry["arrays"].items()}
        ranks.setdefault(entry["rank"], {}).setdefault(entry["step"], marks)
    return ranks


def differences(begun: States, now: States, /, *, allow_rounding: bool) -> Iterator[str]:
    """Yield a text for each of the first states that is not that of the begun run."""
    for step in sorted(begun.keys() & now.keys() & {0, 1}):
        before, mine = dict(begun[step]), dict(now[step])
        if not (J in before and J in mine):  # J could not be asked for
            before.pop(J, None), mine.pop(J, None)
        found = difference(before, mine)
        if found is not None and not (found.is_rounding and allow_rounding):
            allowed = f" (by rounding only, which {option('allow_rounding')} allows)"
            small = allowed * found.is_rounding
            yield f"x_{step} of the model is different: {found.text}{small}"
            return  # the next state differs, too


def _entry(rank: int, step: int, marks: Marks) -> dict[str, Any]:
    arrays = {}
    for name, mark in marks.items():
        values = base64.b64encode(mark.values.tobytes()).decode()
        arrays[name] = f"{mark.digest:x}", mark.values.dtype.str, values, mark.squares
    return {"rank": rank, "step": step, "arrays": arrays}


def _mark(digest: str, dtype: str, values: str, squares: float) -> Mark:
    return Mark(int(digest, 16), np.frombuffer(base64.b64decode(values), dtype), squares)


def _line(entry: Mapping[str, Any]) -> str:
    text = json.dumps(entry)
    return f"{text} {xxhash.xxh3_64_hexdigest(text.encode())}\n"


def _sound(text: str) -> Iterator[dict[str, Any]]:
    for line in text.splitlines():
        body, _, checksum = line.rpartition(" ")
        if xxhash.xxh3_64_hexdigest(body.encode()) == checksum:
            yield json.loads(body)
