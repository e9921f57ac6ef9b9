"""Whether a level should compress, for measured numbers of every sort."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckio.calibrate.codecs import Trial, choose
from ckio.calibrate.samples import MARGIN, with_margin
from ckio.planners.dp import hrevolve
from ckio.platform import Affine, Level, Platform
from ckio.platform.chain import Chain
from ckio.schedule import makespan

PLAIN = Trial(write=2.0, read=1.0)
FAST = Trial(codec="fast", write=1.0, read=0.5, ratio=0.8)
FASTER = Trial(codec="faster", write=0.5, read=0.5, ratio=0.85)
SLOW = Trial(codec="slow", write=3.0, read=1.0, ratio=0.5)
SLOWER = Trial(codec="slower", write=9.0, read=9.0, ratio=0.4)
EVEN = Trial(codec="even", write=1.5, read=1.5, ratio=0.5)


@pytest.mark.parametrize(
    ("trials", "capacity", "step", "codec"),
    [
        # What takes less time is taken, whether the level ever fills or not.
        ([FAST], None, 1.0, "fast"),
        ([FAST], 1000, 1.0, "fast"),
        ([SLOW, FAST, FASTER], None, 0.01, "faster"),
        # But not if all that time is next to nothing.
        ([FAST], None, 1e4, ""),
        # What takes more time is taken where steps are slow and slots are few, and only there.
        ([SLOW], 1000, 1e4, "slow"),
        ([SLOW], 1000, 0.01, ""),
        ([SLOW], None, 1e4, ""),
        ([EVEN], 1000, 1.0, "even"),
        ([SLOW, FASTER], 1000, 1e4, "slow"),
        ([SLOWER, SLOW], 1000, 5.0, "slow"),
        ([SLOWER, SLOW], 1000, 1e4, "slower"),
        # Room for one as it is, and for one or two as it would be.
        ([SLOW], 108, 1e4, ""),
        ([SLOW], 112, 1e4, "slow"),
    ],
)
def test_it_is_the_codec_with_which_a_run_is_fastest(
    trials: Sequence[Trial], capacity: int | None, step: float, codec: str
) -> None:
    found = choose(PLAIN, trials, nbytes=100, capacity=capacity, step=step)
    assert found.codec == codec
    assert found.sentence.startswith(f"{codec}: a run" if codec else "no codec: with ")


def test_the_sentence_has_both_runs() -> None:
    found = choose(PLAIN, [FAST], nbytes=100, capacity=None, step=0.0).sentence
    # Each of a thousand states but the last is written once and read once, or so.
    assert found == (
        "fast: a run of 1000 steps takes 1498 s instead of 2997 s, with a ratio of 0.8"
    )


@pytest.mark.parametrize("ratio", [0.7, 0.25])
@pytest.mark.parametrize("step", [0.1, 10.0])
def test_an_exact_planner_decides_alike(ratio: float, step: float) -> None:
    """With the fewest seconds of any schedule of 200 steps, also where accesses are slow."""
    trial = Trial(codec="slow", write=2.5, read=1.5, ratio=ratio)
    chain = Chain(
        steps=200, advance=step, record=step, reverse=step, restart=100, tape=1, adjoint=1
    )
    took = []
    for each in (trial, PLAIN):
        write, read = Affine(each.write), Affine(each.read)
        level = Level(
            name="l", capacity=2000, write=write, read=read, ratio=with_margin(each.ratio)
        )
        machine = Platform((level,), working_memory=1)
        took.append(makespan(hrevolve(chain, machine), machine))
    found = choose(PLAIN, [trial], nbytes=100, capacity=2000, step=step)
    assert found.codec == ("slow" if took[0] < took[1] else "")


def test_a_plan_counts_on_less_than_was_measured_and_never_on_growth() -> None:
    assert with_margin(0.5) == 0.5 * MARGIN
    assert with_margin(0.99) == 1.0
    assert with_margin(1.25) == 1.25


TRIALS = st.builds(
    Trial,
    codec=st.sampled_from("abcdef"),
    write=st.floats(1e-6, 10),
    read=st.floats(1e-6, 10),
    ratio=st.floats(0.01, 0.95),
)


@given(
    plain=st.builds(Trial, write=st.floats(1e-6, 10), read=st.floats(1e-6, 10)),
    trials=st.lists(TRIALS, min_size=1, max_size=4, unique_by=lambda trial: trial.codec),
    nbytes=st.integers(1, 1000),
    capacity=st.none() | st.integers(1000, 10_000),
    step=st.floats(0, 10),
)
def test_no_other_choice_is_faster(
    plain: Trial, trials: list[Trial], nbytes: int, capacity: int | None, step: float
) -> None:
    run = {"nbytes": nbytes, "capacity": capacity, "step": step}
    found = choose(plain, trials, **run)
    seconds = {trial.codec: trial.run_seconds(**run) for trial in (plain, *trials)}
    assert seconds[found.codec] <= min(seconds.values()) / 0.98
