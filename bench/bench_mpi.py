"""A quick check of `mpi`: two ranks agree, exchange and write."""

import mpi
import pytest


def test_ranks_are_measured() -> None:
    pytest.importorskip("mpi4py")
    if not (mpi.HERE / "mpiexec").exists():
        pytest.skip("no mpiexec beside this Python")
    found = mpi.measured(2, 1 << 16)
    assert set(found) == {"agree", "halo", "write"}
    assert all(0 < seconds < 1 for seconds in found.values())
