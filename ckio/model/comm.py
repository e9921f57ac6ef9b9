"""The ranks of a job. Each rank runs the same program, and all have the same schedule."""

import os
from collections.abc import Mapping
from typing import Any, Final, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from ckio.errors import BadInput

T = TypeVar("T")


class Comm(Protocol):
    """The communicator of a job.

    Except `call_off`, the methods are collective calls: all ranks call them, in the same order. If
    a rank has ended, they raise RankFailed, which names that rank.

    Attributes
    ----------
    rank, size : int
        The number of this rank, from 0, and the number of ranks.
    """

    rank: int
    size: int

    def exchange(
        self, send: Mapping[int, NDArray[Any]], into: Mapping[int, NDArray[Any]], /
    ) -> None:
        """Send a contiguous array to each rank in `send`, and receive one from each rank in `into`.

        The keys are ranks. The array that is sent and the array that receives it have the same size
        and dtype. The call returns when all arrays have arrived and the arrays in `send` may be
        changed.
        """

    def largest(self, values: NDArray[Any], /) -> NDArray[Any]:
        """Return the elementwise maximum over all ranks.

        `values` has the same shape and dtype on all ranks, and so has the result.
        """

    def gather(self, value: T, /) -> list[T]:
        """Return the values of all ranks, in the order of the ranks, on each rank.

        A value is anything that can be pickled. Because all ranks have the same order, a sum over
        the list has the same bits on all of them.
        """

    def apart(self) -> "Comm":
        """Return a separate communicator of the same ranks, for example for a model's steps.

        In a separate communicator, no rank waits for a rank that has called `call_off`: the call
        raises RankFailed, which names that rank.
        """

    def call_off(self, why: str, /) -> None:
        """Declare that this rank has failed.

        In communicators from `apart`, no rank waits for it any more. In this communicator the
        other ranks are still expected in the next collective call. If they do not come within a
        limited time, because they wait for this rank by other means, the job is aborted with the
        message `why`.
        """


class Solo:
    """A job of one rank."""

    rank: int = 0
    size: int = 1

    def exchange(
        self, send: Mapping[int, NDArray[Any]], into: Mapping[int, NDArray[Any]], /
    ) -> None:
        """Copy the array that this rank sends to itself; raises BadInput for other ranks."""
        if strangers := {*send, *into} - {0}:
            raise BadInput(
                f"exchange: there is no rank {min(strangers)} in a job of one rank; start the job"
                " with a launcher, such as mpiexec"
            )
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
"""The environment variables by which each launcher passes rank and size to its processes."""


def launched(environ: Mapping[str, str] = os.environ, /) -> tuple[int, int] | None:
    """Return the rank and the number of ranks that a launcher set; None without a launcher.

    >>> launched({"PMI_RANK": "3", "PMI_SIZE": "4"})
    (3, 4)
    """
    for size, rank in zip(_SIZES, _RANKS, strict=True):
        if environ.get(size, "").isdigit() and environ.get(rank, "").isdigit():
            return int(environ[rank]), int(environ[size])
    return None


def share(n: int, comm: Comm, /) -> range:
    """Return this rank's share of n items, 0 to n - 1. The shares differ by one item at most.

    >>> share(10, SOLO)
    range(0, 10)
    """
    return range(n * comm.rank // comm.size, n * (comm.rank + 1) // comm.size)
