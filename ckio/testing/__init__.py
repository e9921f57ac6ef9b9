"""Conformance suites and fakes for your own backends, codecs and models.

These classes run the tests of ckio's own backends and codecs for a new one:

    class TestMine(BackendTests):
        def make(self, tmp_path, **limits):
            return Mine(tmp_path / "level", **limits)

    class TestMyCodec(CodecTests):
        def make(self):
            return MyCodec()

    class TestMyModel(ModelTests):
        def make(self):
            return MyModel(grid=8)

`HandingTests` does the same for a model that passes checkpoints without a copy.

Call `pytest.register_assert_rewrite("ckio.testing")` before the import, so that pytest shows the
values in a failed assertion. Only the suites need pytest or hypothesis. They are imported when they
are first used.
"""

import importlib
from typing import TYPE_CHECKING, Any

from ckio.platform.clock import VirtualClock
from ckio.testing.checkpoints import FLOW, a, buffers, contents, get, put, raw, restore, save, t, x
from ckio.testing.fakes import CountingModel, Throttled

if TYPE_CHECKING:
    from ckio.testing.codecs import CodecTests
    from ckio.testing.conformance import BackendMachine, BackendTests, HandingTests, ModelTests

__all__ = [
    "FLOW",
    "BackendMachine",
    "BackendTests",
    "CodecTests",
    "CountingModel",
    "HandingTests",
    "ModelTests",
    "Throttled",
    "VirtualClock",
    "a",
    "buffers",
    "contents",
    "get",
    "put",
    "raw",
    "restore",
    "save",
    "t",
    "x",
]

_SUITES = {
    "BackendMachine": "ckio.testing.conformance",
    "BackendTests": "ckio.testing.conformance",
    "CodecTests": "ckio.testing.codecs",
    "HandingTests": "ckio.testing.conformance",
    "ModelTests": "ckio.testing.conformance",
}


def __getattr__(name: str) -> Any:
    if name not in _SUITES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_SUITES[name]), name)
