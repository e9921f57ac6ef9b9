"""A chain prices steps and sizes checkpoints, alike for one action and for columns of them."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckio.actions import Advance, Discard, Key, Kind, Read, Record, Reverse, Write
from ckio.chain import COSTS, Chain
from ckio.columns import Actions
from ckio.errors import BadInput

PRICES = {"advance": 0.3, "record": 0.7, "reverse": 1.1, "restart": 7, "tape": 11, "adjoint": 13}
CHAIN = Chain(steps=9, **PRICES)
KEYS = {kind: Key(kind, 2) for kind in Kind}
FLOATS = st.floats(0, 1e6)


def test_every_kind_of_checkpoint_has_its_own_size() -> None:
    assert [CHAIN.nbytes(KEYS[kind]) for kind in (Kind.RESTART, Kind.TAPE, Kind.ADJOINT)] == [
        7,
        11,
        13,
    ]


def test_every_computing_action_has_its_own_price_and_storage_has_none() -> None:
    assert CHAIN.seconds(Advance(2, 5)) == 3 * 0.3
    assert CHAIN.seconds(Record(2, 5)) == 3 * 0.7
    assert CHAIN.seconds(Reverse(2, 5)) == 3 * 1.1
    for access in (Write, Read, Discard):
        assert CHAIN.seconds(access(KEYS[Kind.TAPE], 0)) == 0


@given(FLOATS, FLOATS, FLOATS, st.lists(st.integers(1, 1000), min_size=1, max_size=20))
def test_columns_are_priced_and_sized_as_their_actions_to_the_last_bit(
    advance: float, record: float, reverse: float, lengths: list[int]
) -> None:
    chain = Chain(
        steps=1000, advance=advance, record=record, reverse=reverse, restart=3, tape=5, adjoint=8
    )
    actions = [make(1, 1 + length) for length in lengths for make in (Advance, Record, Reverse)]
    accesses = [access(key, 1) for key in KEYS.values() for access in (Write, Read, Discard)]
    columns = Actions.of([*actions, *accesses])
    assert chain.seconds_of(columns).tolist() == [chain.seconds(action) for action in columns]
    assert chain.nbytes_of(columns).tolist() == [0] * len(actions) + [3] * 3 + [5] * 3 + [8] * 3


@pytest.mark.parametrize("steps", [0, -1, 2.0, True, "4", math.nan])
def test_steps_are_a_whole_number_of_at_least_1(steps: object) -> None:
    with pytest.raises(BadInput, match="Chain: steps = "):
        Chain(steps=steps, **PRICES)  # type: ignore[arg-type]


@pytest.mark.parametrize("cost", ["advance", "record", "reverse"])
@pytest.mark.parametrize("seconds", [-0.5, math.nan, math.inf, -math.inf, "1", None, True, 1j])
def test_seconds_are_finite_and_not_negative(cost: str, seconds: object) -> None:
    with pytest.raises(BadInput, match=f"Chain: {cost} = "):
        Chain(steps=9, **{**PRICES, cost: seconds})


@pytest.mark.parametrize("name", ["restart", "tape", "adjoint"])
@pytest.mark.parametrize("nbytes", [-1, 1.5, 1.0, math.inf, "8", None, Fraction(3), False])
def test_sizes_are_whole_bytes_and_not_negative(name: str, nbytes: object) -> None:
    with pytest.raises(BadInput, match=f"Chain: {name} = .* whole number of bytes"):
        Chain(steps=9, **{**PRICES, name: nbytes})


def test_numbers_beyond_any_machine_are_refused() -> None:
    with pytest.raises(BadInput, match="Chain: advance = inf; it must be finite"):
        Chain(steps=9, **PRICES | {"advance": 10**400})
    with pytest.raises(BadInput, match=r"Chain: steps = 10*, .* must be below 2\*\*63 bytes"):
        Chain(steps=10**400, **PRICES)


@pytest.mark.parametrize("steps", [None, 1, 1000])
def test_all_checkpoints_of_a_chain_together_are_below_2_to_the_63_bytes(steps: int | None) -> None:
    largest = (2**63 - 1) // (1 + (steps or 0)) - 2
    costs = PRICES | {"restart": 1, "tape": largest, "adjoint": 1}
    assert Chain(steps=steps, **costs).tape == largest
    with pytest.raises(BadInput, match=f"tape = {largest + 1}, .* must be below 2"):
        Chain(steps=steps, **costs | {"tape": largest + 1})


def test_costs_and_sizes_may_be_zero() -> None:
    assert Chain(steps=1, **dict.fromkeys(COSTS, 0)).seconds(Advance(0, 1)) == 0


def test_measured_numbers_of_numpy_become_plain_ones() -> None:
    chain = Chain(
        steps=np.int64(9),
        advance=np.float64(0.5),
        record=np.float32(0.25),
        reverse=np.int32(3),
        restart=np.int64(7),
        tape=np.uint16(5),
        adjoint=np.int8(2),
    )
    kinds = [type(getattr(chain, name)) for name in ("steps", *COSTS)]
    assert kinds == [int, float, float, float, int, int, int]


def test_an_unknown_length_is_asked_for_in_vain_until_it_is_given() -> None:
    chain = Chain(steps=None, **PRICES)
    with pytest.raises(BadInput, match="number of steps is not known"):
        _ = chain.length
    assert chain.with_steps(9) == CHAIN
    assert chain.with_steps(9).length == 9


def test_one_variable_has_no_size_of_its_own() -> None:
    key = Key(Kind.RESTART, 3, "u")
    with pytest.raises(BadInput, match=r"x_3\.u is one variable"):
        CHAIN.nbytes(key)
    with pytest.raises(BadInput, match="single variables"):
        CHAIN.nbytes_of(Actions.of([Write(key, 0)]))


def test_the_names_of_the_costs_are_all_but_the_steps() -> None:
    assert list(PRICES) == list(COSTS)
