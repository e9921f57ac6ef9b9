"""The ranks of an MPI job.

A rank that waits checks three conditions in turn: whether the message has arrived, whether another
rank has cancelled the exchange, and every half second whether the processes of the ranks on this
host are still running. A rank that waits for long in a collective agreement notifies the others,
because a rank that waits for its message elsewhere would wait forever.
"""

import atexit
import os
import socket
import sys
import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Final, NoReturn, TypeVar

import numpy as np
from numpy.typing import NDArray

from ckio.errors import BadInput, RankFailed, RunFailed
from ckio.model.arrays import as_bytes
from ckio.model.comm import SOLO, Comm, launched

T = TypeVar("T")

GRACE: Final = 20.0
"""Seconds that a rank which has failed waits for the others before it ends the job."""

_LOOK: Final = 0.5
"""Seconds between two checks whether the other ranks are still running."""

_LONG: Final = 4.0
"""Seconds after which a rank that waits in an agreement notifies the others."""

_TEXT: Final = 4096
"""Bytes of the message in which a rank says why it has failed."""

_TAKEN: Final = {"?": "u1", "e": "f4"}
"""Types that MPI compares instead of booleans and half precision."""

_FAILED, _WAITING = 0, 1
"""Tags of the alarm's messages: why a rank has failed; in which agreement it waits."""


