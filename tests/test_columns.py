"""`Actions` behaves like a list of actions, however many columns there are below."""

from collections.abc import Sequence
from itertools import starmap

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckio.actions import Action, Advance, Discard, Key, Kind, Read, Record, Reverse, Write
from ckio.actions.columns import ADVANCE, WRITE, Actions
from ckio.errors import BadInput

NAMES = st.sampled_from(["", "u", "v", "psi"])
KEYS = st.builds(Key, st.sampled_from(Kind), st.integers(0, 2**40), NAMES)
SPANS = st.tuples(st.integers(0, 2**40), st.integers(1, 2**20)).map(
    lambda span: (span[0], span[0] + span[1])
)
ACTIONS = st.one_of(
    [SPANS.map(lambda span, make=make: make(*span)) for make in (Advance, Record, Reverse)]
    + [st.builds(access, KEYS, st.integers(0, 300)) for access in (Write, Read, Discard)]
)
LISTS = st.lists(ACTIONS, max_size=12)
COLUMNS = {"op": "uint8", "begin": "int64", "end": "int64", "level": "int16"}
FEW = [Advance(0, 3), Write(Key(Kind.TAPE, 2, "u"), 1), Record(3, 4), Reverse(3, 4)]


@given(LISTS)
def test_it_holds_what_a_list_holds(actions: list[Action]) -> None:
    columns = Actions.of(iter(actions))
    assert len(columns) == len(actions)
    assert list(columns) == actions
    assert [columns[i] for i in range(len(actions))] == actions
    assert list(reversed(columns)) == actions[::-1]


@given(LISTS, st.slices(12))
def test_a_slice_is_that_of_a_list(actions: list[Action], index: slice) -> None:
    assert list(Actions.of(actions)[index]) == actions[index]


@given(LISTS.filter(bool), st.data())
def test_a_negative_index_counts_from_the_end(actions: list[Action], data: st.DataObject) -> None:
    index = data.draw(st.integers(-len(actions), -1))
    assert Actions.of(actions)[index] == actions[index]


def test_an_index_beyond_the_ends_is_an_error() -> None:
    columns = Actions.of(FEW)
    for index in (4, -5):
        with pytest.raises(IndexError):
            columns[index]


@given(LISTS, LISTS)
def test_concatenation_is_that_of_lists_whatever_the_names(
    first: list[Action], second: list[Action]
) -> None:
    assert list(Actions.of(first) + Actions.of(second)) == first + second


@given(LISTS, LISTS)
def test_equality_is_that_of_lists(first: list[Action], second: list[Action]) -> None:
    assert (Actions.of(first) == Actions.of(second)) == (first == second)


def test_equality_sees_through_different_tables_of_names() -> None:
    u, v = Write(Key(Kind.RESTART, 0, "u"), 0), Write(Key(Kind.RESTART, 0, "v"), 0)
    one, other = Actions.of([u, v])[1:], Actions.of([v])
    assert one.names != other.names
    assert one == other
    assert hash(one) == hash(other)
    assert one != Actions.of([u])


@given(LISTS)
def test_equal_actions_have_equal_hashes(actions: list[Action]) -> None:
    assert hash(Actions.of(actions)) == hash(Actions.of(list(actions)))


def test_it_is_no_list() -> None:
    assert Actions.of(FEW) != FEW
    assert isinstance(Actions.of(FEW), Sequence)


@given(LISTS)
def test_rows_come_back_as_the_same_columns(actions: list[Action]) -> None:
    columns = Actions.of(actions)
    names = {name: code for code, name in enumerate(columns.names)}
    assert Actions.of_rows(columns.rows(), names) == columns


def test_more_rows_than_one_chunk_come_in_order() -> None:
    spans = [(i, i + 1) for i in range(10_000)]
    columns = Actions.of(starmap(Advance, spans))
    assert [row[3:5] for row in columns.rows()] == spans


def test_actions_of_actions_are_themselves() -> None:
    columns = Actions.of(FEW)
    assert Actions.of(columns) is columns


def test_take_picks_by_mask_and_by_number() -> None:
    columns = Actions.of(FEW)
    assert list(columns.take(columns.op == WRITE)) == FEW[1:2]
    assert list(columns.take(np.array([3, 0]))) == [FEW[3], FEW[0]]


def test_columns_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="read-only"):
        Actions.of(FEW).begin[0] = 1


def test_it_prints_its_first_actions() -> None:
    assert repr(Actions.of(FEW[:1])) == "<1 actions: Advance[0, 3)>"
    assert repr(Actions.of(FEW + FEW)).startswith(
        "<8 actions: Advance[0, 3), Write(t_2.u, level 1)"
    )
    assert repr(Actions.of(FEW + FEW)).endswith("Reverse[3, 4), ...>")


def test_columns_of_different_lengths_are_refused() -> None:
    with pytest.raises(BadInput, match="a column has 2 rows where `op` has 1"):
        Actions(op=np.array([ADVANCE]), begin=np.array([0, 1]), end=np.array([1, 2]))


@pytest.mark.parametrize(
    ("name", "value"),
    [("op", 256), ("op", -1), ("begin", 0.5), ("end", np.nan), ("end", 1e30), ("level", 2**16)],
)
def test_numbers_that_a_column_would_change_are_refused(name: str, value: float) -> None:
    columns = {"op": np.array([WRITE]), "begin": np.array([0]), "end": np.array([0])}
    with pytest.raises(BadInput, match=f"a column of .* holds what is no {COLUMNS[name]}"):
        Actions(**columns | {name: np.array([value])})


@pytest.mark.parametrize("names", [(), ("u",), ("", "u", "u"), ("", "")])
def test_names_differ_and_the_first_is_empty(names: tuple[str, ...]) -> None:
    with pytest.raises(BadInput, match=r"names = .*; they differ, and the first is empty"):
        Actions(op=np.array([ADVANCE]), begin=np.array([0]), end=np.array([1]), names=names)


MEANINGLESS = {
    "op": (6, 0, 0, 0, 1, 0),
    "empty span": (ADVANCE, 0, 0, 3, 3, 0),
    "backward span": (ADVANCE, 0, 0, 3, 2, 0),
    "negative begin": (ADVANCE, 0, 0, -1, 2, 0),
    "span on a level": (ADVANCE, 0, 1, 0, 1, 0),
    "negative step": (WRITE, 0, 0, -1, 0, 0),
    "key with an end": (WRITE, 0, 0, 1, 2, 0),
    "negative level": (WRITE, 0, -1, 1, 0, 0),
    "unknown kind": (WRITE, 3, 0, 1, 0, 0),
    "unknown name": (WRITE, 0, 0, 1, 0, 1),
}


@pytest.mark.parametrize("row", MEANINGLESS.values(), ids=MEANINGLESS.keys())
def test_a_row_that_is_no_action_is_refused(row: tuple[int, int, int, int, int, int]) -> None:
    with pytest.raises(BadInput, match=r"row 1, .* is no action"):
        Actions.of_rows([(ADVANCE, 0, 0, 0, 1, 0), row])


@pytest.mark.parametrize("action", [Advance(0, 2**63), Write(Key(Kind.TAPE, 0), 2**15)])
def test_numbers_that_no_column_holds_are_refused(action: Action) -> None:
    with pytest.raises(BadInput, match="a number does not fit"):
        Actions.of([action])
