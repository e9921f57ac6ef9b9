"""A quick check of `torch_peers`: every way finds the same gradient."""

from pathlib import Path

import pytest

pytest.importorskip("torch")

import torch_peers


def test_all_ways_find_the_same_gradient(tmp_path: Path) -> None:
    table = torch_peers.table(9, tmp_path, 1 << 14)
    assert "has the same bits in all of them" in table
    assert len(table.splitlines()) == 1 + len(torch_peers.WAYS) + 2
