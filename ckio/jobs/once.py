"""`gradient`: one gradient in this process, of which no file is left."""

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ckio.jobs.directory import all_ranks
from ckio.jobs.job import Job
from ckio.jobs.result import Result, refuse_unverified
from ckio.model.comm import Comm


def gradient(
    model: str | Callable[..., Any],
    /,
    *,
    steps: int | None = None,
    comm: Comm | None = None,
    **options: Any,
) -> Result:
    """Return J and its gradient, computed with checkpoints, and leave no file behind.

    Levels are measured for a second, or 3 % of the predicted run. To repeat a run, resume it or
    read its result later, use `Job`, which does the same in a directory.

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
    """
    with all_ranks(comm) as ranks:
        # Ranks on many nodes have the directory of the job in common, but no temporary one.
        where = None if ranks.is_alone else Path.cwd()
        place = Path(ranks.once(lambda: tempfile.mkdtemp(prefix="ckio-", dir=where)))
        try:
            job = Job(place / "run", model=model, steps=steps, comm=comm, **options)
            result = job.run_on(ranks, None, resume=False)
        finally:
            ranks.once(lambda: shutil.rmtree(place, ignore_errors=True))
    refuse_unverified(result, "it is `result` of this error")
    return result
