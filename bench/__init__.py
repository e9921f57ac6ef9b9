"""What ckio takes on a machine: scripts that a user may run, and whose tables the pages quote.

    python -m bench.NAME --record      writes bench/results/NAME.txt; without, it only prints

`bench.peers` compares ckio with other programs, and `bench.papers` with figures of publications.
Models of the examples, and reference solvers, are imported from `tests`.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]

sys.path += [str(ROOT / "tests"), str(ROOT / "tests" / "programs")]
