"""Does `simulate` know when writes have to wait for the device?

The operating system takes writes at the speed of memory, until more wait than it allows. So many
checkpoints are written one after the other, as fast as they go, and the prediction is made with the
limit and the speed of the device that calibration found.
"""

import tempfile
from contextlib import closing
from pathlib import Path

import record

from ckio.actions import Advance, Key, Kind, Write
from ckio.backends.directory import Directory
from ckio.calibrate import calibrate
from ckio.calibrate.probe import random_data
from ckio.platform.chain import Chain
from ckio.runner import run
from ckio.schedule import Schedule, makespan
from ckio.sim.engine import simulate

NBYTES = 64 << 20
TIMES = 2.0
"""What is written, in units of what may wait."""

ROUNDS = 3


def line(nbytes: int, times: float) -> str:
    """What was predicted of such a run, and measured."""
    with tempfile.TemporaryDirectory() as folder:
        with closing(Directory(Path(folder) / "known")) as level:
            platform = calibrate({"nvme": level}, [nbytes], repeats=3)
            level.remove()
        profile = platform.levels[0].profile
        dirty = profile.dirty if profile is not None and profile.dirty is not None else 0
        steps = 1 + int(times * (dirty or 8 * nbytes)) // nbytes
        sizes = {"restart": nbytes, "tape": 0, "adjoint": 0}
        chain = Chain(steps=steps, advance=0, record=0, reverse=0, **sizes)
        actions = [
            action
            for step in range(steps)
            for action in (Write(Key(Kind.RESTART, step), 0), Advance(step, step + 1))
        ]
        schedule = Schedule(chain, actions)
        with closing(Directory(Path(folder) / "measured")) as level:
            took = run(schedule, platform, random_data(nbytes), [level]).makespan
            level.remove()
    said, without = simulate(schedule, platform).makespan, makespan(schedule, platform)
    limit = f"which takes {dirty / 2**30:.2f} GiB at once" if dirty else "which takes all at once"
    return (
        f"writes beyond the page cache, {limit}: {steps} checkpoints of {nbytes / 2**20:.3g} MiB,"
        f" one after the other: predicted {said:.2f} s ({without:.2f} s without write-back),"
        f" measured {took:.2f} s: {said / took - 1:+.1%}"
    )


if __name__ == "__main__":
    record.save("sustained", "\n".join(line(NBYTES, TIMES) for _ in range(ROUNDS)))
