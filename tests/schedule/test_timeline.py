"""A timeline is a list of events, kept in columns."""

import numpy as np
import pytest

from ckio.actions import Action, Advance, Key, Kind, Record, Reverse, Write
from ckio.actions.columns import Actions
from ckio.errors import BadInput
from ckio.schedule.timeline import Event, Timeline, TimelineRecorder

ACTIONS: list[Action] = [
    Write(Key(Kind.RESTART, 0), 1),
    Advance(0, 3),
    Record(3, 4),
    Reverse(3, 4),
]
TIMES = [(0.0, 1.5, 64), (1.5, 2.25, 0), (2.25, 3.0, 0), (3.0, 7.125, 0)]
EVENTS = [Event(action, *times) for action, times in zip(ACTIONS, TIMES, strict=True)]


def recorded(count: int = 4) -> Timeline:
    recorder = TimelineRecorder()
    for times in TIMES[:count]:
        recorder.add(*times)
    return recorder.timeline(Actions.of(ACTIONS))


def test_it_holds_the_events_that_were_recorded() -> None:
    timeline = recorded()
    assert list(timeline) == EVENTS
    assert [timeline[i] for i in range(4)] == EVENTS
    assert (timeline[-1], list(timeline[1:3])) == (EVENTS[-1], EVENTS[1:3])


def test_a_run_that_stopped_has_the_events_so_far() -> None:
    assert list(recorded(2)) == EVENTS[:2]


def test_an_event_has_plain_numbers() -> None:
    event = recorded()[0]
    assert [type(value) for value in (event.start, event.stop, event.nbytes)] == [float, float, int]


def test_the_makespan_is_the_end_of_what_ends_last() -> None:
    assert recorded().makespan == 7.125
    assert recorded(0).makespan == 0
    late = Timeline(
        Actions.of(ACTIONS[:2]), np.array([0.0, 1]), np.array([9.0, 2]), np.zeros(2, np.int64)
    )
    assert late.makespan == 9


def test_equality_is_that_of_events() -> None:
    assert recorded() == recorded()
    assert recorded() != recorded(3)
    for column in range(3):
        other = TimelineRecorder()
        for number, times in enumerate(TIMES):
            changed = list(times)
            changed[column] += number == 2
            other.add(float(changed[0]), float(changed[1]), int(changed[2]))
        assert recorded() != other.timeline(Actions.of(ACTIONS))


def test_columns_of_different_lengths_are_refused() -> None:
    with pytest.raises(BadInput, match="columns differ in length; they must be equally long"):
        Timeline(Actions.of(ACTIONS), np.zeros(3), np.zeros(4), np.zeros(4, np.int64))


def test_it_prints_its_length_and_makespan() -> None:
    assert repr(recorded()) == "<timeline of 4 events, 7.125 s>"
    assert "transfer" not in str(recorded())
