"""The ranks of an MPI job.

While a rank waits for a message, it checks three conditions in turn: whether the message has
arrived, whether another rank has sent a notice of its failure, and, every half second, whether the
processes of the ranks on this host are still running.
"""

import atexit
import os
import sys
import time
import zlib
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, NoReturn, TypeVar

import numpy as np
from numpy.typing import NDArray

from ckio.errors import BadInput, RankFailed
from ckio.model.arrays import as_bytes
from ckio.model.comm import (
    SOLO,
    Signature,
    Solo,
    check_exchange,
    check_real,
    launched,
    signature_of,
    text_of,
    unlike,
)

T = TypeVar("T")

GRACE: Final = 20.0
"""Seconds that a failed rank waits for the others before it ends the job."""

_CHECK_EVERY: Final = 0.5
"""Seconds between two checks whether the other ranks are still running."""

_TEXT: Final = 4096
"""Bytes of the message with the reason why a rank has failed."""

_MPI_TYPES: Final = {"?": "u1", "e": "f4"}
"""The types in which MPI compares booleans and half precision."""


def world(*, grace: float = GRACE) -> "Mpi | Solo":
    """Return the communicator of all ranks of this job, or of this process alone without a job.

    `grace` is the number of seconds that a failed rank waits for the others before it ends the job.
    Raises BadInput if a launcher started several processes that cannot communicate, because each of
    them would then be a serial run, and all of them would write the same files.
    """
    started = launched()
    if started is None:
        return SOLO
    _, size = started
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:  # no mpi4py, or it finds no MPI
        if size == 1:
            return SOLO
        raise BadInput(
            f"{size} ranks were started, but MPI cannot be used: {error}; install 'ckio[mpi]'"
            " with the MPI that started them, or 'ckio[mpi-test]', which contains an MPI"
        ) from None
    ranks = MPI.COMM_WORLD.Get_size()
    if ranks != size:
        raise BadInput(
            f"{size} ranks were started, but mpi4py finds {ranks}: mpi4py was built with another"
            f" MPI ({MPI.Get_library_version().splitlines()[0].strip()}) than that of the launcher;"
            " use the launcher of this MPI"
        )
    return of(MPI.COMM_WORLD, grace=grace) if ranks > 1 else SOLO


def of(communicator: Any, /, *, grace: float = GRACE) -> "Mpi":
    """Return a communicator of ckio for a communicator of mpi4py, which is duplicated.

    This is a collective call. `grace` is the same as for `world`.
    """
    alarm = _RankAlarm(communicator.Dup(), grace)
    return Mpi(alarm.track(communicator.Dup()), alarm)


