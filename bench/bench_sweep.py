"""A quick check of `sweep`: with a few steps and points, the table says what it should."""

import sweep

CASE = sweep.Case("worth it", ("ram.capacity=1GiB:8GiB:4", "nvme=on,off"))


def test_the_table_of_sweeps_is_taken() -> None:
    table = sweep.table(40, (CASE,))
    assert "of 60 s by the clock" in table
    assert "the least makespan of 8 points is" in table


def test_every_point_has_a_schedule_and_some_are_on_the_front() -> None:
    found = sweep.measure(CASE, 40)
    assert (found["points"], found["unplanned"]) == (8, 0)
    assert 1 <= int(str(found["front"])) < 8
