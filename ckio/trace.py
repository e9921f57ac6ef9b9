"""A timeline as a Chrome trace, which Perfetto (ui.perfetto.dev) opens: a thread per resource."""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import numpy as np

from ckio.chain import Chain
from ckio.columns import WRITE, Actions
from ckio.occupancy import Occupancy, occupancies
from ckio.pictures.detail import Slices, steps
from ckio.pictures.staging import staged
from ckio.pictures.words import WORDS, seconds_text
from ckio.platforms import Platform
from ckio.timeline import Timeline

COMPUTING: Final = 0
"""The thread of the computing unit; level k is thread k + 1.

With overlap that is what the program does for a level, or waits for; channels are the next threads.
"""

MOST_EVENTS: Final = 100_000
"""Slices and values of counters, together, that a trace has where more are not asked for."""

Sliced = list[tuple[Timeline, Slices]]
Counted = Mapping[str, Occupancy]


def trace(
    timeline: Timeline, chain: Chain, platform: Platform, /, *, most: int | None = MOST_EVENTS
) -> str:
    """The JSON text: a complete event for each action, and a counter for what each level holds.

    With overlap another counts what is on its way, in staging memory.

    Times are in microseconds, to the nanosecond. Of the counters, one value for each time. What
    would be more than `most` events is merged, as `ckio.pictures.detail` says, and named in the
    plural; the process has a label that says so. For None, nothing is merged.
    """
    actions, moved = timeline.actions, timeline.transfers
    own = np.where(actions.op >= WRITE, actions.level + 1, COMPUTING)
    channels = list(dict.fromkeys(level.channel for level in platform.levels))
    first = 1 + len(platform.levels)
    served = np.array([channels.index(level.channel) + first for level in platform.levels])
    behind = served[moved.actions.level] if len(moved) else np.empty(0, np.int64)
    used = {place: channels[place - first] for place in sorted(set(behind.tolist()))}
    held = occupancies(timeline, chain, platform)
    counted = {
        f"bytes on {level.name}": occupancy
        for level, occupancy in zip(platform.levels, held, strict=True)
    }
    if len(moved):
        counted["bytes on their way"] = staged(timeline, chain, platform)
    sliced = [(timeline, Slices.of(timeline, own)), (moved, Slices.of(moved, behind))]
    cell, sliced = _few(sliced, counted, most)
    events = [*_threads(platform, used, cell)]
    for of, slices in sliced:
        events += _slices(of, slices)
    for name, occupancy in counted.items():
        events += _counter(name, occupancy, cell)
    body = ",\n".join(events)
    return f'{{"displayTimeUnit": "ms", "traceEvents": [\n{body}\n]}}\n'


def _few(sliced: Sliced, counted: Counted, most: int | None) -> tuple[int, Sliced]:
    """The cell in nanoseconds, 0 where nothing has to be merged, and the slices."""
    longest = max(int(slices.until.max(initial=0)) for _, slices in sliced)
    cell, found = 0, sliced
    while most is not None and _events(found, counted, cell) > most and cell <= longest:
        cell = max(1, 2 * cell, longest // most)
        found = [(of, slices.merged(cell)) for of, slices in sliced]
    return cell, found


def _events(sliced: Sliced, counted: Counted, cell: int) -> int:
    values = sum(len(steps(occupancy, cell)[0]) for occupancy in counted.values())
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


def _slices(timeline: Timeline, slices: Slices) -> Iterator[str]:
    columns = (slices.track, slices.start / 1000, slices.lasts / 1000, slices.op, slices.count)
    rows = zip(*(column.tolist() for column in columns), _details(timeline, slices), strict=True)
    for tid, ts, dur, op, count, details in rows:
        name = WORDS[op] if count == 1 else f"{WORDS[op]}s"
        yield (
            f'{{"ph": "X", "pid": 0, "tid": {tid}, "name": "{name}",'
            f' "ts": {ts}, "dur": {dur}, "args": {{{details}}}}}'
        )


def _details(timeline: Timeline, slices: Slices) -> Iterable[str]:
    actions: Actions = timeline.actions.take(slices.row)
    columns = (slices.count, slices.amount, slices.lasts / 1e9, slices.until / 1000)
    said = zip(*(column.tolist() for column in columns), strict=True)
    for row, (count, amount, seconds, until) in zip(actions.rows(), said, strict=True):
        op, _, _, begin, end, _ = row
        if count > 1:
            what = "steps" if op < WRITE else "bytes"
            yield f'"actions": {count}, "{what}": {amount}, "seconds": {seconds}, "until": {until}'
        elif op < WRITE:
            yield f'"begin": {begin}, "end": {end}'
        else:
            yield f'"checkpoint": {json.dumps(str(actions.key(row)))}, "bytes": {amount}'


def _counter(name: str, occupancy: Occupancy, cell: int) -> Iterator[str]:
    times, held = steps(occupancy, cell)
    quoted = json.dumps(name)
    for ts, nbytes in zip((times / 1000).tolist(), held.tolist(), strict=True):
        yield (
            f'{{"ph": "C", "pid": 0, "name": {quoted}, "ts": {ts}, "args": {{"bytes": {nbytes}}}}}'
        )
