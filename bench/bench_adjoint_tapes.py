"""The bench of adjoint tapes, made small: it runs, and ckio's gradients are those of store-all."""

import pytest

pytest.importorskip("pyadjoint")

import adjoint_tapes
from checkpoint_schedules import mixed, multistage


@pytest.fixture
def nothing_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Numba would compile two functions of upstream for longer than all of this takes."""
    for module, name in (multistage, "n_advance"), (mixed, "mixed_steps_tabulation"):
        function = getattr(module, name)
        monkeypatch.setattr(module, name, getattr(function, "py_func", function))


@pytest.mark.usefixtures("nothing_is_compiled")
def test_ckio_is_right_and_keeps_to_its_slots() -> None:
    case = adjoint_tapes.Case(steps=60, cells=32, slots=3)
    rows = adjoint_tapes.measured(case, 1)
    assert "new control" in adjoint_tapes.table(case, rows)
    for name, row in rows.items():
        if name.startswith("ckio"):
            assert (row.error, row.error_again) == (0.0, 0.0), name
            assert row.peak <= 3
    assert rows["ckio hrevolve"].forward <= rows["pyadjoint Revolve"].forward
