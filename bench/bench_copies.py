"""The bench of copies still runs, and all its contenders compute the same gradient."""

import copies

from ckio.models.burgers import Burgers

CASE = copies.Case("burgers", lambda: Burgers(grid=200, time=1e9), 9)


def test_all_contenders_have_the_bare_loops_gradient() -> None:
    took = copies.times(CASE, 2)
    assert {len(each) for each in took.values()} == {2}
    assert min(map(min, took.values())) > 0


def test_the_table_says_what_is_missed() -> None:
    table = copies.table([CASE], 2)
    assert table.splitlines()[-1].startswith("burgers")
    assert "missed" in table
