"""What a killed run left behind: the adjoint to go on from, and what has to go to make room."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf

from ckio.actions import Advance, Discard, Key, Kind, Record
from ckio.platform import Platform
from ckio.platform.chain import Chain

Stored = tuple[frozenset[Key], ...]
"""The keys on each level."""

Place = tuple[Key, int]
"""A key and the number of the level on which it lies."""


def furthest(survivors: Stored, level: int | None, /) -> Place | None:
    """The adjoint that has come furthest, if any; of several copies the one on `level`."""
    adjoints = (
        (key.step, number != level, number, key)
        for number, keys in enumerate(survivors)
        for key in keys
        if key.kind is Kind.ADJOINT
    )
    best = min(adjoints, key=lambda row: row[:3], default=None)
    return None if best is None else (best[3], best[2])


def fitting(
    chain: Chain, platform: Platform, survivors: Stored, adjoint: Place | None, /
) -> tuple[Stored, list[Discard]]:
    """What is kept, which is of adjoints this one only, and the Discards of what does not fit.

    Where a level of this platform holds less than what lies there without the adjoints, what is
    cheapest to lose goes first: what saves the fewest seconds for each of its bytes.
    """
    kept = [{key for key in keys if key.kind is not Kind.ADJOINT} for keys in survivors]
    left = chain.length if adjoint is None else adjoint[0].step
    dropped = list(_dropped(chain, platform, kept, left))
    if adjoint is not None:
        kept[adjoint[1]].add(adjoint[0])
    return tuple(map(frozenset, kept)), dropped


def _dropped(
    chain: Chain, platform: Platform, kept: Sequence[set[Key]], left: int
) -> Iterator[Discard]:
    """Take from each set what does not fit on its level, one key after the other."""
    for number, (level, keys) in enumerate(zip(platform.levels, kept, strict=False)):
        used = sum(level.stored(chain.nbytes(key)) for key in keys)
        while level.capacity is not None and used > level.capacity:
            worth = _Worth.of(chain, kept, left)
            key = min(filter(chain.nbytes, keys), key=worth)
            keys.remove(key)
            used -= level.stored(chain.nbytes(key))
            yield Discard(key, number)


@dataclass(frozen=True, slots=True)
class _Worth:
    """The order in which keys are dropped.

    What a key saves at the least is the way to it from the next restart key below, once.

    Attributes
    ----------
    left : int
        The steps [0, left) are to be reversed.
    copies : Counter of Key
        On how many levels each key lies.
    restarts : list of int
        The steps of all restart keys, ascending.
    """

    chain: Chain
    left: int
    copies: Counter[Key]
    restarts: list[int]

    @staticmethod
    def of(chain: Chain, kept: Sequence[set[Key]], left: int) -> "_Worth":
        copies = Counter(key for keys in kept for key in keys)
        restarts = sorted(key.step for key in copies if key.kind is Kind.RESTART)
        return _Worth(chain, left, copies, restarts)

    def __call__(self, key: Key) -> tuple[float, str, int]:
        return self._seconds(key) / self.chain.nbytes(key), key.kind.value, -key.step

    def _is_next(self, key: Key) -> bool:
        """Whether the next step is reversed from this restart key."""
        if key.kind is not Kind.RESTART or self.copies[Key(Kind.TAPE, self.left - 1)]:
            return False
        return key.step == self.restarts[bisect_left(self.restarts, self.left) - 1]

    def _seconds(self, key: Key) -> float:
        if key.step >= self.left or self.copies[key] > 1:
            return 0.0
        if key == Key(Kind.RESTART, 0):
            return inf  # everything may be had from it, and it from nothing
        if self._is_next(key):
            return inf  # or a run that is stopped again and again would come no further than there
        tape = key.kind is Kind.TAPE
        lower = bisect_left(self.restarts, key.step + tape) - 1
        below = self.restarts[lower] if lower >= 0 else 0
        seconds = self.chain.seconds(Record(key.step, key.step + 1)) if tape else 0.0
        return seconds + (self.chain.seconds(Advance(below, key.step)) if below < key.step else 0)
