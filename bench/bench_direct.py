"""The bench of direct I/O runs; `python bench/direct.py` takes its table."""

import tempfile
from pathlib import Path

import direct
import pytest

from ckio.backends.files import Files


def test_the_table_of_direct_io_is_taken() -> None:
    if not Files().has_direct(Path(tempfile.gettempdir())):
        pytest.skip("the file system of temporary files has no direct I/O")
    assert direct.BARE in direct.table(nbytes=2 << 20, rounds=1)
