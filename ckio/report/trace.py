"""A timeline as a Chrome trace, which Perfetto (ui.perfetto.dev) opens: a thread per resource.

The name of a slice is its action with the first and the last step, or with the checkpoint. Its
category is the kind of action. Counters give the bytes on each level, and the current steps of the
forward run and of the adjoint.
"""

import json
from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ckio.actions.columns import ADVANCE, RECORD, REVERSE, VERBS, WRITE, changes
from ckio.platform import Platform
from ckio.platform.chain import Chain
from ckio.report.staging import staged
from ckio.schedule.occupancy import Occupancy, occupancies
from ckio.schedule.timeline import Timeline

Ints = NDArray[np.int64]

HOW_TO_OPEN: Final = "; to look at it, choose 'Open trace file' at ui.perfetto.dev"

COMPUTING: Final = 0
"""The thread of the computing unit; level k is thread k + 1.

With overlap, the thread of a level shows the program's own accesses and waiting times. The next
threads are those of the channels.
"""

_FINE: Final = 2**51 / 1e9
"""Up to these seconds (26 days), a float of microseconds resolves each nanosecond."""


def trace(timeline: Timeline, chain: Chain, platform: Platform, /) -> str:
    """Return the JSON text: a complete event for each action, and counters of bytes and steps.

    There is a counter for the bytes on each level, and with overlap for the bytes in staging
    memory. Two more counters give the current steps of the forward run and of the adjoint.

    Times are in microseconds with nanosecond resolution. Beyond 26 days they are whole
    microseconds, because otherwise a reader's rounding would make slices overlap that touch.
    """
    tick = 1 if timeline.makespan < _FINE else 1000
    actions, moved = timeline.actions, timeline.transfers
    own = np.where(actions.op >= WRITE, actions.level + 1, COMPUTING)
    channels = list(dict.fromkeys(level.channel for level in platform.levels))
    first = 1 + len(platform.levels)
    served = np.array([channels.index(level.channel) + first for level in platform.levels])
    behind = served[moved.actions.level] if len(moved) else np.empty(0, np.int64)
    threads = dict(enumerate(["computing", *(level.name for level in platform.levels)]))
    threads |= {each: f"channel {channels[each - first]}" for each in sorted(set(behind.tolist()))}
    events = [*_threads(threads), *_slices(timeline, own, tick), *_slices(moved, behind, tick)]
    by_level = occupancies(timeline, chain, platform)
    for level, occupancy in zip(platform.levels, by_level, strict=True):
        events += _counter(f"bytes on {level.name}", "bytes", occupancy, tick)
    if len(moved):
        staging = staged(timeline, chain, platform)
        events += _counter("bytes on their way", "bytes", staging, tick)
    forward = _current(timeline, (ADVANCE, RECORD), 0)
    adjoint = _current(timeline, (REVERSE,), chain.length)
    events += _counter("forward", "step", forward, tick)
    events += _counter("adjoint", "step", adjoint, tick)
    body = ",\n".join(events)
    return f'{{"displayTimeUnit": "ms", "traceEvents": [\n{body}\n]}}\n'


def _nanoseconds(seconds: NDArray[np.float64], tick: int) -> Ints:
    """Return whole nanoseconds, the nearest multiples of `tick`: slices that touch stay so."""
    return np.rint(seconds * (1e9 / tick)).astype(np.int64) * tick


def _microseconds(times: Ints, tick: int) -> list[float] | list[int]:
    counts: list[float] | list[int] = (times / 1000 if tick == 1 else times // 1000).tolist()
    return counts


def _threads(names: dict[int, str]) -> Iterator[str]:
    about: dict[str, object] = {"ph": "M", "pid": 0}
    yield json.dumps(about | {"name": "process_name", "args": {"name": "ckio"}})
    for thread, name in names.items():
        about["tid"] = thread
        yield json.dumps(about | {"name": "thread_name", "args": {"name": name}})
        yield json.dumps(about | {"name": "thread_sort_index", "args": {"sort_index": thread}})


def _slices(timeline: Timeline, threads: Ints, tick: int) -> Iterator[str]:
    start, stop = _nanoseconds(timeline.start, tick), _nanoseconds(timeline.stop, tick)
    columns = _microseconds(start, tick), _microseconds(stop - start, tick), threads.tolist()
    actions, nbytes = timeline.actions, timeline.nbytes.tolist()
    for row, amount, ts, dur, tid in zip(actions.rows(), nbytes, *columns, strict=True):
        op, _, _, begin, end, _ = row
        if op >= WRITE:
            key = str(actions.key(row))
            name = json.dumps(f"{VERBS[op]} {key}")
            args = f'"checkpoint": {json.dumps(key)}, "bytes": {amount}'
        else:
            to = "" if end == begin + 1 else f"\\u2013{end - 1}"  # a dash, in JSON
            name = f'"{VERBS[op]} {begin}{to}"'
            args = f'"begin": {begin}, "end": {end}'
        yield (
            f'{{"ph": "X", "pid": 0, "tid": {tid}, "cat": "{VERBS[op]}", "name": {name},'
            f' "ts": {ts}, "dur": {dur}, "args": {{{args}}}}}'
        )


def _current(timeline: Timeline, ops: tuple[int, ...], first: int) -> Occupancy:
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


def _counter(name: str, unit: str, staircase: Occupancy, tick: int) -> Iterator[str]:
    """Yield one value for each time: the last one, if several changes have the same time."""
    times = _nanoseconds(staircase.times, tick)
    last = np.append(changes(times)[1:], True)
    values = staircase.nbytes[last].tolist()
    for ts, value in zip(_microseconds(times[last], tick), values, strict=True):
        yield (
            f'{{"ph": "C", "pid": 0, "name": {json.dumps(name)}, "ts": {ts},'
            f' "args": {{"{unit}": {value}}}}}'
        )
