"""A quick check of `jax_peers`: of a short loop, rows are measured and gradients agree."""

from pathlib import Path

import pytest

pytest.importorskip("jax")

import jax_peers


def test_ckio_and_nested_checkpoints_are_measured(tmp_path: Path) -> None:
    names = jax_peers.FORWARD, jax_peers.NESTED, jax_peers.CKIO
    found = {name: jax_peers.measured(name, 100, 256, 1, tmp_path) for name in names}
    rows = {name: row for name, (row, _) in found.items()}
    table = jax_peers.table(rows, {name: array for name, (_, array) in found.items()})
    assert len(table.splitlines()) == 4
    assert rows[jax_peers.CKIO].stored > 6 * 8 * 256**2
    assert "times the memory" in jax_peers.verdict(rows)
