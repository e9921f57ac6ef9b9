"""A quick check of `dag`: of small programs, the tables say what they should."""

import dag


def test_the_tables_are_taken() -> None:
    table = dag.table(400, {200: ("milp", "paper")})
    assert "of 10 s" in table
    assert table.count("DAGs of 100") == 6


def test_highs_reaches_what_the_cut_reaches_and_the_search_no_more() -> None:
    for case in dag.cases(400):
        *_, program, search = dag.beside(case, ("milp", "paper"))
        assert program == "1.0000"
        assert float(search) >= 1


def test_seconds_are_what_storing_and_computing_take_together() -> None:
    bytes_, seconds = (dag.measured(case) for case in list(dag.cases(400))[1:3])
    assert bytes_[5].endswith(" B")
    assert seconds[5].endswith(" s")
    assert int(seconds[-1]) < int(bytes_[-1])
