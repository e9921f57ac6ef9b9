"""The ranks of a job. Each rank runs the same program, and all have the same schedule."""

import os
from collections.abc import Mapping
from typing import Any, Final, Protocol, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from ckio.errors import BadInput
from ckio.model import optional

T = TypeVar("T")


@runtime_checkable
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
        """Send an array to each rank in `send`, and receive one from each rank in `into`.

        The keys are ranks. An array may have any memory layout and byte order, and the arrays in
        `into` may share memory with those in `send`. The call returns when all arrays have arrived
        and the arrays in `send` may be changed.

        Raises BadInput if the array that a rank sends and the array that receives it differ in
        shape or dtype. The rank that receives raises, and so does the rank that sends if the two
        send to each other. Arrays in `into` are not changed then.
        """

    def largest(self, values: NDArray[Any], /) -> NDArray[Any]:
        """Return the elementwise maximum over all ranks; NaN where a rank has NaN.

        The result has the shape and dtype of `values`. Raises BadInput on all ranks if shape or
        dtype differ between ranks, or if the values are not real numbers.
        """

    def gather(self, value: T, /) -> list[T]:
        """Return the values of all ranks, in the order of the ranks, on each rank.

        A value is anything that can be pickled. Because all ranks have the same order, a sum over
        the list has the same bits on all of them.
        """

    def duplicate(self) -> "Comm":
        """Return a separate communicator of the same ranks, for example for a model's steps.

        In a separate communicator, no rank waits for a rank that has called `call_off`: the call
        raises RankFailed, which names that rank.
        """

    def call_off(self, why: str, /) -> None:
        """Declare that this rank has failed.

        In communicators from `duplicate`, no rank waits for it any more. In this communicator the
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
        check_exchange(self, send, into)
        for number, array in into.items():
            sent = np.asarray(send[number])
            if signature_of(array) != signature_of(sent):
                raise unlike(self, number, {number: sent}, into)
            array[...] = sent

    def largest(self, values: NDArray[Any], /) -> NDArray[Any]:
        check_real(values)
        return np.array(values)

    def gather(self, value: T, /) -> list[T]:
        return [value]

    def duplicate(self) -> "Solo":
        return self

    def call_off(self, why: str, /) -> None: ...

    def free(self) -> None: ...


SOLO: Final = Solo()


def total(model: Any, name: str, part: NDArray[Any], comm: Comm, /) -> NDArray[Any]:
    """Return the gradient of a control that all ranks share, from the part of each of them.

    It is the sum over the ranks. If the model has a method `gathered` that returns the same on all
    ranks, it is what `gathered` returns.
    """
    if (gathered := optional(model).gathered) is not None:
        whole = np.asarray(gathered(name, part))
        if whole.shape == part.shape and len({x.tobytes() for x in comm.gather(whole)}) == 1:
            return whole
    return np.asarray(sum(comm.gather(part)), part.dtype)


def check_exchange(comm: Comm, send: Mapping[int, Any], into: Mapping[int, Any], /) -> None:
    """Raise BadInput for arrays that this rank cannot send, or into which none can be received."""
    if strangers := {*send, *into} - set(range(comm.size)):
        raise BadInput(
            f"exchange: there is no rank {min(strangers)}, because this job has {comm.size}, from"
            " 0; start it with more ranks by a launcher, such as mpiexec"
        )
    if (comm.rank in send) != (comm.rank in into):
        raise BadInput(
            f"exchange: rank {comm.rank} is itself in only one of `send` and `into`; what a rank"
            " sends to itself, it must receive"
        )
    for array in (*send.values(), *into.values()):
        if isinstance(array, np.ma.MaskedArray) or np.asarray(array).dtype.hasobject:
            raise BadInput(
                "exchange: a message is bytes of numbers, which no masked array and no Python"
                " objects are; give an array without them"
            )
    targets = list(into.values())
    for number, array in enumerate(targets):
        if not isinstance(array, np.ndarray) or not array.flags.writeable:
            raise BadInput(
                f"exchange: the {type(array).__name__} in `into` cannot be written; give an array,"
                " for example the view u[:1] instead of the number u[0]"
            )
        if any(np.shares_memory(array, other) for other in targets[:number]):
            raise BadInput(
                "exchange: two arrays in `into` share memory, so that one would overwrite the"
                " other; give each rank an array of its own"
            )


def check_real(values: NDArray[Any], /) -> None:
    """Raise BadInput if the values have no maximum."""
    if values.dtype.kind not in "biuf":
        raise BadInput(f"largest: {values.dtype} has no order; give real numbers")


Signature = tuple[np.dtype[Any], tuple[int, ...]]
"""The dtype of an array in this machine's byte order, and its shape."""


def signature_of(array: NDArray[Any], /) -> Signature:
    """Return the signature of an array. Only arrays with the same one can be exchanged."""
    return array.dtype.newbyteorder("="), array.shape


def text_of(array: NDArray[Any], /) -> str:
    """Return dtype and shape of an array as text."""
    return f"{array.dtype} of shape {array.shape}"


def unlike(
    comm: Comm, rank: int, send: Mapping[int, NDArray[Any]], into: Mapping[int, NDArray[Any]], /
) -> BadInput:
    """Return the error for this rank and another, whose arrays differ in dtype or shape."""
    sends = f"sends {text_of(send[rank])} and " if rank in send else ""
    return BadInput(
        f"exchange: rank {comm.rank} {sends}expects {text_of(into[rank])}, and rank {rank} expects"
        " or sends something else; give both ranks arrays of the same shape and dtype"
    )


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


def check_measures(many: bool, remedy: str, /) -> None:
    """Raise BadInput if each of many processes would measure a step, and then plan otherwise.

    `many` says whether a framework has connected several processes.
    """
    if many or (launched() or (0, 1))[1] > 1:
        raise BadInput(
            "the levels have costs, and each of several processes would measure other seconds of a"
            f" step, and plan otherwise than those that it exchanges data with; {remedy}"
        )


def share(n: int, comm: Comm, /) -> range:
    """Return this rank's share of n items, 0 to n - 1. The shares differ by one item at most.

    >>> share(10, SOLO)
    range(0, 10)
    """
    return range(n * comm.rank // comm.size, n * (comm.rank + 1) // comm.size)
