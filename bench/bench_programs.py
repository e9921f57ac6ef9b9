"""A quick check of `programs`: of short programs, the tables are right."""

import programs
from unknown_length import listing1


def test_the_table_of_growth_is_taken() -> None:
    points = programs.growth((103, 203), repeats=1)
    (_, first, _), (_, plain, other) = points
    assert plain.stats["tape_peak"] > 1.5 * first.stats["tape_peak"]
    assert other.nbytes < plain.nbytes
    table = programs.table_of_growth(points)
    assert len(table.splitlines()) == 3


def test_a_tick_is_measured_beside_plain_python() -> None:
    found = programs.overhead(listing1, (3.0, 103, 1e-3), repeats=1)
    assert found.ticks > 400
    assert "us more" in programs.lines_of_overhead(found)


def test_a_whole_gradient_is_held_against_what_it_computes() -> None:
    found = programs.whole(256, 1e-3, 8, repeats=1)
    assert found.again > 1
    assert found.stats["tape_bytes"] < found.tape_bytes
    assert "times forward" in programs.lines_of_whole(found)
