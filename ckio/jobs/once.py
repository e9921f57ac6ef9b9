"""`gradient`: one gradient in this process, of which no file is left."""

import inspect
import re
import shutil
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from ckio.errors import BadInput, CkioError
from ckio.jobs.directory import all_ranks
from ckio.jobs.job import Job
from ckio.jobs.result import Result, refuse_unverified
from ckio.jobs.resume import remove_checkpoints
from ckio.model.comm import Comm
from ckio.platform.places import place_of
from ckio.platform.readable import did_you_mean

_OF_FILES: Final = re.compile(r" (is|are) (left )?in ")
"""In notes of an error: where files are that could be used to resume the run."""


def gradient(
    model: str | Callable[..., Any],
    /,
    *,
    steps: int | None = None,
    comm: Comm | None = None,
    **options: Any,
) -> Result:
    """Return J and its gradient, computed with checkpoints, and leave no file behind.

    Levels are measured for a second, or 3 % of the predicted run, and at length if `overlap` is
    given. To repeat a run, resume it or read its result later, use `Job`, which does the same in a
    directory.

    Parameters
    ----------
    model : str or callable
        A class of models, or a function that returns a fresh model, such as that of
        `ckio.functions`; or a name, as for `Job`.
    steps : int, optional
        The number of steps n. None if the model decides itself when it is finished.
    comm : Comm, optional
        The ranks, as for `Job`.
    **options
        Those of `Job`: `ram`, `disk`, `archive` or `platform`, and `control`, `settings`,
        `planner`, `overlap`, `check` and others. With no level, half of the available memory is
        used.

    Returns
    -------
    Result
        With `functional`, `gradient`, `control` and `report`.

    Raises
    ------
    BadInput, RunFailed, NotVerified
        As `Job` and `Job.run`.
    KeyboardInterrupt
        After SIGINT or SIGTERM; no file is left then, either.
    """
    known = inspect.signature(Job).parameters.keys() - {"directory", "model", "steps", "comm"}
    for name in options.keys() - known:
        raise BadInput(f"gradient: there is no option {name!r}; {did_you_mean(name, known)}")
    given = {name: options.get(name) for name in ("disk", "archive")}
    places = [place_of(name, it).path.absolute() for name, it in given.items() if it is not None]
    with all_ranks(comm) as ranks, _ended_by_sigterm(), _without_new_directories(places):
        # Ranks on many nodes have the directory of the job in common, but no temporary one.
        where = None if ranks.is_alone else Path.cwd()
        place = Path(ranks.once(lambda: tempfile.mkdtemp(prefix="ckio-", dir=where)))
        try:
            job = Job(place / "run", model=model, steps=steps, comm=comm, **options)
            result = job.run_on(ranks, None, resume=False)
        except BaseException as error:
            # Of many ranks, an interrupt may have reached this one alone.
            if ranks.is_alone or isinstance(error, Exception):
                with suppress(CkioError, OSError):
                    remove_checkpoints(place / "run", ranks)
            shutil.rmtree(place, ignore_errors=True)
            notes = getattr(error, "__notes__", [])
            notes[:] = [note for note in notes if not _OF_FILES.search(note)]
            raise
        ranks.once(lambda: shutil.rmtree(place, ignore_errors=True))
    refuse_unverified(result, "it is `result` of this error")
    return result


@contextmanager
def _without_new_directories(places: Sequence[Path]) -> Iterator[None]:
    """Remove those of these directories and their parents that did not exist, if they are empty."""
    every = [it for path in places for it in (path, *path.parents)]
    missing = list[Path]()
    with suppress(OSError):  # the run reports a path that cannot be
        missing.extend(it for it in every if not it.exists())
    try:
        yield
    finally:
        for directory in missing:
            with suppress(OSError):
                directory.rmdir()


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """Let SIGTERM raise KeyboardInterrupt within this context, so that files are removed."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt("SIGTERM")

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
