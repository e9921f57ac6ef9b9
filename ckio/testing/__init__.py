"""What other people's levels and schedules are tested with: a conformance suite, and honest fakes.

Only this package needs pytest and hypothesis. A new backend is held to the same tests as ours by

    class TestMine(BackendTests):
        def make(self, tmp_path, **limits):
            return Mine(tmp_path / "level", **limits)

Rewritten assertions say more: `pytest.register_assert_rewrite("ckio.testing")` before the import.
"""

from ckio.clock import VirtualClock
from ckio.testing.checkpoints import FLOW, buffers, contents, get, put, raw
from ckio.testing.conformance import BackendTests
from ckio.testing.fakes import CountingModel, Throttled
from ckio.testing.stateful import BackendMachine

__all__ = [
    "FLOW",
    "BackendMachine",
    "BackendTests",
    "CountingModel",
    "Throttled",
    "VirtualClock",
    "buffers",
    "contents",
    "get",
    "put",
    "raw",
]
