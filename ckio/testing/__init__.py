"""What other people's levels and schedules are tested with: a conformance suite, and honest fakes.

A new backend, and a new codec, are held to the same tests as ours by

    class TestMine(BackendTests):
        def make(self, tmp_path, **limits):
            return Mine(tmp_path / "level", **limits)

    class TestMyCodec(CodecTests):
        def make(self):
            return MyCodec()

and so is a model that hands checkpoints over in memory, by `HandingTests`.

A backend whose files outlive the machine can be held to the model of failing disks in
`ckio.testing.disk`: a `Recorder` in place of its `Files`, and `crashes` of what it recorded.

Rewritten assertions say more: `pytest.register_assert_rewrite("ckio.testing")` before the import.
Only the suites, and `ckio.testing.strategies` with its random chains, platforms and schedules, need
pytest or hypothesis; they are imported when they are asked for.
"""

from typing import TYPE_CHECKING, Any

from ckio.platform.clock import VirtualClock
from ckio.testing.checkpoints import FLOW, a, buffers, contents, get, put, raw, restore, save, t, x
from ckio.testing.fakes import CountingModel, Throttled

if TYPE_CHECKING:
    from ckio.testing.codecs import CodecTests
    from ckio.testing.conformance import BackendTests
    from ckio.testing.handing import HandingTests
    from ckio.testing.stateful import BackendMachine

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


def __getattr__(name: str) -> Any:
    if name == "BackendTests":
        from ckio.testing.conformance import BackendTests

        return BackendTests
    if name == "CodecTests":
        from ckio.testing.codecs import CodecTests

        return CodecTests
    if name == "HandingTests":
        from ckio.testing.handing import HandingTests

        return HandingTests
    if name == "BackendMachine":
        from ckio.testing.stateful import BackendMachine

        return BackendMachine
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
