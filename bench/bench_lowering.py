"""A quick check of `lowering`: every row is there, and what is lowered is checked."""

import lowering


def test_both_models_are_lowered_at_all_lengths() -> None:
    rows = [line.split() for line in lowering.table((20, 50)).splitlines()]
    assert [row[:2] for row in rows[1:]] == [
        [model, steps] for model in ("vorticity", "permafrost") for steps in ("20", "50")
    ]
    assert all(int(row[3]) > int(row[1]) for row in rows[1:])
