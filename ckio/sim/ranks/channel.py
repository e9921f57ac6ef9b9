"""A channel that serves all its clients at once, and a gate that opens when all have come.

The bandwidth is shared out by max-min fairness: each client gets what its lane allows, or an equal
share of what the others leave. All clients of a lane move bytes at one speed, so it is enough to
know how many bytes the lane has moved for each since it was last idle, its *progress*: who joins at
progress p with b bytes to move is done at progress p + b. A heap by that number says who is next,
and nothing has to be done for the others when a client comes or goes.
"""

from collections.abc import Iterable
from heapq import heappop, heappush
from math import inf, nextafter

import simpy


class Channel:
    """Bandwidth that clients share; a client may stand for many that do the same.

    Attributes
    ----------
    busy : float
        Seconds for which at least one transfer was under way.
    most : int
        The most clients at one time.
    """

    def __init__(
        self, environment: simpy.Environment, bandwidth: float, speeds: Iterable[float], /
    ) -> None:
        self.busy, self.most = 0.0, 0
        self._clients = 0
        self._environment, self._bandwidth = environment, bandwidth
        self._lanes = [_Lane(speed) for speed in speeds]
        self._slowest_first = sorted(self._lanes, key=lambda lane: lane.most)
        self._settled = 0.0  # until when progress is known
        self._next: tuple[float, _Lane] | None = None  # when a client of a lane is done
        self._alarm = inf

    def transfer(
        self, lane: int, nbytes: float, clients: int, /, done: simpy.Event | None = None
    ) -> simpy.Event:
        """Let clients move so many bytes each; the event, `done` if given, says when all are."""
        done = simpy.Event(self._environment) if done is None else done
        self._settle()
        self._lanes[lane].join(nbytes, clients, done)
        self._clients += clients
        self.most = max(self.most, self._clients)
        self._share()
        return done

    def _settle(self) -> None:
        """Take the progress of all lanes to now."""
        now = self._environment.now
        elapsed, self._settled = now - self._settled, now
        if elapsed and self._next is not None:
            self.busy += elapsed
            for lane in self._lanes:
                lane.progress += lane.speed * elapsed

    def _share(self) -> None:
        """Share the bandwidth out anew, and see who is done next."""
        left, clients = self._bandwidth, self._clients
        self._next = None
        for lane in self._slowest_first:
            if not lane.clients:
                continue
            lane.speed = min(lane.most, left / clients)
            left, clients = left - lane.speed * lane.clients, clients - lane.clients
            end = self._settled + max(0.0, lane.first - lane.progress) / lane.speed
            if self._next is None or end < self._next[0]:
                self._next = end, lane
        if self._next is not None and self._next[0] < self._alarm:
            self._set_alarm(self._next[0])

    def _set_alarm(self, at: float) -> None:
        self._alarm = at
        alarm = self._environment.timeout(_delay(self._environment.now, at), at)
        alarm.callbacks.append(self._ring)

    def _ring(self, alarm: simpy.Event) -> None:
        """Somebody is done, unless others came since the alarm was set and all is later.

        It is always at exactly the time that was reckoned, from wherever the alarm was set: then
        clients that are alike find the same to the last bit, together and one by one.
        """
        if alarm.value != self._alarm or self._next is None:
            return  # another was set for an earlier time
        self._alarm = inf
        end, lane = self._next
        if end > self._environment.now:
            self._set_alarm(end)
            return
        self._settle()
        lane.progress = lane.first  # not a rounding error less
        self._clients -= lane.release()
        self._share()


def _delay(now: float, at: float) -> float:
    """The seconds that lead from now to this time, or to the last before it that can be met."""
    delay = max(0.0, at - now)
    while delay and now + delay > at:
        delay = nextafter(delay, 0.0)
    return delay


class _Lane:
    """The clients of a channel that are equally fast alone."""

    __slots__ = ("_joined", "_queue", "clients", "most", "progress", "speed")

    def __init__(self, most: float) -> None:
        self.most, self.speed, self.progress = most, 0.0, 0.0
        self.clients, self._joined = 0, 0
        self._queue: list[tuple[float, int, int, simpy.Event]] = []

    @property
    def first(self) -> float:
        """The progress at which the next client is done."""
        return self._queue[0][0]

    def join(self, nbytes: float, clients: int, done: simpy.Event) -> None:
        if not self.clients:
            self.progress = 0.0  # so that rounding errors do not add up for ever
        self.clients += clients
        self._joined += 1
        heappush(self._queue, (self.progress + nbytes, self._joined, clients, done))

    def release(self) -> int:
        """Let all go that are done: how many."""
        before = self.clients
        while self._queue and self._queue[0][0] <= self.progress:
            _, _, clients, done = heappop(self._queue)
            self.clients -= clients
            done.succeed()
        return before - self.clients


class Gate:
    """It opens when all have come, and closes behind them."""

    def __init__(self, environment: simpy.Environment, count: int, /) -> None:
        self._environment, self._count, self._missing = environment, count, count
        self._opened = simpy.Event(environment)

    def enter(self, clients: int, /) -> simpy.Event:
        """Come with so many; the event says when the last is here."""
        opened = self._opened
        self._missing -= clients
        if not self._missing:
            self._missing, self._opened = self._count, simpy.Event(self._environment)
            opened.succeed()
        return opened
