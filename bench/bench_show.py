"""How long does it take to draw a schedule in each form, and how large are the files?

Seconds of processor time of one call, once the timeline is there; the files in MiB; `held` is the
most memory the process had by then. Overlap off, three levels. A trace has its short actions merged
where they are many, one of all events has not.
"""

import gzip
import resource
import time
from collections.abc import Callable

import pytest
import record

from ckio.planners.dp import hrevolve
from ckio.platform import Affine, Level, Platform
from ckio.platform.chain import Chain
from ckio.report.page import page
from ckio.report.pictures import draw
from ckio.report.pictures.svg import png
from ckio.report.render import render
from ckio.report.trace import trace
from ckio.sim.engine import simulate

CHAIN = Chain(steps=12, advance=0.5, record=0.75, reverse=1.25, restart=1000, tape=700, adjoint=300)
PLATFORM = Platform(
    (
        Level(name="ram", capacity=2000, write=Affine(0.01, 1e-5), read=Affine(0.02, 2e-5)),
        Level(name="nvme", capacity=2000, write=Affine(0.1, 1e-4), read=Affine(0.1, 1e-4)),
        Level(name="archive", write=Affine(0.3, 1e-4), read=Affine(0.2, 2e-4)),
    ),
    working_memory=700,
)
STEPS = (20, 2_000, 167_000)


def rows(steps: int) -> list[list[str]]:
    chain = CHAIN.with_steps(steps)
    schedule = hrevolve(chain, PLATFORM)
    timeline = simulate(schedule, PLATFORM)
    drawn = draw(timeline, chain, PLATFORM)
    whole = {"title": "bench", "facts": [], "rows": [], "platform": PLATFORM, "chain": chain}
    forms: dict[str, Callable[[], str | bytes]] = {
        "text": lambda: render(timeline),
        "SVG": lambda: draw(timeline, chain, PLATFORM),
        "PNG, of the SVG": lambda: png(drawn),
        "HTML": lambda: page(**whole, predicted=timeline, measured=timeline),  # type: ignore[arg-type]
        "trace": lambda: trace(timeline, chain, PLATFORM),
        "all events": lambda: trace(timeline, chain, PLATFORM, most=None),
        "trace.gz": lambda: gzip.compress(trace(timeline, chain, PLATFORM).encode(), 4),
    }
    found = []
    for form, make in forms.items():
        start = time.process_time()
        text = make()
        seconds = time.process_time() - start
        size = len(text if isinstance(text, bytes) else text.encode()) / 2**20
        held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        found.append([form, f"{len(schedule):,}", f"{seconds:.2f}", f"{size:.2f}", f"{held:.0f}"])
    return found


@pytest.mark.parametrize("steps", STEPS[:2])
def test_pictures_are_small(steps: int) -> None:
    pytest.importorskip("cairosvg")
    sizes = {row[0]: float(row[3]) for row in rows(steps)}
    assert all(sizes[form] < 2 for form in ("text", "SVG", "PNG, of the SVG", "HTML"))


def main() -> None:
    table = [row for steps in STEPS for row in rows(steps)]
    record.save("show", record.columns(["form", "actions", "seconds", "MiB", "held MiB"], table))


if __name__ == "__main__":
    main()
