"""A program and its channels as processes of simpy, which take turns by the rules of `Traffic`.

At one instant transfers end first, in the order of their channels; then the program goes on; then
idle channels begin. So what is due at one instant has a priority, by who it is.
"""

from abc import ABC, abstractmethod
from collections.abc import Generator
from typing import Any, Final, Self, TypeAlias

import simpy
from simpy.events import EventPriority

from ckio.overlap.rules import Traffic

Process: TypeAlias = Generator[simpy.Event, Any, None]

PROGRAM: Final = EventPriority(2)
"""After all that ends: channels have numbers below 0, and simpy's own events 0 and 1."""

BEGINS: Final = EventPriority(3)
"""After the program."""


class Alarm(simpy.Event):
    """An event that is told when it comes, and in which order among those of the same instant."""

    def ring(self, priority: EventPriority, seconds: float = 0.0, /) -> Self:
        """Come after so many seconds."""
        self._ok, self._value = True, None
        self.env.schedule(self, priority, seconds)
        return self


class Behind(ABC):
    """One program and its channels: who waits for whom.

    What each does is said by who inherits: `perform` is the program, and `begin` and `end` are what
    a channel does at the beginning and at the end of a transfer.
    """

    def __init__(self, environment: simpy.Environment, traffic: Traffic, /) -> None:
        self.environment, self.traffic = environment, traffic
        count = len(traffic.channels)
        self._places = [EventPriority(number - count) for number in range(count)]
        self._ends = [Alarm(environment) for _ in range(count)]  # what each channel waits for
        self._idle = [True] * count
        self._waits: Alarm | None = None  # what the program waits for, if it is a transfer
        self._stirred: Alarm | None = None  # channels are going to begin at this instant
        self._works = False  # whether the program does what takes time
        self._lost = 0.0  # by how much that is put off
        for number in range(count):
            environment.process(self._serve(number))
        self.performing = environment.process(self._performed())

    @abstractmethod
    def perform(self) -> Process:
        """The program, which yields what `wait` and `work` give."""

    @abstractmethod
    def begin(self, number: int, /) -> None:
        """Let an idle channel begin what it can: it calls `occupy`, if there is something."""

    @abstractmethod
    def end(self, number: int, /) -> None:
        """What a channel does ends now."""

    # For the program

    def wait(self) -> simpy.Event:
        """Until a transfer has ended."""
        self.begin_all()
        self._waits = Alarm(self.environment)
        return self._waits

    def passes(self, seconds: float, /) -> bool:
        """Whether time passes: none does where so few seconds are lost in rounding."""
        now: float = self.environment.now
        return now + seconds > now

    def work(self, seconds: float, /) -> Process:
        """For so many seconds, and those that transfers beside it make it lose."""
        self._works = True
        self.begin_all()
        while seconds:
            yield Alarm(self.environment).ring(PROGRAM, seconds)
            seconds, self._lost = self._lost, 0.0
        self._works = False

    def hinder(self, seconds: float, /) -> None:
        """A transfer begins beside the program: what that does ends later, if it does anything."""
        if self._works:
            self._lost += seconds

    def begin_all(self) -> None:
        """Let all idle channels begin what they can, in the order of the platform."""
        for number, idle in enumerate(self._idle):
            if idle:
                self.begin(number)

    def begin_now(self) -> None:
        """Let channels begin after a transfer has ended, while the program goes on."""
        self.begin_all()

    def _performed(self) -> Process:
        yield from self.perform()
        self.begin_all()

    # For the channels

    def occupy(self, number: int, seconds: float | None = None, /) -> simpy.Event:
        """A channel has begun something that takes so long; its end, to be triggered if None."""
        self._idle[number] = False
        if seconds is not None:
            self._ends[number].ring(self._places[number], seconds)
        return self._ends[number]

    def _serve(self, number: int) -> Process:
        """A channel: one transfer after the other."""
        while True:
            yield self._ends[number]
            self._ends[number], self._idle[number] = Alarm(self.environment), True
            self.end(number)
            if self._waits is not None:
                self._waits.ring(PROGRAM)
                self._waits = None
            elif self.environment.peek() > self.environment.now:
                self.begin_now()  # nothing else is due at this instant
            elif self._stirred is None:
                self._stirred = Alarm(self.environment).ring(BEGINS)
                assert self._stirred.callbacks is not None
                self._stirred.callbacks.append(self._begin_stirred)

    def _begin_stirred(self, _: simpy.Event) -> None:
        self._stirred = None
        self.begin_now()
