"""A quick check of `programs`: of short programs, the tables and the figure are right."""

from pathlib import Path

import programs
from unknown_length import listing1


def test_the_figure_and_its_table_are_made(tmp_path: Path) -> None:
    points = programs.growth((103, 203), repeats=1)
    (_, first, _), (_, plain, other) = points
    assert plain.stats["tape_peak"] > 1.5 * first.stats["tape_peak"]
    assert other.nbytes < plain.nbytes
    table = programs.table_of_growth(points)
    assert len(table.splitlines()) == 3
    programs.draw(points, tmp_path / "programs.svg")
    assert (tmp_path / "programs.svg").read_text().count("one tape") >= 3


def test_a_tick_is_measured_beside_plain_python() -> None:
    found = programs.overhead(listing1, (3.0, 103, 1e-3), repeats=1)
    assert found.ticks > 400
    assert "us more" in programs.lines_of_overhead(found)


def test_a_whole_gradient_is_held_against_what_it_computes() -> None:
    found = programs.whole(256, 1e-3, 8, repeats=1)
    assert found.again > 1
    assert found.stats["tape_bytes"] < found.tape_bytes
    assert "times forward" in programs.lines_of_whole(found)
