"""What does a gradient of a program of unknown length take, in space and time, as it grows?

Listing 1 of Siskind and Pearlmutter (2016), by one tape and by checkpoints: their figure. Then what
`@program` adds to each tick, and what the whole gradient of an adaptive solver with large arrays
takes beside what it has to compute.
"""

import gc
import math
import statistics
import tracemalloc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from unknown_length import adaptive_burgers, listing1

from bench import record
from ckio.programs import Options, checkpoint_vjp, primops, vjp

X, EPS, BASE = 3.0, 1e-3, 256
LENGTHS = 103, 503, 1003, 2003, 4003, 7003, 10007
CELLS, WAVE = 1 << 16, 64
MOST_OVERHEAD, MOST_BESIDE = 5.0, 1.3
"""Microseconds that a tick may take more than in plain Python; and what the ticks may take that a
gradient runs forward, as a multiple of plain Python, beside what one tape and the way back take."""

Gradient = Callable[..., tuple[Any, Any]]
Stats = dict[str, int]


@dataclass(frozen=True)
class Point:
    """What one gradient took: by the clock, and in memory at a time, which is measured apart."""

    stats: Stats
    seconds: float
    nbytes: int
    gradient: float


def point(gradient: Gradient, n: int, repeats: int) -> Point:
    """Listing 1 with `n` passes through the outer loop."""
    stats: Stats = {}
    x = X, n, EPS
    seconds = statistics.median(
        record.seconds(lambda: gradient(listing1, x, 1.0)) for _ in range(repeats)
    )
    gc.collect()
    tracemalloc.start()
    _, bar = gradient(listing1, x, 1.0, stats=stats)
    _, nbytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return Point(stats, seconds, nbytes, float(bar[0]))


def by_checkpoints(*args: Any, **options: Any) -> tuple[Any, Any]:
    return checkpoint_vjp(*args, Options(base=BASE), **options)


def growth(lengths: Sequence[int], repeats: int = 3) -> list[tuple[int, Point, Point]]:
    """By one tape, and by checkpoints; gradients have to agree, and checkpoints to be few."""
    points = []
    for n in lengths:
        plain, other = point(vjp, n, repeats), point(by_checkpoints, n, repeats)
        assert math.isclose(plain.gradient, other.gradient, rel_tol=1e-12)
        ticks = other.stats["ticks"]
        assert other.stats["live_peak"] <= math.ceil(math.log2(ticks / BASE)) + 1
        points.append((n, plain, other))
    return points


def table_of_growth(points: Sequence[tuple[int, Point, Point]]) -> str:
    header = (
        "n", "ticks", "tape: nodes", "MB", "s", "checkpoints: live", "nodes", "MB", "s", "forward",
    )  # fmt: skip
    rows = [
        (
            str(n),
            str(plain.stats["ticks"]),
            str(plain.stats["tape_peak"]),
            f"{plain.nbytes / 1e6:.2f}",
            f"{plain.seconds:.3f}",
            str(other.stats["live_peak"]),
            str(other.stats["tape_peak"]),
            f"{other.nbytes / 1e6:.2f}",
            f"{other.seconds:.3f}",
            f"{other.stats['forward_ticks'] / other.stats['ticks']:.2f}",
        )
        for n, plain, other in points
    ]
    return record.columns(header, rows)


def interleaved(actions: Sequence[Callable[[], object]], repeats: int) -> list[list[float]]:
    """Seconds of each action, taken in turns, so that a slow moment of the machine is shared."""
    times: list[list[float]] = [[] for _ in actions]
    for _ in range(repeats):
        for action, taken in zip(actions, times, strict=True):
            taken.append(record.seconds(action))
    return times


@dataclass(frozen=True)
class Overhead:
    """Microseconds of a tick, and its ticks."""

    plain: float
    program: float
    ticks: int

    @property
    def added(self) -> float:
        return self.program - self.plain


