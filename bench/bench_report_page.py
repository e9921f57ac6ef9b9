"""A quick check of `report_page`: the pages of short chains are written and measured."""

import report_page


def test_both_pages_are_small() -> None:
    rows = report_page.table((100, 3000)).splitlines()[1:]
    assert len(rows) == 2
    assert all(0 < float(row.split()[-3]) < 1 for row in rows)
