"""A timeline as a Chrome trace, which Perfetto (ui.perfetto.dev) opens: a thread per resource.

The name of a slice is its action with the first and the last step, or with the checkpoint. Its
category is the kind of action. Counters give the bytes on each level, and the current steps of the
forward run and of the adjoint.

If a trace would have too many slices, short slices are merged. Time is divided into cells. A slice
that lasts at least a cell is not changed, nor is the last slice of each track. The others of one
track and cell become one slice for each kind of action. These slices follow one another, from the
start of the first original slice. Each lasts as long as the sum of the slices that it replaces, so
that the busy seconds stay the same, and the rest of the cell is idle.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ckio.actions.columns import ADVANCE, RECORD, REVERSE, VERBS, WRITE, Actions, changes
from ckio.errors import BadInput
from ckio.platform import Platform
from ckio.platform.chain import Chain
from ckio.platform.readable import seconds_text
from ckio.report.staging import staged
from ckio.schedule.occupancy import Occupancy, occupancies
from ckio.schedule.timeline import Timeline

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Slices:
    """Slices of tracks, in whole nanoseconds, so that slices that touch never overlap.

    Attributes
    ----------
    track : int64 array
        The track of each slice. Slices of one track do not overlap.
    start, lasts : int64 arrays
        The start and the duration in nanoseconds; a merged slice has the sum of the durations.
    until : int64 array
        The end of the last of its actions, in nanoseconds.
    row : int64 array
        The index of its first action.
    op : uint8 array
        The kind of action.
    count : int64 array
        The number of actions.
    amount : int64 array
        The sum of the steps of all actions, or of their bytes.
    """

    track: Ints
    start: Ints
    lasts: Ints
    until: Ints
    row: Ints
    op: NDArray[np.uint8]
    count: Ints
    amount: Ints

    @staticmethod
    def of(timeline: Timeline, track: Ints, /, *, tick: int = 1) -> "Slices":
        """Return one slice for each action. Times are multiples of `tick` nanoseconds."""
        actions = timeline.actions
        start, until = nanoseconds(timeline.start, tick), nanoseconds(timeline.stop, tick)
        return Slices(
            track=track.astype(np.int64),
            start=start,
            lasts=until - start,
            until=until,
            row=np.arange(len(actions)),
            op=actions.op,
            count=np.ones(len(actions), np.int64),
            amount=np.where(actions.op < WRITE, actions.end - actions.begin, timeline.nbytes),
        )

    def __len__(self) -> int:
        return len(self.track)

    def take(self, index: Ints, /) -> "Slices":
        """Return the slices with these indices."""
        return Slices(*(getattr(self, field.name)[index] for field in fields(self)))

    def merged(self, cell: int, /) -> "Slices":
        """Return the slices by track and time; those shorter than `cell` nanoseconds are merged."""
        if not len(self):
            return self
        these = self.take(np.lexsort((self.row, self.track)))
        ends = np.append(changes(these.track)[1:], True)
        alone = (these.lasts >= cell) | ends
        opens = (
            changes(these.track, these.start // cell) | alone
        )  # the next slice is in another cell
        run = np.cumsum(opens) - 1
        by_kind = np.lexsort((these.op, run))
        kinds = np.flatnonzero(changes(run[by_kind], these.op[by_kind]))
        run = run[by_kind[kinds]]  # one number for each kind of action
        slices = _together(these.take(by_kind), kinds)
        first = np.flatnonzero(changes(run))
        several = np.logical_or.reduceat(slices.count > 1, first)
        of = np.repeat(np.arange(len(first)), np.diff(np.append(first, len(run))))
        before = np.cumsum(slices.lasts) - slices.lasts
        begin = np.minimum.reduceat(slices.start, first)
        laid = begin[of] + before - before[first][of]
        start = np.where(several[of], laid, slices.start)
        return replace(slices, start=start).take(
            np.lexsort((np.where(several[of], 0, slices.row), run))
        )


def _together(slices: Slices, first: Ints) -> Slices:
    """Return one slice for each group of slices; `first` has the index of its first slice."""
    sums = {
        name: np.add.reduceat(getattr(slices, name), first) for name in ("lasts", "count", "amount")
    }
    until = slices.until[np.append(first[1:], len(slices)) - 1]
    return replace(slices.take(first), **sums, until=until)


def nanoseconds(seconds: NDArray[np.float64], tick: int = 1, /) -> Ints:
    """Return seconds as whole nanoseconds: the nearest multiples of `tick`."""
    return np.rint(seconds * (1e9 / tick)).astype(np.int64) * tick


def steps(occupancy: Occupancy, cell: int = 0, /, *, tick: int = 1) -> tuple[Ints, Ints]:
    """Return times and the bytes on a level from each time on. Times are multiples of `tick`.

    If `cell` is not 0, there are two values for each cell of that many nanoseconds: the largest
    value in the cell and the last one.
    """
    times, nbytes = nanoseconds(occupancy.times, tick), occupancy.nbytes
    last = np.append(changes(times)[1:], True)
    times, nbytes = times[last], nbytes[last]
    if not cell:
        return times, nbytes
    cells = times // cell
    last = np.append(changes(cells)[1:], True)
    order = np.lexsort((-np.arange(len(cells)), nbytes, cells))  # the first of equal ones, last
    largest = order[np.append(changes(cells[order])[1:], True)]
    rows = np.union1d(largest, np.flatnonzero(last))
    return times[rows], nbytes[rows]


FORWARD: Final = (ADVANCE, RECORD)

COMPUTING: Final = 0
"""The thread of the computing unit; level k is thread k + 1.

