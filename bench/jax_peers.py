"""What does the gradient of a long loop in JAX take, in seconds and memory, by which means?

256 x 256 cells of a reaction and diffusion, in float64, with explicit steps. Each row is a process
of its own: what it holds at most is the system's word (VmHWM), beside that of a process that
compiles and runs the way forward alone. `python bench/jax_peers.py [--steps 10000] [--repeats 3]`.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import record

STEPS, CELLS = 10_000, 256
FORWARD, NESTED, CKIO = "forward alone", "nested jax.checkpoint", "ckio"
MOST_DIFFERENCE = 1e-12


class Row(NamedTuple):
    """What one process measured.

    Attributes
    ----------
    compiling, seconds : float
        Until the first gradient was there, and of one after it: the median.
    peak, stored : int
        Bytes: of the process, and written to the directory by one gradient.
    norm : float
        Of the gradient.
    """

    compiling: float
    seconds: float
    peak: int
    stored: int
    norm: float


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


def _ckio(n: int, directory: str, segment: int | str = "auto") -> Callable[[Any], Any]:
    from ckio import Level, Platform
    from ckio.adapters.jax import checkpointed_scan

    disk = Platform((Level(name="disk", backend="directory", options={"path": directory}),))
    one = lambda u, params, i: _step(u)  # noqa: E731
    return lambda u: checkpointed_scan(one, u, n, platform=disk, segment=segment)


PEERS: dict[str, Callable[[int, str], Callable[[Any], Any]]] = {
    FORWARD: lambda n, _: _scan(n),
    "plain scan": lambda n, _: _scan(n),
    NESTED: lambda n, _: _nested(n),
    "equinox, 20 checkpoints": lambda n, _: _equinox(n, 20),
    "equinox, 100 checkpoints": lambda n, _: _equinox(n, 100),
    "diffrax, 20 checkpoints": lambda n, _: _diffrax(n, 20),
    "diffrax, 100 checkpoints": lambda n, _: _diffrax(n, 100),
    CKIO: _ckio,
}


def here(name: str, n: int, cells: int, repeats: int, directory: str) -> tuple[Row, Any]:
    """Measure one of them in this process."""
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_enable_x64", True)
    u = jnp.asarray(np.random.default_rng(0).normal(size=(cells, cells)) * 0.3)
    run = PEERS[name](n, directory)
    forward = jax.jit(run)
    gradient = forward if name == FORWARD else jax.jit(jax.grad(lambda u: jnp.sum(run(u) ** 2) / 2))
    start = time.perf_counter()
    found = gradient(u).block_until_ready()
    compiling = time.perf_counter() - start
    before = _written()
    seconds = [record.seconds(lambda: gradient(u).block_until_ready()) for _ in range(repeats)]
    stored = (_written() - before) // repeats
    array = np.asarray(found)
    norm = float(np.linalg.norm(array))
    return Row(compiling, statistics.median(seconds), _peak(), stored, norm), array


def measured(name: str, n: int, cells: int, repeats: int, into: Path) -> tuple[Row, Any]:
    """Measure one of them in a process of its own."""
    directory = into / re.sub(r"\W+", "-", name)
    directory.mkdir()
    script = [sys.executable, str(Path(__file__)), "--row", name, "--into", str(directory)]
    options = ["--steps", str(n), "--cells", str(cells), "--repeats", str(repeats)]
    done = subprocess.run(
        [*script, *options],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"JAX_PLATFORMS": "cpu"},
    )
    assert done.returncode == 0, done.stderr
    return Row(*json.loads(done.stdout)), np.load(directory / "gradient.npy")


def _peak() -> int:
    """The most memory that this process held at a time, in bytes."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return 1024 * int(re.findall(r"VmHWM:\s+(\d+)", status)[0])


def _written() -> int:
    """The bytes that this process gave to the system to write."""
    return int(re.findall(r"wchar: (\d+)", Path("/proc/self/io").read_text(encoding="ascii"))[0])


def table(rows: dict[str, Row], arrays: dict[str, Any]) -> str:
    """All rows; gradients have to agree."""
    floor, reference = rows[FORWARD].peak, arrays[NESTED]
    cells = []
    for name, row in rows.items():
        line = [name, f"{row.compiling:.1f}", f"{row.seconds:.2f}", f"{row.peak / 1e6:.0f}"]
        if name != FORWARD:
            difference = np.linalg.norm(arrays[name] - reference) / np.linalg.norm(reference)
            assert difference < MOST_DIFFERENCE, (name, difference)
            above, stored = f"{(row.peak - floor) / 1e6:.0f}", f"{row.stored / 1e6:.0f}"
            line += [above, stored, f"{row.norm:.12g}", f"{difference:.1e}"]
        cells.append(line + [""] * (8 - len(line)))
    header = ["", "first s", "s", "peak MB", "above forward", "to disk MB", "|g|", "difference"]
    return record.columns(header, cells)


def verdict(rows: dict[str, Row]) -> str:
    """ckio beside the one with the least memory, and the fastest."""
    own = rows[CKIO]
    others = {name: row for name, row in rows.items() if name not in (CKIO, FORWARD)}
    least = min(others, key=lambda name: others[name].peak)
    quick = min(others, key=lambda name: others[name].seconds)
    return "\n".join(
        f"ckio has {own.peak / others[name].peak:.2f} times the memory and"
        f" {own.seconds / others[name].seconds:.2f} times the seconds of {name}"
        for name in dict.fromkeys((least, quick))
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--cells", type=int, default=CELLS)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--row", choices=PEERS)
    parser.add_argument("--into", default=None)
    given = parser.parse_args()
    if given.row:
        path = Path(given.into)
        level = str(path / "level")
        row, array = here(given.row, given.steps, given.cells, given.repeats, level)
        np.save(path / "gradient.npy", array)
        print(json.dumps(row))
        return
    with tempfile.TemporaryDirectory(dir=given.into) as place:
        into = Path(place)
        found = {
            name: measured(name, given.steps, given.cells, given.repeats, into) for name in PEERS
        }
    rows = {name: row for name, (row, _) in found.items()}
    state = f"{given.cells} x {given.cells} cells in float64, {8 * given.cells**2 / 1e6:.2f} MB"
    print(f"{given.steps} steps of {state}\n")
    print(table(rows, {name: array for name, (_, array) in found.items()}))
    print("\n" + verdict(rows))


if __name__ == "__main__":
    main()
