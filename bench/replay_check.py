"""What does the replay check cost, beside the same run without it?

Each run is made with and without the check, in turn, so that both are measured in the same minutes.
Seconds are processor time of the thread that computes, so that other people's load says less.
The state of `Cheap` is large, and a step of it takes hardly longer than a hash: there the check has
time for a few states only. The table has the medians of the runs, the median of the differences
within a round, the quartiles of these, the share of the run that was spent with hashes, and the
number of states that were compared. Where other people's load makes runs differ by more than the
check costs, its cost is the share of the hashes, and the microseconds of a call in the last line.
"""

import gc
import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import record

from ckio.backends.ram import Ram
from ckio.model import sizes_of
from ckio.model.arraymodel import ArrayModel
from ckio.models.burgers import Burgers
from ckio.models.vorticity import Vorticity
from ckio.planners.binomial import revolve
from ckio.platform import Level, Platform
from ckio.platform.chain import Chain
from ckio.runner import Reproducible, run
from ckio.runner.reproducible import ReplayCheck

ROUNDS, SLOTS = 5, 8
MOST_PERCENT = 1.0


class Cheap(ArrayModel):
    """A large state, and a step that only passes over it once or twice."""

    def __init__(self, *, mebibytes: int = 64) -> None:
        x = np.linspace(0.0, 1.0, mebibytes << 17)
        super().__init__({"x": x, "J": 0.0}, control={"rate": 1e-3}, tape=[])

    def step(self, state: Any, i: int, /) -> None:
        state["x"] *= 1.0 - self.control["rate"]
        state["J"] += state["x"][0]

    def adjoint_step(self, adjoint: Any, tape: Any, i: int, /) -> None:
        adjoint["x"] *= 1.0 - self.control["rate"]
        adjoint["x"][0] += adjoint["J"]


class Case(NamedTuple):
    name: str
    make: Callable[[], Any]
    steps: int


CASES = [
    Case("burgers, 256 points", lambda: Burgers(grid=256, time=1e9), 4000),
    Case("vorticity, 64 x 64", lambda: Vorticity(grid=64), 1000),
    Case("vorticity, 256 x 256", lambda: Vorticity(grid=256), 100),
    Case("cheap, 1 MiB", lambda: Cheap(mebibytes=1), 3000),
    Case("cheap, 64 MiB", lambda: Cheap(mebibytes=64), 24),
]


class Counting(ReplayCheck):
    """A replay check that counts the states that it has compared."""

    compared = 0

    def __init__(self) -> None:
        super().__init__()
        self.begun = time.perf_counter()

    @property
    def share(self) -> float:
        """The part of the time since the start that was spent with hashes, in percent."""
        return 100 * self._spent / (time.perf_counter() - self.begun)

    def look(self, *given: Any, **named: Any) -> bool:
        same = super().look(*given, **named)
        self.compared += same
        return same


def bare(model: Any) -> Any:
    """The model itself, which the runner takes for one that is checked."""
    model.replay_check = ReplayCheck()
    return model


def seconds(case: Case, wrap: Callable[[Any], Any]) -> float:
    """How long a run takes, with a fresh model."""
    model = case.make()
    sizes = sizes_of(model)
    chain = Chain(steps=case.steps, advance=1.0, record=1.0, reverse=1.0, **sizes)
    platform = Platform((Level(name="ram", capacity=SLOTS * sizes["restart"]),), sizes["tape"])
    schedule = revolve(chain, platform)
    gc.collect()
    start = time.thread_time()
    run(schedule, platform, wrap(model), [Ram()])
    return time.thread_time() - start


def row(case: Case, rounds: int) -> tuple[list[str], float]:
    """The figures of a case, and the cost of the check in percent."""
    without, with_check = list[float](), list[float]()
    replay, share = Counting(), 0.0
    for number in range(rounds + 1):
        order = (False, True) if number % 2 else (True, False)
        for is_checked in order:
            if is_checked:
                replay = Counting()
                with_check.append(seconds(case, lambda model, it=replay: Reproducible(model, it)))
                share = replay.share
            else:
                without.append(seconds(case, bare))
    without, with_check = without[1:], with_check[1:]  # the first round warms up
    costs = [100 * (b - a) / a for a, b in zip(without, with_check, strict=True)]
    low, middle, high = statistics.quantiles(costs, n=4)
    figures = [
        case.name,
        f"{statistics.median(without):.3f}",
        f"{statistics.median(with_check):.3f}",
        f"{middle:+.2f}",
        f"{low:+.2f} to {high:+.2f}",
        f"{share:.2f}",
        str(replay.compared),
    ]
    return figures, middle


class Idle(ArrayModel):
    """A model whose steps do nothing."""

    def __init__(self) -> None:
        super().__init__({"J": 0.0}, control={"rate": 1.0}, tape=[])

    def step(self, state: Any, i: int, /) -> None:
        pass

    def adjoint_step(self, adjoint: Any, tape: Any, i: int, /) -> None:
        pass


def microseconds_of_a_call() -> float:
    """The least of ten differences, each of 10,000 calls of `advance` over one step."""

    def taken(model: Any) -> float:
        start = time.thread_time()
        for step in range(10_000):
            model.advance(step, step + 1)
        return time.thread_time() - start

    return 100 * min(taken(Reproducible(Idle(), ReplayCheck())) - taken(Idle()) for _ in range(10))


def main() -> None:
    header = ["run", "without, s", "with, s", "cost, %", "quartiles, %", "hashes, %", "compared"]
    table = record.columns(header, [row(case, ROUNDS)[0] for case in CASES])
    record.save(
        "replay_check", f"{table}\n\na call of advance: {microseconds_of_a_call():.2f} us more"
    )


if __name__ == "__main__":
    main()
