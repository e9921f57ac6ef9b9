"""The Chrome trace says what the timeline says, in the form that Perfetto reads."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
from drawing import Case, legal_schedules
from hypothesis import given
from hypothesis import strategies as st

from ckio.actions import Advance, Discard, Key, Kind, Read, Record, Reverse, Write
from ckio.actions.columns import Actions
from ckio.actions.variables import Flow, Step, Variables
from ckio.platform import Affine, Level, Platform
from ckio.platform.chain import Chain
from ckio.report.trace import trace
from ckio.schedule import Schedule
from ckio.schedule.policy import Overlap
from ckio.schedule.timeline import Timeline
from ckio.sim.engine import simulate

CHAIN = Chain(steps=3, advance=1.0, record=1.5, reverse=2.5, restart=10, tape=7, adjoint=3)
PLATFORM = Platform((Level(name="ram"), Level(name="disk")))
X0 = Key(Kind.RESTART, 0)

TIMELINE = Timeline(
    Actions.of([Write(X0, 1), Advance(0, 2), Record(2, 3), Reverse(2, 3), Discard(X0, 1)]),
    np.array([0.0, 0.25, 2.25, 3.75, 6.25]),
    np.array([0.25, 2.25, 3.75, 6.25, 6.5]),
    np.array([10, 0, 0, 0, 0]),
)


def events(
    timeline: Timeline, chain: Chain, platform: Platform, phase: str
) -> list[dict[str, Any]]:
    text = json.loads(trace(timeline, chain, platform))
    return [event for event in text["traceEvents"] if event["ph"] == phase]


def test_a_slice_has_its_thread_its_microseconds_and_its_details() -> None:
    slices = events(TIMELINE, CHAIN, PLATFORM, "X")
    assert [event["name"] for event in slices] == [
        *("write x_0", "advance 0–1", "record 2", "reverse 2", "discard x_0")
    ]
    assert slices[0] == {
        "ph": "X",
        "pid": 0,
        "tid": 2,
        "cat": "write",
        "name": "write x_0",
        "ts": 0.0,
        "dur": 250_000.0,
        "args": {"checkpoint": "x_0", "bytes": 10},
    }
    assert slices[1]["tid"] == 0
    assert slices[1]["args"] == {"begin": 0, "end": 2}


def threads(timeline: Timeline, platform: Platform, what: str) -> dict[int, Any]:
    about = events(timeline, CHAIN, platform, "M")
    key = "name" if what == "thread_name" else "sort_index"
    return {e["tid"]: e["args"][key] for e in about if e["name"] == what}


def counter(timeline: Timeline, platform: Platform, name: str) -> list[tuple[float, int]]:
    counters = events(timeline, CHAIN, platform, "C")
    return [(e["ts"], *e["args"].values()) for e in counters if e["name"] == name]


def test_threads_are_the_resources_and_counters_say_how_full_they_are() -> None:
    assert threads(TIMELINE, PLATFORM, "thread_name") == {0: "computing", 1: "ram", 2: "disk"}
    assert threads(TIMELINE, PLATFORM, "thread_sort_index") == {0: 0, 1: 1, 2: 2}
    assert counter(TIMELINE, PLATFORM, "bytes on disk") == [(0.0, 10), (6_500_000.0, 0)]
    assert counter(TIMELINE, PLATFORM, "bytes on ram") == [(0.0, 0)]
    assert counter(TIMELINE, PLATFORM, "bytes on their way") == []


def as_read(microseconds: float) -> int:
    """Nanoseconds, as readers make them: of a fraction in floats, of a whole number exactly."""
    return round(microseconds * 1000)


SCALES = [1e-12, 1.0, 3600.0, 1e5, 1e7, 1e9]


@given(legal_schedules(), st.sampled_from(SCALES), st.integers(0, 2))
def test_slices_that_touch_do_not_overlap_for_a_reader(
    case: Case, scale: float, behind: int
) -> None:
    """However long it takes, and where what takes years is beside what takes nothing."""
    schedule, platform = case
    timeline = simulate(schedule, platform, overlap=Overlap(behind, behind))
    size = np.where(np.arange(len(timeline)) % 3, 1e-7 / 3, scale / 3)
    last = np.cumsum(size * (timeline.stop - timeline.start) / max(1.0, timeline.makespan))
    start = np.concatenate(([0.0], last))[: len(last)]
    whole = Timeline(timeline.actions, start, last, timeline.nbytes)
    assert len(events(timeline, schedule.chain, platform, "X")) == len(schedule) + len(
        timeline.transfers
    )
    ends: dict[int, int] = {}
    for event in events(whole, schedule.chain, platform, "X"):
        assert as_read(event["ts"]) >= ends.get(event["tid"], 0)
        ends[event["tid"]] = as_read(event["ts"]) + as_read(event["dur"])
        assert as_read(event["dur"]) >= 0
        assert ends[event["tid"]] < 2**63
    for event in events(whole, schedule.chain, platform, "C"):
        assert 0 <= as_read(event["ts"]) <= max(ends.values(), default=0) + 1000


def test_channels_are_threads_of_their_own_with_their_transfers() -> None:
    bus = Level(name="bus", backend="directory", channel="disk", write=Affine(4.0))
    disk = Level(name="disk", backend="directory", write=Affine(1.0))
    platform = Platform((Level(name="ram"), disk, bus))
    actions = [Write(X0, 1), Write(X0, 2), Advance(0, 2)]
    timeline = simulate(Schedule(CHAIN, actions), platform, overlap=Overlap(2))
    names = threads(timeline, platform, "thread_name")
    assert names == {0: "computing", 1: "ram", 2: "disk", 3: "bus", 5: "channel disk"}
    moved = [e for e in events(timeline, CHAIN, platform, "X") if e["tid"] == 5]
    assert [(e["ts"], e["dur"], e["args"]["bytes"]) for e in moved] == [
        (0.0, 1e6, 10),
        (1e6, 4e6, 10),
    ]


def test_counters_say_at_which_step_the_forward_and_the_adjoint_stand() -> None:
    assert counter(TIMELINE, PLATFORM, "forward") == [(0.0, 0), (2.25e6, 2), (3.75e6, 3)]
    assert counter(TIMELINE, PLATFORM, "adjoint") == [(0.0, 3), (6.25e6, 2)]
    again = [
        *(Write(X0, 0), Advance(0, 2), Record(2, 3), Reverse(2, 3)),
        *(Read(X0, 0), Record(0, 2), Reverse(0, 2)),
    ]
    start = np.arange(7.0)
    timeline = Timeline(Actions.of(again), start, start + 1, np.zeros(7, np.int64))
    assert counter(timeline, PLATFORM, "forward") == [
        *((0.0, 0), (2e6, 2), (3e6, 3)),
        *((5e6, 0), (6e6, 2)),
    ]
    assert counter(timeline, PLATFORM, "adjoint") == [(0.0, 3), (4e6, 2), (7e6, 0)]
    empty = Timeline(Actions.of([]), np.zeros(0), np.zeros(0), np.zeros(0, np.int64))
    assert counter(empty, PLATFORM, "adjoint") == [(0.0, 3)]


def test_names_of_variables_are_quoted() -> None:
    name = 'a"b'
    key, step = Key(Kind.RESTART, 0, name), Step(Flow({name}, {name}, {name}))
    chain = replace(CHAIN.with_steps(1), variables=Variables({name: 2}, step))
    timeline = Timeline(Actions.of([Write(key, 0)]), np.zeros(1), np.ones(1), np.ones(1, np.int64))
    assert [e["name"] for e in events(timeline, chain, PLATFORM, "X")] == [f"write {key}"]
