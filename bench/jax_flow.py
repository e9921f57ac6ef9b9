"""What does the first gradient of a flow solver in JAX take, and what each later one?

    python bench/jax_flow.py [--steps 900] [--rounds 3] [--record]

The loop is Kolmogorov flow by jax-cfd, as in examples/jax_cfd, with the default convection of
jax-cfd and in float32. Each row is measured in some fresh processes, which take turns with those of
the other rows: the first gradient with all that is planned and compiled for it, and the median of
three more. The table has medians over the processes, and of the CPU time, too, which other
processes of the machine disturb less. Rows of ckio are inside `jax.jit` if the name does not say
otherwise.
"""

import argparse
import json
import math
import resource
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

STEPS, CELLS, LATER = 900, 64, 3
NESTED, OUTSIDE = "nested jax.checkpoint", "ckio outside jax.jit"
MOST_DIFFERENCE = 1e-3  # in float32, and errors of rounding grow along the loop
EXAMPLE = Path(__file__).parent.parent / "examples" / "jax_cfd"

Loop = Callable[[Any], Any]


class Row(NamedTuple):
    """What one process measured: seconds of the first gradient and of a later one, and bytes."""

    first: float
    first_cpu: float
    later: float
    later_cpu: float
    peak: int


def _equinox(step: Loop, n: int) -> Loop:
    import equinox.internal as eqxi
    import jax.numpy as jnp

    def run(v: Any) -> Any:
        start, options = (jnp.array(0), v), {"kind": "checkpointed", "checkpoints": 30}
        after = lambda it: (it[0] + 1, step(it[1]))  # noqa: E731
        return eqxi.while_loop(lambda it: it[0] < n, after, start, max_steps=n, **options)[1]

    return run


def _ckio(step: Loop, n: int, **options: Any) -> Loop:
    from ckio.adapters.jax import checkpointed_scan

    one = lambda v, params, i: step(v)  # noqa: E731
    return lambda v: checkpointed_scan(one, v, n, **options)


def loop_of(name: str, flow: Any, n: int, into: Path) -> Loop:
    """Return the function of a start that returns the end, by the means of a row."""
    from ckio import Affine, Level, Platform

    match name:
        case "plain scan":
            return lambda v: flow.end(v, n, "none")
        case "nested jax.checkpoint":
            return lambda v: flow.end(v, n, "nested")
        case "equinox, 30 checkpoints":
            return _equinox(flow.step, n)
        case "ckio, 30 states in all":  # half of them stored, and half within the block
            memory = Level(name="memory", capacity=15 * 2 * 4 * CELLS**2)
            return _ckio(flow.step, n, platform=Platform((memory,)), segment=15)
        case "ckio, priced directory":
            price = Affine(latency=1e-4, per_byte=1e-9)
            where = {"path": str(into / "level")}
            disk = Level(name="disk", backend="directory", options=where, read=price, write=price)
            return _ckio(flow.step, n, platform=Platform((disk,)))
        case _:
            return _ckio(flow.step, n)


NAMES = (
    "plain scan",
    NESTED,
    "equinox, 30 checkpoints",
    "ckio",
    "ckio, 30 states in all",
    "ckio, priced directory",
    OUTSIDE,
)


def here(name: str, n: int, into: Path) -> Row:
    """Measure a row in this process, and write its gradient."""
    sys.path.insert(0, str(EXAMPLE))
    import jax
    import jax.numpy as jnp
    from kolmogorov import Flow

    jax.config.update("jax_enable_x64", False)
    flow = Flow(CELLS, convect=None)
    start, loop = flow.start(0), loop_of(name, flow, n, into)
    gradient: Any = jax.grad(lambda v: sum(jnp.sum(u.data**2) for u in loop(v)) / 2)
    gradient = gradient if name == OUTSIDE else jax.jit(gradient)
    taken = []
    for _ in range(1 + LATER):
        begun, cpu = time.perf_counter(), time.process_time()
        found = jax.block_until_ready(gradient(start))
        taken.append((time.perf_counter() - begun, time.process_time() - cpu))
    np.save(into / "gradient.npy", np.ravel(jax.tree.leaves(found)))
    later = map(statistics.median, zip(*taken[1:], strict=True))
    return Row(*taken[0], *later, 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)


def measured(name: str, n: int) -> tuple[Row, Any]:
    """Return a row that a fresh process measured, and its gradient."""
    with tempfile.TemporaryDirectory() as place:
        words = [sys.executable, __file__, "--row", name, "--steps", str(n), "--into", place]
        done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True)
        return Row(*json.loads(done.stdout)), np.load(Path(place) / "gradient.npy")


def table(n: int, rounds: int) -> str:
    """Measure all rows; gradients have to agree."""
    rows: dict[str, list[Row]] = {name: [] for name in NAMES}
    gradients: dict[str, Any] = {}
    for _ in range(rounds):
        for name in NAMES:
            row, gradients[name] = measured(name, n)
            rows[name].append(row)
    right, cells = gradients[NESTED], []
    for name, several in rows.items():
        row = Row(*map(statistics.median, zip(*several, strict=True)))
        difference = np.linalg.norm(gradients[name] - right) / np.linalg.norm(right)
        assert difference < MOST_DIFFERENCE, (name, difference)
        times = (f"{seconds:.2f}" for seconds in row[:4])
        cells.append([name, *times, f"{row.peak / 1e6:.0f}", f"{difference:.0e}"])
    header = ["", "first s", "CPU s", "later s", "CPU s", "peak MB", "difference"]
    return record.columns(header, cells)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--record", action="store_true", help="write bench/results/jax_flow.txt")
    parser.add_argument("--row", choices=NAMES, help=argparse.SUPPRESS)
    parser.add_argument("--into", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.row:
        print(json.dumps(here(given.row, given.steps, given.into)))
        return
    state = f"{CELLS} x {CELLS} cells, {math.ceil(2 * 4 * CELLS**2 / 1024)} KiB a state"
    text = f"{given.steps} steps of {state}\n\n{table(given.steps, given.rounds)}"
    if given.record:
        record.save("jax_flow", text)
    else:
        print(text)


if __name__ == "__main__":
    main()
