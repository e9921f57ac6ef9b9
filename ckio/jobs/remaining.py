"""The remaining time of a run: the predicted time of the rest, corrected by measured times."""

import time
from collections.abc import Callable
from math import exp, log
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ckio.actions.columns import WRITE, Actions
from ckio.schedule.timeline import Event, Timeline

_TRUSTED: Final = 0.02
"""The weight of the prediction, as a fraction of the predicted makespan.

After this time of one kind of action, the measured factor and the general one count equally.
"""

_LEAST: Final = 1e-9
"""The ratio of measured to predicted seconds is limited to between this number and its inverse."""


class Remaining:
    """The remaining seconds of a run. It is called with each event, as the `watch` of a run.

    Each kind of action (advance, record, reverse, and each kind of access to each level) has a
    factor: its measured time divided by its predicted time. A measured factor counts more if more
    time of its kind was measured, so that early estimates are close to the prediction. A kind that
    has not occurred yet has the factor of all actions together.

    Parameters
    ----------
    predicted
        The simulated timeline of the same schedule.
    """

    def __init__(self, predicted: Timeline, /) -> None:
        self._kind = _kinds(predicted.actions)
        self._seconds = predicted.stop - predicted.start
        self._rest = np.bincount(self._kind, self._seconds, minlength=1)
        self._predicted, self._measured = np.zeros_like(self._rest), np.zeros_like(self._rest)
        self._trusted = _TRUSTED * max(predicted.makespan, float(self._rest.sum()))
        self._done, self._now = 0, 0.0

    def __call__(self, event: Event, /) -> None:
        """Add the measured time of the next event. Events after the predicted ones are ignored."""
        if self._done < len(self._kind):
            kind, predicted = self._kind[self._done], self._seconds[self._done]
            self._rest[kind] -= predicted
            self._predicted[kind] += predicted
            self._measured[kind] += event.stop - event.start
            self._done += 1
        self._now = event.stop

    def seconds(self, now: float | None = None, /) -> float:
        """Return the seconds from the last event, or from `now`, to the end of the run.

        `now` is in seconds from the start of the run, like the times of events. The time since the
        last event belongs to the action in progress. If this action takes longer than expected, the
        result is the time of the actions after it.
        """
        if self._done == len(self._kind):
            return 0.0
        factors = self._factors()
        kind, predicted = self._kind[self._done], self._seconds[self._done]
        current = float(predicted * factors[kind])
        after = max(0.0, float(self._rest @ factors) - current)
        passed = 0.0 if now is None else max(0.0, now - self._now)
        return after + max(0.0, current - passed)

    def _factors(self) -> NDArray[np.float64]:
        """Return the factor of each kind: expected seconds per predicted second."""
        trusted = self._trusted
        whole = _factor(float(self._measured.sum()), float(self._predicted.sum()), trusted, 1.0)
        pairs = zip(self._measured.tolist(), self._predicted.tolist(), strict=True)
        return np.array([_factor(*pair, trusted, whole) for pair in pairs])


def by_the_wall(predicted: Timeline, /) -> tuple[Callable[[Event], None], Callable[[], float]]:
    """Return a function to call with each event, and the seconds that remain by the wall clock."""
    remaining, origin = Remaining(predicted), time.monotonic()

    def watch(event: Event) -> None:
        nonlocal origin
        origin = time.monotonic() - event.stop
        remaining(event)

    return watch, lambda: remaining.seconds(time.monotonic() - origin)


def _factor(measured: float, predicted: float, trusted: float, otherwise: float) -> float:
    """Return the weighted geometric mean of measured / predicted and of `otherwise`.

    The weights are the predicted seconds and `trusted`. With logarithms, twice as fast and twice as
    slow change an estimate by the same factor, and costs in wrong units are corrected soon. For
    example, if 1 s was predicted and 4 s were measured, `trusted` = 1 s and `otherwise` = 1 give
    the factor 4^0.5 = 2:

    >>> _factor(4.0, 1.0, 1.0, 1.0)
    2.0
    """
    if predicted <= 0:
        return otherwise
    ratio = min(max(measured / predicted, _LEAST), 1 / _LEAST)
    weight = predicted / (predicted + trusted)
    return exp(weight * log(ratio) + (1 - weight) * log(otherwise))


def _kinds(actions: Actions) -> NDArray[np.int64]:
    """Return a number for the kind of each action: its operation, and the level of an access."""
    return np.where(actions.op < WRITE, actions.op, actions.op + 3 * actions.level.astype(np.int64))
