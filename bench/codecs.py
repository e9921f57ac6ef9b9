"""What does each codec make of a real flow, how fast; and what does loss do to a gradient?"""

import statistics
import time
from collections.abc import Callable, Iterable, Iterator

import numpy as np

from bench import record
from ckio import Chain, Compressed, Field, Level, Platform, Ram, run
from ckio.actions import Key, Kind, Layout
from ckio.backends.base import Backend
from ckio.compression import Blosc2, Codec, Zfp, Zstd
from ckio.model import as_bytes, sizes_of
from ckio.models.vorticity import Vorticity
from ckio.planners import revolve

KEY = Key(Kind.RESTART, 0)
ROUNDS = 5
LOSSLESS: dict[str, Callable[[], Codec]] = {
    "zstd -5, no shuffle": lambda: Zstd(-5, shuffle=False),
    "zstd 1, no shuffle": lambda: Zstd(shuffle=False),
    "zstd 1": Zstd,
    "zstd 3": lambda: Zstd(3),
    "blosc2 lz4 1": Blosc2,
    "blosc2 zstd 1": lambda: Blosc2("zstd"),
    "zfp": Zfp,
}
TOLERANCES = (1e-2, 1e-4, 1e-6, 1e-8, 1e-10)


def flow(grid: int) -> Vorticity:
    """The vorticity model in units of its basin and its eddies, in which all fields are about 1."""
    return Vorticity(
        grid=grid, length=1.0, depth=1.0, speed=1.0, beta=10.0, drag=0.05, viscosity=1e-3, wind=1e3
    )


def state_of(grid: int, steps: int) -> list[np.ndarray]:
    """The restart data after these steps."""
    model = flow(grid)
    model.advance(0, steps)
    key = Key(Kind.RESTART, steps)
    return [
        np.frombuffer(view, field.dtype).reshape(field.shape).copy()
        for field, view in zip(model.layout(key), model.dump(key), strict=True)
    ]


def noise_of(state: Iterable[np.ndarray]) -> list[np.ndarray]:
    """Normal noise of the same shapes."""
    random = np.random.default_rng(0)
    return [random.standard_normal(field.shape) for field in state]


def turn(level: Backend, layout: Layout, arrays: list[np.ndarray]) -> Iterator[float]:
    """Bytes stored; then seconds and CPU seconds of a write, and of a read."""
    data = [as_bytes(array) for array in arrays]
    into = [as_bytes(np.empty_like(array)) for array in arrays]
    for access in (lambda: level.write(KEY, layout, data), lambda: level.read(KEY, into)):
        clock, cpu = time.perf_counter(), time.process_time()
        stored = access()
        yield from (stored, time.perf_counter() - clock, time.process_time() - cpu)
    level.discard(KEY)


def speeds(state: list[np.ndarray], copies: int, rounds: int) -> list[list[str]]:
    """A row for each codec: ratio; GB/s of a core; seconds of one thread over those of two."""
    arrays = [array.copy() for array in state * copies]
    layout = tuple(Field(f"f{n}", a.dtype.str, a.shape) for n, a in enumerate(arrays))
    nbytes = sum(array.nbytes for array in arrays)
    codecs = {**LOSSLESS, "zfp, tolerance 1e-6": lambda: Zfp(tolerance=1e-6)}
    levels: dict[str, Backend] = {"a copy in memory": Ram()}
    for name, make in codecs.items():
        for threads in (1, 2):
            levels[f"{name}/{threads}"] = Compressed(Ram(), make(), threads=threads)
    took: dict[str, list[list[float]]] = {name: [] for name in levels}
    for level in levels.values():
        level.reserve({nbytes: 1})
    for round_ in range(rounds + 1):  # the first warms up
        for name, level in levels.items():
            measured = list(turn(level, layout, arrays))
            if round_:
                took[name].append(measured)
    middle = {name: np.median(measured, axis=0).tolist() for name, measured in took.items()}
    rows = []
    for name in ("a copy in memory", *codecs):
        stored, write, write_cpu, _, read, read_cpu = middle.get(f"{name}/1") or middle[name]
        row = [f"  {name}", f"{stored / nbytes:.3f}"]
        row += [f"{nbytes / seconds / 1e9:.2f}" for seconds in (write_cpu, read_cpu, write, read)]
        if name in codecs:
            _, write_2, _, _, read_2, _ = middle[f"{name}/2"]
            row += [f"{nbytes / write_2 / 1e9:.2f}", f"{nbytes / read_2 / 1e9:.2f}"]
            row += [f"{write / write_2:.2f}", f"{read / read_2:.2f}"]
        rows.append([*row, *[""] * (10 - len(row))])
    for level in levels.values():
        level.close()
    return rows


def gradient_by(codec: Codec | None, grid: int, steps: int) -> tuple[np.ndarray, float]:
    """The gradient with three slots of restart data, and stored bytes for each byte."""
    model = flow(grid)
    chain = Chain(steps=steps, advance=1.0, record=1.0, reverse=1.0, **sizes_of(model))
    memory = Platform((Level(name="memory", capacity=3 * chain.largest("restart")),))
    stored: list[int] = []
    run(
        revolve(chain, memory),
        memory,
        model,
        [Compressed(Ram(), codec) if codec else Ram()],
        watch=lambda event: stored.append(event.nbytes) if event.nbytes else None,
    )
    gradient = np.concatenate([array.ravel() for array in model.gradient.values()])
    return gradient, statistics.mean(stored) / chain.largest("restart")


def errors(grid: int, steps: int) -> list[list[str]]:
    """A row for each tolerance: stored bytes for each byte, and the error of the gradient."""
    exact, _ = gradient_by(None, grid, steps)
    rows = []
    for codec in (Zstd(), Blosc2(), Zfp(), *(Zfp(tolerance=each) for each in TOLERANCES)):
        gradient, ratio = gradient_by(codec, grid, steps)
        error = np.linalg.norm(gradient - exact) / np.linalg.norm(exact)
        rows.append([codec.name, f"{ratio:.3f}", f"{error:.1e}" if error else "0"])
    return rows


def table(*, grid: int = 512, steps: int = 300, copies: int = 8, rounds: int = ROUNDS) -> str:
    state = state_of(grid, steps)
    nbytes = copies * sum(field.nbytes for field in state)
    head = ["", "stored/raw", "core: write", "read", "1 thread: write", "read"]
    head += ["2 threads: write", "read", "speed-up: write", "read"]
    rows = [[f"vorticity {grid}^2 after {steps} steps", *[""] * 9]]
    rows += speeds(state, copies, rounds)
    rows += [["noise", *[""] * 9], *speeds(noise_of(state), copies, rounds)]
    return (
        f"{nbytes / 2**20:.0f} MiB of restart data in float64, through Compressed(Ram()); GB/s of"
        f" raw bytes, medians of {rounds} interleaved rounds\n"
        "core: over the CPU seconds of one thread; threads: over wall seconds\n\n"
        + record.columns(head, rows)
        + f"\n\nthe gradient of {steps // 4} steps on {grid // 4}^2, with three slots of restart"
        " data (relative error in the 2-norm)\n\n"
        + record.columns(["codec", "stored/raw", "error"], errors(grid // 4, steps // 4))
    )


if __name__ == "__main__":
    record.main("codecs", table)
