"""The policy of overlap, as a value and in words."""

from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckio.errors import BadInput
from ckio.schedule.policy import Overlap

COUNTS = st.none() | st.integers(0, 99)


@given(COUNTS, COUNTS, st.floats(0, allow_nan=False))
def test_its_words_say_it_again(behind: int | None, ahead: int | None, horizon: float) -> None:
    overlap = Overlap(behind, ahead, horizon)
    assert Overlap.parse(str(overlap)) == overlap


@pytest.mark.parametrize(
    ("text", "overlap"),
    [
        ("", Overlap()),
        ("write_behind=2", Overlap(2, 0)),
        ("read_ahead=all,write_behind=1", Overlap(1, None)),
        ("read_ahead=1,horizon=0.5", Overlap(0, 1, 0.5)),
        ("horizon=inf", Overlap(0, 0, inf)),
    ],
)
def test_what_is_not_named_is_not_done(text: str, overlap: Overlap) -> None:
    assert Overlap.parse(text) == overlap


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("behind=1", "is not write_behind=N"),
        ("write_behind", "is no number"),
        ("write_behind=1,write_behind=2", "is not write_behind=N"),
        ("write_behind=two", "write_behind=two is no number"),
        ("horizon=all", "horizon=all is no number"),
        ("read_ahead=1.5", "read_ahead=1.5 is no number"),
        ("read_ahead=-1", "at least 0"),
        ("horizon=-1", "at least 0 seconds"),
        ("horizon=nan", "at least 0 seconds"),
    ],
)
def test_words_that_are_no_policy_are_refused(text: str, complaint: str) -> None:
    with pytest.raises(BadInput, match=complaint):
        Overlap.parse(text)


@pytest.mark.parametrize("count", [-1, 1.0, True, "1"])
def test_counts_are_whole_numbers(count: object) -> None:
    for name in ("write_behind", "read_ahead"):
        with pytest.raises(BadInput, match=f"{name} = "):
            Overlap(**{name: count})  # type: ignore[arg-type]


def test_a_horizon_is_a_time() -> None:
    for horizon in (-0.5, nan):
        with pytest.raises(BadInput, match="horizon"):
            Overlap(1, 1, horizon)


def test_by_default_nothing_overlaps() -> None:
    assert not Overlap()
    assert not Overlap(horizon=1.0)
    assert Overlap(1)
    assert Overlap(0, None)
