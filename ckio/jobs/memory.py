"""The memory and the files that a run needs: what to request in a job script."""

import re
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from ckio.parallel.group import RankGroup
from ckio.platform import Platform, memory_level
from ckio.platform.readable import bytes_text
from ckio.runner.overlapped import staged_sizes
from ckio.runner.perform import longest_tape
from ckio.schedule import Schedule, reservations
from ckio.schedule.policy import Overlap

_MEMORY: Final = "ram"
"""The backend whose checkpoints are in the memory of the process."""


class Space(NamedTuple):
    """The bytes that the checkpoints of a run need at most.

    Attributes
    ----------
    memory : int
        Bytes in memory: checkpoints, the tape of the steps that are recorded at once, the adjoint,
        and transfers that overlap with computation.
    files : int
        Bytes in files.
    """

    memory: int
    files: int


def space_of(schedule: Schedule, platform: Platform, overlap: Overlap, /) -> Space:
    """Return the space that a schedule needs with this overlap, besides what the model needs."""
    lent, staging = memory_level(platform), 0
    if overlap:
        _, sizes = staged_sizes(schedule, platform, overlap)
        staging = sum(nbytes * count for nbytes, count in sizes.items())
    tape, _ = longest_tape(schedule)
    memory = schedule.chain.largest("adjoint") + tape + (staging if lent is None else 0)
    files = 0
    for number, (level, sizes) in enumerate(
        zip(platform.levels, reservations(schedule), strict=False)
    ):
        nbytes = sum(level.stored(each) * count for each, count in sizes.items())
        if number == lent:  # transfers use memory that this level lends
            most = nbytes + staging
            memory += most if level.capacity is None else min(most, max(nbytes, level.capacity))
        elif level.backend == _MEMORY:
            memory += nbytes
        else:
            files += nbytes
    return Space(memory, files)


class Memory(NamedTuple):
    """The memory of a process at its peak, in bytes; of many ranks, of the one that needs most."""

    expected: int
    measured: int

    def __str__(self) -> str:
        return f"{bytes_text(self.measured)} at most, {bytes_text(self.expected)} expected"


def expected_bytes(space: Space, ranks: RankGroup, /) -> int:
    """Return the bytes of the process at its peak, once the run has taken this space; 0: unknown.

    The levels are open, and have no memory yet. So far, a calibration may have needed more.
    """
    now, most = of_process()
    return max(ranks.gather(max(most, now + space.memory) if now else 0))


def of_process() -> tuple[int, int]:
    """Return the bytes of memory that this process has now, and the most that it has ever had.

    Both are 0 where the system does not tell.
    """
    with suppress(OSError):
        text = Path("/proc/self/status").read_text()
        found = [re.search(rf"^{name}:\s*([0-9]+) kB$", text, re.M) for name in ("VmRSS", "VmHWM")]
        now, most = (int(it[1]) << 10 if it else 0 for it in found)
        return now, most
    return 0, 0
