"""The plans of a run that fails: the first one, and what is planned from what survives."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ckio.actions import Key, Kind, Read, Write
from ckio.actions.columns import DISCARD, KIND_CODE, WRITE, Actions
from ckio.planners.recover import Killed, recover, with_adjoint_checkpoints
from ckio.platform import Platform
from ckio.platform.chain import Chain
from ckio.schedule import Schedule, seconds, seconds_of
from ckio.schedule.occupancy import Lifetimes

Stored = tuple[frozenset[Key], ...]
"""The keys on each level."""


@dataclass(frozen=True, slots=True)
class Plans:
    """How a run is planned.

    Attributes
    ----------
    first : Schedule
        What the first process does.
    rest : function
        The schedule for what is left, from the schedule that was killed and what survives on each
        level. The same of both give the same, so that it is asked once for each.
    """

    first: Schedule
    rest: Callable[[Schedule, Stored], Schedule]

    @property
    def adjoints(self) -> int:
        """How often the first process stores its adjoint."""
        actions = self.first.actions
        return int(((actions.op == WRITE) & (actions.kind == KIND_CODE[Kind.ADJOINT])).sum())


def recovering(
    schedule: Schedule,
    platform: Platform,
    /,
    *,
    level: int,
    every: float,
    durable: Collection[int],
    tapes: bool = False,
) -> Plans:
    """A schedule, without adjoints, that stores them on `level` every so many seconds of work.

    It is to be planned for `planners.recover.aside` of the platform; `durable` are the numbers of
    the levels whose keys survive the process. Raises as `with_adjoint_checkpoints` does; the plans
    of the rest, as `recover`.
    """
    chain, survives = schedule.chain, frozenset(durable)

    def rest(killed: Schedule, survivors: Stored) -> Schedule:
        return recover(
            chain,
            platform,
            survivors,
            level=level,
            every=every,
            tapes=tapes,
            killed=Killed(killed, survives),
        )

    return Plans(with_adjoint_checkpoints(schedule, platform, every, level=level), rest)


class Timed:
    """A schedule with the time at which each action is done, and what is stored after each.

    Attributes
    ----------
    schedule : Schedule
    until : float64 array
        Seconds from the first action to the end of each; its makespan is the last one.
    verifying : float
        Seconds to read all that is stored before the first action, as a process does that resumes.
    """

    def __init__(self, schedule: Schedule, platform: Platform, /) -> None:
        self.schedule = schedule
        self.until: NDArray[np.float64] = np.cumsum(seconds_of(schedule, platform))
        self.verifying = _reading(schedule.chain, platform, schedule.stored)
        starts = Actions.of(
            Write(key, number) for number, keys in enumerate(schedule.stored) for key in keys
        )
        # What lies there at the start is written first of all: every stay begins with a Write.
        self._before = len(starts)
        self._levels = len(platform.levels)
        changes = (schedule.actions.op == WRITE) | (schedule.actions.op == DISCARD)
        self._changes = np.append(0, np.cumsum(changes))
        self._stays = Lifetimes.of(starts + schedule.actions)

    @property
    def seconds(self) -> float:
        """The makespan, to the last bit."""
        return float(self.until[-1]) if len(self.until) else 0.0

    def done(self, seconds: float, /) -> int:
        """How many actions are complete after so many seconds of work."""
        return int(np.searchsorted(self.until, seconds, side="right"))

    def changed(self, done: int, /) -> int:
        """How often something was stored or discarded in so many actions."""
        return int(self._changes[done])

    def survivors(self, done: int, survive: frozenset[int], /) -> Stored:
        """Return the keys on these levels after so many actions, without that of a part of one."""
        row = self._before + done
        rows = (self._stays.written < row) & (self._stays.discarded >= row)
        rows &= np.isin(self._stays.named.level, list(survive))
        named = self._stays.named.take(rows)
        stored: list[set[Key]] = [set() for _ in range(self._levels)]
        for stay in named.rows():
            stored[stay[2]].add(named.key(stay))
        return tuple(map(frozenset, stored))


def _reading(chain: Chain, platform: Platform, stored: Sequence[frozenset[Key]]) -> float:
    return sum(
        seconds(Read(key, number), chain, platform)
        for number, keys in enumerate(stored)
        for key in sorted(keys, key=lambda key: (key.kind.value, key.step))
    )


class Book:
    """The plans of a run, each made once.

    What survives after an action is a function of the schedule and of how often anything was stored
    or discarded until then; the plan of the rest is one of what was killed and of what survives.
    """

    def __init__(self, plans: Plans, platform: Platform, /) -> None:
        self.first: Final = Timed(plans.first, platform)
        self._rest, self._platform = plans.rest, platform
        self._known: dict[tuple[Timed, Stored], Timed] = {}
        self._after: dict[tuple[Timed, Timed, int, frozenset[int]], Timed] = {}
        self._timed: dict[Schedule, Timed] = {}

    def __len__(self) -> int:
        """How many plans of a rest were made."""
        return len(self._known)

    def after(
        self, plan: Timed, done: int, survive: frozenset[int], /, *, begun: Timed | None = None
    ) -> Timed:
        """The plan of a process that goes on after so many actions of one.

        Where that one was never `begun`, what was killed is the one that was begun last.
        """
        killed = begun or plan
        where = killed, plan, plan.changed(done), survive
        if (known := self._after.get(where)) is None:
            known = self._after[where] = self._from(killed, plan.survivors(done, survive))
        return known

    def _from(self, killed: Timed, survivors: Stored) -> Timed:
        if (known := self._known.get((killed, survivors))) is None:
            schedule = self._rest(killed.schedule, survivors)
            if (known := self._timed.get(schedule)) is None:
                # Equal ones are one: what comes after them is asked once.
                known = self._timed[schedule] = Timed(schedule, self._platform)
            self._known[killed, survivors] = known
        return known
