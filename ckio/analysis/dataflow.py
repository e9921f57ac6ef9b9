"""Find the versions of variables that a schedule has to read, and the actions that can write them.

A schedule of whole checkpoints stores all of x_i when it writes x_i. Often this is not necessary. A
variable that is not overwritten still has its value when x_i is read. A variable that is
overwritten before it is used is not needed. A variable that has not changed since another
checkpoint is stored already. Dauvergne & Hascoet (2006) store variables at two fixed positions for
each checkpoint (`snapshots`). Here an array (a variable in one version) is stored as long as it is
needed, even if the checkpoints that contain it are discarded in the meantime.

The version of a variable in x_j is its reaching definition: the end of the last step up to j that
overwrites it, or 0 if no step does. Variable and version identify a value, however often it is
computed. For each variable:

* Every step uses or defines a version (use/def, `Events`). An Advance uses all variables that its
  steps use, and a Record those of the tape. A Record uses the other variables that its steps use
  only if the state that it leaves is live.
* If another definition reaches an event than the one that it uses, that version has to be read in
  between. Each such gap is one read, which no schedule of these actions can avoid.
* Therefore every array that is read has to be written once. This is the least number of writes and
  of reads for the schedule. (It is proved if steps overwrite in whole, kill = out, and if recording
  steps use all variables that forward steps use. A variable that is overwritten in part is correct
  at all times, rather than read afterwards. If a recording step leaves a needed version, it is used
  if there is no Read in between.)
* An array can be written at any Write of the schedule while the state contains it (`placing`).

For example, three steps use a, and the last one overwrites it. x_1 is written before step 2 is run
and reversed, and read at action 5, before step 1. Therefore a in version 0 is read at 5, and it can
be written at 1:

    >>> from ckio.actions import Advance, Key, Read, Record, Reverse, Write
    >>> from ckio.platform.chain import Chain
    >>> from ckio.actions.variables import Flow, Step
    >>> chain = Chain(steps=3, advance=1, record=1, reverse=1, restart=1, tape=1, adjoint=1)
    >>> actions = [Advance(0, 1), Write(Key(Kind.RESTART, 1), 0), Advance(1, 2)]
    >>> actions += [Record(2, 3), Reverse(2, 3), Read(Key(Kind.RESTART, 1), 0)]
    >>> actions += [Record(1, 2), Reverse(1, 2)]
    >>> read, change = Step(Flow({"a"})), Step(Flow({"a"}, {"a"}, {"a"}))
    >>> steps = ChainFlows([read, read, change], 3)
    >>> (arrays,) = needed_arrays(Schedule(chain, actions), steps, frozenset())
    >>> arrays.version.tolist(), arrays.read.tolist(), arrays.sites.place.tolist()
    ([0], [5], [1])
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ckio.actions import Kind
from ckio.actions.columns import (
    ADVANCE,
    KIND_CODE,
    READ,
    RECORD,
    REVERSE,
    WRITE,
    Actions,
)
from ckio.actions.variables import Bools, ChainFlows, Ints, Names, following
from ckio.analysis.placing import ArrayReads, WriteSites
from ckio.errors import BadInput
from ckio.schedule import Schedule
from ckio.schedule.occupancy import BEFORE, Lifetimes

_RESTART, _ADJOINT = KIND_CODE[Kind.RESTART], KIND_CODE[Kind.ADJOINT]


NONE: Final = -1
"""Among needed versions, no version is needed. Among contents, there is no value of the forward
sweep.
"""


@dataclass(frozen=True)
class StepRows:
    """The steps of a legal schedule: a row for each step of a Record or Reverse, and each Advance.

    `action` is the number of the action of each row, and [begin, end) are the steps of the row.
    `advance`, `record` and `reverse` are the rows of these actions.
    """

    action: Ints
    begin: Ints
    end: Ints
    advance: Ints
    record: Ints
    reverse: Ints

    @staticmethod
    def of(actions: Actions, /) -> "StepRows":
        """Return the rows of a schedule."""
        place = np.flatnonzero(actions.op < WRITE)
        op, begin, end = actions.op[place], actions.begin[place], actions.end[place]
        count = np.where(op == ADVANCE, 1, end - begin)
        at = np.repeat(np.arange(len(op)), count)
        nth = np.arange(len(at)) - np.repeat(np.cumsum(count) - count, count)
        back = op == REVERSE
        first = np.where(back, end - 1, begin)[at] + np.where(back, -1, 1)[at] * nth
        last = np.where((op == ADVANCE)[at], end[at], first + 1)
        by_action = (np.flatnonzero(op[at] == it) for it in (ADVANCE, RECORD, REVERSE))
        return StepRows(place[at], first, last, *by_action)

    def flow(self, steps: ChainFlows, name: str, /) -> tuple[Ints, Bools, Ints, Bools]:
        """Return the flow of a variable through the steps, if each recorded step has all data.

        These are, by rows: the version that the row needs, or NONE; whether the row gives the
        variable a value; the version of this value; and whether it overwrites only a part.
        """
        size, version = len(self.action), steps.versions(name)
        need, value = np.full(size, NONE), np.full(size, NONE)
        gives, through = np.zeros(size, np.bool_), np.zeros(size, np.bool_)
        at, begin, end = self.advance, self.begin[self.advance], self.end[self.advance]
        used, over, whole = (
            np.append(following(steps.has(name, "forward", it)), steps.length)[begin]
            for it in ("use", "out", "kill")
        )
        use = (used < end) & (used <= whole)
        need[at] = np.where(use, version[begin], NONE)
        gives[at], value[at] = over < end, version[end]
        through[at] = (over < end) & ~use & (whole >= end)

        at, step = self.record, self.begin[self.record]
        use, out, kill = (steps.has(name, "record", it)[step] for it in ("use", "out", "kill"))
        uses, gets = (steps.has(name, "forward", it)[step] for it in ("use", "out"))
        need[at] = np.where(use, version[step], NONE)
        gives[at], value[at] = out, np.where(gets, version[step + 1], NONE)
        through[at] = gets & ~use & ~uses & ~kill

        at, step = self.reverse, self.begin[self.reverse]
        restored = steps.restores(name)[step]
        need[at] = np.where(steps.has(name, "reverse", "use")[step], version[step + 1], NONE)
        gives[at] = restored | steps.has(name, "reverse", "out")[step]
        value[at] = np.where(restored, version[step], NONE)
        return need, gives, value, through


class Events(NamedTuple):
    """The events of one variable in a schedule, in order.

    Attributes
    ----------
    place : int64 array
        The number of the action.
    need : int64 array
        The version that the variable must have before the event, or NONE.
    leaves : int64 array
        The version of the variable after the event, or NONE.
    through : bool array
        Whether the variable is overwritten in part. Then `leaves` is computed from `need`, and
        `need` is necessary only if `leaves` is.
    dead : int64 array
        The number of the recorded step, counted among all recorded steps, if its state is dead: so
        far no action needs it. Otherwise NONE. Such an event does not leave the version `leaves`.
    """

    place: Ints
    need: Ints
    leaves: Ints
    through: Bools
    dead: Ints

    @property
    def left(self) -> Ints:
        """The version of the variable after each event, if steps with dead states leave none."""
        left: Ints = np.where(self.dead == NONE, self.leaves, NONE)
        return left

    def take(self, index: NDArray[np.intp] | Bools, /) -> "Events":
        """Return the events at `index`."""
        return Events._make(column[index] for column in self)

    @staticmethod
    def together(some: Sequence["Events"], /) -> "Events":
        """Return all events in the order of their actions; one action keeps the given order."""
        every = Events(*map(np.concatenate, zip(*some, strict=True)))
        return every.take(np.argsort(every.place, kind="stable"))

    @staticmethod
    def needs(place: Ints, version: int, /) -> "Events":
        """Return events that need one version, and leave it."""
        versions = np.full(len(place), version)
        through, dead = np.zeros(len(place), np.bool_), np.full(len(place), NONE)
        return Events(place, versions, versions, through, dead)


def _live(rows: StepRows, steps: ChainFlows) -> Bools:
    """Return, for each recorded step, whether it always needs all that the forward step needs."""
    alike = steps.column(lambda step: step.forward.use <= step.record.use)
    return alike[rows.begin[rows.record]]


def _events(
    actions: Actions, rows: StepRows, steps: ChainFlows, variable: str, *, seed: Names, live: Bools
) -> Events:
    """Return the events of a variable in a schedule, or in the beginning of one.

    A variable in `seed` is needed in x_n when the forward sweep first reaches it. `live` tells
    which recorded steps leave a state that is needed.
    """
    version, at = steps.versions(variable), rows.record
    need, gives, leaves, through = rows.flow(steps, variable)
    step, dead = rows.begin[at], np.full(len(need), NONE)
    uses = live & steps.has(variable, "forward", "use")[step]
    need[at] = np.where(uses, version[step], need[at])
    through[at] &= live
    dead[at] = np.where(gives[at] & ~live, np.arange(len(at)), NONE)
    need = np.where(through, version[rows.begin], need)
    leaves = np.where(gives, leaves, need)
    events = Events(rows.action, need, leaves, through, dead).take(gives | (need != NONE))
    if variable not in seed:
        return events
    ends = np.flatnonzero((actions.op <= RECORD) & (actions.end == steps.length))[:1]
    return Events.together([events, Events.needs(ends, version.item(-1))])


def _settled(events: Events) -> Events:
    """Return the events, with `through` false for partial overwrites whose result is needed.

    Such an event needs the version that it overwrites in part.
    """
    need, through = events.need, events.through.copy()
    for at in np.flatnonzero(through)[::-1].tolist():
        after = at + 1
        if after < len(need) and not through[after] and need[after] == events.leaves[at]:
            through[at] = False
    return events._replace(through=through)


def _versions_at(events: Events, reads: Ints, versions: Ints, at: Ints) -> Ints:
    """Return the version of the variable in the state at each of the actions `at`."""
    place = np.concatenate(([BEFORE], events.place, reads))
    order = np.argsort(place, kind="stable")
    present = np.concatenate(([0], events.left, versions))[order]
    needs = np.concatenate(([0], events.need, versions))[order]
    through = np.concatenate(([False], events.through, np.zeros(len(reads), np.bool_)))[order]
    for number in np.flatnonzero(through).tolist():
        if present[number - 1] != needs[number]:
            present[number] = NONE
    version: Ints = present[np.searchsorted(place[order], at) - 1]
    return version


@dataclass(frozen=True, slots=True)
class CheckpointTimes:
    """The times of all checkpoints of one kind on their levels, in the order of their Writes.

    Attributes
    ----------
    level, step : int64 array
        The level and the step of each checkpoint.
    written, discarded : int64 array
        The number of its Write, or BEFORE; and of its Discard, or the number of actions.
    """

    level: Ints
    step: Ints
    written: Ints
    discarded: Ints

    @staticmethod
    def of(schedule: Schedule, kind: Kind, /) -> "CheckpointTimes":
        """Return the times of the checkpoints of a legal schedule."""
        every = Lifetimes.of(schedule.actions)
        some = every.take(every.named.kind == KIND_CODE[kind])
        named = set(zip(some.named.level.tolist(), some.named.begin.tolist(), strict=True))
        untouched = [
            (level, key.step)
            for level, keys in enumerate(schedule.stored)
            for key in keys
            if key.kind is kind and (level, key.step) not in named
        ]
        level, step = np.array(untouched, np.int64).reshape(-1, 2).T
        written: Ints = np.concatenate((np.full(len(level), BEFORE), some.written))
        order = np.argsort(written, kind="stable")
        return CheckpointTimes(
            np.concatenate((level, some.named.level.astype(np.int64)))[order],
            np.concatenate((step, some.named.begin))[order],
            written[order],
            np.concatenate((np.full(len(level), len(schedule)), some.discarded))[order],
        )

    def until(self, version: Ints, /) -> Ints:
        """Return, for each checkpoint, until when its level has a checkpoint with this version.

        If checkpoints with one version on one level overlap in time, their times are combined.
        During this time the version fits on the level. `version` has the versions in x_0, ..., x_n.
        """
        # Different levels and versions get separate ranges of time, so that one pass is sufficient.
        group = self.level * (len(version) + 2) + version[self.step] + 1
        apart = group * (self.discarded.max(initial=0) + 2)
        order = np.lexsort((self.written, group))
        written, ends = (self.written + apart)[order], (self.discarded + apart)[order]
        ends = np.maximum.accumulate(ends)
        closes = np.append(written[1:] >= ends[:-1], True)[: len(ends)]
        last = np.flatnonzero(closes)
        end = ends[last[np.searchsorted(last, np.arange(len(ends)))]]
        until = np.empty_like(end)
        until[order] = end - apart[order]
        return until


class _LiveSteps(Exception):
    """Recorded steps whose state is live, although it was assumed to be dead."""

    def __init__(self, steps: Ints) -> None:
        super().__init__(steps)
        self.steps = steps


class _ScheduledVariable:
    """The Reads and Writes of a legal schedule, for one variable.

    `version` are its versions in x_0, ..., x_n, and `times` those of restart data.
    """

    def __init__(
        self, schedule: Schedule, name: str, version: Ints, times: CheckpointTimes
    ) -> None:
        actions = schedule.actions
        restart, data = actions.kind == _RESTART, actions.kind != _ADJOINT
        self._schedule, self.name, self._version = schedule, name, version
        self._writes = np.flatnonzero((actions.op == WRITE) & data)
        self._saves = np.flatnonzero((actions.op == WRITE) & restart)
        self._saved = version[actions.begin[self._saves]]
        self._reads = np.flatnonzero((actions.op == READ) & data)
        self._times = times
        self._restarts = np.flatnonzero((actions.op == READ) & restart)
        # The version in the state that each of these reads, and the first of a run of equal ones.
        # The last entry is NONE, for a position before all of them.
        restarted = version[actions.begin[self._restarts]]
        changes = np.append(True, restarted[1:] != restarted[:-1])[: len(restarted)]
        in_a_row = np.maximum.accumulate(np.arange(len(restarted)) * changes)
        self._restarted = np.append(restarted, NONE)
        self._in_a_row = np.append(in_a_row, 0)

    def arrays(self, events: Events, /) -> ArrayReads:
        """Return the versions that have to be stored, with their reads and their possible writes.

        Raises _LiveSteps if recorded steps have to leave the versions that they would leave.
        Raises BadInput if a needed version can neither stay in the state nor be read.
        """
        while True:
            settled = _settled(events)
            places, versions = self._where_read(settled)
            present = _versions_at(settled, places, versions, self._writes)
            arrays = ArrayReads.of(self.name, versions, places, self._sites(present))
            # A version that is dead until it is read may be lost before it can be written.
            more = [self._kept(version, read, events) for version, read in arrays.late()]
            if not more:
                return arrays
            events = Events.together([events, *more])

    def _where_read(self, events: Events) -> tuple[Ints, Ints]:
        """Return the Reads that have to read the variable, and the version at each.

        There is one Read for each event that needs another version than the event before it has
        left. Of the Reads in between, it is the one that sets the state from which the event
        starts, or the first of several in a run that have the same version. With the first one, the
        version is also in the state at all Writes after it. A version that only an adjoint step
        uses may have to be read together with its tape.
        """
        # Compare each event with the one before it. Before the first one, the state is x_0.
        left, would = np.append(0, events.left), np.append(0, events.leaves)
        place, dead = np.append(BEFORE, events.place), np.append(NONE, events.dead)
        gap = np.flatnonzero((events.need != NONE) & (events.need != left[:-1]) & ~events.through)
        since, until, need = place[gap], events.place[gap], events.need[gap]

        last = np.searchsorted(self._restarts, until) - 1
        first = np.searchsorted(self._restarts, since, "right")
        restart = (last >= first) & (self._restarted[last] == need)
        which = np.maximum(first, self._in_a_row[last])

        last = np.searchsorted(self._reads, until) - 1
        nothing = last < np.searchsorted(self._reads, since, "right")
        if nothing.any():
            revives = nothing & (dead[gap] != NONE) & (would[gap] == need)
            if (nothing & ~revives).any():
                at = int((nothing & ~revives).argmax())
                raise BadInput(
                    f"lower: {self._describe(int(until[at]))} needs {self.name} as in x_{need[at]};"
                    " the state does not have it, and there is no Read in between: it has to be on"
                    " the tape"
                )
            raise _LiveSteps(dead[gap][revives])
        places = self._reads[last]
        places[restart] = self._restarts[which[restart]]
        return places, need

    def _sites(self, present: Ints) -> tuple[WriteSites, WriteSites]:
        """Return all sites to write: stored from the start, and at Writes of the schedule."""
        times, until = self._times, self._times.until(self._version)
        start = WriteSites(self._version[times.step], times.written, times.level, until)
        # There is no slot for it next to a tape, or next to an older version in x_step.
        end = self._writes.copy()
        written = times.written != BEFORE
        at = np.searchsorted(self._writes, times.written[written])
        fits = self._version[times.step[written]] == present[at]
        end[at[fits]] = until[written][fits]
        level = self._schedule.actions.level[self._writes].astype(np.int64)
        return start.take(~written), WriteSites(present, self._writes, level, end)

    def _kept(self, version: int, read: int, events: Events) -> Events:
        """Return an event that keeps the variable until the first Write of this version.

        `read` is the first action that has to read it.
        """
        saves = self._saves[self._saved == version][:1]
        if len(saves) and saves[0] < read and saves[0] not in events.place:
            return Events.needs(saves, version)
        dead = events.dead[(events.dead != NONE) & (events.leaves == version)]
        if len(dead):
            raise _LiveSteps(dead)
        raise BadInput(
            f"lower: {self._describe(read)} has to read {self.name} as in x_{version}, which the"
            " state did not have at any Write before"
        )

    def _describe(self, place: int) -> str:
        return f"#{place} {self._schedule.actions[place]}"


def needed_arrays(schedule: Schedule, steps: ChainFlows, seed: Names, /) -> list[ArrayReads]:
    """Return the arrays of each variable that a legal schedule (or its beginning) has to store.

    At first, the state that a recorded step leaves is assumed not to be needed. If a variable needs
    it, the step needs more of the other variables. Raises BadInput if no reads of arrays can make
    the schedule correct for these steps, because an adjoint step uses a value in place that is
    neither in the state nor stored. That value has to be on the tape.
    """
    actions = schedule.actions
    rows = StepRows.of(actions)
    live = _live(rows, steps)
    times = CheckpointTimes.of(schedule, Kind.RESTART)
    variables = [
        _ScheduledVariable(schedule, name, steps.versions(name), times)
        for name in sorted(steps.variables | seed)
    ]
    while True:
        arrays: list[ArrayReads] = []
        live_too = np.zeros_like(live)
        for each in variables:
            try:
                events = _events(actions, rows, steps, each.name, seed=seed, live=live)
                arrays.append(each.arrays(events))
            except _LiveSteps as news:
                live_too[news.steps] = True
        if not live_too.any():
            return arrays
        live |= live_too
