"""Whether a level should compress, for measured numbers of every sort."""

from collections.abc import Sequence
from dataclasses import FrozenInstanceError

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckio.calibrate.codecs import SHRINKS, Decision, Trial, break_even, choose, decline
from ckio.calibrate.samples import MARGIN, planned
from ckio.planners.dp import hrevolve
from ckio.platform import Affine, Level, Platform
from ckio.platform.chain import Chain
from ckio.schedule import makespan

PLAIN = Trial(write=2.0, read=1.0)
FAST = Trial(codec="fast", write=1.0, read=0.5, ratio=0.8)
FASTER = Trial(codec="faster", write=0.5, read=0.5, ratio=0.85)
SLOW = Trial(codec="slow", write=3.0, read=1.0, ratio=0.5)
ROUGH = Trial(codec="rough", write=3.0, read=1.0, ratio=0.9)
SLOWER = Trial(codec="slower", write=9.0, read=9.0, ratio=0.4)
EVEN = Trial(codec="even", write=1.5, read=1.5, ratio=0.5)
IDLE = Trial(codec="idle", write=0.1, read=0.1, ratio=0.99)


@pytest.mark.parametrize(
    ("trials", "capacity", "codec", "pays"),
    [
        ([FAST], None, "fast", "time"),
        ([FAST], 1000, "fast", "time"),
        ([SLOW, FAST, FASTER], 1000, "faster", "time"),
        ([SLOW], 1000, "slow", "capacity"),
        ([EVEN], 1000, "even", "capacity"),
        ([SLOW, EVEN], 1000, "even", "capacity"),
        # 1 s for 7 slots more, or 15 s for 12.
        ([SLOWER, SLOW], 1000, "slow", "capacity"),
        ([SLOW], None, "", "capacity"),
        # Room for one as it is, and for one as it would be.
        ([SLOW], 108, "", "nothing"),
        ([SLOW], 112, "slow", "capacity"),
        # A few slots more are not worth it, and nothing is where none is missing.
        ([ROUGH], 10_000, "", "nothing"),
        ([ROUGH], None, "", "capacity"),
        ([IDLE], None, "", "nothing"),
        ([IDLE], 1000, "", "nothing"),
        ([IDLE, SLOW], 1000, "slow", "capacity"),
        ([], 1000, "", "nothing"),
    ],
)
def test_it_pays_in_time_or_in_capacity_or_not(
    trials: Sequence[Trial], capacity: int | None, codec: str, pays: str
) -> None:
    found = choose(PLAIN, trials, nbytes=100, capacity=capacity)
    assert (found.codec, found.pays) == (codec, pays)
    assert found.sentence.startswith(codec or "no codec: ")


@pytest.mark.parametrize(
    ("trial", "capacity", "step", "words"),
    [
        (FAST, 1000, 1.0, ["fast pays in time", "1.5 s instead of 3 s", "80%", "11 slots"]),
        (SLOW, 1000, 1e9, ["slow pays only in capacity", "17 slots instead of 10", "2.429 s"]),
        (SLOW, 1000, 2.43, ["slow pays only in capacity", "1 s more", "4 s instead of 3 s"]),
        (SLOW, 1000, 0.5, ["no codec: slow would make 17 slots", "2.429 s", "500 ms"]),
        (SLOW, None, 1.0, ["no codec: slow", "50% of the bytes", "never fills"]),
        (SLOW, 108, 1.0, ["no codec: slow", "too few slots", "1 instead of 1"]),
        (IDLE, None, 1.0, ["no codec", "99% at best, with idle"]),
    ],
)
def test_the_sentence_tells_what_it_costs_and_what_it_buys(
    trial: Trial, capacity: int | None, step: float, words: Sequence[str]
) -> None:
    found = choose(PLAIN, [trial], nbytes=100, capacity=capacity, step=step).sentence
    assert [word for word in words if word not in found] == [], found


@pytest.mark.parametrize("ratio", [0.7, 0.5, 0.25])
@pytest.mark.parametrize("steps", [100, 400])
def test_the_step_from_which_slots_are_worth_their_price_is_about_right(
    ratio: float, steps: int
) -> None:
    trial = Trial(codec="slow", write=2.5, read=1.5, ratio=ratio)
    slots = {"": 20, "slow": int(20 / ratio)}
    step = break_even(trial, PLAIN, slots)

    def gain(advance: float) -> float:
        """Seconds that a run takes without the codec, and no more with it."""
        chain = Chain(
            steps=steps, advance=advance, record=advance, reverse=advance,
            restart=1, tape=1, adjoint=1,
        )  # fmt: skip
        took = {}
        for each in (PLAIN, trial):
            room, write, read = slots[each.codec], Affine(each.write), Affine(each.read)
            level = Level(name="level", capacity=room, write=write, read=read)
            machine = Platform((level,), working_memory=1)
            took[each.codec] = makespan(hrevolve(chain, machine), machine)
        return took[""] - took["slow"]

    assert gain(3 * step) > 0
    assert gain(step / 3) < 0


def test_noise_needs_no_trial() -> None:
    found = decline(1.0)
    assert (found.codec, found.pays) == ("", "nothing")
    assert "sample" in found.sentence
    assert "100%" in found.sentence


def test_a_plan_counts_on_less_than_was_measured_and_never_on_growth() -> None:
    assert planned(0.5) == 0.5 * MARGIN
    assert planned(0.99) == 1.0
    assert planned(1.25) == 1.25


TRIALS = st.builds(
    Trial,
    codec=st.sampled_from("abcdef"),
    write=st.floats(1e-6, 10),
    read=st.floats(1e-6, 10),
    ratio=st.floats(0.01, 1.1),
)


@given(
    plain=st.builds(Trial, write=st.floats(1e-6, 10), read=st.floats(1e-6, 10)),
    trials=st.lists(TRIALS, max_size=4, unique_by=lambda trial: trial.codec),
    nbytes=st.integers(0, 1000),
    capacity=st.none() | st.integers(0, 10_000),
)
def test_what_is_chosen_pays_in_what_is_said(
    plain: Trial, trials: list[Trial], nbytes: int, capacity: int | None
) -> None:
    found = choose(plain, trials, nbytes=nbytes, capacity=capacity)
    assert choose(plain, trials[::-1], nbytes=nbytes, capacity=capacity).pays == found.pays
    for trial in trials:
        if trial.codec == found.codec:
            assert trial.ratio <= SHRINKS
            faster = trial.seconds < plain.seconds
            assert found.pays == ("time" if faster else "capacity")
            assert faster or capacity is not None


def test_a_decision_stays() -> None:
    with pytest.raises(FrozenInstanceError):
        Decision("", "nothing", "").codec = "zstd"  # type: ignore[misc]