def overhead(p: Any, x: tuple[Any, ...], repeats: int = 7) -> Overhead:
    """Beside the plain function: medians of several in turns."""
    _, ticks = primops(p, *x)
    plain, program = interleaved([lambda: p(*x), lambda: primops(p, *x)], repeats)
    each = [1e6 * statistics.median(times) / ticks for times in (plain, program)]
    return Overhead(each[0], each[1], ticks)


@dataclass(frozen=True)
class Whole:
    """Seconds, round by round: forward as plain Python, one tape and back, all by checkpoints."""

    forward: list[float]
    tape: list[float]
    by_checkpoints: list[float]
    stats: Stats
    tape_bytes: int

    @property
    def again(self) -> float:
        """How often the program is run forward without a tape; with one it is once more."""
        return (self.stats["forward_ticks"] - self.stats["ticks"]) / self.stats["ticks"]

    @property
    def ratios(self) -> list[float]:
        """What checkpoints take but for tapes, over what plain Python takes for the same ticks."""
        rounds = zip(self.forward, self.tape, self.by_checkpoints, strict=True)
        return [(all_ - tape) / (self.again * forward) for forward, tape, all_ in rounds]


def whole(cells: int, tolerance: float, base: int, repeats: int = 15) -> Whole:
    """The gradient of the energy that an adaptive solver leaves in so many cells."""
    u0 = 1.0 + np.sin(2.0 * np.pi * np.arange(cells) / WAVE)
    x = u0, 0.3, tolerance
    ybar = adaptive_burgers(*x) / cells
    start, (_, ticks) = adaptive_burgers.start(*x), primops(adaptive_burgers, *x)
    tape: Stats = {}
    stats: Stats = {}
    vjp(adaptive_burgers, x, ybar, stats=tape)
    actions = [
        lambda: adaptive_burgers(*x),
        lambda: adaptive_burgers.pullback(start, ticks, {"y": ybar}),
        lambda: checkpoint_vjp(adaptive_burgers, x, ybar, Options(base=base), stats=stats),
    ]
    for action in actions:
        action()
    times = interleaved(actions, repeats)
    return Whole(*times, stats, tape["tape_bytes"])


def lines_of_overhead(found: Overhead) -> str:
    return (
        f"a tick of Listing 1, n = 1003 ({found.ticks} ticks): {found.plain:.2f} us plain,"
        f" {found.program:.2f} us as a program: {found.added:.2f} us more"
        f" (of {MOST_OVERHEAD:g} us)"
    )


def lines_of_whole(found: Whole) -> str:
    stats, ratios, median = found.stats, sorted(found.ratios), statistics.median
    forward, tape, all_ = map(median, (found.forward, found.tape, found.by_checkpoints))
    most = MOST_BESIDE * found.again * forward + tape
    return (
        f"adaptive Burgers, {CELLS} cells, {stats['ticks']} ticks in steps of {stats['base']},"
        f" medians of {len(ratios)} rounds:\n"
        f"forward {forward:.3f} s; one tape of {found.tape_bytes / 1e6:.0f} MB, and back,"
        f" {tape:.3f} s;\n"
        f"by checkpoints {all_:.3f} s, with {stats['tape_bytes'] / 1e6:.0f} MB on a tape,"
        f" {stats['live_peak']} checkpoints live, and {found.again:.2f} times forward without one\n"
        f"(of {MOST_BESIDE:g} * {found.again:.2f} * {forward:.3f} + {tape:.3f} = {most:.3f} s)."
        f" Ticks without a tape take {median(ratios):.2f} of those of\nplain Python,"
        f" {ratios[0]:.2f} to {ratios[-1]:.2f} from round to round (of {MOST_BESIDE:g})"
    )


def table() -> str:
    points = growth(LENGTHS)
    parts = [
        f"Listing 1, eps = {EPS:g}, steps of {BASE} ticks, medians of 3",
        table_of_growth(points),
        "",
        lines_of_overhead(overhead(listing1, (X, 1003, EPS))),
        "",
        lines_of_whole(whole(CELLS, 1e-6, 8)),
    ]
    return "\n".join(parts)


if __name__ == "__main__":
    record.main("programs", table)
