"""The bench of failures runs; `python bench/failures.py` takes its table."""

import failures


def test_the_table_of_failures_is_taken() -> None:
    table = failures.tables(steps=30, times=(1.0,), failures=6)
    assert table.count("Daly") == 3
    assert table.count("best") == 1