def world(*, grace: float = GRACE) -> Comm:
    """Return all ranks of the job of this process, or this process alone if it is in no job.

    Raises BadInput if a launcher started several processes that cannot communicate. They would be
    as many serial runs, in the same files.
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
            f"{size} ranks were started, and MPI cannot be used: {error}; install 'ckio[mpi]'"
            " beside the MPI that started them, or 'ckio[mpi-test]', which brings one"
        ) from None
    ranks = MPI.COMM_WORLD.Get_size()
    if ranks != size:
        raise BadInput(
            f"{size} ranks were started, and mpi4py sees {ranks}: it was made for another MPI than"
            f" the one that started them ({MPI.Get_library_version().splitlines()[0].strip()});"
            " use the launcher of that one"
        )
    return of(MPI.COMM_WORLD, grace=grace) if ranks > 1 else SOLO


def of(communicator: Any, /, *, grace: float = GRACE) -> "Mpi":
    """Return the ranks of an mpi4py communicator. All of its ranks must call this."""
    return Mpi(communicator.Dup(), _RankAlarm(communicator.Dup(), grace))


class Mpi:
    """A communicator of ckio (see Comm) over one of mpi4py; `of` and `world` return one.

    Attributes
    ----------
    mpi : mpi4py.MPI.Comm
        The communicator of mpi4py, for a model that needs more than Comm has. A rank that waits in
        it is not notified if another rank has failed.
    """

    def __init__(self, mpi: Any, alarm: "_RankAlarm", *, heeds: bool = False) -> None:
        self.mpi = mpi
        self.rank: int = mpi.Get_rank()
        self.size: int = mpi.Get_size()
        self._alarm, self._heeds = alarm, heeds
        self._others = [rank for rank in range(self.size) if rank != self.rank]

    def exchange(
        self, send: Mapping[int, NDArray[Any]], into: Mapping[int, NDArray[Any]], /
    ) -> None:
        coming = [
            (self.mpi.Irecv(as_bytes(array), source=rank), [rank]) for rank, array in into.items()
        ]
        going = [
            (self.mpi.Isend(as_bytes(array), dest=rank), [rank]) for rank, array in send.items()
        ]
        self._wait(*coming, *going)

    def largest(self, values: NDArray[Any], /) -> NDArray[Any]:
        from mpi4py import MPI

        mine = np.array(values, _TAKEN.get(values.dtype.char, values.dtype.newbyteorder("=")))
        maxima = np.empty_like(mine)
        self._wait((self.mpi.Iallreduce(mine, maxima, op=MPI.MAX), self._others))
        return maxima.astype(values.dtype, copy=False)

    def gather(self, value: T, /) -> list[T]:
        from mpi4py import MPI

        mine = np.frombuffer(MPI.pickle.dumps(value), np.uint8)
        lengths = np.empty(self.size, np.int64)
        length = np.array([mine.size], np.int64)
        self._wait((self.mpi.Iallgather(length, lengths), self._others))
        every = np.empty(lengths.sum(), np.uint8)
        self._wait((self.mpi.Iallgatherv(mine, (every, lengths)), self._others))
        parts = np.split(every, np.cumsum(lengths)[:-1])
        return [MPI.pickle.loads(part.tobytes()) for part in parts]

    def apart(self) -> "Mpi":
        return Mpi(self.mpi.Dup(), self._alarm, heeds=True)

    def call_off(self, why: str, /) -> None:
        self._alarm.ring(why)

    def _wait(self, *requests: tuple[Any, Collection[int]]) -> None:
        """Wait for requests, each of some ranks; raises RankFailed where one is never done."""
        if not self._heeds:
            self._alarm.met += 1
        try:
            for request, ranks in requests:
                self._wait_for(request, ranks)
        except BaseException:
            self._alarm.unfinished.append(requests)  # MPI may yet write into their arrays
            raise

    def _wait_for(self, request: Any, ranks: Collection[int]) -> None:
        alarm, begun, looked = self._alarm, time.monotonic(), 0
        while not request.Test():
            if self._heeds:
                alarm.check()
            waited = time.monotonic() - begun
            if waited > (looked + 1) * _LOOK:
                looked += 1
                alarm.look()
                if self._heeds and looked > 1:  # what was sent before has come by now
                    alarm.check_left(ranks)
                elif not self._heeds and waited > _LONG:
                    alarm.tell_waiting()
            os.sched_yield()  # another rank may be waiting for this processor


class _RankAlarm:
    """Notices of ranks that have failed, to all others, also to those that ask for nothing.

    Attributes
    ----------
    met : int
        How often this rank has asked something of all where nobody is let go.
    unfinished : list
        What was given up with its arrays, of which MPI has not let go.
    """

    def __init__(self, mpi: Any, grace: float) -> None:
        self._mpi, self._grace = mpi, grace
        self._beside = _beside(mpi)
        self._sent: list[Any] = []
        self._why, self._since = "", 0.0
        self._heard: tuple[int, str] | None = None
        self._told, self._at = 0, dict[int, int]()
        self.met, self.unfinished = 0, list[Any]()

    def ring(self, why: str) -> None:
        """Tell all others why this rank has failed; the first reason is the one."""
        if self._since:
            return
        self._why, self._since = why, time.monotonic()
        word = np.zeros(_TEXT, np.uint8)
        text = why.encode(errors="replace")[:_TEXT]
        word[: len(text)] = np.frombuffer(text, np.uint8)
        self._tell(word, _FAILED)

    def tell_waiting(self) -> None:
        """Tell all others once in which agreement, by its number, this rank waits."""
        if self._told < self.met:
            self._told = self.met
            self._tell(np.array([self.met], np.int64), _WAITING)

    def _tell(self, word: NDArray[Any], tag: int) -> None:
        me = self._mpi.Get_rank()
        others = [rank for rank in range(self._mpi.Get_size()) if rank != me]
        self._sent += [self._mpi.Isend(word, dest=rank, tag=tag) for rank in others]

    def check(self) -> None:
        """Raise RankFailed where another rank has called it off."""
        from mpi4py import MPI

        if self._heard is None and self._mpi.Iprobe(source=MPI.ANY_SOURCE, tag=_FAILED):
            status, word = MPI.Status(), np.empty(_TEXT, np.uint8)
            self._mpi.Recv(word, source=MPI.ANY_SOURCE, tag=_FAILED, status=status)
            text = word.tobytes().rstrip(b"\0").decode(errors="replace")
            self._heard = status.Get_source(), text
        if self._heard is not None:
            rank, why = self._heard
            raise RankFailed(f"rank {rank}: {why}", rank=rank)

    def check_left(self, ranks: Collection[int]) -> None:
        """Raise RunFailed if one of these ranks waits in an agreement that this one has not reached
        yet, because it sends nothing any more before that.
        """
        from mpi4py import MPI

        status, number = MPI.Status(), np.empty(1, np.int64)
        while self._mpi.Iprobe(source=MPI.ANY_SOURCE, tag=_WAITING):
            self._mpi.Recv(number, source=MPI.ANY_SOURCE, tag=_WAITING, status=status)
            self._at[status.Get_source()] = int(number[0])
        for rank in ranks:
            if self._at.get(rank, 0) > self.met:
                raise RunFailed(
                    f"rank {self._mpi.Get_rank()} waits for what rank {rank} sends, which has done"
                    " what it had to do: their steps do not exchange the same, or end elsewhere"
                )

    def look(self) -> None:
        """Raise RankFailed where a rank on this host is gone; end the job where nobody comes."""
        for rank, process in self._beside.items():
            if not _runs(process):
                atexit.register(_abandon, self._mpi)
                raise RankFailed(f"rank {rank}: its process ({process}) has ended", rank=rank)
        if self._since and time.monotonic() > self._since + self._grace:
            rank = self._mpi.Get_rank()
            sys.stderr.write(
                f"ckio: rank {rank}: {self._why}; the other ranks wait for it elsewhere, and the"
                f" job is ended after {self._grace:g} s\n"
            )
            _abandon(self._mpi)


def _beside(mpi: Any) -> dict[int, int]:
    """Return the processes of the other ranks on this host."""
    me, here = mpi.Get_rank(), (socket.gethostname(), _boot())
    every = mpi.allgather((here, os.getpid()))
    return {
        rank: process
        for rank, (host, process) in enumerate(every)
        if host == here and rank != me and _runs(process)  # not so, where each has its own numbers
    }


def _boot() -> str:
    """Return an identity of this boot of the host, where the system has one."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _runs(process: int) -> bool:
    """Return whether a process runs, and is not only waited for."""
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return not Path("/proc/self/stat").exists()  # where nothing is known, nobody is missed
    return state[0] not in "ZX"


def _abandon(mpi: Any) -> NoReturn:
    """End the job: the others will not come, and MPI would wait for them."""
    sys.stdout.flush()
    sys.stderr.flush()
    mpi.Abort(1)
    raise SystemExit(1)  # not reached
