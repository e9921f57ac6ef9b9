"""The bench of codecs runs; `python bench/compressed.py` takes its table."""

import compressed
from installed import needs_blosc2, needs_zfp


@needs_blosc2
@needs_zfp
def test_the_table_of_codecs_is_taken() -> None:
    table = compressed.table(grid=32, steps=12, copies=1, rounds=1)
    assert "blosc2 lz4 1" in table
    assert "zfp(tolerance=1e-06)" in table
