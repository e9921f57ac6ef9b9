"""A quick check of `jax_peers`: of a short loop, rows are measured and gradients agree."""

from pathlib import Path

import pytest

pytest.importorskip("jax")

import jax_peers


def test_ckio_and_nested_checkpoints_are_measured(tmp_path: Path) -> None:
    names = jax_peers.FORWARD, jax_peers.NESTED, jax_peers.COMPILED, jax_peers.CKIO
    rows, arrays = jax_peers.measured(names, 100, 256, 1, tmp_path)
    assert len(jax_peers.table(rows, arrays).splitlines()) == 5
    for name in (jax_peers.COMPILED, jax_peers.CKIO):
        assert rows[name].stored > 3 * 8 * 256**2
    assert "of the memory" in jax_peers.verdict(rows)
