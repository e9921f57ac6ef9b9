"""What ckio encodes is what HDF5's own filters decode, and the other way round."""

import subprocess
import sys

from installed import needs_hdf5plugin

SCRIPT = """
import h5py, hdf5plugin, numpy as np
from ckio.compression import Zstd

random = np.random.default_rng(0)
with h5py.File("blocks.h5", "w", driver="core", backing_store=False) as file:
    for dtype in "<f4 <f8 >f8 <i2 <i8 <c8 <c16 |u1".split():
        for shuffle in (True, False):
            codec = Zstd(3, shuffle=shuffle)
            block = (1000 * random.standard_normal((7, 30))).astype(dtype)
            into = memoryview(bytearray(codec.bound(block.nbytes)))
            frame = into[: codec.encode(block, into)]
            dataset = file.create_dataset(
                f"{dtype}{shuffle}", (7, 30), dtype, chunks=(7, 30),
                shuffle=shuffle and dtype != "|u1", compression=hdf5plugin.Zstd(),
            )
            dataset.id.write_direct_chunk((0, 0), bytes(frame))
            assert dataset[...].tobytes() == block.tobytes(), (dtype, shuffle)
            print(dtype)
"""


@needs_hdf5plugin
def test_a_block_of_zstd_is_a_chunk_of_hdf5() -> None:
    """Complex numbers, too: a compound of two for HDF5, which shuffles it as one element."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], check=True, capture_output=True, text=True
    )
    assert len(done.stdout.split()) == 16
