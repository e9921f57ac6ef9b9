"""The remaining time of a run: the predicted time of the rest, corrected by measured times."""

import time
from typing import Final

from ckio.schedule.timeline import Event, Timeline

_TRUSTED: Final = 0.02
"""The weight of the prediction, as a fraction of the predicted makespan.

After this time the measured factor and the predicted one, which is 1, count equally.
"""


class Remaining:
    """The remaining seconds of a run. It is called with each event, as the `watch` of a run.

    The predicted time of the rest is multiplied by the measured time so far divided by the
    predicted one. Early in the run this factor counts less.

    Parameters
    ----------
    predicted
        The simulated timeline of the same schedule.
    """

    def __init__(self, predicted: Timeline, /) -> None:
        self._stop, self._makespan = predicted.stop, predicted.makespan
        self._done, self._now, self._at = 0, 0.0, time.monotonic()

    def __call__(self, event: Event, /) -> None:
        """Add the measured time of the next event. Events after the predicted ones are ignored."""
        self._done = min(self._done + 1, len(self._stop))
        self._now, self._at = event.stop, time.monotonic()

    def by_the_wall(self) -> float:
        """Return the seconds from the present moment to the end of the run."""
        return self.seconds(self._now + time.monotonic() - self._at)

    def seconds(self, now: float | None = None, /) -> float:
        """Return the seconds from the last event, or from `now`, to the end of the run.

        `now` is in seconds from the start of the run, like the times of events. The time since the
        last event belongs to the action in progress. If this action takes longer than expected, the
        result is the time of the actions after it.
        """
        if self._done == len(self._stop):
            return 0.0
        past = float(self._stop[self._done - 1]) if self._done else 0.0
        # A weighted geometric mean of the measured factor and of 1, so that twice as fast and twice
        # as slow count alike.
        trusted = past / (past + _TRUSTED * self._makespan) if past else 0.0
        factor = (self._now / past) ** trusted if past else 1.0
        current = factor * (float(self._stop[self._done]) - past)
        after = factor * (self._makespan - float(self._stop[self._done]))
        passed = 0.0 if now is None else max(0.0, now - self._now)
        return after + max(0.0, current - passed)
