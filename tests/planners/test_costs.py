"""Costs in whole units: exact where they can be, and off by half a unit at most."""

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckio.planners.dp.costs import integer_costs as whole

costs = st.floats(0, 1e6, allow_subnormal=False)


def test_decimals_are_exact() -> None:
    units = whole(1.0, [0.05, 0.1 + 0.2, 5.0, 0.0], steps=1001)
    assert units is not None
    assert (units.move, units.others) == (20, (1, 6, 100, 0))
    assert units.unit == Fraction(1, 20)
    assert units.above == 0.0
    assert units.seconds(105507) == 5275.35


@pytest.mark.parametrize(
    ("advance", "others", "expected"),
    [
        (7.0, [9.0, 3.5], (14, (18, 7), Fraction(1, 2))),
        (0.0, [0.0, 6.0, 4.0], (0, (0, 3, 2), 2)),  # the smallest cost is one
        (0.0, [0.0], (0, (0,), 1)),
    ],
)
def test_the_unit_is_a_part_of_a_step_whatever_a_step_takes(
    advance: float, others: list[float], expected: tuple[int, tuple[int, ...], Fraction]
) -> None:
    units = whole(advance, others, steps=1001)
    assert units is not None
    assert (units.move, units.others, units.unit) == expected


def test_what_is_no_multiple_is_rounded_to_a_1000th_of_a_step() -> None:
    units = whole(1.0, [2**0.5, 0.0004, 0.0006], steps=3001)
    assert units is not None
    assert (units.move, units.others) == (1000, (1414, 0, 1))
    assert (units.unit, units.above) == (Fraction(1, 1000), 0.002)


@pytest.mark.parametrize(
    ("access", "parts", "units_of_a_tenth"), [(1e7, 9997, 1000), (1e8, 1000, 100), (1e9, 100, 10)]
)
def test_where_sums_would_be_too_large_costs_are_rounded(
    access: float, parts: int, units_of_a_tenth: int
) -> None:
    units = whole(0.9997, [0.1, access], steps=10**6 + 1)
    assert units is not None
    assert (units.unit, units.others[0]) == (Fraction(0.9997) / parts, units_of_a_tenth)
    assert (units.above == 0) is (parts == 9997)


@pytest.mark.parametrize(("access", "length"), [(1e10, 10**6), (0.0, 10**9)])
def test_where_they_still_are_too_large_there_are_no_units(access: float, length: int) -> None:
    assert whole(0.99973, [access], steps=length + 1) is None


def test_in_a_short_chain_costs_are_rounded_as_finely_as_64_bits_allow() -> None:
    units = whole(1.0, [2**0.5, 0.0004], steps=1001)
    assert units is not None
    assert float(units.others[0] * units.unit) == pytest.approx(2**0.5, rel=1e-11)
    assert 0 < units.above < 1e-11


@pytest.mark.parametrize("length", [1, 1000, 20_000])
def test_units_may_be_longer_than_a_step_if_each_checkpoint_takes_far_longer(length: int) -> None:
    units = whole(0.99973, [1e17, 1e17], steps=length + 1, least=2e17)
    assert units is not None
    assert units.unit > 0.5
    assert units.above < 1e-8


@given(costs, st.lists(costs, max_size=6), st.integers(-300, 300))
def test_the_unit_of_seconds_does_not_matter(
    advance: float, others: list[float], power: int
) -> None:
    units = whole(advance, others, steps=101)
    given = advance, *others
    scaled = [cost * 2.0**power for cost in given]
    if any(cost and not 1e-290 < a < 1e290 for cost, a in zip(given, scaled, strict=True)):
        return  # it would be 0, or lose bits, or be infinite
    rescaled = whole(scaled[0], scaled[1:], steps=101)
    if units is None:
        assert rescaled is None
    else:
        assert rescaled is not None
        assert (rescaled.move, rescaled.others) == (units.move, units.others)
        if any((advance, *others)):
            assert rescaled.unit == units.unit * Fraction(2) ** power


@given(costs, st.lists(costs, max_size=6), st.integers(1, 10**7))
def test_a_cost_is_off_by_half_a_unit_at_most_and_sums_fit(
    advance: float, others: list[float], length: int
) -> None:
    units = whole(advance, others, steps=length + 1)
    if units is None:
        part = advance or min(filter(None, others))
        assert max(others) / part > 1e8
        return
    exact = Fraction(1, 10**12) * max(advance, *others, 0.0) if not units.above else 0
    for cost, number in zip((advance, *others), (units.move, *units.others), strict=True):
        assert (
            abs(number * units.unit - Fraction(cost)) <= exact + bool(units.above) * units.unit / 2
        )
    assert (length + 1) * (length * units.move + max((0, *units.others))) < 2**59


@pytest.mark.parametrize("cost", [1 / 3, 0.125, 1e-4, 9.9999])
def test_multiples_of_a_10000th_are_exact(cost: float) -> None:
    units = whole(1.0, [cost], steps=11)
    assert units is not None
    assert units.above == 0
    assert units.seconds(units.others[0]) == pytest.approx(cost, rel=1e-12)


def test_what_takes_for_ever_has_no_unit_and_sums_may_be_infinite() -> None:
    assert whole(1, [2, math.inf], steps=11) is None
    units = whole(0, [1.7e308, 1.7e308], steps=11)
    assert units is not None
    assert units.seconds(sum(units.others)) == math.inf
