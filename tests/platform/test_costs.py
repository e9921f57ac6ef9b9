"""A table of costs becomes a chain, or says in which line what is wrong."""

import pytest

from ckio.errors import BadInput
from ckio.platform import costs
from ckio.platform.chain import Chain

ALIKE = {"reverse": 2.0, "tape": 5, "adjoint": 7}
TABLE = """\
# of a run in May
advance, record, restart
0.5,  0.75, 64KiB   # shock

0.125,0.25, 4096
"""


def test_a_table_is_a_chain_with_a_step_for_each_line_of_numbers() -> None:
    assert costs.loads(TABLE, ALIKE) == Chain(
        steps=2,
        advance=[0.5, 0.125],
        record=[0.75, 0.25],
        reverse=2,
        restart=[65536, 4096],
        tape=5,
        adjoint=7,
    )


def test_equal_lines_make_a_chain_whose_steps_are_alike() -> None:
    text = "advance,record,restart\n" + "1,2,3\n" * 5
    assert not costs.loads(text, ALIKE).varies


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("restart\n", "retsart\n", r"c\.csv, line 2: found 'advance, record, retsart'; expected"),
        ("record", "advance", r"c\.csv, line 2: found 'advance, advance, restart'; expected"),
        (", restart\n", "\n", r"c\.csv, line 2: no column restart, and it is not given for all"),
        ("restart\n", "tape\n", r"c\.csv, line 2: no column restart"),
        ("0.125,", "", r"c\.csv, line 5: 2 values; expected one each of advance, record, restart"),
        ("0.125", "fast", r"c\.csv, line 5: advance is 'fast'; expected seconds, a number >= 0"),
        ("0.125", "-1", r"c\.csv, line 5: advance is '-1'; expected seconds"),
        ("0.125", "nan", r"c\.csv, line 5: advance is 'nan'; expected seconds"),
        ("4096", "40.5", r"c\.csv, line 5: restart is '40.5'; expected bytes, or a size such as"),
        ("64KiB", "", r"c\.csv, line 3: restart is ''; expected bytes"),
        ("64KiB", "9" * 18 + "PB", r"c\.csv: Chain: restart: .* below 2\*\*63 bytes"),
        (TABLE, "", r"c\.csv, line 1: found ''; expected the names of columns"),
        (TABLE, "advance,record,restart", r"c\.csv: no step; expected a line of numbers for each"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(old: str, new: str, message: str) -> None:
    with pytest.raises(BadInput, match=f"^{message}"):
        costs.loads(TABLE.replace(old, new), ALIKE, source="c.csv")


def test_a_cost_is_given_once() -> None:
    with pytest.raises(BadInput, match="line 2: record is given here and for all steps"):
        costs.loads(TABLE, ALIKE | {"record": 1})


def test_tables_of_spreadsheets_are_read() -> None:
    text = '"advance","record","restart"\r\n"1","2","3"\r\n"2","2","3"\r\n'
    assert costs.loads(text, ALIKE) == costs.loads("advance,record,restart\n1,2,3\n2,2,3", ALIKE)


@pytest.mark.parametrize("value", ['"1\n2"', '"1', "1" * 200_000])
def test_a_quote_never_joins_lines_and_long_values_are_refused(value: str) -> None:
    text = f"advance,record,restart\n{value},2,3\n2,2,3\n"
    if value == '"1':
        assert costs.loads(text, ALIKE).length == 2
    else:
        with pytest.raises(BadInput, match=r"^costs, line 2: "):
            costs.loads(text, ALIKE)
