"""What does the gradient of a long loop of PyTorch take, by who keeps what of it?

One loop, in a process for each way to do it: seconds for forward and backward, by how many states
the peak of memory grows, and how many steps are run. `segments` are those of
`torch.utils.checkpoint` (its `use_reentrant=False`), sqrt(n) steps each. Every tensor has pages of
its own, which go when it goes: how the allocator keeps what was freed is not what is compared.
On one core.
"""

import math
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench import record

OWN_PAGES = {"MALLOC_MMAP_THRESHOLD_": "65536", "OMP_NUM_THREADS": "1"}

WAYS = ("plain", "segments", "loop in memory", "loop on disk", "saved on disk")


def table(steps: int, place: Path, cells: int) -> str:
    """Every way in a process of its own."""
    found = {way: record.alone(one, way, steps, str(place), cells, env=OWN_PAGES) for way in WAYS}
    rows = [
        [way, f"{it['seconds']:.2f}", f"{it['states']:.1f}", str(it["steps"])]
        for way, it in found.items()
    ]
    same = len({it["gradient"] for it in found.values()}) == 1
    verdict = "has the same bits in all of them" if same else "DIFFERS"
    return (
        f"{record.columns(['', 'seconds', 'states', 'steps run'], rows)}\n\nThe gradient {verdict}."
    )


def one(way: str, steps: int, place: str, cells: int) -> dict[str, Any]:
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

    disk = Level(name="disk", backend="directory", options={"path": place})

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
    count[0], before, start = 0, record.peak_bytes(), time.perf_counter()
    ways[way](x0).square().sum().backward()
    seconds = time.perf_counter() - start
    total = torch.stack([x0.grad, w.grad]).sum().item()
    return {
        "seconds": seconds,
        "states": (record.peak_bytes() - before) / (8 * cells),
        "steps": count[0],
        "gradient": total.hex(),
    }


def text(*, steps: int, mib: int) -> str:
    with tempfile.TemporaryDirectory() as place:
        return f"{steps} steps, states of {mib} MiB\n\n{table(steps, Path(place), mib << 17)}"


if __name__ == "__main__":
    record.main("torch_peers", text, steps=40, mib=8)
