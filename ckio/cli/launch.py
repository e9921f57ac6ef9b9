"""The ranks that a command is started on, by mpiexec or srun, and what all of them were given."""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from ckio.cli.files import read_platform
from ckio.errors import BadInput, CkioError
from ckio.jobs import directory
from ckio.model.comm import launched
from ckio.parallel.team import Team
from ckio.platform import Platform


@contextmanager
def all_ranks() -> Iterator[Team]:
    """Give the ranks of this job; what one of them raises the first one says.

    That one gives the job its exit status, when all others are done: a launcher ends the job where
    the first process leaves with another status than 0.
    """
    first = (launched() or (0, 1))[0] == 0
    if not first:
        logging.getLogger("ckio").setLevel(logging.CRITICAL)
    try:
        with directory.all_ranks() as team:
            yield team
    except (CkioError, KeyboardInterrupt) as error:
        if not first and getattr(error, "shared", True):
            raise click.exceptions.Exit(0) from error
        raise


def check_alike(team: Team, given: Mapping[str, Any], /) -> None:
    """Raise BadInput where ranks were started with other words than the first one."""
    every = team.gather({name: str(value) for name, value in given.items()})
    for rank, there in enumerate(every):
        for name in (name for name in there if there[name] != every[0][name]):
            raise BadInput(
                f"the ranks were started with different words: {name} is {there[name]} on rank"
                f" {rank}, and {every[0][name]} on rank 0"
            )


def platform_file(path: Path, team: Team, /) -> Platform:
    """A platform file as the first rank finds it."""
    if team.is_alone:
        return read_platform(path)
    text = team.once(lambda: read_platform(path).dumps())
    return Platform.loads(text, source=str(path))
