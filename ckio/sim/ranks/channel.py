"""A channel with bandwidth sharing, and a gate at which all ranks wait for each other.

The bandwidth is shared by max-min fairness: each client gets the speed of its lane, or an equal
share of the bandwidth that slower clients leave. All clients of a lane have the same speed.
Therefore it is enough to know the bytes that the lane has transferred for each client since it was
last idle, called its *progress*. A client that joins at progress p with b bytes is done at progress
p + b. A heap of these numbers gives the next client that is done, and no other client needs an
update when one joins or leaves.

For example, on a channel of 10 bytes/s with one client whose lane allows 2 bytes/s and two clients
whose lane allows 100 bytes/s, the speeds are 2, 4 and 4 bytes/s.
"""

from collections.abc import Iterable
from heapq import heappop, heappush
from math import inf, nextafter

import simpy


class Channel:
    """A channel whose bandwidth is shared by its clients.

    Attributes
    ----------
    busy : float
        Seconds with at least one transfer.
    most : int
        Maximum number of clients at the same time.
    """

    def __init__(
        self, environment: simpy.Environment, bandwidth: float, speeds: Iterable[float], /
    ) -> None:
        self.busy, self.most = 0.0, 0
        self._clients = 0
        self._environment, self._bandwidth = environment, bandwidth
        self._lanes = [_Lane(speed) for speed in speeds]
        self._slowest_first = sorted(self._lanes, key=lambda lane: lane.most)
        self._settled = 0.0  # the time for which progress is known
        self._next: tuple[float, _Lane] | None = None  # time and lane of the next client done
        self._alarm = inf

    def transfer(
        self, lane: int, nbytes: float, clients: int, /, done: simpy.Event | None = None
    ) -> simpy.Event:
        """Begin a transfer of `nbytes` for each of `clients` equal clients.

        Return the event of its end, which is `done` if given.
        """
        done = simpy.Event(self._environment) if done is None else done
        self._settle()
        self._lanes[lane].join(nbytes, clients, done)
        self._clients += clients
        self.most = max(self.most, self._clients)
        self._share()
        return done

    def _settle(self) -> None:
        """Update the progress of all lanes to the current time."""
        now = self._environment.now
        elapsed, self._settled = now - self._settled, now
        if elapsed and self._next is not None:
            self.busy += elapsed
            for lane in self._lanes:
                lane.progress += lane.speed * elapsed

    def _share(self) -> None:
        """Compute the speeds of all lanes, and the time of the next client that is done."""
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
        """Finish clients that are done now, or set a new alarm if others have slowed them down.

        The end is always exactly at the computed time, independently of when the alarm was set.
        Therefore equal clients have bitwise equal times, simulated together or one by one.
        """
        if alarm.value != self._alarm or self._next is None:
            return  # another alarm was set for an earlier time
        self._alarm = inf
        end, lane = self._next
        if end > self._environment.now:
            self._set_alarm(end)
            return
        self._settle()
        lane.progress = lane.first  # without a rounding error
        self._clients -= lane.release()
        self._share()


def _delay(now: float, at: float) -> float:
    """Return the largest delay for which `now + delay`, rounded, is not after `at`."""
    delay = max(0.0, at - now)
    while delay and now + delay > at:
        delay = nextafter(delay, 0.0)
    return delay


class _Lane:
    """The clients of a channel that have the same speed alone."""

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
            self.progress = 0.0  # so that rounding errors do not accumulate
        self.clients += clients
        self._joined += 1
        heappush(self._queue, (self.progress + nbytes, self._joined, clients, done))

    def release(self) -> int:
        """Remove all clients that are done; return their number."""
        before = self.clients
        while self._queue and self._queue[0][0] <= self.progress:
            _, _, clients, done = heappop(self._queue)
            self.clients -= clients
            done.succeed()
        return before - self.clients


class Gate:
    """A gate that opens when all clients have arrived, and then closes again."""

    def __init__(self, environment: simpy.Environment, count: int, /) -> None:
        self._environment, self._count, self._missing = environment, count, count
        self._opened = simpy.Event(environment)

    def enter(self, clients: int, /) -> simpy.Event:
        """Let `clients` arrive; return an event that occurs when the last one has arrived."""
        opened = self._opened
        self._missing -= clients
        if not self._missing:
            self._missing, self._opened = self._count, simpy.Event(self._environment)
            opened.succeed()
        return opened
