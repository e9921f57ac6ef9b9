"""Virtual time for several threads: it goes on when all of them sleep or wait, and only then."""

import heapq
import threading
from collections import deque
from typing import Any

PATIENCE = 60.0
"""Seconds after which whoever waits says so, instead of waiting for ever."""


class Time:
    """A clock for so many threads, all of which are there until the end.

    A thread runs, sleeps, or waits on a condition or queue of this clock. When none runs, the one
    that is to wake first does. Whoever is told something counts as running from that moment on.

    The thread that makes it is the program. What `put_off` says at an instant puts off the end of
    the program's sleep, if it sleeps when that instant is over.
    """

    def __init__(self, threads: int) -> None:
        self._threads, self._idle, self._now = threads, 0, 0.0
        self._asleep: list[tuple[float, int, threading.Event]] = []
        self._sleeps = 0
        self._program, self._dreams = threading.get_ident(), False
        self._said: list[tuple[int, float]] = []  # at this instant, by whom
        self._lost = 0.0
        self.lock = threading.Lock()

    def now(self) -> float:
        return self._now

    def sleep(self, seconds: float, /) -> None:
        if threading.get_ident() != self._program:
            self._sleep(seconds)
            return
        self._dreams = True
        while seconds:
            self._sleep(seconds)
            seconds, self._lost = self._lost, 0.0
        self._dreams = False

    def put_off(self, number: int, seconds: float, /) -> None:
        """The program loses so much by what begins now; who has the lower number is first."""
        with self.lock:
            self._said.append((number, seconds))

    def _sleep(self, seconds: float) -> None:
        awake = threading.Event()
        with self.lock:
            self._sleeps += 1
            heapq.heappush(self._asleep, (self._now + seconds, self._sleeps, awake))
            self.waits()
        assert awake.wait(PATIENCE), "nobody wakes it"

    def waits(self) -> None:
        """One thread less runs; the lock is held."""
        self._idle += 1
        if self._idle == self._threads and self._asleep:
            for _, seconds in sorted(self._said):
                self._lost += seconds if self._dreams else 0.0
            self._said.clear()
            self._now, _, awake = heapq.heappop(self._asleep)
            self._idle -= 1
            awake.set()

    def go_on(self, count: int, /) -> None:
        """So many threads that waited run; the lock is held."""
        self._idle -= count

    def condition(self) -> "Condition":
        return Condition(self)

    def queue(self) -> "Queue":
        return Queue(self)


class Condition(threading.Condition):
    """In place of `threading.Condition`; all who wait are told at once."""

    def __init__(self, time: Time) -> None:
        super().__init__()
        self._time, self._count = time, 0

    def wait(self, timeout: float | None = None) -> bool:
        del timeout  # it is of the wall's clock
        with self._time.lock:
            self._count += 1
            self._time.waits()
        assert super().wait(PATIENCE), "nobody tells it"
        return True

    def notify_all(self) -> None:
        with self._time.lock:
            self._time.go_on(self._count)
            self._count = 0
        super().notify_all()


class Queue:
    """In place of `queue.SimpleQueue`, for one thread that gets."""

    def __init__(self, time: Time) -> None:
        self._time, self._items, self._waits = time, deque[Any](), False
        self._ready = threading.Semaphore(0)

    def put(self, item: Any) -> None:
        with self._time.lock:
            self._items.append(item)
            if self._waits:
                self._waits = False
                self._time.go_on(1)
        self._ready.release()

    def get(self) -> Any:
        with self._time.lock:
            if not self._items:
                self._waits = True
                self._time.waits()
        assert self._ready.acquire(timeout=PATIENCE), "nobody puts anything"
        return self._items.popleft()
