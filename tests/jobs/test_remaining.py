"""What a run still takes: at first as predicted, then as right as the prediction was so far."""

import numpy as np
import pytest
from drawing import legal_schedules
from hypothesis import given
from hypothesis import strategies as st

from ckio.actions import Advance
from ckio.jobs.remaining import Remaining
from ckio.planners.binomial import revolve
from ckio.platform import Affine, Level, Platform
from ckio.platform.chain import Chain
from ckio.schedule import Schedule
from ckio.schedule.timeline import Event, Timeline
from ckio.sim.engine import simulate

CHAIN = Chain(steps=60, advance=1.0, record=1.5, reverse=2.5, restart=100, tape=50, adjoint=70)
PLATFORM = Platform(
    (Level(name="ram", capacity=500, write=Affine(0.5), read=Affine(0.25)),), working_memory=50
)
PREDICTED = simulate(revolve(CHAIN, PLATFORM), PLATFORM)


def estimates(predicted: Timeline, measured: Timeline) -> list[float]:
    """What was expected before the first event and after each."""
    remaining = Remaining(predicted)
    found = [remaining.seconds()]
    for event in measured:
        remaining(event)
        found.append(remaining.seconds())
    return found


def really(measured: Timeline) -> np.ndarray:
    """What then remained, likewise."""
    return measured.makespan - np.array([0.0, *measured.stop])


@given(legal_schedules())
def test_what_happens_as_predicted_is_predicted(case: tuple[Schedule, Platform]) -> None:
    timeline = simulate(*case)
    bound = 1e-9 * (1 + timeline.makespan)
    assert np.allclose(estimates(timeline, timeline), really(timeline), rtol=0, atol=bound)


@pytest.mark.parametrize("factor", [1e-6, 0.5, 3.0, 1e4])
def test_a_machine_that_is_faster_or_slower_is_found_out(factor: float) -> None:
    """Costs in other units, too: after a fifth of the run, the estimate is nearly right."""
    measured = Timeline(
        PREDICTED.actions, PREDICTED.start * factor, PREDICTED.stop * factor, PREDICTED.nbytes
    )
    found, truth = estimates(PREDICTED, measured), really(measured)
    for number, event in enumerate(PREDICTED, 1):
        if 0.2 * PREDICTED.makespan < event.stop < 0.99 * PREDICTED.makespan:
            wrong = abs(np.log(found[number] / truth[number]))
            assert wrong < 0.25 * abs(np.log(factor))
    assert found[-1] == 0.0


def test_the_first_events_say_little() -> None:
    """A first write of a hundred times its seconds is not yet a run of a hundred times as long."""
    remaining, first = Remaining(PREDICTED), PREDICTED[0]
    remaining(Event(first.action, 0.0, 100 * first.stop))
    assert remaining.seconds() < 1.5 * PREDICTED.makespan


def test_a_long_action_counts_while_it_goes_on() -> None:
    schedule = Schedule(CHAIN, [Advance(0, 40), Advance(40, 60)])
    remaining = Remaining(simulate(schedule, PLATFORM))
    assert [remaining.seconds(now) for now in (0.0, 10.0, 39.0, 100.0)] == [60, 50, 21, 20]
    remaining(Event(Advance(0, 40), 0.0, 40.0))
    assert [remaining.seconds(now) for now in (40.0, 50.0, 70.0)] == pytest.approx([20, 10, 0])
    assert remaining.seconds() == pytest.approx(20)


def test_a_run_that_takes_no_time_or_is_predicted_to_has_an_estimate() -> None:
    nothing = Timeline(PREDICTED.actions, 0 * PREDICTED.start, 0 * PREDICTED.stop, PREDICTED.nbytes)
    assert np.isfinite(estimates(PREDICTED, nothing)).all()
    assert np.isfinite(estimates(nothing, PREDICTED)).all()
    assert Remaining(PREDICTED[:0]).seconds() == 0.0


def test_more_events_than_were_predicted_leave_nothing() -> None:
    remaining = Remaining(PREDICTED[:1])
    for event in PREDICTED[:2]:
        remaining(event)
    assert remaining.seconds() == 0.0


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=40))
def test_an_estimate_is_never_negative(seconds: list[float]) -> None:
    remaining, now = Remaining(PREDICTED), 0.0
    for event, took in zip(PREDICTED, seconds, strict=False):
        remaining(Event(event.action, now, now + took))
        now += took
        assert 0.0 <= remaining.seconds(now + took) <= remaining.seconds() < float("inf")
