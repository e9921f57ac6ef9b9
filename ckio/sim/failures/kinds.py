"""Kinds of failures: their times, and the levels that survive them."""

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
    """A kind of failure, by which a run is interrupted.

    For example, if a process is killed, its memory is lost but the durable levels survive. If a
    node is lost, its local disk is lost, too, and only the shared levels survive.

    Attributes
    ----------
    survive : frozenset of int
        The numbers of the levels whose checkpoints survive.
    mtbf : float
        Mean seconds between two such failures; infinite if they occur only in a trace.
    restart : float
        Seconds until a new process runs, without reading checkpoints.
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
"""The time of a failure in seconds from the start of a run, and its kind."""


def mtbf(failures: Iterable[Failure], /) -> float:
    """Return the mean seconds between two failures of any of these kinds.

    It is the inverse of the sum of the rates. For example, with a mean time of 3 s and one of 6 s,
    the rates 1/3 and 1/6 have the sum 1/2:

    >>> mtbf([Failure(survive=frozenset(), mtbf=3), Failure(survive=frozenset(), mtbf=6)])
    2.0
    """
    rate = sum(1 / failure.mtbf for failure in failures)
    return 1 / rate if rate else inf


def exponential(failures: Sequence[Failure], seed: Sequence[int], /) -> Iterator[Moment]:
    """Yield independent failures without end, with exponentially distributed times between them.

    Each kind has its own mean time. The same seed gives the same failures. If all mean times are
    multiplied by a factor, all times are multiplied by it.
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
    """Return the moments of a trace; raises BadInput if they are not in order, or below 0."""
    moments = tuple(trace)
    for at, _ in moments:
        check_cost("a failure at", at)
    for (before, _), (after, _) in pairwise(moments):
        if after < before:
            raise BadInput(f"a failure at {after:g} s comes after one at {before:g} s; sort them")
    return moments


def from_somewhere(trace: Sequence[Moment], seed: Sequence[int], /) -> Iterator[Moment]:
    """Yield the failures of a run that starts at a random time of a trace.

    After its last failure the trace begins again. Raises BadInput if the trace has no failure after
    its start, because then its length is not known.
    """
    moments = checked(trace)
    length = moments[-1][0] if moments else 0.0
    if not length:
        raise BadInput(
            "a trace in which runs start at random times needs a failure after its start; add one"
        )
    return _repeated(moments, length, length * float(np.random.default_rng(seed).random()))


def _repeated(moments: Sequence[Moment], length: float, begin: float) -> Iterator[Moment]:
    turn = 0.0
    while True:
        for at, failure in moments:
            if (when := turn + at - begin) > 0:
                yield when, failure
        turn += length


_LONGEST = 80
"""Maximum characters of a time."""


def parse_trace(text: str, kinds: dict[str, Failure], seconds: Any, /) -> tuple[Moment, ...]:
    r"""Return the trace of a text with one failure per line: a time, then the name of its kind.

    Without a kind, it is the first of `kinds`. `seconds` converts the text of a time to seconds.
    Text after a # is ignored. Raises BadInput with the number of the line.

    >>> kill = Failure(survive=frozenset({1}))
    >>> [at for at, _ in parse_trace("60 kill  # first\n90", {"kill": kill}, float)]
    [60.0, 90.0]
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
