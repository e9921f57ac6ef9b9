"""Ways to fail: when each comes, and which levels survive it."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf
from typing import Any

import numpy as np

from ckio.actions.checks import as_float, check_cost
from ckio.errors import BadInput


@dataclass(frozen=True, kw_only=True)
class Failure:
    """One way in which a run is interrupted.

    A process that is killed takes its memory with it and leaves the durable levels; a node that is
    lost takes its own disk as well, and leaves what is shared.

    Attributes
    ----------
    survive : frozenset of int
        The numbers of the levels whose checkpoints survive it.
    mtbf : float
        Seconds between two of them, on the average; infinite where only a trace has them.
    restart : float
        Seconds until another process runs, before it reads anything.
    """

    survive: frozenset[int]
    mtbf: float = inf
    restart: float = 0.0

    def __post_init__(self) -> None:
        mean = as_float(self.mtbf)
        if mean is None or not mean > 0:
            raise BadInput(f"Failure: mtbf = {self.mtbf!r}; it must be a number of seconds above 0")
        object.__setattr__(self, "mtbf", mean)
        object.__setattr__(self, "restart", check_cost("Failure: restart", self.restart))
        object.__setattr__(self, "survive", frozenset(self.survive))


Moment = tuple[float, Failure]
"""When something fails, in seconds from the start of a run, and how."""


def mtbf(failures: Iterable[Failure], /) -> float:
    """Seconds between two failures of any of these kinds, on the average."""
    rate = sum(1 / failure.mtbf for failure in failures)
    return 1 / rate if rate else inf


def exponential(failures: Sequence[Failure], seed: Sequence[int], /) -> Iterator[Moment]:
    """Failures that know nothing of each other, without end: each kind by its own mean time.

    The same seed gives the same failures; where all mean times are longer by a factor, so is each
    of its times.
    """
    mean = mtbf(failures)
    if mean == inf:
        return
    draw = np.random.default_rng(seed)
    share = np.cumsum([mean / failure.mtbf for failure in failures])
    now = 0.0
    while True:
        now += mean * draw.standard_exponential()
        number = int(np.searchsorted(share, draw.random(), side="right"))
        yield now, failures[min(number, len(failures) - 1)]


def checked(trace: Iterable[Moment], /) -> tuple[Moment, ...]:
    """The moments of a trace; raises BadInput where they are not in order, or below 0."""
    moments = tuple(trace)
    for at, _ in moments:
        check_cost("a failure at", at)
    for (before, _), (after, _) in pairwise(moments):
        if after < before:
            raise BadInput(f"a failure at {after:g} s comes after one at {before:g} s; sort them")
    return moments


def from_somewhere(trace: Sequence[Moment], seed: Sequence[int], /) -> Iterator[Moment]:
    """The failures that a run sees which starts at any moment of a trace.

    After its last failure the trace begins anew. Raises BadInput for a trace without a failure
    after its start: nothing is known of its length.
    """
    moments = checked(trace)
    length = moments[-1][0] if moments else 0.0
    if not length:
        raise BadInput("a trace to start somewhere in needs a failure after its start")
    return _repeated(moments, length, length * float(np.random.default_rng(seed).random()))


def _repeated(moments: Sequence[Moment], length: float, begin: float) -> Iterator[Moment]:
    turn = 0.0
    while True:
        for at, failure in moments:
            if (when := turn + at - begin) > 0:
                yield when, failure
        turn += length


_LONGEST = 80
"""Characters of a time."""


def parse_trace(text: str, kinds: dict[str, Failure], seconds: Any, /) -> tuple[Moment, ...]:
    """A trace from lines of a time and a kind; without a kind it is the first of these.

    `seconds` reads a time; what follows a # is not read. Raises BadInput, which names the line.
    """
    moments = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split("#", 1)[0].split()
        if not words:
            continue
        at, kind = [*words, next(iter(kinds))][:2]
        if len(words) > 2 or kind not in kinds or len(at) > _LONGEST:
            raise BadInput(f"line {number}: {line.strip()[:80]!r} is not TIME [{'|'.join(kinds)}]")
        try:
            moments.append((seconds(at), kinds[kind]))
        except BadInput as error:
            raise BadInput(f"line {number}: {error}") from None
    return checked(moments)
