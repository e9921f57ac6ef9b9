"""What does the gradient of a long loop of PyTorch take, by who keeps what of it?

One loop, in a process for each way to do it: seconds for forward and backward, by how many states
the peak of memory grows, and how many steps are run. `segments` are those of
`torch.utils.checkpoint` (its `use_reentrant=False`), sqrt(n) steps each. Every tensor has pages of
its own, which go when it goes: how the allocator keeps what was freed is not what is compared.
On one core.

    python bench/torch_peers.py [steps] [MiB of a state]
"""

import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

STEPS = 40
MIB = 8
"""Of a state."""

OWN_PAGES = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536", "OMP_NUM_THREADS": "1"}

WAYS = ("plain", "segments", "loop in memory", "loop on disk", "saved on disk")


def table(steps: int, place: Path, cells: int) -> str:
    """Every way in a process of its own."""
    rows = [measured(way, steps, place, cells) for way in WAYS]
    same = {row["gradient"] for row in rows}
    lines = [f"{'':16}{'seconds':>9}{'states':>8}{'steps run':>11}"]
    lines += [
        f"{row['way']:16}{row['seconds']:9.2f}{row['states']:8.1f}{row['steps']:11}" for row in rows
    ]
    verdict = "has the same bits in all of them" if len(same) == 1 else "DIFFERS"
    return "\n".join([*lines, f"\nThe gradient {verdict}."])


def measured(way: str, steps: int, place: Path, cells: int) -> dict[str, Any]:
    command = [sys.executable, __file__, "--one", way, str(steps), str(place), str(cells)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=OWN_PAGES)
    found: dict[str, Any] = json.loads(done.stdout)
    return {"way": way, **found}


def one(way: str, steps: int, place: Path, cells: int) -> dict[str, Any]:
    """Forward and backward, in this process."""
    import torch
    from torch.utils.checkpoint import checkpoint

    from ckio import Level, Platform
    from ckio.adapters.torch import checkpointed_loop, saved_on

    torch.manual_seed(0)
    w = torch.rand(cells, dtype=torch.float64, requires_grad=True)
    x0 = torch.rand(cells, dtype=torch.float64, requires_grad=True)
    count = [0]

    def step(x: Any, _: int) -> Any:
        count[0] += 1
        return x + 0.01 * torch.sin(w * x)

    def loop(x: Any, begin: int = 0, end: int = steps) -> Any:
        for i in range(begin, end):
            x = step(x, i)
        return x

    def segments(x: Any) -> Any:
        each = math.isqrt(steps)
        for begin in range(0, steps, each):
            x = checkpoint(loop, x, begin, min(begin + each, steps), use_reentrant=False)
        return x

    disk = Level(name="disk", backend="directory", options={"path": str(place)})

    def saved(x: Any) -> Any:
        with saved_on(disk):
            return loop(x)

    ways: dict[str, Callable[[Any], Any]] = {
        "plain": loop,
        "segments": segments,
        "loop in memory": lambda x: checkpointed_loop(step, x, steps, params=[w]),
        "loop on disk": lambda x: checkpointed_loop(
            step, x, steps, params=[w], platform=Platform((disk,))
        ),
        "saved on disk": saved,
    }
    (0.01 * loop(x0, 0, 1)).sum().backward()  # what PyTorch makes once is there
    x0.grad = w.grad = None
    count[0], before, start = 0, peak(), time.perf_counter()
    ways[way](x0).square().sum().backward()
    seconds = time.perf_counter() - start
    total = torch.stack([x0.grad, w.grad]).sum().item()
    return {
        "seconds": seconds,
        "states": (peak() - before) / (8 * cells),
        "steps": count[0],
        "gradient": total.hex(),
    }


def peak() -> int:
    """Bytes that this process has had at most."""
    (line,) = (x for x in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in x)
    return int(line.split()[1]) * 1024


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        way, steps, place, cells = sys.argv[2:]
        print(json.dumps(one(way, int(steps), Path(place), int(cells))))
        sys.stdout.flush()
        os._exit(0)  # to take everything down again takes seconds
    steps, size = (list(map(int, sys.argv[1:])) + [STEPS, MIB][len(sys.argv) - 1 :])[:2]
    with tempfile.TemporaryDirectory() as place:
        print(f"{steps} steps, states of {size} MiB, load {os.getloadavg()[0]:.1f}\n")
        print(table(steps, Path(place), size << 17))
