"""A bar with the remaining time and a journal, while a run goes on."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

from ckio.actions.columns import REVERSE
from ckio.jobs.display import Ticker
from ckio.jobs.journal import Journal
from ckio.jobs.process import Process
from ckio.jobs.remaining import Remaining
from ckio.schedule import Schedule
from ckio.schedule.timeline import Event, Timeline


class Watched(NamedTuple):
    """The ticker of the bar, and the function to call with each event, if there is one."""

    tick: Ticker
    watch: Callable[[Event], None] | None


@contextmanager
def watching(process: Process, schedule: Schedule, predicted: Timeline, /) -> Iterator[Watched]:
    """A bar of all steps, forward and back, on a terminal; and the journal that was asked for.

    The time that remains is the predicted one, corrected by what was measured so far. Raises
    BadInput where the journal cannot be written.
    """
    actions = schedule.actions
    total = int((actions.end - actions.begin)[actions.op <= REVERSE].sum())
    remaining = _Remaining(predicted)
    with ExitStack() as stack:
        watchers: list[Callable[[Event], None]] = []
        if process.display.is_shown:
            watchers.append(remaining)
        if (journal := journal_of(process)) is not None:
            watchers.append(stack.enter_context(journal))
        tick = stack.enter_context(
            process.display.progress("running", total, left=remaining.seconds)
        )
        yield Watched(tick, _all(watchers))


def journal_of(process: Process, /) -> Journal | None:
    """Return the journal that was asked for; raises BadInput where it cannot be written."""
    to = process.request.journal
    if to is None or process.team.rank:
        return None
    planning = process.planning
    about = {"model": process.name, "planner": planning.planner, "steps": planning.chain.steps}
    levels = [level.name for level in planning.platform.levels]
    return Journal(to, about, levels=levels, warn=process.display.warn)


def _all(watchers: list[Callable[[Event], None]]) -> Callable[[Event], None] | None:
    if len(watchers) < 2:
        return watchers[0] if watchers else None

    def watch(event: Event) -> None:
        for each in watchers:
            each(event)

    return watch


class _Remaining:
    """The seconds that remain, by the clock on the wall."""

    def __init__(self, predicted: Timeline) -> None:
        self._remaining, self._origin = Remaining(predicted), time.monotonic()

    def __call__(self, event: Event) -> None:
        self._origin = time.monotonic() - event.stop
        self._remaining(event)

    def seconds(self) -> float:
        return self._remaining.seconds(time.monotonic() - self._origin)
