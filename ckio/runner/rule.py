"""What a run of unknown length asks of the rule by which it stores: `Online` is one."""

from collections.abc import Iterable, Sequence
from typing import Protocol

from ckio.actions import Key
from ckio.actions.columns import Actions
from ckio.platform import Platform
from ckio.platform.chain import Chain
from ckio.schedule import Schedule


class Room(Protocol):
    """What a rule uses of a level."""

    @property
    def number(self) -> int: ...
    @property
    def slots(self) -> int: ...


class Farther(Protocol):
    """A level that is used from some step on."""

    @property
    def room(self) -> Room: ...


class Levels(Protocol):
    """All levels that a rule may use on the way forward."""

    @property
    def near(self) -> Room: ...
    @property
    def far(self) -> Sequence[Farther]: ...


class Follower(Protocol):
    """What a rule says at one step after the other."""

    def at(self, step: int, /) -> Actions:
        """What to do at x_step, which is in the register before and after."""

    def until(self, step: int, /) -> int:
        """The first step after this one at which there may be anything to do."""


class Rule(Protocol):
    """What to do while the end is not known, and then; pure, of the step and of what is stored.

    `ckio.planners.online.Online` and `ckio.planners.bisection.Bisection` are two. It stores restart
    data alone.
    """

    @property
    def chain(self) -> Chain: ...
    @property
    def platform(self) -> Platform: ...
    @property
    def levels(self) -> Levels: ...

    def follow(self, step: int, stored: Sequence[Iterable[Key]], /) -> Follower:
        """What to do along a run that stands at x_step, and does what it is told."""

    def finish(self, steps: int, stored: Sequence[Iterable[Key]], /) -> Schedule:
        """The way back from x_steps, which has just been reached and is the end."""
