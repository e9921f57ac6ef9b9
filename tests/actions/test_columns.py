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
FEW = [Advance(0, 3), Write(Key(Kind.TAPE, 2, "u"), 1), Record(3, 4), Reverse(3, 4)]


@given(LISTS, st.slices(12))
def test_it_holds_what_a_list_holds(actions: list[Action], part: slice) -> None:
    columns = Actions.of(iter(actions))
    assert len(columns) == len(actions)
    assert list(columns) == actions
    for index in range(-len(actions), len(actions)):
        assert columns[index] == actions[index]
    for index in (len(actions), -len(actions) - 1):
        with pytest.raises(IndexError):
            columns[index]
    assert list(reversed(columns)) == actions[::-1]
    assert list(columns[part]) == actions[part]
    names = {name: code for code, name in enumerate(columns.names)}
    assert Actions.of_rows(columns.rows(), names) == columns
    assert hash(columns) == hash(Actions.of(actions))


@given(LISTS, LISTS)
def test_concatenation_and_equality_are_those_of_lists_whatever_the_names(
    first: list[Action], second: list[Action]
) -> None:
    one, other = Actions.of(first), Actions.of(second)
    assert list(one + other) == first + second
    assert (one == other) == (first == second)


def test_equality_sees_through_different_tables_of_names() -> None:
    u, v = Write(Key(Kind.RESTART, 0, "u"), 0), Write(Key(Kind.RESTART, 0, "v"), 0)
    one, other = Actions.of([u, v])[1:], Actions.of([v])
    assert one.names != other.names
    assert one == other
    assert hash(one) == hash(other)
    assert one != Actions.of([u])


def test_it_is_a_sequence_and_no_list_and_cannot_be_changed() -> None:
    columns = Actions.of(FEW)
    assert columns != FEW
    assert isinstance(columns, Sequence)
    assert Actions.of(columns) is columns
    with pytest.raises(ValueError, match="read-only"):
        columns.begin[0] = 1


def test_more_rows_than_one_chunk_come_in_order() -> None:
    spans = [(i, i + 1) for i in range(10_000)]
    columns = Actions.of(starmap(Advance, spans))
    assert [row[3:5] for row in columns.rows()] == spans


def test_take_picks_by_mask_and_by_number() -> None:
    columns = Actions.of(FEW)
    assert list(columns.take(columns.op == WRITE)) == FEW[1:2]
    assert list(columns.take(np.array([3, 0]))) == [FEW[3], FEW[0]]


def test_it_prints_its_first_actions() -> None:
    assert repr(Actions.of(FEW[:1])) == "<1 actions: Advance[0, 3)>"
    text = repr(Actions.of(FEW + FEW))
    assert text.startswith("<8 actions: Advance[0, 3), Write(t_2.u, level 1)")
    assert text.endswith("Reverse[3, 4), ...>")


def test_columns_of_different_lengths_are_refused() -> None:
    with pytest.raises(BadInput, match="2 rows, but `op` has 1"):
        Actions(op=np.array([ADVANCE]), begin=np.array([0, 1]), end=np.array([1, 2]))


def test_numbers_that_a_column_would_change_are_refused() -> None:
    columns = {"op": np.array([WRITE]), "begin": np.array([0]), "end": np.array([0])}
    types = {"op": "uint8", "begin": "int64", "end": "int64", "level": "int16"}
    for name, value in (
        *(("op", 256), ("op", -1), ("begin", 0.5), ("end", np.nan)),
        *(("end", 1e30), ("level", 2**16)),
    ):
        with pytest.raises(BadInput, match=f"that is not a valid {types[name]}"):
            Actions(**columns | {name: np.array([value])})
    for action in (Advance(0, 2**63), Write(Key(Kind.TAPE, 0), 2**15)):
        with pytest.raises(BadInput, match="is too large"):
            Actions.of([action])


def test_names_differ_and_the_first_is_empty() -> None:
    columns = {"op": np.array([ADVANCE]), "begin": np.array([0]), "end": np.array([1])}
    for names in ((), ("u",), ("", "u", "u"), ("", "")):
        with pytest.raises(BadInput, match=r"names = .*differ, and the first must be empty"):
            Actions(**columns, names=names)


@pytest.mark.parametrize(
    "row",
    [
        pytest.param((6, 0, 0, 0, 1, 0), id="op"),
        pytest.param((ADVANCE, 0, 0, 3, 3, 0), id="empty span"),
        pytest.param((ADVANCE, 0, 0, 3, 2, 0), id="backward span"),
        pytest.param((ADVANCE, 0, 0, -1, 2, 0), id="negative begin"),
        pytest.param((ADVANCE, 0, 1, 0, 1, 0), id="span on a level"),
        pytest.param((WRITE, 0, 0, -1, 0, 0), id="negative step"),
        pytest.param((WRITE, 0, 0, 1, 2, 0), id="key with an end"),
        pytest.param((WRITE, 0, -1, 1, 0, 0), id="negative level"),
        pytest.param((WRITE, 3, 0, 1, 0, 0), id="unknown kind"),
        pytest.param((WRITE, 0, 0, 1, 0, 1), id="unknown name"),
    ],
)
def test_a_row_that_is_no_action_is_refused(row: tuple[int, int, int, int, int, int]) -> None:
    with pytest.raises(BadInput, match=r"row 1, .* is not a valid action"):
        Actions.of_rows([(ADVANCE, 0, 0, 0, 1, 0), row])
