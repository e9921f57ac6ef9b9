"""The bench of sustained writes runs; `python bench/sustained.py` takes its lines."""

import sustained


def test_a_line_of_sustained_writes_is_taken() -> None:
    assert "writes beyond the page cache" in sustained.line(4096, 1e-6)