With overlap, the thread of a level shows the program's own accesses and waiting times. The next
threads are those of the channels.
"""

MOST_EVENTS: Final = 100_000
"""The default for the largest number of slices and counter values of a trace."""

_NANOSECOND: Final = 1
_MICROSECOND: Final = 1000
_FINE: Final = 2**51 / 1e9
"""Up to these seconds, a float of microseconds resolves each nanosecond, also times 1000."""
_FAR: Final = 2**53 / 1e6
"""Up to these seconds, a float counts microseconds and an int64 counts nanoseconds."""

HOW_TO_OPEN: Final = "; to look at it, choose 'Open trace file' at ui.perfetto.dev"

Sliced = list[tuple[Timeline, Slices]]


@dataclass(frozen=True, slots=True)
class CounterTrack:
    """A staircase of numbers with its unit, "bytes" or "step"."""

    unit: str
    staircase: Occupancy


Counted = Mapping[str, CounterTrack]


def trace(
    timeline: Timeline, chain: Chain, platform: Platform, /, *, most: int | None = MOST_EVENTS
) -> str:
    """Return the JSON text: a complete event for each action, and counters of bytes and steps.

    There is a counter for the bytes on each level, and with overlap for the bytes in staging
    memory. Two more counters give the current steps of the forward run and of the adjoint. A
    counter has one value for each time.

    Times are in microseconds with nanosecond resolution. Beyond 26 days they are whole
    microseconds, because otherwise a reader's rounding would make slices overlap that touch. If
    there are more than `most` events, short ones are merged (see the module). Merged slices have
    names in the plural, and the process has a label on the merging. With None, nothing is merged.

    Raises BadInput beyond 285 years, because readers cannot represent longer times.
    """
    actions, moved = timeline.actions, timeline.transfers
    own = np.where(actions.op >= WRITE, actions.level + 1, COMPUTING)
    channels = list(dict.fromkeys(level.channel for level in platform.levels))
    first = 1 + len(platform.levels)
    served = np.array([channels.index(level.channel) + first for level in platform.levels])
    behind = served[moved.actions.level] if len(moved) else np.empty(0, np.int64)
    used = {place: channels[place - first] for place in sorted(set(behind.tolist()))}
    by_level = occupancies(timeline, chain, platform)
    counted = {
        f"bytes on {level.name}": CounterTrack("bytes", occupancy)
        for level, occupancy in zip(platform.levels, by_level, strict=True)
    }
    if len(moved):
        counted["bytes on their way"] = CounterTrack("bytes", staged(timeline, chain, platform))
    counted["forward"] = CounterTrack("step", _standing(timeline, FORWARD, 0))
    counted["adjoint"] = CounterTrack("step", _standing(timeline, (REVERSE,), chain.length))
    tick = _tick(timeline.makespan)
    sliced = [
        (timeline, Slices.of(timeline, own, tick=tick)),
        (moved, Slices.of(moved, behind, tick=tick)),
    ]
    cell, sliced = _few(sliced, counted, most)
    events = [*_threads(platform, used, cell)]
    for of, slices in sliced:
        events += _slices(of, slices, tick)
    for name, counter in counted.items():
        values = steps(counter.staircase, cell, tick=tick)
        events += _counter(name, counter.unit, values, tick)
    body = ",\n".join(events)
    return f'{{"displayTimeUnit": "ms", "traceEvents": [\n{body}\n]}}\n'


def _standing(timeline: Timeline, ops: tuple[int, ...], first: int) -> Occupancy:
    """Return the current step of a direction over time: `first`, then the end of each action.

    If an action does not begin where the previous one ended, the step changes when it begins.
    """
    actions = timeline.actions
    rows = np.flatnonzero(np.isin(actions.op, ops))
    begin, end = actions.begin[rows], actions.end[rows]
    enter, leave = (end, begin) if REVERSE in ops else (begin, end)
    times = np.stack((timeline.start[rows], timeline.stop[rows]), axis=1).ravel()
    values = np.stack((enter, leave), axis=1).ravel()
    times, values = np.append(0.0, times), np.append(first, values)
    moves = changes(values)
    return Occupancy(times[moves], values[moves], np.zeros(int(moves.sum()), np.int64))


def _tick(seconds: float) -> int:
    """Return the nanoseconds of which all times are multiples."""
    if seconds >= _FAR:
        raise BadInput(f"a trace counts up to 285 years, {_FAR:.4g} s, and this takes {seconds:g}")
    return _NANOSECOND if seconds < _FINE else _MICROSECOND


def _microseconds(times: Ints, tick: int) -> list[float] | list[int]:
    """Return microseconds, as whole numbers if the tick is one microsecond: they stay exact."""
    counts: list[float] | list[int]
    counts = (times / 1000 if tick == _NANOSECOND else times // 1000).tolist()
    return counts


def _few(sliced: Sliced, counted: Counted, most: int | None) -> tuple[int, Sliced]:
    """Return the cell in nanoseconds, 0 if nothing is merged, and the slices."""
    longest = max(int(slices.until.max(initial=0)) for _, slices in sliced)
    cell, merged = 0, sliced
    while most is not None and _events(merged, counted, cell) > most and cell <= longest:
        cell = max(1, 2 * cell, longest // most)
        merged = [(of, slices.merged(cell)) for of, slices in sliced]
    return cell, merged


def _events(sliced: Sliced, counted: Counted, cell: int) -> int:
    values = sum(len(steps(counter.staircase, cell)[0]) for counter in counted.values())
    return values + sum(len(slices) for _, slices in sliced)


def _threads(platform: Platform, channels: dict[int, str], cell: int) -> Iterator[str]:
    about: dict[str, object] = {"ph": "M", "pid": 0}
    yield json.dumps(about | {"name": "process_name", "args": {"name": "ckio"}})
    if cell:
        labels = f"short actions within {seconds_text(cell / 1e9)} are merged"
        yield json.dumps(about | {"name": "process_labels", "args": {"labels": labels}})
    names = dict(enumerate(["computing", *(level.name for level in platform.levels)]))
    names |= {thread: f"channel {name}" for thread, name in channels.items()}
    for thread, name in names.items():
        about["tid"] = thread
        yield json.dumps(about | {"name": "thread_name", "args": {"name": name}})
        yield json.dumps(about | {"name": "thread_sort_index", "args": {"sort_index": thread}})


def _slices(timeline: Timeline, slices: Slices, tick: int) -> Iterator[str]:
    start, lasts = _microseconds(slices.start, tick), _microseconds(slices.lasts, tick)
    columns = (slices.track.tolist(), slices.op.tolist())
    details = _details(timeline, slices, tick)
    rows = zip(start, lasts, *columns, _names(timeline, slices), details, strict=True)
    for ts, dur, tid, op, name, args in rows:
        yield (
            f'{{"ph": "X", "pid": 0, "tid": {tid}, "cat": "{VERBS[op]}", "name": {name},'
            f' "ts": {ts}, "dur": {dur}, "args": {{{args}}}}}'
        )


def _names(timeline: Timeline, slices: Slices) -> Iterator[str]:
    """Yield the names as JSON. The name of a merged slice is in the plural."""
    actions: Actions = timeline.actions.take(slices.row)
    for row, count in zip(actions.rows(), slices.count.tolist(), strict=True):
        op, _, _, begin, end, _ = row
        if count > 1:
            yield f'"{VERBS[op]}s"'
        elif op >= WRITE:
            yield json.dumps(f"{VERBS[op]} {actions.key(row)}")
        elif end == begin + 1:
            yield f'"{VERBS[op]} {begin}"'
        else:
            yield f'"{VERBS[op]} {begin}\\u2013{end - 1}"'  # a dash, in JSON


def _details(timeline: Timeline, slices: Slices, tick: int) -> Iterable[str]:
    actions: Actions = timeline.actions.take(slices.row)
    columns = (slices.count, slices.amount, slices.lasts / 1e9)
    until = _microseconds(slices.until, tick)
    rows = zip(*(column.tolist() for column in columns), until, strict=True)
    for row, (count, amount, seconds, until) in zip(actions.rows(), rows, strict=True):
        op, _, _, begin, end, _ = row
        if count > 1:
            what = "steps" if op < WRITE else "bytes"
            yield f'"actions": {count}, "{what}": {amount}, "seconds": {seconds}, "until": {until}'
        elif op < WRITE:
            yield f'"begin": {begin}, "end": {end}'
        else:
            yield f'"checkpoint": {json.dumps(str(actions.key(row)))}, "bytes": {amount}'


def _counter(name: str, unit: str, values: tuple[Ints, Ints], tick: int) -> Iterator[str]:
    times, numbers = values
    quoted = json.dumps(name)
    for ts, number in zip(_microseconds(times, tick), numbers.tolist(), strict=True):
        yield (
            f'{{"ph": "C", "pid": 0, "name": {quoted}, "ts": {ts}, "args": {{"{unit}": {number}}}}}'
        )
