"""Conformance suites, fakes and random schedules for backends, codecs and models of your own.

A new backend, and a new codec, are held to the same tests as ours by

    class TestMine(BackendTests):
        def make(self, tmp_path, **limits):
            return Mine(tmp_path / "level", **limits)

    class TestMyCodec(CodecTests):
        def make(self):
            return MyCodec()

and so is a model that hands checkpoints over in memory, by `HandingTests`.

Rewritten assertions say more: `pytest.register_assert_rewrite("ckio.testing")` before the import.
Only the suites, and `ckio.testing.strategies` with its random chains, platforms and schedules, need
pytest or hypothesis; they are imported when they are asked for.
"""

import importlib
from typing import TYPE_CHECKING, Any

from ckio.platform.clock import VirtualClock
from ckio.testing.checkpoints import FLOW, a, buffers, contents, get, put, raw, restore, save, t, x
from ckio.testing.fakes import CountingModel, Throttled

if TYPE_CHECKING:
    from ckio.testing.codecs import CodecTests
    from ckio.testing.conformance import BackendMachine, BackendTests, HandingTests

__all__ = [
    "FLOW",
    "BackendMachine",
    "BackendTests",
    "CodecTests",
    "CountingModel",
    "HandingTests",
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
}


def __getattr__(name: str) -> Any:
    if name not in _SUITES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_SUITES[name]), name)