class Mpi:
    """A communicator of ckio (see Comm) that uses mpi4py. The functions `of` and `world` return it.

    Attributes
    ----------
    rank, size : int
        The number of this rank, from 0, and the number of ranks.
    mpi : mpi4py.MPI.Comm
        The communicator of mpi4py, for a model that needs more than Comm has. If a rank waits in a
        call of `mpi` itself, it is not notified when another rank has failed.
    """

    def __init__(self, mpi: Any, alarm: "_RankAlarm", *, is_separate: bool = False) -> None:
        from mpi4py import MPI

        self.mpi, self._status, self._largest = mpi, MPI.Status, MPI.MAX
        self.rank: int = mpi.Get_rank()
        self.size: int = mpi.Get_size()
        self._alarm, self._is_separate = alarm, is_separate

    def exchange(
        self, send: Mapping[int, NDArray[Any]], into: Mapping[int, NDArray[Any]], /
    ) -> None:
        check_exchange(self, send, into)
        sent = {rank: np.asarray(array) for rank, array in send.items()}
        there = {rank: signature_of(array) for rank, array in sent.items()}
        back = {rank: signature_of(array) for rank, array in into.items()}
        requests, arrived = list[tuple[Any, Any]](), dict[int, NDArray[Any]]()
        for rank, (dtype, shape) in back.items():
            arrived[rank], state = np.empty(shape, dtype), self._status()
            requests.append((self.mpi.Irecv(as_bytes(arrived[rank]), rank), state))
        for rank, (dtype, _) in there.items():
            packed = as_bytes(np.asarray(sent[rank], dtype, order="C"))
            request = self.mpi.Isend(packed, rank, _tag(there[rank], back.get(rank)))
            requests.append((request, None))
        self._wait(*requests)
        for (_, state), (rank, signature) in zip(requests, back.items(), strict=False):
            if state.Get_tag() != _tag(signature, there.get(rank)):
                raise unlike(self, rank, sent, into)
        for rank, array in into.items():
            array[...] = arrived[rank]

    def largest(self, values: NDArray[Any], /) -> NDArray[Any]:
        check_real(values)
        number = _tag(signature_of(values), None)
        highest, lowest = self._maxima(np.array([number, -number]))
        if highest != -lowest:
            raise BadInput(
                f"largest: the values of rank {self.rank} are {text_of(values)}, and those of"
                " another rank are not; give values of the same shape and dtype on all ranks"
            )
        # To MPI, the larger one of a number and NaN is either of them, and not on all ranks alike.
        lacks = np.isnan(values)
        mine = np.empty(
            (2, *values.shape), _MPI_TYPES.get(values.dtype.char, signature_of(values)[0])
        )
        mine[0], mine[1] = values, lacks
        if lacks.any():
            mine[0, lacks] = -np.inf
        found = self._maxima(mine)
        if found[1].any():
            found[0, found[1] > 0] = np.nan
        return found[0, ...].astype(values.dtype, copy=False)

    def _maxima(self, mine: NDArray[Any]) -> NDArray[Any]:
        maxima = np.empty_like(mine)
        self._wait((self.mpi.Iallreduce(mine, maxima, op=self._largest), None))
        return maxima

    def gather(self, value: T, /) -> list[T]:
        from mpi4py import MPI

        mine = np.frombuffer(MPI.pickle.dumps(value), np.uint8)
        lengths = np.empty(self.size, np.int64)
        length = np.array([mine.size], np.int64)
        self._wait((self.mpi.Iallgather(length, lengths), None))
        every = np.empty(lengths.sum(), np.uint8)
        self._wait((self.mpi.Iallgatherv(mine, (every, lengths)), None))
        parts = np.split(every, np.cumsum(lengths)[:-1])
        return [MPI.pickle.loads(part.tobytes()) for part in parts]

    def duplicate(self) -> "Mpi":
        return Mpi(self._alarm.track(self.mpi.Dup()), self._alarm, is_separate=True)

    def free(self) -> None:
        """Give back what MPI has for this communicator and those that `duplicate` made of it.

        This is a collective call. MPI has some two thousand communicators at a time.
        """
        self._alarm.free()

    def call_off(self, why: str, /) -> None:
        self._alarm.notify_failure(why)

    def _wait(self, *requests: tuple[Any, Any]) -> None:
        """Wait for requests, each with its state, or None.

        Raises RankFailed if a rank has failed, so that a request can never complete.
        """
        try:
            for request, state in requests:
                self._wait_for(request, state)
        except BaseException:
            self._alarm.unfinished.append(requests)  # MPI may still write into their arrays
            raise

    def _wait_for(self, request: Any, state: Any) -> None:
        check_at = time.monotonic() + _CHECK_EVERY
        while not _is_done(request, state):
            if self._is_separate:
                self._alarm.check()
            if time.monotonic() > check_at:
                check_at += _CHECK_EVERY
                self._alarm.check_processes()
            os.sched_yield()  # another rank may be waiting for this processor


def _is_done(request: Any, state: Any) -> bool:
    """Return whether a request has ended; the state of a message that did not fit has no tag."""
    try:
        return bool(request.Test(state))
    except Exception as error:
        from mpi4py import MPI

        if state is None or getattr(error, "error_class", None) != MPI.ERR_TRUNCATE:
            raise
        state.Set_tag(MPI.ANY_TAG)
        return True


