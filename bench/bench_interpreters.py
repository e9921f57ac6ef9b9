"""How many actions a second does each interpreter of a schedule take?"""

import statistics
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext

import pytest
import record

from ckio.actions import Buffers, Field, Key, Layout
from ckio.backends.ram import Ram
from ckio.planners.binomial import revolve
from ckio.platform import Affine, Level, Platform
from ckio.platform.chain import Chain
from ckio.report.render import render
from ckio.runner import run
from ckio.schedule import Schedule, counts, makespan
from ckio.schedule.machine import Machine
from ckio.schedule.policy import Overlap
from ckio.schedule.replay import validate
from ckio.schedule.text import dumps, loads
from ckio.sim.engine import simulate
from ckio.testing import CountingModel

SLOTS = 20


def example(steps: int) -> tuple[Schedule, Platform]:
    chain = Chain(
        steps=steps, advance=1.0, record=1.5, reverse=2.5, restart=64, tape=32, adjoint=96
    )
    level = Level(name="ram", capacity=SLOTS * 64, write=Affine(0.25), read=Affine(0.125))
    platform = Platform((level,), working_memory=32)
    return revolve(chain, platform), platform


def _walk(schedule: Schedule, platform: Platform) -> None:
    machine = Machine(schedule.chain, platform)
    for action in schedule.actions:
        machine.apply(action)


def _run(schedule: Schedule, platform: Platform) -> None:
    run(schedule, platform, CountingModel(schedule.chain), [Ram(capacity=SLOTS * 64)])


class Nothing:
    """A model and a level that do nothing: what is left is what the runner costs."""

    durable = False
    fields: Layout = (Field("nothing", "|u1", (64,)),)
    buffers: Buffers = (memoryview(bytearray(64)),)

    def layout(self, key: Key, /) -> Layout:
        return self.fields

    def advance(self, begin: int, end: int, /) -> int:
        return end

    record = advance

    def reverse(self, begin: int, end: int, /) -> None: ...

    def dump(self, key: Key, /) -> Buffers:
        return self.buffers

    def load(self, key: Key, layout: Layout, /) -> AbstractContextManager[Buffers]:
        return nullcontext(self.buffers)

    def reserve(self, sizes: Mapping[int, int], /) -> None: ...

    def write(self, key: Key, layout: Layout, data: Buffers, /) -> int:
        return 64

    def read(self, key: Key, into: Buffers, /) -> int:
        return 64

    def discard(self, key: Key, /) -> None: ...

    def keys(self) -> Iterable[Key]:
        return ()

    def close(self) -> None: ...


def _run_nothing(schedule: Schedule, platform: Platform) -> None:
    run(schedule, platform, Nothing(), [Nothing()])


INTERPRETERS: dict[str, Callable[[Schedule, Platform], object]] = {
    "walk (every action made, nothing done)": lambda s, _: sum(1 for _ in s.actions),
    "Machine.apply": _walk,
    "validate": validate,
    "makespan": makespan,
    "counts": lambda s, _: counts(s),
    "simulate": simulate,
    "simulate, with overlap": lambda s, p: simulate(s, p, overlap=Overlap(1, 1)),
    "run (model and level that do nothing)": _run_nothing,
    "run (counting model, RAM level)": _run,
    "render": lambda s, _: render(s.actions),
    "dumps": dumps,
    "loads": lambda s, p: loads(dumps(s, p)),
}


def table() -> str:
    schedule, platform = example(20_000)
    number = len(schedule)
    rows = []
    for name, interpret in INTERPRETERS.items():
        took = statistics.median(
            record.seconds(lambda call=interpret: call(schedule, platform)) for _ in range(5)
        )
        rows.append([name, f"{number / took:,.0f}", f"{took / number * 1e6:.2f}"])
    head = f"revolve, 20000 steps, {SLOTS} slots, {number} actions; median of 5\n"
    return head + record.columns(["interpreter", "actions/s", "µs per action"], rows)


@pytest.mark.parametrize("name", INTERPRETERS)
def test_interpreter(benchmark, name: str) -> None:
    schedule, platform = example(200)
    benchmark(INTERPRETERS[name], schedule, platform)


if __name__ == "__main__":
    record.save("interpreters", table())
