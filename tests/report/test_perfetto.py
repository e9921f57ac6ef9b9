"""Perfetto opens a trace, and finds in it what the timeline says."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ckio.actions.columns import VERBS, WRITE
from ckio.planners.dp import hrevolve
from ckio.platform import Affine, Level, Platform
from ckio.platform.chain import Chain
from ckio.report.trace import trace
from ckio.schedule.occupancy import occupancies
from ckio.schedule.policy import Overlap
from ckio.schedule.timeline import Timeline
from ckio.sim.engine import simulate

from .perfettos import asked

QUESTIONS = {
    "tracks": """select thread.name, count(*), sum(slice.dur), max(slice.depth) from slice
        join thread_track on slice.track_id = thread_track.id join thread using(utid)
        group by thread.name""",
    "names": "select category, count(*) from slice group by category",
    "span": "select min(ts), max(ts + dur) from slice",
    "counters": """select counter_track.name, max(value) from counter
        join counter_track on counter.track_id = counter_track.id group by 1""",
    "process": "select name from process where name is not null",
    "wrong": """select name, value from stats
        where value > 0 and severity in ('error', 'data_loss')""",
}

CHAIN = Chain(steps=60, advance=1.0, record=1.5, reverse=2.5, restart=10, tape=7, adjoint=3)
PLATFORM = Platform(
    (
        Level(name="ram", capacity=40, write=Affine(0.01), read=Affine(0.013)),
        Level(
            name="disk",
            backend="directory",
            write=Affine(1.1),
            read=Affine(0.7),
            discard=Affine(0.1),
        ),
    ),
    working_memory=10,
)


def behind(chain: Chain = CHAIN) -> Timeline:
    return simulate(hrevolve(chain, PLATFORM), PLATFORM, overlap=Overlap(2, 1))


def tracks(timeline: Timeline) -> dict[str, tuple[int, float]]:
    """Slices and busy seconds of each thread."""
    actions, seconds = timeline.actions, timeline.stop - timeline.start
    own = np.where(actions.op >= WRITE, actions.level + 1, 0)
    found = {
        name: (int((own == thread).sum()), float(seconds[own == thread].sum()))
        for thread, name in enumerate(("computing", "ram", "disk"))
    }
    moved = timeline.transfers
    return found | {"channel disk": (len(moved), float((moved.stop - moved.start).sum()))}


def check(timeline: Timeline, chain: Chain, at: Path) -> None:
    found = asked(trace(timeline, chain, PLATFORM), QUESTIONS, at)
    assert found["wrong"] == []
    assert found["process"] == [["ckio"]]
    expected = tracks(timeline)
    assert {row[0] for row in found["tracks"]} == expected.keys()
    for name, count, lasts, depth in found["tracks"]:
        assert (count, lasts / 1e9) == (expected[name][0], pytest.approx(expected[name][1]))
        assert depth == 0, "no slice lies within another"
    ops = [*timeline.actions.op.tolist(), *timeline.transfers.actions.op.tolist()]
    assert dict(found["names"]) == Counter(VERBS[op] for op in ops)
    ((begin, end),) = found["span"]
    assert (begin / 1e9, end / 1e9) == (0, pytest.approx(timeline.makespan))
    most = {
        f"bytes on {level.name} bytes": occupancy.nbytes.max()
        for level, occupancy in zip(
            PLATFORM.levels, occupancies(timeline, chain, PLATFORM), strict=True
        )
    }
    counted = dict(found["counters"])
    assert most.items() <= counted.items()
    assert counted["bytes on their way bytes"] <= 40


def test_it_opens_the_trace_of_a_run_with_overlap(tmp_path: Path) -> None:
    check(behind(), CHAIN, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("days", [60, 3650])
def test_it_opens_the_trace_of_months_and_years(tmp_path: Path, days: int) -> None:
    """A float of microseconds says no nanosecond there."""
    chain = replace(CHAIN, steps=400, advance=days * 217.0, record=1e-6, reverse=3.3e-6)
    timeline = behind(chain)
    assert timeline.makespan > days * 86_400
    check(timeline, chain, tmp_path)
