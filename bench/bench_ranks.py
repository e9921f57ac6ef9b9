"""A quick check of `ranks`: with a few ranks and steps, the table says what it should."""

import ranks


def test_the_table_of_ranks_is_taken() -> None:
    cases = tuple(
        ranks.Case("drawn", 5, **ranks.DRAWN, barrier=barrier, near=False)
        for barrier in ("none", "step")
    )
    table = ranks.table(40, cases, ranks.Case("alike", 3, near=False))
    assert "alike, one by one: the same to the last bit" in table
    assert table.count("drawn") == 2
    assert "of 120 s" in table


def test_transfers_behind_hold_up_less() -> None:
    cases = (ranks.Case("alike", 9, near=False, overlap=words) for words in ("", "write_behind=2"))
    waited, behind = (ranks.measure(case, 40)["makespan"] for case in cases)
    assert behind < waited


def test_ranks_that_wait_for_bandwidth_are_held_up() -> None:
    case = ranks.Case("alike", 100, near=False)
    found = ranks.measure(case, 40)
    assert found["groups"] == 1
    assert found["makespan"] > 1.5 * found["alone"]
    assert round(found["achieved"], 6) == 1
