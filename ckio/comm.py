"""The ranks of a job: one program on each, all with the same schedule."""

from collections.abc import Mapping
from typing import Any, Final, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from ckio.errors import BadInput

T = TypeVar("T")


class Comm(Protocol):
    """What ranks ask of each other. All of it is asked by all ranks, in the same order.

    Who waits for a rank that has failed is not left waiting: RankFailed is raised, which names it.

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
        """The largest of each number over all ranks; the same shape and dtype everywhere."""

    def gather(self, value: T, /) -> list[T]:
        """The values of all ranks, in their order, on each of them; what pickle can carry.

        A sum of them is thus added in one order, and has the same bits on all ranks.
        """


class Solo:
    """A job of one rank."""

    rank: int = 0
    size: int = 1

    def exchange(
        self, send: Mapping[int, NDArray[Any]], into: Mapping[int, NDArray[Any]], /
    ) -> None:
        """To and from itself; raises BadInput for other ranks."""
        if strangers := {*send, *into} - {0}:
            raise BadInput(f"there is no rank {min(strangers)} in a job of one")
        for number, array in into.items():
            array[...] = send[number]

    def largest(self, values: NDArray[Any], /) -> NDArray[Any]:
        return np.array(values)

    def gather(self, value: T, /) -> list[T]:
        return [value]


SOLO: Final = Solo()


def share(n: int, comm: Comm, /) -> range:
    """Which of n things, 0 to n - 1, are this rank's: as many as the others', or one more.

    >>> share(10, SOLO)
    range(0, 10)
    """
    return range(n * comm.rank // comm.size, n * (comm.rank + 1) // comm.size)
