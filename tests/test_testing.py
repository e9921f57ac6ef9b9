"""The fakes are there for everybody; the suite, where pytest and hypothesis are."""

import subprocess
import sys


def test_the_fakes_need_neither_pytest_nor_hypothesis() -> None:
    script = """
import sys
sys.modules["pytest"] = sys.modules["hypothesis"] = None  # as if they were not installed
from ckio.testing import CountingModel, Throttled, VirtualClock, get, put, raw
try:
    from ckio.testing import BackendTests
except ImportError:
    print("no suite")
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout == "no suite\n"


def test_everything_it_names_is_there() -> None:
    import ckio.testing

    assert {name for name in ckio.testing.__all__ if getattr(ckio.testing, name, None)} == set(
        ckio.testing.__all__
    )
