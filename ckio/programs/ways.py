"""How a program may be taken back: by which schedule, on which levels."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from ckio.actions import Discard, Kind, Write
from ckio.actions.checks import is_whole
from ckio.backends.base import Backend
from ckio.backends.ram import Ram
from ckio.errors import BadInput
from ckio.planners.base import Planner
from ckio.planners.bisection import Bisection
from ckio.planners.online import Online
from ckio.platform import Affine, Level, Platform
from ckio.platform.chain import Chain
from ckio.runner.rule import Rule
from ckio.schedule.timeline import Event

Scheduled = Literal["bisection", "revolve", "hrevolve"] | Planner
"""What `checkpoint_vjp` takes for a schedule."""

SLOTS: Final = 32
"""Checkpoints that "revolve" holds if nothing else is said."""

_ONE_EACH: Final = 1e-18
"""The ratio by which each checkpoint takes one byte of a capacity: it then counts slots."""

_SPEED: Final = Affine(latency=2e-5, per_byte=2.5e-10)
"""Of memory and of files in the page cache, roughly: enough for those who plan by costs."""

_RULES: Final[dict[str, Callable[[Chain, Platform], Rule]]] = {
    "bisection": Bisection,
    "revolve": Online,
    "hrevolve": Online,
}


@dataclass(frozen=True)
class Way:
    """A schedule, and the levels that it is for.

    Attributes
    ----------
    rule : callable
        What is stored on the way forward is what this makes of a chain and the platform says.
    planner : Planner or None
        Plans for an end that is known; then there is no use for the rule.
    platform : Platform
    backends : sequence of Backend
        Its levels, opened.
    """

    rule: Callable[[Chain, Platform], Rule]
    planner: Planner | None
    platform: Platform
    backends: Sequence[Backend]


def way(
    schedule: Scheduled,
    slots: int | None,
    platform: Platform | None,
    backends: Sequence[Backend] | None,
    /,
) -> Way:
    """The way that was asked for, on memory where no levels were given; raises BadInput."""
    if (platform is None) != (backends is None):
        raise BadInput("checkpoint_vjp: give platform and backends together, or neither")
    if slots is not None and (not is_whole(slots) or slots < 1):
        raise BadInput(f"checkpoint_vjp: slots = {slots!r}; it must be a whole number from 1")
    planner: Any = schedule if callable(schedule) else None
    rule = Bisection if callable(schedule) else _RULES.get(schedule)
    if rule is None:
        raise BadInput(
            f"checkpoint_vjp: schedule = {schedule!r}; it must be one of {', '.join(_RULES)}, or a"
            " planner"
        )
    if platform is not None and slots is not None:
        raise BadInput("checkpoint_vjp: slots go with no platform; its levels have capacities")
    if platform is None or backends is None:
        room = slots if schedule == "bisection" else slots or SLOTS
        return Way(rule, planner, Platform(levels=(level("memory", room),)), [Ram()])
    return Way(rule, planner, platform, backends)


def level(name: str, slots: int | None, /) -> Level:
    """A level of so many checkpoints, whatever their size; None for as many as there are."""
    ratio = 1.0 if slots is None else _ONE_EACH
    return Level(name=name, capacity=slots, ratio=ratio, write=_SPEED, read=_SPEED)


class Live:
    """Counts the states that are stored, as events pass by, and passes them on.

    Attributes
    ----------
    peak : int
        The most at a time.
    """

    def __init__(self, watch: Callable[[Event], None] | None = None, /) -> None:
        self.peak = self._now = 0
        self._watch = watch

    def found(self, states: int, /) -> None:
        """So many are there already."""
        self.peak = self._now = states

    def __call__(self, event: Event, /) -> None:
        match event.action:
            case Write(key, _) if key.kind is Kind.RESTART:
                self._now += 1
                self.peak = max(self.peak, self._now)
            case Discard(key, _) if key.kind is Kind.RESTART:
                self._now -= 1
        if self._watch is not None:
            self._watch(event)
