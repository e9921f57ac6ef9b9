"""The bench of fidelity runs; `python bench/fidelity.py` takes its table."""

import fidelity


def test_the_table_of_fidelity_is_taken() -> None:
    subject = fidelity.Subject("a small model", 16, 12, (2, 12, 12))
    table = fidelity.tables([subject])
    assert "brief: " in fidelity.brief_beside_long(subject)
    assert all(planner in table for planner in fidelity.PLANNERS)
    assert all(f"{policy}: off by" in table for policy in fidelity.POLICIES)
