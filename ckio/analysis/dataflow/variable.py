"""Where a schedule has to read one variable, and where it can write it."""

from dataclasses import replace

import numpy as np

from ckio.actions import Kind
from ckio.actions.columns import KIND_CODE, READ, WRITE
from ckio.actions.variables import Bools, Ints
from ckio.analysis.dataflow.events import Events
from ckio.analysis.dataflow.needed import Chances, Needed
from ckio.analysis.dataflow.placing import BEFORE, Array
from ckio.analysis.dataflow.stays import Stays
from ckio.errors import BadInput
from ckio.schedule import Schedule
from ckio.schedule.replay import NONE

_RESTART, _ADJOINT = KIND_CODE[Kind.RESTART], KIND_CODE[Kind.ADJOINT]


class Woken(Exception):
    """Recorded steps whose state is needed after all."""

    def __init__(self, steps: Ints) -> None:
        super().__init__(steps)
        self.steps = steps


class Variable:
    """The Reads and Writes of a schedule, as one variable sees them.

    Parameters
    ----------
    schedule : Schedule
        A legal one.
    name : str
        The variable.
    version : int64 array
        Its versions in x_0, ..., x_n.
    stays : Stays
        Of restart data.
    """

    def __init__(self, schedule: Schedule, name: str, version: Ints, stays: Stays) -> None:
        actions = schedule.actions
        restart, data = actions.kind == _RESTART, actions.kind != _ADJOINT
        self._schedule, self.name, self._version = schedule, name, version
        self._writes = np.flatnonzero((actions.op == WRITE) & data)
        self._saves = np.flatnonzero((actions.op == WRITE) & restart)
        self._saved = version[actions.begin[self._saves]]
        self._reads = np.flatnonzero((actions.op == READ) & data)
        self._stays = stays
        self._restarts = np.flatnonzero((actions.op == READ) & restart)
        # The version in the state that each of these reads, and the first in a row with the same;
        # at the end, for what is before all of them, none.
        restarted = version[actions.begin[self._restarts]]
        changes = np.append(True, restarted[1:] != restarted[:-1])[: len(restarted)]
        in_a_row = np.maximum.accumulate(np.arange(len(restarted)) * changes)
        self._restarted = np.append(restarted, NONE)
        self._in_a_row = np.append(in_a_row, 0)

    def arrays(self, events: Events, /) -> Needed:
        """The versions that have to be stored, when they are read and when they can be written.

        Raises Woken where recorded steps have to leave what they would leave, and BadInput where
        what is needed can be neither left in place nor read.
        """
        while True:
            found = self._arrays(_settled(events))
            late = found.late
            if not late.any():
                return found
            # What is dead until it is read again may not be there when it could be written.
            kept = [self._kept(array, events) for array in found.arrays(late)]
            events = Events.together([events, *kept])

    def _arrays(self, events: Events) -> Needed:
        places, versions = self._where_read(events)
        there = _contents(events, places, versions, self._writes)
        return Needed.of(self.name, versions, places, self._chances(there))

    def _where_read(self, events: Events) -> tuple[Ints, Ints]:
        """The Reads that have to read the variable, and in which version.

        These are one for each event that needs another version than the one before it has left. Of
        the Reads in between it is the one that sets the state that the event starts from, or the
        first of several in a row that have the same version: then it is there for all the Writes
        after it, too. What only an adjoint step uses may have to come with its tape.
        """
        # Each event after the one before it; what comes before the first is x_0.
        left, would = np.append(0, events.left), np.append(0, events.leaves)
        place, asleep = np.append(BEFORE, events.place), np.append(NONE, events.asleep)
        gap = np.flatnonzero((events.need != NONE) & (events.need != left[:-1]) & ~events.through)
        since, until, need = place[gap], events.place[gap], events.need[gap]

        last = np.searchsorted(self._restarts, until) - 1
        first = np.searchsorted(self._restarts, since, "right")
        restart = (last >= first) & (self._restarted[last] == need)
        which = np.maximum(first, self._in_a_row[last])

        last = np.searchsorted(self._reads, until) - 1
        nothing = last < np.searchsorted(self._reads, since, "right")
        if nothing.any():
            wakes = nothing & (asleep[gap] != NONE) & (would[gap] == need)
            if (nothing & ~wakes).any():
                at = int((nothing & ~wakes).argmax())
                self._refuse_need(int(until[at]), int(need[at]))
            raise Woken(asleep[gap][wakes])
        places = self._reads[last]
        places[restart] = self._restarts[which[restart]]
        return places, need

    def _chances(self, there: Ints) -> tuple[Chances, Chances]:
        """Of all versions: what lies there from the start, and the Writes, by what is there."""
        stays, until = self._stays, self._stays.until(self._version)
        start = Chances(self._version[stays.step], stays.written, stays.level, until)
        # There is no room for it beside a tape, nor for an older version in x_step.
        end = self._writes.copy()
        written = stays.written != BEFORE
        at = np.searchsorted(self._writes, stays.written[written])
        fits = self._version[stays.step[written]] == there[at]
        end[at[fits]] = until[written][fits]
        level = self._schedule.actions.level[self._writes].astype(np.int64)
        return start.take(~written), Chances(there, self._writes, level, end)

    def _kept(self, array: Array, events: Events) -> Events:
        """An event by which it is there at the first Write of a state that has this version."""
        saves = self._saves[self._saved == array.version][:1]
        if len(saves) and saves[0] < array.reads[0] and saves[0] not in events.place:
            return Events.needs(saves, np.full(1, array.version))
        asleep = events.asleep[(events.asleep != NONE) & (events.leaves == array.version)]
        if len(asleep):
            raise Woken(asleep)
        place = array.reads[0]
        raise BadInput(
            f"plan_schedule: #{place} {self._schedule.actions[place]} has to read {self.name} as"
            f" in x_{array.version}, which was not there at any Write before"
        )

    def _refuse_need(self, place: int, version: int) -> None:
        raise BadInput(
            f"plan_schedule: #{place} {self._schedule.actions[place]} needs {self.name} as in"
            f" x_{version}; it is not there, and no Read comes between: it has to be on the tape"
        )


def _settled(events: Events) -> Events:
    """Those overwritten in part need what they started from, where what they leave is needed.

    Of these `through` is taken away.
    """
    need, through = events.need, events.through.copy()
    for at in np.flatnonzero(through)[::-1].tolist():
        after = at + 1
        if after < len(need) and not through[after] and need[after] == events.leaves[at]:
            through[at] = False
    return replace(events, through=through)


def _contents(events: Events, reads: Ints, versions: Ints, at: Ints) -> Ints:
    """The version that is there at each of the actions `at`."""
    place = np.concatenate(([BEFORE], events.place, reads))
    order = np.argsort(place, kind="stable")
    there = np.concatenate(([0], events.left, versions))[order]
    needs = np.concatenate(([0], events.need, versions))[order]
    through: Bools = np.concatenate(([False], events.through, np.zeros(len(reads), np.bool_)))[
        order
    ]
    for number in np.flatnonzero(through).tolist():
        if there[number - 1] != needs[number]:
            there[number] = NONE
    found: Ints = there[np.searchsorted(place[order], at) - 1]
    return found