@lru_cache(maxsize=1024)
def _tag(there: Signature, back: Signature | None) -> int:
    """Return the tag of a message: a checksum of what goes there, and of what is expected back."""
    from mpi4py import MPI

    largest: Any = MPI.COMM_WORLD.Get_attr(MPI.TAG_UB)
    return zlib.crc32(repr((there, back)).encode()) % int(largest)


class _RankAlarm:
    """Messages with which a rank notifies all others that it has failed.

    They are sent on a separate communicator, so that the receivers need not expect them.

    Attributes
    ----------
    unfinished : list
        Requests that were abandoned. They keep their arrays alive, which MPI may still use.
    """

    def __init__(self, mpi: Any, grace: float) -> None:
        self._mpi, self._grace = mpi, grace
        self._local = _local_processes(mpi)
        self._sent: list[Any] = []
        self._why, self._since = "", 0.0
        self._received: tuple[int, str] | None = None
        self.unfinished = list[Any]()
        self._all = [mpi]

    def track(self, mpi: Any) -> Any:
        """Return a communicator that `free` gives back."""
        self._all.append(mpi)
        return mpi

    def free(self) -> None:
        while self._all:
            self._all.pop().Free()

    def notify_failure(self, why: str) -> None:
        """Send the reason why this rank has failed to all others. Only the first reason is sent."""
        if self._since:
            return
        self._why, self._since = why, time.monotonic()
        word = np.zeros(_TEXT, np.uint8)
        text = why.encode(errors="replace")[:_TEXT]
        word[: len(text)] = np.frombuffer(text, np.uint8)
        me = self._mpi.Get_rank()
        others = [rank for rank in range(self._mpi.Get_size()) if rank != me]
        self._sent += [self._mpi.Isend(word, dest=rank) for rank in others]

    def check(self) -> None:
        """Raise RankFailed if another rank has sent a notice of its failure."""
        from mpi4py import MPI

        if self._received is None and self._mpi.Iprobe():
            status, word = MPI.Status(), np.empty(_TEXT, np.uint8)
            self._mpi.Recv(word, status=status)
            text = word.tobytes().rstrip(b"\0").decode(errors="replace")
            self._received = status.Get_source(), text
        if self._received is not None:
            rank, why = self._received
            raise RankFailed(f"rank {rank}: {why}", rank=rank)

    def check_processes(self) -> None:
        """Raise RankFailed if a process of a rank on this host has ended.

        If this rank has failed, and the others do not stop within the grace period, end the job.
        """
        for rank, process in self._local.items():
            if not _is_running(process):
                atexit.register(_abort, self._mpi)
                raise RankFailed(f"rank {rank}: its process ({process}) has ended", rank=rank)
        if self._since and time.monotonic() > self._since + self._grace:
            rank = self._mpi.Get_rank()
            sys.stderr.write(
                f"ckio: rank {rank}: {self._why}; the other ranks wait for it in calls that ckio"
                f" cannot interrupt, so the job is ended after {self._grace:g} s\n"
            )
            _abort(self._mpi)


def _local_processes(mpi: Any) -> dict[int, int]:
    """Return the process numbers of the other ranks on this host, by rank."""
    from mpi4py import MPI

    me, here = mpi.Get_rank(), mpi.Split_type(MPI.COMM_TYPE_SHARED)
    processes = dict(here.allgather((me, os.getpid())))
    here.Free()
    # Containers on one host may have process numbers of their own, which are not visible here.
    return {rank: it for rank, it in processes.items() if rank != me and _is_running(it)}


def _is_running(process: int) -> bool:
    """Return whether a process is running, and is not a zombie."""
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return not Path("/proc/self/stat").exists()  # without /proc, it counts as running
    return state[0] not in "ZX"


def _abort(mpi: Any) -> NoReturn:
    """End the job, because MPI would wait forever for the other ranks."""
    sys.stdout.flush()
    sys.stderr.flush()
    mpi.Abort(1)
    raise SystemExit(1)  # not reached
