"""How large is the page of a run with a million actions, and how long does it take to write it?

    python bench/report_page.py

The schedules are those of H-Revolve. Their predicted and their measured timeline are the same.
"""

import statistics
from collections.abc import Sequence

import record

from ckio.planners.dp import hrevolve
from ckio.platform import Affine, Level, Platform
from ckio.platform.chain import Chain
from ckio.report import compare
from ckio.report.page import page
from ckio.schedule import Schedule
from ckio.schedule.timeline import Timeline
from ckio.sim.engine import simulate

STEPS = 20_000, 200_000
TIMES = 5
PLATFORM = Platform(
    (Level(name="ram", capacity=30, write=Affine(0.01)), Level(name="disk", write=Affine(0.1)))
)
CHAIN = Chain(steps=1, advance=1.0, record=1.0, reverse=2.0, restart=1, tape=1, adjoint=1)


def text_of(schedule: Schedule, timeline: Timeline, /) -> str:
    """Return the page."""
    return page(
        title="a long run",
        facts=[("steps", str(schedule.chain.length))],
        platform=PLATFORM,
        chain=schedule.chain,
        predicted=timeline,
        measured=timeline,
        report=compare(timeline, timeline, names=[it.name for it in PLATFORM.levels]),
    )


def table(lengths: Sequence[int]) -> str:
    """Measure the page of a chain of each length."""
    rows = []
    for steps in lengths:
        schedule = hrevolve(CHAIN.with_steps(steps), PLATFORM)
        timeline = simulate(schedule, PLATFORM)
        text = text_of(schedule, timeline)
        taken = [record.seconds(lambda s=schedule, t=timeline: text_of(s, t)) for _ in range(TIMES)]
        figures = len(text.encode()) / 1e6, statistics.median(taken), min(taken)
        rows.append([f"{steps:,}", f"{len(schedule.actions):,}", *(f"{it:.3f}" for it in figures)])
    return record.columns(["steps", "actions", "MB", "median s", "least s"], rows)


if __name__ == "__main__":
    record.save("report_page", table(STEPS))
