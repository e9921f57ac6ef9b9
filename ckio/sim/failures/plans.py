"""The plans of a run that fails: the first plan, and the plans from surviving checkpoints."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ckio.actions import Key, Kind, Read, Write
from ckio.actions.columns import DISCARD, KIND_CODE, WRITE, Actions
from ckio.planners.recover import recover, with_adjoint_checkpoints
from ckio.platform import Platform
from ckio.platform.chain import Chain
from ckio.schedule import Schedule, seconds, seconds_of
from ckio.schedule.occupancy import Lifetimes

Stored = tuple[frozenset[Key], ...]
"""The keys on each level."""


@dataclass(frozen=True, slots=True)
class Plans:
    """The first schedule of a run, and a function that plans the rest after a failure.

    Attributes
    ----------
    first : Schedule
        The schedule of the first process.
    rest : function
        Function that returns the schedule for the rest of the run. Its arguments are the schedule
        of the killed process and the surviving keys on each level. It must be deterministic; it is
        called once for each pair of arguments.
    """

    first: Schedule
    rest: Callable[[Schedule, Stored], Schedule]

    @property
    def adjoints(self) -> int:
        """The number of adjoint checkpoints of the first schedule."""
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
    """Return the plans of a run that stores its adjoint on a level at regular intervals.

    Parameters
    ----------
    schedule
        A schedule without adjoint checkpoints. It must have been planned for the platform
        `planners.recover.aside`, which leaves space for the adjoint checkpoints.
    platform
        The platform of the run.
    level
        The number of the level for adjoint checkpoints.
    every
        Seconds of work between two of them.
    durable
        The numbers of the levels whose keys survive the end of the process.
    tapes
        Whether plans of the rest may use stored tapes (see `recover`).

    Raises the errors of `with_adjoint_checkpoints`; the function `rest` raises those of `recover`.
    """
    chain = schedule.chain

    def rest(_killed: Schedule, survivors: Stored) -> Schedule:
        return recover(
            chain,
            platform,
            survivors,
            level=level,
            every=every,
            tapes=tapes,
        )

    return Plans(with_adjoint_checkpoints(schedule, platform, every, level=level), rest)


class Timed:
    """A schedule with the time of the end of each action, and the stored keys after each.

    Attributes
    ----------
    schedule : Schedule
    until : float64 array
        Seconds from the first action to the end of each action; the last one is the makespan.
    verifying : float
        Seconds to read all stored checkpoints before the first action, which a resumed process
        does to verify them.
    """

    def __init__(self, schedule: Schedule, platform: Platform, /) -> None:
        self.schedule = schedule
        self.until: NDArray[np.float64] = np.cumsum(seconds_of(schedule, platform))
        self.verifying = _reading(schedule.chain, platform, schedule.stored)
        starts = Actions.of(
            Write(key, number) for number, keys in enumerate(schedule.stored) for key in keys
        )
        # Keys that are stored at the start get a Write at the beginning, because the lifetime of
        # every key begins with a Write.
        self._before = len(starts)
        self._levels = len(platform.levels)
        changes = (schedule.actions.op == WRITE) | (schedule.actions.op == DISCARD)
        self._changes = np.append(0, np.cumsum(changes))
        self._stays = Lifetimes.of(starts + schedule.actions)

    @property
    def seconds(self) -> float:
        """The makespan, bitwise as `makespan` computes it."""
        return float(self.until[-1]) if len(self.until) else 0.0

    def done(self, seconds: float, /) -> int:
        """Return the number of actions that are complete after `seconds` of work."""
        return int(np.searchsorted(self.until, seconds, side="right"))

    def changed(self, done: int, /) -> int:
        """Return the number of writes and discards in the first `done` actions."""
        return int(self._changes[done])

    def survivors(self, done: int, survive: frozenset[int], /) -> Stored:
        """Return the keys on the levels in `survive` after the first `done` actions.

        The key of an incomplete write is not among them.
        """
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
    """The plans of a run; each is made only once.

    The surviving keys depend only on the schedule and on the number of writes and discards before
    the failure. The plan of the rest depends only on the killed schedule and the surviving keys.
    """

    def __init__(self, plans: Plans, platform: Platform, /) -> None:
        self.first: Final = Timed(plans.first, platform)
        self._rest, self._platform = plans.rest, platform
        self._known: dict[tuple[Timed, Stored], Timed] = {}
        self._after: dict[tuple[Timed, Timed, int, frozenset[int]], Timed] = {}
        self._timed: dict[Schedule, Timed] = {}

    def __len__(self) -> int:
        """Return the number of plans that were made after failures."""
        return len(self._known)

    def after(
        self, plan: Timed, done: int, survive: frozenset[int], /, *, begun: Timed | None = None
    ) -> Timed:
        """Return the plan of the next process, after a failure of `plan` with `done` actions.

        If the process of `plan` failed before its first action, the killed schedule is that of the
        last process that had begun: `begun`.
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
                # Equal schedules share one `Timed`, so that later plans are made only once.
                known = self._timed[schedule] = Timed(schedule, self._platform)
            self._known[killed, survivors] = known
        return known
