"""Keys and actions are values that cannot be built meaningless and that print as people write."""

from dataclasses import FrozenInstanceError
from typing import Any

import numpy as np
import pytest

from ckio.actions import Advance, Discard, Key, Kind, Read, Record, Reverse, Write
from ckio.errors import BadInput
from ckio.testing import a, t, x


@pytest.mark.parametrize("span", [Advance, Record, Reverse])
def test_a_span_is_not_empty_and_increases_from_0(span: type[Advance]) -> None:
    for begin, end in ((3, 3), (4, 3), (-1, 2)):
        with pytest.raises(BadInput, match=rf"{span.__name__}: \[{begin}, {end}\) is not a span"):
            span(begin, end)


@pytest.mark.parametrize("access", [Write, Read, Discard])
def test_a_key_has_a_kind_and_no_negative_step_and_an_access_no_negative_level(access: Any) -> None:
    with pytest.raises(BadInput, match=f"{access.__name__}: level -1 is negative"):
        access(t(0), -1)
    with pytest.raises(BadInput, match="Key: step -1 is negative"):
        access(t(-1), 0)
    with pytest.raises(BadInput, match="Key: kind = 'x'"):
        access(Key("x", 0), 0)  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [0.0, 1.5, "1", None])
def test_steps_and_levels_are_whole_numbers(value: Any) -> None:
    for make, what in (
        (lambda: Advance(value, 9), "Advance: begin"),
        (lambda: Reverse(0, value), "Reverse: end"),
        (lambda: Key(Kind.TAPE, value), "Key: step"),
        (lambda: Read(t(0), value), "Read: level"),
    ):
        with pytest.raises(BadInput, match=rf"{what} = .*; it must be a whole number"):
            make()


def test_whole_numbers_of_numpy_become_plain_ones() -> None:
    span, access = Record(np.int64(1), np.uint8(3)), Read(Key(Kind.TAPE, np.int32(2)), np.int16(1))
    assert (span, access) == (Record(1, 3), Read(t(2), 1))
    numbers = (span.begin, span.end, access.key.step, access.level)
    assert [type(number) for number in numbers] == [int] * 4


def test_actions_are_equal_by_what_they_are_and_do_and_do_not_change() -> None:
    span, access = Advance(0, 2), Write(x(1), 0)
    assert len({span, Record(0, 2), Reverse(0, 2), Advance(0, 2)}) == 3
    assert len({access, Read(x(1), 0), Discard(x(1), 0), Write(x(1), 1), Write(x(1), 0)}) == 4
    assert x(1) != Key(Kind.RESTART, 1, "u")
    with pytest.raises(FrozenInstanceError):
        span.begin = 1  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        access.level = 1  # type: ignore[misc]


def test_actions_print_as_people_write_them() -> None:
    assert str(Record(3, 5)) == "Record[3, 5)"
    assert str(Write(x(7), 1)) == "Write(x_7, level 1)"
    assert str(Read(t(2), 0)) == "Read(t_2, level 0)"
    assert str(Discard(a(4), 2)) == "Discard(a_4, level 2)"
    assert str(Key(Kind.ADJOINT, 4, "psi")) == "a_4.psi"
