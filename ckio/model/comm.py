"""The ranks of a job: one program on each, all with the same schedule."""

import os
from collections.abc import Mapping
from typing import Any, Final, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from ckio.errors import BadInput

T = TypeVar("T")


class Comm(Protocol):
    """The communicator of a job: each method is called by all ranks, in the same order.

    Where a rank is gone, RankFailed is raised, which names it.

    Attributes
    ----------
    rank, size : int
        The number of this rank, from 0, and how many there are.
    """

    rank: int
    size: int

    def exchange(
        self, send: Mapping[int, NDArray[Any]], into: Mapping[int, NDArray[Any]], /
    ) -> None:
        """Send a contiguous array to each of some ranks, and receive one `into` an array from each.

        The arrays of both sides have the same size and dtype. Returns when all have arrived and
        what was sent may be changed.
        """

    def largest(self, values: NDArray[Any], /) -> NDArray[Any]:
        """Return the largest of each number over all ranks; the same shape and dtype everywhere."""

    def gather(self, value: T, /) -> list[T]:
        """Return the values of all ranks, in their order, on each of them; what pickle can carry.

        A sum of them is thus added in one order, and has the same bits on all ranks.
        """

    def apart(self) -> "Comm":
        """Return a separate communicator of these ranks, such as a model's within its steps.

        There nobody waits for a rank that has called it off: RankFailed is raised, which names it.
        """

    def call_off(self, why: str, /) -> None:
        """Say that this rank has failed: nobody waits any more in a conversation that is `apart`.

        In this one the others are still expected. Where they do not come before long, as they wait
        for this rank in some way of their own, the job is ended, with `why` as its last word.
        """


class Solo:
    """A job of one rank."""

    rank: int = 0
    size: int = 1

    def exchange(
        self, send: Mapping[int, NDArray[Any]], into: Mapping[int, NDArray[Any]], /
    ) -> None:
        """Send to and receive from itself; raises BadInput for other ranks."""
        if strangers := {*send, *into} - {0}:
            raise BadInput(f"there is no rank {min(strangers)} in a job of one")
        for number, array in into.items():
            array[...] = send[number]

    def largest(self, values: NDArray[Any], /) -> NDArray[Any]:
        return np.array(values)

    def gather(self, value: T, /) -> list[T]:
        return [value]

    def apart(self) -> "Solo":
        return self

    def call_off(self, why: str, /) -> None: ...


SOLO: Final = Solo()


_SIZES: Final = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS", "PALS_SIZE")
_RANKS: Final = ("PMI_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID", "PALS_RANKID")
"""What launchers tell the processes that they start, each of them its own."""


def launched(environ: Mapping[str, str] = os.environ, /) -> tuple[int, int] | None:
    """Return the rank and the number of ranks that a launcher started; None where there was none.

    >>> launched({"PMI_RANK": "3", "PMI_SIZE": "4"})
    (3, 4)
    """
    for size, rank in zip(_SIZES, _RANKS, strict=True):
        if environ.get(size, "").isdigit() and environ.get(rank, "").isdigit():
            return int(environ[rank]), int(environ[size])
    return None


def share(n: int, comm: Comm, /) -> range:
    """Return which of n things, 0 to n - 1, are this rank's: as many as the others', or one more.

    >>> share(10, SOLO)
    range(0, 10)
    """
    return range(n * comm.rank // comm.size, n * (comm.rank + 1) // comm.size)
