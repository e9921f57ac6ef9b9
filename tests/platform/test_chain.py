"""A chain prices steps and sizes checkpoints, alike for one action and for columns of them."""

import math
from dataclasses import replace
from fractions import Fraction
from random import Random
from typing import Any

import numpy as np
import pytest
from drawing import random_chain, random_key
from hypothesis import given
from hypothesis import strategies as st

from ckio.actions import Action, Advance, Discard, Key, Kind, Read, Record, Reverse, Write
from ckio.actions.columns import Actions
from ckio.errors import BadInput
from ckio.platform.chain import COSTS, SECONDS, SIZES, Chain

PRICES = {"advance": 0.3, "record": 0.7, "reverse": 1.1, "restart": 7, "tape": 11, "adjoint": 13}
CHAIN = Chain(steps=9, **PRICES)
KEYS = {kind: Key(kind, 2) for kind in Kind}
FLOATS = st.floats(0, 1e6)


def test_every_kind_of_checkpoint_and_of_computing_has_its_own_price_and_storage_none() -> None:
    sizes = [CHAIN.nbytes(KEYS[kind]) for kind in (Kind.RESTART, Kind.TAPE, Kind.ADJOINT)]
    assert sizes == [7, 11, 13]
    assert CHAIN.seconds(Advance(2, 5)) == 3 * 0.3
    assert CHAIN.seconds(Record(2, 5)) == 3 * 0.7
    assert CHAIN.seconds(Reverse(2, 5)) == 3 * 1.1
    for access in (Write, Read, Discard):
        assert CHAIN.seconds(access(KEYS[Kind.TAPE], 0)) == 0


def test_steps_seconds_and_sizes_that_make_no_sense_are_refused_by_name() -> None:
    steps = [0, -1, 2.0, True, "4", math.nan, 10**400]
    seconds = [-0.5, math.nan, math.inf, -math.inf, "1", None, True, 1j, 10**400]
    sizes = [-1, 1.5, 1.0, math.inf, "8", None, Fraction(3), False]
    wrong: dict[str, list[Any]] = {"steps": steps} | dict.fromkeys(SECONDS, seconds)
    for name, values in (wrong | dict.fromkeys(SIZES, sizes)).items():
        for value in values:
            with pytest.raises(BadInput, match=f"Chain: {name} = "):
                Chain(**{"steps": 9, **PRICES, name: value})


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
    with pytest.raises(BadInput, match="whole checkpoints only"):
        CHAIN.nbytes_of(Actions.of([Write(key, 0)]))


# --- steps that differ


DIFFERING = Chain(
    steps=3,
    advance=[0.5, 2, 8],
    record=np.array([1.0, 3, 9]),
    reverse=range(3),
    restart=(1, 2, 3, 4),
    tape=[10, 20, 30],
    adjoint=[5, 6, 7],
)


def test_a_step_costs_what_it_costs_and_a_span_their_sum() -> None:
    assert [DIFFERING.seconds(Advance(i, i + 1)) for i in range(3)] == [0.5, 2, 8]
    assert DIFFERING.seconds(Advance(0, 3)) == 10.5
    assert DIFFERING.seconds(Record(1, 3)) == 12
    assert DIFFERING.seconds(Reverse(0, 2)) == 1
    assert DIFFERING.tape_bytes(1, 3) == 50
    assert CHAIN.tape_bytes(1, 3) == 22


def test_a_checkpoint_has_the_bytes_of_its_step() -> None:
    sizes = [DIFFERING.nbytes(Key(Kind.RESTART, i)) for i in range(4)]
    assert sizes == [1, 2, 3, 4]
    assert [DIFFERING.nbytes(Key(Kind.TAPE, i)) for i in range(3)] == [10, 20, 30]
    assert [DIFFERING.nbytes(Key(Kind.ADJOINT, i)) for i in range(4)] == [5, 6, 7, 7]
    assert [DIFFERING.largest(size) for size in SIZES] == [4, 30, 7]
    assert [CHAIN.largest(size) for size in SIZES] == [7, 11, 13]


def test_equal_values_for_all_steps_are_one_value() -> None:
    chain = Chain(
        steps=9, **{name: [price] * (9 + (name == "adjoint")) for name, price in PRICES.items()}
    )
    assert chain == CHAIN
    assert hash(chain) == hash(CHAIN)
    assert not chain.varies
    assert replace(CHAIN, advance=[0.3] * 8 + [0.4]).varies


def test_chains_are_equal_where_all_their_values_are() -> None:
    for alike in ({"advance": np.array([0.5, 2, 8])}, {"reverse": [-0.0, 1, 2]}):
        assert replace(DIFFERING, **alike) == DIFFERING
        assert hash(replace(DIFFERING, **alike)) == hash(DIFFERING)
    assert replace(DIFFERING, tape=[10, 20, 31]) != DIFFERING
    assert replace(DIFFERING, tape=10) != DIFFERING


def test_values_are_given_for_every_step_alike_or_not() -> None:
    assert DIFFERING.each("restart").tolist() == [1, 2, 3, 4]
    assert replace(DIFFERING, tape=7).each("tape").tolist() == [7, 7, 7]
    assert CHAIN.each("adjoint").tolist() == [13] * 10
    assert tuple(DIFFERING.advance) == (0.5, 2, 8)  # type: ignore[arg-type]


def test_what_was_given_may_change_and_the_chain_does_not() -> None:
    tape = np.array([10, 20, 30])
    chain = replace(DIFFERING, tape=tape)
    tape[0] = 99
    assert chain == DIFFERING
    with pytest.raises(ValueError, match="read-only"):
        chain.each("tape")[0] = 99


