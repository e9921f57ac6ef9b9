"""The codecs that tests are run with; those whose package is not installed are skipped."""

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import pytest

from ckio.compression import Blosc2, Codec, Zfp, Zstd


def needs(package: str, /) -> pytest.MarkDecorator:
    """Skip a test, or a class of them, where a package is not installed."""
    return pytest.mark.skipif(not find_spec(package), reason=f"{package} is not installed")


needs_blosc2, needs_zfp = map(needs, ("blosc2", "zfpy"))


def some(make: Callable[[], Codec], /, name: str, *marks: pytest.MarkDecorator) -> Any:
    """What makes a codec, as a parameter; not called where its package is missing."""
    return pytest.param(make, id=name, marks=marks)


LOSSLESS = [
    some(Zstd, "zstd"),
    some(Blosc2, "blosc2", needs_blosc2),
    some(Zfp, "zfp", needs_zfp),
]
"""One of each library, as it is by default."""
