"""How long a run still takes: what was predicted of the rest, as right as it was so far."""

from math import exp, log
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ckio.actions.columns import WRITE, Actions
from ckio.schedule.timeline import Event, Timeline

_TRUSTED: Final = 0.02
"""The part of the predicted makespan that outweighs what was measured in as much time."""

_LEAST: Final = 1e-9
"""Nothing is so fast or so slow that its seconds are not this many, or so many times, predicted."""


class Remaining:
    """The seconds that remain of a run; the `watch` of a run, or one to be called by it.

    An advance, a record, a reverse, and each access to each level take so many times the seconds
    that were predicted for them. Of each this is learned from what was measured, which counts the
    more the more there was of it: an early estimate is the predicted one. What has not happened yet
    is as right as the whole was so far.

    Parameters
    ----------
    predicted
        The timeline of the same schedule as it was simulated.
    """

    def __init__(self, predicted: Timeline, /) -> None:
        self._kind = _kinds(predicted.actions)
        self._seconds = predicted.stop - predicted.start
        self._rest = np.bincount(self._kind, self._seconds, minlength=1)
        self._predicted, self._measured = np.zeros_like(self._rest), np.zeros_like(self._rest)
        self._trusted = _TRUSTED * max(predicted.makespan, float(self._rest.sum()))
        self._done, self._now = 0, 0.0

    def __call__(self, event: Event, /) -> None:
        """Take note of the next event; those beyond the predicted ones say nothing."""
        if self._done < len(self._kind):
            kind, predicted = self._kind[self._done], self._seconds[self._done]
            self._rest[kind] -= predicted
            self._predicted[kind] += predicted
            self._measured[kind] += event.stop - event.start
            self._done += 1
        self._now = event.stop

    def seconds(self, now: float | None = None, /) -> float:
        """Seconds from the last event, or from `now`, to the end of the run.

        `now` is in seconds from the start of the run, as the times of events are. What has passed
        since the last event counts for the action that goes on; where it takes longer than
        expected, the estimate stays at what comes after it.
        """
        if self._done == len(self._kind):
            return 0.0
        factors = self._factors()
        kind, going_on = self._kind[self._done], self._seconds[self._done]
        current = float(going_on * factors[kind])
        after = max(0.0, float(self._rest @ factors) - current)
        passed = 0.0 if now is None else max(0.0, now - self._now)
        return after + max(0.0, current - passed)

    def _factors(self) -> NDArray[np.float64]:
        """Of each kind, how many times the predicted seconds it takes."""
        trusted = self._trusted
        whole = _factor(float(self._measured.sum()), float(self._predicted.sum()), trusted, 1.0)
        pairs = zip(self._measured.tolist(), self._predicted.tolist(), strict=True)
        return np.array([_factor(*pair, trusted, whole) for pair in pairs])


def _factor(measured: float, predicted: float, trusted: float, otherwise: float) -> float:
    """Measured by predicted, and `otherwise`, in the mean of their logarithms.

    They weigh as much as was predicted, and as `trusted`. So twice as fast and twice as slow change
    an estimate alike, and costs in other units are found out soon.
    """
    if predicted <= 0:
        return otherwise
    ratio = min(max(measured / predicted, _LEAST), 1 / _LEAST)
    weight = predicted / (predicted + trusted)
    return exp(weight * log(ratio) + (1 - weight) * log(otherwise))


def _kinds(actions: Actions) -> NDArray[np.int64]:
    """A number for each action: what it does, and for an access on which level."""
    return np.where(actions.op < WRITE, actions.op, actions.op + 3 * actions.level.astype(np.int64))
