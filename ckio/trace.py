"""A timeline as a Chrome trace, which Perfetto (ui.perfetto.dev) opens: a thread per resource."""

import json
from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ckio.chain import Chain
from ckio.columns import WRITE, Actions
from ckio.occupancy import Occupancy, occupancies
from ckio.pictures.staging import staged
from ckio.pictures.words import WORDS
from ckio.platforms import Platform
from ckio.timeline import Timeline

COMPUTING: Final = 0
"""The thread of the computing unit; level k is thread k + 1.

With overlap that is what the program does for a level, or waits for; channels are the next threads.
"""


def trace(timeline: Timeline, chain: Chain, platform: Platform, /) -> str:
    """The JSON text: a complete event for each action, and a counter for what each level holds.

    With overlap another counts what is on its way, in staging memory.

    Times are in microseconds, to the nanosecond. Of the counters, one value for each time.
    """
    actions, moved = timeline.actions, timeline.transfers
    own = np.where(actions.op >= WRITE, actions.level + 1, COMPUTING)
    channels = list(dict.fromkeys(level.channel for level in platform.levels))
    first = 1 + len(platform.levels)
    served = np.array([channels.index(level.channel) + first for level in platform.levels])
    behind = served[moved.actions.level] if len(moved) else np.empty(0, np.int64)
    used = {place: channels[place - first] for place in sorted(set(behind.tolist()))}
    events = [*_threads(platform, used), *_slices(timeline, own), *_slices(moved, behind)]
    for level, occupancy in zip(
        platform.levels, occupancies(timeline, chain, platform), strict=True
    ):
        events += _counter(f"bytes on {level.name}", occupancy)
    if len(moved):
        events += _counter("bytes on their way", staged(timeline, chain, platform))
    body = ",\n".join(events)
    return f'{{"displayTimeUnit": "ms", "traceEvents": [\n{body}\n]}}\n'


def _threads(platform: Platform, channels: dict[int, str]) -> Iterator[str]:
    yield json.dumps({"ph": "M", "pid": 0, "name": "process_name", "args": {"name": "ckio"}})
    names = dict(enumerate(["computing", *(level.name for level in platform.levels)]))
    names |= {thread: f"channel {name}" for thread, name in channels.items()}
    for thread, name in names.items():
        about = {"ph": "M", "pid": 0, "tid": thread}
        yield json.dumps(about | {"name": "thread_name", "args": {"name": name}})
        yield json.dumps(about | {"name": "thread_sort_index", "args": {"sort_index": thread}})


def _slices(timeline: Timeline, thread: NDArray[np.int64]) -> Iterator[str]:
    actions = timeline.actions
    # Whole nanoseconds: what touches in seconds must not overlap after rounding.
    start = np.rint(timeline.start * 1e9).astype(np.int64)
    stop = np.rint(timeline.stop * 1e9).astype(np.int64)
    columns = (actions.op, thread, start / 1000, (stop - start) / 1000)
    rows = zip(*(column.tolist() for column in columns), _details(actions, timeline), strict=True)
    for op, tid, ts, dur, details in rows:
        yield (
            f'{{"ph": "X", "pid": 0, "tid": {tid}, "name": "{WORDS[op]}",'
            f' "ts": {ts}, "dur": {dur}, "args": {{{details}}}}}'
        )


def _details(actions: Actions, timeline: Timeline) -> Iterable[str]:
    for row, nbytes in zip(actions.rows(), timeline.nbytes.tolist(), strict=True):
        op, _, _, begin, end, _ = row
        if op < WRITE:
            yield f'"begin": {begin}, "end": {end}'
        else:
            yield f'"checkpoint": {json.dumps(str(actions.key(row)))}, "bytes": {nbytes}'


def _counter(name: str, occupancy: Occupancy) -> Iterator[str]:
    times = np.rint(occupancy.times * 1e9).astype(np.int64)
    last = np.append(np.diff(times) > 0, True)
    quoted = json.dumps(name)
    for ts, nbytes in zip(
        (times[last] / 1000).tolist(), occupancy.nbytes[last].tolist(), strict=True
    ):
        yield (
            f'{{"ph": "C", "pid": 0, "name": {quoted}, "ts": {ts}, "args": {{"bytes": {nbytes}}}}}'
        )
