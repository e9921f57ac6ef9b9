"""A quick check of `overlap_planning`: on a small machine, the table says what it should."""

from overlap_planning import Case, drawn, grid, row


def test_a_row_of_the_table() -> None:
    case = Case(length=300, near=20, far=200, write=0.5, read=0.5)
    assert row(case)[1:5] == ["881", "681", "681.0", "0.00%"]


def test_the_machines_are_the_same_every_time() -> None:
    assert len(grid()) == 15
    assert drawn(1, 20) == drawn(1, 20) != drawn(2, 20)
    assert all(3 <= case.near <= 50 and 10 <= case.far <= 1000 for case in drawn(1, 20))
