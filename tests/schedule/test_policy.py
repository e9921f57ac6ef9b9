"""The policy of overlap, as a value and in words."""

from math import inf, nan

import numpy as np
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


def test_what_is_not_named_is_not_done() -> None:
    assert Overlap.parse("") == Overlap(0, 0, inf)
    assert Overlap.parse("write_behind=2") == Overlap(2, 0)
    assert Overlap.parse("read_ahead=all,write_behind=1") == Overlap(1, None)
    assert Overlap.parse("read_ahead=1,horizon=0.5") == Overlap(0, 1, 0.5)
    assert [bool(Overlap(*given)) for given in ((0, 0, 1.0), (1,), (0, None))] == [0, 1, 1]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("behind=1", "is not write_behind=N"),
        ("write_behind", "is not a number"),
        ("write_behind=1,write_behind=2", "is not write_behind=N"),
        ("write_behind=two", "write_behind=two is not a number"),
        ("horizon=all", "horizon=all is not a number"),
        ("read_ahead=1.5", "read_ahead=1.5 is not a number"),
        ("read_ahead=-1", "at least 0"),
        ("horizon=-1", "at least 0 seconds"),
        ("horizon=nan", "at least 0 seconds"),
    ],
)
def test_words_that_are_no_policy_are_refused(text: str, complaint: str) -> None:
    with pytest.raises(BadInput, match=complaint):
        Overlap.parse(text)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *((name, count) for name in ("write_behind", "read_ahead") for count in (-1, 1.0, True)),
        *(("horizon", seconds) for seconds in (-0.5, nan, "0.5", None, True)),
    ],
)
def test_counts_are_whole_numbers_and_a_horizon_is_a_time(name: str, value: object) -> None:
    with pytest.raises(BadInput, match=f"{name}"):
        Overlap(**{name: value})  # type: ignore[arg-type]


def test_numbers_of_numpy_are_stored_as_python_writes_and_reads_them() -> None:
    overlap = Overlap(np.int64(2), np.int32(1), np.float64(0.5))  # type: ignore[arg-type]
    assert str(overlap) == "write_behind=2,read_ahead=1,horizon=0.5"
    assert Overlap.parse(str(overlap)) == overlap
