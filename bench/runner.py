"""What does the runner itself cost, beside the calls of the model and of the levels?

A model that does nothing and a level in memory with tiny checkpoints are driven through the same
actions by a bare loop, whose keys exist already, and by each way to run a schedule. What is left
of the difference, in the same round, is the runner: its checks before the start, its clock, its
keys and its events.
"""

import gc
import statistics
import time
import tracemalloc
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import NamedTuple

import numpy as np

from bench import record
from ckio.actions import Buffers, Field, Key, Layout
from ckio.actions.columns import ADVANCE, READ, RECORD, REVERSE, WRITE
from ckio.backends.ram import Ram
from ckio.planners.binomial import revolve
from ckio.platform import Level, Platform
from ckio.platform.chain import Chain
from ckio.runner import perform, run
from ckio.schedule import Schedule

STEPS, SLOTS, NBYTES = 200_000, 20, 8
ROUNDS = 7
MOST_MICROSECONDS, MOST_BYTES = 6.0, 48.0
"""What an action may cost: of the runner's time, and of the memory of the timeline."""


class Nothing:
    """A model that does nothing; all its checkpoints are the same few bytes."""

    fields: Layout = (Field("nothing", "|u1", (NBYTES,)),)
    buffers: Buffers = (memoryview(bytearray(NBYTES)),)
    opened = nullcontext(buffers)

    def layout(self, _key: Key, /) -> Layout:
        return self.fields

    def advance(self, _begin: int, end: int, /) -> int:
        return end

    record = advance

    def reverse(self, _begin: int, _end: int, /) -> None: ...

    def dump(self, _key: Key, /) -> Buffers:
        return self.buffers

    def load(self, _key: Key, _layout: Layout, /) -> nullcontext[Buffers]:
        return self.opened


class Work(NamedTuple):
    """A schedule, its platform, and its actions with their keys made beforehand."""

    schedule: Schedule
    platform: Platform
    calls: list[tuple[int, int | Key, int]]

    @staticmethod
    def of(steps: int) -> "Work":
        sizes = {"restart": NBYTES, "tape": NBYTES, "adjoint": NBYTES}
        chain = Chain(steps=steps, advance=1.0, record=1.0, reverse=1.0, **sizes)
        platform = Platform((Level(name="ram", capacity=SLOTS * NBYTES),), working_memory=NBYTES)
        schedule = revolve(chain, platform)
        actions = schedule.actions
        calls = [(r[0], actions.key(r) if r[0] >= WRITE else r[3], r[4]) for r in actions.rows()]
        return Work(schedule, platform, calls)


def bare(work: Work) -> None:
    """Every call that a run makes, and nothing else."""
    model, level = Nothing(), Ram()
    level.reserve({NBYTES: SLOTS})
    for op, what, end in work.calls:
        if op == ADVANCE:
            model.advance(what, end)
        elif op == RECORD:
            model.record(what, end)
        elif op == REVERSE:
            model.reverse(what, end)
        elif op == WRITE:
            level.write(what, model.layout(what), model.dump(what))
        elif op == READ:
            with model.load(what, level.layout(what)) as into:
                level.read(what, into)
        else:
            level.discard(what)


def _ways(work: Work) -> tuple[Schedule, Platform, Nothing, list[Ram]]:
    return work.schedule, work.platform, Nothing(), [Ram()]


BARE, RUN = "bare calls", "run"
CONTENDERS: Mapping[str, Callable[[Work], object]] = {
    BARE: bare,
    RUN: lambda work: run(*_ways(work)),
    "run, with stop": lambda work: run(*_ways(work), stop=lambda: False),
    "run, watched": lambda work: run(*_ways(work), watch=lambda _: None),
    "perform": lambda work: deque(perform(*_ways(work)), maxlen=0),
}


def times(work: Work, rounds: int) -> Mapping[str, np.ndarray]:
    """Microseconds of processor time per action of each contender, by round; they take turns.

    None of them waits for anything, so what other processes take of the machine is not counted.
    """
    gc.freeze()  # the prepared calls are no garbage: nobody need look through them
    took: dict[str, list[float]] = {name: [] for name in CONTENDERS}
    for turn in range(1 + rounds):  # the first one warms up
        for name, contender in CONTENDERS.items():
            start = time.process_time()
            contender(work)
            if turn:
                took[name].append((time.process_time() - start) / len(work.calls) * 1e6)
    gc.unfreeze()
    return {name: np.array(each) for name, each in took.items()}


def timeline_bytes(work: Work) -> float:
    """Bytes per action that the timeline of a run takes, beside its schedule."""
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    timeline = run(*_ways(work))
    held = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    return held / len(timeline)


def sink_bytes(work: Work) -> int:
    """The most bytes that `perform` held at one time after its checks, nobody keeping events."""
    tracemalloc.start()
    events = perform(*_ways(work))
    before = tracemalloc.get_traced_memory()[0]
    tracemalloc.reset_peak()
    deque(events, maxlen=0)
    peak = tracemalloc.get_traced_memory()[1] - before
    tracemalloc.stop()
    return peak


def table(steps: int, rounds: int) -> str:
    work = Work.of(steps)
    took = times(work, rounds)
    low, middle, high = statistics.quantiles(took[BARE], n=4)
    rows = []
    for name, each in took.items():
        own = float(np.median(each - took[BARE]))
        target = f"{MOST_MICROSECONDS:.2f}" if name == RUN else ""
        missed = "missed" if target and own > MOST_MICROSECONDS else ""
        rows.append([name, f"{np.median(each):.2f}", f"{own:.2f}", target, missed])
    short, long = Work.of(steps // 40), Work.of(steps // 4)
    held = timeline_bytes(short)
    return (
        f"revolve, {steps} steps, {SLOTS} slots of {NBYTES} bytes in RAM,"
        f" {len(work.calls)} actions; µs of processor time per action\n"
        f"medians of {rounds} interleaved rounds; runner: less the bare calls of the same round\n"
        f"noise (quartile distance of the bare calls): {(high - low) / middle:.0%}\n\n"
        f"{record.columns(['', 'µs', 'runner', 'at most', ''], rows)}\n\n"
        f"the timeline: {held:.1f} bytes per action, at most {MOST_BYTES:.0f}"
        f"{'' if held <= MOST_BYTES else ', missed'}\n"
        "perform, nobody keeping events: at most"
        f" {sink_bytes(short) / 1024:.0f} KiB for {len(short.calls)} actions,"
        f" {sink_bytes(long) / 1024:.0f} KiB for {len(long.calls)}"
    )


if __name__ == "__main__":
    record.main("runner", table, steps=STEPS, rounds=ROUNDS)
