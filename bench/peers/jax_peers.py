"""What does the gradient of a long loop in JAX take, in seconds and memory, by which means?

256 x 256 cells of a reaction and diffusion, in float64, with explicit steps. Each row is a process
of its own, and they take turns: what a process holds at most is the system's word (VmHWM), beside
that of one that compiles and runs the way forward alone. ckio stores on a directory, inside
`jax.jit` and outside.
"""

import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bench import ROOT, record

STEPS, CELLS = 10_000, 256
FORWARD, NESTED = "forward alone", "nested jax.checkpoint"
CKIO, COMPILED = "ckio", "ckio inside jax.jit"
MOST_DIFFERENCE = 1e-12


class Row(NamedTuple):
    """What one process measured.

    Attributes
    ----------
    first, seconds, cpu : float
        Until the first gradient was there; of one after it, and of all its threads: medians.
    peak, stored : int
        Bytes: of the process, and written to the directory by one gradient.
    """

    first: float
    seconds: float
    cpu: float
    peak: int
    stored: int


def _step(u: Any) -> Any:
    import jax.numpy as jnp

    near = jnp.roll(u, 1, 0) + jnp.roll(u, -1, 0) + jnp.roll(u, 1, 1) + jnp.roll(u, -1, 1)
    return u + 0.1 * (near - 4 * u) + 0.01 * (u - u**3)


def _scan(n: int) -> Callable[[Any], Any]:
    import jax

    return lambda u: jax.lax.scan(lambda u, _: (_step(u), None), u, None, length=n)[0]