def test_the_first_steps_of_a_chain_are_a_chain_and_further_ones_are_not_known() -> None:
    two = DIFFERING.with_steps(2)
    assert two.each("restart").tolist() == [1, 2, 3]
    assert two.each("advance").tolist() == [0.5, 2]
    assert DIFFERING.with_steps(3) == DIFFERING
    assert not DIFFERING.with_steps(1).each("tape")[1:].size
    for steps in (4, 0, 2.0):
        with pytest.raises(BadInput, match="knows the costs of 3 steps"):
            DIFFERING.with_steps(steps)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("costs", "message"),
    [
        ({"advance": [1, 2]}, "advance has 2 values; the chain has 3 steps"),
        ({"advance": [1, 2, 3, 4]}, "advance has 4 values; the chain has 3 steps"),
        ({"restart": [1, 2]}, "restart has 2 values; the chain has 3 steps"),
        ({"steps": None}, "advance has a value for each step, but the number of steps is not"),
        ({"record": [1, -1, 2]}, r"record\[1\] = -1.0; it must be finite and >= 0"),
        ({"record": np.array([1, 2, np.nan])}, r"record\[2\] = nan; it must be finite"),
        ({"record": [1, "2", 3]}, r"record\[1\] = '2'; it must be a number of seconds"),
        ({"record": [1, True, 3]}, r"record\[1\] = True; it must be a number"),
        ({"record": "123"}, "record = '123'; it must be a number of seconds"),
        ({"record": [1e308, 1e308, 0]}, "record of all steps = inf; it must be finite"),
        ({"tape": [1, 2.0, 3]}, r"tape\[1\] = 2.0; it must be a whole number of bytes"),
        ({"tape": np.array([1.0, 2, 3])}, r"tape\[0\] = .*1.0.*; it must be a whole number"),
        ({"tape": [[1], [2], [3]]}, r"tape\[0\] = \[1\]; it must be a whole number"),
        ({"tape": [1, 2, 2**63]}, r"tape: a checkpoint must be below 2\*\*63 bytes"),
        ({"tape": [2**62, 2**62, 1]}, r".* tape = PerStep.*; all checkpoints together must be"),
    ],
)
def test_values_for_steps_are_as_many_and_each_as_one_for_all_would_be(
    costs: dict[str, Any], message: str
) -> None:
    with pytest.raises(BadInput, match=f"^Chain: {message}"):
        replace(DIFFERING, **costs)


def test_what_is_beyond_the_end_has_no_price_and_no_size() -> None:
    beyond = r"is beyond the end; the chain has 3 steps"
    for action in (Advance(2, 4), Record(3, 4), Reverse(0, 4)):
        with pytest.raises(BadInput, match=beyond):
            DIFFERING.seconds(action)
        with pytest.raises(BadInput, match=beyond):
            DIFFERING.seconds_of(Actions.of([action]))
    for key in (Key(Kind.RESTART, 4), Key(Kind.TAPE, 3), Key(Kind.ADJOINT, 2**63 - 1)):
        with pytest.raises(BadInput, match=beyond):
            DIFFERING.nbytes(key)
        with pytest.raises(BadInput, match=beyond):
            DIFFERING.nbytes_of(Actions.of([Read(key, 0)]))


@given(st.randoms(use_true_random=False), st.data())
def test_columns_are_priced_and_sized_as_their_actions_to_the_last_bit(
    random: Random, data: st.DataObject
) -> None:
    chain = random_chain(random, most_steps=20)
    seconds = FLOATS | st.lists(FLOATS, min_size=chain.length, max_size=chain.length)
    chain = replace(chain, record_only=None, **{name: data.draw(seconds) for name in SECONDS})
    actions: list[Action] = [
        span(begin, random.randint(begin + 1, chain.length))
        for begin in range(chain.length)
        for span in (Advance, Record, Reverse)
    ]
    keys = (random_key(random, chain) for _ in range(20))
    accesses = [access(key, 0) for key in keys for access in (Write, Read, Discard)]
    columns = Actions.of([*actions, *accesses])
    assert chain.seconds_of(columns).tolist() == [chain.seconds(action) for action in columns]
    sizes = [0] * len(actions) + [chain.nbytes(access.key) for access in accesses]
    assert chain.nbytes_of(columns).tolist() == sizes


def test_many_steps_that_differ_are_compared_hashed_and_shown_in_short() -> None:
    values = np.arange(100_000)
    costs = {"advance": values * 0.5, "restart": np.arange(100_001), "tape": values}
    chains = [Chain(steps=100_000, **PRICES | costs) for _ in range(2)]
    assert chains[0] == chains[1]
    assert len(set(chains)) == 1
    assert len(repr(chains[0])) < 400


def test_the_names_of_the_costs_are_all_but_the_steps() -> None:
    assert list(PRICES) == list(COSTS)


def test_the_state_after_a_recorded_step_takes_an_advance_at_most() -> None:
    costs = {"advance": 1.0, "reverse": 1, "restart": 1, "tape": 1, "adjoint": 1}
    assert Chain(steps=3, record=1.54, record_only=0.5, **costs).saved == pytest.approx(1.04)
    for record in (10, [1.0, 1.0, 9.0]):
        with pytest.raises(BadInput, match=r"give record = record_only \+ advance"):
            Chain(steps=3, record=record, record_only=0.5, **costs)  # type: ignore[arg-type]
