"""Buffers seen as the pages of a file: which the device takes as they are, and which are copied.

Direct I/O moves whole pages, from and to memory that begins where a page begins. In a run of
buffers those go as they are that lie whole within one buffer, at such an address; the others, and
the last page if it is not full, pass through staging memory.
"""

from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate
from typing import Final, NamedTuple

import numpy as np

from ckio.actions import Buffers
from ckio.backends.payload import gather, scatter

PAGE: Final = 4096
"""Bytes of a page; few devices and file systems want rounder addresses and offsets than this."""

_MOST: Final = 1024
"""Pieces of memory that one system call takes."""


class Cut(NamedTuple):
    """What one system call moves.

    Attributes
    ----------
    nbytes : int
        Bytes of the run; the pages may have more, where the run ends within one.
    vector : list of memoryview
        Whole pages.
    copies : list of (memoryview, list of memoryview)
        Those of them that are staging memory, and the parts of buffers whose bytes pass through.
    """

    nbytes: int
    vector: list[memoryview]
    copies: list[tuple[memoryview, list[memoryview]]]

    def gather(self) -> None:
        """Fill the staging memory: with bytes of the run, and behind its end with zeros."""
        for pages, parts in self.copies:
            gather(pages, parts)
            filled = sum(map(len, parts))
            if filled < len(pages):
                pages[filled:] = bytes(len(pages) - filled)

    def scatter(self) -> None:
        """Fill the buffers from the staging memory."""
        for pages, parts in self.copies:
            scatter(pages, parts)


class Run:
    """Buffers one behind the other, `nbytes` bytes together, of which the first begins a page."""

    def __init__(self, data: Buffers, /) -> None:
        self._views = [view for view in data if len(view)]
        self._begins = list(accumulate(map(len, self._views), initial=0))
        self.nbytes = self._begins[-1]
        self._straight = list(self._fitting())
        self._ends = [end for _, end in self._straight]

    def parts(self, begin: int, end: int, /) -> Iterator[memoryview]:
        """The bytes from `begin` to `end`, or to where the run ends if that is sooner."""
        number = bisect_right(self._begins, begin) - 1
        while begin < min(end, self.nbytes):
            start = self._begins[number]
            part = self._views[number][begin - start : end - start]
            yield part
            begin += len(part)
            number += 1

    def cut(self, begin: int, end: int, staging: memoryview, /) -> Cut:
        """What to move from `begin`, towards `end`, as far as `staging` and one system call reach.

        `begin` begins a page; so does `end`, or the run ends there.
        """
        vector: list[memoryview] = []
        copies: list[tuple[memoryview, list[memoryview]]] = []
        at = begin
        while at < end and len(vector) < _MOST:
            straight, stop = self._next(at)
            stop = min(stop, end)
            if straight:
                vector += self.parts(at, stop)
            else:
                pages = staging[: _up(stop - at)]
                if not pages:
                    break
                staging = staging[len(pages) :]
                stop = min(stop, at + len(pages))
                vector.append(pages)
                copies.append((pages, list(self.parts(at, stop))))
            at = stop
        return Cut(at - begin, vector, copies)

    def _next(self, at: int) -> tuple[bool, int]:
        """Whether the page at `at` goes as it is, and where the pages end of which that is so."""
        number = bisect_right(self._ends, at)
        if number == len(self._straight):
            return False, self.nbytes
        begin, end = self._straight[number]
        return (True, end) if begin <= at else (False, begin)

    def _fitting(self) -> Iterator[tuple[int, int]]:
        """Where the pages begin and end that go as they are, buffer by buffer."""
        for begin, view in zip(self._begins, self._views, strict=False):
            first, behind = _up(begin), (begin + len(view)) // PAGE * PAGE
            if first < behind and (_address(view) - begin) % PAGE == 0:
                yield first, behind


def _up(nbytes: int) -> int:
    return -(-nbytes // PAGE) * PAGE


def _address(view: memoryview) -> int:
    return int(np.frombuffer(view, np.uint8).__array_interface__["data"][0])
