"""The verdict on a run says what was stored, how often steps were computed, and what limits it."""

import pytest

from ckio import Affine, Chain, Level, Overlap, Platform, simulate
from ckio.planners import hrevolve, mixed, store_all
from ckio.report.headline import headline, memory_sentence, peak_bytes
from ckio.schedule.occupancy import occupancies

CHAIN = Chain(steps=30, advance=1.0, record=1.2, reverse=2.5, restart=1024, tape=2048, adjoint=1024)


def two_levels(seconds):
    far = Affine(seconds)
    ram = Level(name="ram", capacity=2048)
    return Platform((ram, Level(name="nvme", capacity=61440, write=far, read=far)), 2048)


def test_figures_are_those_of_the_schedule():
    platform = two_levels(0.8)
    timeline = simulate(hrevolve(CHAIN, platform), platform)
    text = headline(timeline, CHAIN, platform, gradient="verified", predicted=170.0)
    assert text.startswith("Gradient of 30 steps, verified. At most ")
    assert "instead of 60 KiB of tapes" in text
    assert "Each step is computed 2.60 times" in text  # 48 of 30 are taken again
    assert "computing is the bottleneck" in text
    assert text.endswith(f"Predicted 170 s, measured {timeline.makespan:.4g} s.")


def test_the_bottleneck_is_what_is_busy_for_the_longest():
    platform = two_levels(4.0)
    timeline = simulate(store_all(CHAIN, platform, on="nvme"), platform)
    assert "level nvme is the bottleneck" in headline(timeline, CHAIN, platform)
    assert "Storage takes 68% of the time" in headline(timeline, CHAIN, platform)


@pytest.mark.parametrize("overlap", [Overlap(), Overlap(write_behind=None, read_ahead=None)])
@pytest.mark.parametrize("planner", [hrevolve, mixed])
def test_the_peak_of_all_levels_lies_between_the_largest_of_one_and_their_sum(planner, overlap):
    platform = two_levels(0.8)
    timeline = simulate(planner(CHAIN, platform), platform, overlap=overlap)
    peaks = [level.peak_bytes for level in occupancies(timeline, CHAIN, platform)]
    assert max(peaks) <= peak_bytes(timeline, CHAIN, platform) <= sum(peaks)


def test_without_levels_nothing_is_stored():
    nowhere = Platform((), 61440)
    assert peak_bytes(simulate(store_all(CHAIN, nowhere), nowhere), CHAIN, nowhere) == 0


def test_of_a_resumed_run_it_speaks_of_this_process():
    platform = Platform((Level(name="ram", capacity=61440),), 61440)
    timeline = simulate(store_all(CHAIN, platform), platform)
    whole = headline(timeline, CHAIN, platform)
    assert "Each step is computed 1.00 times" in whole
    rest = headline(timeline, CHAIN.with_steps(40), platform)
    assert "This process computed 30 forward steps and reversed 30" in rest


def test_it_is_said_whether_more_memory_would_help():
    platform = two_levels(0.8)
    timeline = simulate(hrevolve(CHAIN, platform), platform)
    said = memory_sentence(occupancies(timeline, CHAIN, platform), CHAIN, platform)
    assert said == ("Level ram fills up; `ckio plan --capacity` shows what more of it would save.")
    roomy = Platform((Level(name="ram", capacity=1_000_000),), 2048)
    timeline = simulate(store_all(CHAIN, roomy), roomy)
    said = memory_sentence(occupancies(timeline, CHAIN, roomy), CHAIN, roomy)
    assert said == "Level ram never fills up, so a larger capacity would not change this plan."
    for endless in (Platform((Level(name="ram"),), 2048), Platform(())):
        assert memory_sentence(occupancies(timeline[:0], CHAIN, endless), CHAIN, endless) == ""
