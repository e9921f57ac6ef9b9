"""A job of several ranks in one process: each is a thread, and what they send goes in order."""

import itertools
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ckio.errors import RankFailed
from ckio.model.comm import Comm

T = TypeVar("T")

PATIENCE = 60.0
"""Seconds after which whoever waits for what never comes has failed."""


Boxes = Mapping[tuple[int, int], SimpleQueue[Any]]


class Threaded:
    """One of these ranks, in one conversation; the other one is the `duplicate`."""

    def __init__(self, rank: int, boxes: Boxes, other: Boxes) -> None:
        self.rank, self.size = rank, 1 + max(to for _, to in boxes)
        self._boxes, self._other = boxes, other

    def exchange(
        self, send: Mapping[int, NDArray[Any]], into: Mapping[int, NDArray[Any]], /
    ) -> None:
        for to, array in send.items():
            assert array.flags.c_contiguous
            self._boxes[self.rank, to].put(array.copy())
        for sender, array in into.items():
            assert array.flags.c_contiguous
            sent = self._next(sender)
            assert (sent.dtype, sent.size) == (array.dtype, array.size)
            array[...] = sent.reshape(array.shape)

    def largest(self, values: NDArray[Any], /) -> NDArray[Any]:
        return np.array(np.max(self.gather(values), axis=0), values.dtype)

    def gather(self, value: T, /) -> list[T]:
        self._tell(value)
        return [self._next(sender) for sender in range(self.size)]

    def duplicate(self) -> "Threaded":
        return Threaded(self.rank, self._other, self._other)

    def call_off(self, why: str, /) -> None:
        """Whoever waits for this rank in what is apart is let go."""
        Threaded(self.rank, self._other, self._other).leave(why)

    def leave(self, why: str, /) -> None:
        """So is whoever waits for it in this."""
        self._tell(RankFailed(f"rank {self.rank}: {why}", rank=self.rank))

    def _tell(self, value: object) -> None:
        for to in range(self.size):
            self._boxes[self.rank, to].put(value)

    def _next(self, sender: int) -> Any:
        found = self._boxes[sender, self.rank].get(timeout=PATIENCE)
        if isinstance(found, RankFailed):
            raise found
        return found


def on_ranks(size: int, work: Callable[[Comm], T]) -> list[T]:
    """What `work` returns on each of so many ranks; raises what made one of them fail."""
    pairs = list(itertools.product(range(size), repeat=2))
    boxes, other = ({pair: SimpleQueue() for pair in pairs} for _ in range(2))

    def outcome(rank: int) -> tuple[T, None] | tuple[None, Exception]:
        comm = Threaded(rank, boxes, other)
        try:
            return work(comm), None
        except Exception as error:
            comm.call_off(str(error))
            comm.leave(str(error))
            return None, error

    with ThreadPoolExecutor(size) as pool:
        outcomes = list(pool.map(outcome, range(size)))
    errors = sorted((e for _, e in outcomes if e), key=lambda e: isinstance(e, RankFailed))
    if errors:
        raise errors[0]
    return [result for result, _ in outcomes]
