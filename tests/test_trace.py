"""The Chrome trace says what the timeline says, in the form that Perfetto reads."""

import json
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ckio.actions import Advance, Discard, Key, Kind, Record, Reverse, Write
from ckio.chain import Chain
from ckio.columns import Actions
from ckio.overlap import Overlap
from ckio.platforms import Affine, Level, Platform
from ckio.schedule import Schedule, seconds_of
from ckio.sim.engine import simulate
from ckio.testing.strategies import Case, legal_schedules
from ckio.timeline import Timeline
from ckio.trace import trace

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
        *("write", "advance", "record", "reverse", "discard")
    ]
    assert slices[0] == {
        "ph": "X",
        "pid": 0,
        "tid": 2,
        "name": "write",
        "ts": 0.0,
        "dur": 250_000.0,
        "args": {"checkpoint": "x_0", "bytes": 10},
    }
    assert slices[1]["tid"] == 0
    assert slices[1]["args"] == {"begin": 0, "end": 2}


def test_threads_are_the_resources_in_the_order_of_the_platform() -> None:
    about = events(TIMELINE, CHAIN, PLATFORM, "M")
    names = {e["tid"]: e["args"]["name"] for e in about if e["name"] == "thread_name"}
    assert names == {0: "computing", 1: "ram", 2: "disk"}
    order = {e["tid"]: e["args"]["sort_index"] for e in about if e["name"] == "thread_sort_index"}
    assert order == {0: 0, 1: 1, 2: 2}


def test_counters_say_how_full_a_level_is() -> None:
    counters = events(TIMELINE, CHAIN, PLATFORM, "C")
    disk = [(e["ts"], e["args"]["bytes"]) for e in counters if e["name"] == "bytes on disk"]
    assert disk == [(0.0, 10), (6_500_000.0, 0)]
    ram = [(e["ts"], e["args"]["bytes"]) for e in counters if e["name"] == "bytes on ram"]
    assert ram == [(0.0, 0)]


@given(legal_schedules())
def test_slices_of_one_thread_never_overlap(case: Case) -> None:
    schedule, platform = case
    stop = np.cumsum(seconds_of(schedule, platform) / 3)
    start = np.concatenate(([0.0], stop))[: len(stop)]
    nbytes = schedule.chain.nbytes_of(schedule.actions)
    timeline = Timeline(schedule.actions, start, stop, nbytes)
    slices = events(timeline, schedule.chain, platform, "X")
    assert len(slices) == len(schedule)
    ends = {event["tid"]: 0 for event in slices}
    for event in slices:
        begin = round(event["ts"] * 1000)
        assert begin >= ends[event["tid"]]
        ends[event["tid"]] = begin + round(event["dur"] * 1000)


def test_channels_are_threads_of_their_own_with_their_transfers() -> None:
    bus = Level(name="bus", backend="directory", channel="disk", write=Affine(4.0))
    disk = Level(name="disk", backend="directory", write=Affine(1.0))
    platform = Platform((Level(name="ram"), disk, bus))
    actions = [Write(X0, 1), Write(X0, 2), Advance(0, 2)]
    timeline = simulate(Schedule(CHAIN, actions), platform, overlap=Overlap(2))
    about = events(timeline, CHAIN, platform, "M")
    names = {e["tid"]: e["args"]["name"] for e in about if e["name"] == "thread_name"}
    assert names == {0: "computing", 1: "ram", 2: "disk", 3: "bus", 5: "channel disk"}
    moved = [e for e in events(timeline, CHAIN, platform, "X") if e["tid"] == 5]
    assert [(e["ts"], e["dur"], e["args"]["bytes"]) for e in moved] == [
        (0.0, 1e6, 10),
        (1e6, 4e6, 10),
    ]


@given(legal_schedules(), st.integers(0, 3), st.integers(0, 3))
def test_slices_of_one_thread_never_overlap_where_transfers_do(
    case: Case, behind: int, ahead: int
) -> None:
    schedule, platform = case
    timeline = simulate(schedule, platform, overlap=Overlap(behind, ahead))
    slices = events(timeline, schedule.chain, platform, "X")
    assert len(slices) == len(schedule) + len(timeline.transfers)
    ends: dict[int, int] = {}
    for event in slices:
        begin = round(event["ts"] * 1000)
        assert begin >= ends.get(event["tid"], 0)
        ends[event["tid"]] = begin + round(event["dur"] * 1000)


def test_with_overlap_a_counter_says_what_is_on_its_way() -> None:
    disk = Level(name="disk", backend="directory", write=Affine(4.0))
    platform = Platform((Level(name="ram", capacity=100, write=Affine(0.5)), disk))
    timeline = simulate(
        Schedule(CHAIN, [Advance(0, 2), Write(Key(Kind.RESTART, 2), 1)]),
        platform,
        overlap=Overlap(1),
    )
    counters = [
        (e["ts"], e["args"]["bytes"])
        for e in events(timeline, CHAIN, platform, "C")
        if e["name"] == "bytes on their way"
    ]
    assert counters == [(0.0, 0), (2e6, 10), (6.5e6, 0)]
    plain = events(TIMELINE, CHAIN, PLATFORM, "C")
    assert "bytes on their way" not in {event["name"] for event in plain}
