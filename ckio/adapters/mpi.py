"""The ranks of an MPI job.

While a rank waits for a message, it checks three conditions in turn: whether the message has
arrived, whether another rank has sent a notice of its failure, and, every half second, whether the
processes of the ranks on this host are still running. If a rank waits longer than 4 s in a
collective call, it notifies the others. Otherwise a rank that waits for a message from it would
wait forever.
"""

import atexit
import os
import socket
import sys
import time
import zlib
from collections.abc import Collection, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, NoReturn, TypeVar

import numpy as np
from numpy.typing import NDArray

from ckio.errors import BadInput, RankFailed, RunFailed
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

_NOTIFY_AFTER: Final = 4.0
"""Seconds after which a rank that waits in a collective call notifies the others."""

_TEXT: Final = 4096
"""Bytes of the message with the reason why a rank has failed."""

_MPI_TYPES: Final = {"?": "u1", "e": "f4"}
"""The types in which MPI compares booleans and half precision."""

_FAILED, _WAITING = 0, 1
"""Tags of the alarm's messages: the reason of a failure; the number of a collective call."""


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
        self._others = [rank for rank in range(self.size) if rank != self.rank]

    def exchange(
        self, send: Mapping[int, NDArray[Any]], into: Mapping[int, NDArray[Any]], /
    ) -> None:
        check_exchange(self, send, into)
        sent = {rank: np.asarray(array) for rank, array in send.items()}
        there = {rank: signature_of(array) for rank, array in sent.items()}
        back = {rank: signature_of(array) for rank, array in into.items()}
        requests, arrived = list[tuple[Any, list[int], Any]](), dict[int, NDArray[Any]]()
        for rank, (dtype, shape) in back.items():
            arrived[rank], state = np.empty(shape, dtype), self._status()
            request = self.mpi.Irecv(as_bytes(arrived[rank]), rank)
            requests.append((request, [rank], state))
        for rank, (dtype, _) in there.items():
            packed = as_bytes(np.asarray(sent[rank], dtype, order="C"))
            request = self.mpi.Isend(packed, rank, _tag(there[rank], back.get(rank)))
            requests.append((request, [rank], None))
        self._wait(*requests)
        for (_, (rank,), state), signature in zip(requests, back.values(), strict=False):
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
        self._wait((self.mpi.Iallreduce(mine, maxima, op=self._largest), self._others, None))
        return maxima

    def gather(self, value: T, /) -> list[T]:
        from mpi4py import MPI

        mine = np.frombuffer(MPI.pickle.dumps(value), np.uint8)
        lengths = np.empty(self.size, np.int64)
        length = np.array([mine.size], np.int64)
        self._wait((self.mpi.Iallgather(length, lengths), self._others, None))
        every = np.empty(lengths.sum(), np.uint8)
        self._wait((self.mpi.Iallgatherv(mine, (every, lengths)), self._others, None))
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

    def _wait(self, *requests: tuple[Any, Collection[int], Any]) -> None:
        """Wait for requests, each with the ranks that it depends on and its state, or None.

        Raises RankFailed if a rank has failed, so that a request can never complete.
        """
        if not self._is_separate:
            self._alarm.begun_calls += 1
        try:
            for request, ranks, state in requests:
                self._wait_for(request, ranks, state)
        except BaseException:
            self._alarm.unfinished.append(requests)  # MPI may still write into their arrays
            raise

    def _wait_for(self, request: Any, ranks: Collection[int], state: Any) -> None:
        alarm, begun, checks = self._alarm, time.monotonic(), 0
        while not _is_done(request, state):
            if self._is_separate:
                alarm.check()
            waited = time.monotonic() - begun
            if waited > (checks + 1) * _CHECK_EVERY:
                checks += 1
                alarm.check_processes()
                # After the first check, messages that were sent before have arrived.
                if self._is_separate and checks > 1:
                    alarm.check_left(ranks)
                elif not self._is_separate and waited > _NOTIFY_AFTER:
                    alarm.notify_waiting()
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
    """Messages with which a rank notifies all others that it has failed, or that it waits.

    They are sent on a separate communicator, so that the receivers need not expect them.

    Attributes
    ----------
    begun_calls : int
        Number of collective calls and exchanges that this rank has begun on communicators that do
        not check for failures, because `duplicate` did not make them.
    unfinished : list
        Requests that were abandoned. They keep their arrays alive, which MPI may still use.
    """

    def __init__(self, mpi: Any, grace: float) -> None:
        self._mpi, self._grace = mpi, grace
        self._local = _local_processes(mpi)
        self._sent: list[Any] = []
        self._why, self._since = "", 0.0
        self._received: tuple[int, str] | None = None
        self._announced, self._at = 0, dict[int, int]()
        self.begun_calls, self.unfinished = 0, list[Any]()
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
        self._notify(word, _FAILED)

    def notify_waiting(self) -> None:
        """Send the number of the call in which this rank waits to all others, once a call."""
        if self._announced < self.begun_calls:
            self._announced = self.begun_calls
            self._notify(np.array([self.begun_calls], np.int64), _WAITING)

    def _notify(self, word: NDArray[Any], tag: int) -> None:
        me = self._mpi.Get_rank()
        others = [rank for rank in range(self._mpi.Get_size()) if rank != me]
        self._sent += [self._mpi.Isend(word, dest=rank, tag=tag) for rank in others]

    def check(self) -> None:
        """Raise RankFailed if another rank has sent a notice of its failure."""
        from mpi4py import MPI

        if self._received is None and self._mpi.Iprobe(source=MPI.ANY_SOURCE, tag=_FAILED):
            status, word = MPI.Status(), np.empty(_TEXT, np.uint8)
            self._mpi.Recv(word, source=MPI.ANY_SOURCE, tag=_FAILED, status=status)
            text = word.tobytes().rstrip(b"\0").decode(errors="replace")
            self._received = status.Get_source(), text
        if self._received is not None:
            rank, why = self._received
            raise RankFailed(f"rank {rank}: {why}", rank=rank)

    def check_left(self, ranks: Collection[int]) -> None:
        """Raise RunFailed if one of these ranks waits in a call that this rank has not reached.

        Such a rank sends no message before this rank reaches the same call.
        """
        from mpi4py import MPI

        status, number = MPI.Status(), np.empty(1, np.int64)
        while self._mpi.Iprobe(source=MPI.ANY_SOURCE, tag=_WAITING):
            self._mpi.Recv(number, source=MPI.ANY_SOURCE, tag=_WAITING, status=status)
            self._at[status.Get_source()] = int(number[0])
        for rank in ranks:
            if self._at.get(rank, 0) > self.begun_calls:
                raise RunFailed(
                    f"rank {self._mpi.Get_rank()} waits for a message of rank {rank}, which has"
                    " finished its action: the steps of both ranks must make the same exchanges,"
                    " and end at the same step; correct the step"
                )

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
    me, here = mpi.Get_rank(), (socket.gethostname(), _boot())
    every = mpi.allgather((here, os.getpid()))
    return {
        rank: process
        for rank, (host, process) in enumerate(every)
        # Containers on one host may have process numbers of their own, which are not visible here.
        if host == here and rank != me and _is_running(process)
    }


def _boot() -> str:
    """Return the identity of this boot of the host, or "" if the system has none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


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