def _nested(n: int) -> Callable[[Any], Any]:
    import jax

    inner = next(length for length in range(int(n**0.5), 0, -1) if n % length == 0)
    block = jax.checkpoint(_scan(inner))
    return lambda u: jax.lax.scan(lambda u, _: (block(u), None), u, None, length=n // inner)[0]


def _equinox(n: int, checkpoints: int) -> Callable[[Any], Any]:
    import equinox.internal as eqxi
    import jax.numpy as jnp

    def run(u: Any) -> Any:
        return eqxi.while_loop(
            lambda it: it[0] < n,
            lambda it: (it[0] + 1, _step(it[1])),
            (jnp.array(0), u),
            max_steps=n,
            kind="checkpointed",
            checkpoints=checkpoints,
        )[1]

    return run


def _diffrax(n: int, checkpoints: int) -> Callable[[Any], Any]:
    import diffrax

    def run(u: Any) -> Any:
        return diffrax.diffeqsolve(
            diffrax.ODETerm(lambda t, u, args: _step(u) - u),
            diffrax.Euler(),
            0.0,
            float(n),
            1.0,
            u,
            max_steps=n + 5,
            adjoint=diffrax.RecursiveCheckpointAdjoint(checkpoints=checkpoints),
        ).ys[-1]

    return run


def _ckio(n: int, directory: str) -> Callable[[Any], Any]:
    from ckio import Level, Platform
    from ckio.adapters.jax import checkpointed_scan

    disk = Platform((Level(name="disk", backend="directory", options={"path": directory}),))
    one = lambda u, params, i: _step(u)  # noqa: E731
    return lambda u: checkpointed_scan(one, u, n, platform=disk)


PEERS: dict[str, Callable[[int, str], Callable[[Any], Any]]] = {
    FORWARD: lambda n, _: _scan(n),
    "plain scan": lambda n, _: _scan(n),
    NESTED: lambda n, _: _nested(n),
    "equinox, 20 checkpoints": lambda n, _: _equinox(n, 20),
    "equinox, 100 checkpoints": lambda n, _: _equinox(n, 100),
    "diffrax, 20 checkpoints": lambda n, _: _diffrax(n, 20),
    "diffrax, 100 checkpoints": lambda n, _: _diffrax(n, 100),
    COMPILED: _ckio,
    CKIO: _ckio,
}


def here(name: str, n: int, cells: int, into: Path) -> None:
    """One of them, in this process: a gradient for each line that comes in, and a line out."""
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_enable_x64", True)
    u = jnp.asarray(np.random.default_rng(0).normal(size=(cells, cells)) * 0.3)
    run = PEERS[name](n, str(into / "level"))
    gradient: Any = run if name == FORWARD else jax.grad(lambda u: jnp.sum(run(u) ** 2) / 2)
    gradient = gradient if name == CKIO else jax.jit(gradient)
    for turn, _ in enumerate(sys.stdin):
        before, cpu = _written(), time.process_time()
        start = time.perf_counter()
        found = gradient(u).block_until_ready()
        seconds = time.perf_counter() - start
        cpu, stored = time.process_time() - cpu, _written() - before
        if turn == 0:
            np.save(into / "gradient.npy", np.asarray(found))
        print(json.dumps([seconds, cpu, record.peak_bytes(), stored]), flush=True)


@contextmanager
def process(name: str, n: int, cells: int, into: Path) -> Iterator[Callable[[], list[float]]]:
    """A process for one of them: each call is a gradient's seconds, CPU seconds, peak and bytes."""
    words = [sys.executable, "-m", "bench.peers.jax_peers", name, str(n), str(cells), str(into)]
    with (
        (into / "errors").open("w+") as errors,
        subprocess.Popen(
            words,
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            bufsize=1,
            env=os.environ | {"JAX_PLATFORMS": "cpu"},
        ) as child,
    ):

        def turn() -> list[float]:
            assert child.stdin is not None
            assert child.stdout is not None
            child.stdin.write("\n")
            line = child.stdout.readline()
            assert line, f"{name}: {(into / 'errors').read_text()}"
            found: list[float] = json.loads(line)
            return found

        yield turn


Found = tuple[dict[str, Row], dict[str, Any]]
"""Of each name, what was measured, and the gradient."""


def measured(names: Sequence[str], n: int, cells: int, repeats: int, into: Path) -> Found:
    """Measure these, each in a process of its own; after their first gradients, they take turns."""
    with ExitStack() as stack:
        turns, first = {}, {}
        for name in names:
            place = into / re.sub(r"\W+", "-", name)
            place.mkdir()
            turns[name] = stack.enter_context(process(name, n, cells, place))
            first[name] = turns[name]()
        taken: dict[str, list[list[float]]] = {name: [] for name in names}
        for _ in range(repeats):
            for name, turn in turns.items():
                taken[name].append(turn())
    rows = {}
    for name, found in taken.items():
        seconds, cpu, peak, stored = (statistics.median(it) for it in zip(*found, strict=True))
        rows[name] = Row(first[name][0], seconds, cpu, int(peak), int(stored))
    return rows, {
        name: np.load(into / re.sub(r"\W+", "-", name) / "gradient.npy") for name in names
    }


def _written() -> int:
    """The bytes that this process gave to the system to write."""
    return int(re.findall(r"wchar: (\d+)", Path("/proc/self/io").read_text(encoding="ascii"))[0])


def table(rows: dict[str, Row], arrays: dict[str, Any]) -> str:
    """All rows; gradients have to agree."""
    floor, reference = rows[FORWARD].peak, arrays[NESTED]
    cells = []
    for name, row in rows.items():
        times = (f"{seconds:.2f}" for seconds in (row.first, row.seconds, row.cpu))
        line = [name, *times, f"{row.peak / 1e6:.0f}"]
        if name != FORWARD:
            difference = np.linalg.norm(arrays[name] - reference) / np.linalg.norm(reference)
            assert difference < MOST_DIFFERENCE, (name, difference)
            above, stored = f"{(row.peak - floor) / 1e6:.0f}", f"{row.stored / 1e6:.0f}"
            line += [above, stored, f"{difference:.1e}"]
        cells.append(line + [""] * (8 - len(line)))
    header = ["", "first s", "s", "CPU s", "peak MB", "above forward", "to disk MB", "difference"]
    return record.columns(header, cells)


def text(*, steps: int, cells: int, repeats: int) -> str:
    with tempfile.TemporaryDirectory() as place:
        found = measured(list(PEERS), steps, cells, repeats, Path(place))
    state = f"{cells} x {cells} cells in float64, {8 * cells**2 / 1e6:.2f} MB"
    return f"{steps} steps of {state}\n\n{table(*found)}"


if __name__ == "__main__":
    match sys.argv[1:]:
        case [name, steps, cells, into] if name in PEERS:
            here(name, int(steps), int(cells), Path(into))
        case _:
            record.main("jax_peers", text, steps=STEPS, cells=CELLS, repeats=3)
