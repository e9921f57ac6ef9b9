"""The accesses to each level: their number, bytes, bandwidth, and times per access."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from ckio.actions.columns import DISCARD, READ, VERBS, WRITE
from ckio.platform import Platform
from ckio.platform.chain import Chain
from ckio.platform.readable import bytes_text, seconds_text
from ckio.report.pictures.timelines import slow_discards
from ckio.schedule.occupancy import Occupancy, accesses
from ckio.schedule.timeline import Timeline

_GIGABYTE: Final = 1e9


@dataclass(frozen=True, slots=True)
class AccessFigures:
    """The accesses of one kind to one level. There is at least one access.

    Attributes
    ----------
    kind : str
        "write", "read" or "discard".
    count, nbytes : int
        The number of accesses, and the sum of their bytes.
    busy : float
        The sum of their seconds.
    median, late : float
        The seconds that 50 %, and 90 %, of the accesses do not exceed.
    """

    kind: str
    count: int
    nbytes: int
    busy: float
    median: float
    late: float

    @property
    def gigabytes_per_second(self) -> float:
        """10^9 bytes per second of busy time; 0 without bytes or without time."""
        return self.nbytes / self.busy / _GIGABYTE if self.busy else 0.0


def access_figures(timeline: Timeline, platform: Platform, level: int, /) -> list[AccessFigures]:
    """Return the figures of a level, one for each kind of access that occurs."""
    events = accesses(timeline, platform, level)
    figures = []
    for op in (WRITE, READ, DISCARD):
        chosen = events.actions.op == op
        seconds = (events.stop - events.start)[chosen]
        if not len(seconds):
            continue
        median, late = np.quantile(seconds, (0.5, 0.9)).tolist()
        nbytes = int(events.nbytes[chosen].sum())
        busy = float(seconds.sum())
        figures.append(AccessFigures(VERBS[op], len(seconds), nbytes, busy, median, late))
    return figures


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
        level = platform.levels[place]
        first = [
            level.name,
            f"{occupancy.peak_checkpoints:,}",
            bytes_text(occupancy.peak_bytes),
            "never fills" if level.capacity is None else bytes_text(level.capacity),
        ]
        shown = [
            figures
            for figures in access_figures(timeline, platform, place)
            if figures.kind != VERBS[DISCARD] or place in slow
        ]
        cells = list(map(_cells, shown)) or [["not used", *[""] * 6]]
        rows += [[*head, *rest] for head, rest in zip(_heads(first), cells, strict=False)]
    return rows


def _heads(first: list[str]) -> Iterator[list[str]]:
    """Yield the cells of a level for its first row, and empty cells for further rows."""
    yield first
    while True:
        yield [""] * len(first)


def _cells(figures: AccessFigures) -> list[str]:
    speed = figures.gigabytes_per_second
    return [
        figures.kind,
        f"{figures.count:,}",
        bytes_text(figures.nbytes) if figures.nbytes else "",
        seconds_text(figures.busy),
        f"{speed:.3g}" if speed else "",
        seconds_text(figures.median),
        seconds_text(figures.late),
    ]
