"""The table of the accesses to each level: their number, bytes, bandwidth, and times per access."""

from collections.abc import Sequence

import numpy as np

from ckio.actions.columns import DISCARD, READ, VERBS, WRITE
from ckio.platform import Platform
from ckio.platform.chain import Chain
from ckio.platform.readable import bytes_text, seconds_text
from ckio.report.pictures.timelines import slow_discards
from ckio.schedule.occupancy import Occupancy, accesses
from ckio.schedule.timeline import Timeline


def level_table(
    timeline: Timeline, levels: Sequence[Occupancy], chain: Chain, platform: Platform, /
) -> list[list[str]]:
    """Return the table of levels, with a row for each kind of access. Its first row is the heading.

    `levels` are the bytes and checkpoints on each level over time. Discards have a row only if they
    take more than 1 % of the makespan.
    """
    peak = "peak slots" if chain.variables is None else "peak arrays"
    heading = f"level, {peak}, peak, capacity, access, count, bytes, busy, GB/s, median, 90 %"
    rows = [heading.split(", ")]
    slow = slow_discards([timeline], platform)
    for place, occupancy in enumerate(levels):
        level, events = platform.levels[place], accesses(timeline, platform, place)
        head = [
            level.name,
            f"{occupancy.peak_checkpoints:,}",
            bytes_text(occupancy.peak_bytes),
            "never fills" if level.capacity is None else bytes_text(level.capacity),
        ]
        ops = (WRITE, READ, DISCARD) if place in slow else (WRITE, READ)
        cells = [access_cells(events, op) for op in ops if (events.actions.op == op).any()]
        for cell in cells or [["not used", *[""] * 6]]:
            rows.append([*head, *cell])
            head = [""] * len(head)
    return rows


def access_cells(events: Timeline, op: int, /) -> list[str]:
    """Return the kind, number and bytes of accesses, their seconds, and times of single ones.

    The bandwidth is in 10^9 bytes per second of busy time. The last cells are the seconds that 50 %
    and 90 % of the accesses do not exceed. There is at least one access.
    """
    chosen = events.actions.op == op
    seconds, nbytes = (events.stop - events.start)[chosen], int(events.nbytes[chosen].sum())
    busy = float(seconds.sum())
    speed = 1e-9 * nbytes / busy if busy else 0.0
    return [
        VERBS[op],
        f"{len(seconds):,}",
        bytes_text(nbytes) if nbytes else "",
        seconds_text(busy),
        f"{speed:.3g}" if speed else "",
        *map(seconds_text, np.quantile(seconds, (0.5, 0.9)).tolist()),
    ]
