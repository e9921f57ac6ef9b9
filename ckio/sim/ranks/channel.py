"""A channel whose bandwidth is shared by the ranks that use it.

The bandwidth is shared by max-min fairness: each client gets the speed that it has alone, or an
equal share of the bandwidth that slower clients leave. The clients that have the same speed alone
form a class, and always have the same speed. Therefore it is enough to know the bytes that each
client of the class has transferred since the class was last empty, called its *progress*. A client
that joins at progress p with b bytes is done at progress p + b. A heap of these numbers gives the
next client that is done, and no other client needs an update when one joins or leaves.

For example, on a channel of 10 bytes/s with one client that alone transfers 2 bytes/s and two
clients that alone transfer 100 bytes/s, the speeds are 2, 4 and 4 bytes/s.
"""

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

    def __init__(self, environment: simpy.Environment, bandwidth: float, /) -> None:
        self.busy, self.most = 0.0, 0
        self._clients = 0
        self._environment, self._bandwidth = environment, bandwidth
        self._classes: dict[float, _SpeedClass] = {}  # by the speed alone, the slowest first
        self._settled = 0.0  # the time for which progress is known
        self._next: tuple[float, _SpeedClass] | None = None  # time and class of the next one done
        self._alarm = inf

    def transfer(
        self, speed: float, nbytes: float, clients: int, /, done: simpy.Event | None = None
    ) -> simpy.Event:
        """Begin a transfer of `nbytes` for each of `clients` equal clients.

        Alone, a client transfers `speed` bytes per second. Return the event of the end, which is
        `done` if given.
        """
        done = simpy.Event(self._environment) if done is None else done
        self._settle()
        if speed not in self._classes:
            self._classes[speed] = _SpeedClass(speed)
            self._classes = dict(sorted(self._classes.items()))
        self._classes[speed].join(nbytes, clients, done)
        self._clients += clients
        self.most = max(self.most, self._clients)
        self._share()
        return done

    def _settle(self) -> None:
        """Update the progress of all classes to the current time."""
        now = self._environment.now
        elapsed, self._settled = now - self._settled, now
        if elapsed and self._next is not None:
            self.busy += elapsed
            for each in self._classes.values():
                each.progress += each.speed * elapsed

    def _share(self) -> None:
        """Compute the speeds of all classes, and the time of the next client that is done."""
        left, clients = self._bandwidth, self._clients
        self._next = None
        for each in self._classes.values():
            if not each.clients:
                continue
            each.speed = min(each.most, left / clients)
            left, clients = left - each.speed * each.clients, clients - each.clients
            end = self._settled + max(0.0, each.first - each.progress) / each.speed
            if self._next is None or end < self._next[0]:
                self._next = end, each
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
        end, first = self._next
        if end > self._environment.now:
            self._set_alarm(end)
            return
        self._settle()
        first.progress = first.first  # without a rounding error
        self._clients -= first.release()
        self._share()


def _delay(now: float, at: float) -> float:
    """Return the largest delay for which `now + delay`, rounded, is not after `at`."""
    delay = max(0.0, at - now)
    while delay and now + delay > at:
        delay = nextafter(delay, 0.0)
    return delay


class _SpeedClass:
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
