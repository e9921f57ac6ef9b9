"""The bench of adjoint tapes, made small: it runs, and ckio's gradients are those of store-all."""

import pytest

pytest.importorskip("pyadjoint")

import adjoint_tapes


def test_ckio_is_right_and_keeps_to_its_slots() -> None:
    case = adjoint_tapes.Case(steps=60, cells=32, slots=3)
    rows = adjoint_tapes.measured(case, 1)
    assert "new control" in adjoint_tapes.table(case, rows)
    for name, row in rows.items():
        if name.startswith("ckio"):
            assert (row.error, row.error_again) == (0.0, 0.0), name
            assert row.peak <= 3
    assert rows["ckio hrevolve"].forward <= rows["pyadjoint Revolve"].forward
